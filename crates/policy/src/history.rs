//! What has happened so far, as far as rules look back: plain data that the kernel keeps, for a session and across sessions.
//!
//! Policy reads it with the facts and says how it changes; it never keeps it. What doesn't fit is forgotten to the safe side:
//! a rule that wants something to have happened before finds that it hasn't.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::verdict::RuleId;

/// Rules that keep something.
const CELLS_MAX: usize = 20_000;
/// Things that one rule remembers, such as files that were read.
const SEEN_MAX: usize = 4_096;

/// The state of history-dependent rules, by rule. A rule without state isn't in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct History(BTreeMap<RuleId, Cell>);

/// What one rule has noted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// What it waits for has happened, and what would end that hasn't.
    #[serde(default, skip_serializing_if = "is_false")]
    pub armed: bool,
    /// Calls that it has counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: u32,
    /// Digests of the things that it has seen.
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
    /// Nothing has happened yet.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether nothing has been noted.
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
        let Some(cell) = self.cell(rule) else { return };
        for key in keys {
            if cell.seen.len() < SEEN_MAX {
                cell.seen.insert(*key);
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

/// The history that rules may see: the session's, and the permanent one.
#[derive(Debug, Clone, Copy)]
pub struct Past<'a> {
    /// Since the session began.
    pub session: &'a History,
    /// Since the agent's name was first used here.
    pub lasting: &'a History,
}

impl Default for Past<'_> {
    fn default() -> Self {
        Self { session: &NOTHING, lasting: &NOTHING }
    }
}

impl<'a> Past<'a> {
    pub(crate) fn of(self, scope: Scope) -> &'a History {
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
