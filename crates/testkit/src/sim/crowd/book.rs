//! The simulation's own records of effects and promises, beside the kernel's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_kernel::{
    BoxFuture, ExecuteError, Executor, Fault, Op, Permit, Principal, RawOutput, Reply, Status, TicketId, tier,
};
use regent_ledger::{Entry, LaneId, Reader, Receipt};
use regent_store::{Change, Committed, MemoryState, Partition, Record, State, StateError, Versioned};
use regent_wire::body::EntryBody;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::AT_ONCE;
use super::schedule::pause;
use crate::sim::machine::Machine;

/// Shared by all callers of a simulation, over all its lives.
#[derive(Debug, Default)]
pub(super) struct Book(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    machine: Option<Arc<Machine>>,
    now: u64,
    next_id: u64,
    /// When each call began, and its tool.
    begun: BTreeMap<u64, (u64, String)>,
    marks: Vec<(u64, String)>,
    acks: BTreeSet<u64>,
    /// Unwritten outcomes of this life, and since when they are owed.
    owed: Vec<(Receipt, u64)>,
    running: usize,
    calls_left: u64,
    questions: VecDeque<(u64, TicketId)>,
    /// Calls for which an approval was sent, and those whose approval is certain.
    answered: Vec<u64>,
    approved: BTreeSet<u64>,
    /// The asking agents of this life: an approval applies to that agent only.
    askers: BTreeMap<u64, Principal>,
    callers_left: usize,
    breaches: Vec<String>,
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_life(&self, machine: &Arc<Machine>) {
        let mut pages = self.pages();
        pages.machine = Some(Arc::clone(machine));
        // The next kernel settles the debts of the previous one.
        pages.owed.clear();
        pages.questions.clear();
        pages.approved.clear();
        pages.askers.clear();
        (pages.running, pages.callers_left) = (0, 0);
    }

    /// The first breach.
    pub(super) fn held(&self) -> Result<(), String> {
        self.pages().breaches.first().map_or(Ok(()), |breach| Err(breach.clone()))
    }

    pub(super) fn fresh_id(&self) -> u64 {
        let mut pages = self.pages();
        pages.next_id += 1;
        pages.next_id
    }

    pub(super) fn limit_calls(&self, calls: u64) {
        self.pages().calls_left = calls;
    }

    pub(super) fn begins(&self, id: u64, tool: &str) {
        let mut pages = self.pages();
        pages.now += 1;
        let now = pages.now;
        pages.begun.insert(id, (now, tool.to_owned()));
    }

    pub(super) fn ended(&self, id: u64, reply: &Result<Reply, Fault>) {
        let mut pages = self.pages();
        // The reply reaches the caller only if the process is still alive.
        if pages.machine.as_ref().is_none_or(|machine| machine.is_dead()) {
            return;
        }
        pages.now += 1;
        let now = pages.now;
        let has_mark = pages.marks.iter().any(|(marked, _)| *marked == id);
        match reply {
            Ok(Reply::Done(outcome)) if outcome.status == Status::Ok => {
                pages.acks.insert(id);
            }
            Err(Fault::Unrecorded { intent, .. }) => pages.owed.push((*intent, now)),
            Err(fault) if has_mark => {
                pages.breaches.push(format!("{id} happened, and was reported as not done: {fault}"));
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Records the effect of a call.
    fn mark(&self, id: u64, tool: &str, machine: &Machine) {
        let mut pages = self.pages();
        let began = pages.begun.get(&id).map_or(0, |(began, _)| *began);
        let owed = pages.owed.iter().filter(|(_, since)| *since < began).map(|(intent, _)| *intent);
        let late: Vec<Receipt> =
            owed.filter(|intent| !has_outcome(machine, intent.lane, intent.seq)).collect();
        for intent in late {
            let breach = format!("{id} was admitted while the outcome of call {} was owed", intent.seq);
            pages.breaches.push(breach);
        }
        pages.marks.push((id, tool.to_owned()));
        match pages.calls_left.checked_sub(1) {
            Some(left) => pages.calls_left = left,
            None => pages.breaches.push(format!("{id} exceeds the call budget")),
        }
        if tool == "ask" {
            let said = pages.answered.iter().filter(|answered| **answered == id).count();
            let used = pages.marks.iter().filter(|(marked, _)| *marked == id).count();
            if used > said {
                pages.breaches.push(format!("{id} ran {used} times with {said} approvals"));
            }
        }
    }

    /// Records a running call until the returned guard is dropped.
    fn enters(&self, machine: &Machine) -> OpenCall<'_> {
        let mut pages = self.pages();
        pages.running += 1;
        // Skips a dead process, whose memory means nothing and whose effects don't happen. One call may run beside those with a full time
        // limit, on the rest of the budget.
        if pages.running > AT_ONCE + 1 && pages.calls_left < u64::MAX / 2 && !machine.is_dead() {
            let running = pages.running;
            pages
                .breaches
                .push(format!("{running} calls ran at once, and the budget has room for {}", AT_ONCE + 1));
        }
        OpenCall(self)
    }

    /// Records a pending question. A question that was already decided before its approval arrived is skipped.
    pub(super) fn asks(&self, id: u64, asker: &Principal, ticket: TicketId) {
        let mut pages = self.pages();
        pages.askers.insert(id, asker.clone());
        if !pages.approved.contains(&id) && !pages.questions.iter().any(|(_, asked)| *asked == ticket) {
            pages.questions.push_back((id, ticket));
        }
    }

    /// Takes the next question; its answer may take effect from now on.
    pub(super) fn next_question(&self) -> Option<(u64, TicketId)> {
        let mut pages = self.pages();
        let next = pages.questions.pop_front()?;
        pages.answered.push(next.0);
        Some(next)
    }

    /// Puts back a question that could not be answered.
    pub(super) fn put_back(&self, id: u64, ticket: TicketId) {
        self.pages().questions.push_back((id, ticket));
    }

    pub(super) fn approved(&self, id: u64) {
        self.pages().approved.insert(id);
    }

    pub(super) fn unused_approvals(&self) -> Vec<(u64, Principal)> {
        let pages = self.pages();
        let used: BTreeSet<u64> = pages.marks.iter().map(|(id, _)| *id).collect();
        let unused = pages.approved.difference(&used);
        unused.filter_map(|id| Some((*id, pages.askers.get(id)?.clone()))).collect()
    }

    /// An upper bound of all ids.
    pub(super) fn ids(&self) -> u64 {
        self.pages().next_id.saturating_add(1)
    }

    pub(super) fn leaves(&self) {
        self.pages().callers_left += 1;
    }

    pub(super) fn left(&self) -> usize {
        self.pages().callers_left
    }

    pub(super) fn effects_of(&self, tool: &str) -> usize {
        self.pages().marks.iter().filter(|(_, of)| of == tool).count()
    }

    pub(super) fn marks(&self) -> Vec<u64> {
        self.pages().marks.iter().map(|(id, _)| *id).collect()
    }

    pub(super) fn acks(&self) -> BTreeSet<u64> {
        self.pages().acks.clone()
    }

    pub(super) fn acknowledged(&self) -> usize {
        self.pages().acks.len()
    }
}

/// Whether the disk has the outcome of a call. After a full disk it can be in another lane than the intent.
fn has_outcome(machine: &Machine, lane: LaneId, seq: u64) -> bool {
    let Ok(mut entries) = Reader::on(Arc::new(machine.disk())).entries() else { return false };
    let ends_it = |entry: &Entry| {
        EntryBody::read(entry).is_ok_and(|body| body.intent_place(entry) == Some((lane, seq)))
    };
    entries.any(|entry| entry.is_ok_and(|entry| ends_it(&entry)))
}

/// The tools: each leaves its mark, and yields to others before and after.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) machine: Arc<Machine>,
    pub(super) book: Arc<Book>,
}

impl Executor<tier::Host> for Worker {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let Op::RunTool(call) = permit.call().op() else {
                return Err(ExecuteError::NoDriver(permit.call().op().name().to_owned()));
            };
            let id = permit.args().get("id").and_then(Value::as_u64).unwrap_or(0);
            let running = self.book.enters(&self.machine);
            pause(1).await;
            if self.machine.moment() {
                self.book.mark(id, &call.tool, &self.machine);
            }
            self.machine.moment();
            pause(1).await;
            drop(running);
            Ok(RawOutput::json(&json!({"marked": id})))
        })
    }
}

/// A running call.
struct OpenCall<'b>(&'b Book);

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        let mut pages = self.0.pages();
        pages.running = pages.running.saturating_sub(1);
    }
}

/// The shared state as seen by this machine's process: a dead process changes nothing.
#[derive(Debug)]
pub(super) struct WiredState {
    pub(super) machine: Arc<Machine>,
    pub(super) inner: Arc<MemoryState>,
}

impl WiredState {
    /// Yields to others while this process waits for the state.
    async fn reached(&self) -> Result<(), StateError> {
        pause(1).await;
        if self.machine.moment() {
            Ok(())
        } else {
            Err(StateError::Unusable("this process is dead".to_owned()))
        }
    }
}

impl State for WiredState {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        Box::pin(async move {
            pause(1).await;
            self.inner.read(partition, keys).await
        })
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        Box::pin(async move {
            pause(1).await;
            self.inner.scan(partition, prefix).await
        })
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        Box::pin(async move {
            self.reached().await?;
            let committed = self.inner.commit(partition, change).await;
            pause(1).await;
            committed
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        Box::pin(async move {
            self.reached().await?;
            self.inner.sweep(now_ms, max).await
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }
}
