//! Amounts with units: durations, sizes, rates, ports, times of day, offsets from UTC.

use crate::rule::Rate;

/// `500ms`, `30s`, `5min`, `2h`, `1d` in milliseconds.
pub(crate) fn duration_ms(text: &str) -> Option<u64> {
    let (amount, unit) = amount(text)?;
    amount.checked_mul(unit_ms(unit)?)
}

fn unit_ms(unit: &str) -> Option<u64> {
    match unit {
        "ms" => Some(1),
        "s" | "sec" | "second" | "seconds" => Some(1000),
        "m" | "min" | "minute" | "minutes" => Some(60_000),
        "h" | "hour" | "hours" => Some(3_600_000),
        "d" | "day" | "days" => Some(86_400_000),
        _ => None,
    }
}

/// `100B`, `64KiB`, `10MiB`, `2GiB`; also decimal `kB`, `MB`, `GB`.
pub(crate) fn size_bytes(text: &str) -> Option<u64> {
    let (amount, unit) = amount(text)?;
    let factor = match unit {
        "B" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    amount.checked_mul(factor)
}

/// `100/hour`, `5/min`, `10/30s`.
pub(crate) fn rate(text: &str) -> Option<Rate> {
    let (limit, window) = text.split_once('/')?;
    let window = window.trim();
    let window_ms = unit_ms(window).or_else(|| duration_ms(window)).filter(|window_ms| *window_ms > 0)?;
    Some(Rate { limit: limit.trim().parse().ok()?, window_ms })
}

/// `443` or `8000-8999`.
pub(crate) fn ports(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (from <= to).then_some((from, to))
}

/// `09:30` in minutes; `24:00` is the end of the day.
pub(crate) fn time_of_day_min(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    if hours.len() > 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    let all = hours.checked_mul(60)?.checked_add(minutes)?;
    (minutes < 60 && all <= crate::condition::DAY_MINUTES).then_some(all)
}

/// `Z`, `UTC`, `+02:00`, `-05:30` in minutes east.
pub(crate) fn utc_offset_min(text: &str) -> Option<i32> {
    if matches!(text, "Z" | "UTC" | "utc") {
        return Some(0);
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    let minutes = time_of_day_min(rest).filter(|minutes| *minutes <= 14 * 60)?;
    Some(sign * i32::from(minutes))
}

/// A number and its unit.
fn amount(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|next: char| !next.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(duration_ms("30s"), Some(30_000));
        assert_eq!(duration_ms("5 min"), Some(300_000));
        assert_eq!(duration_ms("30"), None);
        assert_eq!(duration_ms("-3s"), None);
        assert_eq!(duration_ms("99999999999999999999s"), None);
        assert_eq!(duration_ms("999999999999999999d"), None);
        assert_eq!(size_bytes("10MiB"), Some(10 << 20));
        assert_eq!(size_bytes("10"), None);
        assert_eq!(rate("100/hour"), Some(Rate { limit: 100, window_ms: 3_600_000 }));
        assert_eq!(rate("10/30s"), Some(Rate { limit: 10, window_ms: 30_000 }));
        assert_eq!(rate("10/0s"), None);
        assert_eq!(rate("x/min"), None);
        assert_eq!(ports("443"), Some((443, 443)));
        assert_eq!(ports("8000-8999"), Some((8000, 8999)));
        assert_eq!(ports("9-8"), None);
        assert_eq!(ports("70000"), None);
        assert_eq!(time_of_day_min("09:30"), Some(570));
        assert_eq!(time_of_day_min("24:00"), Some(1440));
        assert_eq!(time_of_day_min("24:01"), None);
        assert_eq!(time_of_day_min("9:5"), None);
        assert_eq!(utc_offset_min("+02:00"), Some(120));
        assert_eq!(utc_offset_min("-05:30"), Some(-330));
        assert_eq!(utc_offset_min("UTC"), Some(0));
        assert_eq!(utc_offset_min("2"), None);
    }
}
