//! The runtime: takes tasks, queues them, runs them, and brings them back after anything.

mod attempt;
mod drive;
mod held;
mod queue;
mod talk;
#[cfg(test)]
mod tests;
mod verified;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_kernel::{
    Answered, Budget, Digest, EntryPlace, FOR_OPERATOR, FROM_PROGRAM, Fault, Inference, Kernel, Reason,
    Spent, TaskId, TaskOwner, TicketId, Workspace, hex_string, nearest,
};
use tokio::sync::{broadcast, watch};

use crate::agent::{AgentAnswer, Craft, first_question};
use crate::door::{Ancestor, Asker, TaskUsage, Undone, is_before};
use crate::event::{Event, Events};
use crate::snapshot::{RestoreArgs, Restored, SnapshotError, Snapshots};
use crate::stop::StopCause;
use crate::task::{
    self, Difference, Tape, TaskIndex, TaskRecord, TaskSpec, TaskState, TaskView, model_before, turn_of,
};
pub(crate) use attempt::FILLED;
use attempt::Replaying;
use drive::TaskStart;
pub use drive::is_running;
use held::{HeldJournals, Hold, Taking};
use queue::JobQueue;
pub use talk::{FollowUp, Reins};

/// How large a goal may be.
const GOAL_BYTES_MAX: usize = 256 << 10;

/// How a runtime is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// How agents work.
    pub craft: Craft,
    /// Who asks the user while a task waits; without one, a task stops there and can be resumed.
    pub asker: Option<Arc<dyn Asker>>,
    /// Nobody can be asked: calls that need an approval are denied, and the task continues without them.
    pub unattended: bool,
    /// How many tasks run at once; the others wait in the queue.
    pub running_max: usize,
    /// How many may wait.
    pub waiting_max: usize,
    /// A folder for locks, so that two processes don't run one task at once.
    pub locks: Option<PathBuf>,
    /// Where snapshots of the workspace are kept, and how often they are taken.
    pub snapshots: Option<Checkpoints>,
    /// Finds tasks in the ledger; without one, all of it is read for each.
    pub index: Option<Arc<dyn TaskIndex>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            craft: Craft::default(),
            asker: None,
            unattended: false,
            running_max: 1_000,
            waiting_max: 100_000,
            locks: None,
            snapshots: None,
            index: None,
        }
    }
}

/// When snapshots of the workspace are taken: before the first turn, and after a turn that changed something if that many turns or that
/// much time have passed since the last.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    /// Where they are kept.
    pub store: Arc<Snapshots>,
    /// The folder that they are taken of.
    pub workspace: Workspace,
    /// A milestone: this many turns with changes.
    pub every_turns: u32,
    /// Or this much time, if anything has changed.
    pub every_ms: u64,
    /// A snapshot that took long is followed by a rest of so many times that, however much changes: in a large workspace the work comes first.
    pub rest_times: u64,
}

