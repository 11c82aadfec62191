//! Rates: how often a principal has used a rule within the window that slides behind the present.
//!
//! Counting and checking are one step in the shared state. Up to [`EXACT_MAX`] calls are kept one by one; beyond that, calls that
//! are close together share a bucket that counts until its last call has left the window. So a rate is never exceeded in any
//! window; a large one may be given back up to a sixty-fourth of its window late.

#[cfg(test)]
mod tests;

use regent_policy::{Charge, Rates, RuleId};
use regent_store::{self as store, State, StateError};
use serde::{Deserialize, Serialize};

/// Rates up to this many calls are counted call by call.
const EXACT_MAX: u32 = 64;

/// Counts one call against a rate, unless that would exceed it.
pub(crate) fn take(state: &dyn State, charge: &Charge, who: &str, now_ms: i64) -> Result<bool, StateError> {
    let key = key_of(charge.rule, who);
    store::change(state, |records| {
        let mut window: Window = store::load(records, &key)?.unwrap_or_default();
        let set_back = window.bring_back(now_ms);
        let taken = window.take(charge, now_ms);
        if taken || set_back {
            store::save(records, &key, &window, now_ms.saturating_add(millis(charge.window_ms)))?;
        }
        Ok(taken)
    })
}

/// What policy sees of the rates: those of one principal, now.
#[derive(Debug)]
pub(crate) struct Used<'a> {
    pub(crate) state: &'a dyn State,
    pub(crate) who: &'a str,
    pub(crate) now_ms: i64,
}

impl Rates for Used<'_> {
    fn used(&self, rule: RuleId, window_ms: u64) -> u32 {
        let key = key_of(rule, self.who);
        let window: Result<Option<Window>, StateError> =
            self.state.get(&key).and_then(|bytes| bytes.map(|bytes| store::parse(&key, &bytes)).transpose());
        match window {
            Ok(window) => window.map_or(0, |window| window.used(window_ms, self.now_ms)),
            // What can't be read counts as used up.
            Err(_) => u32::MAX,
        }
    }
}

/// The calls of the window, oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Window(Vec<Bucket>);

/// Calls that are counted together: when the first and the last of them were, and how many.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Bucket(i64, i64, u32);

impl Window {
    /// A clock that was set back leaves calls in the future: they count as calls of now, and age from here.
    fn bring_back(&mut self, now_ms: i64) -> bool {
        let ahead = self.0.iter().any(|Bucket(_, last, _)| *last > now_ms);
        for Bucket(first, last, _) in &mut self.0 {
            (*first, *last) = ((*first).min(now_ms), (*last).min(now_ms));
        }
        ahead
    }

    fn take(&mut self, charge: &Charge, now_ms: i64) -> bool {
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

    fn used(&self, window_ms: u64, now_ms: i64) -> u32 {
        let since = now_ms.saturating_sub(millis(window_ms));
        let within = self.0.iter().filter(|Bucket(_, last, _)| *last > since);
        within.fold(0, |sum, Bucket(_, _, count)| sum.saturating_add(*count))
    }
}

fn key_of(rule: RuleId, who: &str) -> String {
    format!("rate/{:016x}/{}", rule.0, store::key_part(who))
}

fn millis(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
