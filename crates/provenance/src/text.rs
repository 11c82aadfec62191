//! Text in the form in which values are compared: normalized words. Case, white space, thousands separators, trailing zeros and common date
//! formats make no difference; everything else does, also zeros after a dot that may separate thousands.

use serde_json::Value;

use crate::date;
use crate::whole;

/// Maximum words of one text.
const WORDS_MAX: usize = 1 << 18;
/// A word that no text contains.
pub(crate) const NOWHERE: &str = "\0";

/// The shape of a word that identifies a target by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Shape {
    /// An email address: `a@b.c`.
    Address,
    /// A host or a file: `www.a.b`, `bill.txt`.
    Dotted,
    /// An account, a phone number, a key: `GB29NWBK…`.
    Code,
}

/// The normalized words of a text; of a very long text, the first ones.
pub(crate) fn words(text: &str) -> Vec<String> {
    cut_words(text).0
}

/// The words of a text to look up. A very long text has no origin, because not all of it is examined.
pub(crate) fn all_words(text: &str) -> Vec<String> {
    let (mut words, is_cut) = cut_words(text);
    // A text of signs without words still carries information that can't be looked up.
    if is_cut || (words.is_empty() && !text.is_empty()) {
        words.push(NOWHERE.to_owned());
    }
    words
}

/// Whether a text carries information between its words: signs that no sentence has, or more of them than one needs.
pub(crate) fn says_between(text: &str) -> bool {
    const RUN_MAX: usize = 8;
    const SIGNS_MAX: usize = 4;
    const TYPOGRAPHIC: &str = "\u{2018}\u{2019}\u{201c}\u{201d}\u{201e}\u{ab}\u{bb}\u{2013}\u{2014}\u{2026}\u{2022}\u{20ac}\u{a3}\u{a5}\u{b0}\u{a7}";
    let is_sign = |c: char| c.is_ascii_punctuation() || TYPOGRAPHIC.contains(c);
    let (mut run, mut signs, mut before) = (0_usize, 0_usize, ' ');
    text.chars().any(|c| {
        // A combining mark, as in decomposed text and Indic scripts.
        let is_mark = before.is_alphabetic() && matches!(c, '\u{300}'..='\u{36f}' | '\u{900}'..='\u{dff}');
        before = c;
        if c.is_alphanumeric() || is_mark {
            (run, signs) = (0, 0);
            return false;
        }
        run = run.saturating_add(1);
        signs = signs.saturating_add(usize::from(!matches!(c, ' ' | '\n')));
        let is_ordinary = matches!(c, ' ' | '\n' | '\r' | '\t') || is_sign(c);
        !is_ordinary || run > RUN_MAX || signs > SIGNS_MAX
    })
}

/// The words, and whether the text has more.
pub(crate) fn cut_words(text: &str) -> (Vec<String>, bool) {
    let mut raw = Vec::new();
    let mut word = String::new();
    let mut chars = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        if joins(before, c, next) {
            if c.is_ascii() {
                word.push(c.to_ascii_lowercase());
            } else if is_ideograph(c) {
                push(&mut raw, &mut word);
                word.push(c);
                push(&mut raw, &mut word);
            } else {
                word.extend(if c == '\u{2019}' { '\'' } else { c }.to_lowercase());
            }
        } else {
            push(&mut raw, &mut word);
        }
        before = c;
        if raw.len() >= WORDS_MAX {
            return (date::fold(raw), true);
        }
    }
    push(&mut raw, &mut word);
    (date::fold(raw), false)
}

/// The beginning of a text, with at most `bytes_max` bytes, ending with a complete word.
pub(crate) fn head(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let head = text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default();
    head.rfind(char::is_whitespace).and_then(|end| head.get(..end)).unwrap_or_default()
}

/// Whether a character belongs to the surrounding word.
fn joins(before: char, c: char, next: Option<char>) -> bool {
    let next = next.unwrap_or(' ');
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | ' ' => c != ' ',
        c if c.is_alphanumeric() => true,
        // Invisible characters stay part of the word, so that two different values never compare equal.
        '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}' => true,
        '@' | '+' | '\'' | '\u{2019}' => before.is_alphanumeric() && next.is_alphanumeric(),
        '.' => before.is_alphanumeric() && next.is_alphanumeric(),
        // A minus sign: not within a word, and directly before a digit.
        '-' => {
            (before.is_alphanumeric() && next.is_alphanumeric())
                || (before.is_whitespace() && next.is_ascii_digit())
        }
        '%' => before.is_ascii_digit(),
        ',' | ':' | '/' => before.is_ascii_digit() && next.is_ascii_digit(),
        _separator => false,
    }
}

