//! Budgets are never overspent: not by parallel calls, not by parallel processes, not by crashes.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64};

use proptest::prelude::*;
use regent_store::{MemoryState, Record, SqliteState, Step};
use serde_json::json;

use super::*;
use crate::tests::shared::{OPEN, START_MS, World, code_of};
use crate::{Delivered, ManualClock, Reply, Signal};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn person() -> Principal {
    Principal::operator("ada", "session-1".into())
}

fn limit(scope: BudgetScope, limits: Budget) -> crate::Op {
    crate::Op::SetBudget { scope, limits }
}

fn budgets(state: &Arc<dyn State>, clock: &Arc<ManualClock>) -> Budgets {
    Budgets::new(Arc::clone(state), Arc::clone(clock) as _, "/project", "session-1")
}

fn alone() -> Budgets {
    budgets(&(Arc::new(MemoryState::default()) as _), &Arc::new(ManualClock::at(START_MS)))
}

fn calls(calls: u64) -> Budget {
    Budget { calls: Some(calls), ..Budget::default() }
}

fn estimate(calls: u64, tokens: u64) -> Estimate {
    Estimate { most: Amounts { calls, tokens, ..Amounts::default() }, priceless: false }
}

fn spent(tokens: u64) -> Spent {
    Spent { tokens, ..Spent::default() }
}

fn take_one(budgets: &Budgets) -> bool {
    match budgets.reserve(&person(), &estimate(1, 0)).unwrap() {
        Ok(reservation) => {
            reservation.settle(Spent::default());
            true
        }
        Err(reason) => {
            assert!(["budget.exhausted", "budget.held"].contains(&reason.code));
            false
        }
    }
}

#[test]
fn a_call_that_sends_more_sets_more_aside_or_stops() {
    let budgets = alone();
    budgets.set(&BudgetScope::Session, Budget { bytes_out: Some(100), ..Budget::default() }).unwrap();
    let some = Estimate { most: Amounts { bytes_out: 10, ..Amounts::default() }, priceless: false };
    let mut one = budgets.reserve(&person(), &some).unwrap().unwrap();
    let mut two = budgets.reserve(&person(), &some).unwrap().unwrap();
    one.widen(60).unwrap().unwrap();
    // Less than is held already changes nothing; the two together can't have more than there is.
    one.widen(5).unwrap().unwrap();
    assert_eq!(two.widen(41).unwrap().unwrap_err().code, "budget.held");
    two.widen(40).unwrap().unwrap();
    assert_eq!(budgets.left(&person()).bytes_out, Some(0));
    one.settle(Spent { bytes_out: 30, ..Spent::default() });
    drop(two);
    assert_eq!(budgets.left(&person()).bytes_out, Some(70));
    // Where nothing is limited nothing is held.
    let free = alone();
    free.reserve(&person(), &some).unwrap().unwrap().widen(u64::MAX).unwrap().unwrap();
}

#[test]
fn what_is_set_aside_is_gone_what_is_not_used_comes_back() {
    let budgets = alone();
    let tokens = Budget { tokens: Some(100), ..Budget::default() };
    budgets.set(&BudgetScope::Session, tokens).unwrap();
    let left = || budgets.left(&person()).tokens;
    let reservation = budgets.reserve(&person(), &estimate(1, 80)).unwrap().unwrap();
    assert_eq!(left(), Some(20));
    assert!(budgets.reserve(&person(), &estimate(1, 21)).unwrap().is_err());
    assert_eq!(reservation.settle(spent(30)).over, Vec::<&str>::new());
    assert_eq!(left(), Some(70));
    drop(budgets.reserve(&person(), &estimate(1, 70)).unwrap().unwrap());
    assert_eq!(left(), Some(70), "dropped is released");
}

#[test]
fn an_overrun_is_charged_in_full_and_noted() {
    let budgets = alone();
    let tokens = Budget { tokens: Some(100), ..Budget::default() };
    budgets.set(&BudgetScope::Session, tokens).unwrap();
    let reservation = budgets.reserve(&person(), &estimate(1, 10)).unwrap().unwrap();
    assert_eq!(reservation.settle(spent(150)).over, ["tokens"]);
    assert_eq!(budgets.left(&person()).tokens, Some(0));
    let reason = budgets.reserve(&person(), &estimate(1, 1)).unwrap().unwrap_err();
    assert!(reason.message.contains("`session` has 0 of 100 `tokens`"), "{}", reason.message);
}

