//! The journal of a task: which of its steps have run, with their results. It is read from the ledger, and there is no other.
//!
//! A task is a program whose every call has a name, its *step*: the same each time the program runs. A call at a step that has an
//! outcome is answered from the ledger and never made again, so resuming a task is running it again from the start. A call
//! that isn't the one recorded at that step means that the program or its input is another: that is a fault, not a guess. A step
//! that began and has no recorded end is settled by the [evidence](crate::evidence) in its intent. Without evidence
//! it is made again only if its tool is idempotent; any other needs a reviewer's decision.

mod lanes;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_ledger::{CanonicalJson, Digest, Entry, EntryKind, LaneId, Reader, Receipt};
use regent_policy::{Label, Reason};
pub use regent_wire::TaskId;
use regent_wire::body::{BodyError, Charged, Decision, EntryBody, IntentBody, StepBody};
use serde_json::Value;

use crate::budget::Spent;
use crate::call::{Call, Op};
use crate::evidence::EvidenceRef;
use crate::executor::BoxFuture;
use crate::kernel::Core;
use crate::principal::Principal;
use crate::syscall::{Denial, Fault, Kernel, Labelled, Outcome, Reply, Status};

const STEP_BYTES_MAX: usize = 256;

/// A named call of a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TaskStep {
    pub(crate) task: TaskId,
    pub(crate) name: Arc<str>,
}

/// A call that may have happened or not, at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) intent: Receipt,
    pub(crate) idempotent: bool,
    /// What tells whether it happened, if anything does.
    pub(crate) evidence: Option<EvidenceRef>,
}

/// What is known of the tasks that this kernel runs.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    steps: Mutex<HashMap<TaskId, BTreeMap<Arc<str>, JournalStep>>>,
    lanes: Mutex<HashMap<TaskId, TaskLanes>>,
}

/// The lanes that a task has steps in.
#[derive(Debug, Default, Clone)]
struct TaskLanes {
    /// All of them.
    all: BTreeSet<LaneId>,
    /// Those that this kernel has noted in the shared state.
    noted: BTreeSet<LaneId>,
}

/// What is known of a step.
#[derive(Debug, Clone)]
struct JournalStep {
    /// The call that was made, as it was asked for.
    call: Digest,
    intent: Receipt,
    how: StepProgress,
}

impl JournalStep {
    fn is_in_doubt(&self) -> bool {
        matches!(self.how, StepProgress::InDoubt { .. })
    }

    fn ended_in(&self) -> Option<LaneId> {
        if let StepProgress::Ended(receipt, _) = &self.how { Some(receipt.lane) } else { None }
    }
}

#[derive(Debug, Clone)]
enum StepProgress {
    /// It is being made.
    Running,
    /// It is over.
    Ended(Receipt, Box<StepEnd>),
    /// It was refused.
    Denied(Box<Reason>),
    /// Unknown.
    InDoubt { idempotent: bool, evidence: Option<EvidenceRef> },
    /// It became a question, or the disk was full: nothing happened, and it may be tried again.
    Open,
}

impl StepProgress {
    /// Of several calls at one step the one with an outcome counts, then a denial, then one in doubt.
    fn rank(&self) -> u8 {
        match self {
            Self::Ended(..) => 4,
            Self::Denied(_) => 3,
            // An unproven entry doesn't replace a proven one.
            Self::InDoubt { evidence: Some(EvidenceRef { proven: false, .. }), .. } | Self::Running => 1,
            Self::InDoubt { .. } => 2,
            Self::Open => 0,
        }
    }
}

/// Which step an intent belongs to, and what it was.
type StepsByIntent = HashMap<(LaneId, u64), (TaskStep, JournalStep)>;

/// How a step ended, as far as an answer is made of it.
#[derive(Debug, Clone)]
struct StepEnd {
    label: Label,
    obtained: Option<Value>,
    output: Option<Digest>,
    spent: Spent,
    status: Status,
    truncated: bool,
}

impl Principal {
    /// The same caller, at a step of a task: the call is made once, whatever happens, and answered from the ledger after that.
    /// `None` if the step's name is empty or too long.
    pub fn at_step(&self, task: &TaskId, step: &str) -> Option<Self> {
        let fine = !step.is_empty() && step.len() <= STEP_BYTES_MAX && !step.chars().any(char::is_control);
        fine.then(|| self.with_step(Some(Arc::new(TaskStep { task: task.clone(), name: step.into() }))))
    }
}

