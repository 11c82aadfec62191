//! Matches values in full. Content is compared by words, but a target must occur exactly, with its separators, and not as part of something
//! longer: `/tmp` isn't in `build/tmp`, nor `New` in `New York`.

use std::ops::Range;

use crate::text::is_ideograph;

/// Folds a text for comparison: single blanks for white space, and lower case except in paths.
pub(crate) fn fold(text: &str) -> String {
    cased(&spaced(text))
}

/// Folds the case of a text with single blanks. In a URL, only scheme and host ignore case.
fn cased(spaced: &str) -> String {
    let Some(at) = spaced.find(['/', '\\']) else { return spaced.to_lowercase() };
    let host_at = spaced.find("://").filter(|scheme| scheme.saturating_add(1) == at).map(|scheme| scheme + 3);
    let path_at = match host_at {
        Some(host) => {
            spaced.get(host..).and_then(|rest| rest.find('/')).map_or(spaced.len(), |path| host + path)
        }
        None => 0,
    };
    let (host, path) = spaced.split_at_checked(path_at).unwrap_or((spaced, ""));
    format!("{}{path}", host.to_lowercase())
}

/// A value to search for.
#[derive(Debug)]
pub(crate) struct Value<'v> {
    written: &'v str,
    /// In lower case, for the search.
    lower: String,
    /// Folded, for the comparison.
    folded: String,
}

impl<'v> Value<'v> {
    pub(crate) fn new(written: &'v str) -> Self {
        let spaced = spaced(written);
        Self { written: written.trim(), lower: spaced.to_lowercase(), folded: cased(&spaced) }
    }
}

/// A searchable text.
#[derive(Debug)]
pub(crate) struct Text {
    /// With single blanks, in its original case, which distinguishes names from other words.
    spaced: Box<str>,
    /// In lower case, if that differs.
    lower: Option<Box<str>>,
    /// Positions of blanks that were line ends. No name continues across one.
    breaks: Box<[usize]>,
}

impl Text {
    pub(crate) fn new(text: &str) -> Self {
        let (spaced, breaks) = lines(text);
        let lower = spaced.to_lowercase();
        let lower = (lower != spaced).then(|| lower.into());
        Self { spaced: spaced.into(), lower, breaks: breaks.into() }
    }

    /// The original text, with single blanks.
    pub(crate) fn as_written(&self) -> &str {
        &self.spaced
    }

    /// The range of a value, ignoring case.
    pub(crate) fn find(&self, value: &str) -> Option<Range<usize>> {
        let wanted = spaced(value).to_lowercase();
        let lower = self.lower.as_deref().unwrap_or(&self.spaced);
        // Lower case can be longer than upper case; then offsets don't carry over.
        let at = lower.find(&wanted).filter(|_| lower.len() == self.spaced.len())?;
        Some(at..at.saturating_add(wanted.len()))
    }

    /// Whether it contains a value in full.
    pub(crate) fn has(&self, value: &Value<'_>) -> bool {
        let wanted = value.lower.as_str();
        if wanted.is_empty() {
            return false;
        }
        let lower = self.lower.as_deref().unwrap_or(&self.spaced);
        // If the text spells a word as a name somewhere, the same word without a capital is another word.
        let is_named = value.written.starts_with(char::is_uppercase) && self.spaced.contains(value.written);
        lower.match_indices(wanted).any(|(at, _)| {
            let end = at + wanted.len();
            // Lower case can be longer than upper case; then offsets don't carry over.
            let original = if lower.len() == self.spaced.len() { &*self.spaced } else { lower };
            let (Some(before), Some(itself), Some(after)) =
                (original.get(..at), original.get(at..end), original.get(end..))
            else {
                return false;
            };
            let is_word = is_named && itself.starts_with(char::is_lowercase);
            let is_same = original.len() == self.spaced.len();
            let breaks_at = |at: usize| is_same && self.breaks.binary_search(&at).is_ok();
            let line_before = if at.checked_sub(1).is_some_and(breaks_at) { "" } else { before };
            let line_after = if breaks_at(end) { "" } else { after };
            !is_word
                && cased(itself) == value.folded
                && begins(before, itself)
                && ends(itself, after)
                && !is_part_of_name(line_before, itself, line_after)
        })
    }