#[test]
fn all_levels_or_none() {
    let budgets = alone();
    budgets.set(&BudgetScope::UserDay, calls(10)).unwrap();
    budgets.set(&BudgetScope::Project, calls(1)).unwrap();
    budgets.set(&BudgetScope::Session, calls(5)).unwrap();
    assert!(take_one(&budgets));
    assert!(!take_one(&budgets));
    budgets.set(&BudgetScope::Project, calls(100)).unwrap();
    assert_eq!(budgets.left(&person()).calls, Some(4), "the refused call cost nothing at any level");
    assert_eq!((0..10).filter(|_| take_one(&budgets)).count(), 4);
}

#[test]
fn a_call_of_unknown_price_has_the_money_for_itself() {
    let budgets = alone();
    budgets.set(&BudgetScope::Session, Budget { money_microusd: Some(50), ..Budget::default() }).unwrap();
    let priceless = Estimate { most: Amounts { calls: 1, ..Amounts::default() }, priceless: true };
    let first = budgets.reserve(&person(), &priceless).unwrap().unwrap();
    assert!(budgets.reserve(&person(), &priceless).unwrap().is_err());
    first.settle(Spent { money_microusd: 20, ..Spent::default() });
    assert_eq!(budgets.left(&person()).money_microusd, Some(30));
    budgets
        .reserve(&person(), &priceless)
        .unwrap()
        .unwrap()
        .settle(Spent { money_microusd: 30, ..Spent::default() });
    assert!(budgets.reserve(&person(), &priceless).unwrap().is_err(), "nothing left");
}

#[test]
fn a_call_may_take_as_long_as_there_is_time_left() {
    let budgets = alone();
    budgets.set(&BudgetScope::Session, Budget { wall_ms: Some(500), ..Budget::default() }).unwrap();
    let most = Amounts { calls: 1, wall_ms: 600_000, ..Amounts::default() };
    let reservation = budgets.reserve(&person(), &Estimate { most, priceless: false }).unwrap().unwrap();
    assert_eq!(reservation.wall_ms_max(), 500);
    reservation.settle(Spent { wall_ms: 500, ..Spent::default() });
    assert!(budgets.reserve(&person(), &Estimate { most, priceless: false }).unwrap().is_err());
}

