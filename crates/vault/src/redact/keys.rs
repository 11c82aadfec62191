//! Finds credentials by prefix and by name.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Finding, FindingKind, before, entropy, is_word, run_end};

/// Maximum length of a credential.
const TOKEN_BYTES_MAX: usize = 4_096;
const VALUE_BYTES_MAX: usize = 512;
const USER_BYTES_MAX: usize = 256;

/// What the automaton searches for.
#[derive(Debug, Clone, Copy)]
enum Mark {
    /// A prefix that only one provider's keys have.
    Prefix { letters: Letters, least: usize, most: usize },
    /// The header of a JSON Web Token.
    Jwt,
    /// A scheme of the `Authorization` header.
    Bearer,
    /// A name that states what its value is.
    Named(FindingKind),
    /// The block of a private key.
    Block,
    /// A URL, which may contain a password.
    Url,
}

/// The alphabet of the rest of a key.
#[derive(Debug, Clone, Copy)]
enum Letters {
    Upper,
    Alnum,
    Word,
    Dashed,
    Hex,
    Dotted,
}

impl Letters {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Word => byte.is_ascii_alphanumeric() || byte == b'_',
            Self::Dashed => byte.is_ascii_alphanumeric() || b"_-".contains(&byte),
            Self::Hex => byte.is_ascii_hexdigit(),
            Self::Dotted => byte.is_ascii_alphanumeric() || b"_-.".contains(&byte),
        }
    }
}

const fn prefix(letters: Letters, least: usize, most: usize) -> Mark {
    Mark::Prefix { letters, least, most }
}

const MARKS: &[(&str, Mark)] = &[
    ("AKIA", prefix(Letters::Upper, 16, 16)),
    ("ASIA", prefix(Letters::Upper, 16, 16)),
    ("ghp_", prefix(Letters::Alnum, 30, 255)),
    ("gho_", prefix(Letters::Alnum, 30, 255)),
    ("ghu_", prefix(Letters::Alnum, 30, 255)),
    ("ghs_", prefix(Letters::Alnum, 30, 255)),
    ("ghr_", prefix(Letters::Alnum, 30, 255)),
    ("github_pat_", prefix(Letters::Word, 22, 255)),
    ("glpat-", prefix(Letters::Dashed, 20, 255)),
    ("xoxa-", prefix(Letters::Dashed, 10, 255)),
    ("xoxb-", prefix(Letters::Dashed, 10, 255)),
    ("xoxe-", prefix(Letters::Dashed, 10, 255)),
    ("xoxp-", prefix(Letters::Dashed, 10, 255)),
    ("xoxr-", prefix(Letters::Dashed, 10, 255)),
    ("xoxs-", prefix(Letters::Dashed, 10, 255)),
    ("xapp-", prefix(Letters::Dashed, 10, 255)),
    ("sk-ant-", prefix(Letters::Dashed, 20, 255)),
    ("sk-proj-", prefix(Letters::Dashed, 20, 255)),
    ("sk-svcacct-", prefix(Letters::Dashed, 20, 255)),
    ("sk-or-v1-", prefix(Letters::Dashed, 20, 255)),
    // Words may continue after a dash (`sk-learn-…`); a key of this kind doesn't.
    ("sk-", prefix(Letters::Alnum, 32, 255)),
    ("AIza", prefix(Letters::Dashed, 35, 35)),
    ("ya29.", prefix(Letters::Dashed, 30, 1024)),
    ("sk_live_", prefix(Letters::Alnum, 16, 255)),
    ("sk_test_", prefix(Letters::Alnum, 16, 255)),
    ("rk_live_", prefix(Letters::Alnum, 16, 255)),
    ("rk_test_", prefix(Letters::Alnum, 16, 255)),
    ("whsec_", prefix(Letters::Alnum, 24, 255)),
    ("npm_", prefix(Letters::Alnum, 36, 36)),
    ("pypi-", prefix(Letters::Dashed, 60, 255)),
    ("hf_", prefix(Letters::Alnum, 30, 64)),
    // Regent's own tokens.
    ("rgt_", prefix(Letters::Word, 81, 81)),
    ("dop_v1_", prefix(Letters::Hex, 64, 64)),
    ("shpat_", prefix(Letters::Hex, 32, 32)),
    ("SG.", prefix(Letters::Dotted, 60, 80)),
    ("AGE-SECRET-KEY-1", prefix(Letters::Upper, 50, 64)),
    ("eyJ", Mark::Jwt),
    ("bearer ", Mark::Bearer),
    ("basic ", Mark::Bearer),
    ("-----BEGIN ", Mark::Block),
    ("://", Mark::Url),
    ("password", Mark::Named(FindingKind::Password)),
    ("passwd", Mark::Named(FindingKind::Password)),
    ("passphrase", Mark::Named(FindingKind::Password)),
    ("pwd", Mark::Named(FindingKind::Password)),
    ("secret", Mark::Named(FindingKind::Key)),
    ("token", Mark::Named(FindingKind::Token)),
    ("api_key", Mark::Named(FindingKind::Key)),
    ("api-key", Mark::Named(FindingKind::Key)),
    ("apikey", Mark::Named(FindingKind::Key)),
    ("access_key", Mark::Named(FindingKind::Key)),
    ("access-key", Mark::Named(FindingKind::Key)),
    ("accesskey", Mark::Named(FindingKind::Key)),
    ("accountkey", Mark::Named(FindingKind::Key)),
    ("auth_key", Mark::Named(FindingKind::Key)),
    ("credential", Mark::Named(FindingKind::Key)),
];

