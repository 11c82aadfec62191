//! Who calls: people with names and roles, tokens, and programs that come with one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::running::{interrupt, until};
use crate::world::{CliFixture, CliOutput};

const TWO: &str = "version: 1\nrules:\n  - { id: all, effect: allow }\n  - { id: two, effect: ask, match: { tool: fs.list }, approvers: 2 }\n";
const ALL: &str = "version: 1\nrules:\n  - { id: all, effect: allow }\n";

/// A project in which this is the policy.
fn with_policy(policy: &str) -> CliFixture {
    let world = CliFixture::ready();
    std::fs::write(world.home(".config/regent/policy.yml"), policy).unwrap();
    std::fs::write(world.project(".regent/policy.yml"), ALL).unwrap();
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    world
}

/// Creates a token in a file, and gives its id.
fn token(world: &CliFixture, name: &str, subject: &[&str]) -> String {
    let file = file(world, name);
    let args = [&["--json", "token", "create", "--out", &file], subject].concat();
    let ended = world.run(&args);
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.json().pointer("/data/token/id").and_then(Value::as_str).unwrap().to_owned()
}

fn person(world: &CliFixture, name: &str, role: &str) -> String {
    token(world, name, &["--person", name, "--role", role])
}

fn file(world: &CliFixture, name: &str) -> String {
    world.home(&format!("{name}.token")).to_str().unwrap().to_owned()
}

fn run_as(world: &CliFixture, name: &str, args: &[&str]) -> CliOutput {
    let file = file(world, name);
    world.run(&[&["--json", "--token-file", &file], args].concat())
}

fn text(world: &CliFixture, name: &str) -> String {
    std::fs::read_to_string(world.home(&format!("{name}.token"))).unwrap().trim_end().to_owned()
}

fn list(world: &CliFixture) -> Value {
    world.run(&["--json", "token", "list"]).json()["data"]["tokens"].clone()
}

#[test]
fn the_user_at_the_terminal_is_an_admin_by_their_own_name() {
    let world = CliFixture::ready();
    let told = world.run(&["--json", "whoami"]);
    assert_eq!(told.code, 0, "{told:?}");
    let data = &told.json()["data"];
    assert_eq!((&data["role"], &data["class"]), (&json!("admin"), &json!("operator")));
    assert_ne!(data["name"], "operator");
    assert!(data["authenticated"].as_str().unwrap().starts_with("uid "), "{data}");
    assert!(world.run(&["whoami"]).stdout.contains("(admin), authenticated by uid"));
    let recorded = world.entries().into_iter().any(|entry| entry["body"]["op"] == "auth.whoami");
    assert!(recorded, "it is a call like any other");
}