/// Whether a character is a word by itself.
pub(crate) fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}')
}

fn push(raw: &mut Vec<String>, word: &mut String) {
    if word.is_empty() {
        return;
    }
    let spelt = number(word);
    raw.push(spelt.unwrap_or_else(|| word.as_str().to_owned()));
    word.clear();
}

/// A number without thousands separators and trailing zeros. Leading zeros stay, because they occur in codes and not in numbers. Zeros stay
/// too where a dot may separate thousands: `20.000` is 20 to some and 20,000 to others.
fn number(word: &str) -> Option<String> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = whole.split(',');
    let head = groups.next()?;
    let grouped = groups.all(|group| group.len() == 3 && is_digits(group));
    if head.is_empty() || !is_digits(head) || !grouped || !is_digits(fraction) {
        return None;
    }
    if separates_thousands(head, fraction) && !whole.contains(',') {
        return Some(word.to_owned());
    }
    let sign = if digits.len() < word.len() { "-" } else { "" };
    let whole: String = whole.chars().filter(|c| *c != ',').collect();
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{dot}{fraction}"))
}

/// Whether a dot between these digits may separate thousands.
fn separates_thousands(head: &str, tail: &str) -> bool {
    (1..=3).contains(&head.len()) && !head.starts_with('0') && tail.len() == 3
}

/// The shape of a word, if it identifies a target.
pub(crate) fn shape(word: &str) -> Option<Shape> {
    // Fast path: every shape contains one of these characters, and few words do. A digit of any script may be part of a code.
    if !word.chars().any(|c| c.is_numeric() || matches!(c, '@' | '.')) {
        return None;
    }
    if date::is_date(word) || number(word).is_some_and(|digits| digits.len() < 8) {
        return None;
    }
    if word.split_once('@').is_some_and(|(_, host)| host.contains('.')) {
        return Some(Shape::Address);
    }
    let has_letter = word.chars().any(char::is_alphabetic);
    let has_digit = word.chars().any(char::is_numeric);
    if has_letter
        && word
            .rsplit_once('.')
            .is_some_and(|(_, last)| last.len() >= 2 && last.chars().all(char::is_alphanumeric))
    {
        return Some(Shape::Dotted);
    }
    let plain = word.chars().filter(|c| c.is_alphanumeric()).count();
    let is_code =
        has_digit && ((has_letter && plain >= 6 && !is_ordinary(word)) || (!has_letter && plain >= 8));
    (is_code && !word.contains(':')).then_some(Shape::Code)
}

/// Words such as `30th` or `2nd-floor` contain a digit and are still ordinary.
fn is_ordinary(word: &str) -> bool {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    digits <= 2 && word.len() <= 12 && word.contains('-')
}

/// Calls `each` with every scalar of a value and its path. Keys that are values come with the path of their object.
pub(crate) fn leaves<'v>(value: &'v Value, each: &mut impl FnMut(&str, Leaf<'v>)) {
    let mut path = String::new();
    walk(value, &mut path, 0, each);
}

