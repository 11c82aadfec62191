//! What was set aside for one call, until it is settled or given back.

use std::sync::Arc;
use std::time::Duration;

use regent_policy::Reason;
use regent_store::StateError;
use serde::Serialize;

use super::budgets::Book;
use super::{Amounts, BudgetScope, Spent};

/// The reservation of one call. Dropping it returns the amounts.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reservation {
    book: Arc<Book>,
    /// The levels it was set aside at.
    scopes: Vec<BudgetScope>,
    held: Amounts,
    since: Duration,
}

/// What a call is charged, for its outcome. Fields in the order of canonical JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Settled {
    /// Bytes sent to other machines.
    pub bytes_out: u64,
    /// Money, in millionths of a US dollar.
    pub money_microusd: u64,
    /// What it used more of than was set aside. It is charged in full.
    pub over: Vec<&'static str>,
    /// Tokens of models.
    pub tokens: u64,
    /// Time on the wall clock.
    pub wall_ms: u64,
}

impl Reservation {
    pub(crate) fn new(book: Arc<Book>, scopes: Vec<BudgetScope>, held: Amounts, since: Duration) -> Self {
        Self { book, scopes, held, since }
    }

    /// How long the call may take, if it is not to take longer than was set aside. No limit where nothing was.
    pub(crate) fn wall_ms_max(&self) -> u64 {
        if self.scopes.is_empty() { u64::MAX } else { self.held.wall_ms }
    }

    /// Sets aside more for a call that turns out to send more, up to `bytes_out` in all, at every level or at none.
    pub(crate) async fn widen(
        &mut self,
        bytes_out: u64,
        now_ms: i64,
    ) -> Result<Result<(), Reason>, StateError> {
        let more = bytes_out.saturating_sub(self.held.bytes_out);
        if more == 0 || self.scopes.is_empty() {
            return Ok(Ok(()));
        }
        let want = Amounts { bytes_out: more, ..Amounts::default() };
        Ok(match self.book.hold(&self.scopes, |_| want, self.held, now_ms).await? {
            Ok(_held) => {
                self.held.bytes_out = bytes_out;
                Ok(())
            }
            Err(reason) => Err(reason),
        })
    }

    /// Charges the amounts used, at every level, and returns the rest. `elapsed` is now, by the clock that the reservation
    /// was made with: a call takes no less time than passed.
    pub(crate) fn settle(mut self, spent: Spent, elapsed: Duration) -> Settled {
        let took_ms = u64::try_from(elapsed.saturating_sub(self.since).as_millis()).unwrap_or(u64::MAX);
        let Spent { bytes_out, money_microusd, tokens, wall_ms } = spent;
        let wall_ms = wall_ms.max(took_ms);
        let (calls, approvals) = (self.held.calls, self.held.approvals);
        let used = Amounts { approvals, bytes_out, calls, money_microusd, tokens, wall_ms };
        let scopes = std::mem::take(&mut self.scopes);
        let mut over = Vec::new();
        if !scopes.is_empty() {
            over = used.above(self.held);
            let mut levels = self.book.levels();
            for scope in &scopes {
                levels.settle(scope, self.held, used);
            }
        }
        Settled { bytes_out, money_microusd, over, tokens, wall_ms }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // After settling there is nothing left here to release.
        if !self.scopes.is_empty() {
            let mut levels = self.book.levels();
            for scope in &self.scopes {
                levels.settle(scope, self.held, Amounts::default());
            }
        }
    }
}
