//! Declassification by rules: named fields of a named tool's result. Besides an operator's decision, it is the only way to lower a label.
//! It must therefore be explicit, it works only in the user's own policy, and each use is recorded.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Result fields whose label a rule lowers. A field is a path from the top (`sender`, `items[].id`) with everything below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Declassified {
    /// The rule.
    pub rule: Arc<str>,
    /// Fields to trust although an outsider can write them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub trust: BTreeSet<String>,
    /// Fields to open although the result is confidential.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub open: BTreeSet<String>,
}

impl Declassified {
    /// Whether no field is left.
    pub fn is_empty(&self) -> bool {
        self.trust.is_empty() && self.open.is_empty()
    }

    /// The intersection with these fields.
    #[must_use]
    pub fn only(&self, trust: impl Fn(&str) -> bool, open: impl Fn(&str) -> bool) -> Self {
        Self {
            rule: Arc::clone(&self.rule),
            trust: self.trust.iter().filter(|field| trust(field)).cloned().collect(),
            open: self.open.iter().filter(|field| open(field)).cloned().collect(),
        }
    }
}

/// Fields that both sides declassify.
pub(crate) fn meet(ours: &[Declassified], theirs: &[Declassified]) -> Vec<Declassified> {
    let trust = |field: &str| theirs.iter().any(|one| one.trust.contains(field));
    let open = |field: &str| theirs.iter().any(|one| one.open.contains(field));
    ours.iter().map(|one| one.only(trust, open)).filter(|one| !one.is_empty()).collect()
}

/// Whether `ours` declassifies anything that `theirs` doesn't.
pub(crate) fn goes_beyond(ours: &[Declassified], theirs: &[Declassified]) -> bool {
    let count = |all: &[Declassified]| all.iter().map(|one| one.trust.len() + one.open.len()).sum::<usize>();
    count(&meet(ours, theirs)) < count(ours)
}
