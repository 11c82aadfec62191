//! The runtime's only way to act: system calls of one agent, each at a step of one task.
//!
//! A step's name is made of where the program is, never of time or chance: `3/think`, `3/tool/1`. A call at a step that has an end in
//! the ledger is answered from there, so running the program again from the start is how a task is resumed.

mod usage;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::{
    Answered, AskedAhead, BoxFuture, Budget, Denial, Fault, Kernel, Op, OpenQuestion, Outcome, Principal,
    Reason, Reply, Signal, Status, TaskId, Ticket, TicketId, ToolFailure, UNATTENDED,
};
use tokio::sync::watch;

use crate::event::{CallEnd, Event, Events, shorten};
use crate::stop::{StopCause, StopRequest};
use crate::task::{Said, is_dropped, is_dropped_turn, model_at};
use crate::tokens;
pub use usage::TaskUsage;

/// How often a call is made again because it needed an approval.
const ASKED_TIMES_MAX: u32 = 3;
/// How many names one step can have, over all runs of a task.
const TRIES_MAX: u32 = 64;
/// How long a question waits for those about calls that are made beside it.
const BESIDE: std::time::Duration = std::time::Duration::from_millis(100);
/// Codes of refusals that say "not now".
const NOT_NOW: [&str; 2] = ["budget.", "rate."];

/// The code with which the kernel suspends an agent.
const USED_UP: &str = "budget.exhausted";
/// The code of a budget that running calls hold: it passes when they have settled.
const HELD: &str = "budget.held";
/// How often a call is made again because running calls hold the budget.
const HELD_TIMES_MAX: u32 = 8;

/// Which failures are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Only refusals that say "not now", and only in a later run. For calls with effects.
    Refusals,
    /// Failures of the far side as well, this often in one run. For calls without effects, such as asking a model.
    Failures(u32),
}

impl Patience {
    fn is_over(self, tries: u32) -> bool {
        match self {
            Self::Refusals => true,
            Self::Failures(tries_max) => tries >= tries_max,
        }
    }

    fn with_failures(self) -> Option<Passing> {
        match self {
            Self::Refusals => None,
            Self::Failures(_) => Some(Passing::Failed),
        }
    }
}

/// A call that is made later in the same turn. If a reviewer is asked about an earlier one, they see the question about this one too.
#[derive(Debug, Clone)]
pub(crate) struct LaterCall {
    pub(crate) step: String,
    pub(crate) op: Op,
}

/// A call that was denied because no operator was available about it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Undone {
    /// The step that it is.
    pub step: String,
    /// The call in a line.
    pub call: String,
    /// Why the call needs an approval.
    pub why: String,
}

/// The result of a call.
#[derive(Debug)]
pub enum CallResult {
    /// It was done, or failed; this came of it.
    Done(Outcome),
    /// It was refused.
    Denied(Denial),
    /// The executor broke; the ledger says so.
    Broke(String),
}

/// Asks for an approval while a task waits. The default asks nobody: the task stops and can be resumed when there is an answer.
pub trait Asker: Send + Sync + std::fmt::Debug {
    /// Puts the question, and comes back when it is answered (in the kernel, by `Op::Answer`) or nobody will.
    fn ask<'a>(&'a self, kernel: &'a Kernel, ticket: &'a Ticket) -> BoxFuture<'a, Asking>;
}

/// How asking ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// There is an answer: make the call again.
    Answered,
    /// Nobody answers now: stop, and resume later.
    Later,
}

/// Waits for an answer from another terminal.
#[derive(Debug, Clone, Copy, Default)]
pub struct WaitForAnswer;

impl Asker for WaitForAnswer {
    fn ask<'a>(&'a self, kernel: &'a Kernel, ticket: &'a Ticket) -> BoxFuture<'a, Asking> {
        Box::pin(async move {
            match kernel.answered(&ticket.id).await {
                Ok(Answered::Approved | Answered::Denied { .. }) => Asking::Answered,
                Ok(Answered::Waiting { .. } | Answered::Gone) | Err(_) => Asking::Later,
            }
        })
    }
}

