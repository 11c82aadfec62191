//! What confinement costs: `/bin/true` plain, in our process tier, and in bubblewrap, in turns; then guests of the microVM
//! and WASM tiers.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use regent_sandbox::{Exit, Spec};

use crate::measure::{median, once};
use crate::report::Report;

const ROUNDS: usize = 200;
/// Confinement of the same kind, as far as bubblewrap gives it.
const BWRAP: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "/bin/true",
];

/// `sandbox.*`, `microvm.*` and `wasm.*`.
pub fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let has_bwrap = bwrap().is_ok();
    let (mut plain, mut confined, mut rival) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (took_s, status) = once(|| quiet(&mut Command::new("/bin/true")));
        status?;
        plain.push(took_s * 1e3);
        let (took_s, ended) =
            once(|| runtime.block_on(regent_sandbox::run(Spec::new(["/bin/true"]), std::future::pending())));
        ensure!(matches!(ended?.status, Exit::Code(0)), "/bin/true failed in the sandbox");
        confined.push(took_s * 1e3);
        if has_bwrap {
            let (took_s, status) = once(bwrap);
            status?;
            rival.push(took_s * 1e3);
        }
    }
    let (plain, confined) = (median(plain), median(confined));
    report.figure("sandbox.plain.true", plain, "ms");
    report.figure("sandbox.process.true", confined, "ms");
    report.figure("sandbox.process.true.ratio", confined / plain, "times");
    if has_bwrap {
        let rival = median(rival);
        report.figure("sandbox.bwrap.true", rival, "ms");
        report.figure("sandbox.bwrap.true.ratio", rival / confined, "times");
    } else {
        report.skip("sandbox.bwrap.true", "bubblewrap is not installed, or doesn't work here");
    }
    crate::microvm::measure(report, &runtime)?;
    crate::wasm::measure(report)
}

fn bwrap() -> Result<()> {
    quiet(Command::new("bwrap").args(BWRAP))
}

fn quiet(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}
