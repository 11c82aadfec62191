//! The exam that every tier takes: no network, no host path, nothing inherited, limits kept, dead when told, output labelled, and a
//! receipt that states what was obtained. It is taken through the kernel, because that is how executors are used.
//!
//! The questions are the same for all tiers; how a guest is made to do what a question needs differs. An [`Exam`] says how:
//! [`Programs`] for the process tier, others beside the tier they belong to.

mod programs;

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use regent_kernel::{Integrity, Op, Outcome, Principal, Reply, Signal, Status, Tier};

pub use programs::{Programs, program_spec};

use crate::test_kernel::{Builder, SetupError, TestKernel, spawn};

/// Small limits, so that running into them doesn't take long. Of files, the workspace: a tier whose guests have files only by
/// asking for them must be refused the others.
const POLICY: &str = "\
version: 1
limits: { wall: 1500ms, output: 10kB, pids: 64, memory: 96MiB }
rules:
  - { id: everything, effect: allow }
  - { id: outside, effect: deny, match: { path: '/**' } }
";
const OUTPUT_BYTES_MAX: usize = 10_000;
/// What [`Task::Hog`] takes: more than the policy above allows, less than any machine has.
pub const HOG_BYTES: usize = 256 << 20;
/// What an executor may add to say that it cut something off.
const CUT_MARK_BYTES_MAX: usize = 1_000;

/// How one tier puts the questions.
pub trait Exam: Send + Sync {
    /// The tier that takes the exam. Its receipts must state it.
    fn tier(&self) -> Tier;

    /// Gives a kernel the executor and the tools that [`Exam::call`] names.
    fn equip(&self, kernel: Builder) -> Result<Builder, SetupError>;

    /// The call that makes a guest do this. `None` where a guest of this tier has no words for it at all, so that the answer
    /// can't be anything but no.
    fn call(&self, task: &Task<'_>) -> Option<Op>;
}

/// What a guest is made to do.
#[derive(Debug, Clone, Copy)]
pub enum Task<'a> {
    /// Say `hello`.
    Hello,
    /// Report that it did not work.
    Fail,
    /// Connect to this port of the host's loopback, by whatever means there are, and say `reached` if that works.
    Connect(u16),
    /// Say what this file of the host holds, then write to it.
    Touch(&'a Path),
    /// Say everything that was inherited: the environment as `NAME=value`, open descriptors above 3 as one number a line.
    Inherited,
    /// Say a million bytes.
    Flood,
    /// Be busy or idle for a minute.
    Hang,
    /// Take [`HOG_BYTES`] of memory, use it, and say `taken`.
    Hog,
    /// End, but leave something behind that adds to the file `beat` in this folder, the workspace, for as long as it lives.
    Linger(&'a Path),
}

/// Puts a tier through the exam. Gives back what it failed, all of it.
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
    note("leaves nobody behind", room.leaves_nobody().await);
    note("dies when told", room.dies_when_told().await);
    Ok(failed)
}

/// Where the exam takes place.
struct Room<'e> {
    kernel: TestKernel,
    exam: &'e dyn Exam,
}

impl Room<'_> {
    /// The result of a task; `None` if a guest of this tier can't do it at all.
    async fn outcome(&self, task: Task<'_>) -> Result<Option<Outcome>, SetupError> {
        let Some(op) = self.exam.call(&task) else { return Ok(None) };
        done(self.kernel.call(op).await?).map(Some)
    }

    /// The same for what every tier must be able to do.
    async fn must_do(&self, task: Task<'_>) -> Result<Outcome, SetupError> {
        let outcome = self.outcome(task).await?;
        outcome.ok_or_else(|| format!("the tier has no way to {task:?}").into())
    }

    async fn runs(&self) -> Result<(), SetupError> {
        let outcome = self.must_do(Task::Hello).await?;
        let said = outcome.output.text().into_owned();
        must(outcome.status == Status::Ok, || format!("`hello` ended with {:?}", outcome.status))?;
        must(said.contains("hello"), || format!("instead of `hello` it said `{said}`"))?;
        must(outcome.output.label().integrity >= Integrity::Tool, || {
            format!("its output passes for {:?}", outcome.output.label().integrity)
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
        // The tests' own environment has CARGO_MANIFEST_DIR under cargo, and PATH anywhere.
        let Some(outcome) = self.outcome(Task::Inherited).await? else { return Ok(()) };
        let said = outcome.output.text().into_owned();
        must(!said.contains("CARGO_"), || format!("the environment came along: {said}"))?;
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
        must(outcome.status != Status::Ok, || "it ended as if nothing was".to_owned())
    }

    async fn keeps_time(&self) -> Result<(), SetupError> {
        let outcome = self.must_do(Task::Hang).await?;
        must(outcome.status == Status::TimedOut, || format!("a minute ended with {:?}", outcome.status))
    }

    async fn leaves_nobody(&self) -> Result<(), SetupError> {
        let workspace = self.kernel.workspace();
        if self.outcome(Task::Linger(&workspace)).await?.is_none() {
            return Ok(());
        }
        let beats = || std::fs::read(workspace.join("beat")).map_or(0, |bytes| bytes.len());
        let before = beats();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let after = beats();
        must(before == after, || format!("something lives on: {before} beats, then {after}"))
    }

    /// A signal ends the call in the middle. On a slow machine it may come before the call has begun: then once more, later.
    async fn dies_when_told(&self) -> Result<(), SetupError> {
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
                Reply::Pending(_) => return Err("a person would be asked".into()),
            }
        }
        Err("the call never began".into())
    }
}

fn done(reply: Reply) -> Result<Outcome, SetupError> {
    match reply {
        Reply::Done(outcome) => Ok(outcome),
        Reply::Denied(denial) => Err(format!("denied: {}", denial.reason).into()),
        Reply::Pending(_) => Err("a person would be asked".into()),
    }
}

fn must(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), SetupError> {
    if holds { Ok(()) } else { Err(otherwise().into()) }
}
