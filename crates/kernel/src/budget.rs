//! Where the path meets budgets: what a call may cost, and what time it is. What budgets are is in `regent-budget`.

mod estimate;
#[cfg(test)]
mod tests;

use regent_budget::Now;

use crate::kernel::Core;
pub(crate) use estimate::estimate;
pub use regent_budget::{Budget, BudgetScope, Each, Spent, Standing};
pub(crate) use regent_budget::{Budgets, EXHAUSTED, Reservation, Settled};

impl Core {
    /// What time it is, by both clocks.
    pub(crate) fn now(&self) -> Now {
        Now { at_ms: self.clock.now_ms(), elapsed: self.clock.elapsed() }
    }
}