/// A task that this one was forked from: its steps before `at` are this task's too.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ancestor {
    /// Which task.
    pub task: TaskId,
    /// The first step that is not shared.
    pub at: String,
    /// The model that it used.
    pub model: String,
}

/// What all agents of one run of a task have in common.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) kernel: Kernel,
    /// Whose task it is: who starts its agents and answers for them.
    pub(crate) owner: Principal,
    pub(crate) task: TaskId,
    pub(crate) model: String,
    pub(crate) ancestors: Vec<Ancestor>,
    pub(crate) said: Vec<Said>,
    /// Only these steps may be asked for: a replay makes no call.
    pub(crate) recorded: Option<BTreeSet<String>>,
    pub(crate) asker: Option<Arc<dyn Asker>>,
    pub(crate) wish: watch::Receiver<StopRequest>,
    pub(crate) events: Events,
    pub(crate) budget: Budget,
    /// Where the ledger stood when the run began: what is older is replayed.
    pub(crate) began: (String, u64),
    /// What the task has used: the ledger's figures when the run began, and what was used since.
    pub(crate) used: Mutex<TaskUsage>,
    /// Calls that were denied because no operator was available.
    pub(crate) undone: Mutex<Vec<Undone>>,
    /// Questions that this run has sent events about.
    pub(crate) told: Mutex<HashSet<TicketId>>,
    pub(crate) backoff_ms: u64,
    pub(crate) milestones: Option<Arc<dyn Milestones>>,
}

/// Takes snapshots of the workspace.
pub(crate) trait Milestones: Send + Sync + std::fmt::Debug {
    /// Something was changed, and nothing runs.
    fn reached<'a>(&'a self, step: &'a str) -> BoxFuture<'a, ()>;
}

impl Run {
    pub(crate) fn used(&self) -> TaskUsage {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was left undone so far.
    pub(crate) fn undone(&self) -> Vec<Undone> {
        self.undone.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn leave_undone(&self, step: &str, op: &Op, reason: &Reason) {
        if reason.code == UNATTENDED {
            let call = if let Op::RunTool(run) = op {
                format!("{} {}", run.tool, run.args)
            } else {
                op.name().to_owned()
            };
            let one = Undone { step: step.to_owned(), call: shorten(&call), why: reason.message.clone() };
            self.undone.lock().unwrap_or_else(PoisonError::into_inner).push(one);
        }
    }

    fn charge(&self, more: TaskUsage) {
        {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            *used = used.plus(more);
        }
        self.tell_used();
    }

    /// Tells what was used and what is left.
    pub(crate) fn tell_used(&self) {
        let used = self.used();
        self.events.send(Event::Used { spent: used.spent, left: used.left_of(self.budget) });
    }
}

/// The door of one agent in one task. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Door {
    run: Arc<Run>,
    who: Principal,
    /// What the names of its steps begin with.
    prefix: Arc<str>,
}

impl Door {
    pub(crate) fn new(run: Arc<Run>, who: Principal) -> Self {
        Self { run, who, prefix: "".into() }
    }

    /// The same for another agent, whose steps lie below `prefix`.
    pub(crate) fn below(&self, who: Principal, prefix: &str) -> Self {
        Self { run: Arc::clone(&self.run), who, prefix: format!("{}{prefix}", self.prefix).into() }
    }

    /// Whose task it is.
    pub(crate) fn owner(&self) -> &Principal {
        &self.run.owner
    }

    /// The kernel behind it.
    pub fn kernel(&self) -> &Kernel {
        &self.run.kernel
    }

    /// The calling agent.
    pub fn who(&self) -> &Principal {
        &self.who
    }

    /// The task that the calls belong to.
    pub fn task(&self) -> &TaskId {
        &self.run.task
    }

    /// Where news go.
    pub fn events(&self) -> &Events {
        &self.run.events
    }

    /// The full name of a step.
    pub fn name_of(&self, step: &str) -> String {
        format!("{}{step}", self.prefix)
    }

