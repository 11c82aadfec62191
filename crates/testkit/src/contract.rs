//! The contract suite that every tier must pass: no network, no host path, no inheritance, limits kept, killed on request, labelled output,
//! and a receipt that states the obtained isolation. It runs through the kernel, because that is how executors are used.
//!
//! The checks are the same for all tiers; how a guest performs a task differs. An [`Exam`] defines that: [`Programs`] for the process tier,
//! others beside their tiers.

mod programs;

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use regent_kernel::{Integrity, Op, Outcome, Principal, Reply, Signal, Status, Tier};

pub use programs::{Programs, program_spec};

use crate::test_kernel::{Builder, SetupError, TestKernel, spawn};

/// Small limits, so that reaching them is fast. File access is limited to the workspace: a tier whose guests access files by calls must be
/// denied others.
const POLICY: &str = "\
version: 1
limits: { wall: 1500ms, output: 10kB, pids: 64, memory: 96MiB }
rules:
  - { id: everything, effect: allow }
  - { id: outside, effect: deny, match: { path: '/**' } }
";
const OUTPUT_BYTES_MAX: usize = 10_000;
/// The memory that [`Task::Hog`] takes: more than the policy above allows, less than any machine has.
pub const HOG_BYTES: usize = 256 << 20;
/// Extra bytes that an executor may add to mark truncated output.
const CUT_MARK_BYTES_MAX: usize = 1_000;

/// How one tier performs the tasks.
pub trait Exam: Send + Sync {
    /// The tier under test. Its receipts must state it.
    fn tier(&self) -> Tier;

    /// Adds the executor and the tools that [`Exam::call`] uses to a kernel.
    fn equip(&self, kernel: Builder) -> Result<Builder, SetupError>;

    /// The call that makes a guest perform this task. `None` if guests of this tier can't express it, so that the check passes trivially.
    fn call(&self, task: &Task<'_>) -> Option<Op>;
}

/// A task for a guest.
#[derive(Debug, Clone, Copy)]
pub enum Task<'a> {
    /// Print `hello`.
    Hello,
    /// Report a failure.
    Fail,
    /// Connect to this port of the host's loopback by any means, and print `reached` on success.
    Connect(u16),
    /// Print this host file, then write to it.
    Touch(&'a Path),
    /// Print everything inherited: the environment as `NAME=value`, open descriptors above 3 as one number per line.
    Inherited,
    /// Print a million bytes.
    Flood,
    /// Run or sleep for a minute.
    Hang,
    /// Allocate and use [`HOG_BYTES`] of memory, then print `taken`.
    Hog,
    /// Exit, but leave a process behind that appends to the file `beat` in this folder, the workspace.
    Linger(&'a Path),
}

/// Runs the suite on a tier. Returns all failures.
pub async fn executor_contract(exam: &dyn Exam) -> Result<Vec<String>, SetupError> {
    let kernel = exam.equip(TestKernel::builder().policy(POLICY))?.boot().await?;
    let room = Room { kernel, exam };
    let mut failed = Vec::new();
    let mut note = |question: &str, answer: Result<(), SetupError>| {
        if let Err(why) = answer {
            failed.push(format!("{question}: {why}"));
        }
    };
    note("runs a guest, labels its output, states the tier", room.runs().await);
    note("says how it failed", room.fails().await);
    note("no network", room.no_network().await);
    note("no host path", room.no_host_path().await);
    note("nothing inherited", room.nothing_inherited().await);
    note("keeps the output limit", room.keeps_output().await);
    note("keeps the memory limit", room.keeps_memory().await);
    note("keeps the wall clock", room.keeps_time().await);
    note("leaves no process behind", room.leaves_no_process().await);
    note("dies when cancelled", room.dies_when_cancelled().await);
    Ok(failed)
}

/// The test environment.
struct Room<'e> {
    kernel: TestKernel,
    exam: &'e dyn Exam,
}

impl Room<'_> {
    /// The result of a task; `None` if a guest of this tier can't perform it.
    async fn outcome(&self, task: Task<'_>) -> Result<Option<Outcome>, SetupError> {
        let Some(op) = self.exam.call(&task) else { return Ok(None) };
        done(self.kernel.call(op).await?).map(Some)
    }

    /// The result of a task that every tier must be able to perform.
    async fn must_do(&self, task: Task<'_>) -> Result<Outcome, SetupError> {
        let outcome = self.outcome(task).await?;
        outcome.ok_or_else(|| format!("the tier can't perform {task:?}").into())
    }

    async fn runs(&self) -> Result<(), SetupError> {
        let outcome = self.must_do(Task::Hello).await?;
        let said = outcome.output.text().into_owned();
        must(outcome.status == Status::Ok, || format!("`hello` ended with {:?}", outcome.status))?;
        must(said.contains("hello"), || format!("instead of `hello` it said `{said}`"))?;
        must(outcome.output.label().integrity >= Integrity::Tool, || {
            format!("its output is labelled {:?}", outcome.output.label().integrity)
        })?;
        let stated = outcome.obtained.as_ref().and_then(|obtained| obtained.get("tier")?.as_str());
        must(stated == Some(self.exam.tier().to_string().as_str()), || {
            format!("the receipt states the tier {stated:?}: {:?}", outcome.obtained)
        })
    }

