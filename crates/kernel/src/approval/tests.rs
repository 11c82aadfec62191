//! Answers bound to the exact call, used up once, by people only.

mod batches;

use std::sync::Arc;

use crate::approval::posed::OPEN_MS_MAX;
use crate::approval::questions::OPEN_MAX;
use regent_ledger::EntryKind;
use regent_store::{MemoryState, Partition, SqliteState};
use serde_json::{Value, json};

use super::*;
use std::time::Duration;

use crate::tests::shared::{ASK, OPEN, ProjectFixture, code_of, wait, work};
use crate::{BudgetScope, Each, Op, Reply, Status};

const HOUR_MS: u64 = 60 * 60 * 1000;
const TWO: &str = "version: 1\nmode: permissive\nrules:\n  - id: two\n    effect: ask\n    match: { tool: work }\n    approvers: 2\n";

async fn asking() -> ProjectFixture {
    ProjectFixture::new(ASK, Arc::new(MemoryState::default())).await
}

fn pending(reply: Reply) -> Ticket {
    match reply {
        Reply::Pending(ticket) => ticket,
        other @ (Reply::Done(_) | Reply::Denied(_)) => panic!("not pending: {other:?}"),
    }
}

fn done(reply: &Reply) -> bool {
    matches!(reply, Reply::Done(outcome) if outcome.status == Status::Ok)
}

fn yes(scope: Scope) -> ApprovalAnswer {
    ApprovalAnswer::Approve { scope, valid_ms: HOUR_MS }
}

async fn answer(world: &ProjectFixture, ticket: &TicketId, answer: ApprovalAnswer) -> Value {
    // Long enough to begin to read, too short to have read.
    world.clock.advance_ms(500);
    match world.as_operator(Op::Answer { ticket: ticket.clone(), with: Vec::new(), answer }).await {
        Reply::Done(outcome) if outcome.status == Status::Ok => {
            let mut answer: Value = serde_json::from_slice(outcome.output.bytes()).unwrap();
            let fields = answer.as_object_mut().unwrap();
            for field in ["asked_at_ms", "attention", "decided_at_ms"] {
                assert!(fields.remove(field).is_some(), "{field}");
            }
            answer
        }
        Reply::Done(outcome) => json!(outcome.status),
        other @ (Reply::Pending(_) | Reply::Denied(_)) => panic!("not done: {other:?}"),
    }
}

#[tokio::test]
async fn a_question_says_what_a_yes_would_be_to() {
    let world = asking().await;
    let ticket = pending(world.work(json!({"text": "hello\u{1b}[2J\nworld", "path": "Src"})).await);
    assert_eq!(ticket.summary, "work path=`Src` text=`hello\\u{1b}[2J\\u{a}world` → read Src");
    assert_eq!((ticket.rule.as_str(), ticket.reason.as_str()), ("ask-work", "work is asked about"));
    let open = world.questions();
    assert_eq!(open.len(), 1);
    assert_eq!((&open[0].id, open[0].caller.as_str(), open[0].approvers), (&ticket.id, "ada", 1));
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn a_long_argument_is_shortened_and_says_so() {
    let world = asking().await;
    let ticket = pending(world.work(json!({"text": "é".repeat(10_000)})).await);
    assert!(ticket.summary.contains("… (19760 bytes more)"), "{}", ticket.summary);
    assert!(ticket.summary.chars().count() <= 601);
}

#[tokio::test]
async fn the_same_call_is_asked_about_once() {
    let world = asking().await;
    let first = pending(world.work(json!({"text": "a"})).await);
    let second = pending(world.work(json!({"text": "a"})).await);
    let other = pending(world.work(json!({"text": "b"})).await);
    assert_eq!(first.id, second.id);
    assert_ne!(first.id, other.id);
    assert_eq!(world.questions().len(), 2);
}

#[tokio::test]
async fn adv_078_once_is_once() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    assert_eq!(answer(&world, &ticket.id, yes(Scope::Once)).await, json!({"answered": "approved"}));
    assert!(done(&world.work(json!({})).await));
    let again = pending(world.work(json!({})).await);
    assert_ne!(again.id, ticket.id);
    assert_eq!(world.runs(), 1);
    let gone = answer(&world, &ticket.id, yes(Scope::Once)).await;
    assert_eq!(gone["failed"]["code"], "approval.gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn adv_078_of_many_that_race_for_one_yes_one_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Arc::new(SqliteState::open(&folder.path().join("state.db")).unwrap()) as Arc<dyn State>;
    for state in [Arc::new(MemoryState::default()) as Arc<dyn State>, open()] {
        let world = ProjectFixture::new(ASK, state).await;
        let other = world.next(ASK, "session-2", "ada").await;
        let ticket = pending(world.work(json!({})).await);
        answer(&world, &ticket.id, yes(Scope::Once)).await;
        let calls: Vec<_> = (0..16)
            .map(|number| {
                let kernel = if number % 2 == 0 { &world.kernel } else { &other.kernel }.clone();
                tokio::spawn(
                    async move { kernel.syscall(&kernel.operator(), work(json!({}))).await.unwrap() },
                )
            })
            .collect();
        let mut ran = 0;
        for call in calls {
            ran += u32::from(done(&call.await.unwrap()));
        }
        assert_eq!((ran, world.runs() + other.runs()), (1, 1));
    }
}

#[tokio::test]
async fn adv_078_not_after_it_has_expired() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    answer(&world, &ticket.id, yes(Scope::Session)).await;
    assert!(done(&world.work(json!({})).await));
    world.clock.advance_ms(i64::try_from(HOUR_MS).unwrap());
    assert_eq!(pending(world.work(json!({})).await).id, ticket.id, "the question is open again");
    world.clock.advance_ms(OPEN_MS_MAX);
    assert_ne!(pending(world.work(json!({})).await).id, ticket.id, "and then it is over");
    assert_eq!(world.runs(), 1);
}

