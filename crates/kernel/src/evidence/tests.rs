//! What a file tells about a call that a crash cut off. Whatever isn't exactly one of the two recorded states proves nothing.

use std::path::Path;
use std::sync::Arc;

use regent_ledger::{CanonicalJson, EntryDraft, EntryKind, Ledger, LedgerKey, Options};
use regent_store::MemoryState;

use super::*;
use crate::journal::digest_of;
use crate::tests::shared::{OPEN, ProjectFixture, START_MS, SharedProject, work};
use crate::{ManualClock, Op, Reply, Status, TaskId};

fn digest(content: &str) -> Digest {
    Digest::compute(content.as_bytes())
}

fn evidence(before: Option<&str>, after: Option<&str>) -> Evidence {
    let path = "folder/file".to_owned();
    let after = after.map(|after| vec![Some(digest(after))]);
    Evidence {
        after,
        before: vec![before.map(digest)],
        paths: vec![(path, Access::Write)],
        salt: "00".to_owned(),
    }
}

fn word(effect: &DoubtOutcome) -> &'static str {
    match effect {
        DoubtOutcome::Done(_) => "done",
        DoubtOutcome::NotDone => "not done",
        DoubtOutcome::Unknown => "unknown",
    }
}

fn checked(workspace: &Path, evidence: &Evidence, proven: bool) -> &'static str {
    word(&evidence.clone().check(&Workspace::open(workspace).unwrap(), proven))
}

#[test]
fn only_the_two_recorded_states_prove_something() {
    // Before, after (none: the call was to fail), now.
    let cases = [
        (None, Some("new"), None, "not done"),
        (None, Some("new"), Some("new"), "done"),
        (None, Some("new"), Some("other"), "unknown"),
        (None, Some(""), Some(""), "done"),
        (Some("old"), Some("new"), Some("old"), "not done"),
        (Some("old"), Some("new"), Some("new"), "done"),
        (Some("old"), Some("new"), Some("ne"), "unknown"),
        (Some("old"), Some("new"), Some(""), "unknown"),
        (Some("old"), Some("new"), None, "unknown"),
        (Some("same"), Some("same"), Some("same"), "done"),
        (Some("old"), None, Some("old"), "not done"),
        (Some("old"), None, Some("other"), "unknown"),
        (None, None, None, "not done"),
        (None, None, Some("other"), "unknown"),
    ];
    for (before, after, now, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        if let Some(now) = now {
            std::fs::create_dir(folder.path().join("folder")).unwrap();
            std::fs::write(folder.path().join("folder/file"), now).unwrap();
        }
        let evidence = evidence(before, after);
        assert_eq!(checked(folder.path(), &evidence, true), expected, "{before:?} {after:?} {now:?}");
        // An unproven intent never proves that a call was made.
        let unproven = if now == before { "not done" } else { "unknown" };
        assert_eq!(checked(folder.path(), &evidence, false), unproven, "{before:?} {after:?} {now:?}");
    }
}

#[test]
fn what_cannot_be_read_proves_nothing() {
    type Plant = fn(&Path, &Path);
    // Each attacker leaves the content after the call within reach, but not as the plain file that the call would have written.
    let plants: [(&str, Plant); 6] = [
        ("a link at the end", |inside, outside| {
            std::fs::create_dir(inside.join("folder")).unwrap();
            std::os::unix::fs::symlink(outside.join("file"), inside.join("folder/file")).unwrap();
        }),
        ("a link on the way", |inside, outside| {
            std::os::unix::fs::symlink(outside, inside.join("folder")).unwrap();
        }),
        ("a dangling link", |inside, _| {
            std::fs::create_dir(inside.join("folder")).unwrap();
            std::os::unix::fs::symlink("nowhere", inside.join("folder/file")).unwrap();
        }),
        ("a second hard link", |inside, outside| {
            std::fs::create_dir(inside.join("folder")).unwrap();
            std::fs::hard_link(outside.join("file"), inside.join("folder/file")).unwrap();
        }),
        ("a folder", |inside, _| std::fs::create_dir_all(inside.join("folder/file")).unwrap()),
        ("a file for a folder", |inside, _| std::fs::write(inside.join("folder"), "new").unwrap()),
    ];
    for (name, plant) in plants {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
        for one in [&inside, &outside] {
            std::fs::create_dir(one).unwrap();
        }
        std::fs::write(outside.join("file"), "new").unwrap();
        plant(&inside, &outside);
        for before in [None, Some("old")] {
            assert_eq!(
                checked(&inside, &evidence(before, Some("new")), true),
                "unknown",
                "{name} {before:?}"
            );
        }
    }
}

#[test]
fn a_large_file_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let large = "x".repeat(FILE_BYTES_MAX as usize + 1);
    std::fs::write(folder.path().join("file"), &large).unwrap();
    let evidence =
        Evidence { paths: vec![("file".to_owned(), Access::Write)], ..evidence(Some("old"), Some(&large)) };
    assert_eq!(checked(folder.path(), &evidence, true), "unknown");
}

/// A project in which a process was killed while its task wrote `file`.
struct Killed {
    place: SharedProject,
    task: TaskId,
    evidence: Digest,
}