    /// The model of a step: a fork keeps the old one for shared steps.
    pub fn model_at(&self, step: &str) -> &str {
        model_at(&self.name_of(step), &self.run.model, &self.run.ancestors, &self.run.said)
    }

    /// Why the task is to stop, if it is. Looked at between steps, so that no step is torn.
    pub fn is_to_stop(&self) -> Option<StopCause> {
        self.run.wish.borrow().stop()
    }

    /// Whether the person stopped the task before this step was made, and said something else.
    pub(crate) fn is_dropped(&self, step: &str) -> bool {
        is_dropped(&self.name_of(step), &self.run.said)
    }

    /// The same for a whole turn.
    pub(crate) fn is_dropped_turn(&self, turn: u32) -> bool {
        self.prefix.is_empty() && is_dropped_turn(turn, &self.run.said)
    }

    /// Whether the person has said more: looked at between two turns.
    pub(crate) fn is_told(&self) -> Option<StopCause> {
        (*self.run.wish.borrow() == StopRequest::Hear).then_some(StopCause::Told)
    }

    /// Says that something was changed, between two steps.
    pub(crate) async fn milestone(&self, step: &str) {
        if let Some(milestones) = &self.run.milestones {
            milestones.reached(&self.name_of(step)).await;
        }
    }

    /// Whether calls are only replayed.
    pub fn is_replay(&self) -> bool {
        self.run.recorded.is_some()
    }

    /// Makes the call of a step, or replays its recorded result.
    pub async fn call(&self, step: &str, op: Op) -> Result<CallResult, StopCause> {
        self.call_and_tell(step, op, &[]).await.map(|(heard, _)| heard)
    }

    /// The same for what may pass: a "not now" of an earlier run is tried again under the step's next name, and one of now as often
    /// as there is patience for it, after a pause. Says also whether the answer was only replayed.
    pub async fn persist(
        &self,
        step: &str,
        op: Op,
        patience: Patience,
    ) -> Result<(CallResult, bool), StopCause> {
        self.persist_before(step, op, patience, &[]).await
    }

    /// The same for a call that others of the same turn come after.
    pub(crate) async fn persist_before(
        &self,
        step: &str,
        op: Op,
        patience: Patience,
        later: &[LaterCall],
    ) -> Result<(CallResult, bool), StopCause> {
        let mut now = 0_u32;
        let mut last = None;
        for number in 0..TRIES_MAX {
            let name = if number == 0 { step.to_owned() } else { format!("{step}~{number}") };
            // In a replay there is nothing after the last try.
            if let (Some(recorded), true) = (&self.run.recorded, last.is_some())
                && !recorded.contains(&self.name_of(&name))
            {
                break;
            }
            let (heard, replayed) = self.call_and_tell(&name, op.clone(), later).await?;
            let Some(passing) = passing(&heard, patience) else { return Ok((heard, replayed)) };
            last = Some((heard, replayed));
            if replayed {
                continue;
            }
            now = now.saturating_add(1);
            let is_over = match passing {
                Passing::Used | Passing::Settled => true,
                Passing::Held => now >= HELD_TIMES_MAX,
                Passing::Failed => patience.is_over(now),
            };
            if is_over {
                break;
            }
            self.pause(now).await?;
        }
        last.ok_or_else(|| StopCause::Step(self.name_of(step)))
    }

    /// A call that isn't a step: it belongs to this run of the program only, such as starting an agent.
    pub async fn aside(&self, op: Op) -> Result<CallResult, StopCause> {
        match self.run.kernel.syscall(&self.who, op).await {
            Ok(Reply::Done(outcome)) => Ok(CallResult::Done(outcome)),
            Ok(Reply::Denied(denial)) => {
                self.carry_on(&denial.reason).await?;
                Ok(CallResult::Denied(denial))
            }
            Ok(Reply::Pending(ticket)) => Err(ticket.into()),
            Err(fault) => executor_message(fault).map(CallResult::Broke),
        }
    }