#[tokio::test]
async fn adv_078_a_yes_for_a_session_is_not_for_another_run() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    answer(&world, &ticket.id, yes(Scope::Session)).await;
    let other = world.next(ASK, "session-2", "ada").await;
    pending(other.work(json!({})).await);
    assert!(done(&world.work(json!({})).await) && done(&world.work(json!({})).await));

    let bob = world.next(ASK, "session-1", "bob").await;
    pending(bob.work(json!({})).await);
    answer(&world, &ticket.id, yes(Scope::Project)).await;
    assert!(done(&other.work(json!({})).await) && done(&other.work(json!({})).await));
    assert_eq!((world.runs(), other.runs(), bob.runs()), (2, 2, 0));
}

#[tokio::test]
async fn adv_077_what_changes_after_the_yes_is_another_call() {
    let world = asking().await;
    let file = world.folder.path().join("plan.txt");
    std::fs::write(&file, "harmless").unwrap();
    let args = json!({"path": "plan.txt", "text": "run it"});
    let ticket = pending(world.work(args.clone()).await);
    answer(&world, &ticket.id, yes(Scope::Project)).await;

    std::fs::write(&file, "harmful").unwrap();
    assert_ne!(pending(world.work(args.clone()).await).id, ticket.id, "the file holds something else");
    let other = json!({"path": "plan.txt", "text": "run it all"});
    assert_ne!(pending(world.work(other).await).id, ticket.id, "another argument");
    let elsewhere = ProjectFixture::new(ASK, Arc::clone(&world.state)).await;
    std::fs::write(elsewhere.folder.path().join("plan.txt"), "harmless").unwrap();
    assert_ne!(pending(elsewhere.work(args.clone()).await).id, ticket.id, "another folder");
    assert_eq!(world.runs() + elsewhere.runs(), 0);

    std::fs::write(&file, "harmless").unwrap();
    assert!(done(&world.work(args).await), "exactly what was agreed to");
}

/// A rule that asks, beside one of the user's own that changes the call.
const SWAP: &str = "version: 1\nmode: permissive\nrules:\n  - { id: ask-work, effect: ask, match: { tool: work }, reason: work is asked about }\n  - { id: swap, effect: transform, match: { tool: work }, set: { /text: { value: swapped } } }\n";

