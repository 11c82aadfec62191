//! Budgets and costs as people write and read them: `0.50usd`, `tokens=20000`, `time=10m`.

use regent_kernel::{Budget, Each, Spent};
pub(crate) use regent_models::usd;
use regent_runtime::door::TaskUsage;

use crate::codes;
use crate::failure::Failure;
use crate::output::Screen;
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
                .help("use 0.50usd, tokens=20000, calls=50, time=10m, bytes=1000000 or questions=3")
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

/// Limits as `--budget` takes them; empty if there are none.
pub(crate) fn words(budget: &Budget) -> String {
    let counts = [
        ("tokens", budget.tokens),
        ("calls", budget.calls),
        ("bytes", budget.bytes_out),
        ("questions", budget.approvals),
    ];
    let counts = counts.into_iter().filter_map(|(name, count)| Some(format!("{name}={}", count?)));
    let time = budget.wall_ms.map(|ms| format!("time={}s", ms.div_ceil(1_000)));
    let money = budget.money_microusd.map(|money| usd(money).replace(" USD", "usd"));
    money.into_iter().chain(counts).chain(time).collect::<Vec<_>>().join(",")
}

/// Twice as much of everything that is limited.
pub(crate) fn doubled(budget: Budget) -> Budget {
    let twice = |limit: Option<u64>| limit.map(|limit| limit.max(1).saturating_mul(2));
    Budget {
        approvals: twice(budget.approvals),
        bytes_out: twice(budget.bytes_out),
        calls: twice(budget.calls),
        money_microusd: twice(budget.money_microusd),
        tokens: twice(budget.tokens),
        wall_ms: twice(budget.wall_ms),
    }
}

/// The limits that are given, and for the rest those that were there.
pub(crate) fn merged(old: Budget, new: Budget) -> Budget {
    Budget {
        approvals: new.approvals.or(old.approvals),
        bytes_out: new.bytes_out.or(old.bytes_out),
        calls: new.calls.or(old.calls),
        money_microusd: new.money_microusd.or(old.money_microusd),
        tokens: new.tokens.or(old.tokens),
        wall_ms: new.wall_ms.or(old.wall_ms),
    }
}

/// How near a budget is to its end, by whatever it has least of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nearness {
    /// Less than three quarters are used.
    Ok,
    /// Three quarters are.
    Warning,
    /// Nine tenths are.
    Critical,
    /// All of it: calls are refused, and tasks wait.
    Paused,
}

impl Nearness {
    /// Of so many percent.
    pub(crate) fn from_percent(percent: u64) -> Self {
        match percent {
            0..75 => Self::Ok,
            75..90 => Self::Warning,
            90..100 => Self::Critical,
            100.. => Self::Paused,
        }
    }

    /// As it is written.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Paused => "paused",
        }
    }

    /// The word in its colour.
    pub(crate) fn painted(self, screen: &Screen) -> String {
        match self {
            Self::Ok => screen.good(self.word()),
            Self::Warning => screen.warn(self.word()),
            Self::Critical | Self::Paused => screen.bad(self.word()),
        }
    }
}

/// How much of a budget is used, in percent of whatever it has least of; none if it has no limits. Not yet all is never 100.
pub(crate) fn percent_used(limits: &Budget, used: &Each<u64>) -> Option<u64> {
    let pairs = [
        (limits.approvals, used.approvals),
        (limits.bytes_out, used.bytes_out),
        (limits.calls, used.calls),
        (limits.money_microusd, used.money_microusd),
        (limits.tokens, used.tokens),
        (limits.wall_ms, used.wall_ms),
    ];
    let percent = |(limit, used): (Option<u64>, u64)| {
        let limit = limit?;
        let part = u128::from(used).saturating_mul(100).checked_div(u128::from(limit)).unwrap_or(100);
        Some(u64::try_from(part).unwrap_or(u64::MAX))
    };
    pairs.into_iter().filter_map(percent).max()
}

/// What a task has used, as a budget counts it.
pub(crate) fn counted(used: &TaskUsage) -> Each<u64> {
    let Spent { bytes_out, money_microusd, tokens, wall_ms } = used.spent;
    Each { approvals: used.questions, bytes_out, calls: used.calls, money_microusd, tokens, wall_ms }
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len().saturating_sub(at).is_multiple_of(3) {
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
    fn a_budget_is_as_near_to_its_end_as_what_it_has_least_of() {
        let limits = Budget { tokens: Some(1_000), calls: Some(10), ..Budget::default() };
        for (tokens, calls, percent, word) in [
            (0, 0, 0, "ok"),
            (749, 1, 74, "ok"),
            (750, 1, 75, "warning"),
            (1, 9, 90, "critical"),
            (999, 0, 99, "critical"),
            (1_000, 0, 100, "paused"),
            (5_000, 0, 500, "paused"),
        ] {
            let used = Each { tokens, calls, money_microusd: 7, ..Each::default() };
            assert_eq!(percent_used(&limits, &used), Some(percent));
            assert_eq!(Nearness::from_percent(percent).word(), word);
        }
        assert_eq!(percent_used(&Budget::default(), &Each::default()), None);
        let none = Budget { calls: Some(0), ..Budget::default() };
        assert_eq!(percent_used(&none, &Each::default()), Some(100), "nothing may be used: all is");
    }

    #[test]
    fn prints_money_to_the_last_digit() {
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
