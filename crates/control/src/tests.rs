//! The control socket serves only its user, whatever is sent to it.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use proptest::strategy::Strategy as _;
use regent_kernel::{ApprovalAnswer, Scope};
use regent_testkit::{Behaviour, Marks, TestKernel, run};
use regent_wire::{OpenQuestion, Status};
use serde_json::{Value, json};

use super::*;

/// Everything is allowed.
const OPEN: &str = "version: 1\nmode: permissive\n";
/// Everything is allowed but work, about which one person is asked.
const ASK: &str =
    "version: 1\nmode: permissive\nrules:\n  - { id: ask-work, effect: ask, match: { tool: work } }\n";
/// Nothing but starting an agent, which the test kernel does.
const CLOSED: &str = "version: 1\nrules:\n  - { id: spawn, effect: allow, match: { op: agent.spawn } }\n";

struct ControlFixture {
    kernel: regent_kernel::Host,
    marks: Arc<Marks>,
    _whole: TestKernel,
}

impl ControlFixture {
    async fn new(policy: &str) -> Self {
        let marks = Arc::new(Marks::default());
        let builder = TestKernel::builder().policy(policy).tool("work", Behaviour::Mark(marks.clone()));
        let whole = builder.boot().await.unwrap();
        Self { kernel: whole.kernel.clone(), marks, _whole: whole }
    }

    fn served(&self) -> crate::Served {
        let (kernel, authenticator) = (self.kernel.kernel(), self.kernel.authenticator());
        crate::Served { kernel, authenticator, workspace: self.kernel.workspace().root().to_owned() }
    }

    /// How often the tool has run.
    fn runs(&self) -> usize {
        self.marks.all().len()
    }
}

struct Served {
    world: ControlFixture,
    folder: PathBuf,
    listening: Listening,
    _home: tempfile::TempDir,
}

async fn served(policy: &str) -> Served {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("regent");
    let world = ControlFixture::new(policy).await;
    let listening = listen(world.served(), &folder).await.unwrap();
    Served { world, folder, listening, _home: home }
}

/// Speaks to the socket as a program of another hand would: bytes in, lines out.
async fn say(path: &Path, bytes: impl Into<Vec<u8>>) -> Vec<Value> {
    let (path, bytes) = (path.to_owned(), bytes.into());
    let said = tokio::task::spawn_blocking(move || {
        let mut stream = UnixStream::connect(path).unwrap();
        // The kernel may close before it has read all of it, which is its right.
        drop(stream.write_all(&bytes));
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        answer
    });
    let lines = said.await.unwrap();
    lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

async fn still_serves(served: &Served) {
    let answers = say(served.listening.path(), "{\"v\":1,\"id\":9,\"hello\":{}}\n").await;
    assert_eq!(answers[0]["hello"]["session"], "test");
}

#[tokio::test]
async fn another_terminal_lists_asks_and_approves() {
    let served = served(ASK).await;
    let peers = processes(&served.folder).await.unwrap().peers;
    assert_eq!(peers.len(), 1);
    let hello = peers[0].hello();
    assert_eq!((hello.pid, hello.session.as_str()), (std::process::id(), "test"));
    assert_eq!(hello.workspace, served.world.kernel.workspace().root());

    let Reply::Pending(ticket) = peers[0].call(run("work", json!({"id": 1}))).await.unwrap() else {
        panic!()
    };
    let Reply::Done(list) = peers[0].call(Op::Questions).await.unwrap() else { panic!() };
    let list: Vec<OpenQuestion> = list.read().unwrap();
    assert_eq!(list[0].id, ticket.id);
    assert_eq!(ticket.question.as_deref().map(|question| &question.id), Some(&ticket.id));
    let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 60_000 };
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let answered = peers[0].call(Op::Answer { ticket: ticket.id, with: Vec::new(), answer }).await.unwrap();
    assert!(matches!(answered, Reply::Done(_)));
    let done = peers[0].call(run("work", json!({"id": 1}))).await.unwrap();
    assert!(matches!(done, Reply::Done(outcome) if outcome.status == Status::Ok));
    assert_eq!(served.world.runs(), 1);
}

#[tokio::test]
async fn what_comes_in_is_judged_and_recorded_like_anything_else() {
    let served = served(CLOSED).await;
    let before = served.world.kernel.ledger().head().size;
    let peers = processes(&served.folder).await.unwrap().peers;
    let Reply::Denied(denial) = peers[0].call(Op::Questions).await.unwrap() else { panic!() };
    assert_eq!(denial.reason.code, "policy.no_rule");
    assert!(served.world.kernel.ledger().head().size > before);
}