    async fn call_and_tell(
        &self,
        step: &str,
        op: Op,
        later: &[LaterCall],
    ) -> Result<(CallResult, bool), StopCause> {
        let name = self.name_of(step);
        let (heard, replayed) = self.make(&name, op, later).await?;
        // What is replayed was counted when the run began, or is another task's.
        if let (CallResult::Done(outcome), false) = (&heard, replayed) {
            self.run.charge(TaskUsage { spent: outcome.spent, calls: 1, questions: 0 });
        }
        let (word, text) = describe_end(&heard);
        self.run.events.send(Event::Verdict { step: name, word, text, replayed });
        Ok((heard, replayed))
    }

    /// Output of a model or tool is streamed as events while it comes.
    async fn reply_to(&self, name: &str, who: &Principal, op: Op) -> Result<Reply, Fault> {
        let Run { kernel, events, .. } = &*self.run;
        if matches!(op, Op::Infer(_)) {
            tokens::asked(kernel, who, op, (events, name)).await
        } else if matches!(op, Op::RunTool(_)) {
            tokens::called(kernel, who, op, (events, name)).await
        } else {
            kernel.syscall(who, op).await
        }
    }

    async fn make(&self, name: &str, op: Op, later: &[LaterCall]) -> Result<(CallResult, bool), StopCause> {
        if let Some(recorded) = &self.run.recorded
            && !recorded.contains(name)
        {
            return Err(StopCause::NotRecorded(name.to_owned()));
        }
        // Who wants it to stop wants no further effect. What is left of the turn is made when it goes on.
        if matches!(op, Op::RunTool(_))
            && let Some(stop @ (StopCause::Paused | StopCause::Cancelled)) = self.is_to_stop()
        {
            return Err(stop);
        }
        let who = self.at_step(name)?;
        for _ in 0..ASKED_TIMES_MAX {
            let ticket = match self.reply_to(name, &who, op.clone()).await {
                Ok(Reply::Done(outcome)) => {
                    let replayed = self.is_older(&outcome.intent.lane.to_string(), outcome.intent.seq);
                    return Ok((CallResult::Done(outcome), replayed));
                }
                Ok(Reply::Denied(denial)) => {
                    let replayed = self.is_older(&denial.intent.lane.to_string(), denial.intent.seq);
                    if !replayed {
                        self.carry_on(&denial.reason).await?;
                    }
                    self.run.leave_undone(name, &op, &denial.reason);
                    return Ok((CallResult::Denied(denial), replayed));
                }
                Err(fault) => {
                    return executor_message(fault).map(|message| (CallResult::Broke(message), false));
                }
                Ok(Reply::Pending(ticket)) => ticket,
            };
            self.tell_asked(&ticket.question);
            let last = self.ask_ahead(&ticket, later).await;
            let asking = match &self.run.asker {
                Some(asker) => tokio::select! {
                    asking = asker.ask(&self.run.kernel, &ticket) => asking,
                    stop = self.stop_requested() => return Err(stop),
                },
                None => Asking::Later,
            };
            if asking == Asking::Later {
                let calls = self.run.kernel.count_up_to(&last).await.map_err(Fault::from)?;
                return Err(StopCause::Waiting { ticket: ticket.id, last, calls, summary: ticket.summary });
            }
        }
        Err(StopCause::Passing(format!("step `{name}` needed an approval {ASKED_TIMES_MAX} times")))
    }

    fn at_step(&self, name: &str) -> Result<Principal, StopCause> {
        let owner = self.run.ancestors.iter().find(|one| is_before(name, &one.at));
        let task = owner.map_or(&self.run.task, |one| &one.task);
        self.who.at_step(task, name).ok_or_else(|| StopCause::Step(name.to_owned()))
    }