    /// Whether nothing else in the text could replace these values: apart from them and adjacent items of a list, it has neither names nor
    /// figures. The first word of a line or sentence is capitalized anyway and doesn't count.
    pub(crate) fn has_only(&self, values: &[Value<'_>]) -> bool {
        const PLACES_MAX: usize = 64;
        let lower = self.lower.as_deref().unwrap_or(&self.spaced);
        let places = values.iter().flat_map(|value| lower.match_indices(value.lower.as_str()));
        let taken: Vec<_> = places.take(PLACES_MAX).map(|(at, found)| at..at + found.len()).collect();
        if lower.len() != self.spaced.len() || taken.len() == PLACES_MAX {
            return false;
        }
        let (mut at, mut is_first, mut is_in_row) = (0, true, false);
        self.spaced.split(' ').all(|word| {
            let (from, end) = (at, at + word.len());
            at = end + 1;
            let is_taken = taken.iter().any(|range| range.start < end && from < range.end);
            let bare = word.trim_start_matches(|c: char| !c.is_alphanumeric());
            let is_name = bare.starts_with(|c: char| c.is_uppercase() || c.is_numeric());
            let is_fine = is_taken || is_in_row || !is_name || is_first;
            let ends_sentence = word.ends_with(['.', '!', '?', ':']);
            is_in_row = (is_taken || is_in_row && is_name) && !ends_sentence;
            is_first = ends_sentence || self.breaks.binary_search(&end).is_ok();
            is_fine
        })
    }

    /// Whether it contains exactly these characters as a word.
    pub(crate) fn spells(&self, value: &str) -> bool {
        self.spaced.match_indices(value).any(|(at, found)| {
            let before = self.spaced.get(..at).and_then(|before| before.chars().next_back());
            let mut after = self.spaced.get(at + found.len()..).unwrap_or_default().chars();
            let goes_on = match (after.next(), after.next()) {
                (Some('.' | ','), Some(digit)) => digit.is_ascii_digit(),
                (Some(c), _) => c.is_alphanumeric(),
                (None, _) => false,
            };
            !goes_on && !before.is_some_and(|c| c.is_alphanumeric() || c == '.')
        })
    }
}

/// Shorter lines were ended on purpose; longer ones are wrapped, perhaps within a name.
const LINE_BYTES: usize = 60;

/// A text with single blanks, and the positions of those that end a line.
fn lines(text: &str) -> (String, Vec<usize>) {
    let (mut all, mut breaks, mut is_short) = (String::with_capacity(text.len()), Vec::new(), false);
    for line in text.lines() {
        let from = all.len();
        for (at, word) in line.split_whitespace().enumerate() {
            if at == 0 && is_short && !all.is_empty() {
                breaks.push(all.len());
            }
            if !all.is_empty() {
                all.push(' ');
            }
            if word.is_ascii() {
                all.push_str(word);
                continue;
            }
            all.extend(word.chars().map(|c| if matches!(c, '\u{2018}' | '\u{2019}') { '\'' } else { c }));
        }
        is_short = all.len().saturating_sub(from) < LINE_BYTES;
    }
    (all, breaks)
}

fn spaced(text: &str) -> String {
    lines(text).0
}

const OPENING: &[char] = &['"', '\'', '`', '(', '[', '{', '<', '\u{201c}', '\u{ab}', '*'];
const CLOSING: &[char] = &['"', '\'', '`', ')', ']', '}', '>', '\u{201d}', '\u{bb}', '*'];

/// Whether a value can begin after this text.
fn begins(before: &str, value: &str) -> bool {
    let outside = |rest: &str| {
        let rest = rest.trim_end_matches(OPENING);
        rest.is_empty() || rest.ends_with(char::is_whitespace)
    };
    match before.chars().next_back() {
        None => true,
        Some(c) if c.is_whitespace() => true,
        Some(c) if OPENING.contains(&c) => outside(before),
        // `To:Ann` or `mailto:ann@a.test`, but not part of a URL, a time or a port.
        Some(':') => {
            let word = before.trim_end_matches(':').rsplit(char::is_whitespace).next().unwrap_or_default();
            value.starts_with(char::is_alphabetic)
                && !word.is_empty()
                && word.chars().all(char::is_alphabetic)
        }
        // A handle or a currency.
        Some(c @ ('@' | '#' | '$' | '\u{20ac}' | '\u{a3}')) => {
            outside(before.strip_suffix(c).unwrap_or_default())
        }
        Some(c) => value.chars().next().is_some_and(|first| is_edge(first, c)),
    }
}

/// Whether a value can end between two characters, in a script without blanks: where the script changes, or at a sign or word that hardly
/// occurs in names. Elsewhere it may be part of a longer name.
fn is_edge(own: char, beside: char) -> bool {
    const APART: &str = "。，、！？；：「」『』（）《》给向到在和与的对把请从了吧吗跟转发付寄送约邀是订告问写还はがをにでとのへやも";
    let script = |c: char| (is_ideograph(c), c < '\u{30a0}', c < '\u{3100}');
    APART.contains(beside) || (beside.is_alphanumeric() && script(own) != script(beside))
}

/// Whether a value can end before this text.
fn ends(value: &str, after: &str) -> bool {
    let rest = after.trim_start_matches(CLOSING);
    // `Ann's` contains Ann; any other letter after an apostrophe belongs to the word.
    let possessive = after.strip_prefix("'s").is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    let rest = rest.trim_start_matches(['.', ',', ';', ':', '!', '?', '\u{2026}', '%', '\u{20ac}', '\u{a3}']);
    let rest = rest.trim_start_matches(CLOSING);
    rest.is_empty()
        || rest.starts_with(char::is_whitespace)
        || possessive
        || after.chars().next().zip(value.chars().next_back()).is_some_and(|(next, last)| is_edge(last, next))
}

/// Capitalized units that follow a figure.
const UNITS: &[&str] = &[
    "EUR", "USD", "GBP", "CHF", "JPY", "CNY", "INR", "CAD", "AUD", "NZD", "SEK", "NOK", "DKK", "PLN", "CZK",
    "HUF", "KRW", "BRL", "MXN", "ZAR", "TRY", "SGD", "HKD", "BTC", "ETH", "Euro", "Euros", "Dollar",
    "Dollars", "Pounds", "Franken", "Kronen", "Yen", "Uhr", "AM", "PM", "GB", "MB", "TB", "KB",
];

/// Whether a name continues before or after the value: neither half of `Ann Smith` matches.
fn is_part_of_name(before: &str, value: &str, after: &str) -> bool {
    // `5 EUR` is an amount, not a name.
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches(|c: char| !c.is_alphanumeric()));
    let is_name = |word: &str| word.starts_with(char::is_uppercase) && !is_unit(word);
    // `1234 Elm Street` is a name, too.
    let is_part = |word: &str| is_name(word) || word.chars().all(|c| c.is_ascii_digit());
    let (first, last) = (value.split(' ').next(), value.rsplit(' ').next());
    let goes_on = after.strip_prefix(' ').and_then(|rest| rest.split(' ').next()).is_some_and(is_name)
        && last.is_some_and(|last| is_part(last) && last.ends_with(char::is_alphanumeric));
    let earlier = before.strip_suffix(' ').unwrap_or_default();
    let previous = earlier.rsplit(' ').next().unwrap_or_default();
    // The first word of a sentence is capitalized anyway. A number still counts there.
    let begins_sentence = is_name(previous)
        && earlier.strip_suffix(previous).is_some_and(|rest| {
            rest.is_empty() || rest.trim_end().ends_with(['.', '!', '?', ':', '\n', '"', '\'', ')'])
        });
    let came_before = before.ends_with(' ')
        && is_part(previous)
        && previous.ends_with(char::is_alphanumeric)
        && !begins_sentence
        && first.is_some_and(is_name);
    goes_on || came_before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in(value: &str, text: &str) -> bool {
        Text::new(text).has(&Value::new(value))
    }

