//! How much attention a reviewer has left. An approval that comes faster than anyone can read wasn't read; a long row of approvals is a
//! habit. Both fill a meter over the last hour. When it is full, an approval covers one call, and counts only once the question can have been
//! read. A denial always counts, and ends the row.

use regent_store::{self as store, StateDraft, StateError};
pub use regent_wire::Attention;
use serde::{Deserialize, Serialize};

const HOUR_MS: i64 = 60 * 60 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// So many unread approvals within an hour fill the meter.
const HASTY_MAX: u32 = 5;
/// So many yes in a row within an hour fill it too.
const ROW_MAX: u32 = 20;
/// The least and the most that reading a question is taken to need.
const READ_MS: (u64, u64) = (1_000, 5_000);
/// A fast reader's speed, per second.
const CHARS_PER_S: u64 = 100;
/// Decisions and questions that are remembered, the newest.
const DECIDED_MAX: usize = 500;
const ASKED_MAX: usize = 2_000;
const ASKED_KEY: &str = "attention/asked";

/// One answer of a reviewer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct PastAnswer {
    at_ms: i64,
    took_ms: u64,
    yes: bool,
    hasty: bool,
}

/// A reviewer's recent answers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record(Vec<PastAnswer>);

impl Record {
    pub(crate) fn load(records: &StateDraft<'_>, person: &str) -> Result<Self, StateError> {
        Ok(records.load(&key_of(person))?.unwrap_or_default())
    }

    /// How long the person can have looked at a question: since it was put, or since they answered the one before. They read one at a time.
    pub(crate) fn looked_ms(&self, asked_at_ms: i64, now_ms: i64) -> u64 {
        // An answer that was given while the clock was ahead says nothing about now.
        let last = self.0.iter().rev().find(|one| one.at_ms <= now_ms);
        let before = last.map_or(asked_at_ms, |last| last.at_ms.max(asked_at_ms));
        u64::try_from(now_ms.saturating_sub(before)).unwrap_or(0)
    }

    /// Takes note of an answer.
    pub(crate) fn add(&mut self, yes: bool, took_ms: u64, read_ms: u64, now_ms: i64) {
        self.0.retain(|one| one.at_ms > now_ms.saturating_sub(DAY_MS));
        self.0.push(PastAnswer { at_ms: now_ms, took_ms, yes, hasty: yes && took_ms < read_ms });
        let surplus = self.0.len().saturating_sub(DECIDED_MAX);
        self.0.drain(..surplus);
    }

    pub(crate) fn save(
        &self,
        records: &mut StateDraft<'_>,
        person: &str,
        now_ms: i64,
    ) -> Result<(), StateError> {
        records.save(&key_of(person), self, now_ms.saturating_add(DAY_MS))
    }

    /// The current value.
    pub(crate) fn attention(&self, records: &StateDraft<'_>, now_ms: i64) -> Result<Attention, StateError> {
        let asked: Vec<i64> = records.load(ASKED_KEY)?.unwrap_or_default();
        Ok(self.sum(&asked, now_ms))
    }

    fn sum(&self, asked: &[i64], now_ms: i64) -> Attention {
        let within = |at_ms: i64, window_ms: i64| at_ms > now_ms.saturating_sub(window_ms);
        let count = |some: usize| u32::try_from(some).unwrap_or(u32::MAX);
        let day: Vec<&PastAnswer> = self.0.iter().filter(|one| within(one.at_ms, DAY_MS)).collect();
        let hour: Vec<&PastAnswer> = day.iter().copied().filter(|one| within(one.at_ms, HOUR_MS)).collect();
        let mut took: Vec<u64> = day.iter().map(|one| one.took_ms).collect();
        took.sort_unstable();
        let yes = day.iter().filter(|one| one.yes).count();
        let share = yes.saturating_mul(100).checked_div(day.len());
        let hasty_hour = count(hour.iter().filter(|one| one.hasty).count());
        let yes_in_a_row = count(hour.iter().rev().take_while(|one| one.yes).count());
        let full = |some: u32, most: u32| some.saturating_mul(100).checked_div(most).unwrap_or(100).min(100);
        let percent = full(hasty_hour, HASTY_MAX).max(full(yes_in_a_row, ROW_MAX));
        Attention {
            asked_hour: count(asked.iter().filter(|at_ms| within(**at_ms, HOUR_MS)).count()),
            asked_day: count(asked.iter().filter(|at_ms| within(**at_ms, DAY_MS)).count()),
            answered_hour: count(hour.len()),
            answered_day: count(day.len()),
            yes_percent_day: share.and_then(|share| u8::try_from(share).ok()),
            decide_ms_median: took.get(took.len() / 2).copied(),
            hasty_hour,
            yes_in_a_row,
            percent: u8::try_from(percent).unwrap_or(100),
        }
    }
}

/// Takes note that a question was put.
pub(crate) fn note_asked(records: &mut StateDraft<'_>, now_ms: i64) -> Result<(), StateError> {
    let mut asked: Vec<i64> = records.load(ASKED_KEY)?.unwrap_or_default();
    asked.retain(|at_ms| *at_ms > now_ms.saturating_sub(DAY_MS));
    asked.push(now_ms);
    let surplus = asked.len().saturating_sub(ASKED_MAX);
    asked.drain(..surplus);
    records.save(ASKED_KEY, &asked, now_ms.saturating_add(DAY_MS))
}

/// The least time that reading these texts takes.
pub(crate) fn read_ms(texts: &[&str]) -> u64 {
    let chars: usize = texts.iter().map(|text| text.chars().count()).sum();
    let ms = u64::try_from(chars).unwrap_or(u64::MAX).saturating_mul(1_000) / CHARS_PER_S;
    ms.clamp(READ_MS.0, READ_MS.1)
}

/// The time before which no approval counts: a quarter of the reading time. A key that was pressed before the question
/// was on the screen falls into it.
pub(crate) fn least_ms(read_ms: u64) -> u64 {
    read_ms / 4
}

fn key_of(person: &str) -> String {
    format!("attention/of/{}", store::key_part(person))
}
