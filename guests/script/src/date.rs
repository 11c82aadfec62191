//! The calendar, in UTC only, so that the same input gives the same output everywhere.

/// The fields of a date.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Parts {
    pub(crate) year: f64,
    /// From 0.
    pub(crate) month: f64,
    pub(crate) day: f64,
    pub(crate) hour: f64,
    pub(crate) minute: f64,
    pub(crate) second: f64,
    pub(crate) ms: f64,
}

const DAY_MS: f64 = 86_400_000.0;
/// Maximum distance of a date from 1970.
const MS_MAX: f64 = 8.64e15;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// Days since 1970 of a Gregorian date; the month may be any number.
fn days_from(year: f64, month: f64, day: f64) -> f64 {
    let year = year + (month / 12.0).floor();
    let month = month.rem_euclid(12.0);
    // Years begin in March here, so that the leap day comes last.
    let (y, m) = if month < 2.0 { (year - 1.0, month + 10.0) } else { (year, month - 2.0) };
    let era = (y / 400.0).floor();
    let of_era = y - era * 400.0;
    let of_year = ((153.0 * m + 2.0) / 5.0).floor();
    era * 146_097.0 + of_era * 365.0 + (of_era / 4.0).floor() - (of_era / 100.0).floor() + of_year + day
        - 1.0
        - 719_468.0
}

/// Milliseconds since 1970, or NaN if out of range.
pub(crate) fn to_ms(parts: &Parts) -> f64 {
    let days = days_from(parts.year.trunc(), parts.month.trunc(), parts.day.trunc());
    let time = parts.hour.trunc() * 3_600_000.0
        + parts.minute.trunc() * 60_000.0
        + parts.second.trunc() * 1000.0
        + parts.ms.trunc();
    clipped(days * DAY_MS + time)
}

pub(crate) fn clipped(ms: f64) -> f64 {
    if ms.is_finite() && ms.abs() <= MS_MAX { ms.trunc() + 0.0 } else { f64::NAN }
}

pub(crate) fn parts(ms: f64) -> Parts {
    let days = (ms / DAY_MS).floor();
    let time = ms - days * DAY_MS;
    let z = days + 719_468.0;
    let era = (z / 146_097.0).floor();
    let of_era = z - era * 146_097.0;
    let years = ((of_era - (of_era / 1460.0).floor() + (of_era / 36_524.0).floor()
        - (of_era / 146_096.0).floor())
        / 365.0)
        .floor();
    let of_year = of_era - (365.0 * years + (years / 4.0).floor() - (years / 100.0).floor());
    let m = ((5.0 * of_year + 2.0) / 153.0).floor();
    let day = of_year - ((153.0 * m + 2.0) / 5.0).floor() + 1.0;
    let month = if m < 10.0 { m + 2.0 } else { m - 10.0 };
    let year = years + era * 400.0 + if month < 2.0 { 1.0 } else { 0.0 };
    Parts {
        year,
        month,
        day,
        hour: (time / 3_600_000.0).floor(),
        minute: (time / 60_000.0).floor() % 60.0,
        second: (time / 1000.0).floor() % 60.0,
        ms: time % 1000.0,
    }
}

/// 0 is Sunday.
pub(crate) fn weekday(ms: f64) -> f64 {
    ((ms / DAY_MS).floor() + 4.0).rem_euclid(7.0)
}

fn name(names: &'static [&'static str], index: f64) -> &'static str {
    names.get(index as usize).copied().unwrap_or("")
}

/// `2026-11-15T12:35:00.000Z`; `None` for an invalid date.
pub(crate) fn iso(ms: f64) -> Option<String> {
    if ms.is_nan() {
        return None;
    }
    let p = parts(ms);
    let year = if (0.0..=9999.0).contains(&p.year) {
        format!("{:04}", p.year)
    } else {
        format!("{}{:06}", if p.year < 0.0 { '-' } else { '+' }, p.year.abs())
    };
    Some(format!(
        "{year}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        p.month + 1.0,
        p.day,
        p.hour,
        p.minute,
        p.second,
        p.ms
    ))
}

