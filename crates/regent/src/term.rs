//! Text from outside, made inert: what a file, a tool or an agent wrote can't drive the terminal or forge a line of ours.

use std::borrow::Cow;
use std::fmt::Write as _;

use regent_guard::invisible::is_invisible;

/// Escapes everything that could move a cursor, reorder text, hide itself or start a new line.
pub(crate) fn inline(text: &str) -> Cow<'_, str> {
    escape(text, Lines::Escaped)
}

/// The same, but line ends and tabs stay: for output of several lines.
pub(crate) fn block(text: &str) -> Cow<'_, str> {
    escape(text, Lines::Kept)
}

/// Bytes as text of several lines: what isn't UTF-8 is shown as `\xNN`.
pub(crate) fn block_of_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(&block(chunk.valid()));
        for byte in chunk.invalid() {
            push_hex(&mut out, *byte);
        }
    }
    out
}

/// The same text with each harmful character replaced by as many `?` as it has bytes, so that offsets into it stay true.
pub(crate) fn same_length(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) && c != '\n' && c != '\t' {
            out.extend(std::iter::repeat_n('?', c.len_utf8()));
        } else {
            out.push(c);
        }
    }
    out
}

/// JSON that says the same and holds nothing harmful: such characters are only ever inside of texts, where they can be written as escapes.
pub(crate) fn inert_json(json: String) -> String {
    if !json.chars().any(is_harmful) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_harmful(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a `String` can't fail.
                let _infallible = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// At most `chars_max` characters, escaped, with a mark where something was cut.
pub(crate) fn short(text: &str, chars_max: usize) -> String {
    let mut cut: String = text.chars().take(chars_max).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    inline(&cut).into_owned()
}

/// A number with its noun: `1 entry`, `2 entries`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    match (number, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        (_, Some(_) | None) => format!("{number} {noun}s"),
    }
}

/// A length of time in its two largest units: `23 h 59 min`.
pub(crate) fn span(ms: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let seconds = ms / 1000;
    let Some(first) = UNITS.iter().position(|(_, each)| seconds >= *each) else { return "0 s".to_owned() };
    let mut left = seconds;
    let mut parts = Vec::new();
    for (unit, each) in UNITS.iter().skip(first).take(2) {
        if left >= *each {
            parts.push(format!("{} {unit}", left / each));
        }
        left %= each;
    }
    parts.join(" ")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    Kept,
    Escaped,
}

fn escape(text: &str, lines: Lines) -> Cow<'_, str> {
    let stays = |c: char| !is_harmful(c) || (lines == Lines::Kept && (c == '\n' || c == '\t'));
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if stays(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => match u8::try_from(u32::from(c)) {
                Ok(byte) if byte < 0x80 => push_hex(&mut out, byte),
                Ok(_) | Err(_) => out.extend(c.escape_unicode()),
            },
        }
    }
    Cow::Owned(out)
}

fn push_hex(out: &mut String, byte: u8) {
    // Writing to a `String` can't fail.
    let _infallible = write!(out, "\\x{byte:02x}");
}

/// Control characters (C0, C1), and what shows as nothing or turns the text around it.
fn is_harmful(c: char) -> bool {
    c.is_control() || is_invisible(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_agree_with_their_nouns_and_spans_have_two_units() {
        for (number, noun, shown) in
            [(1, "entry", "1 entry"), (0, "entry", "0 entries"), (2, "lane", "2 lanes"), (3, "day", "3 days")]
        {
            assert_eq!(count(number, noun), shown);
        }
        for (seconds, shown) in [
            (0, "0 s"),
            (59, "59 s"),
            (61, "1 min 1 s"),
            (86_386, "23 h 59 min"),
            (90_000, "1 d 1 h"),
            (86_460, "1 d"),
        ] {
            assert_eq!(span(seconds * 1000), shown);
        }
    }
    use proptest::prelude::*;

    #[test]
    fn adv_010_terminal_escapes_are_inert() {
        for (hostile, shown) in [
            (
                "\x1b]8;;http://evil.test\x07link\x1b]8;;\x07",
                "\\x1b]8;;http://evil.test\\x07link\\x1b]8;;\\x07",
            ),
            ("\x1b]52;c;cm0gLXJm\x07", "\\x1b]52;c;cm0gLXJm\\x07"),
            ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
            ("\x1bP$qm\x1b\\", "\\x1bP$qm\\x1b\\"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\rb", "a\\rb"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("zero\u{200b}width", "zero\\u{200b}width"),
        ] {
            assert_eq!(inline(hostile), shown);
            assert_eq!(block(hostile), shown);
        }
    }

    #[test]
    fn adv_009_a_name_cannot_forge_a_line() {
        assert_eq!(inline("a\n12:00 allow"), "a\\n12:00 allow");
        assert_eq!(block_of_bytes(b"ok \xff\xfe\n"), "ok \\xff\\xfe\n");
    }

    #[test]
    fn m3_escapes_everything_invisible() {
        // A prompt in variation selectors, and the fillers that other lists forgot.
        for hidden in
            ["\u{e0100}", "\u{e01ef}", "\u{fe0f}", "\u{ad}", "\u{3164}", "\u{115f}", "\u{34f}", "\u{2800}"]
        {
            let shown = inline(hidden).into_owned();
            assert!(shown.starts_with("\\u{") && shown.is_ascii(), "{shown:?}");
            assert_eq!(block(&format!("a{hidden}b")), format!("a{shown}b"));
        }
    }

    #[test]
    fn plain_text_is_not_copied() {
        assert!(matches!(inline("grüße, 世界"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left(text in "\\PC*|[\\x00-\\x{1f}\\x{202e}\\x{9b}a-z]{0,40}") {
            prop_assert!(!inline(&text).chars().any(is_harmful));
            prop_assert!(!block(&text).chars().any(|c| is_harmful(c) && c != '\n' && c != '\t'));
            prop_assert_eq!(same_length(&text).len(), text.len());
            let json = inert_json(serde_json::json!({ &text: &text }).to_string());
            prop_assert!(!json.chars().any(is_harmful));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), serde_json::json!({ &text: &text }));
        }
    }
}
