//! What a call uses up before it runs: an approval, rates, the counts of rules that look back, a planned step.
//!
//! All of it is taken after the budget is reserved and before the intent is written, because an intent says that the call runs. A call
//! that is refused after all, or whose intent can't be written, never ran: it [gives back](Charges::give_back) what it took. A call that is
//! torn down can't wait for the state, so what it took is queued when its charges are dropped, and the next call or the shutdown gives it
//! back.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use regent_policy::{Awaited, Charge};
use regent_provenance::Ruling;

use crate::approval::Approved;
use crate::history::HistoryKeys;
use crate::kernel::Core;
use crate::principal::Principal;

/// What one call has taken so far. Dropped, it queues everything to be given back, unless the call is [kept](Self::keep).
#[derive(Debug)]
pub(crate) struct Charges {
    core: Arc<Core>,
    who: Principal,
    taken: Taken,
    step: Option<Ruling>,
}

/// What was taken from the shared state.
#[derive(Debug, Default)]
struct Taken {
    approved: Vec<Approved>,
    rates: Vec<(Charge, i64)>,
    noted: Option<(Awaited, HistoryKeys)>,
}

impl Taken {
    fn is_empty(&self) -> bool {
        self.approved.is_empty() && self.rates.is_empty() && self.noted.is_none()
    }
}

impl Charges {
    pub(crate) fn new(core: &Arc<Core>, who: &Principal) -> Self {
        Self { core: Arc::clone(core), who: who.clone(), taken: Taken::default(), step: None }
    }

    /// An approval was used for the call.
    pub(crate) fn approved(&mut self, approved: &Approved) {
        self.taken.approved.push(approved.clone());
    }

    /// A rate was charged at this time.
    pub(crate) fn rate(&mut self, charge: Charge, at_ms: i64) {
        self.taken.rates.push((charge, at_ms));
    }

    /// Rules that look back have noted the call.
    pub(crate) fn noted(&mut self, awaited: &Awaited, keys: HistoryKeys) {
        self.taken.noted = Some((awaited.clone(), keys));
    }

    /// The call has taken the planned step of this ruling.
    pub(crate) fn step(&mut self, ruling: &Ruling) {
        self.step = Some(ruling.clone());
    }

    /// The call runs, so it has used what it took.
    pub(crate) fn keep(&mut self) {
        (self.taken, self.step) = (Taken::default(), None);
    }

    /// The call doesn't run.
    pub(crate) async fn give_back(&mut self) {
        self.give_back_step();
        let taken = std::mem::take(&mut self.taken);
        self.core.give_back(&self.who, taken).await;
    }

    fn give_back_step(&mut self) {
        if let (Some(ruling), Some(life)) = (self.step.take(), self.who.life()) {
            life.work().give_back(&ruling);
        }
    }
}

impl Drop for Charges {
    fn drop(&mut self) {
        self.give_back_step();
        if !self.taken.is_empty() {
            self.core.gate.returns.push(self.who.clone(), std::mem::take(&mut self.taken));
        }
    }
}

/// What calls took that were torn down before they ran.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    queue: Mutex<Vec<(Principal, Taken)>>,
    /// Set where the queue needs a look, so that the common case costs one load.
    waiting: AtomicBool,
}

impl Returns {
    fn push(&self, who: Principal, taken: Taken) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push((who, taken));
        self.waiting.store(true, Ordering::Release);
    }

    fn take(&self) -> Vec<(Principal, Taken)> {
        if !self.waiting.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Core {
    /// Gives back what calls took that were torn down.
    pub(crate) async fn serve_returns(&self) {
        for (who, taken) in self.gate.returns.take() {
            self.give_back(&who, taken).await;
        }
    }

    /// What the shared state can't take back stays used: that refuses a call too many, and never allows one.
    async fn give_back(&self, who: &Principal, taken: Taken) {
        let Taken { approved, rates, noted } = taken;
        if let Some((awaited, keys)) = noted {
            let _stays_noted = self.take_back(&keys, &awaited).await.is_err();
        }
        for (charge, at_ms) in rates {
            let _stays_charged = self.gate.rates.give_back(&charge, who.rate_name(), at_ms).await.is_err();
        }
        for approved in approved {
            let _stays_used = self.gate.approvals.questions.give_back(&approved).await.is_err();
        }
    }
}
