//! How much is left? The kernel reserves a budget before the effect and settles it after; it never checks and then spends.
//!
//! A call is charged to a path of levels: the user's day, the project, the session, then each agent from the oldest ancestor down to
//! the caller. All of them are reserved in one step or none is. The session and the agents live in this process; the user's day
//! and the project are shared between processes, each of which leases a part. A level begins to count when it is given a limit.
//! No clock in here but [`Core::now`]: the callers say what time it is.

mod budgets;
mod estimate;
mod lease;
mod levels;
mod reservation;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;

use crate::kernel::Core;
pub(crate) use budgets::Budgets;
pub(crate) use estimate::estimate;
pub(crate) use levels::EXHAUSTED;
pub(crate) use regent_wire::Amounts;
pub use regent_wire::{Budget, BudgetScope, Each, Spent};
pub(crate) use reservation::{Reservation, Settled};

/// What time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// Milliseconds since 1970, for days and leases. It may jump.
    pub at_ms: i64,
    /// Since whatever beginning; never goes back. For how long a call takes.
    pub elapsed: Duration,
}

/// The most that a call may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Of each thing.
    pub most: Amounts,
    /// Its cost is unknown: it gets all the money that is left, and no second such call runs beside it.
    pub unpriced: bool,
}

/// How a budget stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// What it may use.
    pub limits: Budget,
    /// What was used.
    pub used: Each<u64>,
    /// What is set aside for calls that run, or for processes that run calls.
    pub held: Each<u64>,
}

impl Core {
    /// What time it is, by both clocks.
    pub(crate) fn now(&self) -> Now {
        Now { at_ms: self.clock.now_ms(), elapsed: self.clock.elapsed() }
    }
}
