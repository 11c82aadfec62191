//! What the whole path costs: a tool that does nothing, called by an agent under a handful of rules.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use regent_kernel::{Reply, Status};
use regent_testkit::{TestKernel, run};
use serde_json::json;

use crate::home::bytes_below;
use crate::measure::{median, once};
use crate::report::Report;

const POLICY: &str = r#"
version: 1
rules:
  - { id: no-secrets, effect: deny, match: { path: "**/.ssh/**" } }
  - { id: no-hooks, effect: deny, match: { path: ".git/hooks/**", access: write } }
  - { id: reads, effect: allow, match: { tool: fs.read, path: "**" } }
  - { id: big-transfers, effect: ask, match: { tool: pay, args: { "/amount": { gt: 100 } } } }
  - { id: noop, effect: allow, match: { agent: worker, tool: noop } }
  - { id: operator, effect: allow, match: { class: operator } }
"#;
/// Calls made to find out how much one commit writes.
const WARM_UP_CALLS: u64 = 200;
const CALLERS: u64 = 256;

/// `syscall.noop.*` and, measured in between, `disk.fsync`.
pub fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let memory_us = runtime.block_on(in_memory())?;
    report.figure("syscall.noop.memory", memory_us, "us");
    let (fsync_us, call_us) = runtime.block_on(durable_alone())?;
    report.figure("disk.fsync", fsync_us, "us");
    report.figure("syscall.noop.durable.callers1", call_us, "us");
    report.figure("syscall.noop.durable.callers1.ratio", call_us / fsync_us, "fsyncs");
    let rate = runtime.block_on(durable_together())?;
    report.figure("syscall.noop.durable.callers256", rate, "calls/s");
    Ok(())
}

async fn in_memory() -> Result<f64> {
    let kernel = TestKernel::builder().policy(POLICY).boot().await.map_err(|error| anyhow!(error))?;
    // On a worker of the runtime, as calls from an agent's task are.
    let samples = tokio::spawn(async move {
        let mut samples = Vec::new();
        for _ in 0..200 {
            let started = Instant::now();
            for _ in 0..100 {
                noop(&kernel).await?;
            }
            samples.push(started.elapsed().as_secs_f64() * 1e6 / 100.0);
        }
        Ok::<_, anyhow::Error>(samples)
    });
    Ok(median(samples.await??))
}

async fn noop(kernel: &TestKernel) -> Result<()> {
    match kernel.call(run("noop", json!({}))).await? {
        Reply::Done(outcome) if outcome.status == Status::Ok => Ok(()),
        other => Err(anyhow!("noop ended with {other:?}")),
    }
}

/// A call, then a plain append and sync of as much as one of its two commits writes, in the same folder, in turns: medians of both.
async fn durable_alone() -> Result<(f64, f64)> {
    let kernel =
        TestKernel::builder().policy(POLICY).durable().boot().await.map_err(|error| anyhow!(error))?;
    tokio::spawn(async move {
        let mut file = OpenOptions::new().create(true).append(true).open(kernel.audit().join("fsync.tmp"))?;
        let before = bytes_below(&kernel.audit())?;
        for _ in 0..WARM_UP_CALLS {
            noop(&kernel).await?;
        }
        let commit_bytes = bytes_below(&kernel.audit())?.saturating_sub(before) / (2 * WARM_UP_CALLS);
        let line = vec![b'x'; usize::try_from(commit_bytes)?];
        let (mut syncs, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..1_000 {
            let (took, wrote) = once(|| file.write_all(&line).and_then(|()| file.sync_data()));
            wrote?;
            syncs.push(took * 1e6);
            let started = Instant::now();
            noop(&kernel).await?;
            calls.push(started.elapsed().as_secs_f64() * 1e6);
        }
        Ok((median(syncs), median(calls)))
    })
    .await?
}

async fn durable_together() -> Result<f64> {
    let kernel =
        TestKernel::builder().policy(POLICY).durable().boot().await.map_err(|error| anyhow!(error))?;
    let kernel = Arc::new(kernel);
    let mut rates = Vec::new();
    for _ in 0..5 {
        let left = Arc::new(AtomicU64::new(40_000));
        let started = Instant::now();
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (kernel, left) = (Arc::clone(&kernel), Arc::clone(&left));
                tokio::spawn(async move {
                    let mut made = 0_u64;
                    while left
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                        .is_ok()
                    {
                        noop(&kernel).await?;
                        made += 1;
                    }
                    Ok::<_, anyhow::Error>(made)
                })
            })
            .collect();
        let mut made = 0;
        for caller in callers {
            made += caller.await??;
        }
        ensure!(made == 40_000, "{made} calls were made");
        rates.push(made as f64 / started.elapsed().as_secs_f64());
    }
    Ok(median(rates))
}
