//! The record of revealed values. With it, every later process recognises them, even while the vault is locked.
//!
//! The file `vault.revealed` contains no values. For each form of a revealed value it contains the length, a keyed 128-bit hash of the
//! form, and a keyed 32-bit tag of the form or of its first [`WINDOW_BYTES_MAX`] bytes. A rolling hash for each length finds candidates by
//! their tags; the hash decides. The key is in the file, so a reader of the file can test guesses. Therefore the file has no marks of forms
//! that determine fewer than twelve bytes of the value (the last line of a hex dump), unless they determine all of it: an attacker could
//! solve such parts one after the other. What remains is guessing an entire value, as with any hash.
//!
//! Records of earlier versions had such marks. They are still read, and replaced as soon as the vault is open.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::VaultError;
use crate::scrub::{self, WINDOW_BYTES_MAX};

/// Version of the file format.
const FORM: u32 = 3;
/// Version 1 had tags of the first eight bytes of each form. Version 2 had marks of short parts.
const FORM_WITH_SHORT_TAGS: u32 = 1;
const SHORT_TAG_BYTES: usize = 8;
/// A mark of version 2 with at least this length determines twelve bytes of a value, whatever its form.
const KEPT_BYTES_MIN: usize = 32;
/// Only the process that revealed a value finds its shorter forms.
const FORM_BYTES_MIN: usize = 8;
const HASH_BYTES: usize = 16;
/// A tag, a length and a hash.
const MARK_BYTES: usize = 4 + 4 + HASH_BYTES;
/// Bits of the prefilter.
const FILTER_BITS: u32 = 16;

/// The record of revealed values.
#[derive(Debug, Clone)]
pub(crate) struct Revealed {
    form: u32,
    key: [u8; 32],
    /// The name of each value, and the hash of the plain value.
    values: Vec<(String, [u8; HASH_BYTES])>,
    marks: Vec<Mark>,
    /// The searches, one per window length.
    passes: Vec<Pass>,
}

/// The forms found by a rolling hash over windows of one length.
#[derive(Debug, Clone)]
struct Pass {
    window_bytes: usize,
    /// The factor of a byte when it leaves the window.
    leaving: u64,
    /// Whether any tag begins with these bits.
    filter: Vec<bool>,
    /// Sorted by tag.
    marks: Vec<Mark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    tag: u32,
    bytes: u32,
    hash: [u8; HASH_BYTES],
    /// Index of its value.
    value: usize,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    form: u32,
    key: String,
    values: Vec<ValueOnDisk>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ValueOnDisk {
    name: String,
    hash: String,
    /// Tag, length and hash of each form, concatenated.
    marks: String,
}

impl Revealed {
    /// An empty record with a random key.
    pub(crate) fn empty() -> Result<Self, VaultError> {
        let mut key = [0_u8; 32];
        getrandom::fill(&mut key).map_err(|error| VaultError::Random(error.to_string()))?;
        Ok(Self { form: FORM, key, values: Vec::new(), marks: Vec::new(), passes: Vec::new() })
    }

    /// Parses the record of an earlier process.
    pub(crate) fn read(json: &[u8]) -> Result<Self, VaultError> {
        let damaged = || {
            VaultError::Corrupt("the record of what was revealed (`vault.revealed`) is damaged".to_owned())
        };
        let on_disk: OnDisk = serde_json::from_slice(json).map_err(|_| damaged())?;
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| damaged());
        if on_disk.form > FORM {
            let message =
                "the record of what was revealed (`vault.revealed`) is from a newer version of Regent";
            return Err(VaultError::Corrupt(message.to_owned()));
        }
        let key = decode(&on_disk.key)?.try_into().map_err(|_| damaged())?;
        let (values, marks, passes) = (Vec::new(), Vec::new(), Vec::new());
        let mut revealed = Self { form: on_disk.form, key, values, marks, passes };
        for ValueOnDisk { name, hash, marks } in on_disk.values {
            let value = revealed.values.len();
            let hash = decode(&hash)?.try_into().map_err(|_| damaged())?;
            revealed.values.push((name, hash));
            let packed = decode(&marks)?;
            if !packed.len().is_multiple_of(MARK_BYTES) {
                return Err(damaged());
            }
            for record in packed.chunks_exact(MARK_BYTES) {
                revealed.marks.push(Mark::unpack(record, value).ok_or_else(damaged)?);
            }
        }
        revealed.index();
        Ok(revealed)
    }

