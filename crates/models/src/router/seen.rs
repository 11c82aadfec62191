//! Results of earlier calls, by class of task and model: a small table that is learnt, bounded, and printable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Pairs of class and model that are remembered.
const PAIRS_MAX: usize = 1_024;
/// Outcomes that weigh; older ones fade, so that a model that got better is seen to be.
const OUTCOMES_MAX: u64 = 200;

/// The statistics so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModelStats(BTreeMap<String, BTreeMap<String, Tally>>);

/// The statistics of one model in one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Succeeded.
    pub good: u64,
    /// Came to nothing.
    pub bad: u64,
    /// About how long an answer takes; 0 if none has come.
    pub latency_ms: u64,
}

impl ModelStats {
    /// The statistics of a model in a class.
    pub fn tally(&self, class: &str, model: &str) -> Tally {
        self.0.get(class).and_then(|models| models.get(model)).copied().unwrap_or_default()
    }

    /// Whether there are any in a class.
    pub fn has_class(&self, class: &str) -> bool {
        self.0.contains_key(class)
    }

    /// One more outcome.
    pub fn learn(&mut self, class: &str, model: &str, was_good: bool) {
        self.change(class, model, |tally| {
            if tally.outcomes() >= OUTCOMES_MAX {
                (tally.good, tally.bad) = (tally.good / 2, tally.bad / 2);
            }
            *(if was_good { &mut tally.good } else { &mut tally.bad }) += 1;
        });
    }

    /// One more answer, and how long it took.
    pub fn took(&mut self, class: &str, model: &str, ms: u64) {
        self.change(class, model, |tally| {
            tally.latency_ms = match tally.latency_ms {
                0 => ms.max(1),
                before => before.saturating_mul(7).saturating_add(ms) / 8,
            };
        });
    }

    fn change(&mut self, class: &str, model: &str, change: impl FnOnce(&mut Tally)) {
        let known = self.0.get(class).is_some_and(|models| models.contains_key(model));
        if known || self.0.values().map(BTreeMap::len).sum::<usize>() < PAIRS_MAX {
            change(self.0.entry(class.to_owned()).or_default().entry(model.to_owned()).or_default());
        }
    }
}

impl Tally {
    /// How many outcomes there were.
    pub fn outcomes(&self) -> u64 {
        self.good.saturating_add(self.bad)
    }

    /// How many in a hundred succeeded.
    pub fn good_percent(&self) -> u64 {
        self.good.saturating_mul(100).checked_div(self.outcomes()).unwrap_or(100)
    }
}