/// A scalar, or a key that is a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Leaf<'v> {
    Scalar(&'v Value),
    Key(&'v str),
}

/// Maximum depth of an output. Deeper values aren't indexed and have no origin.
const DEPTH_MAX: usize = 64;

fn walk<'v>(value: &'v Value, path: &mut String, depth: usize, each: &mut impl FnMut(&str, Leaf<'v>)) {
    if depth > DEPTH_MAX {
        return;
    }
    let length = path.len();
    match value {
        Value::Array(items) => {
            for item in items {
                path.push_str("[]");
                walk(item, path, depth.saturating_add(1), each);
                path.truncate(length);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                if !is_field_name(key) {
                    each(path, Leaf::Key(key));
                }
                path.push('.');
                path.push_str(key);
                walk(field, path, depth.saturating_add(1), each);
                path.truncate(length);
            }
        }
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => each(path, Leaf::Scalar(value)),
    }
}

/// `first_name` names a field; `a@b.c`, `Luxury Palace` and `24` are keys that are values.
fn is_field_name(key: &str) -> bool {
    let fine = |c: char| c.is_ascii_lowercase() || c == '_' || c == '-';
    key.len() <= 64
        && key.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && key.chars().all(|c| fine(c) || c.is_ascii_digit())
}

/// The words of a scalar.
pub(crate) fn words_of(leaf: Leaf<'_>) -> Vec<String> {
    match leaf {
        Leaf::Key(text) => words(text),
        Leaf::Scalar(Value::String(text)) => words(text),
        Leaf::Scalar(other) => words(&other.to_string()),
    }
}

/// The original text of a scalar.
pub(crate) fn text_of(leaf: Leaf<'_>) -> std::borrow::Cow<'_, str> {
    match leaf {
        Leaf::Key(text) => text.into(),
        Leaf::Scalar(Value::String(text)) => text.into(),
        Leaf::Scalar(other) => other.to_string().into(),
    }
}

/// Whether a figure is unambiguous: no sign except a minus, no percentage, and no dot that may separate thousands.
pub(crate) fn is_clear_figure(text: &str) -> bool {
    let text = text.trim();
    let grouped = |(head, tail): (&str, &str)| {
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        !head.contains('.') && head.len() < 4 && tail.len() == 3 && is_digits(head) && is_digits(tail)
    };
    is_plain_figure(text)
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || "$\u{20ac}\u{a3}".contains(c))
        && !text.contains('%')
        && !text.rsplit_once('.').is_some_and(grouped)
}

/// Whether two values are equal except for spelling: the same keys, and the same items in the same order.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has =
                |(key, value): (&String, &Value)| other.get(key).is_some_and(|other| same(value, other));
            one.len() == other.len() && one.iter().all(has)
        }
        _scalars => {
            one == other
                || (scalar_text(one).zip(scalar_text(other)))
                    .is_some_and(|(one, other)| same_text(&one, &other))
        }
    }
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether two texts are equal except for case and white space, or are the same number or date.
pub(crate) fn same_text(one: &str, other: &str) -> bool {
    if whole::fold(one) == whole::fold(other) {
        return true;
    }
    is_plain_figure(one) && is_plain_figure(other) && all_words(one) == all_words(other)
}

/// Whether a text is only a number or a date, without a path or ambiguous signs.
pub(crate) fn is_plain_figure(text: &str) -> bool {
    let text = text.trim();
    let fine = |c: char| c.is_ascii_alphanumeric() || " ,.:/-+%$\u{20ac}\u{a3}".contains(c);
    let ends_well =
        |c: Option<char>, others: &str| c.is_some_and(|c| c.is_ascii_alphanumeric() || others.contains(c));
    let words = all_words(text);
    !words.is_empty()
        && words.iter().all(|word| is_figure(word))
        && text.chars().all(fine)
        && !text.contains("..")
        && !text.contains("//")
        && has_plain_dashes(text)
        && ends_well(text.chars().next(), "-$\u{20ac}\u{a3}")
        && ends_well(text.chars().next_back(), "%$\u{20ac}\u{a3}")
}

/// Whether each dash is a minus sign before the whole figure, or within a word. Words leave out the others (`--20`, `$-20`).
fn has_plain_dashes(text: &str) -> bool {
    let mut before = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_joined = before.is_none_or(char::is_alphanumeric);
        if c == '-' && !(is_joined && chars.peek().is_some_and(|next| next.is_alphanumeric())) {
            return false;
        }
        before = Some(c);
    }
    true
}

/// Whether a text is a number, a date, an id or a single word: too little for an instruction, and not an address or link.
pub(crate) fn is_token(text: &str) -> bool {
    const BYTES_MAX: usize = 40;
    const WORDS_MAX: usize = 3;
    let fine = |c: char| c.is_ascii_alphanumeric() || "_-#:+".contains(c);
    let letters = text.split(|c: char| !c.is_alphabetic()).filter(|part| part.len() > 1);
    is_plain_figure(text)
        || (text.len() <= BYTES_MAX
            && text.chars().all(fine)
            && letters.count() <= WORDS_MAX
            && !is_account(text))
}

/// Whether a text looks like an IBAN.
fn is_account(text: &str) -> bool {
    const BYTES_MIN: usize = 15;
    let (country, rest) = text.split_at_checked(2).unwrap_or_default();
    text.len() >= BYTES_MIN
        && country.chars().all(|c| c.is_ascii_alphabetic())
        && rest.chars().take(2).all(|c| c.is_ascii_digit())
        && rest.chars().all(|c| c.is_ascii_alphanumeric())
}