/// The automaton ignores case. Prefixes whose case matters are compared afterwards.
static AUTOMATON: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(MARKS.iter().map(|(text, _)| text))
        .ok()
});

pub(super) fn find(bytes: &[u8], found: &mut Vec<Finding>) {
    let Some(automaton) = &*AUTOMATON else { return };
    let mut ends = BlockEnds::default();
    for hit in automaton.find_iter(bytes) {
        let Some((text, mark)) = MARKS.get(hit.pattern().as_usize()) else { continue };
        let (start, end) = (hit.start(), hit.end());
        let exact = || bytes.get(start..end) == Some(text.as_bytes());
        let one = match *mark {
            Mark::Prefix { letters, least, most } if exact() => {
                known(bytes, start, end, (letters, least, most))
            }
            Mark::Jwt if exact() => jwt(bytes, start),
            Mark::Block if exact() => ends.block(bytes, start, end),
            Mark::Prefix { .. } | Mark::Jwt | Mark::Block => None,
            Mark::Bearer => bearer(bytes, start, end),
            Mark::Url => url_password(bytes, end),
            Mark::Named(kind) => named(bytes, end, kind),
        };
        found.extend(one);
    }
}

fn known(
    bytes: &[u8],
    start: usize,
    from: usize,
    (letters, least, most): (Letters, usize, usize),
) -> Option<Finding> {
    // `task-`, `risk-`: a match in the middle of a word is not a prefix.
    if is_word(before(bytes, start)) {
        return None;
    }
    let end = run_end(bytes, from, most.saturating_add(1), |byte| letters.has(byte));
    let key = bytes.get(from..end)?;
    let varied = key.iter().any(u8::is_ascii_digit) && key.iter().any(u8::is_ascii_alphabetic);
    ((least..=most).contains(&key.len()) && varied)
        .then_some(Finding { kind: FindingKind::Key, span: start..end })
}

