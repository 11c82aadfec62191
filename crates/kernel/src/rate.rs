//! Rates: how often a principal has used a rule within the window that slides behind the present.
//!
//! Counting and checking are one step in the shared state; how calls are counted is [`Window`]'s.

#[cfg(test)]
mod tests;

use regent_policy::{Charge, Rates, RuleId, Window};
use regent_store::{self as store, State, StateError};

/// Counts one call against a rate, unless that would exceed it.
pub(crate) fn take(state: &dyn State, charge: &Charge, who: &str, now_ms: i64) -> Result<bool, StateError> {
    let key = key_of(charge.rule, who);
    store::change(state, |records| {
        let mut window: Window = store::load(records, &key)?.unwrap_or_default();
        let set_back = window.bring_back(now_ms);
        let taken = window.take(charge, now_ms);
        if taken || set_back {
            store::save(records, &key, &window, now_ms.saturating_add_unsigned(charge.window_ms))?;
        }
        Ok(taken)
    })
}

/// Takes back a call that was counted at `at_ms` and never ran.
pub(crate) fn give_back(state: &dyn State, charge: &Charge, who: &str, at_ms: i64) -> Result<(), StateError> {
    let key = key_of(charge.rule, who);
    store::change(state, |records| {
        let Some(mut window): Option<Window> = store::load(records, &key)? else { return Ok(()) };
        window.give_back(at_ms);
        store::save(records, &key, &window, at_ms.saturating_add_unsigned(charge.window_ms))
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

fn key_of(rule: RuleId, who: &str) -> String {
    format!("rate/{:016x}/{}", rule.0, store::key_part(who))
}