impl Killed {
    /// The killed process wrote the second lane; the next one writes the first.
    fn new(before: Option<&str>, after: &str) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let clock = Arc::new(ManualClock::starting_at(START_MS));
        let place = SharedProject { folder, clock, state: Arc::new(MemoryState::default()) };
        let evidence =
            Evidence { paths: vec![("file".to_owned(), Access::Write)], ..evidence(before, Some(after)) };
        let payload = Payload::new(serde_json::to_vec(&evidence).unwrap());
        let killed = Self { place, task: TaskId::new("task-1").unwrap(), evidence: payload.digest() };
        let (first, second) = (killed.ledger(), killed.ledger());
        let body = json!({
            "caller": {"name": "operator"}, "evidence": payload.reference(), "idempotent": false, "op": "tool.run",
            "session": "killed", "step": {"call": digest_of(&killed.op()).unwrap(), "name": "0", "task": killed.task},
            "tool": {"name": "work"}, "verdict": {"effect": "allow"},
        });
        let body = CanonicalJson::encode(&body).unwrap();
        let draft = EntryDraft { kind: EntryKind::Intent, at_ms: START_MS, body, payloads: vec![payload] };
        assert!(second.append_blocking(draft).unwrap().lane > first.head().lane);
        killed
    }

    fn op(&self) -> Op {
        work(json!({"text": "write"}))
    }

    fn ledger(&self) -> Ledger {
        let folder = self.place.folder.path();
        let key = LedgerKey::load_or_create(&folder.join("key")).unwrap();
        Ledger::open(&folder.join("audit"), key, Options::default()).unwrap()
    }

    fn write(&self, content: &str) {
        std::fs::write(self.place.folder.path().join("file"), content).unwrap();
    }

    async fn boot(&self, policy: &str, session: &str) -> ProjectFixture {
        let world = ProjectFixture::boot(policy, self.place.clone(), (session, "ada"), self.ledger()).await;
        world.kernel.adopt(std::slice::from_ref(&self.task)).await.unwrap();
        world
    }

    async fn resume(&self, world: &ProjectFixture) -> Reply {
        let caller = world.kernel.operator().at_step(&self.task, "0").unwrap();
        world.kernel.syscall(&caller, self.op()).await.unwrap()
    }
}

#[tokio::test]
async fn a_call_that_took_effect_gets_its_outcome_and_is_never_checked_again() {
    let killed = Killed::new(Some("old"), "new");
    killed.write("new");
    // What happened was judged when it began: a policy that says no now doesn't undo it.
    let policy = "version: 1\nmode: permissive\nrules:\n  - { id: no-work, effect: deny, match: { tool: work }, reason: no }\n";
    let world = killed.boot(policy, "two").await;
    assert!(world.kernel.in_doubt().is_empty() && world.questions().is_empty());
    let Reply::Done(outcome) = killed.resume(&world).await else { panic!("not done") };
    assert_eq!(outcome.status, Status::Ok);
    assert_eq!(outcome.obtained, Some(json!({"recovered": true, "sha256": digest("new")})));
    let output: serde_json::Value = serde_json::from_slice(outcome.output.bytes()).unwrap();
    assert_eq!(output, json!({"path": "file", "recovered": true}));
    assert_ne!(outcome.intent.lane, outcome.receipt.lane);
    drop(world);

    killed.write("changed since");
    let later = killed.boot(OPEN, "three").await;
    let Reply::Done(again) = killed.resume(&later).await else { panic!("not done") };
    assert_eq!((again.receipt.hash, later.runs()), (outcome.receipt.hash, 0));
    assert!(later.questions().is_empty());
}

#[tokio::test]
async fn a_call_that_did_not_take_effect_is_judged_and_made_once() {
    let killed = Killed::new(None, "new");
    let world = killed.boot(OPEN, "two").await;
    for _ in 0..2 {
        assert!(matches!(killed.resume(&world).await, Reply::Done(_)));
    }
    assert_eq!((world.runs(), world.questions().len()), (1, 0));
    drop(world);
    let killed = Killed::new(None, "new");
    let policy = "version: 1\nmode: permissive\nrules:\n  - { id: no-work, effect: deny, match: { tool: work }, reason: no }\n";
    let world = killed.boot(policy, "two").await;
    assert!(matches!(killed.resume(&world).await, Reply::Denied(_)), "a fresh judgement");
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn a_person_is_asked_where_the_file_or_the_evidence_tells_nothing() {
    for erase in [false, true] {
        let killed = Killed::new(Some("old"), "new");
        killed.write(if erase { "new" } else { "neither" });
        if erase {
            killed.ledger().erase(&killed.evidence, "test", START_MS).unwrap();
        }
        let world = killed.boot(OPEN, "two").await;
        assert_eq!((world.kernel.in_doubt().len(), world.questions().len()), (1, 1), "{erase}");
        assert!(matches!(killed.resume(&world).await, Reply::Pending(_)), "{erase}");
        assert_eq!(world.runs(), 0);
    }
}

#[test]
fn nothing_to_act_on_is_no_effect_that_happened() {
    let path = |name: &str, access| (name.to_owned(), access);
    let pair = |from| [path("from", from), path("to", Access::Write)];
    let there = Some(digest("x"));
    let cases = [
        (pair(Access::Delete), [there, None], Some(vec![None, there])),
        (pair(Access::Read), [there, None], Some(vec![there, there])),
        (pair(Access::Delete), [None, None], None),
        (pair(Access::Read), [None, there], None),
    ];
    for (paths, before, after) in cases {
        assert_eq!(relocated(&paths, &before), after, "{paths:?} {before:?}");
    }
    assert_eq!(relocated(&[path("gone", Access::Delete)], &[None]), None);
}
