//! `regent trust`: nothing in a folder acts before its owner says so.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::paths::Project;
use crate::term;
use crate::trust::{Offer, Trust};

/// Trust a folder's policy, settings and skills in their current state
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// The folder [default: the current project]
    #[arg(value_hint = clap::ValueHint::DirPath)]
    folder: Option<PathBuf>,
    /// Stop trusting it
    #[arg(long)]
    revoke: bool,
    /// Don't ask: you have reviewed every control file and the permissions of each skill
    #[arg(long, conflicts_with = "revoke")]
    yes: bool,
}

pub(crate) async fn run(context: &Context, args: &TrustArgs) -> CommandResult {
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
    if let Some(aside) = Trust::set_aside(&context.paths, context.clock.now_ms())? {
        context.screen.say(&format!(
            "regent: the record of trusted folders was damaged and is now {}; your other folders need `regent trust` again\n",
            term::inline(&aside.display().to_string())
        ));
    }
    // A policy that can't be read must not be agreed to: the mistakes are shown instead.
    let offer = Offer::read(context, &project)?;
    if offer.is_foreign() && !args.yes {
        let unasked = || {
            let message = format!(
                "{shown} has control files that you have not trusted in their current state, and there is no terminal to ask on:\n{}",
                offer.text()
            );
            Failure::new(codes::TERMINAL_NEEDED, message)
                .help("review them, then run `regent trust --yes`")
                .data(offer.to_json())
        };
        offer.ask(context, &project, unasked).await?;
    }
    let files = offer.accept(context, &project)?;
    let names: Vec<_> = files.iter().map(|file| term::inline(file).into_owned()).collect();
    let with = if names.is_empty() {
        "without a policy of its own".to_owned()
    } else {
        format!("with {}", names.join(", "))
    };
    let text = format!("trusted {shown}, {with}\n{}", offer.text());
    Ok(Done::new(json!({"folder": root, "trusted": true, "files": files, "agreed": offer.to_json()}), text))
}
