//! Budgets are never overspent: not by parallel calls, not by parallel processes, not by crashes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use proptest::prelude::*;
use regent_policy::{BudgetLeft, Reason};
use regent_store::{MemoryState, SqliteState, State};

use super::super::*;
use super::LOOK_MS;
use super::*;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// A midnight.
const START_MS: i64 = 20_000 * DAY_MS;

/// A time at which both clocks show the same.
fn now_at(ms: i64) -> Now {
    Now { at_ms: ms, elapsed: Duration::from_millis(u64::try_from(ms).unwrap()) }
}

fn start() -> Now {
    now_at(START_MS)
}

/// Runs a future to its end on this thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn budgets(state: &Arc<dyn State>) -> Budgets {
    Budgets::new(Arc::clone(state), "/project", "session-1")
}

fn alone() -> Budgets {
    budgets(&(Arc::new(MemoryState::default()) as _))
}

fn set(budgets: &Budgets, scope: BudgetScope, limits: Budget) {
    wait(budgets.set(&scope, limits, START_MS)).unwrap();
}

fn reserve(budgets: &Budgets, estimate: &Estimate) -> Result<Reservation, Reason> {
    wait(budgets.reserve(&[], estimate, start())).unwrap()
}

fn settle(reservation: Reservation, spent: Spent) -> Settled {
    reservation.settle(spent, start().elapsed)
}

fn left(budgets: &Budgets) -> BudgetLeft {
    wait(budgets.left(&[], start()))
}

fn calls(calls: u64) -> Budget {
    Budget { calls: Some(calls), ..Budget::default() }
}

fn estimate(calls: u64, tokens: u64) -> Estimate {
    Estimate { most: Amounts { calls, tokens, ..Amounts::default() }, unpriced: false }
}

fn spent(tokens: u64) -> Spent {
    Spent { tokens, ..Spent::default() }
}

fn take_one_at(budgets: &Budgets, ms: i64) -> bool {
    match wait(budgets.reserve(&[], &estimate(1, 0), now_at(ms))).unwrap() {
        Ok(reservation) => {
            reservation.settle(Spent::default(), now_at(ms).elapsed);
            true
        }
        Err(reason) => {
            assert!(["budget.exhausted", "budget.held"].contains(&&*reason.code));
            false
        }
    }
}

fn take_one(budgets: &Budgets) -> bool {
    take_one_at(budgets, START_MS)
}

#[test]
fn a_call_that_sends_more_sets_more_aside_or_stops() {
    let budgets = alone();
    set(&budgets, BudgetScope::Session, Budget { bytes_out: Some(100), ..Budget::default() });
    let some = Estimate { most: Amounts { bytes_out: 10, ..Amounts::default() }, unpriced: false };
    let mut one = reserve(&budgets, &some).unwrap();
    let mut two = reserve(&budgets, &some).unwrap();
    wait(one.widen(60, START_MS)).unwrap().unwrap();
    // Less than is held already changes nothing; the two together can't have more than there is.
    wait(one.widen(5, START_MS)).unwrap().unwrap();
    assert_eq!(wait(two.widen(41, START_MS)).unwrap().unwrap_err().code, "budget.held");
    wait(two.widen(40, START_MS)).unwrap().unwrap();
    assert_eq!(left(&budgets).bytes_out, Some(0));
    settle(one, Spent { bytes_out: 30, ..Spent::default() });
    drop(two);
    assert_eq!(left(&budgets).bytes_out, Some(70));
    // Where nothing is limited nothing is held.
    let free = alone();
    wait(reserve(&free, &some).unwrap().widen(u64::MAX, START_MS)).unwrap().unwrap();
}

#[test]
fn what_is_set_aside_is_gone_what_is_not_used_comes_back() {
    let budgets = alone();
    let tokens = Budget { tokens: Some(100), ..Budget::default() };
    set(&budgets, BudgetScope::Session, tokens);
    let left = || left(&budgets).tokens;
    let reservation = reserve(&budgets, &estimate(1, 80)).unwrap();
    assert_eq!(left(), Some(20));
    assert!(reserve(&budgets, &estimate(1, 21)).is_err());
    assert_eq!(settle(reservation, spent(30)).over, Vec::<&str>::new());
    assert_eq!(left(), Some(70));
    drop(reserve(&budgets, &estimate(1, 70)).unwrap());
    assert_eq!(left(), Some(70), "dropped is released");
}

#[test]
fn an_overrun_is_charged_in_full_and_noted() {
    let budgets = alone();
    let tokens = Budget { tokens: Some(100), ..Budget::default() };
    set(&budgets, BudgetScope::Session, tokens);
    let reservation = reserve(&budgets, &estimate(1, 10)).unwrap();
    assert_eq!(settle(reservation, spent(150)).over, ["tokens"]);
    assert_eq!(left(&budgets).tokens, Some(0));
    let reason = reserve(&budgets, &estimate(1, 1)).unwrap_err();
    assert!(
        reason
            .message
            .contains("`session` is too low: this call may need 1 token, 0 tokens of 100 tokens left"),
        "{}",
        reason.message
    );
}