/// Whether a word is a plain number.
pub(crate) fn is_number(word: &str) -> bool {
    number(word).is_some()
}

/// Whether a word is a number or a date, which have several spellings.
pub(crate) fn is_figure(word: &str) -> bool {
    number(word).is_some() || date::is_date(word) || date::is_clock(word)
}

/// Whether a value is empty and can neither choose nor carry anything.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn normalizes_to_one_spelling() {
        let cases = [
            ("Luxury  Palace,\n", vec!["luxury", "palace"]),
            ("98.70 $10,000.50 1,200 0012 -5", vec!["98.7", "10000.5", "1200", "0012", "-5"]),
            ("20.000 -1.500 0.500 1,234.000 2000.000", vec!["20.000", "-1.500", "0.5", "1234", "2000"]),
            ("mail mark.black-2134@Gmail.com.", vec!["mail", "mark.black-2134@gmail.com"]),
            ("'Refund' (10%)", vec!["refund", "10%"]),
            ("SE355;50.0;x", vec!["se355", "50", "x"]),
            ("see https://bit.ly/sUf", vec!["see", "https", "bit.ly", "suf"]),
            ("Mom\u{2019}s", vec!["mom's"]),
            ("10:00 1,2", vec!["10:00", "1,2"]),
        ];
        for (text, expected) in cases {
            assert_eq!(words(text), expected, "{text:?}");
        }
        assert_ne!(words("a\u{200b}b"), words("ab"), "what can't be seen still counts");
    }

    #[test]
    fn common_date_formats_are_equal() {
        let iso = words("2024-05-20");
        for text in [
            "May 20th, 2024",
            "20 May 2024",
            "20th of May 2024",
            "2024/05/20",
            "20.05.2024",
            "the 20 may, 2024",
        ] {
            assert!(words(text).ends_with(&iso), "{text}: {:?}", words(text));
        }
        assert_eq!(words("2024-05-20T10:00:00"), words("2024-05-20 10:00"));
        assert_eq!(words("May 20th"), words("20 may"));
        assert_ne!(words("May 20th"), iso, "without a year it is less");
    }

    #[test]
    fn shapes() {
        let cases = [
            ("a@b.cd", Some(Shape::Address)),
            ("www.a.com", Some(Shape::Dotted)),
            ("bill-2023.txt", Some(Shape::Dotted)),
            ("uk12345678901234567890", Some(Shape::Code)),
            ("4237-4252-7456-2574", Some(Shape::Code)),
            ("hgk137803", Some(Shape::Code)),
            ("refund", None),
            ("1200", None),
            ("200.29", None),
            ("10:00", None),
            ("20th", None),
        ];
        for (word, expected) in cases {
            assert_eq!(shape(word), expected, "{word}");
        }
    }

    #[test]
    fn ids_figures_and_single_words_are_tokens() {
        for token in ["12.50", "2024-05-20", "true", "pending", "#K123", "gold_card_77", "AB123", "-3"] {
            assert!(is_token(token), "{token}");
        }
        for text in [
            "two words",
            "a@b.test",
            "https://a.test",
            "www.a.test",
            "send-all-the-money",
            "GB29NWBK60161331926819",
            "ignore\u{200b}this",
            "a very long text that goes on",
        ] {
            assert!(!is_token(text), "{text}");
        }
    }

    #[test]
    fn values_are_equal_except_for_spelling() {
        assert!(same(&json!(["A@b.c"]), &json!(["a@b.c"])) && same(&json!(10.0), &json!("10.00")));
        assert!(!same(&json!(["a", "b"]), &json!(["a b"])) && !same(&json!("…"), &json!("!")));
        assert!(same(&json!(20.000), &json!("20")) && !same(&json!("20.000"), &json!(20)));
        for other in ["--20", "---20", "$-20", "$--20", "- 20", "-20"] {
            assert!(!same(&json!(other), &json!(20)) && !same(&json!(other), &json!("20")), "{other}");
        }
        assert!(same(&json!("2024-05-20"), &json!("May 20th, 2024")) && same(&json!("-20.0"), &json!(-20)));
        assert!(!same(&json!({"a": 1}), &json!({"b": 1})) && !same(&json!("build/tmp"), &json!("build tmp")));
    }
}
