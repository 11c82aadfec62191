//! What kernel processes share: budgets, approvals, rates. Every change is one atomic step.

use regent_policy::{Charge, Rates};

/// Where shared state lives.
pub trait State: Rates + Send + Sync + std::fmt::Debug {
    /// Counts one call against a rate, unless that would exceed it. Check and count are one step.
    fn take_rate(&self, charge: &Charge, who: &str, now_ms: i64) -> Result<bool, StateError>;
}

/// Shared state can't be read or changed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StateError(pub String);
