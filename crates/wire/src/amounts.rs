//! The six things that budgets count, side by side.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something for each thing that a budget counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Each<T: Default> {
    /// People's attention: questions put to them.
    pub approvals: T,
    /// Bytes sent to other machines.
    pub bytes_out: T,
    /// System calls.
    pub calls: T,
    /// Money, in millionths of a US dollar.
    pub money_microusd: T,
    /// Tokens of models.
    pub tokens: T,
    /// Time on the wall clock.
    pub wall_ms: T,
}

/// What a scope may use. `None` is no limit.
pub type Budget = Each<Option<u64>>;

/// How much of each.
pub type Amounts = Each<u64>;

impl<T: Copy + Default> Each<T> {
    /// Combines two, thing by thing.
    pub fn zip<U: Copy + Default, V: Default>(
        self,
        other: Each<U>,
        mut combine: impl FnMut(T, U) -> V,
    ) -> Each<V> {
        Each {
            approvals: combine(self.approvals, other.approvals),
            bytes_out: combine(self.bytes_out, other.bytes_out),
            calls: combine(self.calls, other.calls),
            money_microusd: combine(self.money_microusd, other.money_microusd),
            tokens: combine(self.tokens, other.tokens),
            wall_ms: combine(self.wall_ms, other.wall_ms),
        }
    }

    /// The same of something else.
    pub fn map<U: Default>(self, mut change: impl FnMut(T) -> U) -> Each<U> {
        self.zip(self, |one, _| change(one))
    }

    /// Each with its name.
    pub fn named(self) -> [(&'static str, T); 6] {
        [
            ("approvals", self.approvals),
            ("bytes_out", self.bytes_out),
            ("calls", self.calls),
            ("money_microusd", self.money_microusd),
            ("tokens", self.tokens),
            ("wall_ms", self.wall_ms),
        ]
    }
}

impl Amounts {
    /// Sums never wrap: too much stays too much.
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// What is left of it after that much.
    pub fn minus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }

    /// The names of the things of which there is more here than there.
    pub fn above(self, most: Self) -> Vec<&'static str> {
        let pairs = self.zip(most, |have, most| (have, most)).named();
        pairs.into_iter().filter(|(_, (have, most))| have > most).map(|(name, _)| name).collect()
    }
}

impl Budget {
    /// What is left of it after this much.
    pub fn less(self, taken: Amounts) -> Self {
        self.zip(taken, |limit, taken| limit.map(|limit| limit.saturating_sub(taken)))
    }

    /// The tighter of both in everything.
    pub fn meet(self, other: Self) -> Self {
        self.zip(other, |one, other| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        })
    }

    /// The first thing of which more is wanted than is left.
    pub fn short_of(self, want: Amounts) -> Option<&'static str> {
        let pairs = self.zip(want, |left, want| left.is_some_and(|left| want > left)).named();
        pairs.into_iter().find(|(_, short)| *short).map(|(name, _)| name)
    }

    /// Whether nothing is limited.
    pub fn is_unlimited(self) -> bool {
        self == Self::default()
    }
}

/// What a call really used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
