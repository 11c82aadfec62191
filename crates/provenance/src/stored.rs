//! Labels that outlive a session. A value that a call writes into a store of the host (a memory, a table, a file) keeps its label, and
//! every later session that reads it gets at least that label. Otherwise, untrusted text would become trusted by way of the store.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::labels::{FieldLabels, Taint, Whole};
use crate::ruling::Ruling;
use crate::session::Session;
use crate::spans::Sources;
use crate::transcript::Origin;

/// A reader that matches no target, for values that no party may read.
const NO_READER: &str = "nobody may read everything stored here";

/// The label of a stored value. The default adds nothing to the tool's own labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredLabel {
    /// An outsider may have written or chosen it.
    pub untrusted: bool,
    /// It may contain confidential data.
    pub confidential: bool,
    /// The only parties besides the user who may read it; empty for no restriction.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub readers: BTreeSet<String>,
}

impl StoredLabel {
    /// The strictest label, for unknown values.
    pub fn worst() -> Self {
        Self { untrusted: true, confidential: true, readers: BTreeSet::from([NO_READER.to_owned()]) }
    }

    /// Whether it adds nothing.
    pub fn is_plain(&self) -> bool {
        !self.untrusted && !self.confidential && self.readers.is_empty()
    }

    /// The combined label, at least as strict as each.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        Self {
            untrusted: self.untrusted || other.untrusted,
            confidential: self.confidential || other.confidential,
            readers: common(&self.readers, &other.readers),
        }
    }
}

/// The readers in both lists. An empty list means no restriction.
fn common(one: &BTreeSet<String>, other: &BTreeSet<String>) -> BTreeSet<String> {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other.clone(),
        (false, true) => one.clone(),
        (false, false) => or_nobody(one & other),
    }
}

fn or_nobody(readers: BTreeSet<String>) -> BTreeSet<String> {
    if readers.is_empty() { BTreeSet::from([NO_READER.to_owned()]) } else { readers }
}

impl FieldLabels {
    /// These labels for an output read from a store, at least as strict as the stored label.
    pub(crate) fn at_least(&self, stored: &StoredLabel) -> Cow<'_, Self> {
        if stored.is_plain() {
            return Cow::Borrowed(self);
        }
        let taint = if stored.untrusted { Taint::Whole(Whole::All) } else { self.taint.clone() };
        let (secret, readers) = (self.secret || stored.confidential, common(&self.readers, &stored.readers));
        Cow::Owned(Self { taint, secret, readers, ..self.clone() })
    }
}

impl Session {
    /// The label of what a call wrote into a store: of its arguments `wrote`, and of everything that influenced the call.
    pub fn stored_label(
        &self,
        tool: &str,
        args: &Value,
        ruling: Option<&Ruling>,
        wrote: &[String],
    ) -> StoredLabel {
        let (Some(ruling), Some(labels)) = (ruling, self.labels_of(tool)) else {
            return StoredLabel::worst();
        };
        let is_theirs = |name: &String| match ruling.origin_of(name) {
            Some(Origin::Request | Origin::Trusted(_)) => false,
            Some(Origin::Untrusted(_)) => true,
            Some(Origin::Nowhere) | None => self.is_tainted(),
        };
        let said = self.said(tool, labels, args).without_unset();
        let written =
            || said.arguments.iter().filter(|argument| wrote.iter().any(|name| name == argument.name));
        // A typed value may have chosen what is written.
        let untrusted = ruling.swayed
            || wrote.iter().any(is_theirs)
            || written().any(|argument| self.may_be_chosen_by_value(argument));
        let transcript = self.transcript();
        let (open, mut unopened) = (transcript.open(), 0);
        let seen = |words: &[String]| transcript.seen(words).sources;
        // Openness needs a match: a word without origin may be a paraphrased secret.
        let is_open = |word: &String| seen(std::slice::from_ref(word)) & open != 0;
        for leaf in
            written().flat_map(|argument| &argument.leaves).filter(|leaf| seen(&leaf.words) & open == 0)
        {
            for word in leaf.words.iter().filter(|word| !is_open(word)) {
                let sources = seen(std::slice::from_ref(word));
                unopened |= if sources == 0 { Sources::MAX } else { sources };
            }
        }
        let readers = transcript
            .readers_of(unopened)
            .map(|readers| or_nobody(readers.iter().map(|words| words.join(" ")).collect()));
        let confidential = unopened & transcript.secret() != 0 || transcript.has_lost_secrets();
        StoredLabel { untrusted, confidential, readers: readers.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests;
