//! How much is left? Budgets are reserved before the effect, settled after, released if it doesn't come to it. Never check-then-spend.
//!
//! A call is charged to a path of levels: the user's day, the project, the session, then each agent from the oldest ancestor down to
//! the caller. All of them are reserved in one step or none is. The session and the agents live in this process; the user's day
//! and the project are shared between processes, each of which leases a part. A level begins to count when it is given a limit.
//! No clock in here: the kernel says what time it is.
#![forbid(unsafe_code)]

mod budgets;
mod lease;
mod levels;
mod reservation;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;

pub use budgets::Budgets;
pub use levels::EXHAUSTED;
pub use regent_wire::{Amounts, Budget, BudgetScope, Each, Spent};
pub use reservation::{Reservation, Settled};

/// What time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since 1970, for days and leases. It may jump.
    pub at_ms: i64,
    /// Since whatever beginning; never goes back. For how long a call takes.
    pub elapsed: Duration,
}

/// The most that a call may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Of each thing.
    pub most: Amounts,
    /// Nobody knows what it will cost: it gets all the money that is left, and no second such call runs beside it.
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
