//! Shadow mode: a candidate is asked beside the policy in force, and what it would have said otherwise is counted. It decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::policy::Policy;
use crate::verdict::Verdict;

/// Counts decisions; whoever runs policies keeps it.
#[derive(Debug, Default)]
pub struct Tally {
    judged: AtomicU64,
    newly_allowed: AtomicU64,
    newly_asked: AtomicU64,
    newly_denied: AtomicU64,
}

/// What has been counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tallied {
    /// Decisions that were put to both.
    pub judged: u64,
    /// What the candidate would have allowed, and the policy in force didn't.
    pub newly_allowed: u64,
    /// What it would have asked about.
    pub newly_asked: u64,
    /// What it would have denied.
    pub newly_denied: u64,
}

impl Tally {
    /// What has been counted so far.
    pub fn read(&self) -> Tallied {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Tallied {
            judged: count(&self.judged),
            newly_allowed: count(&self.newly_allowed),
            newly_asked: count(&self.newly_asked),
            newly_denied: count(&self.newly_denied),
        }
    }
}

impl Tallied {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            judged: self.judged.saturating_add(other.judged),
            newly_allowed: self.newly_allowed.saturating_add(other.newly_allowed),
            newly_asked: self.newly_asked.saturating_add(other.newly_asked),
            newly_denied: self.newly_denied.saturating_add(other.newly_denied),
        }
    }
}

/// A candidate, and where it is counted.
#[derive(Debug, Clone)]
pub(crate) struct Shadow {
    candidate: Arc<Policy>,
    tally: Arc<Tally>,
}

impl Shadow {
    pub(crate) fn watch(&self, facts: &Facts<'_>, said: &Verdict) {
        let other = self.candidate.decide(facts);
        let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        add(&self.tally.judged);
        if other.word() != said.word() {
            add(match other {
                Verdict::Allow(_) => &self.tally.newly_allowed,
                Verdict::Ask(_) => &self.tally.newly_asked,
                Verdict::Deny(_) => &self.tally.newly_denied,
            });
        }
    }
}

impl Policy {
    /// The same policy, with a candidate that is asked beside it. What the candidate says changes nothing but the tally.
    #[must_use]
    pub fn shadowed(self, candidate: Self, tally: Arc<Tally>) -> Self {
        self.with_shadow(Shadow { candidate: Arc::new(candidate), tally })
    }
}
