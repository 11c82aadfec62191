//! From the first run of a task to its end: states, retries, locks.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use regent_kernel::{Budget, Memory, Op, Region, Reply, Status, TaskId};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tokio::sync::{Mutex, watch};

use super::attempt::stop_of;
use super::talk::Reins;
use super::{Inner, TaskEnd, TaskError};
use crate::agent::AgentAnswer;
use crate::door::{TaskUsage, backoff_ms, wished};
use crate::event::{Event, Events};
use crate::snapshot::{RestoreArgs, Restored, SnapshotError};
use crate::stop::{Outlook, StopCause, StopRequest};
use crate::task::{RECORD_STEP, Said, TaskRecord, TaskState, TaskStateRecord, TaskView, may_become};

/// The key of what a task writes about itself; each replaces the one before, the ledger keeps them all.
const KEY: &str = "task";
const LOCK_TRIES_MAX: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Whether some process runs a task, as its lock in this folder tells. The ledger can't tell: a process that is killed records nothing.
pub fn is_running(locks: &Path, task: &TaskId) -> io::Result<bool> {
    let file = match File::open(lock_path(locks, task)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

fn lock_path(locks: &Path, task: &TaskId) -> PathBuf {
    locks.join(format!("{task}.lock"))
}

/// Where a task stands when it is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskStart {
    pub(super) state: TaskState,
    /// The number of the run that begins.
    pub(super) run: u32,
    /// What earlier runs used, if that is known.
    pub(super) used: Option<TaskUsage>,
}

/// Writes what a run says of itself, each at a step of its own.
#[derive(Debug)]
pub(super) struct Chronicle {
    inner: Arc<Inner>,
    task: TaskId,
    run: u32,
    written: u32,
    state: TaskState,
    events: Events,
}

impl Chronicle {
    /// Goes over to another state, and writes that down.
    pub(super) async fn state(&mut self, said: TaskStateRecord) -> Result<(), TaskError> {
        // One that has failed is being tried again before it runs.
        if (self.state, said.state) == (TaskState::Failed, TaskState::Running) {
            self.state = TaskState::Retrying;
            self.write(&TaskStateRecord::state(TaskState::Retrying)).await?;
        }
        let news = Event::State { state: said.state, why: said.why.clone() };
        // What the machine doesn't allow is a fault of ours and is not written.
        if may_become(self.state, said.state) {
            self.write(&said).await?;
            self.state = said.state;
            self.events.send(news);
        }
        Ok(())
    }

    /// Takes note of what the person has said meanwhile: the next run works on it.
    async fn said(&mut self, said: &Said) -> Result<(), TaskError> {
        self.next_run();
        self.inner.note_said(&self.task, self.run, said).await?;
        self.state = TaskState::Pending;
        self.next_run();
        Ok(())
    }

    fn next_run(&mut self) {
        (self.run, self.written) = (self.run.saturating_add(1), 0);
    }

    /// Notes a snapshot of the workspace.
    pub(super) async fn snapshot(&mut self, id: &str, after: &str) -> Result<(), TaskError> {
        let said = TaskStateRecord {
            snapshot: Some(id.to_owned()),
            after: Some(after.to_owned()),
            ..TaskStateRecord::state(self.state)
        };
        self.write(&said).await?;
        self.events.send(Event::Snapshot { id: id.to_owned(), step: after.to_owned() });
        Ok(())
    }

    /// Tells that there is none.
    pub(super) fn no_snapshot(&self, after: &str, why: String) {
        self.events.send(Event::NoSnapshot { step: after.to_owned(), why });
    }

    async fn write(&mut self, said: &TaskStateRecord) -> Result<(), TaskError> {
        let step = format!("run/{}/{}", self.run, self.written);
        self.written = self.written.saturating_add(1);
        self.inner.remember(&self.task, &step, said).await
    }
}

impl Inner {
    pub(super) async fn write_record(&self, record: &TaskRecord) -> Result<(), TaskError> {
        self.remember(&record.task, RECORD_STEP, record).await
    }

    /// Records something as the user whose task it is, by a system call like any other.
    async fn remember(
        &self,
        task: &TaskId,
        step: &str,
        what: &impl serde::Serialize,
    ) -> Result<(), TaskError> {
        let content = serde_json::to_string(what)
            .map_err(|error| TaskError::Stop(StopCause::Plan(error.to_string())))?;
        let op = Op::Remember(Memory { region: Region::Working, key: KEY.to_owned(), content });
        let who = self.owner.principal.at_step(task, step).ok_or_else(|| StopCause::Step(step.to_owned()))?;
        match self.kernel.syscall(&who, op).await? {
            Reply::Done(outcome) if outcome.status == regent_kernel::Status::Ok => Ok(()),
            Reply::Done(outcome) => {
                Err(StopCause::Passing(format!("it can't be recorded: {:?}", outcome.status)).into())
            }
            Reply::Denied(denial) => Err(TaskError::Denied(denial.reason)),
            Reply::Pending(ticket) => Err(StopCause::from(ticket).into()),
        }
    }

    /// One process at a time runs a task. The lock goes with the process, however that ends.
    pub(super) async fn lock(&self, task: &TaskId) -> Result<Option<File>, TaskError> {
        let Some(folder) = &self.options.locks else { return Ok(None) };
        std::fs::create_dir_all(folder).map_err(TaskError::Lock)?;
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(lock_path(folder, task))
            .map_err(TaskError::Lock)?;
        let mut tries = 0;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                // `is_running` holds the lock for a moment.
                Err(Errno::WOULDBLOCK) if tries < LOCK_TRIES_MAX => {
                    tries += 1;
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                Err(Errno::WOULDBLOCK) => return Err(TaskError::Busy(task.clone())),
                Err(errno) => return Err(TaskError::Lock(errno.into())),
            }
        }
    }

    /// Cancels a task that runs nowhere.
    pub(super) async fn put_away(&self, task: &TaskId, run: u32) -> Result<(), TaskError> {
        let said =
            [TaskStateRecord::state(TaskState::Cancelled), TaskStateRecord::state(TaskState::Finalized)];
        for (number, said) in said.iter().enumerate() {
            self.remember(task, &format!("run/{run}/{number}"), said).await?;
        }
        Ok(())
    }

    /// Notes the snapshot of what is there before the workspace is put back: it is one of the task's too, so that this can be undone.
    pub(super) async fn note_before(&self, view: &TaskView, before: &str) -> Result<(), TaskError> {
        let (snapshot, named) = (Some(before.to_owned()), Some("rollback".to_owned()));
        let kept = TaskStateRecord { snapshot, after: named, ..TaskStateRecord::state(view.state) };
        self.remember(&view.record.task, &format!("run/{}/before", view.runs), &kept).await
    }

    /// Puts the workspace back, as the user whose task it is.
    pub(super) async fn restore(&self, view: &TaskView, args: &RestoreArgs) -> Result<Restored, TaskError> {
        let step = format!("run/{}/restore", view.runs);
        let who = self.owner.principal.at_step(&view.record.task, &step);
        let who = who.ok_or_else(|| StopCause::Step(step.clone()))?;
        let outcome = match self.kernel.syscall(&who, Op::RunTool(args.call())).await? {
            Reply::Done(outcome) => outcome,
            Reply::Denied(denial) => return Err(TaskError::Denied(denial.reason)),
            Reply::Pending(ticket) => {
                return Err(StopCause::from(ticket).into());
            }
        };
        match outcome.status {
            Status::Ok => serde_json::from_slice(outcome.output.bytes())
                .map_err(|error| SnapshotError::Damaged(error.to_string()).into()),
            Status::Failed(failure) => {
                Err(StopCause::Passing(format!("{}: {}", failure.code, failure.message)).into())
            }
            other @ (Status::TimedOut | Status::Cancelled | Status::Faulted(_)) => Err(StopCause::Passing(
                format!("the workspace was not restored, or not completely: {other:?}"),
            )
            .into()),
        }
    }

    /// Notes that the workspace was put back; the task's state stays what it is.
    pub(super) async fn note_rollback(
        &self,
        view: &TaskView,
        (id, after): (&str, &str),
        restored: &Restored,
    ) -> Result<(), TaskError> {
        let short = match restored.failed.len() {
            0 => String::new(),
            failed => format!(", except for {failed} that could not be"),
        };
        let why = format!("the workspace was restored to snapshot `{id}`, taken after step `{after}`{short}");
        let (until_ms, question) = (view.until_ms, view.question.clone());
        let said =
            TaskStateRecord { why: Some(why), until_ms, question, ..TaskStateRecord::state(view.state) };
        self.remember(&view.record.task, &format!("run/{}/rollback", view.runs), &said).await
    }

    /// Takes note of what the person says to a task that doesn't run. It opens a run of its own.
    pub(super) async fn note_said(&self, task: &TaskId, run: u32, said: &Said) -> Result<(), TaskError> {
        let told = TaskStateRecord { said: Some(said.clone()), ..TaskStateRecord::state(TaskState::Pending) };
        self.remember(task, &format!("run/{run}/said"), &told).await
    }

    /// Takes note of another budget. It opens a run of its own, so that the next one has names of its own.
    pub(super) async fn note_budget(&self, view: &TaskView, budget: Budget) -> Result<(), TaskError> {
        let said = TaskStateRecord { budget: Some(budget), ..TaskStateRecord::state(view.state) };
        self.remember(&view.record.task, &format!("run/{}/budget", view.runs), &said).await
    }

    /// Runs a task until it has ended, or stops for someone.
    pub(super) async fn drive(
        self: &Arc<Self>,
        mut record: TaskRecord,
        from: TaskStart,
        (reins, wish): (Reins, watch::Receiver<StopRequest>),
        events: Events,
    ) -> TaskEnd {
        let task = record.task.clone();
        let TaskStart { state, run, used } = from;
        let inner = Arc::clone(self);
        let book = Chronicle { inner, task: task.clone(), run, written: 0, state, events: events.clone() };
        let book = Arc::new(Mutex::new(book));
        let (mut tries, mut known) = (0_u32, used);
        let (answer, stop, used, undone) = loop {
            let (ended, used, undone) =
                self.attempt(&record, known.take(), Arc::clone(&book), wish.clone(), &events).await;
            let ended = match ended {
                Ok(answer) => Ok(Some(answer)),
                Err(StopCause::Told) => Ok(None),
                Err(stop) => Err(stop),
            };
            let stop = match ended {
                Ok(answer) => match self.hear(&mut record, &reins, &book, answer.as_ref()).await {
                    Ok(false) if answer.is_some() => break (answer, None, used, undone),
                    Ok(_more) => {
                        tries = 0;
                        continue;
                    }
                    Err(stop) => stop,
                },
                Err(stop) => stop,
            };
            // A call that was stopped looks like one that failed for now.
            let wanted = wish.borrow().stop().filter(|_| stop.outlook() == Outlook::Again);
            if let Some(wanted @ (StopCause::Paused | StopCause::Cancelled)) = wanted {
                break (None, Some(wanted), used, undone);
            }
            if stop.outlook() != Outlook::Again || tries >= record.spec.retries_max {
                break (None, Some(stop), used, undone);
            }
            tries = tries.saturating_add(1);
            let failed =
                TaskStateRecord { why: Some(stop.to_string()), ..TaskStateRecord::state(TaskState::Failed) };
            if book.lock().await.state(failed).await.is_err() {
                break (None, Some(stop), used, undone);
            }
            if let Some(stop) = paused(backoff_ms(record.spec.backoff_ms, tries), wish.clone()).await {
                break (None, Some(stop), used, undone);
            }
            book.lock().await.next_run();
        };
        let mut book = book.lock().await;
        let unverified = answer.as_ref().and_then(|answer| self.doubt_of(&record, answer));
        self.close(&mut book, answer.as_ref().map(|answer| (answer, unverified.clone())), stop.as_ref())
            .await;
        let (state, why) = (book.state, stop.map(Arc::new));
        TaskEnd { task, state, answer, unverified, why, spent: used.spent, undone }
    }

    /// Whether the person has said more meanwhile: then that is recorded, after the answer if there is one, and the next run works on it.
    async fn hear(
        &self,
        record: &mut TaskRecord,
        reins: &Reins,
        book: &Mutex<Chronicle>,
        answer: Option<&AgentAnswer>,
    ) -> Result<bool, StopCause> {
        let Some(message) = reins.heard() else { return Ok(false) };
        let mut book = book.lock().await;
        if let Some(answer) = answer {
            let unverified = self.doubt_of(record, answer);
            book.state(TaskStateRecord::completed(answer, unverified)).await.map_err(stop_of)?;
        }
        let said = message.before(self.next_turn(record).map_err(stop_of)?);
        book.said(&said).await.map_err(stop_of)?;
        record.said.push(said);
        Ok(true)
    }

    /// Writes how it ended. If that can't be written the kernel has sealed itself; the task can be resumed all the same.
    async fn close(
        &self,
        book: &mut Chronicle,
        answer: Option<(&AgentAnswer, Option<String>)>,
        stop: Option<&StopCause>,
    ) {
        let said = match (answer, stop) {
            (Some((answer, unverified)), _) => TaskStateRecord::completed(answer, unverified),
            (None, Some(stop)) => {
                let state = match stop.outlook() {
                    Outlook::Later | Outlook::Paused => TaskState::Pending,
                    Outlook::Cancelled => TaskState::Cancelled,
                    Outlook::Again | Outlook::Never => TaskState::Failed,
                };
                // One that waits for nobody is taken up again with all others that were left over.
                let why = (stop.outlook() != Outlook::Paused).then(|| stop.to_string());
                let (until_ms, question) = (stop.until_ms(), stop.question());
                let stopped = stop.outlook() == Outlook::Paused;
                TaskStateRecord { why, until_ms, question, stopped, ..TaskStateRecord::state(state) }
            }
            (None, None) => return,
        };
        let is_over = said.state.is_over();
        let written = book.state(said).await.is_ok();
        if written && is_over {
            let _finalized = book.state(TaskStateRecord::state(TaskState::Finalized)).await.is_ok();
        }
    }
}

/// Waits, unless it is to stop meanwhile.
async fn paused(pause_ms: u64, wish: watch::Receiver<StopRequest>) -> Option<StopCause> {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(pause_ms)) => None,
        stop = wished(wish) => Some(stop),
    }
}
