//! The calls that run now, so that a signal can reach them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::AgentId;
use crate::cancel::{Cancel, CancelReason};
use crate::principal::Principal;

/// How long a shutdown waits for cancelled calls. Longer than an executor's own grace.
const STOP_MS_MAX: u64 = 5_000;

/// All running calls. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    /// Wakes a shutdown when the last call has left.
    empty: Notify,
}

#[derive(Debug, Default)]
struct Table {
    entered: u64,
    running: BTreeMap<u64, Entered>,
    /// The same by agent, to avoid a walk through the calls of others.
    by_agent: HashMap<AgentId, AgentCalls>,
    /// The kernel goes down: whatever comes now is stopped at once.
    stopping: bool,
}

#[derive(Debug)]
struct Entered {
    agent: Option<AgentId>,
    who: Principal,
    /// The tool, if the call runs a program.
    program: Option<String>,
    intent: u64,
    cancel: Cancel,
    /// A shutdown waits for it instead of cancelling it.
    finishes: bool,
}

/// A program that runs as a call of an agent or an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningProgram {
    /// The position of the call's intent in the ledger.
    pub call: u64,
    /// The name of the caller.
    pub caller: String,
    /// The tool that started it.
    pub tool: String,
}

/// The running calls of one agent, and those who wait until there are none.
#[derive(Debug, Default)]
struct AgentCalls {
    running: BTreeSet<u64>,
    idle: Arc<Notify>,
}

/// A running call; it leaves the table when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningCall {
    calls: Calls,
    number: u64,
    cancel: Cancel,
}

impl RunningCall {
    pub(crate) fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let mut table = self.calls.table();
        let agent = table.running.remove(&self.number).and_then(|call| call.agent);
        if let Some(agent) = agent
            && let Some(of_agent) = table.by_agent.get_mut(&agent)
        {
            of_agent.running.remove(&self.number);
            if of_agent.running.is_empty() {
                of_agent.idle.notify_waiters();
                table.by_agent.remove(&agent);
            }
        }
        if table.stopping && table.running.is_empty() {
            self.calls.0.empty.notify_waiters();
        }
    }
}

impl Calls {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, who: &Principal, intent: u64, program: Option<String>) -> RunningCall {
        let cancel = Cancel::default();
        let agent = who.agent_id().cloned();
        let mut table = self.table();
        table.entered = table.entered.saturating_add(1);
        let number = table.entered;
        if let Some(agent) = &agent {
            table.by_agent.entry(agent.clone()).or_default().running.insert(number);
        }
        let entered =
            Entered { agent, who: who.clone(), program, intent, cancel: cancel.clone(), finishes: false };
        table.running.insert(number, entered);
        // Ending an agent marks it first and looks for its calls after. So a call that was judged before the end is
        // either found here or sees the mark.
        if table.stopping || who.life().is_some_and(|life| life.stage().is_over()) {
            cancel.pull(CancelReason::Signal);
        }
        drop(table);
        RunningCall { calls: self.clone(), number, cancel }
    }

    /// Cancels an agent's calls, except the one with this intent. Returns how many it cancelled.
    pub(crate) fn interrupt(&self, agent: &AgentId, except: Option<u64>) -> usize {
        let table = self.table();
        let own = table.by_agent.get(agent).into_iter().flat_map(|of_agent| &of_agent.running);
        let running = own.filter_map(|number| table.running.get(number));
        running
            .filter(|call| Some(call.intent) != except)
            .inspect(|call| call.cancel.pull(CancelReason::Signal))
            .count()
    }

    /// The programs that this caller may end: its own, and those of the agents below it; for an admin, all.
    pub(crate) fn programs(&self, of: &Principal) -> Vec<RunningProgram> {
        let table = self.table();
        let own = table.running.values().filter(|call| call.who.runs_for(of));
        let program = |call: &Entered| {
            let caller = call.who.display_name().to_owned();
            Some(RunningProgram { call: call.intent, caller, tool: call.program.clone()? })
        };
        own.filter_map(program).collect()
    }

    /// Ends one of these, and says whether it is one.
    pub(crate) fn end_program(&self, of: &Principal, intent: u64) -> bool {
        let table = self.table();
        let is_meant =
            |call: &&Entered| call.intent == intent && call.program.is_some() && call.who.runs_for(of);
        table.running.values().find(is_meant).inspect(|call| call.cancel.pull(CancelReason::Signal)).is_some()
    }

    /// From now on a shutdown waits for this call instead of cancelling it. False if it was told to stop already.
    pub(crate) fn let_finish(&self, intent: u64) -> bool {
        let mut table = self.table();
        let call =
            table.running.values_mut().find(|call| call.intent == intent && call.cancel.why().is_none());
        call.map(|call| call.finishes = true).is_some()
    }

    pub(crate) fn running(&self, agent: &AgentId) -> usize {
        self.table().by_agent.get(agent).map_or(0, |of_agent| of_agent.running.len())
    }

    /// Waits until the agent has no running call.
    pub(crate) async fn idle(&self, agent: &AgentId) {
        loop {
            let Some(idle) = self.table().by_agent.get(agent).map(|of_agent| Arc::clone(&of_agent.idle))
            else {
                return;
            };
            let idle = idle.notified();
            // Registered before the look, so a call that leaves in between isn't missed.
            if self.running(agent) == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Tells all of them to stop and waits until they have, but not for ever.
    pub(crate) async fn stop_all(&self) {
        {
            let mut table = self.table();
            table.stopping = true;
            let stopped = table.running.values().filter(|call| !call.finishes);
            stopped.for_each(|call| call.cancel.pull(CancelReason::Signal));
        }
        let gone = async {
            loop {
                let empty = self.0.empty.notified();
                if self.table().running.is_empty() {
                    return;
                }
                empty.await;
            }
        };
        // What is still there after this is left to the end of the process; its intent stays without an outcome, and recovery
        // finds it in doubt.
        let _all_gone = tokio::time::timeout(Duration::from_millis(STOP_MS_MAX), gone).await.is_ok();
    }
}