    /// The record in its file format.
    pub(crate) fn write(&self) -> Result<Vec<u8>, VaultError> {
        let values = self.values.iter().enumerate().map(|(place, (name, hash))| {
            let marks: Vec<u8> =
                self.marks.iter().filter(|mark| mark.value == place).flat_map(|mark| mark.pack()).collect();
            ValueOnDisk { name: name.clone(), hash: STANDARD.encode(hash), marks: STANDARD.encode(marks) }
        });
        let on_disk = OnDisk { form: self.form, key: STANDARD.encode(self.key), values: values.collect() };
        serde_json::to_vec(&on_disk).map_err(|error| VaultError::Corrupt(error.to_string()))
    }

    /// Whether the record contains a value.
    pub(crate) fn knows(&self, name: &str, value: &Secret) -> bool {
        let hash = self.hash(value.expose());
        self.values.iter().any(|(known, one)| known == name && *one == hash)
    }

    /// Adds a value in all its forms.
    pub(crate) fn add(&mut self, name: &str, value: &Secret) {
        let place = self.values.len();
        self.values.push((name.to_owned(), self.hash(value.expose())));
        for form in scrub::forms(value.expose()) {
            let text = form.text.as_slice();
            let is_marked = text.len() >= FORM_BYTES_MIN && form.is_safe_to_hash(value.expose());
            if let (true, Ok(bytes)) = (is_marked, u32::try_from(text.len())) {
                let window = text.get(..WINDOW_BYTES_MAX).unwrap_or(text);
                let tag = self.tag(self.rolled(window));
                self.marks.push(Mark { tag, bytes, hash: self.hash(text), value: place });
            }
        }
        self.index();
    }

    /// Whether an earlier version of Regent wrote the record.
    pub(crate) fn is_older(&self) -> bool {
        self.form < FORM
    }

