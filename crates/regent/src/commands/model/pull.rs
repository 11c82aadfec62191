//! `regent model pull`: brings weights onto this machine, with a bar while they come.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::BoxFuture;
use regent_models::pull::{self, Package, Packages, Progress, PullError, Told, Weights};
use serde_json::json;

use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};

/// Letters of the bar.
const BAR_WIDTH: u64 = 30;
/// One package may take so long.
const PACKAGE_MS_MAX: u64 = 30 * 60_000;
/// The tools that bring packages, in the order in which they are tried.
const PIPS: &[(&str, &[&str])] = &[("pip", &[]), ("pip3", &[]), ("python3", &["-m", "pip"])];

pub(super) async fn run(context: &Context, name: Option<&str>) -> CommandResult {
    let name = name.or_else(|| pull::names().next()).unwrap_or_default();
    let weights = pull::find(name).map_err(failure)?;
    let folder = context.paths.weights();
    let was_there = pull::is_pulled(&folder, name);
    let told = bar(context, weights);
    let file = pull::pull(weights, &folder, Some(&Pip), &told).await.map_err(failure)?;
    if !was_there && context.screen.draws {
        context.screen.say("\n");
    }
    let word = if was_there { "is there already" } else { "is here" };
    let text = format!(
        "{} {word}: {} ({}, {} MB)\n",
        context.screen.strong(&format!("local/{name}")),
        file.display(),
        weights.licence,
        weights.bytes / 1_000_000
    );
    let value = json!({"model": format!("local/{name}"), "file": file, "bytes": weights.bytes, "sha256": weights.sha256, "pulled": !was_there});
    Ok(Done::new(value, text))
}

fn failure(error: PullError) -> Failure {
    let code = match error {
        PullError::Unknown { .. } => codes::MODEL_WEIGHTS,
        PullError::Digest { .. } => codes::MODEL_DIGEST,
        PullError::DiskFull(_) | PullError::Write(_) => codes::MODEL_WRITE,
        PullError::Cut { .. } | PullError::Nowhere(_) => codes::MODEL_SOURCE,
    };
    Failure::new(code, error.to_string())
}

/// On a terminal a bar that moves; elsewhere a line for each tenth.
fn bar(context: &Context, weights: &Weights) -> Told {
    let (screen, name) = (context.screen, weights.name.clone());
    let last = AtomicU64::new(u64::MAX);
    let one_at_a_time = Mutex::new(());
    Arc::new(move |Progress { done, total }| {
        let _alone = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = if screen.draws { 1_000 } else { 10 };
        let part = done.saturating_mul(parts).checked_div(total).unwrap_or(0);
        if last.swap(part, Ordering::AcqRel) == part {
            return;
        }
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(0);
        let (done_mb, total_mb) = (done / 1_000_000, total / 1_000_000);
        if screen.draws {
            let full = usize::try_from(percent.saturating_mul(BAR_WIDTH) / 100).unwrap_or(0);
            let empty = usize::try_from(BAR_WIDTH).unwrap_or(0).saturating_sub(full);
            screen.say(&format!(
                "\r{name} [{}{}] {percent:>3} %  {done_mb}/{total_mb} MB",
                "█".repeat(full),
                "·".repeat(empty)
            ));
        } else {
            screen.say(&format!("{name}: {percent} % ({done_mb} of {total_mb} MB)\n"));
        }
    })
}

/// The package tool of whoever sits here. It downloads, as that person, into a folder of ours; nothing is installed, built or run.
struct Pip;

impl Packages for Pip {
    fn download<'a>(&'a self, package: &'a Package, into: &'a Path) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let mut why = "no `pip` is here".to_owned();
            for (program, before) in PIPS {
                let mut args: Vec<OsString> = before.iter().map(OsString::from).collect();
                let own = [
                    "download",
                    "--no-deps",
                    "--only-binary=:all:",
                    "--no-input",
                    "--quiet",
                    "--no-cache-dir",
                    "--dest",
                ];
                args.extend(own.map(OsString::from));
                args.push(into.into());
                args.push(format!("{}=={}", package.name, package.version).into());
                match regent_sandbox::run_plain(program, &args, PACKAGE_MS_MAX).await {
                    Ok(ended) if ended.is_good => return Ok(()),
                    Ok(ended) => {
                        why = ended.said.trim().lines().next_back().unwrap_or("it failed").to_owned()
                    }
                    // Not there: the next one may be.
                    Err(_) => {}
                }
            }
            Err(why)
        })
    }
}
