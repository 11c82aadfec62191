//! Keeps received texts in their original form, to test whether a value occurs in full.

use crate::spans::Sources;
use crate::whole::{Text, Value};

/// Maximum bytes each of the user's, trusted and other texts. Texts beyond it match nothing.
const BYTES_MAX: usize = 4 << 20;
/// Overhead of a kept text.
const OVERHEAD_BYTES: usize = 64;
/// The first sources are the user's.
const OWN: u32 = 2;

#[derive(Debug, Default)]
pub(crate) struct Texts {
    kept: Vec<(u32, Text)>,
    /// Bytes of the user's, trusted and other texts.
    bytes: [usize; 3],
}

impl Texts {
    /// Keeps a text of a source. Returns its number if it fits.
    pub(crate) fn keep(&mut self, source: u32, trusted: bool, text: &str) -> Option<u32> {
        let [own, theirs, others] = &mut self.bytes;
        let bytes = match (source < OWN, trusted) {
            (true, _) => own,
            (false, true) => theirs,
            (false, false) => others,
        };
        *bytes = bytes.saturating_add(text.len()).saturating_add(OVERHEAD_BYTES);
        if *bytes > BYTES_MAX || text.is_empty() {
            return None;
        }
        self.kept.push((source, Text::new(text)));
        u32::try_from(self.kept.len()).ok()?.checked_sub(1)
    }

    /// Approximate memory use: most texts are also kept in lower case.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.iter().map(|bytes| bytes.min(&BYTES_MAX)).sum::<usize>().saturating_mul(2)
    }

    /// The text of this number.
    pub(crate) fn get(&self, number: u32) -> Option<&Text> {
        self.kept.get(usize::try_from(number).ok()?).map(|(_, text)| text)
    }

    /// Whether this text belongs to one of these sources and contains the value in full.
    pub(crate) fn has(&self, number: u32, value: &str, sources: Sources) -> bool {
        let kept = usize::try_from(number).ok().and_then(|number| self.kept.get(number));
        kept.is_some_and(|(source, text)| is_of(*source, sources) && text.has(&Value::new(value)))
    }

    /// Whether one of these sources contains the value in full.
    pub(crate) fn have(&self, value: &str, sources: Sources) -> bool {
        let value = Value::new(value);
        self.in_sources(sources).any(|text| text.has(&value))
    }

    /// Whether one of these sources contains exactly these characters as a word, even within something longer.
    pub(crate) fn spell(&self, value: &str, sources: Sources) -> bool {
        self.in_sources(sources).any(|text| text.spells(value))
    }

    /// Whether nothing else in these sources could replace these values. False if some text wasn't kept.
    pub(crate) fn have_only(&self, values: &[Value<'_>], sources: Sources) -> bool {
        self.bytes.iter().all(|bytes| *bytes <= BYTES_MAX)
            && self.in_sources(sources).all(|text| text.has_only(values))
    }

    fn in_sources(&self, sources: Sources) -> impl Iterator<Item = &Text> {
        self.kept.iter().filter(move |(source, _)| is_of(*source, sources)).map(|(_, text)| text)
    }
}

fn is_of(source: u32, sources: Sources) -> bool {
    sources & 1_u128.checked_shl(source).unwrap_or(0) != 0
}
