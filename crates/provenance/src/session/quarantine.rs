//! Quarantined reading: untrusted text that the agent never reads, and typed values extracted from it.
//!
//! A number, a date or one of several given answers carries no instruction, so it doesn't taint the session: the agent's next step is still
//! its own. But an outsider controls whatever depends on the value: a target that results name and the request doesn't (the value may have
//! picked one of several), the value itself, every figure that could be computed from it, and the results of calls made with it. The value
//! is as confidential as the texts that it may come from.

use std::borrow::Cow;

use super::Session;
use super::flow::Unswayed;
use crate::labels::FieldLabels;
use crate::ruling::Ruling;
use crate::said::{Argument, CallArguments, Leaf};
use crate::spans::Sources;
use crate::stored::StoredLabel;
use crate::transcript::AddedOutput;

/// How much of a result the agent reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// All of it.
    #[default]
    Whole,
    /// A typed value that a model without tools extracted from a text.
    Typed,
    /// Nothing: the host keeps it for [typed](Self::Typed) reading.
    Unread,
}

/// Results that the agent doesn't read, or reads only as typed values.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    sources: Sources,
    /// Sources of typed values. With any such source, figures may be computed from them and choices made by them.
    values: Sources,
    /// Texts that the agent never receives, so no question may quote them.
    unread: Sources,
    /// The confidentiality of the unread texts.
    label: StoredLabel,
}

impl Quarantine {
    pub(super) fn is_empty(&self) -> bool {
        self.sources == 0
    }

    pub(super) fn unread(&self) -> Sources {
        self.unread
    }

    /// The minimum label of a result that is read this way. A typed value is as confidential as any text that it may come from.
    pub(super) fn label_of<'l>(
        &mut self,
        reading: Reading,
        labels: &FieldLabels,
        stored: &'l StoredLabel,
    ) -> Cow<'l, StoredLabel> {
        match reading {
            Reading::Whole => Cow::Borrowed(stored),
            Reading::Typed => Cow::Owned(stored.join(&self.label)),
            Reading::Unread => {
                let (confidential, readers) = (labels.secret, labels.readers.clone());
                let own = StoredLabel { untrusted: false, confidential, readers };
                self.label = self.label.join(&own).join(stored);
                Cow::Borrowed(stored)
            }
        }
    }
}

impl Session {
    /// Records a result that the agent didn't read in full, or whose call used such a value.
    pub(super) fn quarantine(&mut self, reading: Reading, ruling: Option<&Ruling>, added: &AddedOutput) {
        let is_looked_up = !self.quarantine.is_empty() && ruling.is_some_and(|ruling| ruling.swayed);
        if reading != Reading::Whole || is_looked_up {
            self.quarantine.sources |= added.sources;
            // Unindexed text can't be matched, so dependencies on it can't be detected.
            if added.is_partial {
                self.taint();
            }
        }
        match reading {
            Reading::Whole => {}
            Reading::Typed => self.quarantine.values |= added.sources,
            Reading::Unread => self.quarantine.unread |= added.sources,
        }
    }

    /// The parts of a call that no outsider can have chosen, without a flow report.
    pub(super) fn unswayed_unreported<'a>(&self, said: &'a CallArguments<'_>) -> Unswayed<'a> {
        let is_free = !self.transcript.is_tainted();
        let own = said.arguments.iter().filter(|argument| is_free && !self.is_quarantined(argument));
        Unswayed::new(is_free, own.map(|argument| argument.name))
    }

    /// Sources of typed values.
    pub(super) fn quarantine_values(&self) -> Sources {
        self.quarantine.values
    }

    /// Whether any part of a call may depend on a quarantined text.
    pub(super) fn uses_quarantined(&self, said: &CallArguments<'_>) -> bool {
        said.arguments.iter().any(|argument| self.is_quarantined(argument))
    }

    /// Whether an argument occurs in a quarantined text, or may be computed from or chosen by a typed value.
    pub(super) fn is_quarantined(&self, argument: &Argument<'_>) -> bool {
        if self.quarantine.is_empty() {
            return false;
        }
        let (theirs, said) = (self.quarantine.sources, 1 | self.transcript.agreed());
        let own = (said | self.transcript.trusted()) & !theirs;
        self.is_found_in(argument, theirs, own) || self.depends_on_value(argument, said)
    }

    /// Whether a typed value may have chosen an argument or be part of it, unless `said` contains it.
    pub(super) fn depends_on_value(&self, argument: &Argument<'_>, said: Sources) -> bool {
        let values = self.quarantine.values;
        if values == 0 {
            return false;
        }
        let seen = |words: &[String]| self.transcript.seen(words).sources;
        // A figure in any script, also within a longer word.
        let is_computed =
            |word: &String| word.contains(char::is_numeric) && seen(std::slice::from_ref(word)) & said == 0;
        let is_theirs = |leaf: &Leaf| {
            let sources = seen(&leaf.words);
            (argument.is_sink && self.may_pick(leaf, said)) || (sources & values != 0 && sources & said == 0)
        };
        argument.leaves.iter().any(|leaf| is_theirs(leaf) || leaf.words.iter().any(is_computed))
    }

    /// Whether a typed value may have picked this from several results: any part of it is in a result and not in `said`.
    fn may_pick(&self, leaf: &Leaf, said: Sources) -> bool {
        const PART_CHARS_MIN: usize = 3;
        let sources = |words: &[String]| self.transcript.seen(words).sources;
        if self.transcript.is_whole_in(leaf, sources(&leaf.words) & said) {
            return false;
        }
        let parts = leaf.text.split(|c: char| !c.is_alphanumeric());
        let parts = parts.filter(|part| part.chars().count() >= PART_CHARS_MIN).flat_map(crate::text::words);
        let is_in_result = |words: &[String]| {
            let sources = sources(words);
            sources != 0 && sources & said == 0
        };
        sources(&leaf.words) != 0
            || leaf.words.iter().any(|word| is_in_result(std::slice::from_ref(word)))
            || parts.into_iter().any(|part| is_in_result(&[part]))
    }

    /// Whether a typed value may have chosen an argument's content, and not only its target.
    pub(crate) fn may_be_chosen_by_value(&self, argument: &Argument<'_>) -> bool {
        let said = 1 | self.transcript.agreed();
        let is_said = |leaf: &Leaf| {
            let sources = self.transcript.seen(&leaf.words).sources;
            self.transcript.is_whole_in(leaf, sources & said)
        };
        self.quarantine.values != 0 && !argument.leaves.iter().all(is_said)
    }
}
