//! The calls that are not over, by where their intents lie. A kernel that is killed leaves a mark behind which no call is in doubt, so
//! that the next start reads from there and not from where this kernel began.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regent_ledger::{Head, LaneId, Receipt};

/// The mark is renewed after so many entries. A start after a crash reads about that many.
const RENEWED_ENTRIES: u64 = 4096;

/// Calls that have begun and whose outcome isn't written.
#[derive(Debug, Default)]
pub(crate) struct Unended(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    /// Places of intents, and how many calls are at each. A call whose intent is still being written is at a place that the intent can't
    /// lie before.
    open: BTreeMap<(LaneId, u64), u64>,
    /// The mark, and the lane that this kernel began in.
    marked: Option<(LaneId, u64)>,
}

impl Unended {
    /// An intent is about to be written to a ledger whose end is here.
    pub(crate) fn expect(&self, head: &Head) -> (LaneId, u64) {
        let place = (head.lane, head.size);
        self.lock().add(place);
        place
    }

    /// It was written, or refused. Both at once under the lock: there is no moment in which the call isn't known.
    pub(crate) fn written(&self, expected: (LaneId, u64), intent: Option<&Receipt>) {
        let mut calls = self.lock();
        if let Some(intent) = intent {
            calls.add((intent.lane, intent.seq));
        }
        calls.remove(expected);
    }

    /// A call of an earlier kernel is to get its outcome.
    pub(crate) fn resumed(&self, intent: &Receipt) {
        self.lock().add((intent.lane, intent.seq));
    }

    /// Its outcome was written.
    pub(crate) fn ended(&self, intent: &Receipt) {
        self.lock().remove((intent.lane, intent.seq));
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.lock().open.values().sum()
    }

    /// This kernel begins here: the mark is where its predecessors were examined up to.
    pub(crate) fn begin(&self, head: &Head) {
        self.lock().marked = Some((head.lane, head.size));
    }

    /// A new mark, if one is due. `head` was read before: what lies behind it has ended, or is known here.
    pub(crate) fn due(&self, head: &Head) -> Option<u64> {
        let mut calls = self.lock();
        let (lane, before) = calls.marked?;
        // After a full disk the calls of one lane end in another: then both are read from their old marks. The first and the last place
        // tell for all of them.
        let (first, last) = (calls.open.keys().next(), calls.open.keys().next_back());
        if head.lane != lane || first.into_iter().chain(last).any(|(open, _)| *open != lane) {
            return None;
        }
        let seq = first.map_or(head.size, |(_, seq)| (*seq).min(head.size));
        if seq.saturating_sub(before) < RENEWED_ENTRIES {
            return None;
        }
        calls.marked = Some((lane, seq));
        Some(seq)
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Calls {
    fn add(&mut self, place: (LaneId, u64)) {
        let count = self.open.entry(place).or_default();
        *count = count.saturating_add(1);
    }

    fn remove(&mut self, place: (LaneId, u64)) {
        if let Some(count) = self.open.get_mut(&place) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.open.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use regent_ledger::Digest;

    use super::*;

    fn head(lane: u16, size: u64) -> Head {
        Head { lane: LaneId::new(lane).unwrap(), size, hash: Digest::compute(b"") }
    }

    fn receipt(lane: u16, seq: u64) -> Receipt {
        Receipt { lane: LaneId::new(lane).unwrap(), seq, hash: Digest::compute(b"") }
    }

    #[test]
    fn the_mark_stops_at_the_oldest_call_that_is_not_over() {
        let unended = Unended::default();
        assert_eq!(unended.due(&head(1, 1_000_000)), None, "the kernel has not begun");
        unended.begin(&head(1, 10));
        let expected = unended.expect(&head(1, 5_000));
        assert_eq!(unended.due(&head(1, 9_000)), Some(5_000), "its intent may lie anywhere after that");
        unended.written(expected, Some(&receipt(1, 9_000)));
        assert_eq!((unended.count(), unended.due(&head(1, 20_000))), (1, None));
        let other = unended.expect(&head(1, 20_000));
        unended.ended(&receipt(1, 9_000));
        assert_eq!(unended.due(&head(1, 30_000)), Some(20_000));
        unended.written(other, None);
        assert_eq!(unended.count(), 0);
        assert_eq!(unended.due(&head(1, 30_000)), Some(30_000));
        assert_eq!(unended.due(&head(1, 30_000 + RENEWED_ENTRIES - 1)), None, "not yet due");
    }

    #[test]
    fn no_mark_moves_once_calls_may_end_in_another_lane() {
        let unended = Unended::default();
        unended.begin(&head(1, 0));
        let expected = unended.expect(&head(1, 50_000));
        unended.written(expected, Some(&receipt(2, 3)));
        assert_eq!(unended.due(&head(1, 50_000)), None);
        assert_eq!(unended.due(&head(2, 50_000)), None);
    }
}
