//! Medians over many rounds, with rivals interleaved: a noisy machine is noisy for both.

use std::hint::black_box;
use std::time::Instant;

/// The middle of the samples.
pub fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds a turn, as the median over `rounds` batches of `turns`. Batches keep the clock's own cost out of short turns.
pub fn nanos<T>(rounds: usize, turns: usize, mut turn: impl FnMut() -> T) -> f64 {
    for _ in 0..turns.min(1_000) {
        black_box(turn());
    }
    let samples = (0..rounds).map(|_| {
        let started = Instant::now();
        for _ in 0..turns {
            black_box(turn());
        }
        started.elapsed().as_nanos() as f64 / turns as f64
    });
    median(samples.collect())
}

/// One round of something that takes long enough to be timed alone, in seconds.
pub fn once<T>(turn: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let result = black_box(turn());
    (started.elapsed().as_secs_f64(), result)
}
