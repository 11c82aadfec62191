//! Finds personal numbers: cards, bank accounts, phone numbers, social security numbers.

use super::{Finding, FindingKind, before, is_word, run_end};

const CARD_DIGITS_MAX: usize = 19;
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 8..=15;
const PHONE_BYTES_MAX: usize = 26;

/// Length of an IBAN, by country.
const IBAN_LENGTHS: &[(&[u8; 2], usize)] = &[
    (b"AD", 24),
    (b"AE", 23),
    (b"AL", 28),
    (b"AT", 20),
    (b"AZ", 28),
    (b"BA", 20),
    (b"BE", 16),
    (b"BG", 22),
    (b"BH", 22),
    (b"BR", 29),
    (b"BY", 28),
    (b"CH", 21),
    (b"CR", 22),
    (b"CY", 28),
    (b"CZ", 24),
    (b"DE", 22),
    (b"DK", 18),
    (b"DO", 28),
    (b"EE", 20),
    (b"EG", 29),
    (b"ES", 24),
    (b"FI", 18),
    (b"FO", 18),
    (b"FR", 27),
    (b"GB", 22),
    (b"GE", 22),
    (b"GI", 23),
    (b"GL", 18),
    (b"GR", 27),
    (b"GT", 28),
    (b"HR", 21),
    (b"HU", 28),
    (b"IE", 22),
    (b"IL", 23),
    (b"IQ", 23),
    (b"IS", 26),
    (b"IT", 27),
    (b"JO", 30),
    (b"KW", 30),
    (b"KZ", 20),
    (b"LB", 28),
    (b"LC", 32),
    (b"LI", 21),
    (b"LT", 20),
    (b"LU", 20),
    (b"LV", 21),
    (b"MC", 27),
    (b"MD", 24),
    (b"ME", 22),
    (b"MK", 19),
    (b"MR", 27),
    (b"MT", 31),
    (b"MU", 30),
    (b"NL", 18),
    (b"NO", 15),
    (b"PK", 24),
    (b"PL", 28),
    (b"PS", 29),
    (b"PT", 25),
    (b"QA", 29),
    (b"RO", 24),
    (b"RS", 22),
    (b"SA", 24),
    (b"SC", 31),
    (b"SE", 24),
    (b"SI", 19),
    (b"SK", 24),
    (b"SM", 27),
    (b"ST", 25),
    (b"SV", 28),
    (b"TL", 23),
    (b"TN", 24),
    (b"TR", 26),
    (b"UA", 29),
    (b"VA", 22),
    (b"VG", 24),
    (b"XK", 20),
];

pub(super) fn find(bytes: &[u8], found: &mut Vec<Finding>) {
    let mut at = 0;
    while let Some(offset) = bytes.get(at..).and_then(|rest| rest.iter().position(u8::is_ascii_digit)) {
        let start = at.saturating_add(offset);
        let one = one_at(bytes, start);
        at = match &one {
            Some(finding) => finding.span.end.max(start.saturating_add(1)),
            None => run_end(bytes, start, usize::MAX, |byte| byte.is_ascii_digit()),
        };
        found.extend(one);
    }
}

/// The finding that starts at or around this digit.
fn one_at(bytes: &[u8], start: usize) -> Option<Finding> {
    match before(bytes, start) {
        Some(b'+') => international(bytes, start.saturating_sub(1)),
        Some(b'(') => bracketed(bytes, start.saturating_sub(1)),
        Some(letter) if letter.is_ascii_uppercase() => iban(bytes, start.checked_sub(2)?),
        _other if stands_alone(bytes, start) => {
            social(bytes, start).or_else(|| card(bytes, start)).or_else(|| national(bytes, start))
        }
        _other => None,
    }
}

/// Whether the number isn't part of a name, a fraction, a date or an identifier.
fn stands_alone(bytes: &[u8], start: usize) -> bool {
    match before(bytes, start) {
        Some(b'.' | b',' | b'-' | b'/' | b'+' | b'%' | b'\\' | b'$') => false,
        other => !is_word(other),
    }
}

fn ends(bytes: &[u8], end: usize) -> bool {
    let next = bytes.get(end).copied();
    let after = bytes.get(end.saturating_add(1)).is_some_and(u8::is_ascii_digit);
    let goes_on = next.is_some_and(|byte| b".,-/:".contains(&byte)) && after;
    !is_word(next) && !goes_on && next != Some(b'%')
}

