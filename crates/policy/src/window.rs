//! A sliding window and the calls within it: plain data to count rates.
//!
//! Up to [`EXACT_MAX`] calls are stored individually. Beyond that, nearby calls share a bucket that counts until its last call has left the
//! window. A rate is thus never exceeded in any window, but capacity of a large rate may return late by up to a sixty-fourth of its window.

use serde::{Deserialize, Serialize};

use crate::verdict::Charge;

/// Rates up to this many calls are counted exactly.
const EXACT_MAX: u32 = 64;

/// The calls of the window, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Window(Vec<Bucket>);

/// Calls that are counted together: times of the first and the last, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Bucket(i64, i64, u32);

impl Window {
    /// After the clock was set back, recorded calls lie in the future; they are moved to the present.
    pub fn bring_back(&mut self, now_ms: i64) -> bool {
        let ahead = self.0.iter().any(|Bucket(_, last, _)| *last > now_ms);
        for Bucket(first, last, _) in &mut self.0 {
            (*first, *last) = ((*first).min(now_ms), (*last).min(now_ms));
        }
        ahead
    }

    /// Counts one call, unless that would exceed the rate.
    pub fn take(&mut self, charge: &Charge, now_ms: i64) -> bool {
        let since = now_ms.saturating_sub(millis(charge.window_ms));
        self.0.retain(|Bucket(_, last, _)| *last > since);
        if self.used(charge.window_ms, now_ms) >= charge.limit {
            return false;
        }
        let grain_ms = if charge.limit <= EXACT_MAX { 1 } else { millis(charge.window_ms / 64).max(1) };
        match self.0.last_mut() {
            Some(Bucket(first, last, count)) if now_ms.saturating_sub(*first) < grain_ms => {
                *last = now_ms;
                *count = count.saturating_add(1);
            }
            Some(_) | None => self.0.push(Bucket(now_ms, now_ms, 1)),
        }
        true
    }

    /// Removes one call that was counted at `at_ms` and never ran. After the clock was set back, it is found at an earlier time.
    pub fn give_back(&mut self, at_ms: i64) {
        let found = self.0.iter().rposition(|Bucket(first, _, _)| *first <= at_ms);
        let Some(Bucket(_, _, count)) = found.and_then(|at| self.0.get_mut(at)) else { return };
        *count = count.saturating_sub(1);
        self.0.retain(|Bucket(_, _, count)| *count > 0);
    }

    /// When the last call was counted.
    pub fn newest_ms(&self) -> Option<i64> {
        self.0.iter().map(|Bucket(_, last, _)| *last).max()
    }

    /// Calls within the window that ends now.
    pub fn used(&self, window_ms: u64, now_ms: i64) -> u32 {
        let since = now_ms.saturating_sub(millis(window_ms));
        let within = self.0.iter().filter(|Bucket(_, last, _)| *last > since);
        within.fold(0, |sum, Bucket(_, _, count)| sum.saturating_add(*count))
    }
}

fn millis(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
