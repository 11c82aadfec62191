//! Whole values. Words are right for content, where anything may be said with them. Who or what is affected has to be there as it is
//! written, with its separators, and not as a piece of something longer: `/tmp` is not in `build/tmp`, nor `New` in `New York`.

/// A text as whole values are compared in: white space is one blank, and case makes no difference, except in paths.
pub(crate) fn fold(text: &str) -> String {
    let keep_case = is_path(text);
    let mut folded = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !folded.is_empty() {
            folded.push(' ');
        }
        for c in word.chars() {
            match c {
                '\u{2018}' | '\u{2019}' => folded.push('\''),
                c if keep_case => folded.push(c),
                c => folded.extend(c.to_lowercase()),
            }
        }
    }
    folded
}

fn is_path(text: &str) -> bool {
    text.contains(['/', '\\']) && !text.contains("://")
}

/// Whether a text has a value as a whole.
pub(crate) fn is_in(value: &str, text: &str) -> bool {
    let wanted = fold(value);
    if wanted.is_empty() {
        return false;
    }
    // Case tells names from other words, so the text keeps its own.
    let spaced = spaced(text);
    let folded = if is_path(value) { spaced.clone() } else { spaced.to_lowercase() };
    // Lower case can be longer than upper case; then places in one are none in the other.
    let original = if folded.len() == spaced.len() { &spaced } else { &folded };
    let mut from = 0;
    while let Some(at) = folded.get(from..).and_then(|rest| rest.find(&wanted)).map(|at| at + from) {
        let end = at + wanted.len();
        let (before, after) =
            (original.get(..at).unwrap_or_default(), original.get(end..).unwrap_or_default());
        let itself = original.get(at..end).unwrap_or_default();
        if begins(before, itself) && ends(after) && !is_part_of_name(before, itself, after) {
            return true;
        }
        from = at + folded.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
    }
    false
}

fn spaced(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !all.is_empty() {
            all.push(' ');
        }
        all.extend(word.chars().map(|c| if matches!(c, '\u{2018}' | '\u{2019}') { '\'' } else { c }));
    }
    all
}

const OPENING: &[char] =
    &['"', '\'', '`', '(', '[', '{', '<', '\u{201c}', '\u{ab}', '*', '=', ',', ';', '|', '>'];
const CLOSING: &[char] = &['"', '\'', '`', ')', ']', '}', '>', '\u{201d}', '\u{bb}', '*', ',', ';', '|', '<'];

/// Whether a value can begin after this.
fn begins(before: &str, value: &str) -> bool {
    let mut chars = before.chars().rev();
    match chars.next() {
        None => true,
        Some(c) if c.is_whitespace() || OPENING.contains(&c) => true,
        // `To: Ann`, `mailto:ann@a.test`, but not a part of a URL, a time or a path.
        Some(':') => value.starts_with(char::is_alphabetic),
        // A handle or an amount of money.
        Some('@' | '#' | '$' | '\u{20ac}' | '\u{a3}') => {
            chars.next().is_none_or(|c| c.is_whitespace() || OPENING.contains(&c))
        }
        Some(c) => is_ideograph(c) && value.starts_with(is_ideograph),
    }
}

/// Whether a value can end before this.
fn ends(after: &str) -> bool {
    let mut chars = after.chars();
    let Some(first) = chars.next() else { return true };
    let second = chars.next();
    let closed = second.is_none_or(|c| c.is_whitespace() || CLOSING.contains(&c));
    match first {
        // `Ann's` is Ann; any other letter after an apostrophe belongs to the word.
        '\'' if second.is_some_and(char::is_alphanumeric) => {
            second == Some('s') && chars.next().is_none_or(|c| !c.is_alphanumeric())
        }
        c if c.is_whitespace() || CLOSING.contains(&c) => true,
        '.' | ':' | '!' | '?' | '\u{2026}' => closed,
        '%' | '\u{20ac}' | '\u{a3}' => closed,
        c => is_ideograph(c),
    }
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

/// Whether a name goes on before or after this: of `Ann Smith` neither half is meant.
fn is_part_of_name(before: &str, value: &str, after: &str) -> bool {
    let is_name = |word: &str| word.starts_with(char::is_uppercase);
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (first, last) = (words(value).first().cloned(), words(value).last().cloned());
    let goes_on = after.strip_prefix(' ').and_then(|rest| rest.split(' ').next()).is_some_and(is_name)
        && last.is_some_and(|last| is_name(&last) && last.ends_with(char::is_alphabetic));
    let earlier = before.strip_suffix(' ').unwrap_or_default();
    let previous = earlier.rsplit(' ').next().unwrap_or_default();
    // The first word of a sentence is written large whatever it is.
    let begins_sentence = earlier.len() == previous.len()
        || earlier
            .strip_suffix(previous)
            .is_some_and(|rest| rest.trim_end().ends_with(['.', '!', '?', ':', '\n', '"', '\'', ')']));
    let came_before = before.ends_with(' ')
        && is_name(previous)
        && previous.ends_with(char::is_alphabetic)
        && !begins_sentence
        && first.is_some_and(|first| is_name(&first));
    goes_on || came_before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b3_a_value_is_there_as_a_whole_or_not_at_all() {
        let there = [
            ("ann@a.test", "Mail Ann@A.test."),
            ("ann@a.test", "Ann <ann@a.test>, Bob"),
            ("build/tmp", "remove build/tmp, please"),
            ("rm -r build/tmp", "run `rm -r  build/tmp`"),
            ("https://a.test/x", "see https://a.test/x."),
            ("New York, NY", "a flight to New York, NY"),
            ("Luxury Palace", "Book Luxury Palace in Paris"),
            ("Sarah Connor", "Email Sarah Connor"),
            ("Ann", "Read it. Ask Ann's brother"),
            ("GB29NWBK60161331926819", "pay to GB29NWBK60161331926819!"),
            ("general", "post it in #general"),
            ("1j1l-2k3j", "update it to '1j1l-2k3j'."),
        ];
        for (value, text) in there {
            assert!(is_in(value, text), "{value:?} in {text:?}");
        }
        let not = [
            ("/tmp", "remove build/tmp"),
            ("build", "remove build/tmp"),
            ("build/*", "remove build/tmp"),
            ("../../build/tmp", "remove build/tmp"),
            ("~/build", "remove build/tmp"),
            ("rm -r build /tmp", "run rm -r build/tmp"),
            ("rm -r *build* /tmp/*", "run rm -r build/tmp"),
            ("Build/tmp", "remove build/tmp"),
            ("New", "a flight to New York, NY"),
            ("Connor", "please email Sarah Connor"),
            ("\u{202e}ann@a.test", "mail ann@a.test"),
            ("ann@a.test\u{fe0f}", "mail ann@a.test"),
            ("a.test", "mail ann@a.test"),
            ("\u{2212}5", "pay 5"),
            ("test/x", "see https://a.test/x"),
            ("", "anything"),
        ];
        for (value, text) in not {
            assert!(!is_in(value, text), "{value:?} in {text:?}");
        }
    }
}
