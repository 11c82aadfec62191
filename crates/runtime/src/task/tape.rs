//! What the ledger tells of tasks, read back: steps, states, what it all cost.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use regent_kernel::{
    Budget, Digest, Entry, EntryKind, EntryPlace, Fault, Memory, Records, Spent, Status, TaskId,
};
use regent_wire::body::{Charged, Decision, EndStatus, EntryBody};
use serde::{Deserialize, Serialize};

use super::said::{Exchange, Said};
use super::spec::TaskRecord;
use super::state::TaskState;
use crate::agent::AgentAnswer;
use crate::door::{TaskUsage, is_before};

/// The step at which a task is recorded.
pub(crate) const RECORD_STEP: &str = "run/0/record";

/// One step, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recorded {
    /// Its name.
    pub step: String,
    /// When it began.
    pub at_ms: i64,
    /// What was asked for, e.g. `tool.run`.
    pub op: String,
    /// Which tool, if it was one.
    pub tool: Option<String>,
    /// The digest of the call as it was asked for: the whole prompt, if it was a call to a model.
    pub call: Option<Digest>,
    /// What was decided.
    pub verdict: Decision,
    /// Why not, if the answer was no.
    pub why: Option<String>,
    /// A person was asked about it together with an earlier call.
    #[serde(skip)]
    pub joined: bool,
    /// Where its arguments are.
    pub args: Option<Digest>,
    /// The entry that says so.
    #[serde(skip)]
    pub entry: EntryPlace,
    /// Whether a signature covers it. What one without says about the task's state is nobody's word.
    #[serde(skip)]
    pub vouched: bool,
    /// How it ended, if that is known.
    pub end: Option<End>,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct End {
    /// When.
    pub at_ms: i64,
    /// How.
    pub status: EndStatus,
    /// The digest of what came back.
    pub output: Option<Digest>,
    /// What it used.
    pub spent: Spent,
}

impl Recorded {
    /// Whether there is something to replay.
    pub fn is_over(&self) -> bool {
        let is_settled = |end: &End| match &end.status {
            EndStatus::Ended(status) => *status != Status::Cancelled,
            EndStatus::InDoubt(_) => false,
        };
        self.verdict == Decision::Deny || self.end.as_ref().is_some_and(is_settled)
    }
}

/// What a run of a task wrote about its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskStateRecord {
    pub(crate) state: TaskState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<Budget>,
    /// Not before this, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until_ms: Option<i64>,
    /// The question that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) question: Option<String>,
    /// A person stopped it: nobody continues it unasked in a conversation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stopped: bool,
    /// Why the answer isn't borne out by what was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unverified: Option<String>,
    /// What the person has said: from here on the task works on that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) said: Option<Said>,
}

impl TaskStateRecord {
    pub(crate) fn completed(answer: &AgentAnswer, unverified: Option<String>) -> Self {
        Self { answer: Some(answer.text.clone()), unverified, ..Self::state(TaskState::Completed) }
    }

    pub(crate) fn state(state: TaskState) -> Self {
        Self {
            state,
            why: None,
            answer: None,
            agent: None,
            snapshot: None,
            after: None,
            budget: None,
            until_ms: None,
            question: None,
            stopped: false,
            unverified: None,
            said: None,
        }
    }
}

/// A task's part of the ledger, in the order in which it was written.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tape {
    /// The steps. One that was asked about and then made is there twice.
    pub steps: Vec<Recorded>,
}

/// A task, as a list shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskView {
    /// What it is.
    pub record: TaskRecord,
    /// Where it is.
    pub state: TaskState,
    /// Why it is there, if that needs saying.
    pub why: Option<String>,
    /// A person stopped it.
    pub stopped: bool,
    /// From when on it can continue by itself, in milliseconds since 1970, if time is all that it waits for.
    pub until_ms: Option<i64>,
    /// The question that it waits for.
    pub question: Option<String>,
    /// Its answer, if it has one. After a further message, the answer to that.
    pub answer: Option<String>,
    /// Why the answer isn't borne out by what was done, if something speaks against it.
    pub unverified: Option<String>,
    /// What was asked for and answered, in order; the goal is the first.
    pub exchanges: Vec<Exchange>,
    /// The agent that ran it last.
    pub agent: Option<String>,
    /// When it was recorded.
    pub created_ms: i64,
    /// When something was last written of it.
    pub changed_ms: i64,
    /// How many of its own steps have an end.
    pub steps: usize,
    /// How often it was run.
    pub runs: u32,
    /// What it has used itself, as its receipts say; what it shares with the task it was forked from is that one's.
    pub spent: Spent,
    /// The same with calls and questions, as its budget counts.
    #[serde(skip)]
    pub used: TaskUsage,
    /// Snapshots of the workspace: id and the step after which each was taken.
    pub snapshots: Vec<(String, String)>,
}

