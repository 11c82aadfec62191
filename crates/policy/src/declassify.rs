//! What a rule takes back of a label: named fields of a named tool's result. The one way but for a person's word, so it is written out, it
//! holds only where the user's own file says it, and each use is recorded.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Fields of a result whose label a rule lowers. A field is a path from the top (`sender`, `items[].id`) with everything below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Declassified {
    /// The rule that says so.
    pub rule: Arc<str>,
    /// What counts as trusted although an outsider can write it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub trust: BTreeSet<String>,
    /// What counts as open although the result is confidential.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub open: BTreeSet<String>,
}

impl Declassified {
    /// Whether nothing is left of it.
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

/// What both give: a field that only one would declassify stays as it is labelled.
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
