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
    /// Full jitter: anything between nothing and the most, so that many who failed together don't come back together. What the
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

/// When to come again, as a provider says it. A date would need the wall clock, and no provider of models sends one.
pub(crate) fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let ms = number("retry-after-ms").or_else(|| number("retry-after").map(|seconds| seconds * 1_000.0))?;
    // Nothing, or nonsense, is no wait; the cast saturates.
    (ms.is_finite() && ms >= 0.0).then_some(ms.ceil() as u64)
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
            ("retry-after", "2", Some(2_000)),
            ("retry-after", "0.5", Some(500)),
            ("retry-after-ms", "70", Some(70)),
            ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", None),
            ("retry-after", "-3", None),
            ("retry-after", "NaN", None),
        ];
        for (name, value, expected) in cases {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            assert_eq!(retry_after_ms(&headers), expected, "{value}");
        }
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