/// The format of `String(date)`.
pub(crate) fn text(ms: f64) -> String {
    if ms.is_nan() {
        return "Invalid Date".to_owned();
    }
    format!("{} {} GMT+0000 (Coordinated Universal Time)", date_text(ms), time_text(ms))
}

/// `Sun Nov 15 2026`
pub(crate) fn date_text(ms: f64) -> String {
    let p = parts(ms);
    format!("{} {} {:02} {:04}", name(&DAYS, weekday(ms)), name(&MONTHS, p.month), p.day, p.year)
}

/// `12:35:00`
pub(crate) fn time_text(ms: f64) -> String {
    let p = parts(ms);
    format!("{:02}:{:02}:{:02}", p.hour, p.minute, p.second)
}

/// `Sun, 15 Nov 2026 12:35:00 GMT`
pub(crate) fn utc_text(ms: f64) -> String {
    let p = parts(ms);
    let (day, month) = (name(&DAYS, weekday(ms)), name(&MONTHS, p.month));
    format!("{day}, {:02} {month} {:04} {} GMT", p.day, p.year, time_text(ms))
}

/// `11/15/2026`, the US English format.
pub(crate) fn locale_date(ms: f64) -> String {
    let p = parts(ms);
    format!("{}/{}/{}", p.month + 1.0, p.day, p.year)
}

/// `12:35:00 PM`
pub(crate) fn locale_time(ms: f64) -> String {
    let p = parts(ms);
    let hour = if p.hour % 12.0 == 0.0 { 12.0 } else { p.hour % 12.0 };
    format!("{hour}:{:02}:{:02} {}", p.minute, p.second, if p.hour < 12.0 { "AM" } else { "PM" })
}

/// Parses a date: ISO, and common formats of text and email.
pub(crate) fn parse(text: &str) -> f64 {
    let text = text.trim();
    iso_parse(text).or_else(|| loose_parse(text)).unwrap_or(f64::NAN)
}

fn digits(text: &str, count: usize) -> Option<(f64, &str)> {
    let (first, rest) = text.split_at_checked(count)?;
    if !first.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((first.parse().ok()?, rest))
}