    /// Puts the questions about calls that come later in the turn, so that a reviewer gets one question for all that have one cause. Calls
    /// beside this one get a moment to put theirs. Gives back the last question of the same cause.
    async fn ask_ahead(&self, ticket: &Ticket, later: &[LaterCall]) -> TicketId {
        let mut last = (ticket.question.number, ticket.id.clone());
        for LaterCall { step, op } in later {
            let Ok(who) = self.at_step(&self.name_of(step)) else { continue };
            // What goes wrong here goes wrong again when the call is made, and is reported then.
            let asked = self.run.kernel.ask_ahead(&who, op.clone()).await;
            let Ok(Some(AskedAhead { question, is_new })) = asked else { continue };
            if is_new {
                self.tell_asked(&question);
            }
            // One that was open before may have been put before this one: an answer to it would leave this one open.
            if question.cause == ticket.question.cause && question.number > last.0 {
                last = (question.number, question.id);
            }
        }
        if self.run.asker.is_some() {
            tokio::time::sleep(BESIDE).await;
        }
        last.1
    }

    /// Tells of a question once a run, however often its call is made. One that an earlier run has put was counted when this run began.
    fn tell_asked(&self, question: &OpenQuestion) {
        let OpenQuestion { id, summary, reason, .. } = question;
        if !self.run.told.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone()) {
            return;
        }
        self.run.events.send(Event::Asked {
            ticket: id.to_string(),
            asked_with: question.asked_with.as_ref().map(ToString::to_string),
            summary: summary.clone(),
            reason: reason.clone(),
            quote: question.quote.clone(),
        });
        if question.asked_with.is_none() && question.intent.is_none() {
            self.run.charge(TaskUsage { questions: 1, ..TaskUsage::default() });
        }
    }

    /// The kernel suspends an agent whose budget is used up. A task stops in order instead: calls beside this one end, the agent
    /// exits, and the task waits to be resumed.
    async fn carry_on(&self, reason: &Reason) -> Result<(), StopCause> {
        if reason.code == USED_UP
            && let Some(agent) = self.who.agent_id()
        {
            self.run.kernel.raise(&self.run.owner, agent, Signal::Cont, "its task stops in order").await?;
        }
        Ok(())
    }

    fn is_older(&self, lane: &str, seq: u64) -> bool {
        let (own, since) = &self.run.began;
        own != lane || seq < *since
    }

    /// Waits before another try: longer each time.
    async fn pause(&self, tries: u32) -> Result<(), StopCause> {
        let pause_ms = backoff_ms(self.run.backoff_ms, tries);
        tokio::select! {
            () = tokio::time::sleep(std::time::Duration::from_millis(pause_ms)) => Ok(()),
            stop = self.stop_requested() => Err(stop),
        }
    }

    async fn stop_requested(&self) -> StopCause {
        wished(self.run.wish.clone()).await
    }
}

/// Waits until it is to stop.
pub(crate) async fn wished(mut wish: watch::Receiver<StopRequest>) -> StopCause {
    if let Ok(wish) = wish.wait_for(|wish| *wish != StopRequest::GoOn).await
        && let Some(stop) = wish.stop()
    {
        return stop;
    }
    // The sender is gone, so no answer will come.
    std::future::pending().await
}

/// Doubles with each try, up to a minute.
pub(crate) fn backoff_ms(first_ms: u64, tries: u32) -> u64 {
    const BACKOFF_MS_MAX: u64 = 60_000;
    first_ms.saturating_mul(1_u64 << tries.saturating_sub(1).min(16)).min(BACKOFF_MS_MAX)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// Used up: trying again at once is of no use.
    Used,
    /// Running calls hold it: they will settle.
    Held,
    /// The far side failed.
    Failed,
    /// The provider failed, and the hub has retried as often as useful. A later run asks again.
    Settled,
}

/// What an executor's receipt says about another try of a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Nothing.
    Unsaid,
    /// It would fail again.
    Never,
    /// It was tried often enough for now; not before this time, if the far side named one.
    Later(Option<i64>),
}

impl Retry {
    pub(crate) fn from_outcome(outcome: &Outcome) -> Self {
        match outcome.obtained.as_ref().and_then(|obtained| obtained.get("retry")) {
            None => Self::Unsaid,
            Some(retry) if retry == "never" => Self::Never,
            Some(retry) => Self::Later(retry.get("at_ms").and_then(serde_json::Value::as_i64)),
        }
    }
}

