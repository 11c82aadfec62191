//! Finds email addresses.

use super::{Finding, FindingKind, before, run_end};

const LOCAL_BYTES_MAX: usize = 64;
const DOMAIN_BYTES_MAX: usize = 253;
/// Suffixes of systemd units and files rather than domains: `getty@tty1.service`, `icon@2x.png`.
const NOT_DOMAINS: &[&str] = &[
    "service",
    "socket",
    "timer",
    "target",
    "mount",
    "automount",
    "slice",
    "scope",
    "device",
    "swap",
    "png",
    "jpg",
    "jpeg",
    "gif",
    "svg",
    "webp",
    "js",
    "mjs",
    "ts",
    "tsx",
    "jsx",
    "json",
    "yml",
    "yaml",
    "toml",
    "txt",
    "html",
    "css",
    "xml",
    "log",
    "conf",
    "lock",
    "tgz",
    "zip",
];

pub(super) fn find(bytes: &[u8], found: &mut Vec<Finding>) {
    for at in memchr::memchr_iter(b'@', bytes) {
        found.extend(address(bytes, at));
    }
}

fn address(bytes: &[u8], at: usize) -> Option<Finding> {
    let is_local =
        |byte: &u8| byte.is_ascii_alphanumeric() || b".!#$%&*+/?^_{|}~-".contains(byte) || !byte.is_ascii();
    let local = bytes
        .get(..at)?
        .iter()
        .rev()
        .take(LOCAL_BYTES_MAX.saturating_add(1))
        .take_while(|byte| is_local(byte));
    let mut start = at.saturating_sub(local.count());
    // Leading ASCII punctuation belongs to the sentence. Characters of other scripts are kept.
    while start < at && bytes.get(start).is_some_and(|byte| !byte.is_ascii_alphanumeric() && byte.is_ascii())
    {
        start = start.saturating_add(1);
    }
    let local = bytes.get(start..at)?;
    if local.is_empty() || local.len() > LOCAL_BYTES_MAX || in_url(bytes, start) {
        return None;
    }
    let from = at.saturating_add(1);
    let mut end =
        run_end(bytes, from, DOMAIN_BYTES_MAX, |byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    while before(bytes, end).is_some_and(|byte| b".-".contains(&byte)) && end > from {
        end = end.saturating_sub(1);
    }
    let domain = std::str::from_utf8(bytes.get(from..end)?).ok()?;
    let (labels, top) = domain.rsplit_once('.')?;
    let fine = |label: &str| {
        !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_top =
        top.len() >= 2 && (top.bytes().all(|byte| byte.is_ascii_alphabetic()) || top.starts_with("xn--"));
    let is_file = NOT_DOMAINS.iter().any(|word| word.eq_ignore_ascii_case(top));
    // `git@host:path` names a repository, not an email address.
    let is_remote = local == b"git" && matches!(bytes.get(end), Some(b':' | b'/'));
    let whole = !bytes.get(end).is_some_and(|byte| *byte == b'_' || *byte == b'@');
    (labels.split('.').all(fine) && is_top && !is_file && !is_remote && whole)
        .then_some(Finding { kind: FindingKind::Email, span: start..end })
}

/// Whether the text before the `@` is a URL's user part: `ssh://git@…`, `https://user:…@…`.
fn in_url(bytes: &[u8], start: usize) -> bool {
    let back = bytes.get(start.saturating_sub(LOCAL_BYTES_MAX)..start).unwrap_or_default();
    let word = back
        .rsplit(|byte| byte.is_ascii_whitespace() || b"\"'<>()".contains(byte))
        .next()
        .unwrap_or_default();
    memchr::memmem::rfind(word, b"://")
        .is_some_and(|at| !word.get(at.saturating_add(3)..).unwrap_or_default().contains(&b'/'))
}
