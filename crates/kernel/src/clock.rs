//! The only place that looks at a clock, so that tests and replay can hand in their own.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// The kernel's source of time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Milliseconds since 1970, as data for entries and rules. It may jump.
    fn now_ms(&self) -> i64;
    /// Time since the clock was made; never goes back. For deadlines.
    fn elapsed(&self) -> Duration;
}

/// The machine's own clock.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    fn now_ms(&self) -> i64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock for tests. Only [`ManualClock::advance_ms`] moves it.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
}

impl ManualClock {
    /// Starts at a given time.
    pub fn starting_at(now_ms: i64) -> Self {
        Self { now_ms: AtomicI64::new(now_ms) }
    }

    /// Moves the clock forward.
    pub fn advance_ms(&self, ms: i64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.now_ms()).unwrap_or(0))
    }
}
