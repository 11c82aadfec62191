//! The program itself: how soon it answers, and how much a kernel at rest holds.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use regent_testkit::TestKernel;

use crate::measure::{median, once};
use crate::report::Report;

/// `cli.version` and `kernel.rss.idle`.
pub fn measure(report: &mut Report) -> Result<()> {
    version(report)?;
    idle(report)
}

fn version(report: &mut Report) -> Result<()> {
    let program = std::env::var_os("REGENT_PROGRAM")
        .context("`cargo xtask bench` builds the program and says where it is")?;
    let mut samples = Vec::new();
    for _ in 0..101 {
        let (took_s, status) =
            once(|| Command::new(&program).arg("--version").stdout(Stdio::null()).status());
        ensure!(status?.success(), "`regent --version` failed");
        samples.push(took_s * 1e3);
    }
    report.figure("cli.version", median(samples), "ms");
    Ok(())
}

/// A process with nothing in it but a kernel that has come up: this one, started again.
fn idle(report: &mut Report) -> Result<()> {
    let own = std::env::current_exe()?;
    let mut samples = Vec::new();
    for _ in 0..5 {
        let output = Command::new(&own).arg(IDLE).stderr(Stdio::inherit()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        samples.push(said.trim().parse::<f64>().with_context(|| format!("the idle kernel said `{said}`"))?);
    }
    report.figure("kernel.rss.idle", median(samples), "MB");
    Ok(())
}

/// The word that makes this program a kernel at rest.
pub const IDLE: &str = "--idle-kernel";

/// Comes up with a durable ledger, and says what it holds in memory.
pub fn be_idle() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let kernel = TestKernel::builder().durable().boot().await.map_err(|error| anyhow::anyhow!(error))?;
        let status = std::fs::read_to_string("/proc/self/status")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kilobytes: f64 = resident.trim().trim_end_matches("kB").trim().parse()?;
        println!("{}", kilobytes / 1_024.0);
        kernel.kernel.shutdown().await?;
        Ok(())
    })
}
