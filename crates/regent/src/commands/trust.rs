//! `regent trust`: nothing in a folder acts before its owner says so.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::compose;
use crate::context::Context;
use crate::output::{CommandResult, Done};
use crate::paths::Project;
use crate::term;
use crate::trust::Trust;

/// Trust a folder's policy and settings as they are now
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Which folder; the project that you are in if none is named
    #[arg(value_hint = clap::ValueHint::DirPath)]
    folder: Option<PathBuf>,
    /// Stop trusting it
    #[arg(long)]
    revoke: bool,
}

pub(crate) fn run(context: &Context, args: &TrustArgs) -> CommandResult {
    let project = match &args.folder {
        Some(folder) => Project::find(&context.cwd.join(folder))?,
        None => context.project()?,
    };
    let root = project.root.display().to_string();
    let shown = term::inline(&root).into_owned();
    if args.revoke {
        let was = Trust::revoke(&context.paths, &project)?;
        let text = if was {
            format!("{shown} is no longer trusted\n")
        } else {
            format!("{shown} was not trusted\n")
        };
        return Ok(Done::new(json!({"folder": root, "trusted": false, "was_trusted": was}), text));
    }
    context.paths.demand_apart(&project)?;
    // A policy that can't be read must not be agreed to: the mistakes are shown instead.
    compose::project_policies(&project)?;
    let files = Trust::grant(&context.paths, &project, context.clock.now_ms())?;
    let names: Vec<_> = files.iter().map(|file| term::inline(file).into_owned()).collect();
    let with = if names.is_empty() {
        "which has no policy of its own".to_owned()
    } else {
        format!("with {}", names.join(", "))
    };
    let text = format!("trusted {shown}, {with}\n");
    Ok(Done::new(json!({"folder": root, "trusted": true, "files": files}), text))
}