#[tokio::test]
async fn adv_073_the_socket_is_for_its_owner_alone() {
    let served = served(OPEN).await;
    let (socket, folder) =
        (std::fs::metadata(served.listening.path()).unwrap(), std::fs::metadata(&served.folder).unwrap());
    assert!(socket.file_type().is_socket());
    assert_eq!((socket.mode() & 0o777, folder.mode() & 0o777), (0o600, 0o700));
    let name = served.listening.path().file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.starts_with(&std::process::id().to_string()) && name.ends_with(".sock"), "{name}");
    for (peer, own, ours) in [(1000, 1000, true), (1001, 1000, false), (0, 1000, false), (1000, 0, false)] {
        assert_eq!(server::is_ours(peer, own), ours, "{peer} to {own}");
    }
}

/// Needs root to become another user. Without root the modes and the comparison above are what can be tested.
#[tokio::test]
async fn adv_073_another_user_who_reaches_the_socket_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let served = served(OPEN).await;
    // As if the modes had failed: everyone can reach it.
    let home = served.folder.parent().unwrap();
    for (path, mode) in [(home, 0o755), (&served.folder, 0o755), (served.listening.path(), 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let before = served.world.kernel.ledger().head().size;
    let path = served.listening.path().to_owned();
    let answer = tokio::task::spawn_blocking(move || {
        // Only this thread becomes another user, and it ends here.
        std::thread::spawn(move || {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            let mut stream = UnixStream::connect(path).unwrap();
            drop(stream.write_all(b"{\"v\":1,\"id\":1,\"op\":{\"op\":\"questions\"}}\n"));
            let mut answer = String::new();
            drop(stream.read_to_string(&mut answer));
            answer
        })
        .join()
        .unwrap()
    });
    let answer = answer.await.unwrap();
    assert!(answer.contains("control.forbidden") && !answer.contains("reply"), "{answer}");
    assert_eq!(served.world.kernel.ledger().head().size, before, "nothing was even judged");
    // And we don't speak to a socket in a folder that others can use.
    assert!(matches!(processes(&served.folder).await, Err(ControlError::Folder { .. })));
}

#[tokio::test]
async fn adv_073_a_folder_that_others_could_use_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let world = ControlFixture::new(OPEN).await;
    let (open, link, file) = (home.path().join("open"), home.path().join("link"), home.path().join("file"));
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(home.path().join("real")).unwrap();
    symlink(home.path().join("real"), &link).unwrap();
    std::fs::write(&file, "").unwrap();
    for folder in [&open, &link, &file, &home.path().join("no/such/parent")] {
        let refused = listen(world.served(), folder).await;
        assert!(matches!(refused, Err(ControlError::Folder { .. })), "{folder:?}");
    }
}

#[tokio::test]
async fn adv_001_no_input_does_more_than_get_an_error() {
    let served = served(OPEN).await;
    let deep = |open: &str, count: usize| format!("{{\"v\":1,\"id\":1,\"op\":{}}}\n", open.repeat(count));
    let nested = "{\"op\":\"check_policy\",\"args\":{\"op\":".repeat(5_000);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (deep("[", 100_000).into(), "control.malformed"),
        (deep("{\"a\":", 100_000).into(), "control.malformed"),
        (format!("{{\"v\":1,\"id\":1,\"op\":{nested}\n").into(), "control.malformed"),
        (vec![b'['; 10 << 20], "control.too_large"),
        (b"\xff\xfe\n".to_vec(), "control.malformed"),
        (b"\n".to_vec(), "control.malformed"),
        (b"null\n".to_vec(), "control.malformed"),
        (b"{\"v\":1,\"id\":1}\n".to_vec(), "control.malformed"),
        (b"{\"v\":1,\"id\":1,\"hello\":{},\"op\":{\"op\":\"questions\"}}\n".to_vec(), "control.malformed"),
        (b"{\"v\":2,\"id\":1,\"hello\":{}}\n".to_vec(), "control.version"),
        (b"{\"v\":1,\"id\":-1,\"hello\":{}}\n".to_vec(), "control.malformed"),
        (b"{\"v\":1,\"id\":1,\"hello\":{},\"admin\":true}\n".to_vec(), "control.malformed"),
        (b"{\"v\":1,\"id\":1,\"op\":{\"op\":\"reboot\"}}\n".to_vec(), "control.malformed"),
        // Case 2: what two readers could understand differently.
        (b"{\"v\":1,\"id\":1,\"id\":2,\"hello\":{}}\n".to_vec(), "control.malformed"),
        (b"{\"v\":1,\"id\":1,\"op\":{\"op\":\"run_tool\",\"args\":{\"tool\":\"work\",\"args\":{\"text\":\"a\",\"text\":\"b\"}}}}\n".to_vec(), "control.malformed"),
        (b"{\"v\":1,\"id\":1,\"op\":{\"op\":\"run_tool\",\"args\":{\"tool\":\"work\",\"args\":{\"text\":\"\\ud800\"}}}}\n".to_vec(), "control.malformed"),
        (b"{\"v\":1,\"id\":1e999,\"hello\":{}}\n".to_vec(), "control.malformed"),
    ];
    for (bytes, code) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        let answers = say(served.listening.path(), bytes).await;
        assert_eq!(answers.first().map(|answer| &answer["error"]["code"]), Some(&json!(code)), "{shown}");
    }
    assert!(
        say(served.listening.path(), "{\"v\":1,\"id\":1,\"hello\":{}}").await.is_empty(),
        "a line without its end is no line"
    );
    still_serves(&served).await;
    assert_eq!(served.world.runs(), 0);
}