    /// Whether this is a later state of the same record.
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        self.key == other.key
    }

    /// The same record in the current format, from the vault's values under the recorded names. Of values that the vault no longer has,
    /// only safe marks are kept.
    pub(crate) fn renewed(&self, values_of: impl Fn(&str) -> Vec<Secret>) -> Self {
        let (values, marks, passes) = (Vec::new(), Vec::new(), Vec::new());
        let mut renewed = Self { form: FORM, key: self.key, values, marks, passes };
        for (place, (name, hash)) in self.values.iter().enumerate() {
            if let Some(value) = values_of(name).iter().find(|value| self.hash(value.expose()) == *hash) {
                renewed.add(name, value);
            } else if self.form > FORM_WITH_SHORT_TAGS {
                let value = renewed.values.len();
                renewed.values.push((name.clone(), *hash));
                let is_kept = |mark: &&Mark| {
                    mark.value == place && (mark.length() >= KEPT_BYTES_MIN || mark.hash == *hash)
                };
                renewed.marks.extend(self.marks.iter().filter(is_kept).map(|mark| Mark { value, ..*mark }));
            }
        }
        renewed.index();
        renewed
    }

    /// Masks every value; returns whether there was one.
    pub(crate) fn scrub(&self, bytes: &mut Vec<u8>) -> bool {
        let spans = self.spans(bytes);
        if spans.is_empty() {
            return false;
        }
        let mut out = Vec::with_capacity(bytes.len());
        let mut from = 0;
        for (span, value) in spans {
            out.extend_from_slice(bytes.get(from..span.start).unwrap_or_default());
            out.extend_from_slice(b"[secret:");
            out.extend_from_slice(self.values.get(value).map_or(&b"?"[..], |(name, _)| name.as_bytes()));
            out.push(b']');
            from = span.end;
        }
        out.extend_from_slice(bytes.get(from..).unwrap_or_default());
        *bytes = out;
        true
    }

    /// The same offset or an earlier one that isn't within a complete value.
    pub(crate) fn beside_values(&self, bytes: &[u8], at: usize) -> usize {
        let cut = self.spans(bytes).into_iter().find(|(span, _)| span.start < at && at < span.end);
        cut.map_or(at, |(span, _)| span.start)
    }

    /// The offset from which a stream must wait because a value may have begun there, plain or escaped.
    pub(crate) fn open_at(&self, bytes: &[u8]) -> usize {
        let open = self.plain_open_at(bytes);
        if self.marks.is_empty() {
            return open;
        }
        let decoded =
            scrub::decoded_waits_at(bytes, self.form_bytes_max(), |reading| self.plain_open_at(reading));
        decoded.map_or(open, |decoded| decoded.min(open))
    }

    fn form_bytes_max(&self) -> usize {
        self.marks.iter().map(Mark::length).max().unwrap_or(0)
    }

    fn plain_open_at(&self, bytes: &[u8]) -> usize {
        let mut open = bytes.len();
        for pass in &self.passes {
            open = open.min(bytes.len().saturating_sub(pass.window_bytes.saturating_sub(1)));
            self.each_candidate(pass, bytes, |at, mark| {
                if mark.length() > bytes.len().saturating_sub(at) {
                    open = open.min(at);
                }
            });
        }
        open
    }

    /// The ranges of values, plain or decoded; overlapping ranges are merged.
    fn spans(&self, bytes: &[u8]) -> Vec<(Range<usize>, usize)> {
        if self.marks.is_empty() {
            return Vec::new();
        }
        let mut all = self.plain_spans(bytes);
        all.extend(scrub::decoded(bytes, self.form_bytes_max(), |reading| self.plain_spans(reading)));
        all.sort_unstable_by_key(|(span, _)| (span.start, span.end));
        let mut merged: Vec<(Range<usize>, usize)> = Vec::new();
        for (span, value) in all {
            match merged.last_mut() {
                Some((last, _)) if span.start < last.end => last.end = last.end.max(span.end),
                Some(_) | None => merged.push((span, value)),
            }
        }
        merged
    }

    fn plain_spans(&self, bytes: &[u8]) -> Vec<(Range<usize>, usize)> {
        let mut found: Vec<(Range<usize>, usize)> = Vec::new();
        for pass in &self.passes {
            self.each_candidate(pass, bytes, |at, mark| {
                let span = at..at.saturating_add(mark.length());
                if bytes.get(span.clone()).is_some_and(|form| self.hash(form) == mark.hash) {
                    found.push((span, mark.value));
                }
            });
        }
        found
    }

    /// Calls `act` with every position where a form of this pass may begin, in order.
    fn each_candidate(&self, pass: &Pass, bytes: &[u8], mut act: impl FnMut(usize, &Mark)) {
        let Some(first) = bytes.get(..pass.window_bytes) else { return };
        let mut rolling = self.rolled(first);
        // The bytes that leave and enter the window.
        let moves = bytes.iter().zip(bytes.iter().skip(pass.window_bytes).map(Some).chain([None]));
        for (at, (left, entered)) in moves.enumerate() {
            let tag = match bytes.get(at..) {
                Some(rest) if self.form == FORM_WITH_SHORT_TAGS => self.short_tag(rest),
                Some(_) | None => self.tag(rolling),
            };
            if pass.filter.get(slot(tag)).copied().unwrap_or(false) {
                let first = pass.marks.partition_point(|mark| mark.tag < tag);
                let same = pass.marks.iter().skip(first).take_while(|mark| mark.tag == tag);
                same.for_each(|mark| act(at, mark));
            }
            let Some(entered) = entered else { return };
            let without = rolling.wrapping_sub(u64::from(*left).wrapping_mul(pass.leaving));
            rolling = without.wrapping_mul(self.base()).wrapping_add(u64::from(*entered));
        }
    }

    /// The rolling hash of a window: a polynomial under the key.
    fn rolled(&self, window: &[u8]) -> u64 {
        let add = |sum: u64, byte: &u8| sum.wrapping_mul(self.base()).wrapping_add(u64::from(*byte));
        window.iter().fold(0, add)
    }

    fn base(&self) -> u64 {
        self.word(0) | 1
    }

    fn word(&self, at: usize) -> u64 {
        let bytes = self.key.get(at..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Mixes the hash. Otherwise tags would be linear in the bytes and could be solved for them.
    fn tag(&self, rolled: u64) -> u32 {
        let mixed = (rolled ^ self.word(8)).wrapping_mul(self.word(16) | 1);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(self.word(24) | 1);
        u32::try_from((mixed ^ (mixed >> 29)) >> 32).unwrap_or_default()
    }

    /// The tag of format version 1.
    fn short_tag(&self, form: &[u8]) -> u32 {
        let window = form.first_chunk::<SHORT_TAG_BYTES>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mixed = (window ^ self.word(0)).wrapping_mul(self.word(8) | 1);
        u32::try_from(mixed >> 32).unwrap_or_default()
    }

    fn hash(&self, form: &[u8]) -> [u8; HASH_BYTES] {
        let digest =
            Sha256::new().chain_update(b"regent revealed\n").chain_update(self.key).chain_update(form);
        digest.finalize().first_chunk().copied().unwrap_or_default()
    }

    fn index(&mut self) {
        self.marks.sort_unstable();
        self.passes.clear();
        for mark in &self.marks {
            let most = if self.form == FORM_WITH_SHORT_TAGS { SHORT_TAG_BYTES } else { WINDOW_BYTES_MAX };
            let window_bytes = mark.length().min(most);
            let place = self.passes.partition_point(|pass| pass.window_bytes < window_bytes);
            if self.passes.get(place).is_none_or(|pass| pass.window_bytes != window_bytes) {
                let leaving = (1..window_bytes).fold(1, |power: u64, _| power.wrapping_mul(self.word(0) | 1));
                let filter = vec![false; 1 << FILTER_BITS];
                self.passes.insert(place, Pass { window_bytes, leaving, filter, marks: Vec::new() });
            }
            let Some(pass) = self.passes.get_mut(place) else { continue };
            if let Some(bit) = pass.filter.get_mut(slot(mark.tag)) {
                *bit = true;
            }
            pass.marks.push(*mark);
        }
    }
}

impl Mark {
    fn length(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    fn pack(&self) -> impl Iterator<Item = u8> {
        self.tag.to_le_bytes().into_iter().chain(self.bytes.to_le_bytes()).chain(self.hash)
    }

    fn unpack(record: &[u8], value: usize) -> Option<Self> {
        let (tag, rest) = record.split_first_chunk::<4>()?;
        let (bytes, hash) = rest.split_first_chunk::<4>()?;
        let hash = *hash.first_chunk::<HASH_BYTES>()?;
        let is_form = usize::try_from(u32::from_le_bytes(*bytes)).is_ok_and(|bytes| bytes >= FORM_BYTES_MIN);
        is_form.then_some(Self {
            tag: u32::from_le_bytes(*tag),
            bytes: u32::from_le_bytes(*bytes),
            hash,
            value,
        })
    }
}

fn slot(tag: u32) -> usize {
    usize::try_from(tag >> (u32::BITS - FILTER_BITS)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
