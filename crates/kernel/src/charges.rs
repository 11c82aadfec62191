//! What a call uses up before it runs: an approval, rates, the counts of rules that look back, a planned step.
//!
//! All of it is taken after the budget is reserved and before the intent is written, because an intent says that the call runs. A call
//! that is refused after all, or whose intent can't be written, never ran: what it took is given back when its charges are dropped.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use regent_policy::{Awaited, Charge};
use regent_provenance::Ruling;

use crate::approval::Approved;
use crate::kernel::Core;
use crate::principal::Principal;
use crate::rate;

/// What one call has taken so far. Dropped, it gives everything back, unless the call is [kept](Self::keep).
#[derive(Debug)]
pub(crate) struct Charges {
    core: Arc<Core>,
    who: Principal,
    approved: Vec<Approved>,
    rates: Vec<(Charge, i64)>,
    noted: Option<Awaited>,
    step: Option<Ruling>,
}

impl Charges {
    pub(crate) fn new(core: &Arc<Core>, who: &Principal) -> Self {
        let (approved, rates, noted, step) = (Vec::new(), Vec::new(), None, None);
        Self { core: Arc::clone(core), who: who.clone(), approved, rates, noted, step }
    }

    /// An approval was used for the call.
    pub(crate) fn approved(&mut self, approved: &Approved) {
        self.approved.push(approved.clone());
    }

    /// A rate was charged at this time.
    pub(crate) fn rate(&mut self, charge: Charge, at_ms: i64) {
        self.rates.push((charge, at_ms));
    }

    /// Rules that look back have noted the call.
    pub(crate) fn noted(&mut self, awaited: &Awaited) {
        self.noted = Some(awaited.clone());
    }

    /// The call has taken the planned step of this ruling.
    pub(crate) fn step(&mut self, ruling: &Ruling) {
        self.step = Some(ruling.clone());
    }

    /// The call runs, so it has used what it took.
    pub(crate) fn keep(&mut self) {
        self.rates.clear();
        self.approved.clear();
        (self.noted, self.step) = (None, None);
    }

    /// The call doesn't run. What the shared state can't take back stays used: that refuses a call too many, and never allows one.
    pub(crate) fn give_back(&mut self) {
        if let (Some(ruling), Some(life)) = (self.step.take(), self.who.life()) {
            life.work().give_back(&ruling);
        }
        if let Some(awaited) = self.noted.take() {
            let _stays_noted = self.core.take_back(&self.who, &awaited).is_err();
        }
        for (charge, at_ms) in self.rates.drain(..) {
            let _stays_charged =
                rate::give_back(&*self.core.state, &charge, self.who.rate_name(), at_ms).is_err();
        }
        for approved in self.approved.drain(..) {
            let _stays_used = self.core.approvals.questions.give_back(&approved).is_err();
        }
    }
}

impl Drop for Charges {
    fn drop(&mut self) {
        self.give_back();
    }
}
