//! The calls that run now, so that a signal can reach them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::AgentId;
use crate::cancel::{Cancel, Why};
use crate::principal::Principal;

/// How long a shutdown waits for calls that were told to stop. Longer than an executor's own grace.
const STOP_MS_MAX: u64 = 5_000;

/// All running calls. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Table {
    entered: u64,
    running: BTreeMap<u64, Entered>,
    /// The kernel goes down: whatever comes now is stopped at once.
    stopping: bool,
}

#[derive(Debug)]
struct Entered {
    agent: Option<AgentId>,
    intent: u64,
    cancel: Cancel,
}

/// A running call; it leaves the table when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    calls: Calls,
    number: u64,
    cancel: Cancel,
}

impl Running {
    pub(crate) fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.calls.table().running.remove(&self.number);
        self.calls.0.left.notify_waiters();
    }
}

impl Calls {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, who: &Principal, intent: u64) -> Running {
        let cancel = Cancel::default();
        let agent = who.agent_id().cloned();
        let mut table = self.table();
        table.entered = table.entered.saturating_add(1);
        let number = table.entered;
        table.running.insert(number, Entered { agent, intent, cancel: cancel.clone() });
        // Whoever ends an agent marks it first and looks for its calls after. So a call that was judged before the end is
        // either found here or sees the mark.
        if table.stopping || who.life().is_some_and(|life| life.stage().is_over()) {
            cancel.pull(Why::Signal);
        }
        drop(table);
        Running { calls: self.clone(), number, cancel }
    }

    /// Tells an agent's calls to stop, but for the one with this intent; says how many it told.
    pub(crate) fn interrupt(&self, agent: &AgentId, except: Option<u64>) -> usize {
        let table = self.table();
        let told = table
            .running
            .values()
            .filter(|call| call.agent.as_ref() == Some(agent) && Some(call.intent) != except);
        told.inspect(|call| call.cancel.pull(Why::Signal)).count()
    }

    pub(crate) fn running(&self, agent: &AgentId) -> usize {
        self.table().running.values().filter(|call| call.agent.as_ref() == Some(agent)).count()
    }

    /// Waits until the agent has no running call.
    pub(crate) async fn idle(&self, agent: &AgentId) {
        self.until(|table| !table.running.values().any(|call| call.agent.as_ref() == Some(agent))).await;
    }

    /// Tells all of them to stop and waits until they have, but not for ever.
    pub(crate) async fn stop_all(&self) {
        {
            let mut table = self.table();
            table.stopping = true;
            table.running.values().for_each(|call| call.cancel.pull(Why::Signal));
        }
        let gone = self.until(|table| table.running.is_empty());
        // What is still there after this is left to the end of the process; its intent stays without an outcome, and recovery
        // finds it in doubt.
        let _all_gone = tokio::time::timeout(Duration::from_millis(STOP_MS_MAX), gone).await.is_ok();
    }

    async fn until(&self, wanted: impl Fn(&Table) -> bool) {
        loop {
            // Registered before the look, so a call that leaves in between isn't missed.
            let left = self.0.left.notified();
            if wanted(&self.table()) {
                return;
            }
            left.await;
        }
    }
}
