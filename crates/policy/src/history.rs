//! The history of rules that look back: plain data that the kernel stores per session and permanently.
//!
//! Policy reads it with the facts and computes its changes; it never stores it. Entries beyond the limit are dropped to the safe side: a
//! rule that requires an earlier event doesn't find it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::verdict::RuleId;

/// Maximum number of rules with state.
const CELLS_MAX: usize = 20_000;
/// Maximum items that one rule remembers, such as files read.
const SEEN_MAX: usize = 4_096;
/// Maximum items of all rules together, so that a history fits into one record of the state.
const SEEN_ALL_MAX: usize = 8_192;

/// The state of history-dependent rules, by rule. Rules without state are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History(BTreeMap<RuleId, Cell>);

/// The state of one rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// Whether its triggering event has happened, and no event has ended it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub armed: bool,
    /// Number of counted calls.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: u32,
    /// Digests of the seen items.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub seen: BTreeSet<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(armed: &bool) -> bool {
    !armed
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl History {
    /// The empty history.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether no rule has state.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, rule: RuleId) -> Option<&Cell> {
        self.0.get(&rule)
    }

    pub(crate) fn arm(&mut self, rule: RuleId, armed: bool) {
        if armed {
            if let Some(cell) = self.cell(rule) {
                cell.armed = true;
            }
        } else if let Some(cell) = self.0.get_mut(&rule) {
            cell.armed = false;
        }
    }

    pub(crate) fn count(&mut self, rule: RuleId) {
        if let Some(cell) = self.cell(rule) {
            cell.count = cell.count.saturating_add(1);
        }
    }

    pub(crate) fn uncount(&mut self, rule: RuleId) {
        if let Some(cell) = self.0.get_mut(&rule) {
            cell.count = cell.count.saturating_sub(1);
        }
    }

    pub(crate) fn remember(&mut self, rule: RuleId, keys: &[u64]) {
        let all: usize = self.0.values().map(|cell| cell.seen.len()).sum();
        let mut left = SEEN_ALL_MAX.saturating_sub(all);
        let Some(cell) = self.cell(rule) else { return };
        for key in keys {
            if left > 0 && cell.seen.len() < SEEN_MAX && cell.seen.insert(*key) {
                left = left.saturating_sub(1);
            }
        }
    }

    fn cell(&mut self, rule: RuleId) -> Option<&mut Cell> {
        if self.0.len() >= CELLS_MAX && !self.0.contains_key(&rule) {
            return None;
        }
        Some(self.0.entry(rule).or_default())
    }
}

static NOTHING: History = History::new();

/// The histories that rules may read: the session's and the permanent one.
#[derive(Debug, Clone, Copy)]
pub struct Past<'a> {
    /// Since the session began.
    pub session: &'a History,
    /// Since the first use of the agent's name.
    pub lasting: &'a History,
}

impl Default for Past<'_> {
    fn default() -> Self {
        Self { session: &NOTHING, lasting: &NOTHING }
    }
}

impl<'a> Past<'a> {
    pub(crate) fn in_scope(self, scope: Scope) -> &'a History {
        match scope {
            Scope::Session => self.session,
            Scope::Lasting => self.lasting,
        }
    }
}

/// How far back a rule looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Session,
    Lasting,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_history_fits_into_one_record_of_the_state() {
        let mut history = History::new();
        for rule in 0..8 {
            let keys: Vec<u64> = (0..5_000).map(|key| u64::MAX - key).collect();
            history.remember(RuleId(u64::MAX - rule), &keys);
        }
        let bytes = serde_json::to_vec(&history).unwrap().len();
        assert!(bytes < 200 << 10, "{bytes} bytes");
        assert!(history.get(RuleId(u64::MAX)).is_some_and(|cell| cell.seen.len() == SEEN_MAX));
    }
}
