//! Normalizes dates in common spellings to one word each. A date without a year is a different word.

use std::sync::LazyLock;

/// Marks a normalized word. Text can't contain it, because words have no control characters.
const DATED: char = '\u{1}';
const YEARLESS: char = '\u{2}';
/// The day of a date with a year, for lookups without a year.
const DAY_OF_DATED: char = '\u{3}';

const YEAR: &str = "january february march april may june july august september october november december";
static MONTHS: LazyLock<Vec<&str>> = LazyLock::new(|| YEAR.split(' ').collect());

/// Replaces the words of each date by one word.
pub(crate) fn fold(raw: Vec<String>) -> Vec<String> {
    // Most texts contain no date.
    if !raw.iter().any(|word| may_begin_date(word) || word.contains(':')) {
        return raw;
    }
    let mut raw = raw;
    let mut folded = Vec::with_capacity(raw.len());
    let mut at: usize = 0;
    while let Some(rest) = raw.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some((date, used)) = spelt_out(rest) {
            folded.push(date);
            at = at.saturating_add(used);
            continue;
        }
        let first = raw.get_mut(at).map(std::mem::take).unwrap_or_default();
        match in_digits(&first) {
            Some((date, time)) => {
                folded.push(date);
                folded.extend(time.map(clock));
            }
            None => folded.push(clock(first)),
        }
        at = at.saturating_add(1);
    }
    folded
}

/// Whether a date can begin with this word: with digits, or with the first letter of a month. Most words fail this fast test.
fn may_begin_date(word: &str) -> bool {
    let first = word.bytes().next().unwrap_or_default();
    first.is_ascii_digit() || (b"jfmasond".contains(&first) && (3..=9).contains(&word.len()))
}

/// `10:00:00` becomes `10:00`.
fn clock(word: String) -> String {
    if !word.contains(':') {
        return word;
    }
    match word.split(':').collect::<Vec<_>>().as_slice() {
        [hour, minute, "00" | "00z"] => format!("{hour}:{minute}"),
        _other => word,
    }
}

/// Whether a word is a date.
pub(crate) fn is_date(word: &str) -> bool {
    word.starts_with([DATED, YEARLESS])
}

/// Whether a word is a time of day.
pub(crate) fn is_clock(word: &str) -> bool {
    let is_part = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once(':').is_some_and(|(hour, minute)| is_part(hour) && is_part(minute))
}

/// The less specific word under which a date may also be found. Texts often omit the year.
pub(crate) fn looser(word: &str) -> Option<String> {
    let (rest, to) = match word.chars().next()? {
        DATED => (word.get(6..)?, YEARLESS),
        YEARLESS => (word.get(1..)?, DAY_OF_DATED),
        _other => return None,
    };
    Some(format!("{to}{rest}"))
}

/// The word by which lookups without a year find a date with a year.
pub(crate) fn day_of(word: &str) -> Option<String> {
    word.strip_prefix(DATED).and_then(|date| date.get(5..)).map(|day| format!("{DAY_OF_DATED}{day}"))
}

/// An ordering key, if the word is a date with a year.
pub(crate) fn order(word: &str) -> Option<u32> {
    let date = word.strip_prefix(DATED)?;
    date.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

fn dated(year: u32, month: u32, day: u32) -> Option<String> {
    let real = (1..=12).contains(&month) && (1..=31).contains(&day) && (1000..=9999).contains(&year);
    real.then(|| format!("{DATED}{year:04}-{month:02}-{day:02}"))
}

/// `2024-05-20`, `2024/05/20`, `20.05.2024`, unambiguous `20/05/2024`; and a time after a `t`.
fn in_digits(word: &str) -> Option<(String, Option<String>)> {
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (date, time) = match word.split_once('t') {
        Some((date, time)) if time.starts_with(|c: char| c.is_ascii_digit()) => (date, Some(time.to_owned())),
        Some(_) | None => (word, None),
    };
    let mark = date.chars().find(|c| !c.is_ascii_digit())?;
    let parts: Vec<&str> = date.split(mark).collect();
    let [a, b, c] = parts.as_slice() else { return None };
    let number =
        |part: &str| part.parse::<u32>().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()));
    let (x, y, z) = (number(a)?, number(b)?, number(c)?);
    let found = match (mark, a.len(), c.len()) {
        ('-' | '/' | '.', 4, 1 | 2) => dated(x, y, z),
        ('.' | '-', 1 | 2, 4) => dated(z, y, x),
        ('/', 1 | 2, 4) if x > 12 => dated(z, y, x),
        ('/', 1 | 2, 4) if y > 12 => dated(z, x, y),
        _ambiguous => None,
    }?;
    Some((found, time))
}

/// `may 20th 2024`, `20th of may`, …; also returns the number of words.
fn spelt_out(rest: &[String]) -> Option<(String, usize)> {
    let at = |place: usize| rest.get(place).map(String::as_str);
    if !may_begin_date(at(0)?) {
        return None;
    }
    let (month, day, mut used) = match (month_of(at(0)?), day_of_month(at(0)?)) {
        (Some(month), _) => (month, day_of_month(at(1)?)?, 2),
        (None, Some(day)) if at(1) == Some("of") => (month_of(at(2)?)?, day, 3),
        (None, Some(day)) => (month_of(at(1)?)?, day, 2),
        (None, None) => return None,
    };
    let year = at(used).filter(|word| word.len() == 4).and_then(|word| word.parse::<u32>().ok());
    match year.filter(|year| (1900..2200).contains(year)).and_then(|year| dated(year, month, day)) {
        Some(date) => {
            used = used.saturating_add(1);
            Some((date, used))
        }
        None => Some((format!("{YEARLESS}{month:02}-{day:02}"), used)),
    }
}

fn month_of(word: &str) -> Option<u32> {
    let is = |month: &&str| {
        *month == word
            || (word.len() == 3 && month.starts_with(word))
            || (word == "sept" && month.starts_with("sept"))
    };
    let place = MONTHS.iter().position(is)?;
    u32::try_from(place).ok()?.checked_add(1)
}

fn day_of_month(word: &str) -> Option<u32> {
    let digits = ["st", "nd", "rd", "th"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
    let fine = (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|day| fine && (1..=31).contains(day))
}