impl Kernel {
    /// Reads the steps of tasks from the ledger, so that they can be resumed. Returns how many steps of each are complete.
    pub fn adopt<'a>(&'a self, tasks: &'a [TaskId]) -> BoxFuture<'a, Result<BTreeMap<TaskId, u64>, Fault>> {
        Box::pin(async move {
            let noted = self.0.noted_lanes(tasks).await?;
            let (core, tasks) = (Arc::clone(&self.0), tasks.to_vec());
            let read = tokio::task::spawn_blocking(move || core.read_steps(&tasks, noted)).await;
            read.unwrap_or(Err(Fault::TornDown))
        })
    }

    /// A task that has no steps yet.
    pub fn adopt_new(&self, task: &TaskId) {
        self.0.journal.lanes().insert(task.clone(), TaskLanes::default());
    }

    /// Drops the cached steps of a task; the ledger keeps them.
    pub fn release(&self, task: &TaskId) {
        self.0.journal.lock().remove(task);
        self.0.journal.lanes().remove(task);
    }
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, BTreeMap<Arc<str>, JournalStep>>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<TaskId, TaskLanes>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, step: &TaskStep) -> Option<JournalStep> {
        self.lock().get(&step.task)?.get(&step.name).cloned()
    }

    fn put(&self, step: &TaskStep, made: JournalStep) {
        self.lock().entry(step.task.clone()).or_default().insert(Arc::clone(&step.name), made);
    }
}

/// The journal's answer for a call.
pub(crate) enum JournalLookup {
    /// It was made, with this reply.
    Answer(Box<Reply>),
    /// It was not made, or may not have been.
    Make(Option<Doubt>),
}

impl Core {
    /// Reads the steps of tasks from the lanes that were noted, or from all of them.
    fn read_steps(
        &self,
        tasks: &[TaskId],
        noted: Option<BTreeSet<LaneId>>,
    ) -> Result<BTreeMap<TaskId, u64>, Fault> {
        let mut found: HashMap<TaskId, BTreeMap<Arc<str>, JournalStep>> =
            tasks.iter().map(|task| (task.clone(), BTreeMap::new())).collect();
        let reader = Reader::on(self.recorder.ledger.storage());
        let mut places: StepsByIntent = HashMap::new();
        let lanes = reader.lanes()?;
        // A lane that isn't there was of another ledger: then nothing is known of this one.
        let noted = noted.filter(|noted| noted.iter().all(|lane| lanes.contains(lane)));
        let is_noted = |lane: &LaneId| noted.as_ref().is_none_or(|noted| noted.contains(lane));
        // A line is parsed only if it names one of the tasks, or an intent of theirs whose end isn't known yet.
        let mut texts: Vec<String> = tasks.iter().map(|task| format!("\"task\":\"{task}\"")).collect();
        let mut unreadable = Ok(());
        let mut search = |lane: &LaneId, found: &mut _, places: &mut _| {
            reader.search(*lane, &mut texts, |entry, texts| {
                let read = read_step(entry, found, places, texts);
                unreadable = std::mem::replace(&mut unreadable, Ok(())).and(read);
            })
        };
        for lane in lanes.iter().filter(|lane| is_noted(lane)) {
            search(lane, &mut found, &mut places)?;
        }
        // After a full disk or a crash a call ends in another lane than it began in, perhaps in one that came before. A crash leaves that
        // lane noted; a full disk may not.
        let doubted = found.values().flat_map(BTreeMap::values).filter(|made| made.is_in_doubt());
        let doubted: BTreeSet<LaneId> = doubted.map(|made| made.intent.lane).collect();
        let mut is_left = false;
        for lane in doubted.iter().filter(|_| noted.is_some()) {
            is_left = is_left || reader.was_left(*lane)?;
        }
        if let Some(last) = doubted.last() {
            for lane in lanes.iter().filter(|lane| is_left || (is_noted(lane) && *lane < last)) {
                search(lane, &mut found, &mut places)?;
            }
        }
        unreadable?;
        let count = |steps: &BTreeMap<Arc<str>, JournalStep>| {
            steps
                .values()
                .filter(|made| matches!(made.how, StepProgress::Ended(..) | StepProgress::Denied(_)))
                .count() as u64
        };
        let counts = found.iter().map(|(task, steps)| (task.clone(), count(steps))).collect();
        for task in tasks {
            let mut all = noted.clone().unwrap_or_default();
            all.extend(places.iter().filter(|(_, (step, _))| step.task == *task).map(|((lane, _), _)| *lane));
            all.extend(found.get(task).into_iter().flatten().filter_map(|(_, made)| made.ended_in()));
            self.journal.lanes().insert(task.clone(), TaskLanes { all, noted: BTreeSet::new() });
        }
        self.journal.lock().extend(found);
        Ok(counts)
    }

