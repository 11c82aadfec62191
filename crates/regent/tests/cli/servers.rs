//! Shared state on real servers, which `cargo xtask backends` starts: what processes share, and what happens when the server dies.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{CliFixture, CliOutput, ended};

/// Writes have a rate, and reads are asked about.
const POLICY: &str = "version: 1\nmode: permissive\nrules:\n  \
    - { id: writes, effect: allow, match: { tool: fs.write }, rate: 12/hour }\n  \
    - { id: reads, effect: ask, match: { tool: fs.read } }\n";
const RATE: usize = 12;
const READ: &[&str] = &["--json", "tool", "call", "fs.read", r#"{"path": "a.txt"}"#];
const LIST: &[&str] = &["--json", "tool", "call", "fs.list", r#"{"path": "."}"#];
/// In every address; the servers don't ask for it.
const PASSWORD: &str = "hunter2";
/// How a call ends that had its effect: also where the state was gone when the kernel closed.
const HAPPENED: [i32; 3] = [0, 16, 17];

/// A server of this test alone. It ends with it.
struct Server {
    line: Vec<String>,
    /// Its user needs no password, but has one here.
    url: String,
    port: u16,
    folder: PathBuf,
    child: Child,
}

impl Server {
    /// Starts the server of this name, with one word of its command line replaced; none where nobody has prepared servers.
    fn start(name: &str, replaced: (&str, &str)) -> Option<Self> {
        let Ok(servers) = std::env::var("REGENT_TEST_SERVERS") else {
            crate::skip::skipped("servers", "`cargo xtask backends product` prepares the servers");
            return None;
        };
        let servers: Value = serde_json::from_str(&servers).unwrap();
        let server = &servers[name];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let words = server["line"].as_array().unwrap().iter().map(text);
        let line: Vec<String> =
            words.map(|word| if word == replaced.0 { replaced.1.to_owned() } else { word }).collect();
        let folder = PathBuf::from(text(&server["folder"]));
        let port = u16::try_from(server["port"].as_u64().unwrap()).unwrap();
        let child = spawn(&line, &folder);
        let user = if name == "postgres" { "regent" } else { "default" };
        let url = text(&server["url"]).replacen("//", &format!("//{user}:{PASSWORD}@"), 1);
        let server = Self { line, url, port, folder, child };
        server.wait_until_it_listens();
        Some(server)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Until the old one is quite gone, a new one ends at once.
    fn start_again(&mut self) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            self.child = spawn(&self.line, &self.folder);
            std::thread::sleep(Duration::from_millis(200));
            if self.child.try_wait().unwrap().is_none() {
                return self.wait_until_it_listens();
            }
            assert!(Instant::now() < until, "the server doesn't come back");
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a test waits for the server")]
    fn wait_until_it_listens(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < until, "the server doesn't listen");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A home whose state is on this server.
    fn machine(&self) -> CliFixture {
        let world = CliFixture::ready();
        std::fs::write(world.home(".config/regent/policy.yml"), POLICY).unwrap();
        let file = world.home("state.url");
        std::fs::write(&file, format!("{}\n", self.url)).unwrap();
        let file = file.display().to_string();
        let set = ["config", "set", "state.url_file", &file];
        let ended = run(&world, &set);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(run(&world, LIST).error_code(), "state.url", "others can read the file");
        assert!(world.host("chmod 600 ~/state.url"));
        until_ready(&world);
        world
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn spawn(line: &[String], folder: &PathBuf) -> Child {
    let (program, words) = line.split_first().unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test starts the server")]
    let mut command = Command::new(program);
    command.args(words).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn run(world: &CliFixture, args: &[&str]) -> CliOutput {
    let ended = world.run(args);
    assert!(!ended.stdout.contains(PASSWORD) && !ended.stderr.contains(PASSWORD), "{ended:?}");
    ended
}

/// A server that listens may still be starting up.
fn until_ready(world: &CliFixture) {
    let until = Instant::now() + Duration::from_secs(60);
    while run(world, LIST).code == 75 {
        assert!(Instant::now() < until, "the server doesn't answer");
    }
}

fn write_args(name: &str) -> String {
    format!(r#"{{"path": "{name}", "content": "x"}}"#)
}

fn write(world: &CliFixture, name: &str) -> CliOutput {
    run(world, &["--json", "tool", "call", "fs.write", &write_args(name)])
}

fn written(world: &CliFixture) -> usize {
    std::fs::read_dir(world.project(""))
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name() != ".regent")
        .count()
}

fn check<'a>(report: &'a Value, id: &str) -> &'a Value {
    let checks = report.pointer("/data/checks").or_else(|| report.pointer("/error/data/checks"));
    let checks = checks.and_then(Value::as_array).unwrap_or_else(|| panic!("{report}"));
    checks.iter().find(|check| check["id"] == id).unwrap()
}

#[test]
fn processes_share_approvals_and_rates_through_postgres_and_none_acts_without_it() {
    let Some(mut server) = Server::start("postgres", ("", "")) else { return };
    let (one, two) = (server.machine(), server.machine());
    let state_file = one.home(".local/state/regent/state.db");
    let before = std::fs::metadata(&state_file).map(|meta| meta.len()).ok();

    // One process asks, another answers, a third runs the call, and the approval is used up.
    one.write("a.txt", "a");
    let asked = run(&one, READ);
    assert_eq!(asked.code, 11, "{asked:?}");
    let id = asked.json().pointer("/data/question").and_then(Value::as_str).unwrap().to_owned();
    let approved = run(&one, &["approve", &id]);
    assert_eq!(approved.code, 0, "{approved:?}");
    assert_eq!(run(&one, READ).code, 0);
    assert_eq!(run(&one, READ).code, 11);
    std::fs::remove_file(one.project("a.txt")).unwrap();

    // Two homes use one rate, and a server that is gone lets nobody write.
    for (world, name) in [(&one, "a"), (&two, "b"), (&one, "c"), (&two, "d")] {
        let ended = write(world, name);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    server.kill();
    let closed = write(&one, "down");
    assert_eq!((closed.code, closed.error_code().as_str()), (75, "state.unreachable"), "{closed:?}");
    assert!(!one.project("down").exists());
    let report = run(&one, &["--json", "doctor"]).json();
    assert_eq!(check(&report, "state.database")["health"], "failed");
    server.start_again();
    until_ready(&one);

    // The server dies while calls are under way.
    let mut calls = Vec::new();
    for number in 0..6 {
        let (world, name) = (if number % 2 == 0 { &one } else { &two }, format!("n{number}"));
        calls.push((
            world,
            name.clone(),
            world.start(&["--json", "tool", "call", "fs.write", &write_args(&name)]),
        ));
    }
    while calls.iter_mut().all(|(_, _, call)| call.try_wait().unwrap().is_none()) {
        std::thread::yield_now();
    }
    server.kill();
    let mut failed = 0;
    for (world, name, call) in calls {
        let ended = ended(&call.wait_with_output().unwrap());
        let happened = HAPPENED.contains(&ended.code);
        assert_eq!(world.project(&name).exists(), happened, "{ended:?}");
        failed += usize::from(!happened);
    }
    server.start_again();
    until_ready(&one);

    // It goes on, and what is left of the rate is what nobody used. A call that was cut off may have used it.
    let mut last = 0;
    for number in 0..=RATE {
        last = write(if number % 2 == 0 { &one } else { &two }, &format!("z{number}")).code;
        if last != 0 {
            break;
        }
    }
    assert_eq!(last, 10, "the rate is used up");
    let all = written(&one) + written(&two);
    assert!(all <= RATE && all >= RATE - failed, "{all} of {RATE} writes, {failed} were cut off");
    for world in [&one, &two] {
        assert_eq!(run(world, &["audit", "verify"]).code, 0);
        let report = run(world, &["--json", "doctor"]).json();
        assert_eq!(check(&report, "state.database")["health"], "ok");
    }
    assert_eq!(std::fs::metadata(&state_file).map(|meta| meta.len()).ok(), before, "the file is not used");
}

#[test]
fn a_redis_that_may_lose_commits_is_refused_unless_that_is_accepted_and_recorded() {
    let Some(server) = Server::start("redis", ("always", "everysec")) else { return };
    let world = server.machine();
    let refused = run(&world, LIST);
    assert_eq!((refused.code, refused.error_code().as_str()), (1, "state.unusable"), "{refused:?}");
    for part in ["`appendfsync always`", "state.accept_loss true"] {
        assert!(refused.stdout.contains(part), "{refused:?}");
    }
    assert_eq!(run(&world, &["config", "set", "state.accept_loss", "true"]).code, 0);
    let ended = run(&world, LIST);
    assert_eq!(ended.code, 0, "{ended:?}");
    let report = run(&world, &["--json", "doctor"]).json();
    assert_eq!(check(&report, "state.database")["health"], "warn");
    let notes = world.entries();
    assert!(notes.iter().any(|entry| entry.pointer("/body/lossy") == Some(&Value::Bool(true))), "{notes:?}");
}
