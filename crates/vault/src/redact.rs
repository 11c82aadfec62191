//! Takes credentials and personal details out of texts by what they look like, for what can't be erased or goes to strangers:
//! the ledger's entries, logs, remote models.
//!
//! Four quick passes find candidates (words and prefixes, `@`, digits, long runs), and each candidate is checked within a bounded
//! distance, so the time is linear. What counts is what is sure: a check digit that fits, a prefix that nothing else has, a name
//! that says what the value is. Ordinary words, digests, identifiers and paths stay as they are. It is a courtesy for what nobody
//! has declared; what is in the vault is found by [`Scrubber`](crate::Scrubber), exactly.

mod entropy;
mod keys;
mod numbers;
mod people;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A payment card's number, its check digit right.
    Card,
    /// A bank account's number, its check digits right.
    Iban,
    /// A mail address.
    Email,
    /// A telephone number.
    Phone,
    /// A social security number of the United States.
    Ssn,
    /// A key of a known provider, or something random enough to be one.
    Key,
    /// A token that lets its bearer in.
    Token,
    /// A private key's block.
    PrivateKey,
    /// What a name says is a password.
    Password,
}

impl Kind {
    /// All of them.
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

/// One place in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// Where it stands, in bytes. It never begins or ends within a letter.
    pub span: Range<usize>,
}

/// A text without them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    /// With placeholders such as `[email:1]`.
    pub bytes: Vec<u8>,
    /// What was taken out, by its place in the text as it was.
    pub findings: Vec<Finding>,
}

/// Numbers placeholders: the same value gets the same number, in every text that is redacted with the same one.
#[derive(Debug, Default)]
pub struct Numbers {
    known: HashMap<(Kind, Vec<u8>), u32>,
    last: HashMap<Kind, u32>,
    /// Placeholders that a text has by itself: they stand for nothing.
    taken: HashSet<(Kind, u32)>,
}

impl Numbers {
    /// Reserves the numbers of placeholders that a text already contains, so that they can't be confused.
    pub fn avoid(&mut self, text: &str) {
        for kind in Kind::ALL {
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

    fn of(&mut self, kind: Kind, value: &[u8]) -> u32 {
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

fn placeholder(kind: Kind, number: u32) -> String {
    format!("[{}:{number}]", kind.word())
}

/// Finds them, in order, none overlapping.
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

/// Replaces them by placeholders.
pub fn redact(bytes: &[u8]) -> Redacted {
    redact_with(bytes, &mut Numbers::default())
}

/// The same, with numbers that continue from other texts.
pub fn redact_with(bytes: &[u8], numbers: &mut Numbers) -> Redacted {
    let findings = find(bytes);
    let mut out = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for Finding { kind, span } in &findings {
        out.extend_from_slice(bytes.get(from..span.start).unwrap_or_default());
        let number = numbers.of(*kind, bytes.get(span.clone()).unwrap_or_default());
        out.extend_from_slice(placeholder(*kind, number).as_bytes());
        from = span.end;
    }
    out.extend_from_slice(bytes.get(from..).unwrap_or_default());
    Redacted { bytes: out, findings }
}

/// A text without them; the text itself if there is nothing to take out.
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

/// The byte before a place.
fn before(bytes: &[u8], at: usize) -> Option<u8> {
    at.checked_sub(1).and_then(|at| bytes.get(at)).copied()
}

/// Where a run of such bytes ends, looking no further than `bytes_max`.
fn run_end(bytes: &[u8], from: usize, bytes_max: usize, fits: impl Fn(u8) -> bool) -> usize {
    let run = bytes.get(from..).unwrap_or_default().iter().take(bytes_max);
    from.saturating_add(run.take_while(|byte| fits(**byte)).count())
}

/// Whether a word continues there.
fn is_word(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests;
