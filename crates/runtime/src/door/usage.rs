//! What a task has used, and what that leaves of a budget.

use regent_kernel::{Budget, Spent};

/// What a task has used, by kind of budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct TaskUsage {
    /// As receipts state it.
    pub spent: Spent,
    /// Calls that were made.
    pub calls: u64,
    /// Questions that were put to people.
    pub questions: u64,
}

impl TaskUsage {
    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            spent: sum(self.spent, other.spent),
            calls: self.calls.saturating_add(other.calls),
            questions: self.questions.saturating_add(other.questions),
        }
    }

    /// What is left of a budget after this.
    pub fn left_of(self, budget: Budget) -> Budget {
        let less = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        let Spent { bytes_out, money_microusd, tokens, wall_ms } = self.spent;
        Budget {
            approvals: less(budget.approvals, self.questions),
            bytes_out: less(budget.bytes_out, bytes_out),
            calls: less(budget.calls, self.calls),
            money_microusd: less(budget.money_microusd, money_microusd),
            tokens: less(budget.tokens, tokens),
            wall_ms: less(budget.wall_ms, wall_ms),
        }
    }
}

/// Both together.
fn sum(one: Spent, other: Spent) -> Spent {
    Spent {
        bytes_out: one.bytes_out.saturating_add(other.bytes_out),
        money_microusd: one.money_microusd.saturating_add(other.money_microusd),
        tokens: one.tokens.saturating_add(other.tokens),
        wall_ms: one.wall_ms.saturating_add(other.wall_ms),
    }
}
