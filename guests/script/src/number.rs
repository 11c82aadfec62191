//! Number formatting and parsing, as in JavaScript.

use crate::lexer::in_radix;
use crate::text::is_space;

/// `String(number)`.
pub(crate) fn to_text(number: f64) -> String {
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    if number == number.trunc() && number.abs() < 1e15 {
        // Adding zero turns -0 into 0.
        return format!("{:.0}", number + 0.0);
    }
    let (negative, digits, point) = shortest(number.abs(), number.is_sign_negative());
    let text = laid_out(&digits, point);
    if negative { format!("-{text}") } else { text }
}

fn special(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number == f64::INFINITY {
        Some("Infinity")
    } else if number == f64::NEG_INFINITY {
        Some("-Infinity")
    } else {
        None
    }
}

/// The shortest digits that identify the number, and the position of the decimal point.
fn shortest(number: f64, negative: bool) -> (bool, String, i32) {
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let point = exponent.parse::<i32>().unwrap_or(0).saturating_add(1);
    (negative, digits, point)
}

fn laid_out(digits: &str, point: i32) -> String {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let place = usize::try_from(point).unwrap_or(0);
    if point > 21 || point <= -6 {
        return exponential(digits, point.saturating_sub(1));
    }
    if point <= 0 {
        return format!("0.{}{digits}", "0".repeat(usize::try_from(point.saturating_neg()).unwrap_or(0)));
    }
    if count <= point {
        let zeros = usize::try_from(point.saturating_sub(count)).unwrap_or(0);
        return format!("{digits}{}", "0".repeat(zeros));
    }
    let (whole, part) = digits.split_at_checked(place).unwrap_or((digits, ""));
    format!("{whole}.{part}")
}

fn exponential(digits: &str, exponent: i32) -> String {
    let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, ""));
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{first}{point}{rest}e{sign}{}", exponent.unsigned_abs())
}

/// `number.toFixed(places)`: exact, rounding half away from zero.
pub(crate) fn to_fixed(number: f64, places: usize) -> String {
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    if number.abs() >= 1e21 {
        return to_text(number);
    }
    let size = number.abs();
    let text = half_up(format!("{size:.places$}"), size, places);
    if number < 0.0 { format!("-{text}") } else { text }
}

/// Rust rounds an exact half to even; JavaScript rounds it up. The full decimal expansion shows whether it is exact.
fn half_up(rounded: String, size: f64, places: usize) -> String {
    let exact = format!("{size:.1100}");
    let keep = exact.find('.').map_or(0, |at| at.saturating_add(1)).saturating_add(places);
    let rest = exact.get(keep..).unwrap_or("");
    let is_half = rest.strip_prefix('5').is_some_and(|zeros| zeros.bytes().all(|byte| byte == b'0'));
    if !is_half {
        return rounded;
    }
    let kept = exact.get(..keep).unwrap_or("").trim_end_matches('.').to_owned();
    one_up(&kept)
}

/// Adds one to the last digit.
fn one_up(text: &str) -> String {
    let mut out: Vec<u8> = text.bytes().collect();
    for byte in out.iter_mut().rev() {
        match *byte {
            b'9' => *byte = b'0',
            b'.' => {}
            digit => {
                *byte = digit.saturating_add(1);
                return String::from_utf8(out).unwrap_or_default();
            }
        }
    }
    format!("1{}", String::from_utf8(out).unwrap_or_default())
}

/// `number.toExponential(places)`; `None` means as many as needed.
pub(crate) fn to_exponential(number: f64, places: Option<usize>) -> String {
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    let text = match places {
        Some(places) => format!("{number:.places$e}"),
        None => format!("{number:e}"),
    };
    match text.split_once('e') {
        Some((mantissa, exponent)) if !exponent.starts_with('-') => format!("{mantissa}e+{exponent}"),
        Some(_) | None => text,
    }
}

/// `number.toPrecision(digits)`.
pub(crate) fn to_precision(number: f64, digits: usize) -> String {
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    let places = digits.saturating_sub(1);
    let text = format!("{number:.places$e}");
    let exponent = text.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok()).unwrap_or(0);
    let count = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -6 || exponent >= count {
        return to_exponential(number, Some(places));
    }
    let places = usize::try_from(count.saturating_sub(1).saturating_sub(exponent)).unwrap_or(0);
    format!("{number:.places$}")
}

