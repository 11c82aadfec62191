//! What a guest of the microVM tier costs: from nothing, with its program loaded before, being killed, and making a system call.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use regent_microvm::MicrovmTier;
use regent_sandbox::{Exit, Spec};
use tokio::runtime::Runtime;

use crate::measure::{median, once};
use crate::report::Report;

const ROUNDS: usize = 100;
/// System calls of one guest.
const CALLS: u32 = 10_000;
/// As long as a machine takes to be made ahead, with room to spare.
const AHEAD: Duration = Duration::from_millis(10);

/// `microvm.*`. Warm starts are measured in turns with the process tier, which they are held against.
pub fn measure(report: &mut Report, runtime: &Runtime) -> Result<()> {
    if let Err(closed) = regent_microvm::probe() {
        report.skip("microvm", &closed.reason);
        return Ok(());
    }
    let tier = MicrovmTier::new();
    let (mut cold, mut warm, mut process, mut kill) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let ms = |took: Result<Duration, String>| {
        took.map(|took| took.as_secs_f64() * 1e3).map_err(|why| anyhow!(why))
    };
    for _ in 0..ROUNDS {
        tier.cool();
        cold.push(ms(tier.hello())?);
        std::thread::sleep(AHEAD);
        warm.push(ms(tier.hello())?);
        std::thread::sleep(AHEAD);
        let (took_s, ended) =
            once(|| runtime.block_on(regent_sandbox::run(Spec::new(["/bin/true"]), std::future::pending())));
        ensure!(matches!(ended?.status, Exit::Code(0)), "/bin/true failed in the sandbox");
        process.push(took_s * 1e3);
        kill.push(ms(tier.kill())?);
    }
    let (warm, process) = (median(warm), median(process));
    report.figure("microvm.hello", median(cold), "ms");
    report.figure("microvm.hello.warm", warm, "ms");
    report.figure("microvm.hello.warm.ratio", warm / process, "times");
    report.figure("microvm.kill", median(kill), "ms");
    report.figure("microvm.exit", ms(tier.exit(CALLS))? * 1e3, "us");
    Ok(())
}
