//! Budgets and costs as people write and read them: `0.50usd`, `tokens=20000`, `time=10m`.

use regent_kernel::{Budget, Spent};

use crate::codes;
use crate::failure::Failure;
use crate::settings::duration_ms;

const MICROUSD_PER_USD: u64 = 1_000_000;
/// Digits after the point: a millionth of a dollar is the least there is.
const FRACTION_DIGITS_MAX: usize = 6;

/// Reads limits: each a word such as `0.50usd`, `tokens=20000`, `calls=50`, `time=10m`, `bytes=1000000`, `questions=3`. A word may be a
/// list with commas.
pub(crate) fn parse(words: &[String]) -> Result<Budget, Failure> {
    let mut budget = Budget::default();
    for word in words.iter().flat_map(|word| word.split(',')).map(str::trim).filter(|word| !word.is_empty()) {
        let wrong = || {
            Failure::new(codes::BUDGET_VALUE, format!("`{word}` is not a limit"))
                .help("one of 0.50usd, tokens=20000, calls=50, time=10m, bytes=1000000, questions=3")
        };
        let (place, amount) = if let Some(money) = word.strip_suffix("usd") {
            (&mut budget.money_microusd, microusd(money.trim_end_matches(' ')))
        } else {
            let (name, value) = word.split_once('=').ok_or_else(wrong)?;
            match name {
                "usd" => (&mut budget.money_microusd, microusd(value)),
                "tokens" => (&mut budget.tokens, count(value)),
                "calls" => (&mut budget.calls, count(value)),
                "time" => (&mut budget.wall_ms, duration_ms(value)),
                "bytes" => (&mut budget.bytes_out, count(value)),
                "questions" => (&mut budget.approvals, count(value)),
                _unknown => return Err(wrong()),
            }
        };
        *place = Some(amount.ok_or_else(wrong)?);
    }
    Ok(budget)
}

/// A whole number; `k` and `M` stand for a thousand and a million.
fn count(text: &str) -> Option<u64> {
    let (number, times) = match text.strip_suffix('k') {
        Some(number) => (number, 1_000),
        None => text.strip_suffix('M').map_or((text, 1), |number| (number, 1_000_000)),
    };
    number.parse::<u64>().ok()?.checked_mul(times)
}

/// Dollars with up to six digits after the point, exactly.
fn microusd(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if fraction.len() > FRACTION_DIGITS_MAX || !is_number(whole) || !is_number(fraction) || text.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: u64 = format!("{fraction:0<FRACTION_DIGITS_MAX$}").parse().ok()?;
    whole.checked_mul(MICROUSD_PER_USD)?.checked_add(fraction)
}

/// `0.0123 USD`: at least two digits after the point, and as many more as there are.
pub(crate) fn usd(microusd: u64) -> String {
    let (whole, fraction) = (microusd / MICROUSD_PER_USD, microusd % MICROUSD_PER_USD);
    let digits = format!("{fraction:0>FRACTION_DIGITS_MAX$}");
    let shown = digits.trim_end_matches('0').len().max(2);
    format!("{whole}.{} USD", digits.get(..shown).unwrap_or(&digits))
}

/// `1,234 tokens, 0.01 USD`.
pub(crate) fn spent(spent: &Spent) -> String {
    format!("{} tokens, {}", grouped(spent.tokens), usd(spent.money_microusd))
}

/// What a budget has, in words; empty if it has no limits.
pub(crate) fn limits(budget: &Budget) -> String {
    let mut parts = Vec::new();
    if let Some(money) = budget.money_microusd {
        parts.push(usd(money));
    }
    let counts = [
        (budget.tokens, "tokens"),
        (budget.calls, "calls"),
        (budget.bytes_out, "bytes out"),
        (budget.approvals, "questions"),
    ];
    for (count, name) in counts {
        parts.extend(count.map(|count| format!("{} {name}", grouped(count))));
    }
    parts.extend(budget.wall_ms.map(|ms| format!("{} s", grouped(ms / 1_000))));
    parts.join(", ")
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Budget, Failure> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn limits_are_read_as_people_write_them() {
        let budget = parsed(&["0.50usd", "tokens=20k,calls=50", "time=10m", "questions=3"]).unwrap();
        assert_eq!(budget.money_microusd, Some(500_000));
        assert_eq!((budget.tokens, budget.calls, budget.approvals), (Some(20_000), Some(50), Some(3)));
        assert_eq!((budget.wall_ms, budget.bytes_out), (Some(600_000), None));
        assert_eq!(parsed(&["usd=1"]).unwrap().money_microusd, Some(1_000_000));
        assert_eq!(parsed(&[".000001usd"]).unwrap().money_microusd, Some(1));
        for wrong in [
            "",
            "usd",
            "0.5",
            "-1usd",
            "1e3usd",
            "0.0000001usd",
            "tokens=",
            "tokens=-1",
            "tokens=x",
            "x=1",
            "time=10",
        ] {
            let read = parsed(&[wrong]);
            assert!(read.is_err() || wrong.is_empty(), "{wrong}: {read:?}");
        }
        assert_eq!(parsed(&["tokens=99999999999999999999"]).unwrap_err().exit, 2);
        assert_eq!(parsed(&["18446744073710usd"]).unwrap_err().exit, 2);
    }

    #[test]
    fn money_is_shown_to_the_last_digit() {
        for (microusd, text) in
            [(0, "0.00 USD"), (1, "0.000001 USD"), (500_000, "0.50 USD"), (12_345_000, "12.345 USD")]
        {
            assert_eq!(usd(microusd), text);
        }
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(12), "12");
        assert_eq!(
            limits(&Budget { tokens: Some(1_000), calls: Some(2), ..Budget::default() }),
            "1,000 tokens, 2 calls"
        );
    }
}