    async fn fails(&self) -> Result<(), SetupError> {
        let outcome = self.must_do(Task::Fail).await?;
        must(matches!(outcome.status, Status::Failed(_)), || {
            format!("a failure ended with {:?}", outcome.status)
        })
    }

    async fn no_network(&self) -> Result<(), SetupError> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let Some(outcome) = self.outcome(Task::Connect(listener.local_addr()?.port())).await? else {
            return Ok(());
        };
        must(!outcome.output.text().contains("reached"), || {
            "a guest says that it reached a listener of the host".to_owned()
        })?;
        must(listener.accept().is_err(), || "the host's listener was reached".to_owned())
    }

    async fn no_host_path(&self) -> Result<(), SetupError> {
        let outside = tempfile::Builder::new().tempdir_in(std::env::temp_dir())?;
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "a-word-of-the-host")?;
        let Some(outcome) = self.outcome(Task::Touch(&secret)).await? else { return Ok(()) };
        must(!outcome.output.text().contains("a-word-of-the-host"), || {
            "a host file could be read".to_owned()
        })?;
        must(std::fs::read_to_string(&secret)? == "a-word-of-the-host", || {
            "a host file was written".to_owned()
        })
    }

    async fn nothing_inherited(&self) -> Result<(), SetupError> {
        // The tests' own environment has CARGO_MANIFEST_DIR under cargo, and PATH everywhere.
        let Some(outcome) = self.outcome(Task::Inherited).await? else { return Ok(()) };
        let said = outcome.output.text().into_owned();
        must(!said.contains("CARGO_"), || format!("the environment was inherited: {said}"))?;
        let descriptors = said.lines().filter(|line| line.parse::<u32>().is_ok_and(|fd| fd > 3)).count();
        must(descriptors == 0, || format!("descriptors came along: {said}"))
    }

    async fn keeps_output(&self) -> Result<(), SetupError> {
        let outcome = self.must_do(Task::Flood).await?;
        let bytes = outcome.output.bytes().len();
        must(bytes <= OUTPUT_BYTES_MAX + CUT_MARK_BYTES_MAX, || {
            format!("{bytes} bytes came out; {OUTPUT_BYTES_MAX} are allowed")
        })
    }

    async fn keeps_memory(&self) -> Result<(), SetupError> {
        let outcome = self.must_do(Task::Hog).await?;
        must(!outcome.output.text().contains("taken"), || format!("{HOG_BYTES} bytes were taken"))?;
        must(outcome.status != Status::Ok, || "it succeeded".to_owned())
    }

    async fn keeps_time(&self) -> Result<(), SetupError> {
        let outcome = self.must_do(Task::Hang).await?;
        must(outcome.status == Status::TimedOut, || format!("a minute ended with {:?}", outcome.status))
    }

    async fn leaves_no_process(&self) -> Result<(), SetupError> {
        let workspace = self.kernel.workspace();
        if self.outcome(Task::Linger(&workspace)).await?.is_none() {
            return Ok(());
        }
        let beats = || std::fs::read(workspace.join("beat")).map_or(0, |bytes| bytes.len());
        let before = beats();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let after = beats();
        must(before == after, || format!("a process is still running: {before} beats, then {after}"))
    }

    /// A signal ends a running call. On a slow machine it may arrive before the call has begun; then the check retries with a longer delay.
    async fn dies_when_cancelled(&self) -> Result<(), SetupError> {
        let Some(op) = self.exam.call(&Task::Hang) else { return Err("the tier can't hang".into()) };
        let (kernel, operator) = (&self.kernel.kernel, self.kernel.kernel.operator());
        for (round, wait_ms) in [200_u64, 500, 1000].into_iter().enumerate() {
            let agent: Principal = spawn(kernel, &format!("doomed-{round}")).await?;
            let id = agent.agent_id().ok_or("an agent without an id")?.clone();
            let kill = Op::Signal { agent: id, signal: Signal::Kill, group: false };
            let told = async {
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                kernel.syscall(&operator, kill).await
            };
            let (reply, told) = tokio::join!(kernel.syscall(&agent, op.clone()), told);
            done(told?)?;
            match reply? {
                Reply::Done(outcome) if outcome.status == Status::Cancelled => return Ok(()),
                Reply::Denied(_) => {}
                Reply::Done(outcome) => return Err(format!("it ended with {:?}", outcome.status).into()),
                Reply::Pending(_) => return Err("the call needs an approval".into()),
            }
        }
        Err("the call never began".into())
    }
}

fn done(reply: Reply) -> Result<Outcome, SetupError> {
    match reply {
        Reply::Done(outcome) => Ok(outcome),
        Reply::Denied(denial) => Err(format!("denied: {}", denial.reason).into()),
        Reply::Pending(_) => Err("the call needs an approval".into()),
    }
}

fn must(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), SetupError> {
    if holds { Ok(()) } else { Err(otherwise().into()) }
}