/// A task can't be taken, or not be found.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// No such task in the ledger.
    #[error("unknown task `{0}`")]
    Unknown(String),
    /// It is over.
    #[error("task `{0}` has ended ({1})")]
    Over(TaskId, &'static str),
    /// It runs already, here or in another process.
    #[error("the task `{0}` is already running")]
    Busy(TaskId),
    /// It follows a plan, which has no place for a message.
    #[error("task `{0}` follows a plan, so nothing can be said to it")]
    Planned(TaskId),
    /// The queue is full.
    #[error("{0} tasks are already waiting")]
    Full(usize),
    /// The goal is empty or too large.
    #[error("a task needs a goal of at most {GOAL_BYTES_MAX} bytes")]
    Goal,
    /// A tool that the task names isn't there.
    #[error("unknown tool `{0}`{1}")]
    NoTool(String, String),
    /// A tool is not what it was when the task began.
    #[error("the tool `{0}` has changed since the task started, so the task can't continue")]
    ToolChanged(String),
    /// Policy doesn't let the task be recorded, or its agent be started.
    #[error("denied: {0}")]
    Denied(Reason),
    /// The machine gives no randomness.
    #[error("the system returned no random numbers: {0}")]
    Random(String),
    /// The lock can't be taken.
    #[error("the lock can't be used: {0}")]
    Lock(std::io::Error),
    /// A snapshot of the workspace can't be taken or put back.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The work stopped.
    #[error(transparent)]
    Stop(#[from] StopCause),
    /// The kernel could not do its part.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// How a run of a task ended.
#[derive(Debug, Clone)]
pub struct TaskEnd {
    /// Which task.
    pub task: TaskId,
    /// The state it is in now.
    pub state: TaskState,
    /// Its answer, if it has one.
    pub answer: Option<AgentAnswer>,
    /// Why its answer isn't borne out by what was done, if something speaks against it.
    pub unverified: Option<String>,
    /// Why it stopped, if it did.
    pub why: Option<Arc<StopCause>>,
    /// What it has used, all runs together.
    pub spent: Spent,
    /// Calls that were denied because no operator was available about them.
    pub undone: Vec<Undone>,
}

/// A task that was taken.
#[derive(Debug)]
pub struct TaskHandle {
    /// Which task.
    pub task: TaskId,
    /// What happens to it, from the beginning.
    pub events: broadcast::Receiver<Event>,
    reins: Reins,
    ended: watch::Receiver<Option<TaskEnd>>,
}

impl TaskHandle {
    /// The handle that stops it.
    pub fn reins(&self) -> Reins {
        self.reins.clone()
    }

    /// Waits until it has ended or stopped; `None` if the runtime is gone.
    pub async fn ended(&mut self) -> Option<TaskEnd> {
        self.ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone())
    }
}

/// The result of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The answer that it led to.
    pub answer: AgentAnswer,
    /// How many steps were replayed.
    pub steps: usize,
    /// The answer is the recorded one. That each prompt and call is, byte for byte, is what the kernel checks at every step.
    pub same: bool,
}

/// Runs tasks. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Runtime(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kernel: Kernel,
    owner: TaskOwner,
    options: Options,
    queue: JobQueue,
    live: Mutex<BTreeMap<TaskId, Reins>>,
    held: HeldJournals,
}