    /// Answers a call that was made before.
    pub(crate) async fn known(&self, call: &Call) -> Result<JournalLookup, Fault> {
        let Some(step) = call.principal.step() else { return Ok(JournalLookup::Make(None)) };
        let Some(made) = self.journal.get(step) else { return Ok(JournalLookup::Make(None)) };
        let diverged = || Fault::Diverged { task: step.task.to_string(), step: step.name.to_string() };
        match made.how {
            StepProgress::Open => Ok(JournalLookup::Make(None)),
            _another if made.call != digest_of(&call.op)? => Err(diverged()),
            StepProgress::Running => Err(diverged()),
            StepProgress::InDoubt { idempotent, evidence } => {
                Ok(JournalLookup::Make(Some(Doubt { intent: made.intent, idempotent, evidence })))
            }
            StepProgress::Denied(reason) => Ok(JournalLookup::Answer(Box::new(Reply::Denied(Denial {
                reason: *reason,
                intent: made.intent,
            })))),
            StepProgress::Ended(receipt, body) => self
                .replayed(made.intent, receipt, *body)
                .await
                .map(|reply| JournalLookup::Answer(Box::new(reply))),
        }
    }

    async fn replayed(&self, intent: Receipt, receipt: Receipt, body: StepEnd) -> Result<Reply, Fault> {
        let bytes = match body.output {
            Some(sha256) => {
                let ledger = self.recorder.ledger.clone();
                let read = move || ledger.payload_of((receipt.lane, receipt.seq), &sha256);
                let found = tokio::task::spawn_blocking(read).await.map_err(|_torn_down| Fault::TornDown)?;
                found?.ok_or(Fault::Erased(sha256))?
            }
            None => Vec::new(),
        };
        if let Status::Faulted(message) = body.status {
            return Err(Fault::Executor { intent: intent.seq, message });
        }
        Ok(Reply::Done(Outcome {
            output: Labelled::replayed(bytes, body.label),
            status: body.status,
            intent,
            receipt,
            spent: body.spent,
            obtained: body.obtained,
            truncated: body.truncated,
            warnings: Vec::new(),
        }))
    }

    /// Takes note of a call at a step, once its intent is recorded.
    pub(crate) fn step_begun(&self, call: &Call, intent: Receipt, denied: Option<&Reason>, pending: bool) {
        let Some(step) = call.principal.step() else { return };
        // The digest was taken before the intent was recorded; taking it again can't fail where it did not then.
        let Ok(digest) = digest_of(&call.op) else { return };
        let how = match (denied, pending) {
            (Some(reason), _) => StepProgress::Denied(Box::new(reason.clone())),
            // To be asked about a call in doubt doesn't settle the doubt.
            (None, true) if self.journal.get(step).is_some_and(|made| made.is_in_doubt()) => return,
            (None, true) => StepProgress::Open,
            (None, false) => StepProgress::Running,
        };
        self.journal.put(step, JournalStep { call: digest, intent, how });
    }

    /// Takes note of how it ended.
    pub(crate) fn step_ended(&self, call: &Call, reply: &Outcome) {
        let Some(step) = call.principal.step() else { return };
        let Some(made) = self.journal.get(step) else { return };
        let bytes = reply.output.bytes();
        let body = StepEnd {
            label: reply.output.label(),
            obtained: reply.obtained.clone(),
            output: (!bytes.is_empty()).then(|| reply.output.digest()),
            spent: reply.spent,
            status: reply.status.clone(),
            truncated: reply.truncated,
        };
        self.journal
            .put(step, JournalStep { how: StepProgress::Ended(reply.receipt, Box::new(body)), ..made });
    }
}

/// The call as it was asked for, before anything was resolved or changed.
pub(crate) fn digest_of(op: &Op) -> Result<Digest, Fault> {
    Ok(Digest::compute(CanonicalJson::encode(op)?.as_str().as_bytes()))
}

