//! A call without an outcome is noted once, asked about if it matters, and never performed again by itself.

use std::sync::atomic::Ordering;

use regent_ledger::{CanonicalJson, EntryDraft, Ledger, LedgerKey, Options};
use regent_store::MemoryState;
use serde_json::{Value, json};

use super::*;
use crate::tests::shared::{OPEN, ProjectFixture, START_MS, SharedProject, record};
use crate::{ManualClock, Reply};

struct Site {
    place: SharedProject,
    audit: std::path::PathBuf,
}

impl Site {
    fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let audit = folder.path().join("audit");
        let clock = Arc::new(ManualClock::starting_at(START_MS));
        Self { place: SharedProject { folder, clock, state: Arc::new(MemoryState::default()) }, audit }
    }

    fn ledger(&self) -> Ledger {
        let key = LedgerKey::load_or_create(&self.place.folder.path().join("key")).unwrap();
        Ledger::open(&self.audit, key, Options::default()).unwrap()
    }

    async fn boot(&self, session: &str) -> ProjectFixture {
        ProjectFixture::boot(OPEN, self.place.clone(), (session, "ada"), self.ledger()).await
    }

    /// What a process leaves that was killed after it had written these intents: no outcome, no word of farewell.
    fn crash(&self, session: &str, intents: &[(bool, &str)]) -> Vec<(LaneId, u64)> {
        let ledger = self.ledger();
        let mut places = Vec::new();
        append(&ledger, EntryKind::Kernel, &json!({"session": session, "state": "running"}));
        for (idempotent, effect) in intents {
            let body = json!({
                "caller": {"name": "operator"}, "idempotent": idempotent, "op": "tool.run", "session": session,
                "tool": {"name": "work"}, "verdict": {"effect": effect},
            });
            let receipt = append(&ledger, EntryKind::Intent, &body);
            places.push((receipt.lane, receipt.seq));
        }
        places
    }

    fn in_doubt(&self) -> Vec<InDoubt> {
        in_doubt(&self.audit).unwrap()
    }

    fn notes(&self) -> usize {
        let entries = regent_ledger::read::entries(&self.audit).map(Result::unwrap);
        entries.filter(|entry| entry.body.get("status").is_some_and(|status| status == "in_doubt")).count()
    }
}

fn append(ledger: &Ledger, kind: EntryKind, body: &Value) -> regent_ledger::Receipt {
    let body = CanonicalJson::encode(body).unwrap();
    ledger.append_blocking(EntryDraft { kind, at_ms: START_MS, body, payloads: Vec::new() }).unwrap()
}

#[tokio::test]
async fn adv_097_a_call_without_an_outcome_is_noted_once_and_never_repeated() {
    let site = Site::new();
    let places = site.crash("crashed", &[(false, "allow"), (true, "allow"), (false, "deny"), (false, "ask")]);
    let found = site.in_doubt();
    assert_eq!(found.iter().map(|call| (call.lane, call.seq)).collect::<Vec<_>>(), places[..2]);
    assert!(found.iter().all(|call| !call.noted && call.session == "crashed"));

    let world = site.boot("next").await;
    let list = world.kernel.in_doubt();
    assert_eq!(list.len(), 2);
    let (asked, retried) = (&list[0], &list[1]);
    assert!(!asked.idempotent && asked.ticket.is_some(), "a reviewer decides");
    assert!(retried.idempotent && retried.ticket.is_none(), "it may be retried");
    let questions = world.questions();
    assert_eq!(questions.len(), 1);
    assert_eq!(questions[0].summary, format!("repeat `work` (entry {} of lane {})", asked.seq, asked.lane));
    assert_eq!((site.notes(), world.runs()), (2, 0));
    world.kernel.shutdown().await.unwrap();

    for _ in 0..2 {
        let again = site.boot("later").await;
        assert!(again.kernel.in_doubt().is_empty());
        assert_eq!((site.notes(), again.runs(), again.questions().len()), (2, 0, 1));
        again.kernel.shutdown().await.unwrap();
    }
    assert!(site.in_doubt().iter().all(|call| call.noted), "and an operator can still list them");
}

#[test]
fn adv_097_a_kernel_torn_down_during_a_call_leaves_it_in_doubt() {
    let site = Site::new();
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let dying = runtime();
    dying.block_on(async {
        let world = site.boot("dying").await;
        let kernel = world.kernel.clone();
        let begun = kernel.ledger().head().size;
        let call = crate::tests::shared::work(json!({"text": "never end"}));
        tokio::spawn(async move { kernel.syscall(&kernel.operator(), call).await });
        while world.kernel.ledger().head().size == begun {
            tokio::task::yield_now().await;
        }
    });
    drop(dying);
    runtime().block_on(async {
        let world = site.boot("next").await;
        let [call] = world.kernel.in_doubt() else { panic!("{:?}", world.kernel.in_doubt()) };
        assert_eq!(
            (call.op.as_str(), call.tool.as_deref(), call.caller.as_str()),
            ("tool.run", Some("work"), "operator")
        );
        assert!(!call.idempotent && call.session == "dying" && call.ticket.is_some());
        assert_eq!(world.runs(), 0);
    });
}

