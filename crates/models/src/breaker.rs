//! One breaker for each provider: after failures in a row it isn't asked for a while, and then one call finds out whether it is back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regent_kernel::Clock;

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trip {
    /// Failures in a row.
    pub failures_max: u32,
    /// How long it stays open at first; twice as long after each probe that fails.
    pub open_ms: u64,
    /// And at most.
    pub open_ms_max: u64,
}

impl Default for Trip {
    fn default() -> Self {
        Self { failures_max: 5, open_ms: 5_000, open_ms_max: 120_000 }
    }
}

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// None passes.
    Open,
    /// One has passed, and the others wait for what comes of it.
    HalfOpen,
}

/// Keeps calls from a provider that is down.
#[derive(Debug)]
pub struct Breaker {
    trip: Trip,
    clock: Arc<dyn Clock>,
    inner: Mutex<BreakerInner>,
}

#[derive(Debug, Default)]
struct BreakerInner {
    failures: u32,
    /// Set while it isn't closed.
    open: Option<OpenBreaker>,
}

#[derive(Debug, Clone, Copy)]
struct OpenBreaker {
    until: Duration,
    for_ms: u64,
    probing: bool,
}

/// Permission to ask once. Report its outcome; a dropped one reports nothing, and the next call may try.
#[derive(Debug)]
#[must_use]
pub struct Pass<'b> {
    breaker: &'b Breaker,
    is_probe: bool,
    told: bool,
}

impl Breaker {
    /// A closed one.
    pub fn new(trip: Trip, clock: Arc<dyn Clock>) -> Self {
        Self { trip, clock, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, BreakerInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current state.
    pub fn state(&self) -> BreakerState {
        match self.inner().open {
            None => BreakerState::Closed,
            Some(OpenBreaker { probing: true, .. }) => BreakerState::HalfOpen,
            Some(_) => BreakerState::Open,
        }
    }

    /// Whether a call would pass now.
    pub fn would_pass(&self) -> bool {
        let now = self.clock.elapsed();
        self.inner().open.is_none_or(|opened| !opened.probing && now >= opened.until)
    }

    /// Leave to ask; none while it is open, and one at a time while it is half open.
    pub fn pass(&self) -> Option<Pass<'_>> {
        let now = self.clock.elapsed();
        let mut inner = self.inner();
        let is_probe = match &mut inner.open {
            None => false,
            Some(opened) if opened.probing || now < opened.until => return None,
            Some(opened) => {
                opened.probing = true;
                true
            }
        };
        Some(Pass { breaker: self, is_probe, told: false })
    }
}

impl Pass<'_> {
    /// It answered, if only to say no.
    pub fn is_up(mut self) {
        self.told = true;
        let mut inner = self.breaker.inner();
        // A call that began before it opened says nothing about now.
        if self.is_probe || inner.open.is_none() {
            *inner = BreakerInner::default();
        }
    }

    /// It is down.
    pub fn is_down(mut self) {
        self.told = true;
        let Breaker { trip, clock, .. } = self.breaker;
        let mut inner = self.breaker.inner();
        inner.failures = inner.failures.saturating_add(1);
        let for_ms = match inner.open {
            Some(opened) if self.is_probe => opened.for_ms.saturating_mul(2).min(trip.open_ms_max),
            Some(_) => return,
            None if inner.failures >= trip.failures_max => trip.open_ms,
            None => return,
        };
        let until = clock.elapsed().saturating_add(Duration::from_millis(for_ms));
        inner.open = Some(OpenBreaker { until, for_ms, probing: false });
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !self.told
            && self.is_probe
            && let Some(opened) = &mut self.breaker.inner().open
        {
            opened.probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use regent_kernel::ManualClock;

    use super::*;

    fn tripped() -> (Arc<ManualClock>, Breaker) {
        let clock = Arc::new(ManualClock::starting_at(0));
        let breaker = Breaker::new(
            Trip { failures_max: 3, open_ms: 100, open_ms_max: 300 },
            Arc::clone(&clock) as Arc<dyn Clock>,
        );
        for _ in 0..3 {
            assert_eq!(breaker.state(), BreakerState::Closed);
            breaker.pass().unwrap().is_down();
        }
        (clock, breaker)
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_success_between_them_does_not() {
        let (_, breaker) = tripped();
        assert_eq!(
            (breaker.state(), breaker.would_pass(), breaker.pass().is_none()),
            (BreakerState::Open, false, true)
        );
        let breaker = Breaker::new(Trip::default(), Arc::new(ManualClock::starting_at(0)));
        for _ in 0..20 {
            breaker.pass().unwrap().is_down();
            breaker.pass().unwrap().is_up();
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn half_open_lets_exactly_one_through_and_believes_it() {
        let (clock, breaker) = tripped();
        clock.advance_ms(100);
        let probe = breaker.pass().unwrap();
        assert_eq!((breaker.state(), breaker.pass().is_none()), (BreakerState::HalfOpen, true));
        probe.is_up();
        assert_eq!(breaker.state(), BreakerState::Closed);
        // And from the beginning again: one failure isn't three.
        breaker.pass().unwrap().is_down();
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn a_probe_that_fails_opens_it_for_longer_and_one_that_is_given_up_for_no_longer() {
        let (clock, breaker) = tripped();
        let mut wait = 100;
        for longer in [200, 300, 300] {
            clock.advance_ms(wait - 1);
            assert!(breaker.pass().is_none());
            clock.advance_ms(1);
            drop(breaker.pass().unwrap());
            assert!(breaker.would_pass());
            breaker.pass().unwrap().is_down();
            wait = longer;
        }
    }

    #[test]
    fn a_call_from_before_decides_nothing() {
        let (clock, breaker) = (Arc::new(ManualClock::starting_at(0)), ());
        let () = breaker;
        let breaker = Breaker::new(
            Trip { failures_max: 1, open_ms: 100, open_ms_max: 100 },
            Arc::clone(&clock) as Arc<dyn Clock>,
        );
        let (old, older) = (breaker.pass().unwrap(), breaker.pass().unwrap());
        breaker.pass().unwrap().is_down();
        old.is_up();
        older.is_down();
        assert_eq!(breaker.state(), BreakerState::Open);
        clock.advance_ms(100);
        assert!(breaker.would_pass());
    }
}
