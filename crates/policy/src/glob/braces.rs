//! Expands `{a,b}` groups into patterns.

use super::{ALTERNATIVES_MAX, GlobError, PATTERN_BYTES_MAX, SELF};

/// Expands all `{a,b}` groups.
pub(crate) fn expand(pattern: &str) -> Result<Vec<String>, GlobError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(GlobError::TooLong);
    }
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(next) = open.pop() {
        if done.len() + open.len() >= ALTERNATIVES_MAX {
            return Err(GlobError::TooMany);
        }
        match group(&next)? {
            None => done.push(next),
            Some((before, inside, after)) => {
                for alternative in split_top(inside).into_iter().rev() {
                    open.push(format!("{before}{alternative}{after}"));
                }
            }
        }
    }
    Ok(done)
}

/// The first group, with the text before and after it. `${agent}`, escaped braces and braces in a class don't count.
fn group(pattern: &str) -> Result<Option<(&str, &str, &str)>, GlobError> {
    let (mut depth, mut start, mut from) = (0_u32, 0, 0);
    while let Some((at, mark)) = next_mark(pattern, from) {
        from = at + mark.len_utf8();
        match mark {
            '{' => {
                if depth == 0 {
                    start = at;
                }
                depth += 1;
            }
            '}' => {
                depth = depth.checked_sub(1).ok_or(GlobError::OpenBrace)?;
                if depth == 0 {
                    let parts = (pattern.get(..start), pattern.get(start + 1..at), pattern.get(at + 1..));
                    let (Some(before), Some(inside), Some(after)) = parts else {
                        return Err(GlobError::OpenBrace);
                    };
                    return Ok(Some((before, inside, after)));
                }
            }
            _ => {}
        }
    }
    if depth == 0 { Ok(None) } else { Err(GlobError::OpenBrace) }
}

/// Splits a group at its top-level commas.
fn split_top(inside: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start, mut from) = (Vec::new(), 0_u32, 0, 0);
    while let Some((at, mark)) = next_mark(inside, from) {
        from = at + mark.len_utf8();
        match mark {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.extend(inside.get(start..at));
                start = from;
            }
            _ => {}
        }
    }
    parts.extend(inside.get(start..));
    parts
}

/// The next significant brace or comma.
fn next_mark(pattern: &str, from: usize) -> Option<(usize, char)> {
    let tail = pattern.get(from..)?;
    let mut chars = tail.char_indices();
    let mut in_class = false;
    while let Some((offset, next)) = chars.next() {
        match next {
            '\\' => {
                chars.next();
            }
            '[' => in_class = true,
            ']' => in_class = false,
            '$' if tail.get(offset..).is_some_and(|rest| rest.starts_with(SELF)) => {
                for _ in 1..SELF.len() {
                    chars.next();
                }
            }
            '{' | '}' | ',' if !in_class => return Some((from + offset, next)),
            _ => {}
        }
    }
    None
}
