//! Resuming a task is running it again: what was made is replayed, what wasn't is made, what is in doubt is asked about.

mod lanes;

use regent_ledger::{CanonicalJson, EntryDraft, Ledger, LedgerKey, Options};
use regent_store::MemoryState;
use serde_json::json;

use super::*;
use crate::tests::shared::{ASK, OPEN, ProjectFixture, START_MS, SharedProject, work};
use crate::{ApprovalAnswer, ManualClock, Scope};

/// A project whose kernels come and go; the ledger and the shared state stay.
struct Site {
    place: SharedProject,
    task: TaskId,
}

impl Site {
    fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let clock = Arc::new(ManualClock::starting_at(START_MS));
        let place = SharedProject { folder, clock, state: Arc::new(MemoryState::default()) };
        Self { place, task: TaskId::new("task-1").unwrap() }
    }

    fn ledger(&self) -> Ledger {
        let key = LedgerKey::load_or_create(&self.place.folder.path().join("key")).unwrap();
        Ledger::open(&self.place.folder.path().join("audit"), key, Options::default()).unwrap()
    }

    async fn boot(&self, policy: &str, session: &str) -> ProjectFixture {
        let world = ProjectFixture::boot(policy, self.place.clone(), (session, "ada"), self.ledger()).await;
        world.kernel.adopt(std::slice::from_ref(&self.task)).await.unwrap();
        world
    }

    async fn call(&self, world: &ProjectFixture, step: &str, text: &str) -> Result<Reply, Fault> {
        let caller = world.kernel.operator().at_step(&self.task, step).unwrap();
        world.kernel.syscall(&caller, work(json!({"text": text}))).await
    }

    /// What a process leaves that was killed in the middle of a step.
    fn crash_at(&self, step: &str, text: &str, idempotent: bool) {
        self.crash_during(step, &json!({"text": text}), idempotent);
    }

    fn crash_during(&self, step: &str, args: &Value, idempotent: bool) {
        let ledger = self.ledger();
        let call = digest_of(&work(args.clone())).unwrap();
        let args = CanonicalJson::encode(args).unwrap().as_str().as_bytes().to_vec();
        let args = regent_ledger::Payload::new(args);
        let body = json!({
            "args": args.reference(), "caller": {"name": "operator"}, "idempotent": idempotent, "op": "tool.run", "session": "crashed",
            "step": {"call": call, "name": step, "task": self.task}, "tool": {"name": "work"}, "verdict": {"effect": "allow"},
        });
        let body = CanonicalJson::encode(&body).unwrap();
        let draft = EntryDraft { kind: EntryKind::Intent, at_ms: START_MS, body, payloads: vec![args] };
        ledger.append_blocking(draft).unwrap();
    }
}

fn done(reply: Result<Reply, Fault>) -> Outcome {
    match reply.unwrap() {
        Reply::Done(outcome) => outcome,
        other @ (Reply::Denied(_) | Reply::Pending(_)) => panic!("not done: {other:?}"),
    }
}

#[tokio::test]
async fn what_was_made_is_replayed_and_never_made_again() {
    let site = Site::new();
    let first = site.boot(OPEN, "one").await;
    let (a, b) = (done(site.call(&first, "0", "a").await), done(site.call(&first, "1", "b").await));
    assert_eq!(first.runs(), 2);
    let again = done(site.call(&first, "0", "a").await);
    assert_eq!((again.receipt.hash, first.runs()), (a.receipt.hash, 2), "in the same process too");
    first.kernel.shutdown().await.unwrap();
    drop(first);

    let second = site.boot(OPEN, "two").await;
    for (step, text, before) in [("0", "a", a), ("1", "b", b)] {
        let after = done(site.call(&second, step, text).await);
        assert_eq!((&after.output, &after.status), (&before.output, &before.status));
        assert_eq!((after.intent, after.receipt.hash), (before.intent, before.receipt.hash));
    }
    assert_eq!(second.runs(), 0);
    done(site.call(&second, "2", "c").await);
    assert_eq!(second.runs(), 1);
}

#[tokio::test]
async fn another_call_at_a_step_is_a_fault() {
    let site = Site::new();
    let world = site.boot(OPEN, "one").await;
    done(site.call(&world, "0", "a").await);
    assert!(matches!(site.call(&world, "0", "b").await, Err(Fault::Diverged { .. })));
    let other = TaskId::new("task-2").unwrap();
    let caller = world.kernel.operator().at_step(&other, "0").unwrap();
    done(world.kernel.syscall(&caller, work(json!({"text": "b"}))).await);
    assert_eq!(world.runs(), 2, "another task has steps of its own");
}

