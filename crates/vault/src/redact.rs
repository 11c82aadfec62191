//! Redacts credentials and personal data by their form, where text can't be erased later or goes to other parties: the ledger's entries,
//! logs, remote models.
//!
//! Four fast passes find candidates (words and prefixes, `@`, digits, long runs). Each candidate is checked within a bounded distance, so
//! the time is linear. Only certain findings count: a valid check digit, a unique prefix, a name that states what the value is. Ordinary
//! words, digests, identifiers and paths stay as they are. Redaction is best effort, for secrets outside the vault;
//! [`Scrubber`](crate::Scrubber) finds the vault's values exactly.

mod entropy;
mod keys;
mod numbers;
mod people;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// A payment card number with a valid check digit.
    Card,
    /// A bank account number with valid check digits.
    Iban,
    /// An email address.
    Email,
    /// A phone number.
    Phone,
    /// A US social security number.
    Ssn,
    /// A key of a known provider, or text random enough to be a key.
    Key,
    /// An access token.
    Token,
    /// The block of a private key.
    PrivateKey,
    /// A value whose name says that it is a password.
    Password,
}

impl FindingKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Card,
        Self::Iban,
        Self::Email,
        Self::Phone,
        Self::Ssn,
        Self::Key,
        Self::Token,
        Self::PrivateKey,
        Self::Password,
    ];

    /// The word in its placeholder.
    pub fn word(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Iban => "iban",
            Self::Email => "email",
            Self::Phone => "phone",
            Self::Ssn => "ssn",
            Self::Key => "key",
            Self::Token => "token",
            Self::PrivateKey => "private-key",
            Self::Password => "password",
        }
    }
}

/// One finding in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// Its byte range, on character boundaries.
    pub span: Range<usize>,
}

/// A redacted text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    /// The text with placeholders such as `[email:1]`.
    pub bytes: Vec<u8>,
    /// The findings, by their position in the original text.
    pub findings: Vec<Finding>,
}

/// Assigns numbers to placeholders: the same value gets the same number in every text that is redacted with the same `Numbers`.
#[derive(Debug, Default)]
pub struct Numbers {
    known: HashMap<(FindingKind, Vec<u8>), u32>,
    last: HashMap<FindingKind, u32>,
    /// Placeholders that occur in the original text. They stand for no value.
    taken: HashSet<(FindingKind, u32)>,
}

impl Numbers {
    /// Reserves the numbers of placeholders that a text already contains, so that they stay unambiguous.
    pub fn avoid(&mut self, text: &str) {
        for kind in FindingKind::ALL {
            let begin = format!("[{}:", kind.word());
            for after in text.split(&begin).skip(1) {
                let number = after.split_once(']').map(|(number, _)| number);
                if let Some(number) = number.and_then(|number| number.parse().ok()) {
                    self.taken.insert((kind, number));
                }
            }
        }
    }

    /// Every placeholder with its value.
    pub fn placeholders(&self) -> impl Iterator<Item = (String, &[u8])> {
        self.known.iter().map(|((kind, value), number)| (placeholder(*kind, *number), value.as_slice()))
    }

    fn number_for(&mut self, kind: FindingKind, value: &[u8]) -> u32 {
        if let Some(number) = self.known.get(&(kind, value.to_vec())) {
            return *number;
        }
        let last = self.last.entry(kind).or_insert(0);
        *last = last.saturating_add(1);
        while self.taken.contains(&(kind, *last)) {
            *last = last.saturating_add(1);
        }
        self.known.insert((kind, value.to_vec()), *last);
        *last
    }
}

fn placeholder(kind: FindingKind, number: u32) -> String {
    format!("[{}:{number}]", kind.word())
}

/// Finds all occurrences, in order and without overlap.
pub fn find(bytes: &[u8]) -> Vec<Finding> {
    let mut found = Vec::new();
    keys::find(bytes, &mut found);
    people::find(bytes, &mut found);
    numbers::find(bytes, &mut found);
    entropy::find(bytes, &mut found);
    found.sort_unstable_by_key(|one| (one.span.start, std::cmp::Reverse(one.span.end)));
    let mut merged: Vec<Finding> = Vec::with_capacity(found.len());
    for one in found {
        match merged.last_mut() {
            Some(last) if one.span.start < last.span.end => last.span.end = last.span.end.max(one.span.end),
            Some(_) | None => merged.push(one),
        }
    }
    merged
}

/// Replaces all findings with placeholders.
pub fn redact(bytes: &[u8]) -> Redacted {
    redact_with(bytes, &mut Numbers::default())
}

/// [`redact`] with numbers that continue from other texts.
pub fn redact_with(bytes: &[u8], numbers: &mut Numbers) -> Redacted {
    let findings = find(bytes);
    let mut out = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for Finding { kind, span } in &findings {
        out.extend_from_slice(bytes.get(from..span.start).unwrap_or_default());
        let number = numbers.number_for(*kind, bytes.get(span.clone()).unwrap_or_default());
        out.extend_from_slice(placeholder(*kind, number).as_bytes());
        from = span.end;
    }
    out.extend_from_slice(bytes.get(from..).unwrap_or_default());
    Redacted { bytes: out, findings }
}

/// The redacted text, or the text itself without findings.
pub fn text(text: &str) -> Cow<'_, str> {
    let redacted = redact(text.as_bytes());
    if redacted.findings.is_empty() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(
        String::from_utf8(redacted.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

/// The byte before a position.
fn before(bytes: &[u8], at: usize) -> Option<u8> {
    at.checked_sub(1).and_then(|at| bytes.get(at)).copied()
}

/// The end of a run of matching bytes, at most `bytes_max` further.
fn run_end(bytes: &[u8], from: usize, bytes_max: usize, fits: impl Fn(u8) -> bool) -> usize {
    let run = bytes.get(from..).unwrap_or_default().iter().take(bytes_max);
    from.saturating_add(run.take_while(|byte| fits(**byte)).count())
}

/// Whether a word continues at this byte.
fn is_word(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests;