#[tokio::test]
async fn adv_097_several_crashes_in_a_row_lose_none_and_double_none() {
    let site = Site::new();
    for round in 0..4 {
        site.crash(&format!("crash-{round}"), &[(round % 2 == 0, "allow")]);
        // This kernel crashes as well, after its recovery: it neither shuts down nor says that its lane is clean.
        let world = site.boot(&format!("boot-{round}")).await;
        assert_eq!(world.kernel.in_doubt().len(), 1, "round {round}");
        assert!(matches!(world.work(json!({})).await, Reply::Done(_)));
        drop(world);
    }
    assert_eq!(site.notes(), 4);
    assert_eq!(site.in_doubt().len(), 4);
}

/// Makes calls side by side, which share syncs, until the ledger has so many entries.
async fn grow(world: &ProjectFixture, size: u64) {
    while world.kernel.ledger().head().size < size {
        let call = || {
            let kernel = world.kernel.clone();
            tokio::spawn(async move {
                kernel.syscall(&kernel.operator(), crate::tests::shared::work(json!({}))).await
            })
        };
        let calls: Vec<_> = (0..128).map(|_| call()).collect();
        for call in calls {
            assert!(matches!(call.await.unwrap().unwrap(), Reply::Done(_)));
        }
    }
}

#[test]
fn f7_a_start_after_a_long_session_reads_from_the_oldest_call_that_was_not_over() {
    let site = Site::new();
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let dying = runtime();
    let intent = dying.block_on(async {
        let world = site.boot("long").await;
        grow(&world, 5_000).await;
        let (kernel, begun) = (world.kernel.clone(), world.kernel.ledger().head().size);
        let call = crate::tests::shared::work(json!({"text": "never end"}));
        tokio::spawn(async move { kernel.syscall(&kernel.operator(), call).await });
        while world.kernel.ledger().head().size == begun {
            tokio::task::yield_now().await;
        }
        grow(&world, 10_000).await;
        assert_eq!(world.kernel.0.recorder.unended.count(), 1);
        begun
    });
    drop(dying);
    runtime().block_on(async {
        let (lane, root) = (LaneId::FIRST, site.place.folder.path().canonicalize().unwrap());
        let key = format!("examined/{}/{lane}", key_part(&root.to_string_lossy()));
        let bytes = record(&*site.place.state, &key).unwrap();
        let mark: LaneMark = regent_store::parse(&key, &bytes).unwrap();
        assert!(mark.seq > 4_000 && mark.seq <= intent, "the mark is {} and the intent {intent}", mark.seq);
        let world = site.boot("next").await;
        let [call] = world.kernel.in_doubt() else { panic!("{:?}", world.kernel.in_doubt()) };
        assert_eq!((call.lane, call.seq, call.session.as_str()), (lane, intent, "long"));
    });
}

#[tokio::test]
async fn a_call_that_ended_is_not_in_doubt() {
    let site = Site::new();
    let world = site.boot("one").await;
    for _ in 0..3 {
        assert!(matches!(world.work(json!({})).await, Reply::Done(_)));
    }
    assert!(site.in_doubt().is_empty());
    drop(world);
    let next = site.boot("two").await;
    assert!(next.kernel.in_doubt().is_empty());
    assert_eq!(site.notes(), 0);
}

#[tokio::test]
async fn what_runs_in_a_live_process_is_not_in_doubt() {
    let site = Site::new();
    let live = site.boot("live").await;
    // An effect that is under way: its intent is written, its outcome not yet.
    let body = json!({"caller": {"name": "operator"}, "op": "tool.run", "verdict": {"effect": "allow"}});
    live.kernel.0.note(EntryKind::Intent, &body).await.unwrap();
    assert!(site.in_doubt().is_empty());
    let other = site.boot("other").await;
    assert!(other.kernel.in_doubt().is_empty());
    assert_eq!(site.notes(), 0);
    drop((live, other));
    assert_eq!(site.in_doubt().len(), 1, "it died");
}

#[tokio::test]
async fn a_clean_end_is_not_read_again() {
    let site = Site::new();
    let world = site.boot("one").await;
    assert!(matches!(world.work(json!({})).await, Reply::Done(_)));
    let lane = world.kernel.ledger().head().lane;
    let key = world.kernel.0.key("examined", lane);
    world.kernel.shutdown().await.unwrap();
    let mark: LaneMark = regent_store::parse(&key, &record(&*site.place.state, &key).unwrap()).unwrap();
    let start = site.ledger().head();
    assert!(start.lane == lane && mark.seq >= start.size, "{mark:?} {start:?}");
}