#[tokio::test]
async fn a_no_is_replayed_too_and_a_question_is_not() {
    let site = Site::new();
    let denied = "version: 1\nmode: permissive\nrules:\n  - { id: no-work, effect: deny, match: { tool: work }, reason: no work today, help: rest }\n";
    let first = site.boot(denied, "one").await;
    let Reply::Denied(before) = site.call(&first, "0", "a").await.unwrap() else { panic!("not denied") };
    drop(first);
    let second = site.boot(OPEN, "two").await;
    let Reply::Denied(after) = site.call(&second, "0", "a").await.unwrap() else { panic!("not denied") };
    let said = |reason: &Reason| (reason.code.clone(), reason.message.clone(), reason.help.clone());
    assert_eq!(said(&before.reason), said(&after.reason));
    drop(second);

    let third = site.boot(ASK, "three").await;
    let Reply::Pending(ticket) = site.call(&third, "1", "b").await.unwrap() else { panic!("not asked") };
    let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 60_000 };
    third.clock.advance_ms(1_000);
    third.as_operator(Op::Answer { ticket: ticket.id, with: Vec::new(), answer }).await;
    drop(third);
    let fourth = site.boot(ASK, "four").await;
    done(site.call(&fourth, "1", "b").await);
    assert_eq!(fourth.runs(), 1, "an approval holds for the resumed task");
}

#[tokio::test]
async fn k6_a_recorded_denial_keeps_its_code_however_many_codes_there_are() {
    let site = Site::new();
    let call = digest_of(&work(json!({"text": "a"}))).unwrap();
    let ledger = site.ledger();
    for number in 0..1_100 {
        let body = json!({
            "caller": {"name": "operator"}, "op": "tool.run", "session": "earlier", "tool": {"name": "work"},
            "step": {"call": call, "name": number.to_string(), "task": site.task},
            "verdict": {"code": format!("skill.rule_{number}"), "effect": "deny", "reason": "no"},
        });
        let body = CanonicalJson::encode(&body).unwrap();
        let draft = EntryDraft { kind: EntryKind::Intent, at_ms: START_MS, body, payloads: Vec::new() };
        ledger.append_blocking(draft).unwrap();
    }
    drop(ledger);
    let world = site.boot(OPEN, "two").await;
    for number in [0, 1_050, 1_099] {
        let reply = site.call(&world, &number.to_string(), "a").await.unwrap();
        let Reply::Denied(denial) = reply else { panic!("{reply:?}") };
        assert_eq!(denial.reason.code, format!("skill.rule_{number}"));
    }
}

fn pending(reply: Reply) -> crate::Ticket {
    match reply {
        Reply::Pending(ticket) => ticket,
        other @ (Reply::Done(_) | Reply::Denied(_)) => panic!("not pending: {other:?}"),
    }
}

async fn approve(world: &ProjectFixture, ticket: &crate::Ticket) {
    let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 60_000 };
    world.clock.advance_ms(2_000);
    world.as_operator(Op::Answer { ticket: ticket.id.clone(), with: Vec::new(), answer }).await;
}

#[tokio::test]
async fn h3_an_approval_to_repeat_is_bound_to_the_files_and_answers_no_other_question() {
    let site = Site::new();
    let file = site.place.folder.path().join("deploy.sh");
    std::fs::write(&file, "harmless").unwrap();
    let args = json!({"path": "deploy.sh"});
    site.crash_during("0", &args, false);
    let world = site.boot(ASK, "two").await;
    let caller = world.kernel.operator().at_step(&site.task, "0").unwrap();
    let call = async || world.kernel.syscall(&caller, work(args.clone())).await.unwrap();
    let repeat = pending(call().await);
    assert_eq!(repeat.rule, "recovery");
    assert_eq!(repeat.question.files.len(), 1, "the reviewer sees which files it is bound to");
    assert_eq!(world.kernel.in_doubt()[0].ticket.as_ref(), Some(&repeat.id), "one question, not two");
    approve(&world, &repeat).await;
    std::fs::write(&file, "harmful!").unwrap();
    let changed = pending(call().await);
    assert_eq!(changed.rule, "recovery");
    assert_ne!(changed.id, repeat.id);
    approve(&world, &changed).await;
    let asked = pending(call().await);
    assert_eq!(asked.rule, "ask-work", "policy's own question remains");
    assert_eq!(pending(call().await).id, asked.id);
    assert_eq!(world.runs(), 0);
    approve(&world, &asked).await;
    done(Ok(call().await));
    assert_eq!(world.runs(), 1);
}

