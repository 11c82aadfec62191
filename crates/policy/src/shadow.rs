//! Shadow mode: a candidate policy is evaluated beside the active one. It decides nothing; the caller counts the differences.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::policy::Policy;
use crate::verdict::Verdict;

/// A candidate's verdict compared with the active policy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contrast {
    /// The same verdict.
    Same,
    /// It would have allowed the call.
    NewlyAllowed,
    /// It would have asked.
    NewlyAsked,
    /// It would have denied the call.
    NewlyDenied,
}

/// The counts of contrasts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tallied {
    /// Number of decisions.
    pub judged: u64,
    /// Calls that only the candidate would have allowed.
    pub newly_allowed: u64,
    /// Calls that it would have asked about.
    pub newly_asked: u64,
    /// Calls that it would have denied.
    pub newly_denied: u64,
}

impl Tallied {
    /// Counts one decision.
    pub fn count(&mut self, contrast: Contrast) {
        self.judged = self.judged.saturating_add(1);
        let counter = match contrast {
            Contrast::Same => return,
            Contrast::NewlyAllowed => &mut self.newly_allowed,
            Contrast::NewlyAsked => &mut self.newly_asked,
            Contrast::NewlyDenied => &mut self.newly_denied,
        };
        *counter = counter.saturating_add(1);
    }

    /// The sum of both.
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

/// A candidate, and the digest of its file.
#[derive(Debug, Clone)]
pub(crate) struct Shadow {
    pub(crate) candidate: Arc<Policy>,
    digest: [u8; 32],
}

impl Policy {
    /// Adds a candidate that [`contrast`](Self::contrast) evaluates. The candidate may be layered; `digest` is that of its own file.
    #[must_use]
    pub fn shadowed(self, candidate: Self, digest: [u8; 32]) -> Self {
        self.with_shadow(Shadow { candidate: Arc::new(candidate), digest })
    }

    /// The candidate's digest, and its verdict compared with the given one.
    pub fn contrast(&self, facts: &Facts<'_>, verdict: &Verdict) -> Option<([u8; 32], Contrast)> {
        let Shadow { candidate, digest } = self.shadow()?;
        let other = candidate.decide(facts);
        let contrast = match other {
            _ if other.word() == verdict.word() => Contrast::Same,
            Verdict::Allow(_) => Contrast::NewlyAllowed,
            Verdict::Ask(_) => Contrast::NewlyAsked,
            Verdict::Deny(_) => Contrast::NewlyDenied,
        };
        Some((*digest, contrast))
    }
}