    #[test]
    fn b3_matches_values_in_full_only() {
        let there = [
            ("ann@a.test", "Mail Ann@A.test."),
            ("ann@a.test", "Ann <ann@a.test>, Bob"),
            ("build/tmp", "remove build/tmp, please"),
            ("rm -r build/tmp", "run `rm -r  build/tmp`"),
            ("https://a.test/x", "see https://a.test/x."),
            ("HTTPS://A.test/x", "see https://a.test/x."),
            ("ΑΘΗΝΑΣ", "write to ΑΘΗΝΑΣ"),
            ("ann@a.test", "mailto:ann@a.test"),
            ("New York, NY", "a flight to New York, NY"),
            ("Luxury Palace", "Book Luxury Palace in Paris"),
            ("Sarah Connor", "Email Sarah Connor"),
            ("Ann", "Read it. Ask Ann's brother"),
            ("GB29NWBK60161331926819", "pay to GB29NWBK60161331926819!"),
            ("general", "post it in #general"),
            ("1j1l-2k3j", "update it to '1j1l-2k3j'."),
            ("Dalton Street 123", "Please note.\n\nDalton Street 123\nNew York, NY 10001\n"),
            ("New York", "He lives at\nDalton Street 123\nNew York, NY 10001\n"),
            ("Dalton Street 123 New York", "Dalton Street 123\nNew York"),
            // Scripts without blanks: a value ends where the script changes, or at a word that can't be part of a name.
            ("\u{738b}\u{5c0f}\u{660e}", "\u{8bf7}\u{7ed9}\u{738b}\u{5c0f}\u{660e}\u{8f6c}10\u{5143}"),
            ("\u{738b}\u{5c0f}\u{660e}", "\u{7ed9}\u{738b}\u{5c0f}\u{660e}\u{3002}"),
            ("\u{7530}\u{4e2d}", "\u{7530}\u{4e2d}\u{3055}\u{3093}\u{306b}\u{9001}\u{308b}"),
            ("Ann", "\u{8bf7}\u{53d1}\u{7ed9}Ann\u{5427}"),
            ("5", "Pay ann@a.test 5 EUR"),
            ("25", "Transfer 25 Euro, please"),
            ("ann@a.test", "\u{53d1}\u{7ed9}ann@a.test\u{3002}"),
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
            ("New", "I have a new place in New York"),
            ("Elm Street", "the address is 1234 Elm Street"),
            ("1234", "the address is 1234 Elm Street"),
            ("/tmp", "remove \"$OUT\"/tmp"),
            ("/tmp", "remove logs*/tmp"),
            ("build", "remove build\"/tmp\""),
            ("report", "send report,final.txt"),
            ("bob", "open https://a.test/?to=bob"),
            ("acme/tool", "clone git@host:acme/tool"),
            ("https://bit.ly/SuF", "open https://bit.ly/sUf"),
            ("\u{202e}ann@a.test", "mail ann@a.test"),
            ("ann@a.test\u{fe0f}", "mail ann@a.test"),
            ("a.test", "mail ann@a.test"),
            ("\u{2212}5", "pay 5"),
            ("test/x", "see https://a.test/x"),
            ("Elm Street", "the new address: 1234 Elm Street"),
            ("New", "please write to the whole of the team at our old office in New\nYork"),
            ("\u{6570}\u{636e}", "open /\u{6570}\u{636e}/x"),
            ("\u{5c0f}\u{660e}", "\u{7ed9}\u{738b}\u{5c0f}\u{660e}\u{8f6c}10\u{5143}"),
            ("\u{738b}\u{5c0f}", "\u{7ed9}\u{738b}\u{5c0f}\u{660e}\u{8f6c}10\u{5143}"),
            ("\u{4e2d}", "\u{7530}\u{4e2d}\u{3055}\u{3093}\u{306b}\u{9001}\u{308b}"),
            ("", "anything"),
        ];
        for (value, text) in not {
            assert!(!is_in(value, text), "{value:?} in {text:?}");
        }
    }

    #[test]
    fn a_letter_with_one_address_is_unambiguous() {
        const LETTER: &str = "Dear tenant,\nPlease note that the address has changed.\n\nDalton Street 123\nNew York, NY 10001\nUSA\n\nBest regards,\nYour landlord";
        let planted = [" Evil Road 5", "\nSend it to 5 evil road", "\nThe city is Eviltown", "\n\nEvil Road"];
        let own = [Value::new("Dalton Street 123"), Value::new("New York")];
        assert!(Text::new(LETTER).has_only(&own));
        for more in planted {
            assert!(!Text::new(&format!("{LETTER}{more}")).has_only(&own), "{more}");
        }
        for other in ["Evil Road 5", "Evil Road", "Eviltown", "dear tenant", "\u{130}"] {
            let text = format!("{LETTER}.\n{other}");
            assert!(!Text::new(&text).has_only(&[Value::new(other)]), "{other}");
        }
    }
}
