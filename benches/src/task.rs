//! Durable tasks: how fast they take steps, and how much a thousand of them hold.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use regent_kernel::{
    BoxFuture, ExecuteError, Executor, Inference, Label, ModelPlan, Models, Permit, RawOutput, Reason, tier,
};
use regent_runtime::{Options, Runtime, TaskSpec, TaskState};
use regent_testkit::{Puppet, Says, TestKernel};
use serde_json::json;
use tokio::sync::Barrier;

use crate::measure::median;
use crate::report::Report;

/// The word that makes this program a kernel with a thousand tasks.
pub const THOUSAND: &str = "--thousand-tasks";
const TASKS: usize = 1_000;
const TURNS: u32 = 40;
const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/langgraph_steps.py");

/// `task.step.durable`, its peer, and `task.concurrent1000.rss`.
pub fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        ours.push(runtime.block_on(steps())?);
        if let Some(rate) = peer() {
            theirs.push(rate);
        }
    }
    let ours = median(ours);
    report.figure("task.step.durable", ours, "steps/s");
    if theirs.is_empty() {
        report.skip("task.langgraph.sqlite", "python3 has no langgraph with langgraph-checkpoint-sqlite");
    } else {
        let theirs = median(theirs);
        report.figure("task.langgraph.sqlite", theirs, "steps/s");
        report.figure("task.step.durable.ratio", ours / theirs, "x");
    }
    let output = Command::new(std::env::current_exe()?).arg(THOUSAND).stderr(Stdio::inherit()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let resident = said.trim().parse::<f64>().with_context(|| format!("the thousand tasks said `{said}`"))?;
    report.figure("task.concurrent1000.rss", resident, "MB");
    Ok(())
}

/// Steps a second of one task: it thinks and acts in turns, each recorded and synced before and after.
async fn steps() -> Result<f64> {
    let head = |inference: &Inference| match inference.messages.iter().filter(|message| message.has_calls()).count() {
        spoken if spoken >= TURNS as usize => Says::call("task.finish", json!({"answer": "done"})),
        spoken => Says::call("echo", json!({"turn": spoken})),
    };
    let builder = TestKernel::builder().durable().models(Arc::new(Puppet::new(head)));
    let test = builder.boot().await.map_err(|error| anyhow!(error))?;
    let mut spec = TaskSpec::new("go on");
    (spec.limits.turns_max, spec.limits.window_tokens_max) = (TURNS + 1, 1 << 20);
    let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), Options::default());
    tokio::spawn(async move {
        let started = Instant::now();
        let end = runtime.run(spec).await?.ended().await.context("the runtime is gone")?;
        let took_s = started.elapsed().as_secs_f64();
        ensure!(end.state == TaskState::Finalized, "the task ended as {}: {:?}", end.state, end.why);
        Ok(f64::from(2 * TURNS + 1) / took_s)
    })
    .await?
}

fn peer() -> Option<f64> {
    let python = std::env::var_os("REGENT_BENCH_PYTHON").unwrap_or_else(|| "python3".into());
    let output = Command::new(python).arg(PEER).arg(TURNS.to_string()).stderr(Stdio::null()).output().ok()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// A model that answers when all tasks have asked: so all of them are alive at once.
struct Gate {
    puppet: Puppet,
    barrier: Barrier,
}

impl Models for Gate {
    fn plan(&self, inference: &Inference, label: Label) -> std::result::Result<ModelPlan, Reason> {
        self.puppet.plan(inference, label)
    }
}

impl Executor<tier::Host> for Gate {
    fn execute<'s>(&'s self, permit: Permit<'s, tier::Host>) -> BoxFuture<'s, std::result::Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            self.barrier.wait().await;
            self.puppet.execute(permit).await
        })
    }
}

/// Runs a thousand tasks at once on a durable ledger, and says what the process held at most.
pub fn be_a_thousand() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let script = vec![Says::call("echo", json!({"say": "hello"})), Says::call("task.finish", json!({"answer": "done"}))];
        let gate = Gate { puppet: Puppet::script(script), barrier: Barrier::new(TASKS) };
        let builder = TestKernel::builder().durable().models(Arc::new(gate));
        let test = builder.boot().await.map_err(|error| anyhow!(error))?;
        let runtime = Runtime::new(test.kernel.kernel(), test.kernel.task_owner(), Options::default());
        let mut handles = Vec::new();
        for _ in 0..TASKS {
            handles.push(runtime.run(TaskSpec::new("say hello")).await?);
        }
        for handle in &mut handles {
            let end = handle.ended().await.context("the runtime is gone")?;
            ensure!(end.state == TaskState::Finalized, "a task ended as {}: {:?}", end.state, end.why);
        }
        let status = std::fs::read_to_string("/proc/self/status")?;
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let kilobytes: f64 = most.trim().trim_end_matches("kB").trim().parse()?;
        println!("{}", kilobytes / 1_024.0);
        Ok(())
    })
}
