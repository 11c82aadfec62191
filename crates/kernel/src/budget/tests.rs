//! Budgets through a whole kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use regent_store::{
    BoxFuture, Change, Committed, MemoryState, Partition, Record, State, StateError, Versioned,
};
use serde_json::json;

use super::*;
use crate::principal::Principal;
use crate::tests::shared::{OPEN, ProjectFixture, code_of};
use crate::{Delivered, Reply, Signal};

fn limit(scope: BudgetScope, limits: Budget) -> crate::Op {
    crate::Op::SetBudget { scope, limits }
}

fn calls(calls: u64) -> Budget {
    Budget { calls: Some(calls), ..Budget::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_parallel_calls_through_the_kernel_never_overspend() {
    let world = ProjectFixture::new(OPEN, Arc::new(MemoryState::default())).await;
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
                assert!(["budget.exhausted", "budget.held"].contains(&&*code_of(other)));
            }
        }
    }
    assert_eq!((done, world.runs()), (10, 10));
    // Operators are never locked out of their own controls.
    world.kernel.syscall(&person, limit(BudgetScope::Session, calls(11))).await.unwrap();
    assert!(matches!(world.work(json!({})).await, Reply::Done(_)));
    assert_eq!(code_of(world.work(json!({})).await), "budget.exhausted");
}

#[tokio::test]
async fn a_child_spends_its_parents_budget_and_no_more_than_its_share() {
    let world = ProjectFixture::new(OPEN, Arc::new(MemoryState::default())).await;
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
                    // It was suspended for that; an operator resumes it.
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
    let world = ProjectFixture::new(OPEN, Arc::new(MemoryState::default())).await;
    let person = world.kernel.operator();
    let agent = world.agent(&person, "spender", Some(calls(1))).await;
    let id = agent.agent_id().unwrap().clone();
    let work = || crate::tests::shared::work(json!({}));
    assert!(matches!(world.kernel.syscall(&agent, work()).await.unwrap(), Reply::Done(_)));
    assert_eq!(code_of(world.kernel.syscall(&agent, work()).await.unwrap()), "budget.exhausted");
    let standing = world.kernel.budget(&BudgetScope::Agent(id.clone())).await.unwrap();
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
    let world = ProjectFixture::new(OPEN, Arc::new(MemoryState::default())).await;
    let agent = world.agent(&world.kernel.operator(), "obedient", Some(calls(5))).await;
    let own = agent.agent_id().unwrap().clone();
    for scope in [BudgetScope::Agent(own), BudgetScope::Session, BudgetScope::UserDay, BudgetScope::Project] {
        let reply = world.kernel.syscall(&agent, limit(scope, calls(1_000_000))).await.unwrap();
        assert_eq!(code_of(reply), "budget.not_a_person");
    }
    assert_eq!(world.kernel.0.gate.budgets.left(agent.lineage(), world.kernel.0.now()).await.calls, Some(5));
}

/// Commits, and loses the answer if it is told to.
#[derive(Debug, Default)]
struct Lossy(MemoryState, AtomicBool);

impl State for Lossy {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        self.0.read(partition, keys)
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        self.0.scan(partition, prefix)
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        Box::pin(async move {
            let committed = self.0.commit(partition, change).await?;
            if self.1.load(Ordering::Relaxed) {
                return Err(StateError::Unusable("the answer was lost".to_owned()));
            }
            Ok(committed)
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        self.0.sweep(now_ms, max)
    }

    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.changes()
    }
}

#[tokio::test]
async fn a_report_whose_answer_was_lost_counts_once() {
    let state = Arc::new(Lossy::default());
    let (now, scope) = (Now { at_ms: 0, elapsed: Duration::ZERO }, BudgetScope::UserDay);
    let budgets = Budgets::new(Arc::clone(&state) as _, "/project", "session-1");
    budgets.set(&scope, calls(1_000), 0).await.unwrap();
    let take = async |count| {
        let most = Amounts { calls: count, ..Amounts::default() };
        budgets.reserve(&[], &Estimate { most, unpriced: false }, now).await
    };
    for _ in 0..10 {
        take(1).await.unwrap().unwrap().settle(Spent::default(), Duration::ZERO);
    }
    for more_than_leased in [800, 900, 950] {
        state.1.store(true, Ordering::Relaxed);
        assert!(take(more_than_leased).await.is_err());
        state.1.store(false, Ordering::Relaxed);
        drop(take(more_than_leased).await.unwrap().unwrap());
        assert_eq!(budgets.standing(&scope, 0).await.unwrap().used.calls, 10);
    }
}

/// Counts how often it is used.
#[derive(Debug, Default)]
struct Counting(MemoryState, AtomicU64);

impl Counting {
    fn used(&self) -> &MemoryState {
        self.1.fetch_add(1, Ordering::Relaxed);
        &self.0
    }
}

impl State for Counting {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        self.used().read(partition, keys)
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        self.used().scan(partition, prefix)
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        self.used().commit(partition, change)
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        self.used().sweep(now_ms, max)
    }

    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.changes()
    }
}

#[tokio::test]
async fn a_call_without_limits_touches_no_state() {
    let state = Arc::new(Counting::default());
    let world = ProjectFixture::new(OPEN, Arc::clone(&state) as _).await;
    world.work(json!({})).await;
    let before = state.1.load(Ordering::Relaxed);
    for _ in 0..100 {
        world.work(json!({})).await;
    }
    assert_eq!((state.1.load(Ordering::Relaxed), world.runs()), (before, 101));
}