#[tokio::test]
async fn adv_097_a_step_in_doubt_is_made_again_only_if_twice_is_once() {
    let site = Site::new();
    site.crash_at("0", "same", true);
    site.crash_at("1", "pay", false);
    let world = site.boot(OPEN, "two").await;
    done(site.call(&world, "0", "same").await);
    assert_eq!(world.runs(), 1);
    let Reply::Pending(ticket) = site.call(&world, "1", "pay").await.unwrap() else { panic!("not asked") };
    assert_eq!(ticket.rule, "recovery");
    assert!(
        world.kernel.in_doubt().iter().any(|one| one.ticket.as_ref() == Some(&ticket.id)),
        "one question, not two"
    );
    assert!(
        matches!(site.call(&world, "1", "pay").await.unwrap(), Reply::Pending(_)),
        "asking settles nothing"
    );
    assert_eq!(world.runs(), 1);
    let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 60_000 };
    world.clock.advance_ms(2_000);
    world.as_operator(Op::Answer { ticket: ticket.id, with: Vec::new(), answer }).await;
    done(site.call(&world, "1", "pay").await);
    assert_eq!(world.runs(), 2);
    drop(world);
    let later = site.boot(OPEN, "three").await;
    for (step, text) in [("0", "same"), ("1", "pay")] {
        done(site.call(&later, step, text).await);
    }
    assert_eq!(later.runs(), 0);
}

#[tokio::test]
async fn adv_097_a_person_can_say_no_to_a_repeat() {
    let site = Site::new();
    site.crash_at("0", "pay", false);
    let world = site.boot(OPEN, "two").await;
    let Reply::Pending(ticket) = site.call(&world, "0", "pay").await.unwrap() else { panic!("not asked") };
    let because = Some("it went through".to_owned());
    world
        .as_operator(Op::Answer {
            ticket: ticket.id,
            with: Vec::new(),
            answer: ApprovalAnswer::Deny { because },
        })
        .await;
    let Reply::Denied(denial) = site.call(&world, "0", "pay").await.unwrap() else { panic!("not denied") };
    assert_eq!(denial.reason.help.as_deref(), Some("it went through"));
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn replayed_output_taints_its_reader() {
    let site = Site::new();
    let mut seen = Vec::new();
    for session in ["one", "two"] {
        let world = site.boot(OPEN, session).await;
        let agent = world.agent(&world.kernel.operator(), "reader", None).await;
        let before = world.kernel.0.society.agents.context(&agent);
        let outcome =
            done(world.kernel.syscall(&agent.at_step(&site.task, "0").unwrap(), work(json!({}))).await);
        let after = world.kernel.0.society.agents.context(&agent);
        assert_eq!(after, before.join(outcome.output.label()), "{session}");
        assert_ne!(after, before, "{session}");
        seen.push((after, world.runs()));
    }
    assert_eq!(seen[0].0, seen[1].0);
    assert_eq!((seen[0].1, seen[1].1), (1, 0));
}

#[test]
fn names_of_tasks() {
    for (name, fine) in
        [("a", true), ("task-01", true), ("", false), ("A", false), ("a/b", false), ("a b", false)]
    {
        assert_eq!(TaskId::new(name).is_some(), fine, "{name}");
        assert_eq!(serde_json::from_value::<TaskId>(json!(name)).is_ok(), fine, "{name}");
    }
    assert!(TaskId::new(&"a".repeat(65)).is_none());
}

/// A step that an older Regent recorded is found again only under the digest that it had then.
#[test]
fn a_model_call_of_an_older_journal_keeps_its_digest() {
    let written = json!({"op": "infer", "args": {
        "model": "claude/one",
        "messages": [
            {"role": "system", "text": "Be brief."},
            {"role": "user", "text": "What is in a.txt? é"},
            {"role": "assistant", "text": "I look.", "calls": [
                {"id": "c1", "tool": "fs.read", "args": {"path": "a.txt"}},
                {"id": "c2", "tool": "fs.list", "args": {}},
            ]},
            {"role": "tool", "text": "alpha", "answers": "c1"},
            {"role": "tool", "answers": "c2"},
            {"role": "assistant"},
            {"role": "user", "text": "Go on."},
        ],
        "tools": [{"name": "fs.read", "description": "Read", "input": {"type": "object"}}],
        "tokens_max": 256,
        "sampling": {"temperature": 0.5, "stop": ["END"]},
    }});
    let op: Op = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(&op).unwrap(), written);
    let golden = "577853b1a4eb6608154570fda2157cb836357165041a9fd0aafa4e3ca3b40b6c";
    assert_eq!(digest_of(&op).unwrap().to_string(), golden);
}