#[tokio::test]
async fn c2_the_question_is_about_the_call_that_runs() {
    let world = ProjectFixture::new(SWAP, Arc::new(MemoryState::default())).await;
    let ticket = pending(world.work(json!({"text": "harmless"})).await);
    assert_eq!(ticket.summary, "work text=`swapped`");
    // The recorded attempt, which the reviewer sees, is the final one too.
    let recorded = world.kernel.ledger().payload(&regent_ledger::Digest::compute(br#"{"text":"swapped"}"#));
    assert!(recorded.unwrap().is_some());
    answer(&world, &ticket.id, yes(Scope::Once)).await;
    assert!(done(&world.work(json!({"text": "harmless"})).await));
    assert_eq!(world.runs(), 1);
}

#[tokio::test]
async fn c2_an_approval_of_the_call_as_it_was_made_is_not_one_of_the_changed_call() {
    let state: Arc<dyn State> = Arc::new(MemoryState::default());
    let world = ProjectFixture::new(ASK, state).await;
    let ticket = pending(world.work(json!({"text": "harmless"})).await);
    answer(&world, &ticket.id, yes(Scope::Project)).await;
    assert!(done(&world.work(json!({"text": "harmless"})).await));
    // From now on a rule changes the call: the approval was for another one.
    let changed = world.next(SWAP, "session-1", "ada").await;
    assert_ne!(pending(changed.work(json!({"text": "harmless"})).await).id, ticket.id);
    assert_eq!(changed.runs(), 0);
}

#[tokio::test]
async fn c2_a_change_that_leads_to_a_question_is_asked_about() {
    let policy = "version: 1\nmode: permissive\nrules:\n  - { id: swap, effect: transform, match: { tool: work, args: { /text: a } }, set: { /text: { value: b } } }\n  - { id: ask-b, effect: ask, match: { tool: work, args: { /text: b } }, approvers: 2 }\n  - { id: deny-d, effect: deny, match: { tool: work, args: { /text: d } } }\n  - { id: to-d, effect: transform, match: { tool: work, args: { /text: c } }, set: { /text: { value: d } } }\n  - { id: ping, effect: transform, match: { tool: work, args: { /text: e } }, set: { /text: { value: f } } }\n  - { id: pong, effect: transform, match: { tool: work, args: { /text: f } }, set: { /text: { value: e } } }\n";
    let world = ProjectFixture::new(policy, Arc::new(MemoryState::default())).await;
    let ticket = pending(world.work(json!({"text": "a"})).await);
    assert_eq!((ticket.summary.as_str(), ticket.question.approvers), ("work text=`b`", 2));
    assert_eq!(code_of(world.work(json!({"text": "c"})).await), "policy.denied");
    assert_eq!(code_of(world.work(json!({"text": "e"})).await), "transform.unsettled");
    assert_eq!(world.runs(), 0);
}

/// A program that runs in a folder, as far as the kernel is concerned.
fn programs() -> crate::ToolSpec {
    crate::ToolSpec {
        name: "exec".to_owned(),
        description: "Runs a program.".to_owned(),
        input: json!({"type": "object", "properties": {
            "argv": {"type": "array", "items": {"type": "string"}}, "command": {"type": "string"}, "cwd": {"type": "string"},
            "stdin": {"type": "string"}, "env": {"type": "object"},
        }, "additionalProperties": false}),
        arguments: [
            ("/argv".to_owned(), crate::ArgumentKind::Argv),
            ("/command".to_owned(), crate::ArgumentKind::Shell),
            ("/cwd".to_owned(), crate::ArgumentKind::Path(regent_policy::Access::Read)),
        ]
        .into(),
        tiers: vec![regent_policy::Tier::Host],
        ..crate::ToolSpec::default()
    }
}

async fn with_programs() -> ProjectFixture {
    let policy =
        "version: 1\nmode: permissive\nrules:\n  - { id: ask, effect: ask, match: { tool: exec } }\n";
    let world = ProjectFixture::new(policy, Arc::new(MemoryState::default())).await;
    world.admit(programs());
    for folder in ["scripts", "sub/deep"] {
        std::fs::create_dir_all(world.folder.path().join(folder)).unwrap();
    }
    world
}

async fn exec(world: &ProjectFixture, args: &Value) -> Reply {
    let run = crate::ToolCall { tool: "exec".to_owned(), args: args.clone() };
    world.as_operator(Op::RunTool(run)).await
}

#[tokio::test]
async fn h3_an_approval_is_bound_to_what_a_program_runs() {
    for (file, args) in [
        ("scripts/deploy.sh", json!({"argv": ["sh", "deploy.sh"], "cwd": "scripts"})),
        ("scripts/deploy.sh", json!({"argv": ["sh", "scripts/deploy.sh"]})),
        ("scripts/deploy.sh", json!({"argv": ["bash", "-c", "cd scripts; ./deploy.sh"]})),
        ("deploy.sh", json!({"command": "sh ./deploy.sh;"})),
        ("deploy.sh", json!({"command": "sh 'deploy.sh'"})),
        ("deploy.sh", json!({"command": "sh <deploy.sh"})),
        ("deploy.sh", json!({"command": "tool --file=deploy.sh"})),
        ("scripts/deploy.sh", json!({"command": "cd scripts && sh deploy.sh"})),
        ("scripts/deploy.sh", json!({"argv": ["sh", "-c", "sh scripts/dep''loy.sh"]})),
        ("my script.sh", json!({"argv": ["sh", "-c", "sh 'my script.sh'"]})),
        ("my script.sh", json!({"command": "sh -c \"sh 'my script.sh'\""})),
        ("scripts/deploy.sh", json!({"argv": ["sh"], "stdin": "sh scripts/deploy.sh\n"})),
        (
            "scripts/deploy.sh",
            json!({"argv": ["bash", "-c", "true"], "env": {"BASH_ENV": "scripts/deploy.sh"}}),
        ),
        ("sub/deep/x.sh", json!({"command": "cd sub && cd deep && sh x.sh"})),
        ("sub/deep/Makefile", json!({"argv": ["make", "-C", "sub", "-C", "deep"]})),
        ("tab\\u{9}name.sh", json!({"argv": ["sh", "tab\tname.sh"]})),
        ("sub/deep/deploy.sh", json!({"command": "sh ../deep/deploy.sh", "cwd": "sub/deep"})),
        ("Makefile", json!({"command": "make release"})),
        ("sub/deep/Makefile", json!({"argv": ["make", "-C", "deep"], "cwd": "sub"})),
        ("sub/deep/package.json", json!({"argv": ["npm", "run", "build"], "cwd": "sub/deep"})),
        ("build.rs", json!({"argv": ["cargo", "build"]})),
        ("sub/deep/x.py", json!({"argv": ["python3", "-m", "deep.x"], "cwd": "sub"})),
    ] {
        let world = with_programs().await;
        let path = world.folder.path().join(file.replace("\\u{9}", "\t"));
        std::fs::write(&path, "harmless").unwrap();
        let ticket = pending(exec(&world, &args).await);
        let held = regent_ledger::Digest::compute(b"harmless");
        let bound = BoundFile { path: file.to_owned(), sha256: held };
        assert!(ticket.question.files.contains(&bound), "{args}: {:?}", ticket.question.files);
        let open = ticket.question.open_names;
        answer(&world, &ticket.id, yes(if open { Scope::Once } else { Scope::Project })).await;
        std::fs::write(&path, "harmful!").unwrap();
        assert_ne!(pending(exec(&world, &args).await).id, ticket.id, "{args}");
        assert_eq!(world.runs(), 0, "{args}");
        std::fs::write(&path, "harmless").unwrap();
        // Where the whole workspace counts, a file that was written again is another one.
        assert_eq!(done(&exec(&world, &args).await), !open, "{args}: exactly what was agreed to");
    }
}

#[tokio::test]
async fn h3_a_file_that_appears_after_the_approval_is_another_call() {
    let world = with_programs().await;
    let args = json!({"command": "make release"});
    let ticket = pending(exec(&world, &args).await);
    assert!(ticket.question.files.is_empty() && !ticket.question.open_names);
    answer(&world, &ticket.id, yes(Scope::Project)).await;
    std::fs::write(world.folder.path().join("GNUmakefile"), "release: ; id").unwrap();
    assert_ne!(pending(exec(&world, &args).await).id, ticket.id);
    assert!(pending(exec(&world, &json!({"command": "sh *.sh"})).await).question.open_names);
}

#[tokio::test]
async fn h3_a_call_that_names_too_much_is_refused_not_asked() {
    let world = with_programs().await;
    let many: Vec<String> = (0..5_000).map(|number| format!("w{number}")).collect();
    assert_eq!(code_of(exec(&world, &json!({"argv": many})).await), "approval.unbound");
}

#[tokio::test]
async fn h3_a_file_is_read_once_however_many_names_lead_to_it() {
    let world = with_programs().await;
    let root = world.folder.path();
    std::fs::write(root.join("big.sh"), vec![b'#'; 1 << 20]).unwrap();
    let spellings: Vec<String> = (1..400).map(|dots| format!("{}big.sh", "./".repeat(dots))).collect();
    let argv = [&["cat".to_owned()], spellings.as_slice()].concat();
    let before = std::time::Instant::now();
    let ticket = pending(exec(&world, &json!({ "argv": argv })).await);
    assert_eq!(ticket.question.files.len(), 1);
    // Reading it 400 times takes longer in a debug build.
    assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
    for number in 0..9 {
        std::fs::File::create(root.join(format!("big{number}"))).unwrap().set_len(8 << 20).unwrap();
    }
    let argv: Vec<String> = (0..9).map(|number| format!("big{number}")).collect();
    assert_eq!(code_of(exec(&world, &json!({ "argv": argv })).await), "approval.unbound", "too much to read");
}

#[tokio::test]
async fn h3_a_shell_under_another_name_is_a_shell() {
    let world = with_programs().await;
    let root = world.folder.path();
    std::fs::write(root.join("deploy.sh"), "harmless").unwrap();
    std::os::unix::fs::symlink("/bin/sh", root.join("linked")).unwrap();
    std::fs::copy("/bin/sh", root.join("copied")).unwrap();
    for program in ["./linked", "./copied"] {
        let args = json!({"argv": [program, "-c", "./dep*"]});
        assert!(pending(exec(&world, &args).await).question.open_names, "{program}");
        let args = json!({"argv": [program, "deploy.sh"]});
        assert!(!pending(exec(&world, &args).await).question.open_names, "{program}");
    }
}

#[tokio::test]
async fn h3_what_an_approval_cannot_be_bound_to_is_refused() {
    let world = with_programs().await;
    let root = world.folder.path();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo.sh"), fifo, 0o600.into(), 0).unwrap();
    std::fs::write(root.join("deploy.sh"), "harmless").unwrap();
    for args in [
        json!({"argv": ["sh", "fifo.sh"]}),
        json!({"command": "sh /proc/self/cwd/deploy.sh"}),
        json!({"command": "cd /proc/self/cwd && sh deploy.sh"}),
        json!({"command": "cd /proc && sh self/cwd/deploy.sh"}),
        json!({"command": "sh $X"}),
    ] {
        assert_eq!(code_of(exec(&world, &args).await), "approval.unbound", "{args}");
    }
    std::fs::remove_file(root.join("fifo.sh")).unwrap();
    let many: Vec<String> = (0..70).map(|number| format!("d{number:02}")).collect();
    for folder in &many {
        std::fs::create_dir(root.join(folder)).unwrap();
    }
    let line = format!("ls {} && cd scripts && sh deploy.sh", many.join(" "));
    assert_eq!(code_of(exec(&world, &json!({"command": line})).await), "approval.unbound");
}

#[tokio::test]
async fn h3_names_made_at_run_time_bind_an_approval_to_the_workspace_and_one_run() {
    let world = with_programs().await;
    let path = world.folder.path().join("scripts/deploy.sh");
    std::fs::write(&path, "harmless").unwrap();
    let args = json!({"command": "sh scripts/dep*.sh"});
    let ticket = pending(exec(&world, &args).await);
    assert!(ticket.question.open_names);
    let refused = answer(&world, &ticket.id, yes(Scope::Session)).await;
    assert_eq!(refused["failed"]["code"], "approval.once_only");
    answer(&world, &ticket.id, yes(Scope::Once)).await;
    std::fs::write(&path, "harmful!").unwrap();
    let changed = pending(exec(&world, &args).await);
    assert_ne!(changed.id, ticket.id);
    answer(&world, &changed.id, yes(Scope::Once)).await;
    assert!(done(&exec(&world, &args).await), "nothing has changed since");
    assert_eq!(world.runs(), 1);
}

/// Changes a file as soon as the approval of a call is used up: after the check, before the run.
#[derive(Debug)]
struct Meddler {
    clock: Arc<crate::ManualClock>,
    state: Arc<dyn State>,
    file: std::path::PathBuf,
    armed: std::sync::atomic::AtomicBool,
}

impl crate::Clock for Meddler {
    fn now_ms(&self) -> i64 {
        use std::sync::atomic::Ordering;
        let partition = Partition::containing("question/");
        let waits = !wait(self.state.scan(&partition, "question/")).unwrap().is_empty();
        if !waits && self.armed.load(Ordering::Relaxed) {
            std::fs::write(&self.file, "harmful!").unwrap();
        }
        self.clock.now_ms()
    }

    fn elapsed(&self) -> Duration {
        crate::Clock::elapsed(&*self.clock)
    }
}

#[tokio::test]
async fn h3_what_changes_between_the_check_and_the_run_is_not_run_and_uses_up_nothing() {
    let policy = "version: 1\nmode: permissive\nrules:\n  - { id: ask, effect: ask, match: { tool: exec } }\n  - { id: few, effect: allow, match: { tool: exec }, rate: 1/hour }\n";
    let world = ProjectFixture::new(policy, Arc::new(MemoryState::default())).await;
    let file = world.folder.path().join("deploy.sh");
    std::fs::write(&file, "harmless").unwrap();
    let armed = std::sync::atomic::AtomicBool::new(false);
    let meddler = Meddler {
        clock: Arc::clone(&world.clock),
        state: Arc::clone(&world.state),
        file: file.clone(),
        armed,
    };
    let meddler = Arc::new(meddler);
    let world = world.next_with_clock(policy, Arc::clone(&meddler) as _).await;
    world.admit(programs());
    let args = json!({"argv": ["sh", "deploy.sh"]});
    let ticket = pending(exec(&world, &args).await);
    answer(&world, &ticket.id, yes(Scope::Once)).await;
    meddler.armed.store(true, std::sync::atomic::Ordering::Relaxed);
    let Reply::Done(outcome) = exec(&world, &args).await else { panic!("not done") };
    meddler.armed.store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(
        matches!(&outcome.status, Status::Failed(failure) if failure.code == "approval.stale"),
        "{outcome:?}"
    );
    assert_eq!((world.runs(), world.kernel.0.recorder.unended.count()), (0, 0));
    // Neither the approval nor the rate of one in an hour was used.
    std::fs::write(&file, "harmless").unwrap();
    assert!(done(&exec(&world, &args).await));
    assert_eq!((world.runs(), world.kernel.0.recorder.unended.count()), (1, 0));
}

#[tokio::test]
async fn m3_a_question_holds_no_character_that_hides() {
    let world = asking().await;
    let ticket = pending(world.work(json!({"text": "a\u{e0101}b\u{ad}c\u{3164}d\u{fe0f}"})).await);
    assert_eq!(ticket.summary, "work text=`a\\u{e0101}b\\u{ad}c\\u{3164}d\\u{fe0f}`");
    assert!(!ticket.question.summary_cut);
    // Escapes make it longer than what was given: the line is cut where it is too long, and says so.
    let escaped = pending(world.work(json!({"text": format!("{}rm -rf /", "\n".repeat(40))})).await);
    assert!(escaped.question.summary_cut && escaped.summary.contains("more)"), "{}", escaped.summary);
    let long = pending(world.work(json!({"text": "x".repeat(200)})).await);
    assert!(long.question.summary_cut && long.question.digest.is_some());
}

#[tokio::test]
async fn m6_an_approval_from_a_clock_that_was_ahead_does_not_hold() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    world.clock.advance_ms(10 * 60 * 60 * 1000);
    answer(&world, &ticket.id, yes(Scope::Project)).await;
    world.clock.advance_ms(-10 * 60 * 60 * 1000);
    pending(world.work(json!({})).await);
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn a_no_holds_for_the_session_and_gives_its_advice() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    let advice = ApprovalAnswer::Deny { because: Some("use the test server".to_owned()) };
    answer(&world, &ticket.id, advice).await;
    match world.work(json!({})).await {
        Reply::Denied(denial) => {
            assert_eq!(denial.reason.code, "approval.denied");
            assert_eq!(denial.reason.help.as_deref(), Some("use the test server"));
        }
        other @ (Reply::Done(_) | Reply::Pending(_)) => panic!("not denied: {other:?}"),
    }
    let later = world.next(ASK, "session-2", "ada").await;
    assert_ne!(pending(later.work(json!({})).await).id, ticket.id);
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn a_yes_that_was_not_used_can_be_taken_back() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    answer(&world, &ticket.id, yes(Scope::Project)).await;
    answer(&world, &ticket.id, ApprovalAnswer::Deny { because: None }).await;
    assert_eq!(code_of(world.work(json!({})).await), "approval.denied");
}

#[tokio::test]
async fn two_approvers_are_two_people() {
    let world = ProjectFixture::new(TWO, Arc::new(MemoryState::default())).await;
    let bob = world.next(TWO, "session-2", "bob").await;
    let ticket = pending(world.work(json!({})).await);
    let half = json!({"answered": "waiting", "agreed": 1, "needed": 2});
    assert_eq!(answer(&world, &ticket.id, yes(Scope::Project)).await, half);
    assert_eq!(answer(&world, &ticket.id, yes(Scope::Project)).await, half, "the same person again");
    pending(world.work(json!({})).await);
    assert_eq!(answer(&bob, &ticket.id, yes(Scope::Once)).await, json!({"answered": "approved"}));
    assert!(done(&world.work(json!({})).await));
    pending(world.work(json!({})).await);
    assert_eq!(world.runs(), 1, "the narrower of both");
}

#[tokio::test]
async fn adv_078_one_person_in_two_sessions_is_one_person() {
    let world = ProjectFixture::new(TWO, Arc::new(MemoryState::default())).await;
    let elsewhere = world.next(TWO, "session-2", "ada").await;
    let ticket = pending(world.work(json!({})).await);
    let half = json!({"answered": "waiting", "agreed": 1, "needed": 2});
    for session in [&world, &elsewhere, &world] {
        assert_eq!(answer(session, &ticket.id, yes(Scope::Project)).await, half);
        pending(world.work(json!({})).await);
    }
    assert_eq!(world.questions()[0].agreed, ["ada"]);
    let bob = world.next(TWO, "session-1", "bob").await;
    assert_eq!(answer(&bob, &ticket.id, yes(Scope::Once)).await, json!({"answered": "approved"}));
    assert_eq!(world.runs(), 0);
    // One denial outweighs any number of approvals, also by a reviewer who approved before.
    answer(&elsewhere, &ticket.id, ApprovalAnswer::Deny { because: None }).await;
    assert_eq!(code_of(world.work(json!({})).await), "approval.denied");
}

#[tokio::test]
async fn a_full_meter_limits_approvals_to_one_call_after_reading() {
    let world = asking().await;
    let ask = |number: u32| world.work(json!({"text": format!("{number}")}));
    for number in 0..5 {
        let ticket = pending(ask(number).await);
        assert_eq!(answer(&world, &ticket.id, yes(Scope::Session)).await, json!({"answered": "approved"}));
    }
    let ticket = pending(ask(5).await);
    let attention = ticket.question.attention.clone().unwrap();
    assert_eq!((attention.percent, attention.hasty_hour, attention.asked_hour), (100, 5, 6));
    let refused = |answer: Value| answer["failed"]["code"].as_str().unwrap_or_default().to_owned();
    assert_eq!(refused(answer(&world, &ticket.id, yes(Scope::Session)).await), "approval.once_only");
    world.clock.advance_ms(-500);
    assert_eq!(refused(answer(&world, &ticket.id, yes(Scope::Once)).await), "approval.too_fast");
    assert_eq!(pending(ask(5).await).id, ticket.id, "neither was an answer");
    world.clock.advance_ms(i64::try_from(ticket.question.read_ms).unwrap());
    assert_eq!(refused(answer(&world, &ticket.id, yes(Scope::Project)).await), "approval.once_only");
    assert_eq!(answer(&world, &ticket.id, yes(Scope::Once)).await, json!({"answered": "approved"}));
    assert!(done(&ask(5).await));
    // A denial always counts at once, and each person has their own meter.
    let again = pending(ask(6).await);
    let bob = world.next(ASK, "session-2", "bob").await;
    assert_eq!(answer(&bob, &again.id, yes(Scope::Session)).await, json!({"answered": "approved"}));
    assert_eq!(answer(&world, &again.id, ApprovalAnswer::Deny { because: None }).await["answered"], "denied");
    world.clock.advance_ms(i64::try_from(HOUR_MS).unwrap());
    let later = pending(ask(7).await);
    assert_eq!(answer(&world, &later.id, yes(Scope::Session)).await, json!({"answered": "approved"}));
}

#[tokio::test]
async fn the_ledger_says_when_it_was_asked_and_decided() {
    let world = asking().await;
    let ticket = pending(world.work(json!({})).await);
    let place = world.questions()[0].intent.unwrap();
    assert_eq!((place.lane, place.seq), (ticket.intent.lane, ticket.intent.seq));
    world.clock.advance_ms(7_000);
    answer(&world, &ticket.id, yes(Scope::Once)).await;
    world.clock.advance_ms(1_000);
    assert!(done(&world.work(json!({})).await));
    let reader = crate::Reader::on(world.kernel.ledger().storage());
    let intents =
        reader.entries().unwrap().map(Result::unwrap).filter(|entry| entry.kind == EntryKind::Intent);
    let approved: Vec<Value> = intents.filter_map(|entry| entry.body.get("approved").cloned()).collect();
    let start = crate::tests::shared::START_MS;
    let expected = json!({
        "asked_at_ms": start, "attention_percent": 5, "by": ["ada"], "decided_at_ms": start + 7_500, "scope": "once", "ticket": ticket.id,
    });
    assert_eq!(approved, [expected]);
}

#[tokio::test]
async fn the_smallest_exception_comes_with_the_question_and_covers_exactly_it() {
    let world = asking().await;
    let ticket = pending(world.work(json!({"path": "src", "text": "a"})).await);
    let at = ticket.question.rule_at.clone().unwrap();
    assert_eq!((&*at.id, at.line), ("ask-work", 4));
    let cover = ticket.question.cover.clone().unwrap();
    assert_eq!(
        cover.conditions,
        json!({"access": ["read"], "agent": "operator", "path": ["src"], "tool": "work"})
    );
    assert!(cover.lines.contains("line 4"), "{}", cover.lines);
}

#[tokio::test]
async fn adv_078_a_yes_to_one_agent_is_not_for_its_twin() {
    let world = asking().await;
    let person = world.kernel.operator();
    let (one, two) = (world.agent(&person, "twin", None).await, world.agent(&person, "twin", None).await);
    let ask = |who: &Principal| {
        let (kernel, who) = (world.kernel.clone(), who.clone());
        async move { kernel.syscall(&who, work(json!({}))).await.unwrap() }
    };
    let ticket = pending(ask(&one).await);
    answer(&world, &ticket.id, yes(Scope::Project)).await;
    assert_ne!(pending(ask(&two).await).id, ticket.id, "same name, same call, another key");
    assert!(done(&ask(&one).await));
    assert_eq!(world.runs(), 1);
}

#[tokio::test]
async fn adv_081_an_agent_cannot_answer_its_own_question() {
    let world = asking().await;
    let agent = world.agent(&world.kernel.operator(), "sly", None).await;
    let ticket = pending(world.kernel.syscall(&agent, work(json!({}))).await.unwrap());
    for op in [
        Op::Answer { ticket: ticket.id.clone(), with: Vec::new(), answer: yes(Scope::Project) },
        Op::Questions,
    ] {
        assert_eq!(code_of(world.kernel.syscall(&agent, op).await.unwrap()), "approval.not_a_person");
    }
    assert_eq!(world.questions().len(), 1);
    pending(world.kernel.syscall(&agent, work(json!({}))).await.unwrap());
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn adv_079_five_hundred_questions_in_a_minute_are_refused_not_granted() {
    let world = asking().await;
    let (mut asked, mut refused) = (0, 0);
    for number in 0..500 {
        match world.work(json!({"text": format!("{number}")})).await {
            Reply::Pending(_) => asked += 1,
            other @ (Reply::Done(_) | Reply::Denied(_)) => {
                assert_eq!(code_of(other), "approval.flood");
                refused += 1;
            }
        }
    }
    assert_eq!((asked, refused), (NEW_PER_MINUTE_MAX, 500 - NEW_PER_MINUTE_MAX));
    // Slowly is no way round either: the number of pending questions is limited for all callers.
    for number in 500..600 {
        world.clock.advance_ms(60_000);
        let _reply = world.work(json!({"text": format!("{number}")})).await;
    }
    assert_eq!(world.questions().len(), OPEN_MAX);
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn a_question_that_is_not_put_costs_nothing() {
    let world = asking().await;
    let limits = crate::Budget { approvals: Some(OPEN_MAX as u64 + 1), ..crate::Budget::default() };
    world.as_operator(Op::SetBudget { scope: BudgetScope::Session, limits }).await;
    for number in 0..OPEN_MAX {
        pending(world.work(json!({"text": number.to_string()})).await);
        world.clock.advance_ms(4_000);
    }
    for number in 0..2 * NEW_PER_MINUTE_MAX {
        let Reply::Denied(denial) = world.work(json!({"text": "more"})).await else { panic!("asked") };
        assert!(
            denial.reason.message.contains("questions are already pending"),
            "{number}: {}",
            denial.reason.message
        );
    }
    let first = world.questions().remove(0);
    answer(&world, &first.id, ApprovalAnswer::Deny { because: None }).await;
    pending(world.work(json!({"text": "more"})).await);
}

#[tokio::test]
async fn questions_are_a_budget_too() {
    let world = asking().await;
    let limits = Each { approvals: Some(2), ..Each::default() };
    world.as_operator(Op::SetBudget { scope: BudgetScope::Session, limits }).await;
    // Each is answered before the next is put: questions that are open together for one cause are charged once.
    for text in ["1", "2"] {
        let ticket = pending(world.work(json!({"text": text})).await);
        assert_eq!(pending(world.work(json!({"text": text})).await).id, ticket.id);
        answer(&world, &ticket.id, ApprovalAnswer::Deny { because: None }).await;
    }
    assert_eq!(code_of(world.work(json!({"text": "3"})).await), "budget.exhausted");
}

#[tokio::test]
async fn who_waits_hears_of_an_answer_from_here_and_from_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let world = ProjectFixture::new(ASK, Arc::new(SqliteState::open(&path).unwrap())).await;
    let other = ProjectFixture::new(OPEN, Arc::new(SqliteState::open(&path).unwrap())).await;
    for (number, answerer) in [&world, &other].into_iter().enumerate() {
        let ticket = pending(world.work(json!({"text": format!("{number}")})).await);
        let (kernel, id) = (world.kernel.clone(), ticket.id.clone());
        let waiting = tokio::spawn(async move { kernel.answered(&id).await });
        tokio::task::yield_now().await;
        // Two processes on one machine have one clock.
        world.clock.advance_ms(1_000);
        other.clock.advance_ms(1_000);
        answer(answerer, &ticket.id, yes(Scope::Once)).await;
        assert_eq!(waiting.await.unwrap(), Ok(Answered::Approved));
    }
    let nowhere = world.kernel.answered(&TicketId("../../etc".to_owned())).await;
    assert_eq!(nowhere, Ok(Answered::Gone));
}