fn passing(heard: &CallResult, patience: Patience) -> Option<Passing> {
    match heard {
        CallResult::Denied(Denial { reason, .. }) if reason.code == HELD => Some(Passing::Held),
        CallResult::Denied(Denial { reason, .. }) => is_not_now(reason).then_some(Passing::Used),
        CallResult::Done(outcome) => match &outcome.status {
            Status::Failed(_) if Retry::from_outcome(outcome) != Retry::Unsaid => {
                patience.with_failures().map(|_| Passing::Settled)
            }
            Status::Failed(_) | Status::TimedOut => patience.with_failures(),
            Status::Ok | Status::Cancelled | Status::Faulted(_) => None,
        },
        CallResult::Broke(_) => patience.with_failures(),
    }
}

/// A denial that time or money can change.
pub(crate) fn is_not_now(reason: &Reason) -> bool {
    NOT_NOW.iter().any(|prefix| reason.code.starts_with(prefix))
}

/// The executor's message if it broke, for the agent. Any other fault stops the task.
fn executor_message(fault: Fault) -> Result<String, StopCause> {
    match fault {
        Fault::Executor { message, .. } => Ok(message),
        other @ (Fault::TooDeep
        | Fault::NotRunning(_)
        | Fault::Ledger(_)
        | Fault::Unrecorded { .. }
        | Fault::Record(_)
        | Fault::Read(_)
        | Fault::Body(_)
        | Fault::State(_)
        | Fault::Diverged { .. }
        | Fault::Erased(_)
        | Fault::TornDown) => Err(StopCause::Fault(other)),
    }
}

fn describe_end(heard: &CallResult) -> (CallEnd, String) {
    match heard {
        CallResult::Done(outcome) => match &outcome.status {
            Status::Ok => (CallEnd::Done, shorten(&outcome.output.text())),
            Status::Failed(ToolFailure { code, message }) => (CallEnd::Failed, format!("{code}: {message}")),
            Status::TimedOut => (CallEnd::TimedOut, String::new()),
            Status::Cancelled => (CallEnd::Cancelled, String::new()),
            Status::Faulted(message) => (CallEnd::Broke, message.clone()),
        },
        CallResult::Denied(denial) => (CallEnd::Denied, denial.reason.to_string()),
        CallResult::Broke(message) => (CallEnd::Broke, message.clone()),
    }
}

/// Whether one step comes before another in the program: name by name, numbers by their value. A step isn't before what it lies
/// below. What a run writes about itself comes before nothing: it is never shared.
pub(crate) fn is_before(step: &str, at: &str) -> bool {
    if step.starts_with("run/") {
        return false;
    }
    let mut parts = at.split('/');
    for own in step.split('/') {
        let Some(other) = parts.next() else { return false };
        let order = match (own.parse::<u64>(), other.parse::<u64>()) {
            (Ok(own), Ok(other)) => own.cmp(&other),
            (Ok(_), Err(_)) => std::cmp::Ordering::Less,
            (Err(_), Ok(_)) => std::cmp::Ordering::Greater,
            (Err(_), Err(_)) => own.cmp(other),
        };
        match order {
            std::cmp::Ordering::Less => return true,
            std::cmp::Ordering::Greater => return false,
            std::cmp::Ordering::Equal => {}
        }
    }
    parts.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_the_order_of_the_program() {
        let order = [
            "0/plan",
            "0/review",
            "1/think",
            "1/think~1",
            "1/tool/0",
            "1/tool/2",
            "1/tool/10",
            "2/think",
            "10/think",
        ];
        for (at, one) in order.iter().enumerate() {
            for (other_at, other) in order.iter().enumerate() {
                assert_eq!(is_before(one, other), at < other_at, "{one} {other}");
            }
        }
        assert!(is_before("2/tool/1", "3") && !is_before("3/think", "3") && !is_before("run/0/record", "9"));
    }

    #[test]
    fn pauses_grow_and_end() {
        let pauses: Vec<u64> = (1..=9).map(|tries| backoff_ms(500, tries)).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(backoff_ms(u64::MAX, u32::MAX), 60_000);
    }
}
