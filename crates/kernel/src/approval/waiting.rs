//! Who waits for an answer. An answer of this process wakes those who wait for its ticket. For answers of other processes one of the waiters
//! watches the state, reads which tickets were answered, and wakes those. So an answer wakes one waiter, without polling.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::questions::{AnswerLog, Questions};
use crate::outlast::outlasting;
use regent_store::{State, StateError};
use regent_wire::TicketId;
use tokio::sync::{Notify, watch};

/// A busy state changes often, and an answer may be seen this much later.
const SETTLE_MS: u64 = 25;

/// Waiters, by ticket.
#[derive(Debug)]
pub(super) struct Waiting {
    by_ticket: Mutex<HashMap<TicketId, (Arc<Notify>, usize)>>,
    /// Held by the waiter that watches for all of them.
    watching: tokio::sync::Mutex<Watching>,
}

#[derive(Debug)]
struct Watching {
    changes: watch::Receiver<u64>,
    seen: Option<AnswerLog>,
}

/// One waiter; it leaves when this is dropped.
pub(super) struct WaiterSeat<'w> {
    waiting: &'w Waiting,
    ticket: TicketId,
    woken: Arc<Notify>,
}

impl Waiting {
    pub(super) fn new(state: &dyn State) -> Self {
        let watching = Watching { changes: state.changes(), seen: None };
        Self { by_ticket: Mutex::default(), watching: tokio::sync::Mutex::new(watching) }
    }

    fn by_ticket(&self) -> MutexGuard<'_, HashMap<TicketId, (Arc<Notify>, usize)>> {
        self.by_ticket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter(&self, ticket: &TicketId) -> WaiterSeat<'_> {
        let mut by_ticket = self.by_ticket();
        let (woken, count) = by_ticket.entry(ticket.clone()).or_default();
        *count = count.saturating_add(1);
        WaiterSeat { waiting: self, ticket: ticket.clone(), woken: Arc::clone(woken) }
    }

    /// Wakes those who wait for these tickets.
    pub(super) fn wake(&self, tickets: &[TicketId]) {
        let by_ticket = self.by_ticket();
        for (woken, _) in tickets.iter().filter_map(|ticket| by_ticket.get(ticket)) {
            woken.notify_waiters();
        }
    }

    fn wake_all(&self) {
        self.by_ticket().values().for_each(|(woken, _)| woken.notify_waiters());
    }

    /// Watches the state until it can't, and wakes those whose tickets were answered. All but one wait here for their turn.
    async fn watch(&self, questions: &Questions) -> Result<(), StateError> {
        let mut watching = self.watching.lock().await;
        loop {
            watching.changes.borrow_and_update();
            // A person's answer is worth waiting for, also while a server starts again.
            let now = outlasting(u32::MAX, || questions.answers()).await?;
            match watching.seen.as_ref().map(|seen| now.since(seen)) {
                Some(Some(tickets)) => self.wake(tickets),
                // The first look, or more answers than are remembered.
                Some(None) | None => self.wake_all(),
            }
            watching.seen = Some(now);
            if watching.changes.changed().await.is_err() {
                return Err(StateError::Unusable("the shared state is closed".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(SETTLE_MS)).await;
        }
    }
}

impl WaiterSeat<'_> {
    /// Registers for the next answer; to be made before the question is looked at.
    pub(super) fn listen(&self) -> tokio::sync::futures::Notified<'_> {
        self.woken.notified()
    }

    /// Waits for an answer, or until `most_ms` have passed.
    pub(super) async fn woken(
        &self,
        listening: std::pin::Pin<&mut tokio::sync::futures::Notified<'_>>,
        questions: &Questions,
        most_ms: u64,
    ) -> Result<(), StateError> {
        tokio::select! {
            biased;
            () = listening => Ok(()),
            failed = self.waiting.watch(questions) => failed,
            () = tokio::time::sleep(Duration::from_millis(most_ms)) => Ok(()),
        }
    }
}

impl Drop for WaiterSeat<'_> {
    fn drop(&mut self) {
        let mut by_ticket = self.waiting.by_ticket();
        if let Some((_, count)) = by_ticket.get_mut(&self.ticket) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                by_ticket.remove(&self.ticket);
            }
        }
    }
}
