//! How long to wait and how often to ask again.

use hyper::header::HeaderMap;
use serde::Deserialize;

/// Time-outs and retries of one provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Patience {
    /// Connecting, TLS included.
    pub connect_ms_max: u64,
    /// Until the answer begins.
    pub first_byte_ms_max: u64,
    /// Between two pieces of it.
    pub idle_ms_max: u64,
    /// All of it, retries and the waits between them included.
    pub total_ms_max: u64,
    /// How often it is asked in all, as long as no answer has begun.
    pub tries_max: u32,
    /// The first wait is at most so long; each further one at most twice as long.
    pub wait_ms: u64,
    /// But never longer, whatever the provider asks for: then someone else is asked.
    pub wait_ms_max: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect_ms_max: 10_000,
            first_byte_ms_max: 120_000,
            idle_ms_max: 60_000,
            total_ms_max: 600_000,
            tries_max: 4,
            wait_ms: 500,
            wait_ms_max: 30_000,
        }
    }
}

impl Patience {
    /// How long to wait before the next try, or `None` if it isn't worth it. `tries` have been made; `drawn` is random.
    ///
    /// Full jitter between zero and the maximum, so that concurrent failures don't retry together. What the
    /// provider asks for is waited at least.
    pub fn wait(&self, tries: u32, retry_after_ms: Option<u64>, drawn: u64) -> Option<u64> {
        if tries >= self.tries_max {
            return None;
        }
        let doubled = 1_u64.checked_shl(tries.saturating_sub(1)).unwrap_or(u64::MAX);
        let most = self.wait_ms.saturating_mul(doubled).min(self.wait_ms_max);
        let jitter = drawn.checked_rem(most.saturating_add(1)).unwrap_or(0);
        match retry_after_ms {
            Some(asked) if asked > self.wait_ms_max => None,
            Some(asked) => Some(asked.saturating_add(jitter.min(self.wait_ms))),
            None => Some(jitter),
        }
    }
}

/// A random number; without randomness the longest wait.
pub(crate) fn draw() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX)
}

/// No wait is longer than a year, whatever a server says: times have to fit into the ledger's numbers.
const WAIT_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1_000;

/// When a provider wants to be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// After this many milliseconds.
    For(u64),
    /// Not before this time, in milliseconds since 1970.
    Until(i64),
}

impl Wait {
    /// How long that is from now.
    pub fn ms_from(self, now_ms: i64) -> u64 {
        match self {
            Self::For(ms) => ms,
            Self::Until(at_ms) => u64::try_from(at_ms.saturating_sub(now_ms)).unwrap_or(0),
        }
    }

    /// When that is.
    pub fn at_ms(self, now_ms: i64) -> i64 {
        match self {
            Self::For(ms) => now_ms.saturating_add(i64::try_from(ms.min(WAIT_MS_MAX)).unwrap_or(0)),
            Self::Until(at_ms) => at_ms,
        }
    }
}

/// When to come again, as a provider says it: in seconds, or as an HTTP date. A date counts from the provider's own clock where it
/// tells the time.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Wait> {
    let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.trim());
    let number = |name: &str| text(name)?.parse::<f64>().ok();
    if let Some(at_ms) = text("retry-after").and_then(http_date_ms) {
        let Some(now_ms) = text("date").and_then(http_date_ms) else { return Some(Wait::Until(at_ms)) };
        return Some(Wait::For(Wait::Until(at_ms).ms_from(now_ms)));
    }
    let ms = number("retry-after-ms").or_else(|| number("retry-after").map(|seconds| seconds * 1_000.0))?;
    // Nothing, or nonsense, is no wait; the cast saturates.
    (ms.is_finite() && ms >= 0.0).then_some(Wait::For(ms.ceil() as u64))
}

/// `Wed, 21 Oct 2015 07:28:00 GMT`, the one form of a date that servers send, in milliseconds since 1970.
fn http_date_ms(text: &str) -> Option<i64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let rest = text.split_once(", ")?.1.strip_suffix(" GMT")?;
    let [day, month, year, time] = rest.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>().try_into().ok()?;
    let number =
        |text: &str, most: i64| text.parse::<i64>().ok().filter(|number| (0..=most).contains(number));
    let month = i64::try_from(MONTHS.find(month).filter(|at| month.len() == 3 && at % 3 == 0)? / 3).ok()? + 1;
    let (year, day) = (number(year, 9_999)?, number(day, 31)?);
    // Days since 1970: years begin in March, so that the leap day is the last.
    let (year, shifted) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * shifted + 2) / 5 + day - 719_469;
    let seconds = number(hour, 23)? * 3_600 + number(minute, 59)? * 60 + number(second, 60)?;
    Some((days * 86_400 + seconds) * 1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_provider_that_asks_for_too_long_a_wait_is_left() {
        let patience = Patience::default();
        assert_eq!(patience.wait(1, Some(30_001), 0), None);
        assert_eq!(patience.wait(1, Some(2_000), 0), Some(2_000));
        assert_eq!(patience.wait(4, None, 0), None);
    }

    #[test]
    fn waits_are_read_from_headers() {
        let cases = [
            ("retry-after", "2", Some(Wait::For(2_000))),
            ("retry-after", "0.5", Some(Wait::For(500))),
            ("retry-after-ms", "70", Some(Wait::For(70))),
            ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", Some(Wait::Until(1_445_412_480_000))),
            ("retry-after", "Wed, 21 Okt 2015 07:28:00 GMT", None),
            ("retry-after", "Wed, 21 Oct 2015 27:28:00 GMT", None),
            ("retry-after", "-3", None),
            ("retry-after", "NaN", None),
        ];
        for (name, value, expected) in cases {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            assert_eq!(retry_after(&headers), expected, "{value}");
        }
    }

    #[test]
    fn d7_a_date_counts_from_the_senders_clock() {
        let headers =
            [("retry-after", "Thu, 01 Jan 1970 01:00:00 GMT"), ("date", "Thu, 01 Jan 1970 00:59:58 GMT")];
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        assert_eq!(retry_after(&HeaderMap::from_iter(headers)), Some(Wait::For(2_000)));
        for (text, ms) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 12:00:00 GMT", 1_709_208_000_000),
            ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200_000),
        ] {
            assert_eq!(http_date_ms(text), Some(ms), "{text}");
        }
        assert_eq!(
            (Wait::Until(5_000).ms_from(2_000), Wait::Until(5).ms_from(9), Wait::For(7).at_ms(3)),
            (3_000, 0, 10)
        );
    }

    proptest! {
        #[test]
        fn waits_stay_within_their_bounds(tries in 1_u32..200, drawn in any::<u64>(), tries_max in 0_u32..300) {
            let patience = Patience { tries_max, ..Patience::default() };
            match patience.wait(tries, None, drawn) {
                Some(ms) => prop_assert!(tries < tries_max && ms <= patience.wait_ms_max),
                None => prop_assert!(tries >= tries_max),
            }
        }
    }
}
