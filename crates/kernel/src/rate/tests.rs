//! A rate is never exceeded in any window, and no two callers share one place in it.

use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use regent_store::{MemoryState, SqliteState};

use super::*;

fn charge(limit: u32, window_ms: u64) -> Charge {
    Charge { rule: RuleId(7), limit, window_ms }
}

fn used(state: &dyn State, who: &str, now_ms: i64) -> u32 {
    Used { state, who, now_ms }.used(RuleId(7), 1_000)
}

#[test]
fn small_rates_are_exact_and_each_principal_has_its_own() {
    let state = MemoryState::default();
    let charge = charge(2, 1_000);
    for (who, now_ms, taken) in [
        ("a", 0, true),
        ("a", 10, true),
        ("a", 999, false),
        ("b", 999, true),
        ("a", 1_000, true),
        ("a", 1_009, false),
        ("a", 1_010, true),
    ] {
        assert_eq!(take(&state, &charge, who, now_ms).unwrap(), taken, "{who} at {now_ms}");
    }
    assert_eq!((used(&state, "a", 1_010), used(&state, "b", 1_010), used(&state, "c", 1_010)), (2, 1, 0));
    assert_eq!(used(&state, "a", 2_010), 0);
    assert!(!take(&state, &self::charge(0, 1_000), "a", 5_000).unwrap(), "a rate of nothing allows nothing");
}

#[test]
fn a_clock_that_was_set_back_neither_opens_nor_blocks_for_long() {
    let state = MemoryState::default();
    let charge = charge(1, 1_000);
    assert!(take(&state, &charge, "a", 1_000_000).unwrap());
    assert!(!take(&state, &charge, "a", 5_000).unwrap(), "what was counted counts");
    assert!(!take(&state, &charge, "a", 5_500).unwrap());
    assert_eq!(used(&state, "a", 5_500), 1);
    assert!(take(&state, &charge, "a", 6_000).unwrap(), "it has left the window of the new time");
}

#[test]
fn what_cannot_be_read_counts_as_used_up() {
    let state = MemoryState::default();
    let key = key_of(RuleId(7), "a");
    store::change(&state, |records| records.put(&key, b"nonsense", 0)).unwrap();
    assert_eq!(used(&state, "a", 0), u32::MAX);
    assert!(take(&state, &charge(5, 1_000), "a", 0).is_err());
}

#[test]
fn adv_103_processes_that_share_a_rate_never_exceed_it_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let taken = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let state = SqliteState::open(&path).unwrap();
                for now_ms in 0..20 {
                    let got = take(&state, &charge(30, 1_000), "a", now_ms).unwrap();
                    taken.fetch_add(u32::from(got), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(taken.into_inner(), 30);
}

proptest! {
    #[test]
    fn no_window_holds_more_than_the_limit(
        limit in prop_oneof![1_u32..6, 65_u32..90],
        window_ms in prop_oneof![1_u64..50, 640_u64..2_000],
        steps in proptest::collection::vec(0_i64..40, 0..400),
    ) {
        let state = MemoryState::default();
        let charge = charge(limit, window_ms);
        let (mut now_ms, mut taken) = (0, Vec::new());
        for step in steps {
            now_ms += step;
            if take(&state, &charge, "a", now_ms).unwrap() {
                taken.push(now_ms);
            }
        }
        let window = i64::try_from(window_ms).unwrap();
        for (index, start) in taken.iter().enumerate() {
            let within = taken[index..].iter().take_while(|at| **at < start + window).count();
            prop_assert!(within <= limit as usize, "{within} from {start}");
        }
        let record = state.scan("rate/").unwrap();
        prop_assert!(record.iter().all(|record| record.value.len() < 4_096), "a record stays small");
    }
}