#[test]
fn a_token_lives_as_its_commands_say() {
    let world = CliFixture::ready();
    assert!(world.run(&["token", "list"]).stdout.contains("no tokens"));
    let printed = world.run(&["token", "create", "--person", "bob", "--role", "viewer", "--expires", "1h"]);
    let secret = printed.stdout.trim_end();
    assert!(printed.code == 0 && secret.starts_with("rgt_") && secret.len() == 85, "{printed:?}");
    assert!(printed.stderr.contains("this once") && !printed.stderr.contains(secret), "{printed:?}");
    // From a file, from stdin and from a descriptor.
    std::fs::write(world.home("bob.token"), format!("{secret}\n")).unwrap();
    std::fs::set_permissions(world.home("bob.token"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let told = run_as(&world, "bob", &["whoami"]).json();
    assert_eq!((&told["data"]["name"], &told["data"]["role"]), (&json!("bob"), &json!("viewer")));
    let stdin = world.run_with(&["--json", "--token-file", "-", "whoami"], &[], secret.as_bytes());
    assert_eq!(stdin.json()["data"]["name"], "bob");
    let fd = world.run_with(&["--json", "--token-fd", "0", "whoami"], &[], secret.as_bytes());
    assert_eq!(fd.json()["data"]["name"], "bob");
    let env = world.run_with(&["--json", "whoami"], &[("REGENT_TOKEN_FILE", &file(&world, "bob"))], b"");
    assert_eq!(env.json()["data"]["name"], "bob");

    let listed = list(&world);
    assert_eq!((&listed[0]["subject"]["name"], &listed[0]["state"]), (&json!("bob"), &json!("active")));
    assert!(listed[0]["last_used_at_ms"].is_i64() && !listed.to_string().contains("sha256"), "{listed}");
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    // Its holder can replace it by a new one.
    let rotated = run_as(&world, "bob", &["token", "rotate", "--out", &file(&world, "bob2")]);
    assert_eq!(rotated.code, 0, "{rotated:?}");
    let old = run_as(&world, "bob", &["whoami"]);
    assert_eq!((old.code, old.error_code().as_str()), (4, "auth.invalid"));
    assert_eq!(run_as(&world, "bob2", &["whoami"]).code, 0);
    assert_eq!(world.run(&["token", "revoke", &id[..6]]).code, 0);
    let revoked = run_as(&world, "bob2", &["whoami"]);
    assert_eq!((revoked.code, revoked.error_code().as_str()), (4, "auth.invalid"));
    for args in [
        ["token", "revoke", &id[..6]],
        ["token", "rotate", &id[..6]],
        ["token", "revoke", "ffff"],
        ["token", "revoke", "f"],
    ] {
        let ended = world.run(&[&["--json"], &args[..]].concat());
        assert_eq!((ended.code, ended.error_code().as_str()), (5, "token.unknown"), "{args:?}");
    }
    assert!(world.run(&["token", "list"]).stdout.contains("revoked"));
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn mistakes_of_the_command_line_create_nothing() {
    let world = CliFixture::ready();
    let out = file(&world, "x");
    let cases: [(&[&str], i32); 8] = [
        (&["--role", "admin"], 2),
        (&["--person", "bob"], 2),
        (&["--person", "bob", "--role", "root"], 2),
        (&["--person", "bob", "--role", "viewer", "--service", "ci"], 2),
        (&["--person", "a b", "--role", "viewer"], 2),
        (&["--person", "operator", "--role", "viewer"], 2),
        (&["--service", "ci", "--expires", "soon"], 2),
        (&["--agent", "nobody-1234"], 5),
    ];
    for (args, code) in cases {
        let ended = world.run(&[&["--json", "token", "create", "--out", &out], args].concat());
        assert_eq!(ended.code, code, "{args:?}: {ended:?}");
        assert!(!Path::new(&out).exists(), "{args:?}");
    }
    std::fs::write(&out, "mine").unwrap();
    assert_ne!(world.run(&["token", "create", "--service", "ci", "--out", &out]).code, 0);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "mine", "no file is overwritten");
    assert_eq!(list(&world), json!([]));
}

#[test]
fn a_token_that_is_not_whole_or_lies_open_lets_nobody_in() {
    let world = CliFixture::ready();
    person(&world, "bob", "admin");
    person(&world, "eve", "viewer");
    let (bob, eve) = (text(&world, "bob"), text(&world, "eve"));
    let (head, _) = eve.rsplit_once('_').unwrap();
    let (_, secret) = bob.rsplit_once('_').unwrap();
    let wrong = [
        "",
        "rgt_",
        &bob[..bob.len() - 1],
        &format!("{bob}0"),
        &format!("{head}_{secret}"),
        &"x".repeat(4096),
        "\u{0}\u{0}",
    ];
    for token in wrong {
        let ended = world.run_with(&["--json", "--token-file", "-", "whoami"], &[], token.as_bytes());
        assert_eq!((ended.code, ended.error_code().as_str()), (4, "auth.invalid"), "{token:?}");
        assert!(token.len() < 20 || !format!("{ended:?}").contains(token), "it isn't repeated: {ended:?}");
    }
    std::fs::set_permissions(world.home("bob.token"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = run_as(&world, "bob", &["whoami"]);
    assert_eq!((open.code, open.error_code().as_str()), (4, "auth.file"), "{open:?}");
    assert_ne!(run_as(&world, "nobody", &["whoami"]).code, 0);
    // What works on the user's own files isn't done in anybody else's name.
    let vault = run_as(&world, "eve", &["vault", "list"]);
    assert_eq!((vault.code, vault.error_code().as_str()), (2, "usage"), "{vault:?}");
}

#[test]
fn roles_hold_on_the_command_line_too() {
    let world = with_policy(TWO);
    for role in ["viewer", "operator", "approver", "admin"] {
        token(&world, role, &["--person", &format!("a-{role}"), "--role", role]);
    }
    let tool = ["tool", "call", "fs.stat", r#"{"path": "."}"#];
    for (role, run, budget, create) in
        [("viewer", 10, 10, 10), ("operator", 0, 10, 10), ("approver", 10, 10, 10), ("admin", 0, 0, 0)]
    {
        assert_eq!(run_as(&world, role, &tool).code, run, "{role}");
        assert_eq!(
            run_as(&world, role, &["budget", "set", "project", "calls=100000"]).code,
            budget,
            "{role}"
        );
        let token = ["token", "create", "--person", "mallory", "--role", "admin"];
        let created = run_as(&world, role, &token);
        assert_eq!(created.code, create, "{role}: {created:?}");
        assert_eq!(
            run_as(&world, role, &["approve", "list"]).code,
            0,
            "everybody sees the questions: {role}"
        );
    }
    let denied = run_as(&world, "viewer", &tool);
    assert_eq!(denied.error_code(), "auth.role");
    assert!(denied.stdout.contains("operator or admin"), "{denied:?}");
}

#[test]
fn a_question_for_two_is_approved_by_two_people_and_not_by_one_twice() {
    let world = with_policy(TWO);
    for (name, role) in [("alice", "approver"), ("bob", "approver"), ("carl", "operator")] {
        person(&world, name, role);
    }
    // A second token for the same person.
    token(&world, "alice2", &["--person", "alice", "--role", "admin"]);
    let call = ["--json", "tool", "call", "fs.list", r#"{"path": "."}"#];
    let asked = world.run(&call);
    assert_eq!(asked.code, 11, "{asked:?}");
    let id = asked.json().pointer("/data/question").and_then(Value::as_str).unwrap().to_owned();
    let operator = run_as(&world, "carl", &["approve", &id]);
    assert_eq!((operator.code, operator.error_code().as_str()), (10, "auth.role"), "{operator:?}");
    for again in ["alice", "alice", "alice2"] {
        let waiting = run_as(&world, again, &["approve", &id]);
        assert_eq!((waiting.code, waiting.error_code().as_str()), (11, "approval.waiting"), "{waiting:?}");
        assert!(waiting.stdout.contains("waiting, 1 of 2"), "{waiting:?}");
    }
    assert_eq!(world.run(&call).code, 11, "one person is not two");
    for look in [vec!["approve", "list"], vec!["approve", "show", &id]] {
        let shown = world.run(&look).stdout;
        assert!(shown.contains("alice") && !shown.contains("by operator"), "{look:?}: {shown}");
    }
    let bob = file(&world, "bob");
    let approved = world.run(&["--token-file", &bob, "approve", &id]);
    assert!(approved.code == 0 && approved.stdout.contains("as bob"), "{approved:?}");
    assert_eq!(world.run(&call).code, 0);
    let entries = world.entries();
    let by = entries.iter().rev().find_map(|entry| entry.pointer("/body/approved/by").cloned());
    assert_eq!(by, Some(json!(["alice", "bob"])), "the call's own intent names them");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

/// Every file below a folder, with what it holds.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&path, found);
        } else if kind.is_file() {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn a_token_is_in_no_file_log_environment_or_command_line() {
    let world = with_policy(ALL);
    person(&world, "bob", "admin");
    let secret = text(&world, "bob");
    assert_eq!(run_as(&world, "bob", &["tool", "call", "fs.list", r#"{"path": "."}"#]).code, 0);
    let bob = file(&world, "bob");
    let script = "cat /proc/self/environ /proc/self/cmdline > seen; tr '\\0' ' ' < /proc/self/environ; echo up > up; sleep 60";
    let mut child =
        world.start(&["--token-file", &bob, "run", "--agent", "worker", "--", "sh", "-c", script]);
    until("the program runs", || world.project("up").exists().then_some(()));
    let own = format!("/proc/{}", child.id());
    for part in ["cmdline", "environ"] {
        match std::fs::read(format!("{own}/{part}")) {
            Ok(held) => assert!(!contains(&held, &secret), "{part}"),
            // Regent clears its dumpable flag, so another process of the same user can't open its environment.
            Err(error) => {
                assert_eq!((part, error.kind()), ("environ", std::io::ErrorKind::PermissionDenied));
            }
        }
    }
    let seen = std::fs::read(world.project("seen")).unwrap();
    assert!(!seen.is_empty() && !contains(&seen, &secret), "the program's own environment and command line");
    let agents = run_as(&world, "bob", &["agent", "ps"]);
    let ps = agents.json();
    assert_eq!(ps.pointer("/data/agents/0/agent/sponsor"), Some(&json!("bob")), "{ps}");
    interrupt(&child);
    child.wait().unwrap();
    let mut found = Vec::new();
    files(&world.home(""), &mut found);
    let part = secret.rsplit_once('_').unwrap().1;
    let holders: Vec<&String> =
        found.iter().filter(|(_, held)| contains(held, part)).map(|(path, _)| path).collect();
    assert_eq!(holders, [&bob], "only its own file has it");
    assert!(found.iter().any(|(path, _)| path.contains("/audit/")), "the ledger was looked at");
}

fn contains(held: &[u8], text: &str) -> bool {
    held.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_viewer_does_not_signal_and_an_agents_token_is_that_agent() {
    let world = with_policy(ALL);
    person(&world, "eve", "viewer");
    let script = "echo up > up; sleep 60";
    let mut child = world.start(&["run", "--agent", "sleeper", "--", "sh", "-c", script]);
    until("the program runs", || world.project("up").exists().then_some(()));
    let seen = run_as(&world, "eve", &["agent", "ps"]).json();
    let id = seen.pointer("/data/agents/0/agent/agent").and_then(Value::as_str).unwrap().to_owned();
    let signal = run_as(&world, "eve", &["agent", "signal", &id, "KILL"]);
    assert_eq!((signal.code, signal.error_code().as_str()), (10, "auth.role"), "{signal:?}");

    token(&world, "sleeper", &["--agent", &id]);
    // On the control socket the token is the agent: it reads its own signals, which no person can, and it can't approve.
    let socket = std::fs::read_dir(world.home("run/regent")).unwrap().flatten();
    let socket =
        socket.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "sock"));
    let say = |op: Value, token: &str| {
        let mut stream = UnixStream::connect(socket.as_ref().unwrap()).unwrap();
        writeln!(stream, "{}", json!({"v": 1, "id": 1, "op": op, "token": token})).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let secret = text(&world, "sleeper");
    let pending = say(json!({"op": "sigpending"}), &secret);
    assert!(pending.pointer("/reply/done").is_some(), "{pending}");
    let who = say(json!({"op": "whoami"}), &secret);
    assert!(who.to_string().contains(&id), "{who}");
    let approve =
        json!({"op": "answer", "args": {"ticket": "x", "answer": {"say": "deny", "because": null}}});
    assert_eq!(say(approve, &secret).pointer("/reply/denied/code"), Some(&json!("approval.not_a_person")));
    assert_eq!(
        say(json!({"op": "agents"}), "rgt_nonsense").pointer("/error/code"),
        Some(&json!("auth.invalid"))
    );
    assert_eq!(
        say(json!({"op": "agents"}), &secret[..84]).pointer("/error/code"),
        Some(&json!("auth.invalid"))
    );
    // The program in the sandbox doesn't see the socket; from here the agent ends itself.
    let exit = say(json!({"op": "exit", "args": {"code": 0}}), &secret);
    assert!(exit.pointer("/reply/done").is_some(), "{exit}");
    interrupt(&child);
    child.wait().unwrap();
}

#[test]
fn an_agent_s_files_signals_and_policy_are_reached_from_another_terminal() {
    let world = CliFixture::ready();
    let script = "echo up > up; sleep 60";
    let mut child = world.start(&["run", "--agent", "sleeper", "--", "sh", "-c", script]);
    until("the program runs", || world.project("up").exists().then_some(()));
    let listed = world.run(&["--json", "agent", "ps"]).json();
    let id = listed.pointer("/data/agents/0/agent/agent").and_then(Value::as_str).unwrap().to_owned();
    assert_eq!(listed.pointer("/data/agents/0/agent/priority"), Some(&json!("normal")));

    token(&world, "sleeper", &["--agent", &id]);
    let socket = std::fs::read_dir(world.home("run/regent")).unwrap().flatten();
    let socket =
        socket.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "sock"));
    let secret = text(&world, "sleeper");
    let say = |op: Value| {
        let mut stream = UnixStream::connect(socket.as_ref().unwrap()).unwrap();
        writeln!(stream, "{}", json!({"v": 1, "id": 1, "op": op, "token": secret})).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        let reply: Value = serde_json::from_str(&line).unwrap();
        let output = reply.pointer("/reply/done/output/text").and_then(Value::as_str);
        serde_json::from_str::<Value>(output.unwrap_or_else(|| panic!("{reply}"))).unwrap()
    };
    // As docs/callers.md has it: TERM and USR1 are the program's own now.
    say(json!({"op": "sigaction", "args": {"signal": "TERM", "disposition": "handle"}}));
    say(json!({"op": "sigprocmask", "args": {"change": {"block": ["USR1"]}}}));
    for (signal, delivered) in [("TERM", "for_agent"), ("USR1", "held")] {
        let sent = world.run(&["--json", "agent", "signal", &id, signal]).json();
        assert_eq!(sent.pointer("/data/delivered/to/0/delivered"), Some(&json!(delivered)), "{sent}");
    }
    assert_eq!(say(json!({"op": "sigpending"}))["signals"], json!(["TERM"]));
    let note = json!({"region": "semantic", "key": "plan", "content": "water\n"});
    say(json!({"op": "remember", "args": note}));

    let cases = [
        (&["agent", "fs", "ls", &id][..], "audit\nipc\nmem\npolicy\nstate\ntools\n"),
        (&["agent", "fs", "ls", &id, "mem/semantic"], "plan\n"),
        (&["agent", "fs", "cat", &id, "mem/semantic/plan"], "water\n"),
        (&["agent", "fs", "stat", &id, "/self/mem"], "folder, 0 bytes"),
        (&["agent", "fs", "stat", &id, "mem/semantic/plan"], "file, 6 bytes"),
        (&["agent", "declassify", &id, "eve@e.test"], "trusted in the request of"),
    ];
    for (args, expected) in cases {
        let ended = world.run(args);
        assert!(ended.code == 0 && ended.stdout.contains(expected), "{args:?}: {ended:?}");
    }
    let missing = world.run(&["--json", "agent", "fs", "cat", &id, "mem/semantic/none"]);
    assert_eq!(missing.error_code(), "vfs.not_found");
    let told = world.run(&["--json", "policy", "get"]).json();
    let digest = told.pointer("/data/kernels/0/policy/digest").and_then(Value::as_str).unwrap();
    assert!(world.run(&["policy", "get"]).stdout.contains(digest), "{told}");
    let shown = world.run(&["agent", "fs", "cat", &id, "policy/digest"]);
    assert_eq!(shown.stdout.trim_end(), digest, "the agent sees the policy that decides");
    // One slip away from it.
    let slip = format!("{}x", &id[..id.len() - 1]);
    let unknown = world.run(&["agent", "signal", &slip, "TERM"]);
    assert!(unknown.stderr.contains(&format!("did you mean `{id}`?")), "{unknown:?}");
    assert_eq!(world.run(&["agent", "signal", &id, "KILL"]).code, 0);
    child.wait().unwrap();
}

#[test]
fn a_token_is_not_written_into_a_project() {
    let world = CliFixture::ready();
    std::fs::create_dir_all(world.project("sub")).unwrap();
    std::os::unix::fs::symlink(world.project("sub"), world.home("link")).unwrap();
    let linked = world.home("link/bob.token");
    for path in ["bob.token", "./sub/bob.token", linked.to_str().unwrap()] {
        let ended = world.run(&["--json", "token", "create", "--service", "ci", "--out", path]);
        assert_eq!((ended.code, ended.error_code().as_str()), (2, "usage"), "{ended:?}");
        assert!(ended.json()["error"]["help"].as_str().unwrap().contains("--out"), "{ended:?}");
        assert!(!world.project("bob.token").exists() && !world.project("sub/bob.token").exists());
    }
    assert_eq!(list(&world), json!([]), "nothing was created");
    token(&world, "ci", &["--service", "ci"]);
    let id = list(&world)[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["token", "rotate", &id, "--out", "ci.token"]).code, 2);
    assert_eq!(run_as(&world, "ci", &["whoami"]).code, 0, "its first secret is still valid");
}

#[test]
fn a_token_in_a_file_is_masked_in_output_and_ledger() {
    let world = with_policy(ALL);
    person(&world, "bob", "approver");
    let secret = text(&world, "bob");
    world.write("notes.txt", format!("the token is {secret}\n"));
    let calls: [&[&str]; 4] = [
        &["tool", "call", "--agent", "eve", "fs.read", r#"{"path":"notes.txt"}"#],
        &["tool", "call", "--agent", "eve", "fs.search", r#"{"pattern":"rgt_","path":"."}"#],
        &["tool", "call", "--agent", "eve", "fs.copy", r#"{"from":"notes.txt","to":"copy.txt"}"#],
        &["run", "--", "cat", "notes.txt"],
    ];
    for args in calls {
        let ended = world.run(args);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(!ended.stdout.contains(&secret[22..40]), "{ended:?}");
        let prints = args.contains(&"fs.read") || args.contains(&"cat");
        assert!(!prints || ended.stdout.contains("the token is [secret:regent-token]"), "{ended:?}");
    }
    let found = world.host(&format!("grep -rqaF {} .regent \"$HOME/.local/state\"", &secret[22..]));
    assert!(!found, "neither the ledger nor the state has the secret");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

/// A host at the socket of a judge.
struct Connected {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Connected {
    fn new(path: &Path, token: &str) -> (Self, Value) {
        let writer = UnixStream::connect(path).unwrap();
        let mut new = Self { reader: BufReader::new(writer.try_clone().unwrap()), writer };
        let first = new.say(&json!({"op": "authenticate", "token": token}));
        (new, first)
    }

    fn say(&mut self, message: &Value) -> Value {
        writeln!(self.writer, "{message}").unwrap();
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or(Value::Null)
    }
}

#[test]
fn a_judge_on_a_socket_answers_each_host_in_its_own_name() {
    let world = with_policy(
        "version: 1\nrules:\n  - { id: all, effect: allow }\n  - { id: asked, effect: ask, match: { op: tool.elsewhere, tool: pay } }\n",
    );
    token(&world, "ci", &["--service", "ci"]);
    let other = token(&world, "other", &["--service", "other"]);
    person(&world, "alice", "approver");
    let path = world.home("judge.sock");
    let mut child = world.start(&["judge", "--socket", path.to_str().unwrap()]);
    until("the judge listens", || path.exists().then_some(()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for wrong in ["", "rgt_nonsense", &text(&world, "ci")[..84]] {
        assert!(Connected::new(&path, wrong).1["error"].is_string(), "{wrong:?}");
    }
    let (mut ci, first) = Connected::new(&path, &text(&world, "ci"));
    assert_eq!(first["authenticated"], json!({"class": "service", "name": "service:ci"}));
    let tools = json!({
        "read": {"schema": {"properties": {}}, "labels": {"effect": "read", "taint": "all"}},
        "pay": {"schema": {"properties": {"to": {"type": "string"}}}, "labels": {"effect": "write", "taint": "none", "sinks": ["to"]}},
    });
    let begun = ci.say(&json!({"op": "begin", "session": "s", "prompt": "pay ann@a.test", "tools": tools}));
    assert!(begun.get("error").is_none(), "{begun}");
    let call = |id: u32, tool: &str, args: Value| json!({"id": id, "tool": tool, "args": args});
    let decided = ci.say(&json!({"op": "decide", "session": "s", "call": call(1, "read", json!({}))}));
    assert_eq!(decided["decision"], "allow", "{decided}");
    let pay = call(2, "pay", json!({"to": "ann@a.test"}));
    let asked = ci.say(&json!({"op": "decide", "session": "s", "call": pay}));
    assert_eq!(asked["decision"], "ask", "{asked}");
    // A service doesn't speak for people: that it has performed the call is no approval.
    let reported = ci.say(&json!({"op": "observe", "session": "s", "call": pay, "output": {"text": "done"}}));
    assert!(reported["error"].is_string(), "{reported}");

    // Another host doesn't reach its session, and a revoked token ends at the next message.
    let (mut second, _) = Connected::new(&path, &text(&world, "other"));
    let foreign = second.say(&json!({"op": "decide", "session": "s", "call": call(3, "read", json!({}))}));
    assert_eq!(foreign["decision"], "deny", "{foreign}");
    let begun = second.say(&json!({"op": "begin", "session": "t", "prompt": "read", "tools": tools}));
    assert!(begun.get("error").is_none(), "{begun}");
    assert_eq!(world.run(&["token", "revoke", &other]).code, 0);
    let revoked = second.say(&json!({"op": "decide", "session": "t", "call": call(1, "read", json!({}))}));
    assert!(
        revoked["decision"] == "deny" && revoked["reason"].as_str().unwrap().contains("token"),
        "{revoked}"
    );

    let listed = world.run(&["--json", "agent", "ps"]).json();
    let agents = listed.pointer("/data/agents").and_then(Value::as_array).unwrap();
    let agent = agents.iter().map(|one| &one["agent"]).find(|agent| agent["name"] == "ci").unwrap();
    assert_eq!((&agent["name"], &agent["sponsor"]), (&json!("ci"), &json!("service:ci")), "{agent}");
    // A program with a token for this agent is this agent, and begins no request of its own.
    token(&world, "agent", &["--agent", agent["agent"].as_str().unwrap()]);
    let (mut itself, first) = Connected::new(&path, &text(&world, "agent"));
    assert_eq!(first["authenticated"]["class"], "agent", "{first}");
    assert!(itself.say(&json!({"op": "begin", "session": "a", "prompt": "pay eve"}))["error"].is_string());
    assert!(itself.say(&json!({"op": "begin", "session": "a"})).get("error").is_none());
    let decided = itself.say(&json!({"op": "decide", "session": "a", "call": call(1, "read", json!({}))}));
    assert_eq!(decided["decision"], "allow", "{decided}");
    drop((ci, second, itself));
    interrupt(&child);
    let ended = child.wait().unwrap();
    assert!(ended.success(), "{ended:?}");
    assert!(!path.exists(), "the socket goes with it");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}
