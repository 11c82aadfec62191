//! `regent policy bundle`, `verify` and `apply`: policies that others can check the origin of, and that one can put in force.

use std::path::{Path, PathBuf};

use clap::Args;
use regent_kernel::Policy;
use serde_json::json;

use crate::bundles::{self, Bundle, NAME, PolicyFile};
use crate::codes;
use crate::compose::{self, BootedKernel};
use crate::context::Context;
use crate::controls::{self, Controls};
use crate::failure::Failure;
use crate::manifests;
use crate::output::{CommandResult, Done};
use crate::paths::{self, Project};
use crate::term;
use crate::trust::Trust;

/// Put a signed bundle in force, beside your own policy: each decides, and the stricter answer holds
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The bundle; one of `policy.publishers` must have signed it
    #[arg(required_unless_present = "withdraw")]
    file: Option<PathBuf>,
    /// Also one that is older than the last
    #[arg(long)]
    allow_older: bool,
    /// Take the bundle in force out again
    #[arg(long, conflicts_with_all = ["file", "allow_older"])]
    withdraw: bool,
}

pub(super) fn make(context: &Context, files: &[PathBuf], out: &Path) -> CommandResult {
    let mut packed = Vec::new();
    for file in files {
        let path = context.cwd.join(file);
        let text = controls::read_file(&path)?;
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let beside = manifests::beside(&path, &text)?;
        let file = PolicyFile::new(name, text, beside);
        file.load("")?;
        packed.push(file);
    }
    let bundle = Bundle::new(packed, context.clock.now_ms());
    context.paths.make()?;
    let key = compose::ledger_key(&context.paths)?;
    let signed = bundle.sign(&key)?;
    let path = context.cwd.join(out);
    std::fs::write(&path, signed).map_err(|error| Failure::io("write", &path, &error))?;
    let vkey = key.public().vkey(NAME);
    let shown = term::inline(&out.display().to_string()).into_owned();
    let text = format!("{shown}: {} files, signed by\n{vkey}\n", bundle.files.len());
    Ok(Done::new(
        json!({"bundle": out.display().to_string(), "files": bundle.files.len(), "key": vkey}),
        text,
    ))
}

pub(super) fn verify(context: &Context, file: &Path, key: &str, out: Option<&Path>) -> CommandResult {
    let key = bundles::publisher(key).map_err(|why| Failure::new(codes::POLICY_BUNDLE, why))?;
    let text = controls::read_file(&context.cwd.join(file))?;
    let opened = bundles::open(&text, &[key])?;
    opened.policies()?;
    if let Some(out) = out {
        let folder = context.cwd.join(out);
        for file in &opened.bundle.files {
            unpack(&folder.join(&file.name), &file.text)?;
            for (name, text) in &file.beside {
                unpack(&folder.join(name), text)?;
            }
        }
    }
    let names = names(&opened);
    let text = format!("{} {}\n", context.screen.good("ok"), term::inline(&names.join(", ")));
    Ok(Done::new(json!({"files": names, "made_at_ms": opened.bundle.made_at_ms}), text))
}

fn unpack(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|error| Failure::io("make", folder, &error))?;
    std::fs::write(path, text).map_err(|error| Failure::io("write", path, &error))
}

fn names(opened: &bundles::Opened) -> Vec<String> {
    opened.bundle.files.iter().map(|file| file.name.clone()).collect()
}

/// Where it is recorded: in the project's ledger, if one is trusted here, else in the one in the user's state folder.
fn place(context: &Context) -> Result<(Option<Controls>, Project), Failure> {
    let here = context.project().and_then(|project| Trust::demand(&context.paths, &project)).ok();
    let place = match &here {
        Some(controls) => controls.project().clone(),
        None => {
            context.paths.make()?;
            let own = context.paths.own_ledger();
            paths::make_private(&own)?;
            Project::open(&own)?
        }
    };
    Ok((here, place))
}

pub(super) async fn apply(context: &Context, args: &ApplyArgs) -> CommandResult {
    let read = match args.file.as_ref().filter(|_| !args.withdraw) {
        Some(file) => {
            let text = controls::read_file(&context.cwd.join(file))?;
            let keys = context.settings.publishers();
            if keys.is_empty() {
                let why = "no publisher is configured, so no bundle is trusted";
                let help = "run `regent config set policy.publishers KEY` with the publisher's key";
                return Err(Failure::new(codes::POLICY_BUNDLE, why).help(help));
            }
            let opened = bundles::open(&text, &keys)?;
            opened.policies()?;
            bundles::check_age(&context.paths, &opened, context.clock.now_ms(), args.allow_older)?;
            Some((opened, text))
        }
        None => None,
    };
    let (here, place) = place(context)?;
    let old = compose::policy(&context.paths, here.as_ref()).unwrap_or_else(|_none| Policy::deny_all());
    let running = BootedKernel::boot_with(context, &place, old).await?;
    let done = put(context, &running, here.as_ref(), read.as_ref()).await;
    running.close(context, done).await
}

/// Puts it in force in this kernel, which records that; kernels that run elsewhere find it when they next look.
async fn put(
    context: &Context,
    running: &BootedKernel,
    here: Option<&Controls>,
    read: Option<&(bundles::Opened, String)>,
) -> CommandResult {
    let before = bundles::kept(&context.paths)?;
    let was_there = match read {
        Some((opened, text)) => {
            bundles::keep(&context.paths, opened, text)?;
            true
        }
        None => bundles::withdraw(&context.paths)?,
    };
    // Without a bundle there may be no policy at all, and that is a policy: nothing is allowed.
    let next = compose::policy(&context.paths, here)
        .or_else(|failure| if read.is_none() { Ok(Policy::deny_all()) } else { Err(failure) });
    let recorded = match next {
        Ok(policy) => running.host.replace_policy(policy).await.map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = recorded {
        // What isn't recorded, or doesn't load with the rest, isn't in force.
        bundles::put_back(before)?;
        return Err(failure);
    }
    let good = context.screen.good("ok");
    let digest = running.kernel.policy_digest();
    Ok(match read {
        Some((opened, _)) => {
            let names = names(opened);
            let line = format!("{} of {}, signed by {}", names.join(", "), opened.made(), opened.publisher);
            let data = json!({"files": names, "made_at_ms": opened.bundle.made_at_ms, "policy": digest, "publisher": opened.publisher});
            Done::new(data, format!("{good} active: {}\n", term::inline(&line)))
        }
        None if was_there => {
            Done::new(json!({"policy": digest, "withdrawn": true}), format!("{good} withdrawn\n"))
        }
        None => Done::new(json!({"policy": digest, "withdrawn": false}), "there was none\n".to_owned()),
    })
}