/// Takes in an intent or an outcome. The outcome of an intent that was allowed is looked for from here on, until it is found.
fn read_step(
    entry: &Entry,
    found: &mut HashMap<TaskId, BTreeMap<Arc<str>, JournalStep>>,
    places: &mut StepsByIntent,
    texts: &mut Vec<String>,
) -> Result<(), BodyError> {
    let outcome_of = |seq: u64| format!("\"intent\":{seq},");
    match entry.kind {
        // An intent that no checkpoint covers may have been acknowledged, unless its writer says otherwise.
        EntryKind::Intent if !entry.refused && !places.contains_key(&(entry.lane, entry.seq)) => {
            if let Some(EntryBody::Intent(intent)) = EntryBody::read_known(entry)? {
                begin(entry, &intent, found, places);
            }
            if places.get(&(entry.lane, entry.seq)).is_some_and(|(_, made)| made.is_in_doubt()) {
                texts.push(outcome_of(entry.seq));
            }
        }
        EntryKind::Outcome if entry.proven => {
            if let Some(seq) = end(entry, found, places)? {
                let text = outcome_of(seq);
                if let Some(at) = texts.iter().position(|known| *known == text) {
                    texts.swap_remove(at);
                }
            }
        }
        EntryKind::Intent
        | EntryKind::Outcome
        | EntryKind::Kernel
        | EntryKind::Answer
        | EntryKind::Agent
        | EntryKind::Policy => {}
        EntryKind::Lane
        | EntryKind::Recovery
        | EntryKind::Key
        | EntryKind::Erase
        | EntryKind::Pack
        | EntryKind::Resume
        | EntryKind::Checkpoint => {}
    }
    Ok(())
}

fn begin(
    entry: &Entry,
    intent: &IntentBody<'_>,
    found: &mut HashMap<TaskId, BTreeMap<Arc<str>, JournalStep>>,
    places: &mut StepsByIntent,
) {
    let Some(StepBody { call: Some(call), name, task }) = &intent.step else { return };
    let Some(steps) = found.get_mut(task) else { return };
    let verdict = &intent.verdict;
    let text = |text: &Option<Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
    let how = match verdict.effect {
        Decision::Allow => StepProgress::InDoubt {
            idempotent: intent.idempotent,
            evidence: EvidenceRef::named(intent, entry.proven),
        },
        Decision::Deny => StepProgress::Denied(Box::new(Reason {
            code: text(&verdict.code).into(),
            message: text(&verdict.reason),
            rule: None,
            help: verdict.help.as_deref().map(str::to_owned),
        })),
        Decision::Ask => StepProgress::Open,
    };
    let (call, step) = (*call, TaskStep { task: task.clone(), name: (&**name).into() });
    let made =
        JournalStep { call, intent: Receipt { lane: entry.lane, seq: entry.seq, hash: entry.hash }, how };
    if steps.get(&step.name).is_none_or(|known| known.how.rank() <= made.how.rank()) {
        steps.insert(Arc::clone(&step.name), made.clone());
    }
    places.insert((entry.lane, entry.seq), (step, made));
}

/// Records how a call ended, and returns the place of its intent if it is over for good.
fn end(
    entry: &Entry,
    found: &mut HashMap<TaskId, BTreeMap<Arc<str>, JournalStep>>,
    places: &StepsByIntent,
) -> Result<Option<u64>, BodyError> {
    // A note that a call is in doubt is in the place of an outcome, but says nothing of how it ended.
    let Some(body @ EntryBody::Outcome(_)) = EntryBody::read_known(entry)? else { return Ok(None) };
    let Some((step, made)) = body.intent_place(entry).and_then(|place| places.get(&place)) else {
        return Ok(None);
    };
    let EntryBody::Outcome(body) = body else { return Ok(None) };
    // Unlabelled output can't be returned.
    let (seq, Some(label)) = (body.intent, body.label) else { return Ok(None) };
    let known = found.get_mut(&step.task).and_then(|steps| steps.get_mut(&step.name));
    // What was stopped half-way may have happened in part: a task can't continue from that. The executor may still be at
    // it in a live process, so what the file holds now proves nothing.
    if *body.status == Status::Cancelled {
        if let Some(StepProgress::InDoubt { evidence, .. }) = known.map(|known| &mut known.how) {
            *evidence = None;
        }
        return Ok(None);
    }
    if let Some(known) = known
        && !matches!(known.how, StepProgress::Ended(..))
    {
        let receipt = Receipt { lane: entry.lane, seq: entry.seq, hash: entry.hash };
        let end = StepEnd {
            label,
            obtained: body.obtained.map(Cow::into_owned),
            output: body.output.map(|output| output.sha256),
            spent: body.spent.as_ref().map(Charged::spent).unwrap_or_default(),
            status: body.status.into_owned(),
            truncated: body.truncated,
        };
        *known = JournalStep { how: StepProgress::Ended(receipt, Box::new(end)), ..made.clone() };
    }
    Ok(Some(seq))
}
