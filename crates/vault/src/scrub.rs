//! Masks secret values in all output, in every form that programs usually print.
//!
//! One automaton contains every revealed value and its encodings. It scans the text once, and then the few parts that differ after decoding
//! escapes and dropping separators. It can't find values that were compressed, encrypted, reversed or split. Scopes and labels protect
//! against those.

mod encodings;
mod normal;

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use regent_kernel::{Scrubbed, Secret};
use zeroize::Zeroizing;

pub(crate) use encodings::{ValueForm, WINDOW_BYTES_MAX};

/// How much of a truncated value at the end of a text is enough to be masked too, because output is cut at limits, and pauses: half of it, but
/// never fewer bytes than the first number, and always as many as the second.
const BEGINNING_BYTES: (usize, usize) = (3, 8);
/// How much longer an escaped value may be than its longest form.
const DECODED_TIMES: usize = 4;

/// How many bytes of a value of this length give it away.
fn gives_away(value_bytes: usize) -> usize {
    let (least, most) = BEGINNING_BYTES;
    value_bytes.div_ceil(2).clamp(least, most)
}

/// Every form in which programs usually print a value, including the plain one.
pub(crate) fn forms(value: &[u8]) -> Vec<ValueForm> {
    encodings::all_forms(value)
}

/// Finds matches after escapes are decoded and separators dropped. Returns their ranges in the original text.
pub(crate) fn decoded<T: Copy>(
    bytes: &[u8],
    form_bytes_max: usize,
    find: impl Fn(&[u8]) -> Vec<(Range<usize>, T)>,
) -> Vec<(Range<usize>, T)> {
    let (mut found, mut places) = (Vec::new(), Vec::new());
    for reading in normal::readings(bytes, form_bytes_max, normal::Least::WHOLE) {
        for (span, what) in find(&reading.bytes) {
            reading.places(&span, &mut places);
            found.extend(places.drain(..).map(|span| (span, what)));
        }
    }
    found
}

/// The offset from which a stream must wait because the decoded text may end within a form. `beginning` finds the first byte of such a form
/// in a reading.
fn decoded_open_at(
    bytes: &[u8],
    form_bytes_max: usize,
    beginning: impl Fn(&normal::DecodedPart) -> Option<usize>,
) -> Option<usize> {
    let from = bytes.len().saturating_sub(form_bytes_max.saturating_mul(DECODED_TIMES));
    let tail = bytes.get(from..)?;
    // An incomplete escape may become anything. The text before it is read without it.
    let incomplete = normal::incomplete(tail);
    let whole = tail.get(..incomplete.unwrap_or(tail.len()))?;
    // A reading that ends before the text does, except for a separator, is complete.
    let goes_on = |reading: &&normal::DecodedPart| reading.end().saturating_add(2) >= whole.len();
    let readings = normal::readings(whole, form_bytes_max, normal::Least::AT_END);
    let open = readings.iter().filter(goes_on).filter_map(|one| one.start_of(beginning(one)?));
    Some(from.saturating_add(open.chain(incomplete).min()?))
}

/// [`decoded_open_at`] where `open_at` returns the offset from which plain bytes must wait.
pub(crate) fn decoded_waits_at(
    bytes: &[u8],
    form_bytes_max: usize,
    open_at: impl Fn(&[u8]) -> usize,
) -> Option<usize> {
    decoded_open_at(bytes, form_bytes_max, |reading| Some(open_at(&reading.bytes)))
}

/// Finds and masks revealed values.
#[derive(Default)]
pub struct Scrubber {
    automaton: Option<AhoCorasick>,
    /// The sorted patterns, each with the index of its name.
    patterns: Vec<(Zeroizing<Vec<u8>>, usize)>,
    names: Vec<String>,
    /// Whether any pattern begins with this byte.
    begins: Vec<bool>,
    pattern_bytes_max: usize,
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrubber").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Scrubber {
    /// Builds a scrubber for these values. If they are too large for an automaton, this fails, and the caller must not release any value.
    pub fn new(values: &[(String, Secret)]) -> Result<Self, ScrubError> {
        let mut names: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let mut patterns = Vec::new();
        for (name, value) in values {
            let Ok(name) = names.binary_search(name) else { continue };
            patterns.extend(encodings::all_forms(value.expose()).into_iter().map(|form| (form.text, name)));
        }
        patterns.sort_unstable_by(|one: &(Zeroizing<Vec<u8>>, usize), other| one.0.as_slice().cmp(&other.0));
        patterns.dedup_by(|one, other| one.0 == other.0);
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(patterns.iter().map(|(pattern, _)| pattern.as_slice()))
            .map_err(|error| ScrubError(error.to_string()))?;
        let mut begins = vec![false; 256];
        for first in patterns.iter().filter_map(|(pattern, _)| pattern.first()) {
            if let Some(slot) = begins.get_mut(usize::from(*first)) {
                *slot = true;
            }
        }
        let pattern_bytes_max = patterns.iter().map(|(pattern, _)| pattern.len()).max().unwrap_or(0);
        Ok(Self { automaton: Some(automaton), patterns, names, begins, pattern_bytes_max })
    }

    /// Masks every value; returns whether there was one. A value truncated at the end is masked too.
    pub fn scrub(&self, bytes: &mut Vec<u8>) -> bool {
        let mut spans = self.spans(bytes);
        let end = spans.last().map_or(0, |last| last.span.end);
        if let Some((start, name)) =
            self.beginning_at_end(bytes, gives_away).filter(|(start, _)| *start >= end)
        {
            spans.push(Masked { span: start..bytes.len(), name });
        }
        if spans.is_empty() {
            return false;
        }
        *bytes = self.masked(bytes, &spans);
        true
    }