#[tokio::test]
async fn a_process_that_left_a_call_running_does_not_call_its_lane_clean() {
    let site = Site::new();
    let world = site.boot("one").await;
    let lane = world.kernel.ledger().head().lane;
    let key = world.kernel.0.key("examined", lane);
    let before = record(&*site.place.state, &key);
    world.kernel.0.recorder.unended.expect(&world.kernel.ledger().head());
    world.kernel.shutdown().await.unwrap();
    assert_eq!(record(&*site.place.state, &key), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn adv_103_two_that_come_up_at_once_note_it_once() {
    for _ in 0..20 {
        let site = Arc::new(Site::new());
        site.crash("crashed", &[(false, "allow"), (true, "allow")]);
        let boots: Vec<_> = (0..3)
            .map(|number| {
                let site = Arc::clone(&site);
                tokio::spawn(async move { site.boot(&format!("boot-{number}")).await })
            })
            .collect();
        let mut worlds = Vec::new();
        for boot in boots {
            worlds.push(boot.await.unwrap());
        }
        assert_eq!(site.notes(), 2);
        assert_eq!(worlds.iter().map(|world| world.kernel.in_doubt().len()).sum::<usize>(), 2);
        assert_eq!(worlds.iter().map(|world| world.runs.load(Ordering::Relaxed)).sum::<u32>(), 0);
    }
}

#[test]
fn what_an_entry_does_not_say_is_taken_for_the_worse() {
    let site = Site::new();
    let ledger = site.ledger();
    append(&ledger, EntryKind::Intent, &json!({"verdict": {"effect": "allow"}}));
    append(&ledger, EntryKind::Intent, &json!({"idempotent": "yes", "verdict": {"effect": "allow"}}));
    append(&ledger, EntryKind::Intent, &json!({"verdict": "allow"}));
    append(&ledger, EntryKind::Outcome, &json!({"intent": "first"}));
    drop(ledger);
    let found = site.in_doubt();
    assert_eq!(found.len(), 3, "an intent that can't be read may have been acted on");
    assert!(found.iter().all(|call| !call.idempotent));
}

#[test]
fn an_intent_of_a_newer_version_is_an_error_and_not_a_guess() {
    let site = Site::new();
    let ledger = site.ledger();
    append(&ledger, EntryKind::Intent, &json!({"v": 2, "verdict": {"effect": "deny"}}));
    drop(ledger);
    let error = in_doubt(&site.audit).unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("update Regent"), "{error}");
}

#[tokio::test]
async fn f6_a_claim_that_a_dead_process_left_holds_up_no_start() {
    let site = Site::new();
    site.crash("crashed", &[(false, "allow")]);
    let storage = Files::new(&site.audit);
    // A killed process leaves an unlocked claim file.
    drop(storage.lock("lanes/0000/examining").unwrap().unwrap());
    let claimed = claim(&storage, LaneId::FIRST, false).await.unwrap();
    assert!(claimed.is_some(), "it is free at once");
    assert!(
        claim(&storage, LaneId::FIRST, false).await.unwrap().is_none(),
        "while one examines it another doesn't"
    );
    drop(claimed);
    let world = site.boot("next").await;
    assert_eq!(world.kernel.in_doubt().len(), 1);
}

#[tokio::test]
async fn f6_a_claim_that_is_never_given_back_delays_a_start_and_no_more() {
    let site = Site::new();
    site.crash("crashed", &[(false, "allow")]);
    let held = Files::new(&site.audit).lock("lanes/0000/examining").unwrap().unwrap();
    let world = site.boot("next").await;
    assert_eq!(world.kernel.in_doubt().len(), 1, "a note too many is better than none");
    drop(held);
}

#[tokio::test]
async fn a_question_that_a_crash_left_without_a_note_is_put_once_and_keeps_its_answer() {
    for approved in [false, true] {
        let site = Site::new();
        site.crash("crashed", &[(false, "allow")]);
        let call = site.in_doubt().remove(0);
        // A boot that was killed after it had put the question.
        let ledger = Ledger::in_memory(LedgerKey::generate().unwrap());
        let killed = ProjectFixture::boot(OPEN, site.place.clone(), ("killed", "ada"), ledger).await;
        let ticket = killed.kernel.0.ask_in_doubt(&call, &Value::Null, &mut None).await.unwrap().unwrap();
        if approved {
            killed.clock.advance_ms(2_000);
            let answer = crate::ApprovalAnswer::Approve { scope: crate::Scope::Once, valid_ms: 60_000 };
            killed.as_operator(crate::Op::Answer { ticket: ticket.clone(), with: Vec::new(), answer }).await;
        }
        let world = site.boot("next").await;
        assert_eq!(site.notes(), 1);
        assert_eq!(world.questions().len(), usize::from(!approved));
        let standing =
            world.kernel.0.gate.approvals.questions.standing(&ticket, world.kernel.now_ms()).await.unwrap();
        assert_eq!(standing == crate::Answered::Approved, approved, "{standing:?}");
        let expected = (!approved).then_some(&ticket);
        assert_eq!(world.kernel.in_doubt()[0].ticket.as_ref(), expected);
    }
}