#[tokio::test]
async fn one_connection_asks_many_things_in_order() {
    let served = served(OPEN).await;
    let lines: String = (0..20).map(|id| format!("{{\"v\":1,\"id\":{id},\"hello\":{{}}}}\r\n")).collect();
    let answers = say(served.listening.path(), lines).await;
    assert_eq!(
        answers.iter().map(|answer| answer["id"].as_u64().unwrap()).collect::<Vec<_>>(),
        (0..20).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn adv_083_more_connections_than_there_are_places_are_turned_away() {
    let served = served(OPEN).await;
    let path = served.listening.path().to_owned();
    let (mut silent, turned_away) = tokio::task::spawn_blocking(move || {
        let mut silent = Vec::new();
        for _ in 0..32 {
            let mut stream = UnixStream::connect(&path).unwrap();
            // Answered, so it has its place.
            stream.write_all(b"{\"v\":1,\"id\":1,\"hello\":{}}\n").unwrap();
            stream.read_exact(&mut [0; 1]).unwrap();
            silent.push(stream);
        }
        let mut answer = String::new();
        UnixStream::connect(&path).unwrap().read_to_string(&mut answer).unwrap();
        (silent, answer)
    })
    .await
    .unwrap();
    assert!(turned_away.contains("control.busy"), "{turned_away}");
    silent.clear();
    while say(served.listening.path(), "{\"v\":1,\"id\":1,\"hello\":{}}\n").await[0].get("hello").is_none() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn sockets_of_the_dead_are_swept_and_the_living_stay() {
    let served = served(OPEN).await;
    let (dead, other) = (served.folder.join("1.sock"), served.folder.join("notes.txt"));
    drop(UnixListener::bind(&dead).unwrap());
    std::fs::write(&other, "not ours").unwrap();
    assert_eq!(processes(&served.folder).await.unwrap().peers.len(), 1, "a dead one hides no living one");
    let second = listen(served.world.served(), &served.folder).await.unwrap();
    assert!(!dead.exists() && other.exists() && served.listening.path().exists());
    assert_eq!(processes(&served.folder).await.unwrap().peers.len(), 2);
    let path = second.path().to_owned();
    drop(second);
    assert!(!path.exists());
    assert_eq!(processes(&served.folder).await.unwrap().peers.len(), 1);
    assert!(processes(&served.folder.join("nowhere")).await.unwrap().peers.is_empty());
}

#[tokio::test]
async fn a_kernel_that_says_nothing_is_named_and_hides_no_other() {
    let served = served(OPEN).await;
    let stopped = UnixListener::bind(served.folder.join("4242.sock")).unwrap();
    let found = processes(&served.folder).await.unwrap();
    assert_eq!((found.peers.len(), found.silent), (1, vec![4242]));
    drop(stopped);
    assert!(processes(&served.folder).await.unwrap().silent.is_empty());
}

proptest::proptest! {
    #[test]
    fn adv_001_no_line_is_more_than_a_request_or_an_error(
        line in proptest::prop_oneof![
            proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            "\\{\"v\":[0-9]{1,2},\"id\":[0-9]{1,3},\"(op|hello)\":[\\[\\]{}\",:a-z0-9]{0,40}\\}".prop_map(String::into_bytes),
        ],
    ) {
        if let Ok(request) = server::request_of(&line) {
            proptest::prop_assert!(serde_json::to_vec(&request).is_ok());
        }
    }
}
