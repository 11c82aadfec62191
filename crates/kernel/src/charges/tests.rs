//! What a call took is given back if it never runs, and outcomes that are owed come before every new call.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use regent_ledger::storage::Sim;
use regent_ledger::storage::sim::Plan;
use regent_ledger::{EntryKind, Ledger, LedgerKey, Options, Reader};
use regent_store::MemoryState;
use serde_json::json;

use crate::tests::shared::{ProjectFixture, START_MS, SharedProject, code_of, work};
use crate::{ApprovalAnswer, Budget, BudgetScope, Fault, ManualClock, Op, Phase, Reply, Scope, Status};

const RATE: &str = "version: 1\nmode: permissive\nrules:\n  - { id: one, effect: allow, match: { tool: work }, rate: 1/hour }\n";
const AT_MOST: &str = "version: 1\nmode: permissive\nrules:\n  - { id: once, effect: deny, match: { tool: work }, at_most: 1 }\n";
const ASK: &str = crate::tests::shared::ASK;

fn is_done(reply: &Reply) -> bool {
    matches!(reply, Reply::Done(outcome) if outcome.status == Status::Ok)
}

async fn set_calls(world: &ProjectFixture, calls: u64) {
    let limits = Budget { calls: Some(calls), ..Budget::default() };
    let op = Op::SetBudget { scope: BudgetScope::Session, limits };
    assert!(is_done(&world.as_operator(op).await));
}

async fn approve(world: &ProjectFixture) {
    let Reply::Pending(ticket) = world.work(json!({})).await else { panic!("not asked") };
    // No reader is faster.
    world.clock.advance_ms(2_000);
    let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 3_600_000 };
    assert!(is_done(&world.as_operator(Op::Answer { ticket: ticket.id, with: Vec::new(), answer }).await));
}

/// The budget refuses first, and what the refused call would have used is still there afterwards.
#[tokio::test]
async fn k2_a_call_that_the_budget_refuses_uses_neither_rate_nor_count_nor_approval() {
    for policy in [RATE, AT_MOST, ASK] {
        let world = ProjectFixture::new(policy, Arc::new(MemoryState::default())).await;
        if policy == ASK {
            approve(&world).await;
        }
        set_calls(&world, 0).await;
        assert_eq!(code_of(world.work(json!({})).await), "budget.exhausted", "{policy}");
        set_calls(&world, 1_000).await;
        let reply = world.work(json!({})).await;
        assert!(is_done(&reply), "{policy}: {reply:?}");
        let again = world.work(json!({})).await;
        assert!(!is_done(&again), "it holds once: {policy}: {again:?}");
        assert_eq!(world.runs(), 1);
    }
}

/// A kernel whose ledger is on a disk that a test fills, committed when the test says so.
struct Stage {
    world: ProjectFixture,
    disk: Sim,
    ledger: Ledger,
}

impl Stage {
    async fn new(policy: &str) -> Self {
        let disk = Sim::new(1);
        let key = LedgerKey::from_seed(&[7; 32]);
        let ledger = Ledger::open_stepped(Arc::new(disk.clone()), key, Options::default()).unwrap();
        let place = SharedProject {
            folder: Arc::new(tempfile::tempdir().unwrap()),
            clock: Arc::new(ManualClock::starting_at(START_MS)),
            state: Arc::new(MemoryState::default()),
        };
        let booted = ProjectFixture::boot(policy, place, ("session-1", "ada"), ledger.clone());
        let world = stepped(&ledger, booted).await;
        Self { world, disk, ledger }
    }

    /// From now on nothing fits on the disk, or everything does again.
    fn fill(&self, full: bool) {
        self.disk.plan(Plan { room_bytes: full.then_some(0), ..Plan::default() });
    }

    async fn work(&self) -> Result<Reply, Fault> {
        let operator = self.world.kernel.operator();
        stepped(&self.ledger, self.world.kernel.syscall(&operator, work(json!({})))).await
    }

    fn kinds(&self) -> Vec<EntryKind> {
        let reader = Reader::on(Arc::new(self.disk.clone()));
        let entries = reader.entries().unwrap().map(|entry| entry.unwrap().kind);
        entries.filter(|kind| matches!(kind, EntryKind::Intent | EntryKind::Outcome)).collect()
    }
}

