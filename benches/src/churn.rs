//! A program that makes, renames and removes many files: what the supervisor costs a program that does little else.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use regent_sandbox::{Bind, Exit, Spec, WorkspaceMount};
use tokio::runtime::Runtime;

use crate::measure::{median, once};
use crate::report::Report;
use crate::sandbox::{BWRAP, bwrap, quiet};

/// The word that makes this program such a program.
pub const CHURN: &str = "--churn";
const FILES: usize = 2_000;
const ROUNDS: usize = 7;
/// Calls that make or remove a name, for each file: create, rename, unlink.
const CALLS: f64 = 3.0;

/// `sandbox.*.churn`. There is no bar: the figures say what a name costs.
pub fn measure(report: &mut Report, runtime: &Runtime, has_bwrap: bool) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let workspace = folder.path().canonicalize()?;
    let own = std::env::current_exe()?.canonicalize()?;
    let (mut plain, mut confined, mut rival) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (took_s, status) = once(|| quiet(Command::new(&own).arg(CHURN).arg(&workspace)));
        status?;
        plain.push(took_s * 1e3);
        let spec = spec(&own, &workspace);
        let (took_s, ended) = once(|| runtime.block_on(regent_sandbox::run(spec, std::future::pending())));
        let ended = ended?;
        ensure!(
            matches!(ended.status, Exit::Code(0)),
            "the program failed in the sandbox: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
        confined.push(took_s * 1e3);
        if has_bwrap {
            let (took_s, status) = once(|| bwrap(&with_bwrap(&own, &workspace)?));
            status?;
            rival.push(took_s * 1e3);
        }
    }
    let (plain, confined) = (median(plain), median(confined));
    report.figure("sandbox.plain.churn", plain, "ms");
    report.figure("sandbox.process.churn", confined, "ms");
    report.figure("sandbox.process.churn.ratio", confined / plain, "times");
    report.figure("sandbox.process.churn.call", (confined - plain) * 1e3 / (FILES as f64 * CALLS), "us");
    if has_bwrap {
        report.figure("sandbox.bwrap.churn", median(rival), "ms");
    }
    Ok(())
}

fn spec(own: &Path, workspace: &Path) -> Spec {
    let argv = [own.as_os_str(), CHURN.as_ref(), workspace.as_os_str()];
    Spec {
        cwd: workspace.to_path_buf(),
        workspace: Some(WorkspaceMount::new(workspace, true)),
        binds: vec![Bind::same(own)],
        ..Spec::new(argv)
    }
}

fn with_bwrap(own: &Path, workspace: &Path) -> Result<Vec<String>> {
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that isn't text");
    let (own, workspace) = (text(own)?, text(workspace)?);
    let words = ["--bind", &workspace, &workspace, "--ro-bind", &own, &own, &own, CHURN, &workspace];
    Ok(BWRAP.iter().copied().chain(words).map(str::to_owned).collect())
}

/// Makes, renames and removes files in a folder.
pub fn be_busy(folder: Option<&String>) -> Result<()> {
    let folder = PathBuf::from(folder.context("a folder is needed")?);
    for number in 0..FILES {
        let (first, second) = (folder.join(format!("a{number}")), folder.join(format!("b{number}")));
        std::fs::write(&first, b"x")?;
        std::fs::rename(&first, &second)?;
        std::fs::remove_file(&second)?;
    }
    Ok(())
}