impl TaskView {
    /// Whether it was cancelled: nothing can be said to it any more.
    pub fn is_put_away(&self) -> bool {
        self.state.is_over() && self.answer.is_none()
    }

    /// The state as a user names it: a task that is put away has been completed, or cancelled.
    pub fn word(&self) -> &'static str {
        match (self.state, &self.answer) {
            (TaskState::Finalized | TaskState::Completed, Some(_)) if self.unverified.is_some() => {
                "unverified"
            }
            (TaskState::Finalized, Some(_)) => TaskState::Completed.word(),
            (TaskState::Finalized, None) => TaskState::Cancelled.word(),
            (state, _) => state.word(),
        }
    }
}

/// What a digest in an entry stands for.
pub type Payloads<'a> = &'a dyn Fn(EntryPlace, &Digest) -> Result<Option<Vec<u8>>, Fault>;

/// Finds the entries of tasks without reading the whole ledger. Without an index, the runtime reads all of it.
pub trait TaskIndex: Send + Sync + std::fmt::Debug {
    /// The entries of these tasks, each lane's in its order; others may be among them.
    fn entries(&self, tasks: &[TaskId]) -> Result<Vec<Entry>, Fault>;

    /// The same of all tasks.
    fn all(&self) -> Result<Vec<Entry>, Fault>;
}

/// The tapes of these tasks, by an index if there is one.
pub(crate) fn read_tasks(
    records: &Records,
    index: Option<&dyn TaskIndex>,
    tasks: &[TaskId],
) -> Result<BTreeMap<TaskId, Tape>, Fault> {
    let wanted = |task: &TaskId| tasks.contains(task);
    match index {
        Some(index) => read_from(index.entries(tasks)?.into_iter().map(Ok), wanted),
        None => read(records, wanted),
    }
}

/// The tapes of all tasks, by an index if there is one.
pub(crate) fn read_all(
    records: &Records,
    index: Option<&dyn TaskIndex>,
) -> Result<BTreeMap<TaskId, Tape>, Fault> {
    match index {
        Some(index) => read_from(index.all()?.into_iter().map(Ok), |_| true),
        None => read(records, |_| true),
    }
}

/// Reads the whole ledger once and returns the tapes of the given tasks.
pub fn read(records: &Records, wanted: impl Fn(&TaskId) -> bool) -> Result<BTreeMap<TaskId, Tape>, Fault> {
    read_from(records.reader().entries()?.map(|entry| Ok(entry?)), wanted)
}

/// The same from some entries: all that belong to those tasks have to be among them.
pub fn read_from(
    entries: impl Iterator<Item = Result<Entry, Fault>>,
    wanted: impl Fn(&TaskId) -> bool,
) -> Result<BTreeMap<TaskId, Tape>, Fault> {
    let mut tapes: BTreeMap<TaskId, Tape> = BTreeMap::new();
    let mut places: HashMap<EntryPlace, (TaskId, usize)> = HashMap::new();
    // An end can be in another lane than its beginning, and that lane may come first.
    let mut ends: Vec<Entry> = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.kind == EntryKind::Outcome && entry.proven {
            ends.push(entry);
        } else if entry.kind == EntryKind::Intent
            // One that nobody vouches for may have been acted on: it is a step without an end.
            && !entry.refused
            && let Some((task, step)) = begun(&entry)?
            && wanted(&task)
        {
            let tape = tapes.entry(task.clone()).or_default();
            places.insert((entry.lane, entry.seq), (task, tape.steps.len()));
            tape.steps.push(step);
        }
    }
    for entry in ends {
        let Some(body) = EntryBody::read_known(&entry)? else { continue };
        let Some((task, at)) = body.intent_place(&entry).and_then(|place| places.get(&place)) else {
            continue;
        };
        if let Some(step) = tapes.get_mut(task).and_then(|tape| tape.steps.get_mut(*at))
            && let Some(end) = ended(entry.at_ms, body)
        {
            // A note that the call is in doubt doesn't replace an outcome, whichever is read first.
            if step.end.is_none() || matches!(end.status, EndStatus::Ended(_)) {
                step.end = Some(end);
            }
        }
    }
    Ok(tapes)
}

