//! Rates: how often a principal has used a rule within the window that slides behind the present.
//!
//! Counting and checking are one step in the shared state; how calls are counted is [`Window`]'s. Callers of one rate would conflict with
//! each other, one commit each. So they queue: while one commit is under way the others wait, and the next commit takes for all of them. The
//! limit stays exact, whatever the backend.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_policy::{Charge, RuleId, Window};
use regent_store::{self as store, Partition, State, StateError, key_part};
use tokio::sync::oneshot;

/// Rates that are remembered for the next caller. Beyond this, unused ones are forgotten.
const KNOWN_MAX: usize = 4_096;
/// Callers that one commit takes for.
const BATCH_MAX: usize = 1_024;

/// The rates of one kernel, in the state that processes share.
#[derive(Debug)]
pub(crate) struct Rates {
    state: Arc<dyn State>,
    known: Mutex<HashMap<String, Arc<Counter>>>,
}

/// One rate of one principal.
#[derive(Debug)]
struct Counter {
    key: String,
    waiting: Mutex<Vec<Waiter>>,
    /// Held by the waiter that commits for all.
    turn: tokio::sync::Mutex<()>,
    /// As this process last committed it. Others may have used more since.
    seen: Mutex<Option<Window>>,
}

#[derive(Debug)]
struct Waiter {
    step: RateChange,
    reply: oneshot::Sender<Result<bool, StateError>>,
}

#[derive(Debug, Clone, Copy)]
enum RateChange {
    /// Counts one call, unless that would exceed the rate.
    Take(Charge, i64),
    /// Takes back a call that was counted at this time and never ran.
    GiveBack(Charge, i64),
}

impl Rates {
    pub(crate) fn new(state: Arc<dyn State>) -> Self {
        Self { state, known: Mutex::default() }
    }

    /// Counts one call against a rate, unless that would exceed it.
    pub(crate) async fn take(&self, charge: &Charge, who: &str, now_ms: i64) -> Result<bool, StateError> {
        self.counter(charge.rule, who).step(&*self.state, RateChange::Take(*charge, now_ms)).await
    }

    /// Takes back a call that was counted at `at_ms` and never ran.
    pub(crate) async fn give_back(&self, charge: &Charge, who: &str, at_ms: i64) -> Result<(), StateError> {
        self.counter(charge.rule, who)
            .step(&*self.state, RateChange::GiveBack(*charge, at_ms))
            .await
            .map(drop)
    }

    /// How often a principal has used a rate. What can't be read counts as used up. What this process knows is enough where it leaves
    /// room: taking is exact. Where it leaves none, others may have given back.
    pub(crate) async fn used(&self, charge: &Charge, who: &str, now_ms: i64) -> u32 {
        let counter = self.counter(charge.rule, who);
        let seen = lock(&counter.seen).as_ref().map(|window| window.used(charge.window_ms, now_ms));
        match seen.filter(|used| *used < charge.limit) {
            Some(used) => used,
            None => counter
                .read(&*self.state)
                .await
                .map_or(u32::MAX, |window| window.used(charge.window_ms, now_ms)),
        }
    }

    fn counter(&self, rule: RuleId, who: &str) -> Arc<Counter> {
        let key = format!("rate/{:016x}/{}", rule.0, key_part(who));
        let mut known = lock(&self.known);
        if let Some(counter) = known.get(&key) {
            return Arc::clone(counter);
        }
        if known.len() >= KNOWN_MAX {
            known.retain(|_, counter| Arc::strong_count(counter) > 1);
        }
        let counter = Arc::new(Counter {
            key: key.clone(),
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            seen: Mutex::default(),
        });
        known.insert(key, Arc::clone(&counter));
        counter
    }
}

impl Counter {
    /// Queues a step, and waits until it is committed: by another caller, or by this one when it gets its turn.
    async fn step(&self, state: &dyn State, step: RateChange) -> Result<bool, StateError> {
        let (reply, mut answer) = oneshot::channel();
        lock(&self.waiting).push(Waiter { step, reply });
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    // The caller that committed for this one was dropped meanwhile. Whether it was counted is unknown, so it doesn't run.
                    return answer.unwrap_or_else(|_| Err(StateError::Unusable("a step was cut off".to_owned())));
                }
                _turn = self.turn.lock() => self.commit(state).await,
            }
        }
    }

    /// Commits for those that wait now.
    async fn commit(&self, state: &dyn State) {
        let batch: Vec<Waiter> = {
            let mut waiting = lock(&self.waiting);
            let count = waiting.len().min(BATCH_MAX);
            waiting.drain(..count).collect()
        };
        if batch.is_empty() {
            return;
        }
        let steps: Vec<RateChange> = batch.iter().map(|waiter| waiter.step).collect();
        let (key, partition) = (&self.key, Partition::containing(&self.key));
        let done = store::change(state, &partition, std::slice::from_ref(key), |records| {
            let mut window: Window = records.load(key)?.unwrap_or_default();
            let before = window.clone();
            let (taken, keep_until_ms) = window_after(&mut window, &steps);
            if window != before {
                records.save(key, &window, keep_until_ms)?;
            }
            Ok((taken, window))
        })
        .await;
        match done {
            Ok((taken, window)) => {
                *lock(&self.seen) = Some(window);
                for (waiter, taken) in batch.into_iter().zip(taken) {
                    // One that is gone by now was torn down with its call.
                    drop(waiter.reply.send(Ok(taken)));
                }
            }
            Err(error) => {
                *lock(&self.seen) = None;
                batch.into_iter().for_each(|waiter| drop(waiter.reply.send(Err(error.clone()))));
            }
        }
    }

    async fn read(&self, state: &dyn State) -> Result<Window, StateError> {
        let window = store::load(state, &self.key, &Partition::containing(&self.key)).await?;
        Ok(window.unwrap_or_default())
    }
}

/// Runs steps one after the other: whether each was taken, and for how long the window matters.
fn window_after(window: &mut Window, steps: &[RateChange]) -> (Vec<bool>, i64) {
    let (mut window_ms, mut now_ms) = (0, i64::MIN);
    let taken = steps.iter().map(|step| {
        let (charge, at_ms) = match step {
            RateChange::Take(charge, at_ms) | RateChange::GiveBack(charge, at_ms) => (charge, *at_ms),
        };
        (window_ms, now_ms) = (charge.window_ms.max(window_ms), now_ms.max(at_ms));
        match step {
            RateChange::Take(..) => {
                window.bring_back(at_ms);
                window.take(charge, at_ms)
            }
            RateChange::GiveBack(..) => {
                window.give_back(at_ms);
                true
            }
        }
    });
    let taken = taken.collect();
    // What is given back may have been counted long before the last call that the window still has.
    let newest_ms = window.newest_ms().unwrap_or(now_ms).max(now_ms);
    (taken, newest_ms.saturating_add_unsigned(window_ms))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
