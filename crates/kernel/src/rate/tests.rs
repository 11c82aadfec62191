//! A rate is never exceeded in any window, and no two callers share one place in it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use proptest::prelude::*;
use regent_store::{MemoryState, SqliteState};

use super::*;
use crate::tests::shared::wait;

fn charge(limit: u32, window_ms: u64) -> Charge {
    Charge { rule: RuleId(7), limit, window_ms }
}

/// A kernel's rates, for tests that have nothing else to do meanwhile.
fn take(state: &Arc<dyn State>, charge: &Charge, who: &str, now_ms: i64) -> Result<bool, StateError> {
    wait(Rates::new(Arc::clone(state)).take(charge, who, now_ms))
}

fn used(state: &Arc<dyn State>, who: &str, now_ms: i64) -> u32 {
    wait(Rates::new(Arc::clone(state)).used(&charge(2, 1_000), who, now_ms))
}

fn memory() -> Arc<dyn State> {
    Arc::new(MemoryState::default())
}

#[test]
fn small_rates_are_exact_and_each_principal_has_its_own() {
    let state = memory();
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
    let state = memory();
    let charge = charge(1, 1_000);
    assert!(take(&state, &charge, "a", 1_000_000).unwrap());
    assert!(!take(&state, &charge, "a", 5_000).unwrap(), "what was counted counts");
    assert!(!take(&state, &charge, "a", 5_500).unwrap());
    assert_eq!(used(&state, "a", 5_500), 1);
    assert!(take(&state, &charge, "a", 6_000).unwrap(), "it has left the window of the new time");
}

#[test]
fn a_call_that_is_given_back_late_takes_no_later_call_along() {
    const MINUTE_MS: i64 = 60_000;
    let (state, charge) = (memory(), charge(5, 3_600_000));
    let rates = Rates::new(Arc::clone(&state));
    for at_ms in [0, 30 * MINUTE_MS] {
        assert!(wait(rates.take(&charge, "a", at_ms)).unwrap());
    }
    wait(rates.give_back(&charge, "a", 0)).unwrap();
    wait(state.sweep(61 * MINUTE_MS, 10)).unwrap();
    assert_eq!(wait(Rates::new(state).used(&charge, "a", 61 * MINUTE_MS)), 1);
}

#[test]
fn what_cannot_be_read_counts_as_used_up() {
    let state = memory();
    let (key, partition) = ("rate/0000000000000007/a", Partition::containing("rate/0000000000000007/a"));
    wait(store::change(&*state, &partition, &[], |records| records.put(key, b"nonsense", 0))).unwrap();
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
                let state: Arc<dyn State> = Arc::new(SqliteState::open(&path).unwrap());
                // A conflict with another process waits a moment before it tries again.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                for now_ms in 0..20 {
                    let rates = Rates::new(Arc::clone(&state));
                    let got = runtime.block_on(rates.take(&charge(30, 1_000), "a", now_ms)).unwrap();
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
        let state = memory();
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
        let record = wait(state.scan(&Partition::containing("rate/0000000000000007/a"), "rate/")).unwrap();
        prop_assert!(record.iter().all(|record| record.value.len() < 4_096), "a record stays small");
    }
}

/// Counts commits, and lets others go on before each.
#[derive(Debug, Default)]
struct Slow(MemoryState, AtomicU64);

impl State for Slow {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> store::BoxFuture<'s, Result<Vec<Option<store::Versioned>>, StateError>> {
        self.0.read(partition, keys)
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> store::BoxFuture<'s, Result<Vec<store::Record>, StateError>> {
        self.0.scan(partition, prefix)
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: store::Change,
    ) -> store::BoxFuture<'s, Result<store::Committed, StateError>> {
        Box::pin(async move {
            self.1.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            self.0.commit(partition, change).await
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> store::BoxFuture<'_, Result<usize, StateError>> {
        self.0.sweep(now_ms, max)
    }

    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.changes()
    }
}

#[tokio::test]
async fn callers_of_one_rate_share_commits_and_the_limit_stays_exact() {
    let state = Arc::new(Slow::default());
    let rates = Arc::new(Rates::new(Arc::clone(&state) as _));
    let calls = (0..256).map(|_| {
        let rates = Arc::clone(&rates);
        tokio::spawn(async move { rates.take(&charge(100, 1_000), "a", 5).await.unwrap() })
    });
    let mut taken = 0;
    for call in calls.collect::<Vec<_>>() {
        taken += u32::from(call.await.unwrap());
    }
    assert_eq!(taken, 100);
    let commits = state.1.load(Ordering::Relaxed);
    assert!(commits <= 4, "{commits} commits for 256 callers");
}

/// The waiter that commits for others can be dropped; the others continue, and nothing is counted twice.
#[tokio::test]
async fn a_caller_that_is_torn_down_leaves_its_turn_to_the_next() {
    let state = Arc::new(Slow::default());
    let rates = Arc::new(Rates::new(Arc::clone(&state) as _));
    let one = charge(2, 1_000);
    {
        let mut torn = std::pin::pin!(rates.take(&one, "a", 5));
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(torn.as_mut().poll(context))).await;
        assert!(polled.is_pending(), "it commits");
    }
    assert!(rates.take(&one, "a", 5).await.unwrap());
    assert!(rates.take(&one, "a", 5).await.unwrap());
    assert!(!rates.take(&one, "a", 5).await.unwrap());
}