impl Inner {
    /// What the ledger has of some tasks.
    fn tapes(&self, tasks: &[TaskId]) -> Result<BTreeMap<TaskId, Tape>, Fault> {
        task::read_tasks(&self.owner.records, self.options.index.as_deref(), tasks)
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<TaskId, Reins>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime {
    /// A runtime over a kernel. Its tasks are `owner`'s; the runtime itself has no authority.
    pub fn new(kernel: Kernel, owner: TaskOwner, options: Options) -> Self {
        let queue = JobQueue::new(options.running_max, options.waiting_max);
        Self(Arc::new(Inner {
            kernel,
            owner,
            options,
            queue,
            live: Mutex::default(),
            held: HeldJournals::default(),
        }))
    }

    /// Takes a task. When this returns it is in the ledger, so it is not lost whatever happens next.
    pub async fn run(&self, spec: TaskSpec) -> Result<TaskHandle, TaskError> {
        let record = self.new_record(spec)?;
        self.begin(record).await
    }

    /// The record of a task that hasn't begun.
    fn new_record(&self, spec: TaskSpec) -> Result<TaskRecord, TaskError> {
        let (tools, seed) = (self.tools_of(&spec)?, fresh_seed()?);
        Ok(TaskRecord { task: fresh_id()?, spec, seed, tools, ancestors: Vec::new(), said: Vec::new() })
    }

    /// The first prompt of a task like this, with the tools. Starts no task.
    pub fn first_question(&self, spec: TaskSpec) -> Result<Inference, TaskError> {
        let record = self.new_record(spec)?;
        Ok(first_question(&self.0.craft(&record)?, &self.0.work(&record), &record.spec.model)?)
    }

    /// Continues a task: recorded steps are replayed, the rest runs.
    pub async fn resume(&self, task: &TaskId) -> Result<TaskHandle, TaskError> {
        let view = self.task(task)?;
        if view.state.is_over() {
            return Err(TaskError::Over(task.clone(), view.word()));
        }
        if self.0.live().contains_key(task) {
            return Err(TaskError::Busy(task.clone()));
        }
        self.check_tools(&view.record)?;
        let lock = self.0.lock(task).await?;
        let hold = self.0.held.take(&self.0.kernel, &[&view.record], Taking::Run).await?.pop();
        self.enqueue(
            view.record,
            TaskStart { state: view.state, run: view.runs, used: Some(view.used) },
            (hold, lock),
        )
    }

    /// Continues every task that isn't over and waits for nobody, the most urgent first, then the oldest. One whose
    /// question was answered, or whose time has come, is among them.
    pub async fn resume_all(&self) -> Result<Vec<TaskHandle>, TaskError> {
        let mut views: Vec<TaskView> = Vec::new();
        for view in self.tasks()? {
            if self.is_left_over(&view).await {
                views.push(view);
            }
        }
        views.sort_by_key(|view| (std::cmp::Reverse(view.record.spec.priority), view.created_ms));
        views.retain(|view| !self.0.live().contains_key(&view.record.task));
        let mut locked = Vec::new();
        for view in views {
            let lock = match self.check_tools(&view.record) {
                Ok(()) => self.0.lock(&view.record.task).await,
                Err(error) => Err(error),
            };
            match lock {
                Ok(lock) => locked.push((view, lock)),
                // One that runs elsewhere, or can't continue, doesn't keep the others.
                Err(TaskError::Busy(_) | TaskError::ToolChanged(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let records: Vec<&TaskRecord> = locked.iter().map(|(view, _)| &view.record).collect();
        let holds = self.0.held.take(&self.0.kernel, &records, Taking::Run).await?;
        let mut handles = Vec::new();
        for ((view, lock), hold) in locked.into_iter().zip(holds) {
            let start = TaskStart { state: view.state, run: view.runs, used: Some(view.used) };
            match self.enqueue(view.record, start, (Some(hold), lock)) {
                Ok(handle) => handles.push(handle),
                Err(TaskError::Busy(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(handles)
    }

    /// Takes a new task that shares the steps of another before `at` (a turn such as `3`, or a step), and may continue with another model.
    pub async fn fork(
        &self,
        task: &TaskId,
        at: &str,
        model: Option<String>,
    ) -> Result<TaskHandle, TaskError> {
        let view = self.task(task)?;
        self.check_tools(&view.record)?;
        let TaskRecord { mut spec, seed, tools, ancestors, mut said, .. } = view.record;
        // A message before the turn at which the fork parts is shared.
        said.retain(|one| turn_of(at).is_some_and(|turn| one.turn <= turn));
        // What lies after the new fork is not shared with anyone.
        let mut line: Vec<Ancestor> = ancestors
            .into_iter()
            .map(|one| if is_before(at, &one.at) { Ancestor { at: at.to_owned(), ..one } } else { one })
            .collect();
        line.push(Ancestor { task: task.clone(), at: at.to_owned(), model: spec.model.clone() });
        spec.model = model.unwrap_or_else(|| model_before(at, &spec.model, &line, &said).to_owned());
        self.begin(TaskRecord { task: fresh_id()?, spec, seed, tools, ancestors: line, said }).await
    }

    /// Runs a task again from the ledger alone: no model is asked and no tool is run; a step that isn't recorded stops it, and a prompt
    /// that isn't the recorded one to the byte is a fault.
    pub async fn replay(&self, task: &TaskId) -> Result<Replayed, TaskError> {
        if self.0.live().contains_key(task) {
            return Err(TaskError::Busy(task.clone()));
        }
        let (view, whole) = self.whole(task)?;
        self.check_tools(&view.record)?;
        let steps = whole.len();
        let answer = self.0.attempt_replay(&view.record, Replaying(whole.into_keys().collect())).await?;
        let same = view.answer.as_ref().is_none_or(|recorded| *recorded == answer.text);
        Ok(Replayed { answer, steps, same })
    }

    /// Stops a task: before its next step if it runs here, for good if it runs nowhere.
    pub async fn cancel(&self, task: &TaskId) -> Result<(), TaskError> {
        if let Some(reins) = self.0.live().get(task) {
            reins.cancel();
            return Ok(());
        }
        let view = self.task(task)?;
        if view.state.is_over() {
            return Err(TaskError::Over(task.clone(), view.word()));
        }
        let _lock = self.0.lock(task).await?;
        self.0.put_away(task, view.runs).await
    }

    /// Sets a task's budget for all its runs together, from the next run on.
    pub async fn set_budget(&self, task: &TaskId, budget: Budget) -> Result<(), TaskError> {
        if self.0.live().contains_key(task) {
            return Err(TaskError::Busy(task.clone()));
        }
        let view = self.task(task)?;
        if view.is_put_away() {
            return Err(TaskError::Over(task.clone(), view.word()));
        }
        let _lock = self.0.lock(task).await?;
        self.0.note_budget(&view, budget).await
    }

    /// Which snapshot of the workspace is meant: `to` is a snapshot's id, or a step of the task, and then the last snapshot before that
    /// step is meant. Gives back its id and the step that it was taken after.
    pub fn snapshot(&self, task: &TaskId, to: &str) -> Result<(String, String), TaskError> {
        Self::snapshot_of(&self.task(task)?, to)
    }

    fn snapshot_of(view: &TaskView, to: &str) -> Result<(String, String), TaskError> {
        let taken = view.snapshots.iter();
        // A snapshot after turn 2 was taken after all that lies below it.
        let earlier = |after: &str| is_before(after, to) && !to.starts_with(&format!("{after}/"));
        let found =
            taken.clone().find(|(id, _)| id == to).or_else(|| taken.rev().find(|(_, after)| earlier(after)));
        found.cloned().ok_or_else(|| SnapshotError::Unknown(to.to_owned()).into())
    }

    /// Previews [`rollback`](Self::rollback).
    pub async fn foresee(&self, task: &TaskId, to: &str) -> Result<Restored, TaskError> {
        let (id, _) = self.snapshot(task, to)?;
        self.with_snapshots(move |store, workspace| store.foresee(workspace, &id)).await
    }

    /// Restores a [`snapshot`](Self::snapshot) of the workspace by a system call: the intent, with a snapshot of the current state, is
    /// in the ledger before a file changes. The task must not be running. After a crash, call this again.
    pub async fn rollback(&self, task: &TaskId, to: &str) -> Result<Restored, TaskError> {
        if self.0.live().contains_key(task) {
            return Err(TaskError::Busy(task.clone()));
        }
        let _lock = self.0.lock(task).await?;
        let view = self.task(task)?;
        let (id, after) = Self::snapshot_of(&view, to)?;
        let before = self.with_snapshots(Snapshots::take).await?;
        self.0.note_before(&view, &before).await?;
        let args = RestoreArgs { task: task.to_string(), snapshot: id.clone(), before };
        let restored = self.0.restore(&view, &args).await?;
        self.0.note_rollback(&view, (&id, &after), &restored).await?;
        Ok(restored)
    }

    /// The content of a file in a snapshot; none if it isn't a file there.
    pub async fn file_in(&self, snapshot: &str, path: &str) -> Result<Option<Vec<u8>>, TaskError> {
        let (snapshot, path) = (snapshot.to_owned(), path.to_owned());
        self.with_snapshots(move |store, _| store.file(&snapshot, &path)).await
    }

    /// The arguments of the call that a step is, in full: events shorten them. None if there are none, or they were erased.
    pub fn arguments(&self, task: &TaskId, step: &str) -> Result<Option<Vec<u8>>, TaskError> {
        let (_, steps) = self.whole(task)?;
        let Some((recorded, args)) = steps.get(step).and_then(|one| Some((one, one.args.as_ref()?))) else {
            return Ok(None);
        };
        Ok(self.0.owner.records.payload_of(recorded.entry, args).map_err(Fault::from)?)
    }

    async fn with_snapshots<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Snapshots, &Workspace) -> Result<T, SnapshotError> + Send + 'static,
    ) -> Result<T, TaskError> {
        let Some(checkpoints) = &self.0.options.snapshots else {
            return Err(SnapshotError::Unknown("none are kept".to_owned()).into());
        };
        let (store, workspace) = (Arc::clone(&checkpoints.store), checkpoints.workspace.clone());
        let done = tokio::task::spawn_blocking(move || work(&store, &workspace)).await;
        Ok(done.map_err(|_torn_down| StopCause::Passing("the session was closed".to_owned()))??)
    }

    /// All tasks of the ledger, the oldest first.
    pub fn tasks(&self) -> Result<Vec<TaskView>, TaskError> {
        let tapes = task::read_all(&self.0.owner.records, self.0.options.index.as_deref())?;
        let mut views = Vec::new();
        for tape in tapes.values() {
            views.extend(tape.view(&self.payloads())?);
        }
        views.sort_by(|one, other| {
            (one.created_ms, &one.record.task).cmp(&(other.created_ms, &other.record.task))
        });
        Ok(views)
    }

    /// One task.
    pub fn task(&self, task: &TaskId) -> Result<TaskView, TaskError> {
        let tapes = self.0.tapes(std::slice::from_ref(task))?;
        let view = tapes.get(task).map(|tape| tape.view(&self.payloads())).transpose()?.flatten();
        view.ok_or_else(|| TaskError::Unknown(task.to_string()))
    }

    /// The steps of a task, its own and those it shares, by name.
    pub fn steps(&self, task: &TaskId) -> Result<BTreeMap<String, task::Recorded>, TaskError> {
        self.whole(task).map(|(_, steps)| steps)
    }

    /// Where two runs part.
    pub fn diff(&self, left: &TaskId, right: &TaskId) -> Result<Vec<Difference>, TaskError> {
        Ok(task::diff(&self.steps(left)?, &self.steps(right)?))
    }

    /// A process died under it, it never came to its turn, or what it waited for has come.
    async fn is_left_over(&self, view: &TaskView) -> bool {
        // In a conversation the person says what is next.
        if view.stopped && view.record.spec.conversation {
            return false;
        }
        match view.state {
            TaskState::Initialized | TaskState::Running | TaskState::Retrying => true,
            TaskState::Pending => match (&view.why, &view.question, view.until_ms) {
                (None, _, _) => true,
                (Some(_), Some(question), _) => self.is_answered(question).await,
                (Some(_), None, Some(until_ms)) => until_ms <= self.0.kernel.now_ms(),
                // It waits for more budget.
                (Some(_), None, None) => false,
            },
            TaskState::Completed | TaskState::Failed | TaskState::Cancelled | TaskState::Finalized => false,
        }
    }

    /// Whether a question has an answer now. One that is gone is put again when the task gets there.
    async fn is_answered(&self, question: &str) -> bool {
        let standing = self.0.kernel.standing(&TicketId(question.to_owned())).await;
        matches!(standing, Ok(Answered::Approved | Answered::Denied { .. } | Answered::Gone))
    }

    fn payloads(&self) -> impl Fn(EntryPlace, &Digest) -> Result<Option<Vec<u8>>, Fault> {
        |entry, digest| Ok(self.0.owner.records.payload_of(entry, digest)?)
    }

    fn whole(&self, task: &TaskId) -> Result<(TaskView, BTreeMap<String, task::Recorded>), TaskError> {
        let view = self.task(task)?;
        let older = view.record.ancestors.iter().map(|older| older.task.clone());
        let family: Vec<TaskId> = older.chain([task.clone()]).collect();
        let tapes = self.0.tapes(&family)?;
        let whole = Tape::whole(&view.record, &tapes);
        Ok((view, whole))
    }

    /// Records a new task and puts it into the queue.
    async fn begin(&self, record: TaskRecord) -> Result<TaskHandle, TaskError> {
        if record.spec.goal.trim().is_empty() || record.spec.goal.len() > GOAL_BYTES_MAX {
            return Err(TaskError::Goal);
        }
        if self.0.queue.is_full() {
            return Err(TaskError::Full(self.0.options.waiting_max));
        }
        let lock = self.0.lock(&record.task).await?;
        let hold = self.0.held.take(&self.0.kernel, &[&record], Taking::New).await?.pop();
        self.0.write_record(&record).await?;
        self.enqueue(
            record,
            TaskStart { state: TaskState::Initialized, run: 1, used: Some(TaskUsage::default()) },
            (hold, lock),
        )
    }

    fn enqueue(
        &self,
        record: TaskRecord,
        start: TaskStart,
        (hold, lock): (Option<Hold>, Option<File>),
    ) -> Result<TaskHandle, TaskError> {
        let task = record.task.clone();
        let (reins, wished) = Reins::new(&record);
        {
            let mut live = self.0.live();
            if live.contains_key(&task) {
                return Err(TaskError::Busy(task));
            }
            live.insert(task.clone(), reins.clone());
        }
        let (told, ended) = watch::channel(None);
        let events = Events::default();
        let handle = TaskHandle { task: task.clone(), events: events.listen(), reins: reins.clone(), ended };
        let (inner, priority) = (Arc::clone(&self.0), record.spec.priority);
        let job = Box::pin(async move {
            let end = inner.drive(record, start, (reins, wished), events).await;
            drop(hold);
            inner.live().remove(&task);
            drop(lock);
            told.send_replace(Some(end));
        });
        if !self.0.queue.add(priority, job) {
            self.0.live().remove(&handle.task);
            return Err(TaskError::Full(self.0.options.waiting_max));
        }
        Ok(handle)
    }

    /// The tools that a task is offered, with what each is now.
    fn tools_of(&self, spec: &TaskSpec) -> Result<BTreeMap<String, String>, TaskError> {
        let kernel = &self.0.kernel;
        let Some(names) = &spec.tools else {
            let runs = |tool: &regent_kernel::Tool| {
                let spec = tool.spec();
                let is_for_others =
                    |capability: &String| matches!(capability.as_str(), FROM_PROGRAM | FOR_OPERATOR);
                !spec.capabilities.iter().any(is_for_others)
                    && spec.tiers.iter().any(|tier| *tier != regent_kernel::Tier::Instruction)
            };
            let all = kernel.tools();
            let offered = all.iter().filter(|tool| runs(tool));
            return Ok(offered.map(|tool| (tool.spec().name.clone(), tool.digest().to_string())).collect());
        };
        let find = |name: &String| {
            let tool = kernel.tool(name).ok_or_else(|| {
                let known = kernel.tools();
                let meant = nearest(name, known.iter().map(|tool| tool.spec().name.as_str()));
                TaskError::NoTool(
                    name.clone(),
                    meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?")),
                )
            })?;
            Ok((name.clone(), tool.digest().to_string()))
        };
        names.iter().map(find).collect()
    }

    /// A task continues with the tools that it began with, or not at all.
    fn check_tools(&self, record: &TaskRecord) -> Result<(), TaskError> {
        let kernel = &self.0.kernel;
        let same = |(name, digest): &(&String, &String)| {
            kernel.tool(name).is_some_and(|tool| tool.digest().to_string() == **digest)
        };
        match record.tools.iter().find(|tool| !same(tool)) {
            Some((name, _)) => Err(TaskError::ToolChanged(name.clone())),
            None => Ok(()),
        }
    }
}

fn fresh_seed() -> Result<String, TaskError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| TaskError::Random(error.to_string()))?;
    Ok(hex_string(&bytes))
}

fn fresh_id() -> Result<TaskId, TaskError> {
    let mut bytes = [0_u8; 5];
    getrandom::fill(&mut bytes).map_err(|error| TaskError::Random(error.to_string()))?;
    TaskId::new(&format!("t-{}", hex_string(&bytes))).ok_or_else(|| TaskError::Random("no name".to_owned()))
}