/// Polls a future to its end, and commits queued entries whenever it is pending.
async fn stepped<T>(ledger: &Ledger, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let polled = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return output;
        }
        ledger.step();
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn k2_a_call_whose_intent_cannot_be_written_uses_neither_rate_nor_count_nor_approval() {
    for policy in [RATE, AT_MOST, ASK] {
        let stage = Stage::new(policy).await;
        if policy == ASK {
            let Ok(Reply::Pending(ticket)) = stage.work().await else { panic!("not asked") };
            stage.world.clock.advance_ms(2_000);
            let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 3_600_000 };
            let answered =
                stage.world.as_operator(Op::Answer { ticket: ticket.id, with: Vec::new(), answer });
            assert!(is_done(&stepped(&stage.ledger, answered).await));
        }
        stage.fill(true);
        assert!(matches!(stage.work().await, Err(Fault::Ledger(_))), "{policy}");
        stage.fill(false);
        let reply = stage.work().await.unwrap();
        assert!(is_done(&reply), "{policy}: {reply:?}");
        assert_eq!(stage.world.runs(), 1);
    }
}

/// Makes one call whose outcome the disk has no room for.
async fn owing(stage: &Stage) -> Fault {
    let operator = stage.world.kernel.operator();
    let mut call = pin!(stage.world.kernel.syscall(&operator, work(json!({}))));
    let once = std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    assert!(once.is_pending());
    // The intent is on disk; the outcome will find no room.
    assert_eq!(stage.ledger.step(), 1);
    stage.fill(true);
    let ended = stepped(&stage.ledger, call).await;
    stage.fill(false);
    ended.unwrap_err()
}

#[tokio::test]
async fn f2_an_effect_whose_outcome_cannot_be_written_is_never_reported_as_not_done() {
    let stage = Stage::new(crate::tests::shared::OPEN).await;
    let fault = owing(&stage).await;
    let Fault::Unrecorded { intent, why } = &fault else { panic!("{fault}") };
    assert_eq!(stage.world.runs(), 1, "it happened");
    assert!(why.contains("no space"), "{why}");
    let message = fault.to_string();
    assert!(message.contains("was made") && message.contains(&format!("/{}", intent.seq)), "{message}");
    // A call whose intent can't be written is the other case: nothing happened.
    stage.fill(true);
    assert!(matches!(stage.work().await, Err(Fault::Ledger(_))));
    assert_eq!(stage.world.runs(), 1);
}

#[tokio::test]
async fn k1_no_call_is_let_in_before_the_outcomes_that_are_owed_are_written() {
    let stage = Stage::new(crate::tests::shared::OPEN).await;
    owing(&stage).await;
    assert!(matches!(stage.world.kernel.phase(), Phase::Degraded(_)));
    let operator = stage.world.kernel.operator();
    let call = || stage.world.kernel.syscall(&operator, work(json!({})));
    let (mut first, mut second) = (pin!(call()), pin!(call()));
    // The first caller has begun to write what is owed and waits for the disk. The second must wait for the first.
    let polled = std::future::poll_fn(|context| {
        Poll::Ready((first.as_mut().poll(context).is_pending(), second.as_mut().poll(context).is_pending()))
    });
    assert_eq!(polled.await, (true, true));
    tokio::task::yield_now().await;
    assert_eq!(stage.ledger.step(), 1, "only the outcome that was owed was waiting to be written");
    let both = async { (first.await, second.await) };
    let (one, other) = stepped(&stage.ledger, both).await;
    assert!(is_done(&one.unwrap()) && is_done(&other.unwrap()));
    let kinds = stage.kinds();
    assert_eq!(
        kinds.first_chunk(),
        Some(&[EntryKind::Intent, EntryKind::Outcome, EntryKind::Intent]),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn k1_an_outcome_that_still_finds_no_room_stays_owed() {
    let stage = Stage::new(crate::tests::shared::OPEN).await;
    owing(&stage).await;
    stage.fill(true);
    for _ in 0..3 {
        assert!(matches!(stage.work().await, Err(Fault::Ledger(_))), "nothing is done while it is owed");
    }
    assert_eq!(stage.world.runs(), 1);
    stage.fill(false);
    assert!(is_done(&stage.work().await.unwrap()));
    assert_eq!(stage.kinds(), [EntryKind::Intent, EntryKind::Outcome, EntryKind::Intent, EntryKind::Outcome]);
}

#[tokio::test]
async fn an_outcome_that_is_owed_is_written_at_shutdown() {
    let stage = Stage::new(crate::tests::shared::OPEN).await;
    owing(&stage).await;
    stepped(&stage.ledger, stage.world.kernel.shutdown()).await.unwrap();
    assert_eq!(stage.kinds(), [EntryKind::Intent, EntryKind::Outcome]);
    assert_eq!(stage.world.kernel.0.recorder.unended.count(), 0);
}

#[tokio::test]
async fn a_shutdown_that_finds_no_room_says_so() {
    let stage = Stage::new(crate::tests::shared::OPEN).await;
    owing(&stage).await;
    stage.fill(true);
    assert!(stepped(&stage.ledger, stage.world.kernel.shutdown()).await.is_err());
    assert_eq!(stage.world.kernel.0.recorder.unended.count(), 1, "the next boot finds it in doubt");
}