/// Three base64 parts, the first of which is a JSON header.
fn jwt(bytes: &[u8], start: usize) -> Option<Finding> {
    if is_word(before(bytes, start)) {
        return None;
    }
    let part = |from| {
        run_end(bytes, from, TOKEN_BYTES_MAX, |byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let header_end = part(start);
    let body_end = part(dot(bytes, header_end)?);
    let end = part(dot(bytes, body_end)?);
    let header = bytes.get(start..header_end)?;
    let sure = header.len() >= 16 && body_end.saturating_sub(header_end) > 8;
    let json = URL_SAFE_NO_PAD
        .decode(header.get(..header.len() / 4 * 4)?)
        .is_ok_and(|json| json.starts_with(b"{\""));
    (sure && json).then_some(Finding { kind: FindingKind::Token, span: start..end })
}

fn dot(bytes: &[u8], at: usize) -> Option<usize> {
    (bytes.get(at) == Some(&b'.')).then(|| at.saturating_add(1))
}

/// `Bearer` and `Basic` are ordinary words too, so the following text must not be a word.
fn bearer(bytes: &[u8], start: usize, from: usize) -> Option<Finding> {
    if is_word(before(bytes, start)) {
        return None;
    }
    let end = run_end(bytes, from, TOKEN_BYTES_MAX, |byte| {
        byte.is_ascii_alphanumeric() || b"._~+/=-".contains(&byte)
    });
    let token = bytes.get(from..end)?;
    let sure =
        token.len() >= 12 && (entropy::is_random(token) || token.len() >= 20 && entropy::is_mixed(token));
    sure.then_some(Finding { kind: FindingKind::Token, span: from..end })
}

/// `scheme://user:password@host`.
fn url_password(bytes: &[u8], from: usize) -> Option<Finding> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"/?#@:\"'<>`\\".contains(&byte);
    let colon = run_end(bytes, from, USER_BYTES_MAX, fits);
    if bytes.get(colon) != Some(&b':') {
        return None;
    }
    let start = colon.saturating_add(1);
    let end = run_end(bytes, start, USER_BYTES_MAX, |byte| fits(byte) || byte == b':');
    let password = bytes.get(start..end)?;
    let is_password = bytes.get(end) == Some(&b'@') && password.len() >= 3 && !is_stand_in(password);
    is_password.then_some(Finding { kind: FindingKind::Password, span: start..end })
}

/// `NAME = value`, `"name": "value"`, `name=value`.
fn named(bytes: &[u8], name_end: usize, kind: FindingKind) -> Option<Finding> {
    let skip = |at: usize, which: &[u8], most: usize| run_end(bytes, at, most, |byte| which.contains(&byte));
    let quoted_end = skip(name_end, b"\"'`", 1);
    let sign = skip(quoted_end, b" \t", 4);
    let sign_end = skip(sign, b":=>", 2);
    if sign_end == sign {
        return None;
    }
    let spaced = skip(sign_end, b" \t", 4);
    let start = skip(spaced, b"\"'`", 1);
    let quote = (start > spaced).then(|| bytes.get(spaced).copied()).flatten();
    let end = match quote {
        Some(quote) => run_end(bytes, start, VALUE_BYTES_MAX, |byte| byte != quote && byte != b'\n'),
        None => run_end(bytes, start, VALUE_BYTES_MAX, |byte| {
            !byte.is_ascii_whitespace() && !b"\"'`,;&<>|)}]".contains(&byte)
        }),
    };
    let value = bytes.get(start..end)?;
    if quote.is_some() && bytes.get(end).copied() != quote || is_stand_in(value) {
        return None;
    }
    let tight = sign == name_end && spaced == sign_end && bytes.get(sign..sign_end) == Some(b"=");
    let fits = match (kind, quote) {
        (FindingKind::Password, Some(_)) => {
            value.len() >= 6 && !value.contains(&b' ')
                || value.len() >= 12 && value.iter().any(u8::is_ascii_digit)
        }
        (FindingKind::Password, None) => value.len() >= 6 && is_literal(value, tight),
        (_, Some(_)) => value.len() >= 8 && entropy::is_mixed(value) && !value.contains(&b' '),
        (_, None) => value.len() >= 12 && entropy::is_mixed(value) && is_literal(value, tight),
    };
    fits.then_some(Finding { kind, span: start..end })
}

/// Whether a value is a literal and not code: not a call or a path of names, and not a plain word unless it directly follows a `=`.
fn is_literal(value: &[u8], tight: bool) -> bool {
    let is_code = value.iter().any(|byte| b"(){}[]<>".contains(byte))
        || value.windows(2).any(|pair| pair == b"::" || pair == b"->");
    let has_digit = value.iter().any(u8::is_ascii_digit);
    let names = value.split(|byte| *byte == b'.');
    let is_path = value.contains(&b'.')
        && names.clone().all(|part| {
            part.first().is_some_and(u8::is_ascii_alphabetic)
                && part.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        });
    let is_word = value.iter().all(|byte| byte.is_ascii_alphabetic() || b"_-".contains(byte));
    !is_code
        && !is_path
        && (has_digit || tight && !is_word || !is_word && value.iter().any(u8::is_ascii_punctuation))
}

/// Whether a value is a placeholder: to be filled in, redacted, or a reference.
fn is_stand_in(value: &[u8]) -> bool {
    const WORDS: [&[u8]; 8] =
        [b"null", b"none", b"true", b"false", b"undefined", b"changeme", b"redacted", b"example"];
    let first = value.first().copied().unwrap_or(b'*');
    let same = value.iter().all(|byte| byte.eq_ignore_ascii_case(&first));
    let begins = b"$<{[%*".contains(&first)
        || value.starts_with(b"secret://")
        || value.starts_with(b"process.env")
        || value.starts_with(b"os.environ");
    begins
        || same
        || WORDS.iter().any(|word| value.eq_ignore_ascii_case(word))
        || value.windows(3).any(|three| three == b"..." || three == b"***")
}

/// Remembers that no block ends after some position, so that a text with many block starts stays linear.
#[derive(Default)]
struct BlockEnds {
    none_from: Option<usize>,
    taken: usize,
}

impl BlockEnds {
    fn block(&mut self, bytes: &[u8], start: usize, from: usize) -> Option<Finding> {
        const LABEL_BYTES_MAX: usize = 40;
        if start < self.taken {
            return None;
        }
        let label_end = run_end(bytes, from, LABEL_BYTES_MAX, |byte| {
            byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' '
        });
        let is_key = bytes.get(from..label_end)?.ends_with(b"PRIVATE KEY")
            && bytes.get(label_end..)?.starts_with(b"-----");
        if !is_key {
            return None;
        }
        let end = if self.none_from.is_some_and(|none| label_end >= none) {
            None
        } else {
            memchr::memmem::find(bytes.get(label_end..)?, b"PRIVATE KEY-----")
                .map(|at| label_end.saturating_add(at).saturating_add(16))
        };
        if end.is_none() {
            self.none_from.get_or_insert(label_end);
        }
        // A truncated key is still a key: the finding covers the rest of the text.
        let end = end.unwrap_or(bytes.len());
        self.taken = end;
        Some(Finding { kind: FindingKind::PrivateKey, span: start..end })
    }
}

#[cfg(test)]
pub(super) fn is_built() -> bool {
    AUTOMATON.is_some()
}