/// A bounded number of digits, grouped by at most one kind of separator: the end, and the length of each group.
struct Digits {
    digits: Vec<u8>,
    groups: Vec<usize>,
    separator: Option<u8>,
    end: usize,
}

fn digits(bytes: &[u8], start: usize, most: usize, separators: &[u8]) -> Digits {
    let mut all = Digits { digits: Vec::new(), groups: vec![0], separator: None, end: start };
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        let next = bytes.get(at.saturating_add(1)).is_some_and(u8::is_ascii_digit);
        if byte.is_ascii_digit() && all.digits.len() <= most {
            all.digits.push(byte & 15);
            if let Some(group) = all.groups.last_mut() {
                *group = group.saturating_add(1);
            }
            all.end = at.saturating_add(1);
        } else if separators.contains(byte) && all.separator.is_none_or(|known| known == *byte) && next {
            all.separator = Some(*byte);
            all.groups.push(0);
        } else {
            break;
        }
        at = at.saturating_add(1);
    }
    all
}

fn card(bytes: &[u8], start: usize) -> Option<Finding> {
    // Most numbers are short: check the length before collecting digits.
    if run_end(bytes, start, 4, |byte| byte.is_ascii_digit()) < start.saturating_add(4) {
        return None;
    }
    let found = digits(bytes, start, CARD_DIGITS_MAX, b" -");
    let grouped = found.groups.len() == 1
        || found.groups.iter().rev().skip(1).all(|group| *group == 4)
            && found.groups.last().is_some_and(|last| *last <= 4)
        || found.groups == [4, 6, 5]
        || found.groups == [4, 6, 4];
    let fine = grouped && is_issued(&found.digits) && luhn(&found.digits) && ends(bytes, found.end);
    fine.then_some(Finding { kind: FindingKind::Card, span: start..found.end })
}

/// Whether an issuer assigns cards with this prefix and length.
fn is_issued(digits: &[u8]) -> bool {
    let head = |length: usize| {
        digits
            .iter()
            .take(length)
            .fold(0_u32, |number, digit| number.saturating_mul(10).saturating_add(u32::from(*digit)))
    };
    let (two, three, four) = (head(2), head(3), head(4));
    match digits.len() {
        13 | 19 => head(1) == 4 || digits.len() == 19 && two == 62,
        14 => matches!(three, 300..=305) || matches!(two, 36 | 38 | 39),
        15 => matches!(two, 34 | 37),
        16 => {
            head(1) == 4
                || matches!(two, 51..=55 | 62 | 65)
                || matches!(four, 2221..=2720 | 3528..=3589 | 6011)
                || matches!(three, 644..=649)
                || matches!(four, 5018 | 5020 | 5038 | 6304 | 6759 | 6761..=6763)
        }
        _other => false,
    }
}

fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| {
            let twice = u32::from(*digit).saturating_mul(2);
            if at % 2 == 0 { u32::from(*digit) } else { twice / 10 + twice % 10 }
        })
        .sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| *digit != 0)
}

fn iban(bytes: &[u8], start: usize) -> Option<Finding> {
    if is_word(before(bytes, start)) {
        return None;
    }
    let country = bytes.get(start..start.saturating_add(2))?;
    let (_, length) = IBAN_LENGTHS.iter().find(|(name, _)| name.as_slice() == country)?;
    let mut letters = Vec::with_capacity(*length);
    let mut at = start;
    while letters.len() < *length {
        let byte = *bytes.get(at)?;
        match byte {
            b'A'..=b'Z' | b'0'..=b'9' => letters.push(byte),
            b' ' if letters.len() % 4 == 0 => {}
            _other => return None,
        }
        at = at.saturating_add(1);
    }
    let (head, tail) = letters.split_at_checked(4)?;
    let checks = head.get(2..)?.iter().all(u8::is_ascii_digit);
    let rest = tail.iter().chain(head).fold(0_u32, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        letter => (rest * 100 + u32::from(letter.saturating_sub(b'A')) + 10) % 97,
    });
    (checks && rest == 1 && !is_word(bytes.get(at).copied()))
        .then_some(Finding { kind: FindingKind::Iban, span: start..at })
}

