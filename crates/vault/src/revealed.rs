//! What was ever revealed, so that every later process recognises it, also while the vault is locked.
//!
//! The file `vault.revealed` holds no values. Of every form of a revealed value it has a keyed 32-bit tag of the first eight bytes, the
//! length, and a keyed 128-bit hash of the whole form. The tag finds candidates at the speed of a memory scan; the hash decides. There is
//! one tag for each form and no tags of overlapping windows: those would give a value away byte by byte.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::VaultError;
use crate::scrub;

/// The version of the form on disk.
const FORM: u32 = 1;
/// So many bytes of the beginning of a form make its tag. Shorter forms are found by the process that revealed them, and by no later one.
const WINDOW_BYTES: usize = 8;
const HASH_BYTES: usize = 16;
/// A tag, a length and a hash.
const MARK_BYTES: usize = 4 + 4 + HASH_BYTES;
/// Bits of the first filter.
const FILTER_BITS: u32 = 16;

/// What was ever revealed.
#[derive(Debug, Clone)]
pub(crate) struct Revealed {
    key: [u8; 32],
    /// The name of each value, and the hash of the value as it is.
    values: Vec<(String, [u8; HASH_BYTES])>,
    /// By tag.
    marks: Vec<Mark>,
    /// Whether some tag ends in these bits.
    filter: Vec<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    tag: u32,
    bytes: u32,
    hash: [u8; HASH_BYTES],
    /// The place of its value.
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
    /// Tag, length and hash of each form, one after the other.
    marks: String,
}

impl Revealed {
    /// Nothing yet, under a fresh key.
    pub(crate) fn empty() -> Result<Self, VaultError> {
        let mut key = [0_u8; 32];
        getrandom::fill(&mut key).map_err(|error| VaultError::Random(error.to_string()))?;
        Ok(Self { key, values: Vec::new(), marks: Vec::new(), filter: filter() })
    }

    /// Reads what an earlier process wrote.
    pub(crate) fn read(json: &[u8]) -> Result<Self, VaultError> {
        let damaged = || {
            VaultError::Corrupt("the record of what was revealed (`vault.revealed`) is damaged".to_owned())
        };
        let on_disk: OnDisk = serde_json::from_slice(json).map_err(|_| damaged())?;
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| damaged());
        if on_disk.form != FORM {
            return Err(damaged());
        }
        let key = decode(&on_disk.key)?.try_into().map_err(|_| damaged())?;
        let mut revealed = Self { key, values: Vec::new(), marks: Vec::new(), filter: filter() };
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

    /// As it is written.
    pub(crate) fn write(&self) -> Result<Vec<u8>, VaultError> {
        let values = self.values.iter().enumerate().map(|(place, (name, hash))| {
            let marks: Vec<u8> =
                self.marks.iter().filter(|mark| mark.value == place).flat_map(|mark| mark.pack()).collect();
            ValueOnDisk { name: name.clone(), hash: STANDARD.encode(hash), marks: STANDARD.encode(marks) }
        });
        let on_disk = OnDisk { form: FORM, key: STANDARD.encode(self.key), values: values.collect() };
        serde_json::to_vec(&on_disk).map_err(|error| VaultError::Corrupt(error.to_string()))
    }

    /// Whether it has a value.
    pub(crate) fn knows(&self, name: &str, value: &Secret) -> bool {
        let hash = self.hash(value.expose());
        self.values.iter().any(|(known, one)| known == name && *one == hash)
    }

    /// Adds a value in all its forms.
    pub(crate) fn add(&mut self, name: &str, value: &Secret) {
        let place = self.values.len();
        self.values.push((name.to_owned(), self.hash(value.expose())));
        for form in scrub::forms(value.expose()) {
            if let (Some(tag), Ok(bytes)) = (self.tag(&form), u32::try_from(form.len())) {
                self.marks.push(Mark { tag, bytes, hash: self.hash(&form), value: place });
            }
        }
        self.index();
    }

    /// Masks every value; says whether there was one.
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

    /// From where on a stream has to wait, because a value may have begun there.
    pub(crate) fn open_at(&self, bytes: &[u8]) -> usize {
        if self.marks.is_empty() {
            return bytes.len();
        }
        let end = bytes.len().saturating_sub(WINDOW_BYTES.saturating_sub(1));
        let is_open = |at: &usize| {
            let room = bytes.len().saturating_sub(*at);
            self.candidates(bytes, *at).any(|mark| mark.length() > room)
        };
        (0..end).find(is_open).unwrap_or(end)
    }

    /// Where values stand, as they are or when decoded; what overlaps is one.
    fn spans(&self, bytes: &[u8]) -> Vec<(Range<usize>, usize)> {
        if self.marks.is_empty() {
            return Vec::new();
        }
        let form_bytes_max = self.marks.iter().map(Mark::length).max().unwrap_or(0);
        let mut all = self.plain_spans(bytes);
        all.extend(scrub::decoded(bytes, form_bytes_max, |reading| self.plain_spans(reading)));
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
        let mut merged: Vec<(Range<usize>, usize)> = Vec::new();
        for at in 0..bytes.len().saturating_sub(WINDOW_BYTES.saturating_sub(1)) {
            let found = self.candidates(bytes, at).filter(|mark| {
                let form = bytes.get(at..at.saturating_add(mark.length()));
                form.is_some_and(|form| self.hash(form) == mark.hash)
            });
            let Some(longest) = found.max_by_key(|mark| mark.bytes) else { continue };
            let end = at.saturating_add(longest.length());
            match merged.last_mut() {
                Some((last, _)) if at < last.end => last.end = last.end.max(end),
                Some(_) | None => merged.push((at..end, longest.value)),
            }
        }
        merged
    }

    /// Forms that may begin here.
    fn candidates(&self, bytes: &[u8], at: usize) -> impl Iterator<Item = &Mark> {
        let tag = bytes.get(at..).and_then(|rest| self.tag(rest));
        let tag = tag.filter(|tag| self.filter.get(slot(*tag)).copied().unwrap_or(false));
        let first = tag.map_or(self.marks.len(), |tag| self.marks.partition_point(|mark| mark.tag < tag));
        self.marks.get(first..).unwrap_or_default().iter().take_while(move |mark| Some(mark.tag) == tag)
    }

    /// Multiply-shift over the first eight bytes, under the key.
    fn tag(&self, form: &[u8]) -> Option<u32> {
        let window = u64::from_le_bytes(*form.first_chunk::<WINDOW_BYTES>()?);
        let word = |at: usize| {
            let bytes = self.key.get(at..).and_then(|rest| rest.first_chunk::<8>());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let mixed = (window ^ word(0)).wrapping_mul(word(8) | 1);
        u32::try_from(mixed >> 32).ok()
    }

    fn hash(&self, form: &[u8]) -> [u8; HASH_BYTES] {
        let digest =
            Sha256::new().chain_update(b"regent revealed\n").chain_update(self.key).chain_update(form);
        digest.finalize().first_chunk().copied().unwrap_or_default()
    }

    fn index(&mut self) {
        self.marks.sort_unstable();
        for mark in &self.marks {
            if let Some(bit) = self.filter.get_mut(slot(mark.tag)) {
                *bit = true;
            }
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
        Some(Self { tag: u32::from_le_bytes(*tag), bytes: u32::from_le_bytes(*bytes), hash, value })
    }
}

fn filter() -> Vec<bool> {
    vec![false; 1 << FILTER_BITS]
}

fn slot(tag: u32) -> usize {
    usize::try_from(tag >> (u32::BITS - FILTER_BITS)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
