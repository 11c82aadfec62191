//! Finds unnamed random strings, only where no other content looks similar.

use super::{Finding, FindingKind, run_end};

/// Shorter runs are often identifiers.
const RUN_BYTES_MIN: usize = 32;
/// Longer runs are content: images, archives.
const RUN_BYTES_MAX: usize = 128;
/// Bits per character that random base62 of this length reaches; names and sentences don't.
const BITS_MIN: f64 = 4.2;

pub(super) fn find(bytes: &[u8], found: &mut Vec<Finding>) {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_+/-".contains(&byte);
    // Every run of at least the minimum length covers one of these sample positions.
    let mut at = RUN_BYTES_MIN - 1;
    while let Some(byte) = bytes.get(at) {
        if !fits(*byte) {
            at = at.saturating_add(RUN_BYTES_MIN);
            continue;
        }
        let back = bytes
            .get(..at)
            .unwrap_or_default()
            .iter()
            .rev()
            .take(RUN_BYTES_MIN)
            .take_while(|byte| fits(**byte));
        let start = at.saturating_sub(back.count());
        let end = run_end(bytes, start, usize::MAX, fits);
        let run = bytes.get(start..end).unwrap_or_default();
        if is_key(run) && !has_context(bytes, start, end) {
            found.push(Finding { kind: FindingKind::Key, span: start..end });
        }
        at = end.saturating_add(RUN_BYTES_MIN);
    }
}

/// Whether a run is random, and not words, hexadecimal, a path or embedded content.
fn is_key(run: &[u8]) -> bool {
    (RUN_BYTES_MIN..=RUN_BYTES_MAX).contains(&run.len())
        && run.iter().filter(|byte| **byte == b'/').count() <= 1
        && run.iter().filter(|byte| **byte == b'-' || **byte == b'_').count() <= 4
        && !run.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
        && is_random(run)
}

/// Whether the context explains the run: a prefix of a digest or an embedded file (`sha256-…`, `sha512:…`, `;base64,…`), or a surrounding
/// name or address.
fn has_context(bytes: &[u8], start: usize, end: usize) -> bool {
    let before = bytes.get(start.saturating_sub(16)..start).unwrap_or_default();
    let run = bytes.get(start..end).unwrap_or_default();
    let digest =
        [&b"sha1-"[..], b"sha256-", b"sha384-", b"sha512-", b"h1"].iter().any(|word| run.starts_with(word));
    let named = [&b"base64,"[..], b"sha256:", b"sha512:", b"SHA256:", b"h1:"]
        .iter()
        .any(|word| before.ends_with(word));
    let inside = before.last().is_some_and(|byte| b".\\@%".contains(byte) || !byte.is_ascii())
        || bytes.get(end).is_some_and(|byte| b"(@".contains(byte) || !byte.is_ascii());
    digest || named || inside
}

/// Whether character classes alternate as often as by chance, all classes occur, and no character is too frequent.
pub(super) fn is_random(text: &[u8]) -> bool {
    let kind = |byte: u8| match byte {
        b'a'..=b'z' => 0,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        _other => 3,
    };
    let has = |wanted| text.iter().any(|byte| kind(*byte) == wanted);
    let digits = text.iter().filter(|byte| byte.is_ascii_digit()).count();
    let changes =
        text.windows(2).filter(|pair| matches!(pair, [one, other] if kind(*one) != kind(*other))).count();
    has(0)
        && has(1)
        && digits >= 3
        && changes.saturating_mul(100) >= text.len().saturating_mul(42)
        && bits(text) >= BITS_MIN.min(most_bits(text.len()) * 0.85)
}

/// Whether the text has at least two character classes and not one repeated character. For values whose name marks them as credentials.
pub(super) fn is_mixed(text: &[u8]) -> bool {
    let kinds = [
        text.iter().any(u8::is_ascii_lowercase),
        text.iter().any(u8::is_ascii_uppercase),
        text.iter().any(u8::is_ascii_digit),
        text.iter().any(|byte| byte.is_ascii_punctuation()),
    ];
    let digits = kinds.get(2).copied().unwrap_or(false);
    digits && kinds.iter().filter(|has| **has).count() >= 2 && bits(text) >= 2.5
}

/// Shannon entropy in bits per character.
#[expect(clippy::cast_precision_loss, reason = "lengths of a few kilobytes")]
fn bits(text: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count = count.saturating_add(1);
        }
    }
    let whole = text.len().max(1) as f64;
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / whole)
        .map(|share| -share * share.log2())
        .sum()
}

/// The maximum entropy of a text of this length.
#[expect(clippy::cast_precision_loss, reason = "lengths of a few kilobytes")]
fn most_bits(length: usize) -> f64 {
    (length.max(1) as f64).log2()
}