#[test]
fn sixty_four_parallel_calls_never_overspend() {
    for scope in [BudgetScope::Session, BudgetScope::Project] {
        let budgets = alone();
        budgets.set(&scope, calls(10)).unwrap();
        let (taken, held, most) = (AtomicU32::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let barrier = Barrier::new(64);
        std::thread::scope(|threads| {
            for _ in 0..64 {
                threads.spawn(|| {
                    barrier.wait();
                    if let Ok(reservation) = budgets.reserve(&person(), &estimate(1, 0)).unwrap() {
                        most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        held.fetch_sub(1, Ordering::SeqCst);
                        reservation.settle(Spent::default());
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
    let clock = Arc::new(ManualClock::at(START_MS));
    let open = || Arc::new(SqliteState::open(&path).unwrap()) as Arc<dyn State>;
    budgets(&open(), &clock).set(&BudgetScope::UserDay, calls(100)).unwrap();
    let taken = AtomicU32::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                // Each a process of its own, with its own handle and lease.
                let budgets = budgets(&open(), &clock);
                taken.fetch_add(
                    u32::try_from((0..40).filter(|_| take_one(&budgets)).count()).unwrap(),
                    Ordering::Relaxed,
                );
            });
        }
    });
    let mut taken = taken.into_inner();
    assert!((90..=100).contains(&taken), "{taken}");
    // The processes have ended and given back what they had not used, so the rest can be had, and no more.
    let last = budgets(&open(), &clock);
    taken += u32::try_from((0..40).filter(|_| take_one(&last)).count()).unwrap();
    assert_eq!(taken, 100);
}

#[test]
fn a_crashed_process_costs_its_lease_and_no_more() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let clock = Arc::new(ManualClock::at(START_MS));
    let crashed = budgets(&state, &clock);
    crashed.set(&BudgetScope::Project, calls(160)).unwrap();
    assert!(take_one(&crashed));
    // It neither ends nor reports again.
    std::mem::forget(crashed);
    let next = budgets(&state, &clock);
    assert_eq!((0..200).filter(|_| take_one(&next)).count(), 150, "ten were on lease");
    clock.advance_ms(2 * 60 * 60 * 1000);
    assert!(!take_one(&next), "nobody knows what it had spent, so all of it");
    next.set(&BudgetScope::Project, calls(161)).unwrap();
    assert!(take_one(&next) && !take_one(&next));
}

#[test]
fn a_day_ends_at_midnight_and_a_project_does_not() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let clock = Arc::new(ManualClock::at(START_MS));
    let budgets = budgets(&state, &clock);
    budgets.set(&BudgetScope::UserDay, calls(3)).unwrap();
    budgets.set(&BudgetScope::Project, calls(5)).unwrap();
    assert_eq!((0..9).filter(|_| take_one(&budgets)).count(), 3);
    clock.advance_ms(DAY_MS - 1);
    assert!(!take_one(&budgets));
    clock.advance_ms(1);
    assert_eq!((0..9).filter(|_| take_one(&budgets)).count(), 2);
    clock.advance_ms(-DAY_MS);
    assert!(!take_one(&budgets), "a clock set back is no new day");
}

#[test]
fn a_limit_set_by_another_process_is_seen_soon() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let clock = Arc::new(ManualClock::at(START_MS));
    let (one, two) = (budgets(&state, &clock), budgets(&state, &clock));
    assert!(take_one(&one));
    two.set(&BudgetScope::UserDay, calls(0)).unwrap();
    clock.advance_ms(i64::try_from(LOOK_MS).unwrap());
    assert!(!take_one(&one));
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_parallel_calls_through_the_kernel_never_overspend() {
    let world = World::new(OPEN, Arc::new(MemoryState::default())).await;
    let person = world.kernel.operator();
    let set = world.kernel.syscall(&person, limit(BudgetScope::Session, calls(10))).await.unwrap();
    assert!(matches!(set, Reply::Done(_)));
    let running: Vec<_> = (0..64)
        .map(|_| {
            let kernel = world.kernel.clone();
            tokio::spawn(async move {
                kernel.syscall(&kernel.operator(), crate::tests::shared::work(json!({}))).await.unwrap()
            })
        })
        .collect();
    let mut done = 0;
    for call in running {
        match call.await.unwrap() {
            Reply::Done(_) => done += 1,
            other @ (Reply::Denied(_) | Reply::Pending(_)) => {
                assert!(["budget.exhausted", "budget.held"].contains(&code_of(other)));
            }
        }
    }
    assert_eq!((done, world.runs()), (10, 10));
    // A person is never locked out of their own controls.
    world.kernel.syscall(&person, limit(BudgetScope::Session, calls(11))).await.unwrap();
    assert!(matches!(world.work(json!({})).await, Reply::Done(_)));
    assert_eq!(code_of(world.work(json!({})).await), "budget.exhausted");
}

#[tokio::test]
async fn a_child_spends_its_parents_budget_and_no_more_than_its_share() {
    let world = World::new(OPEN, Arc::new(MemoryState::default())).await;
    let person = world.kernel.operator();
    let parent = world.agent(&person, "parent", Some(calls(10))).await;
    let child = world.agent(&parent, "child", Some(calls(4))).await;
    let greedy = world.agent(&child, "grandchild", Some(calls(1_000))).await;
    let run = |who: &Principal| {
        let (kernel, who) = (world.kernel.clone(), who.clone());
        async move {
            let reply = kernel.syscall(&who, crate::tests::shared::work(json!({}))).await.unwrap();
            match reply {
                Reply::Done(_) => true,
                other @ (Reply::Denied(_) | Reply::Pending(_)) => {
                    assert_eq!(code_of(other), "budget.exhausted");
                    // It was suspended for that; a person lets it carry on.
                    let id = who.agent_id().unwrap();
                    assert_eq!(kernel.raise(id, Signal::Cont, "test").await.unwrap(), Delivered::Done);
                    false
                }
            }
        }
    };
    let mut done = 0;
    for _ in 0..10 {
        done += u32::from(run(&greedy).await);
    }
    assert_eq!(done, 3, "the child had four, and spent one on starting it");
    assert!(!run(&child).await);
    for _ in 0..10 {
        done += u32::from(run(&parent).await);
    }
    assert_eq!(
        (done, world.runs()),
        (8, 8),
        "the parent had ten, and one start was its own, one its child's"
    );
    assert!(run(&person).await, "the person has no such limit");
}

#[tokio::test]
async fn an_agent_out_of_budget_is_suspended_until_a_person_lets_it_carry_on() {
    let world = World::new(OPEN, Arc::new(MemoryState::default())).await;
    let person = world.kernel.operator();
    let agent = world.agent(&person, "spender", Some(calls(1))).await;
    let id = agent.agent_id().unwrap().clone();
    let work = || crate::tests::shared::work(json!({}));
    assert!(matches!(world.kernel.syscall(&agent, work()).await.unwrap(), Reply::Done(_)));
    assert_eq!(code_of(world.kernel.syscall(&agent, work()).await.unwrap()), "budget.exhausted");
    let standing = world.kernel.budget(&BudgetScope::Agent(id.clone())).unwrap();
    assert_eq!((standing.limits.calls, standing.used.calls, standing.held.calls), (Some(1), 1, 0));
    let (kernel, held) = (world.kernel.clone(), agent.clone());
    let waiting =
        tokio::spawn(async move { kernel.syscall(&held, crate::tests::shared::work(json!({}))).await });
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished(), "suspended");
    world.kernel.syscall(&person, limit(BudgetScope::Agent(id.clone()), calls(5))).await.unwrap();
    world.kernel.raise(&id, Signal::Cont, "it has more now").await.unwrap();
    assert!(matches!(waiting.await.unwrap().unwrap(), Reply::Done(_)));
}