/// `123-45-6789`, in the assigned ranges.
fn social(bytes: &[u8], start: usize) -> Option<Finding> {
    let end = start.saturating_add(11);
    let [a, b, c, dash, d, e, other, serial @ ..] = bytes.get(start..end)? else { return None };
    if !(dash == other && (*dash == b'-' || *dash == b' ')) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0_u32, |number, byte| {
            byte.is_ascii_digit().then(|| number.saturating_mul(10).saturating_add(u32::from(byte & 15)))
        })
    };
    let (area, group, serial) = (number(&[*a, *b, *c])?, number(&[*d, *e])?, number(serial)?);
    let given = area != 0 && area != 666 && area < 900 && group != 0 && serial != 0;
    (given && ends(bytes, end)).then_some(Finding { kind: FindingKind::Ssn, span: start..end })
}

/// `+44 20 7946 0958`. A line of a plus sign and digits only is more likely part of a diff.
fn international(bytes: &[u8], plus: usize) -> Option<Finding> {
    let prior = before(bytes, plus);
    if is_word(prior) || prior.is_some_and(|byte| b"+-/*=.)".contains(&byte)) {
        return None;
    }
    let from = plus.saturating_add(1);
    let mut end =
        run_end(bytes, from, PHONE_BYTES_MAX, |byte| byte.is_ascii_digit() || b" .-()".contains(&byte));
    while before(bytes, end).is_some_and(|byte| !byte.is_ascii_digit()) && end > from {
        end = end.saturating_sub(1);
    }
    let text = bytes.get(from..end)?;
    let count = text.iter().filter(|byte| byte.is_ascii_digit()).count();
    let plain = count == text.len();
    let doubled =
        text.windows(2).any(|pair| matches!(pair, [one, other] if !one.is_ascii_digit() && one == other));
    let at_line = prior.is_none_or(|byte| byte == b'\n');
    let decimals = text.iter().filter(|byte| **byte == b'.').count() == 1
        && text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let fine = PHONE_DIGITS.contains(&count)
        && text.first() != Some(&b'0')
        && !doubled
        && !decimals
        && !(plain && at_line)
        && (!plain || count >= 10);
    (fine && ends(bytes, end)).then_some(Finding { kind: FindingKind::Phone, span: plus..end })
}

/// `(212) 555-0123`.
fn bracketed(bytes: &[u8], open: usize) -> Option<Finding> {
    if is_word(before(bytes, open)) {
        return None;
    }
    let area = open.saturating_add(1);
    let close = area.saturating_add(3);
    if run_end(bytes, area, 4, |byte| byte.is_ascii_digit()) != close || bytes.get(close) != Some(&b')') {
        return None;
    }
    let rest = run_end(bytes, close.saturating_add(1), 1, |byte| byte == b' ');
    let found = digits(bytes, rest, 7, b"-. ");
    let fine = found.groups == [3, 4]
        && is_exchange(bytes, area)
        && is_exchange(bytes, rest)
        && ends(bytes, found.end);
    fine.then_some(Finding { kind: FindingKind::Phone, span: open..found.end })
}

/// `212-555-0123` and `212.555.0123`; `01 23 45 67 89`.
fn national(bytes: &[u8], start: usize) -> Option<Finding> {
    if run_end(bytes, start, 4, |byte| byte.is_ascii_digit()) > start.saturating_add(3) {
        return None;
    }
    let found = digits(bytes, start, 10, b"-. ");
    let second = start.saturating_add(4);
    let american = found.groups == [3, 3, 4]
        && matches!(found.separator, Some(b'-' | b'.'))
        && is_exchange(bytes, start)
        && is_exchange(bytes, second);
    let french = found.groups == [2, 2, 2, 2, 2]
        && matches!(found.separator, Some(b' ' | b'.'))
        && found.digits.first() == Some(&0)
        && found.digits.get(1).is_some_and(|digit| *digit != 0);
    ((american || french) && ends(bytes, found.end))
        .then_some(Finding { kind: FindingKind::Phone, span: start..found.end })
}

/// Area codes and exchanges begin with 2 to 9.
fn is_exchange(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(|byte| (b'2'..=b'9').contains(byte))
}