fn iso_parse(text: &str) -> Option<f64> {
    let mut p = Parts { year: 0.0, month: 0.0, day: 1.0, hour: 0.0, minute: 0.0, second: 0.0, ms: 0.0 };
    let mut rest = match text.chars().next()? {
        sign @ ('+' | '-') => {
            let (year, rest) = digits(text.get(1..)?, 6)?;
            p.year = if sign == '-' { -year } else { year };
            rest
        }
        _digit => {
            let (year, rest) = digits(text, 4)?;
            p.year = year;
            rest
        }
    };
    for field in [&mut p.month, &mut p.day] {
        if let Some(after) = rest.strip_prefix('-') {
            (*field, rest) = digits(after, 2)?;
        }
    }
    if text.get(4..5) == Some("-") || text.starts_with(['+', '-']) {
        p.month = if text.len() > 4 && rest.len() < text.len() { (p.month - 1.0).max(0.0) } else { 0.0 };
    }
    let mut offset = 0.0;
    if let Some(time) = rest.strip_prefix(['T', 't', ' ']) {
        (p.hour, rest) = digits(time, 2)?;
        (p.minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
        if let Some(after) = rest.strip_prefix(':') {
            (p.second, rest) = digits(after, 2)?;
            if let Some(after) = rest.strip_prefix(['.', ',']) {
                let count = after.bytes().take_while(u8::is_ascii_digit).count();
                let fraction = after.get(..count)?;
                p.ms = (format!("0.{fraction}").parse::<f64>().ok()? * 1000.0).trunc();
                rest = after.get(count..)?;
            }
        }
        offset = zone(rest.trim_start())?;
        rest = "";
    }
    let fits = (0.0..12.0).contains(&p.month)
        && (1.0..=31.0).contains(&p.day)
        && (p.hour < 24.0 || (p.hour == 24.0 && p.minute == 0.0 && p.second == 0.0))
        && p.minute < 60.0
        && p.second < 60.0;
    (rest.is_empty() && fits).then(|| clipped(to_ms(&p) - offset))
}

/// The offset of a time zone in milliseconds; an empty text is UTC.
fn zone(text: &str) -> Option<f64> {
    if matches!(text, "" | "Z" | "z" | "GMT" | "UTC") {
        return Some(0.0);
    }
    let text = text.strip_prefix("GMT").or_else(|| text.strip_prefix("UTC")).unwrap_or(text);
    let sign = match text.chars().next()? {
        '+' => 1.0,
        '-' => -1.0,
        _other => return None,
    };
    let (hours, rest) = digits(text.get(1..)?, 2)?;
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    let minutes = if rest.is_empty() { 0.0 } else { digits(rest, 2).filter(|(_, rest)| rest.is_empty())?.0 };
    Some(sign * (hours * 60.0 + minutes) * 60_000.0)
}

/// `Nov 15, 2026 12:35`, `15 Nov 2026`, `Sun, 15 Nov 2026 12:35:00 GMT`, `11/15/2026`, `2026/11/15`.
fn loose_parse(text: &str) -> Option<f64> {
    let mut p = Parts {
        year: f64::NAN,
        month: f64::NAN,
        day: f64::NAN,
        hour: 0.0,
        minute: 0.0,
        second: 0.0,
        ms: 0.0,
    };
    let (mut offset, mut after_noon) = (0.0, None);
    for word in text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()) {
        let lower = word.to_ascii_lowercase();
        let number =
            |text: &str| text.parse::<f64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let starts = |names: &[&str]| {
            names.iter().position(|name| lower.len() >= 3 && lower.starts_with(&name.to_ascii_lowercase()))
        };
        if word.contains('/') {
            let fields: Option<Vec<f64>> = word.split('/').map(number).collect();
            match fields?.as_slice() {
                [year, month, day] if *year > 31.0 => (p.year, p.month, p.day) = (*year, month - 1.0, *day),
                [month, day, year] => (p.year, p.month, p.day) = (*year, month - 1.0, *day),
                _other => return None,
            }
        } else if word.contains(':') && !word.starts_with(['+', '-']) {
            let fields: Option<Vec<f64>> = word.split(':').map(number).collect();
            let fields = fields?;
            p.hour = fields.first().copied()?;
            p.minute = fields.get(1).copied()?;
            p.second = fields.get(2).copied().unwrap_or(0.0);
        } else if let Some(month) = starts(&MONTHS) {
            p.month = month as f64;
        } else if lower == "am" || lower == "pm" {
            after_noon = Some(lower == "pm");
        } else if starts(&DAYS).is_some() || word.starts_with('(') || word.ends_with(')') {
            // The weekday is redundant.
        } else if let Some(value) = number(word) {
            if value > 31.0 || !p.day.is_nan() { p.year = value } else { p.day = value }
        } else {
            offset = zone(word)?;
        }
    }
    if let Some(after_noon) = after_noon {
        p.hour = p.hour % 12.0 + if after_noon { 12.0 } else { 0.0 };
    }
    if p.day.is_nan() && !p.month.is_nan() {
        p.day = 1.0;
    }
    let fits = (0.0..12.0).contains(&p.month)
        && (1.0..=31.0).contains(&p.day)
        && (0.0..24.0).contains(&p.hour)
        && (0.0..60.0).contains(&p.minute)
        && !p.year.is_nan();
    fits.then(|| clipped(to_ms(&p) - offset))
}