/// `number.toString(radix)`.
pub(crate) fn in_other_radix(number: f64, radix: u32) -> String {
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    let digit = |value: f64| char::from_digit(value as u32, radix).unwrap_or('0');
    let (mut whole, mut part) = (number.abs().trunc(), number.abs().fract());
    let mut text = Vec::new();
    while whole >= 1.0 && text.len() < 1100 {
        text.push(digit(whole % f64::from(radix)));
        whole = (whole / f64::from(radix)).trunc();
    }
    if text.is_empty() {
        text.push('0');
    }
    if number < 0.0 {
        text.push('-');
    }
    text.reverse();
    if part > 0.0 {
        text.push('.');
        // As many digits as distinguish it from its neighbours.
        let mut delta = (0.5 * (number.abs().next_up() - number.abs())).max(f64::MIN_POSITIVE);
        while part > 0.0 && text.len() < 1200 {
            part *= f64::from(radix);
            delta *= f64::from(radix);
            let whole = part.trunc();
            part -= whole;
            if part > 0.5 && part + delta > 1.0 {
                text.push(digit(whole + 1.0));
                break;
            }
            text.push(digit(whole));
            if part < delta {
                break;
            }
        }
    }
    text.into_iter().collect()
}

/// With thousands separators, as `toLocaleString` formats numbers in English.
pub(crate) fn grouped(number: f64, least: usize, most: usize) -> String {
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    let text = to_fixed(number, most);
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut out = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len().saturating_sub(index);
        if index > 0 && left.is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    let mut part = part.to_owned();
    while part.len() > least && part.ends_with('0') {
        part.pop();
    }
    if !part.is_empty() {
        out.push('.');
        out.push_str(&part);
    }
    out
}

/// `Number(text)`.
pub(crate) fn from_text(text: &str) -> f64 {
    let text = text.trim_matches(is_space);
    if text.is_empty() {
        return 0.0;
    }
    let other = match text.get(..2) {
        Some("0x" | "0X") => Some(16),
        Some("0o" | "0O") => Some(8),
        Some("0b" | "0B") => Some(2),
        Some(_) | None => None,
    };
    if let Some(radix) = other {
        let digits = text.get(2..).filter(|digits| !digits.is_empty());
        return digits.and_then(|digits| in_radix(digits, radix)).unwrap_or(f64::NAN);
    }
    if decimal_prefix(text) == text.len() { parsed(text) } else { f64::NAN }
}

/// `parseFloat(text)`.
pub(crate) fn leading(text: &str) -> f64 {
    let text = text.trim_start_matches(is_space);
    parsed(text.get(..decimal_prefix(text)).unwrap_or(""))
}

fn parsed(text: &str) -> f64 {
    match text.trim_start_matches(['+', '-']) {
        "Infinity" if text.starts_with('-') => f64::NEG_INFINITY,
        "Infinity" => f64::INFINITY,
        _other => text.parse().unwrap_or(f64::NAN),
    }
}

/// Length of the decimal number at the start of the text.
fn decimal_prefix(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    if text.get(sign..).is_some_and(|rest| rest.starts_with("Infinity")) {
        return sign.saturating_add(8);
    }
    let whole = digits(sign);
    let mut end = sign.saturating_add(whole);
    let mut any = whole > 0;
    if bytes.get(end) == Some(&b'.') {
        let part = digits(end.saturating_add(1));
        if any || part > 0 {
            any = true;
            end = end.saturating_add(1).saturating_add(part);
        }
    }
    if !any {
        return 0;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end.saturating_add(1)), Some(b'+' | b'-')));
        let from = end.saturating_add(1).saturating_add(sign);
        let exponent = digits(from);
        if exponent > 0 {
            end = from.saturating_add(exponent);
        }
    }
    end
}

/// `parseInt(text, radix)`.
pub(crate) fn whole(text: &str, radix: u32) -> f64 {
    let text = text.trim_start_matches(is_space);
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (text, radix) = match (hex, radix) {
        (Some(rest), 0 | 16) => (rest, 16),
        (_, 0) => (text, 10),
        (_, radix) => (text, radix),
    };
    if !(2..=36).contains(&radix) {
        return f64::NAN;
    }
    let end = text.find(|c: char| !c.is_digit(radix)).unwrap_or(text.len());
    let Some(digits) = text.get(..end).filter(|digits| !digits.is_empty()) else { return f64::NAN };
    let size = if radix == 10 {
        digits.parse().unwrap_or(f64::NAN)
    } else {
        in_radix(digits, radix).unwrap_or(f64::NAN)
    };
    if negative { -size } else { size }
}

/// Conversion to 32 bits for bitwise operators.
pub(crate) fn to_i32(number: f64) -> i32 {
    to_u32(number).cast_signed()
}

/// Conversion to unsigned 32 bits.
pub(crate) fn to_u32(number: f64) -> u32 {
    if !number.is_finite() {
        return 0;
    }
    number.trunc().rem_euclid(4_294_967_296.0) as u32
}
