//! What was heard, as it was written: to see whether a value is there as a whole.

use crate::spans::Sources;
use crate::whole::{Text, Value};

/// Of all sources that no outsider can write, and of all others. In what doesn't fit nothing is found.
const BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Default)]
pub(crate) struct Texts {
    kept: Vec<(u32, Text)>,
    bytes: usize,
}

impl Texts {
    /// Keeps a text of a source.
    pub(crate) fn keep(&mut self, source: u32, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes <= BYTES_MAX && !text.is_empty() {
            self.kept.push((source, Text::new(text)));
        }
    }

    /// Whether one of these sources has a value as a whole.
    pub(crate) fn have(&self, value: &str, sources: Sources) -> bool {
        let value = Value::new(value);
        self.of(sources).any(|text| text.has(&value))
    }

    /// Whether one of these sources has a word of these very letters, be it a part of something longer.
    pub(crate) fn spell(&self, value: &str, sources: Sources) -> bool {
        self.of(sources).any(|text| text.spells(value))
    }

    fn of(&self, sources: Sources) -> impl Iterator<Item = &Text> {
        let of_these = move |source: u32| sources & 1_u128.checked_shl(source).unwrap_or(0) != 0;
        self.kept.iter().filter(move |(source, _)| of_these(*source)).map(|(_, text)| text)
    }
}