#[test]
fn all_levels_or_none() {
    let budgets = alone();
    set(&budgets, BudgetScope::UserDay, calls(10));
    set(&budgets, BudgetScope::Project, calls(1));
    set(&budgets, BudgetScope::Session, calls(5));
    assert!(take_one(&budgets));
    assert!(!take_one(&budgets));
    set(&budgets, BudgetScope::Project, calls(100));
    assert_eq!(left(&budgets).calls, Some(4), "the refused call cost nothing at any level");
    assert_eq!((0..10).filter(|_| take_one(&budgets)).count(), 4);
}

#[test]
fn a_call_of_unknown_price_has_the_money_for_itself() {
    let budgets = alone();
    set(&budgets, BudgetScope::Session, Budget { money_microusd: Some(50), ..Budget::default() });
    let unpriced = Estimate { most: Amounts { calls: 1, ..Amounts::default() }, unpriced: true };
    let first = reserve(&budgets, &unpriced).unwrap();
    assert!(reserve(&budgets, &unpriced).is_err());
    settle(first, Spent { money_microusd: 20, ..Spent::default() });
    assert_eq!(left(&budgets).money_microusd, Some(30));
    settle(reserve(&budgets, &unpriced).unwrap(), Spent { money_microusd: 30, ..Spent::default() });
    assert!(reserve(&budgets, &unpriced).is_err(), "nothing left");
}

#[test]
fn a_call_may_take_as_long_as_there_is_time_left() {
    let budgets = alone();
    set(&budgets, BudgetScope::Session, Budget { wall_ms: Some(500), ..Budget::default() });
    let most = Amounts { calls: 1, wall_ms: 600_000, ..Amounts::default() };
    let reservation = reserve(&budgets, &Estimate { most, unpriced: false }).unwrap();
    assert_eq!(reservation.wall_ms_max(), 500);
    settle(reservation, Spent { wall_ms: 500, ..Spent::default() });
    assert!(reserve(&budgets, &Estimate { most, unpriced: false }).is_err());
}

#[test]
fn sixty_four_parallel_calls_never_overspend() {
    for scope in [BudgetScope::Session, BudgetScope::Project] {
        let budgets = alone();
        set(&budgets, scope.clone(), calls(10));
        let (taken, held, most) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let barrier = Barrier::new(64);
        std::thread::scope(|threads| {
            for _ in 0..64 {
                threads.spawn(|| {
                    barrier.wait();
                    if let Ok(reservation) = reserve(&budgets, &estimate(1, 0)) {
                        most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        held.fetch_sub(1, Ordering::SeqCst);
                        settle(reservation, Spent::default());
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 10, "{scope}");
        assert!(most.into_inner() <= 10);
    }
}

#[test]
fn adv_103_processes_that_share_a_budget_never_overspend_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let open = || Arc::new(SqliteState::open(&path).unwrap()) as Arc<dyn State>;
    set(&budgets(&open()), BudgetScope::UserDay, calls(100));
    let taken = AtomicU32::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                // Each a process of its own, with its own handle and lease.
                let budgets = budgets(&open());
                taken.fetch_add(
                    u32::try_from((0..40).filter(|_| take_one(&budgets)).count()).unwrap(),
                    Ordering::Relaxed,
                );
                wait(budgets.give_back(START_MS)).unwrap();
            });
        }
    });
    let mut taken = taken.into_inner();
    assert!((90..=100).contains(&taken), "{taken}");
    // The processes have ended and given back what they had not used, so the rest can be had, and no more.
    let last = budgets(&open());
    taken += u32::try_from((0..40).filter(|_| take_one(&last)).count()).unwrap();
    assert_eq!(taken, 100);
}

#[test]
fn a_crashed_process_costs_its_lease_and_no_more() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let crashed = budgets(&state);
    set(&crashed, BudgetScope::Project, calls(160));
    assert!(take_one(&crashed));
    // It neither gives back nor reports again.
    drop(crashed);
    let next = budgets(&state);
    assert_eq!((0..200).filter(|_| take_one(&next)).count(), 150, "ten were on lease");
    let later = START_MS + 2 * 60 * 60 * 1000;
    assert!(!take_one_at(&next, later), "nobody knows what it had spent, so all of it");
    wait(next.set(&BudgetScope::Project, calls(161), later)).unwrap();
    assert!(take_one_at(&next, later) && !take_one_at(&next, later));
}

