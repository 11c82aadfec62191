//! Folders that change between the kernel's last look at them and the tool's survey, and how failures read.

use std::path::Path;
use std::sync::Arc;

use regent_kernel::{
    ApprovalAnswer, BoxFuture, Catalogue, Executors, Foreseen, Host, ManualClock, NoSecrets, Op, Parts,
    Placement, RawOutput, Reply, Scope, Status, ToolCall, ToolSpec, Workspace,
};
use regent_ledger::{Ledger, LedgerKey};
use regent_policy::{Layer, Source, load};
use regent_store::MemoryState;
use serde_json::{Value, json};

use super::{TREE, removal_failure, tree_failure};
use crate::fs::{copy, delete, relocate};
use crate::{Context, HostTool, ToolError, tool_set};

/// Asks about `a`, and not about what is below.
const ASK: &str = "
version: 1
rules:
  - { id: all, effect: allow, match: { op: '*' } }
  - { id: ask, effect: ask, match: { tool: 'fs.*', path: a } }
";
/// An answer counts after the time that it takes to read the question.
const READ_MS: i64 = 60_000;

type Change = fn(&Path);

/// A tool in front of which something happens: the kernel has compared the folder with the approval by then.
struct Interposed {
    tool: Arc<dyn HostTool>,
    root: std::path::PathBuf,
    change: Change,
}

impl HostTool for Interposed {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn run<'s>(&'s self, permit: &'s Context<'s>) -> BoxFuture<'s, Result<RawOutput, ToolError>> {
        (self.change)(&self.root);
        self.tool.run(permit)
    }

    fn foresee(&self, args: &Value, before: Option<&[u8]>) -> Option<Foreseen> {
        self.tool.foresee(args, before)
    }
}

/// How an approved call ends if this happens right before its tool runs.
async fn ends(root: &Path, (name, args): (&str, Value), change: Change) -> Status {
    let tools: [Arc<dyn HostTool>; 3] =
        [Arc::new(copy::copy()), Arc::new(delete::delete()), Arc::new(relocate::relocate())];
    let interposed = |tool| Arc::new(Interposed { tool, root: root.to_owned(), change }) as Arc<dyn HostTool>;
    let (catalogue, clock) = (Catalogue::default(), Arc::new(ManualClock::starting_at(1_700_000_000_000)));
    catalogue.admit_own(tool_set("built-in", tools.map(interposed))).unwrap();
    let kernel = Host::boot(Parts {
        policy: load(ASK, &Source::new("test.yml", Layer::User)).unwrap(),
        ledger: Ledger::in_memory(LedgerKey::generate().unwrap()),
        executors: Executors::default(),
        catalogue,
        workspace: Workspace::open(root).unwrap(),
        state: Arc::new(MemoryState::default()),
        secrets: Arc::new(NoSecrets),
        clock: Arc::clone(&clock) as _,
        sponsor: "tester".to_owned(),
        session: "test".to_owned(),
    })
    .await
    .unwrap();
    let person = kernel.operator();
    let op = Op::RunTool(ToolCall { tool: name.to_owned(), args });
    let Reply::Pending(ticket) = kernel.syscall(&person, op.clone()).await.unwrap() else {
        panic!("`{name}` was not asked about");
    };
    clock.advance_ms(READ_MS);
    let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 60_000 };
    let answer = Op::Answer { ticket: ticket.id.clone(), with: Vec::new(), answer };
    let answered = kernel.syscall(&person, answer).await.unwrap();
    assert!(matches!(&answered, Reply::Done(outcome) if outcome.status == Status::Ok), "{answered:?}");
    match kernel.syscall(&person, op).await.unwrap() {
        Reply::Done(outcome) => outcome.status,
        other @ (Reply::Pending(_) | Reply::Denied(_)) => panic!("{other:?}"),
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn planted() -> tempfile::TempDir {
    let tmp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(tmp.path().join("a/deep")).unwrap();
    std::fs::write(tmp.path().join("a/one"), "1").unwrap();
    tmp
}

#[tokio::test]
async fn an_approved_call_changes_nothing_if_another_tree_is_there_by_then() {
    let calls = [
        ("fs.delete", json!({"path": "a", "recursive": true})),
        ("fs.move", json!({"from": "a", "to": "b", "recursive": true})),
        ("fs.copy", json!({"from": "a", "to": "b", "recursive": true})),
    ];
    let changes: [(&str, Change); 3] = [
        ("an entry was added", |root| std::fs::write(root.join("a/new"), "new").unwrap()),
        ("a file took its place", |root| {
            std::fs::rename(root.join("a"), root.join("c")).unwrap();
            std::fs::write(root.join("a"), "new").unwrap();
        }),
        ("a link took its place", |root| {
            std::fs::rename(root.join("a"), root.join("c")).unwrap();
            std::os::unix::fs::symlink("c", root.join("a")).unwrap();
        }),
    ];
    for call in calls {
        for (what, change) in changes {
            let tmp = planted();
            let Status::Failed(failure) = ends(tmp.path(), call.clone(), change).await else {
                panic!("{}: {what}: it ran", call.0);
            };
            assert_eq!(failure.code, "approval.stale", "{}: {what}", call.0);
            let expected = planted();
            change(expected.path());
            assert_eq!(names_in(tmp.path()), names_in(expected.path()), "{}: {what}", call.0);
            assert!(tmp.path().join("a").symlink_metadata().is_ok());
        }
        let tmp = planted();
        assert_eq!(ends(tmp.path(), call.clone(), |_root| {}).await, Status::Ok, "{}", call.0);
    }
}

#[test]
fn a_failure_names_what_changed_and_says_what_was_done() {
    let tmp = planted();
    let workspace = Workspace::open(tmp.path()).unwrap();
    let entries = workspace.survey("a", TREE).unwrap();
    std::fs::write(tmp.path().join("a/one"), "another").unwrap();
    let copied = workspace.copy_tree(&entries, "b", Placement::Create, TREE).unwrap_err();
    assert_eq!(tree_failure(&copied).to_string(), "`a/one` changed while the call ran; repeat the call");
    std::fs::write(tmp.path().join("a/deep/new"), "new").unwrap();
    let removal = |entries| {
        let error = workspace.remove_tree(entries).unwrap_err();
        removal_failure(&error, entries.len()).to_string()
    };
    let expected = "`a/deep` changed while the call ran; repeat the call; 1 of 3 entries are deleted";
    assert_eq!(removal(&entries), expected);
    let expected = "`a/one`: there is no such file or folder; nothing was deleted";
    assert_eq!(removal(&entries), expected);
}