fn begun(entry: &Entry) -> Result<Option<(TaskId, Recorded)>, Fault> {
    let Some(EntryBody::Intent(intent)) = EntryBody::read_known(entry)? else { return Ok(None) };
    let Some(step) = &intent.step else { return Ok(None) };
    let recorded = Recorded {
        step: step.name.clone().into_owned(),
        at_ms: entry.at_ms,
        op: intent.op.clone().into_owned(),
        tool: intent.tool_name().map(str::to_owned),
        call: step.call,
        verdict: intent.verdict.effect,
        why: intent.verdict.reason.as_deref().map(str::to_owned),
        joined: intent.ticket.as_ref().is_some_and(|ticket| ticket.with.is_some()),
        args: intent.args.map(|args| args.sha256),
        entry: (entry.lane, entry.seq),
        vouched: entry.proven,
        end: None,
    };
    Ok(Some((step.task.clone(), recorded)))
}

fn ended(at_ms: i64, body: EntryBody<'_>) -> Option<End> {
    match body {
        EntryBody::Outcome(outcome) => Some(End {
            at_ms,
            status: EndStatus::Ended(outcome.status.into_owned()),
            output: outcome.output.map(|output| output.sha256),
            spent: outcome.spent.as_ref().map(Charged::spent).unwrap_or_default(),
        }),
        EntryBody::InDoubt(note) => Some(End {
            at_ms,
            status: EndStatus::InDoubt(note.status),
            output: None,
            spent: Spent::default(),
        }),
        EntryBody::Intent(_)
        | EntryBody::Agent(_)
        | EntryBody::Policy(_)
        | EntryBody::Kernel(_)
        | EntryBody::Internal => None,
    }
}

