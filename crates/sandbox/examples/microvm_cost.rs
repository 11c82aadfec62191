//! What guests cost on this machine: `cargo run --release -p regent-sandbox --features microvm --example microvm_cost`.
#![expect(clippy::print_stdout, reason = "it prints figures")]

#[cfg(target_arch = "x86_64")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::time::{Duration, Instant};

    use regent_sandbox::Spec;
    use regent_sandbox::microvm::{self, MicrovmTier};

    microvm::probe().map_err(|closed| closed.reason.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tier = MicrovmTier::new();
    let (mut cold, mut warm, mut kill, mut process) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..100 {
        let started = Instant::now();
        runtime.block_on(regent_sandbox::run(Spec::new(["/bin/true"]), std::future::pending()))?;
        process.push(started.elapsed());
        tier.cool();
        cold.push(tier.hello()?);
        std::thread::sleep(Duration::from_millis(10));
        warm.push(tier.hello()?);
        kill.push(tier.kill()?);
    }
    for (name, samples) in
        [("process", &mut process), ("cold", &mut cold), ("warm", &mut warm), ("kill", &mut kill)]
    {
        samples.sort();
        println!("{name} {:?} (worst {:?})", samples.get(samples.len() / 2), samples.last());
    }
    println!("exit {:?}", tier.exit(10_000)?);
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {}
