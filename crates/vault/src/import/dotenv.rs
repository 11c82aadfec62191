//! `.env`: one `NAME=value` per line, with shell quotes. Values are literal: nothing is expanded.

use regent_kernel::Secret;
use zeroize::Zeroizing;

use crate::error::VaultError;

pub(super) fn read(text: &str) -> Result<Vec<(String, Secret)>, VaultError> {
    let mut found = Vec::new();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut line = 1_usize;
    while !rest.is_empty() {
        let at = |why: &str| VaultError::Import(format!("line {line}: {why}"));
        let (entry, mut next) = rest.split_once('\n').unwrap_or((rest, ""));
        let entry = entry.trim_start();
        if !entry.trim().is_empty() && !entry.starts_with('#') {
            let entry = entry.strip_prefix("export ").unwrap_or(entry);
            let (name, value) =
                entry.split_once('=').ok_or_else(|| at("expected a name, `=` and a value"))?;
            let (name, value) = (name.trim(), value.trim_start());
            let fine = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
            if name.is_empty() || !name.chars().all(fine) {
                return Err(at("the name has invalid characters"));
            }
            let value = match value.chars().next() {
                // A quoted value may span lines, so it is parsed from all remaining text.
                Some(quote @ ('"' | '\'')) => {
                    // `value` is the end of its line, so its length gives the start.
                    let line_end = rest.find('\n').unwrap_or(rest.len());
                    let start = line_end.saturating_sub(value.len()).saturating_add(1);
                    let quoted = rest.get(start..).unwrap_or_default();
                    let (value, end) =
                        quoted_value(quoted, quote).ok_or_else(|| at("the quote is not closed"))?;
                    let tail = quoted.get(end..).unwrap_or_default();
                    let (left, after) = tail.split_once('\n').unwrap_or((tail, ""));
                    if !left.trim().is_empty() && !left.trim_start().starts_with('#') {
                        return Err(at("unexpected text after the closing quote"));
                    }
                    next = after;
                    value
                }
                Some(_) | None => {
                    let end = value.find(" #").unwrap_or(value.len());
                    value.get(..end).unwrap_or_default().trim_end().as_bytes().to_vec()
                }
            };
            found.push((name.to_owned(), Secret::new(value)));
        }
        let taken = rest.get(..rest.len().saturating_sub(next.len())).unwrap_or_default();
        line = line.saturating_add(taken.matches('\n').count());
        rest = next;
    }
    Ok(found)
}

/// The text up to the closing quote, and the quote's position. Backslashes escape only in double quotes.
fn quoted_value(text: &str, quote: char) -> Option<(Vec<u8>, usize)> {
    let mut value = Zeroizing::new(String::new());
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            letter if letter == quote => return Some((value.as_bytes().to_vec(), at.saturating_add(1))),
            '\\' if quote == '"' => match letters.next()?.1 {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                other @ ('"' | '\\' | '$' | '`') => value.push(other),
                other => value.extend(['\\', other]),
            },
            letter => value.push(letter),
        }
    }
    None
}