    /// Takes the part of a stream that can be passed on. The possible start of a value stays.
    pub fn part(&self, held: &mut Vec<u8>) -> Scrubbed {
        let spans = self.spans(held);
        let open = self.beginning_at_end(held, |_| 1).map_or(held.len(), |(start, _)| start);
        let open = self.decoded_beginning(held).map_or(open, |start| start.min(open));
        // A complete value that may continue, because another value begins with it, waits as well.
        let open = spans.iter().find(|one| one.span.end > open).map_or(open, |one| one.span.start.min(open));
        let spans: Vec<Masked> = spans.into_iter().filter(|one| one.span.end <= open).collect();
        let rest = held.split_off(open);
        let front = std::mem::replace(held, rest);
        let masked = !spans.is_empty();
        Scrubbed { bytes: if masked { self.masked(&front, &spans) } else { front }, masked }
    }

    /// The ranges of values, plain or decoded; overlapping ranges are merged.
    fn spans(&self, bytes: &[u8]) -> Vec<Masked> {
        let mut spans = self.plain_spans(bytes);
        let before = spans.len();
        let mut places = Vec::new();
        for reading in self.readings(bytes) {
            for Masked { span, name } in self.plain_spans(&reading.bytes) {
                reading.places(&span, &mut places);
                spans.extend(places.drain(..).map(|span| Masked { span, name }));
            }
        }
        if spans.len() > before { merged(spans) } else { spans }
    }

    fn readings(&self, bytes: &[u8]) -> Vec<normal::DecodedPart> {
        if self.automaton.is_none() {
            Vec::new()
        } else {
            normal::readings(bytes, self.pattern_bytes_max, normal::Least::WHOLE)
        }
    }

    /// The start of a truncated value at the end of the decoded text.
    fn decoded_beginning(&self, bytes: &[u8]) -> Option<usize> {
        self.automaton.as_ref()?;
        decoded_open_at(bytes, self.pattern_bytes_max, |reading| {
            let bytes_min = reading.beginning_bytes_min();
            self.beginning_at_end(&reading.bytes, |_| bytes_min).map(|(start, _)| start)
        })
    }

    fn plain_spans(&self, bytes: &[u8]) -> Vec<Masked> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        // Matches arrive in order of their ends and are merged immediately: a text full of parts of a value must not exhaust memory.
        let mut merged: Vec<Masked> = Vec::new();
        for hit in automaton.find_overlapping_iter(bytes) {
            let mut one = Masked { span: hit.span().range(), name: self.name_of(hit.pattern().as_usize()) };
            while let Some(last) = merged.pop_if(|last| one.span.start < last.span.end) {
                if last.span.start < one.span.start {
                    one.name = last.name;
                }
                one.span = last.span.start.min(one.span.start)..last.span.end.max(one.span.end);
            }
            merged.push(one);
        }
        merged
    }

    /// The longest suffix that is a proper prefix of a value, and at least as long as is said of values of that length.
    fn beginning_at_end(&self, bytes: &[u8], bytes_min: impl Fn(usize) -> usize) -> Option<(usize, usize)> {
        let from = bytes.len().saturating_sub(self.pattern_bytes_max.saturating_sub(1));
        let tail = bytes.get(from..)?;
        tail.iter().enumerate().find_map(|(at, byte)| {
            if !self.begins.get(usize::from(*byte)).copied().unwrap_or(false) {
                return None;
            }
            let start = from.saturating_add(at);
            let end = bytes.get(start..)?;
            let place = self.patterns.partition_point(|(pattern, _)| pattern.as_slice() <= end);
            let begun =
                self.patterns.get(place..)?.iter().take_while(|(pattern, _)| pattern.starts_with(end));
            let mut enough = begun.filter(|(pattern, _)| end.len() >= bytes_min(pattern.len()));
            enough.next().map(|(_, name)| (start, *name))
        })
    }

    fn name_of(&self, pattern: usize) -> usize {
        self.patterns.get(pattern).map_or(usize::MAX, |(_, name)| *name)
    }

    fn masked(&self, bytes: &[u8], spans: &[Masked]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut from = 0;
        for Masked { span, name } in spans {
            out.extend_from_slice(bytes.get(from..span.start).unwrap_or_default());
            out.extend_from_slice(b"[secret:");
            out.extend_from_slice(self.names.get(*name).map_or(&b"?"[..], String::as_bytes));
            out.push(b']');
            from = span.end;
        }
        out.extend_from_slice(bytes.get(from..).unwrap_or_default());
        out
    }
}

/// Merges overlapping ranges, in text order.
fn merged(mut spans: Vec<Masked>) -> Vec<Masked> {
    spans.retain(|one| !one.span.is_empty());
    spans.sort_by_key(|one| (one.span.start, std::cmp::Reverse(one.span.end)));
    let mut merged: Vec<Masked> = Vec::with_capacity(spans.len());
    for one in spans {
        match merged.last_mut().filter(|last| one.span.start < last.span.end) {
            Some(last) => last.span.end = last.span.end.max(one.span.end),
            None => merged.push(one),
        }
    }
    merged
}

/// A masked range, and the index of its value's name.
#[derive(Debug, Clone)]
struct Masked {
    span: Range<usize>,
    name: usize,
}

/// The values are too large to search for.
#[derive(Debug, thiserror::Error)]
#[error("the values can't be looked for: {0}")]
pub struct ScrubError(String);

#[cfg(test)]
mod tests;
