//! State that scales: many callers of one rate on SQLite, an unrelated call beside them, and kernels with many agents and waiting questions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use regent_kernel::{Host, Op, Principal, Reply, Status, Workspace};
use regent_store::SqliteState;
use regent_testkit::{TestKernel, run, spawn};
use serde_json::json;

use crate::measure::median;
use crate::report::Report;

const POLICY: &str = "version: 1
rules:
  - { id: many, effect: allow, match: { tool: noop }, rate: 1000000000/hour }
  - { id: plain, effect: allow, match: { tool: plain } }
  - { id: asks, effect: ask, match: { tool: ask } }
  - { id: operator, effect: allow, match: { class: operator } }
";
const CALLERS: usize = 256;
const CALLS: u64 = 40_000;
/// Agents that live and questions that wait.
const MANY: usize = 10_000;
const IDLE: Duration = Duration::from_secs(5);
/// Between two measured calls, alone and beside others: without it the first would be a benchmark of a hot cache.
const PAUSE: Duration = Duration::from_millis(1);
const HOPS: usize = 5_000;

/// `state.*`
pub fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(hops(report))?;
    runtime.block_on(rates(report))?;
    runtime.block_on(many(report))
}

async fn kernel(folder: &tempfile::TempDir) -> Result<Arc<TestKernel>> {
    let state = SqliteState::open(&folder.path().join("state.db"))?;
    let builder = TestKernel::builder().policy(POLICY).state(Arc::new(state));
    let quiet = || regent_testkit::Behaviour::Echo;
    let booted = builder.tool("plain", quiet()).tool("ask", quiet()).boot().await;
    Ok(Arc::new(booted.map_err(|error| anyhow!(error))?))
}

async fn done(host: &Host, who: &Principal, op: Op) -> Result<()> {
    match host.syscall(who, op).await? {
        Reply::Done(outcome) if outcome.status == Status::Ok => Ok(()),
        other => Err(anyhow!("a call ended with {other:?}")),
    }
}

/// What it costs to let another thread do something, and what is done without that: to find all names of a path.
async fn hops(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for name in 0..50 {
        std::fs::write(folder.path().join(format!("file-{name}")), "x")?;
    }
    std::fs::create_dir_all(folder.path().join(".git/hooks"))?;
    std::fs::write(folder.path().join(".git/config"), "[core]\n\tbare = false\n")?;
    let workspace = Workspace::open(folder.path())?;
    let (mut hops, mut paths) = (Vec::new(), Vec::new());
    for _ in 0..HOPS {
        let started = Instant::now();
        tokio::task::spawn_blocking(|| ()).await?;
        hops.push(started.elapsed().as_secs_f64() * 1e6);
        let started = Instant::now();
        workspace.spellings("file-7")?;
        paths.push(started.elapsed().as_secs_f64() * 1e6);
    }
    report.figure("state.thread.hop", median(hops), "us");
    report.figure("state.path.spellings", median(paths), "us");
    Ok(())
}

/// Calls a second of 256 callers of one rule with a rate, and the 99th percentile of a call without one, alone and beside them.
async fn rates(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let kernel = kernel(&folder).await?;
    let alone = plain_p99(&kernel).await?;
    report.figure("state.plain.alone.p99", alone, "us");
    let mut rates = Vec::new();
    for _ in 0..5 {
        rates.push(calls_per_s(&kernel, CALLS).await?);
    }
    report.figure("state.rate.sqlite.callers256", median(rates), "calls/s");
    let stop = Arc::new(AtomicBool::new(false));
    let busy = {
        let (kernel, stop) = (Arc::clone(&kernel), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                calls_per_s(&kernel, CALLS).await?;
            }
            Ok::<_, anyhow::Error>(())
        })
    };
    let beside = plain_p99(&kernel).await?;
    report.figure("state.plain.beside.p99", beside, "us");
    report.figure("state.plain.beside.ratio", beside / alone, "x");
    stop.store(true, Ordering::Relaxed);
    busy.await?
}

async fn calls_per_s(kernel: &Arc<TestKernel>, calls: u64) -> Result<f64> {
    let (left, started) = (Arc::new(AtomicU64::new(calls)), Instant::now());
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (kernel, left) = (Arc::clone(kernel), Arc::clone(&left));
            tokio::spawn(async move {
                let next = |left: u64| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
                    match kernel.call(run("noop", json!({}))).await? {
                        Reply::Done(outcome) if outcome.status == Status::Ok => {}
                        other => return Err(anyhow!("noop ended with {other:?}")),
                    }
                }
                Ok::<_, anyhow::Error>(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(calls as f64 / started.elapsed().as_secs_f64())
}

async fn plain_p99(kernel: &Arc<TestKernel>) -> Result<f64> {
    let kernel = Arc::clone(kernel);
    let samples = tokio::spawn(async move {
        let mut samples = Vec::new();
        for _ in 0..2_000 {
            let started = Instant::now();
            match kernel.call(run("plain", json!({}))).await? {
                Reply::Done(_) => samples.push(started.elapsed().as_secs_f64() * 1e6),
                other => return Err(anyhow!("plain ended with {other:?}")),
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok::<_, anyhow::Error>(samples)
    });
    let mut samples = samples.await??;
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() * 99 / 100).copied().ok_or_else(|| anyhow!("no samples"))
}

/// What a decision costs with few and with many agents and waiting questions, and the processor time of a kernel that only waits.
async fn many(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let kernel = kernel(&folder).await?;
    let host = kernel.kernel.clone();
    let few = decision_us(&kernel).await?;
    report.figure("state.decision.agents1", few, "us");
    let mut agents = Vec::new();
    for _ in 0..MANY {
        agents.push(spawn(&host, "worker").await.map_err(|error| anyhow!(error))?);
    }
    let mut waiting = Vec::new();
    for agent in &agents {
        let Reply::Pending(ticket) = host.syscall(agent, run("ask", json!({}))).await? else {
            return Err(anyhow!("not asked"));
        };
        let kernel = host.kernel();
        waiting.push(tokio::spawn(async move { kernel.answered(&ticket.id).await }));
    }
    let many = decision_us(&kernel).await?;
    report.figure("state.decision.agents10000.questions10000", many, "us");
    report.figure("state.decision.flatness", many / few, "x");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = cpu_s()?;
    tokio::time::sleep(IDLE).await;
    let idle = (cpu_s()? - before) / IDLE.as_secs_f64() * 100.0;
    report.figure("state.idle.questions10000", idle, "% of a core");
    ensure!(waiting.iter().all(|one| !one.is_finished()), "a question stopped waiting");
    let agent = agents.first().ok_or_else(|| anyhow!("no agent"))?;
    done(&host, agent, run("plain", json!({}))).await
}

async fn decision_us(kernel: &Arc<TestKernel>) -> Result<f64> {
    let mut samples = Vec::new();
    for _ in 0..500 {
        let started = Instant::now();
        kernel.call(run("plain", json!({}))).await?;
        samples.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(samples))
}

/// Processor time of this process so far.
fn cpu_s() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| -> Result<f64> { Ok(fields.get(at).ok_or_else(|| anyhow!("no field"))?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}
