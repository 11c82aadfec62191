//! A ledger of a million entries, and a process that was killed: how soon the next command has ended, and a task continues.
//!
//! The entries are written by kernels that make calls, in the project of the real program. A killed process is really killed.
//! Each figure is the time of the whole command, from its start to its exit.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use regent_ledger::Reader;
use regent_testkit::{TestKernel, run};
use serde_json::{Value, json};

use crate::home::{Home, bytes_below};
use crate::measure::{median, once};
use crate::report::Report;

/// The word that makes this program a kernel which fills a ledger and waits to be killed.
pub const FILL: &str = "--fill-ledger";
const ENTRIES: u64 = 1_000_000;
const CALLERS: usize = 256;
/// Entries that a session writes before it is killed.
const SESSION_ENTRIES: u64 = 200;
const ROUNDS: usize = 5;
const LIST: &[&str] = &["tool", "call", "fs.list", r#"{"path": "."}"#];
/// How long a model thinks before its process is killed.
const THINKS_MS: u64 = 600_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// `ledger.call.*`, `ledger.start.*` and `ledger.resume.*`.
pub fn measure(report: &mut Report) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("rg").tempdir()?;
    let home = Home::create(folder.path())?;
    calls(report, &home)?;
    let mut tasks = Vec::new();
    for _ in 0..=ROUNDS {
        tasks.push(interrupted(&home)?);
    }
    home.play(&json!([writes(), finishes()]))?;
    // The session that wrote all of it is killed. No command has looked at those entries yet.
    let (took_s, filled) = once(|| killed_session(&home, ENTRIES));
    filled?;
    report.figure("ledger.fill1m", ENTRIES as f64 / took_s, "entries/s");
    report.figure("ledger.fill1m.size", bytes_below(&home.audit())? as f64 / 1e6, "MB");
    report.figure("ledger.start.crashed1m.first", once_run(&home, LIST)?, "s");
    let mut starts = Vec::new();
    for _ in 0..ROUNDS {
        killed_session(&home, SESSION_ENTRIES)?;
        starts.push(once_run(&home, LIST)?);
    }
    report.figure("ledger.start.crashed1m", median(starts), "s");
    // The lookup index has not been refreshed since the tasks began.
    let mut resumed = Vec::new();
    for task in tasks {
        killed_session(&home, SESSION_ENTRIES)?;
        resumed.push(once_run(&home, &["task", "resume", &task])?);
    }
    report.figure("ledger.resume.crashed1m.first", resumed.remove(0), "s");
    report.figure("ledger.resume.crashed1m", median(resumed), "s");
    Ok(())
}

/// What one `regent tool call` adds to the ledger: entries of the lane, and bytes of all files.
fn calls(report: &mut Report, home: &Home) -> Result<()> {
    home.run(LIST)?;
    let (mut entries, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = (count(home)?, bytes_below(&home.audit())?);
        home.run(LIST)?;
        entries.push((count(home)? - before.0) as f64);
        bytes.push(bytes_below(&home.audit())?.saturating_sub(before.1) as f64);
    }
    report.figure("ledger.call.entries", median(entries), "entries");
    report.figure("ledger.call.bytes", median(bytes), "bytes");
    Ok(())
}

fn count(home: &Home) -> Result<usize> {
    let reader = Reader::new(&home.audit());
    let mut count = 0;
    for lane in reader.lanes()? {
        for entry in reader.lane(lane)? {
            entry?;
            count += 1;
        }
    }
    Ok(count)
}

fn once_run(home: &Home, words: &[&str]) -> Result<f64> {
    let (took_s, ended) = once(|| home.run(words));
    ended.map(|_output| took_s)
}

fn writes() -> Value {
    json!({"calls": [{"tool": "fs.write", "args": {"path": "made.txt", "content": "hello\n"}}]})
}

fn finishes() -> Value {
    json!({"calls": [{"tool": "task.finish", "args": {"answer": "done"}}]})
}

/// Runs a task until its first tool call is done, then kills the process. Gives back the task's id.
fn interrupted(home: &Home) -> Result<String> {
    let mut thinks = finishes();
    thinks["delay_ms"] = json!(THINKS_MS);
    home.play(&json!([writes(), thinks]))?;
    let made = home.project().join("made.txt");
    let before = task_ids(home)?;
    let mut child =
        home.command(&["task", "run", "write it"])?.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let begun = until(|| made.exists());
    // The model is asked again after the tool's outcome is recorded.
    std::thread::sleep(Duration::from_millis(300));
    kill(&mut child)?;
    begun?;
    std::fs::remove_file(&made)?;
    let new = task_ids(home)?.into_iter().find(|id| !before.contains(id));
    new.context("the task is not in the ledger")
}

fn task_ids(home: &Home) -> Result<Vec<String>> {
    let output = home.run(&["--json", "task", "list"])?;
    let told: Value = serde_json::from_slice(&output.stdout)?;
    let tasks = told["data"]["tasks"].as_array().context("no list of tasks")?;
    Ok(tasks.iter().filter_map(|task| task["task"].as_str()).map(str::to_owned).collect())
}

fn until(is_so: impl Fn() -> bool) -> Result<()> {
    let started = Instant::now();
    while !is_so() {
        if started.elapsed() > PATIENCE {
            bail!("it did not happen within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn kill(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// A session of this many entries, killed in the middle of a call.
pub fn killed_session(home: &Home, entries: u64) -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(FILL)
        .arg(home.path())
        .arg(entries.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let stdout = child.stdout.take().context("no pipe")?;
    BufReader::new(stdout).read_line(&mut line)?;
    kill(&mut child)?;
    ensure!(line.trim() == READY, "the session ended early");
    Ok(())
}

const READY: &str = "ready";

/// Makes calls until the ledger has so many entries more, begins one that never ends, and waits to be killed.
pub fn be_killed(words: &[String]) -> Result<()> {
    let [home, entries] = words else { bail!("a home and a number of entries are needed") };
    let (home, entries): (Home, u64) = (Home::at(Path::new(home)), entries.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let kernel = Arc::new(home.kernel().await?);
        let goal = kernel.kernel.ledger().head().size + entries;
        let callers: Vec<_> =
            (0..CALLERS).map(|caller| tokio::spawn(calls_until(Arc::clone(&kernel), caller, goal))).collect();
        for caller in callers {
            caller.await??;
        }
        let before = kernel.kernel.ledger().head().size;
        let hanging = Arc::clone(&kernel);
        tokio::spawn(async move { hanging.call(run("hangs", json!({}))).await });
        while kernel.kernel.ledger().head().size == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        println!("{READY}");
        std::future::pending::<Result<()>>().await
    })
}

/// No two calls have the same arguments, so each has a payload of its own.
async fn calls_until(kernel: Arc<TestKernel>, caller: usize, goal: u64) -> Result<()> {
    let mut number = 0_u64;
    while kernel.kernel.ledger().head().size < goal {
        number += 1;
        let args = json!({"caller": caller, "number": number, "goal": goal});
        kernel.call(run("noop", args)).await.map_err(|error| anyhow!(error))?;
    }
    Ok(())
}