impl Tape {
    /// What the task is, read from the arguments of the call that recorded it. That call was to be made, which is enough: whether it also
    /// came to its end decides nothing, and a task that shows only after the next start is one that somebody gives twice.
    pub fn record(&self, payloads: Payloads<'_>) -> Result<Option<TaskRecord>, Fault> {
        let is_record = |step: &&Recorded| step.step == RECORD_STEP && step.verdict == Decision::Allow;
        let Some(step) = self.steps.iter().find(is_record) else {
            return Ok(None);
        };
        Ok(content(payloads, step)?.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// The task as a list shows it, if it was recorded.
    pub fn view(&self, payloads: Payloads<'_>) -> Result<Option<TaskView>, Fault> {
        let Some(record) = self.record(payloads)? else { return Ok(None) };
        let mut view = TaskView {
            record,
            state: TaskState::Initialized,
            why: None,
            stopped: false,
            until_ms: None,
            question: None,
            answer: None,
            unverified: None,
            exchanges: Vec::new(),
            agent: None,
            created_ms: self.steps.first().map_or(0, |step| step.at_ms),
            changed_ms: self
                .steps
                .last()
                .map_or(0, |step| step.end.as_ref().map_or(step.at_ms, |end| end.at_ms)),
            steps: self.recorded().iter().filter(|step| !step.starts_with("run/")).count(),
            runs: self.runs(),
            spent: self.used().spent,
            used: self.used(),
            snapshots: Vec::new(),
        };
        view.exchanges.push(Exchange { request: view.record.spec.goal.clone(), turn: 1, answer: None });
        view.exchanges.extend(view.record.said.iter().map(Exchange::of));
        let is_word =
            |step: &&Recorded| step.vouched && step.step.starts_with("run/") && step.step != RECORD_STEP;
        for step in self.steps.iter().filter(is_word) {
            let Some(text) = content(payloads, step)? else { continue };
            let Ok(said) = serde_json::from_str::<TaskStateRecord>(&text) else { continue };
            if let (Some(id), Some(after)) = (said.snapshot, said.after) {
                view.snapshots.push((id, after));
                continue;
            }
            if let Some(budget) = said.budget {
                view.record.spec.budget = budget;
                continue;
            }
            if let Some(message) = said.said {
                (view.state, view.why, view.answer, view.unverified) = (said.state, None, None, None);
                view.stopped = false;
                view.exchanges.push(Exchange::of(&message));
                view.record.said.push(message);
                continue;
            }
            (view.state, view.why, view.stopped) = (said.state, said.why, said.stopped);
            (view.until_ms, view.question) = (said.until_ms, said.question);
            if let (Some(answer), Some(last)) = (&said.answer, view.exchanges.last_mut()) {
                last.answer = Some(answer.clone());
            }
            view.answer = said.answer.or(view.answer);
            view.unverified = said.unverified.or(view.unverified);
            view.agent = said.agent.or(view.agent);
        }
        Ok(Some(view))
    }

    /// How often it was run: the number of the next run.
    pub fn runs(&self) -> u32 {
        let number = |step: &Recorded| step.step.strip_prefix("run/")?.split('/').next()?.parse::<u32>().ok();
        self.steps.iter().filter_map(number).max().map_or(0, |last| last.saturating_add(1))
    }

    /// The names of the steps that have an end.
    pub fn recorded(&self) -> BTreeSet<String> {
        self.steps.iter().filter(|step| step.is_over()).map(|step| step.step.clone()).collect()
    }

    /// The usage of all its calls. The records that a run writes about itself cost something, but aren't calls of the agent.
    pub fn used(&self) -> TaskUsage {
        let mut used = TaskUsage::default();
        // A question that is still open is met again by each run, and was put once.
        let mut asked = BTreeSet::new();
        for step in &self.steps {
            let is_agents = !step.step.starts_with("run/");
            let spent = step.end.as_ref().map_or_else(Spent::default, |end| end.spent);
            let calls = u64::from(is_agents && step.end.is_some());
            let is_question = is_agents && step.verdict == Decision::Ask && !step.joined;
            let questions = u64::from(is_question && asked.insert(&step.step));
            used = used.plus(TaskUsage { spent, calls, questions });
        }
        used
    }

    /// The effective steps by name: its own, and those shared with its ancestors.
    pub fn whole(record: &TaskRecord, tapes: &BTreeMap<TaskId, Self>) -> BTreeMap<String, Recorded> {
        let mut whole = BTreeMap::new();
        let mut take = |task: &TaskId, wanted: &dyn Fn(&str) -> bool| {
            for step in tapes.get(task).into_iter().flat_map(|tape| &tape.steps) {
                if step.is_over() && !step.step.starts_with("run/") && wanted(&step.step) {
                    whole.insert(step.step.clone(), step.clone());
                }
            }
        };
        let mut from: Option<&str> = None;
        for one in &record.ancestors {
            let since = from;
            take(&one.task, &|step| is_before(step, &one.at) && since.is_none_or(|at| !is_before(step, at)));
            from = Some(&one.at);
        }
        take(&record.task, &|step| record.ancestors.iter().all(|one| !is_before(step, &one.at)));
        whole
    }
}

/// What a call to remember something carried.
fn content(payloads: Payloads<'_>, step: &Recorded) -> Result<Option<String>, Fault> {
    let Some(digest) = &step.args else { return Ok(None) };
    let Some(bytes) = payloads(step.entry, digest)? else { return Ok(None) };
    let remembered: Option<Memory> = serde_json::from_slice(&bytes).ok();
    Ok(remembered.map(|memory| memory.content))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::task::spec::TaskSpec;

    #[test]
    fn a_task_is_there_from_the_moment_that_its_record_was_to_be_written() {
        let record = TaskRecord {
            task: TaskId::new("t-1").unwrap(),
            spec: TaskSpec::new("go on"),
            seed: "s".to_owned(),
            tools: BTreeMap::new(),
            ancestors: Vec::new(),
            said: Vec::new(),
        };
        let content = serde_json::to_string(&record).unwrap();
        let args = json!({"content": content, "key": "t-1", "region": "episodic"}).to_string().into_bytes();
        let digest = Digest::compute(&args);
        let tape = |verdict: Decision| Tape {
            steps: vec![Recorded {
                step: RECORD_STEP.to_owned(),
                at_ms: 1,
                op: "memory.remember".to_owned(),
                tool: None,
                call: None,
                verdict,
                why: None,
                joined: false,
                args: Some(digest),
                entry: ("0000".parse().unwrap(), 0),
                vouched: true,
                end: None,
            }],
        };
        let payloads = |_: EntryPlace, _: &Digest| Ok(Some(args.clone()));
        let view = tape(Decision::Allow).view(&payloads).unwrap().unwrap();
        assert_eq!((view.record, view.state), (record, TaskState::Initialized));
        assert_eq!(tape(Decision::Deny).view(&payloads).unwrap(), None);
    }
}
