//! Counts calls that candidate policies would have decided otherwise. Policy compares and returns data; the kernel that asked keeps the counts.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use regent_policy::{Contrast, Tallied};

/// Counts by the digest of the candidate's file: a reload may bring another one.
#[derive(Debug, Default)]
pub(crate) struct Tallies(Mutex<BTreeMap<[u8; 32], Tallied>>);

impl Tallies {
    pub(crate) fn count(&self, contrast: Option<([u8; 32], Contrast)>) {
        let Some((candidate, contrast)) = contrast else { return };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(candidate).or_default().count(contrast);
    }

    /// Takes what has been counted since the last time.
    pub(crate) fn take(&self) -> BTreeMap<[u8; 32], Tallied> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