#[tokio::test]
async fn adv_084_an_agent_cannot_raise_a_budget() {
    let world = World::new(OPEN, Arc::new(MemoryState::default())).await;
    let agent = world.agent(&world.kernel.operator(), "told-to", Some(calls(5))).await;
    let own = agent.agent_id().unwrap().clone();
    for scope in [BudgetScope::Agent(own), BudgetScope::Session, BudgetScope::UserDay, BudgetScope::Project] {
        let reply = world.kernel.syscall(&agent, limit(scope, calls(1_000_000))).await.unwrap();
        assert_eq!(code_of(reply), "budget.not_a_person");
    }
    assert_eq!(world.kernel.0.budgets.left(&agent).calls, Some(5));
}

/// Counts how often it is used.
#[derive(Debug, Default)]
struct Counting(MemoryState, AtomicU64);

impl State for Counting {
    fn change(&self, step: Step<'_>) -> Result<(), StateError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.change(step)
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.get(key)
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.scan(prefix)
    }
}

#[tokio::test]
async fn a_call_without_limits_touches_no_state() {
    let state = Arc::new(Counting::default());
    let world = World::new(OPEN, Arc::clone(&state) as _).await;
    world.work(json!({})).await;
    let before = state.1.load(Ordering::Relaxed);
    for _ in 0..100 {
        world.work(json!({})).await;
    }
    assert_eq!((state.1.load(Ordering::Relaxed), world.runs()), (before, 101));
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
            budgets.set(scope, Budget { tokens: Some(limit), ..Budget::default() }).unwrap();
        }
        let tightest = *limits.iter().min().unwrap();
        let (mut held, mut used) = (Vec::new(), 0);
        for (what, want, took, pick) in steps {
            match what {
                0 | 1 => if let Ok(reservation) = budgets.reserve(&person(), &estimate(1, want)).unwrap() {
                    held.push((reservation, want));
                },
                2 if !held.is_empty() => drop(held.swap_remove(pick.index(held.len()))),
                _ if !held.is_empty() => {
                    let (reservation, want) = held.swap_remove(pick.index(held.len()));
                    used += took.min(want);
                    reservation.settle(spent(took.min(want)));
                }
                _ => {}
            }
            let set_aside: u64 = held.iter().map(|(_, want)| want).sum();
            prop_assert!(used + set_aside <= tightest, "{used} + {set_aside} of {tightest}");
        }
        held.clear();
        prop_assert_eq!(budgets.left(&person()).tokens, Some(tightest - used));
    }
}