#[test]
fn a_day_ends_at_midnight_and_a_project_does_not() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let budgets = budgets(&state);
    set(&budgets, BudgetScope::UserDay, calls(3));
    set(&budgets, BudgetScope::Project, calls(5));
    assert_eq!((0..9).filter(|_| take_one(&budgets)).count(), 3);
    let midnight = START_MS + DAY_MS;
    assert!(!take_one_at(&budgets, midnight - 1));
    assert_eq!((0..9).filter(|_| take_one_at(&budgets, midnight)).count(), 2);
    assert!(!take_one(&budgets), "a clock set back is no new day");
}

#[test]
fn m6_a_clock_that_was_ahead_gives_todays_budget_once_and_tomorrow_its_own() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let budgets = budgets(&state);
    set(&budgets, BudgetScope::UserDay, calls(3));
    assert!(take_one(&budgets) && take_one(&budgets));
    // One call while the clock is a year ahead.
    assert!(take_one_at(&budgets, START_MS + 365 * DAY_MS));
    // The clock is right again: all three count, and not a fourth is given.
    assert!(!take_one(&budgets), "it would be the fourth call of today");
    for days in 1..4 {
        let then = START_MS + days * DAY_MS;
        assert_eq!((0..9).filter(|_| take_one_at(&budgets, then)).count(), 3, "day {days} has its own");
    }
    // Another process sees the same.
    let other = self::budgets(&state);
    assert!(!take_one_at(&other, START_MS + 3 * DAY_MS));
    assert!(take_one_at(&other, START_MS + 4 * DAY_MS));
}

#[test]
fn m6_a_clock_that_jumps_ahead_often_counts_all_of_it_when_it_is_right_again() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let budgets = budgets(&state);
    set(&budgets, BudgetScope::UserDay, calls(10));
    assert!(take_one(&budgets) && take_one(&budgets) && take_one(&budgets));
    for years in 1..8 {
        assert!(take_one_at(&budgets, START_MS + years * 365 * DAY_MS));
    }
    assert!(!take_one(&budgets), "three of today, and seven under wrong dates");
    assert!(take_one_at(&budgets, START_MS + DAY_MS));
}

#[test]
fn a_process_that_was_last_used_yesterday_takes_nothing_from_today() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let (old, new) = (budgets(&state), budgets(&state));
    set(&old, BudgetScope::UserDay, calls(3));
    assert!(take_one(&old));
    let today = START_MS + DAY_MS;
    assert!(take_one_at(&new, today));
    // It gives back by the last time that it knows.
    wait(old.give_back(START_MS)).unwrap();
    assert_eq!((0..9).filter(|_| take_one_at(&new, today)).count(), 2);
}

#[test]
fn a_limit_set_by_another_process_is_seen_soon() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let (one, two) = (budgets(&state), budgets(&state));
    assert!(take_one(&one));
    set(&two, BudgetScope::UserDay, calls(0));
    assert!(!take_one_at(&one, START_MS + i64::try_from(LOOK_MS).unwrap()));
}

#[test]
fn scopes_are_spelt_one_way() {
    for text in ["user/day", "project", "session", "agent/a-1"] {
        assert_eq!(BudgetScope::try_from(text.to_owned()).unwrap().to_string(), text);
    }
    for text in ["", "agent/", "user", "User/Day", "agent"] {
        assert!(BudgetScope::try_from(text.to_owned()).is_err(), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is reserved, settled within what was set aside, or dropped, in whatever order: no level exceeds its limit, and at the end what
    /// is left is what was not used.
    #[test]
    fn the_sums_hold_at_every_level(
        limits in [5_u64..60, 5_u64..60, 5_u64..60],
        steps in proptest::collection::vec((0_u8..4, 1_u64..12, 0_u64..12, any::<proptest::sample::Index>()), 0..80),
    ) {
        let budgets = alone();
        let scopes = [BudgetScope::UserDay, BudgetScope::Project, BudgetScope::Session];
        for (scope, limit) in scopes.iter().zip(limits) {
            set(&budgets, scope.clone(), Budget { tokens: Some(limit), ..Budget::default() });
        }
        let tightest = *limits.iter().min().unwrap();
        let (mut held, mut used) = (Vec::new(), 0);
        for (what, want, took, pick) in steps {
            match what {
                0 | 1 => if let Ok(reservation) = reserve(&budgets, &estimate(1, want)) {
                    held.push((reservation, want));
                },
                2 if !held.is_empty() => drop(held.swap_remove(pick.index(held.len()))),
                _ if !held.is_empty() => {
                    let (reservation, want) = held.swap_remove(pick.index(held.len()));
                    used += took.min(want);
                    settle(reservation, spent(took.min(want)));
                }
                _ => {}
            }
            let set_aside: u64 = held.iter().map(|(_, want)| want).sum();
            prop_assert!(used + set_aside <= tightest, "{used} + {set_aside} of {tightest}");
        }
        held.clear();
        prop_assert_eq!(left(&budgets).tokens, Some(tightest - used));
    }
}
