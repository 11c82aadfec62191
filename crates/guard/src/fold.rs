//! Name folding: two names that some file system treats as one fold to the same text.
//!
//! All guarded names are ASCII. Folding therefore only has to find every spelling that a file system can take for ASCII: other cases (full
//! case folding: `ﬁ` is `fi`, the Kelvin sign is `k`), code points that HFS+ and ext4's `casefold` ignore, and the trailing dots, trailing
//! spaces and stream names (`.git::$INDEX_ALLOCATION`) that NTFS and SMB servers cut off. Canonical (de)composition changes no ASCII name:
//! no composed letter is equivalent to an ASCII letter, except the Kelvin sign, which case folding covers.

use std::borrow::Cow;

use crate::invisible::is_invisible;

/// The folded form of one file name. Folding is idempotent.
pub fn fold_name(name: &str) -> Cow<'_, str> {
    if is_folded(name) {
        return Cow::Borrowed(name);
    }
    let mut folded = String::with_capacity(name.len());
    folded.extend(name.chars().map(narrow).filter(|c| !is_invisible(*c)).flat_map(fold_char));
    if let Some((at, _)) = folded.char_indices().skip(1).find(|(_, c)| *c == ':') {
        folded.truncate(at);
    }
    let kept = folded.trim_end_matches([' ', '.']).len();
    // A name of only dots and spaces is not a guarded name in any spelling.
    if kept > 0 {
        folded.truncate(kept);
    }
    Cow::Owned(folded)
}

/// The folded form of a path, component by component.
pub fn fold_path(path: &str) -> Cow<'_, str> {
    if path.split('/').all(is_folded) {
        return Cow::Borrowed(path);
    }
    let parts: Vec<_> = path.split('/').map(fold_name).collect();
    Cow::Owned(parts.join("/"))
}

/// The common case, which needs no allocation.
fn is_folded(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase() && byte != b':')
        && !name.ends_with([' ', '.'])
}

/// Full-width letters look like ASCII on a screen, and some file servers map them to ASCII.
fn narrow(c: char) -> char {
    match c {
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(u32::from(c) - 0xFEE0).unwrap_or(c),
        other => other,
    }
}

/// Goes through upper case, which decomposes ligatures, the sharp s, the long s and the dotless i as full case folding does.
fn fold_char(c: char) -> impl Iterator<Item = char> {
    c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}
