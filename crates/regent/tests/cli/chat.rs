//! A conversation at a terminal: an afternoon with a model that plays a script, driven by keys.

use std::io::Write as _;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::termios::LocalModes;
use serde_json::{Value, json};

use crate::running::until;
use crate::tasks::{ask_about, finish, first_id, last, mark, marks, play, playing, says, slow, tasks};
use crate::world::{CliFixture, pieces_of};

/// A debug build on a busy machine.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// The person at the terminal.
struct Person {
    program: Child,
    keyboard: std::fs::File,
    pieces: Receiver<String>,
    /// What came since something was last seen, without what moves the cursor.
    shown: String,
}

impl Person {
    fn talks(world: &CliFixture, args: &[&str]) -> Self {
        let (program, keyboard) = world.at_screen(args, (100, 40));
        let pieces = pieces_of(keyboard.try_clone().unwrap());
        let mut person = Self { program, keyboard, pieces, shown: String::new() };
        person.sees("\n> ");
        person
    }

    /// Answers a question that was seen. What is typed in the moment in which one appears is no answer to it.
    fn answers(&mut self, answer: &str) {
        std::thread::sleep(Duration::from_millis(300));
        self.says(answer);
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn says(&mut self, message: &str) {
        self.types(&format!("{message}\r"));
    }

    /// Waits until this is shown; what came before it counts no more.
    fn sees(&mut self, text: &str) {
        self.sees_one(&[text]);
    }

    /// The same for the first of several texts.
    fn sees_one<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        let until = Instant::now() + SEEN_WITHIN;
        loop {
            let found = texts.iter().filter_map(|text| Some((self.shown.find(text)?, *text))).min();
            if let Some((at, text)) = found {
                self.shown.drain(..at + text.len());
                return text;
            }
            match self.pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.shown.push_str(&without_sequences(&piece)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let end: String = self.shown.chars().rev().take(1_000).collect();
                    panic!("never seen: {texts:?} before {:?}", end.chars().rev().collect::<String>())
                }
            }
        }
    }

    /// Answers yes until this is shown: an approval that comes faster than anyone reads doesn't count.
    fn approves(&mut self, shown: &str) {
        loop {
            self.answers("y");
            if self.sees_one(&["doesn't count", shown]) == shown {
                return;
            }
            std::thread::sleep(Duration::from_millis(700));
        }
    }

    fn is_cooked(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.keyboard).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    fn leaves(mut self) {
        self.types("\u{4}");
        self.sees("continues this conversation");
        assert!(self.program.wait().unwrap().success());
        assert!(self.is_cooked(), "the terminal is as it was");
    }
}

/// Frames come whole, so no sequence is cut in two.
fn without_sequences(piece: &str) -> String {
    let mut out = String::new();
    let mut chars = piece.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => drop(chars.by_ref().find(|c| c.is_ascii_alphabetic())),
            '\r' => {}
            c => out.push(c),
        }
    }
    out
}

/// The turns of the afternoon; what is slow lasts so long.
fn turns(slow_ms: u64) -> Value {
    let edit = says("fs.edit", json!({"path": "a.md", "old": "one\n", "new": "two\n"}));
    let test = says("process.exec", json!({"argv": ["sh", "-c", "echo test 1 ok; echo test 2 ok"]}));
    let write = |path: &str| says("fs.write", json!({"path": path, "content": "one\n"}));
    let sleep = |line: &str| says("process.exec", json!({"argv": ["sh", "-c", line]}));
    // What a test said is text of others, after which the agent is asked about programs.
    let mark = |word: &str| {
        says("fs.write", json!({"path": "marks", "content": format!("{word}\n"), "mode": "append"}))
    };
    let mut first = write("a.md");
    first["text"] = json!("I begin with a file.");
    let mut turns = vec![
        first,
        finish("it is there"),
        edit,
        json!({"text": "edited"}),
        test,
        json!({"text": "tests pass"}),
        write(".regent/policy.yml"),
        json!({"text": "I may not do that"}),
        write("asked.md"),
        json!({"text": "asked and done"}),
        slow(mark("queued"), 1_000),
        json!({"text": "heard both"}),
        sleep("echo sleeping; touch begun; sleep 60; touch late"),
        json!({"text": "something else then"}),
        write("b.md"),
        json!({"text": "wrote b"}),
        json!({"text": "I heard of the undo"}),
        mark("before"),
        slow(mark("after"), slow_ms),
        json!({"text": "all is made"}),
    ];
    turns.extend((0..40).map(|number| json!({"text": format!("answer {number}.")})));
    Value::Array(turns)
}

#[test]
fn an_afternoon_of_forty_messages_with_a_refusal_an_undo_an_interrupt_and_a_crash() {
    let world = playing(&[("play", turns(60_000))]);
    ask_about(&world, "asked.md");
    let mut person = Person::talks(&world, &["chat"]);
    edits_tests_and_questions(&world, &mut person);
    stops_and_undoes(&world, &mut person);

    person.says("now a long one");
    until("the first mark", || marks(&world).contains("before").then_some(()));
    person.program.kill().unwrap();
    person.program.wait().unwrap();
    until("the terminal is put back", || person.is_cooked().then_some(()));

    play(&world, &[("play", turns(0))]);
    let mut person = Person::talks(&world, &["chat", "--resume"]);
    person.sees("no step runs twice");
    person.sees("all is made");
    assert_eq!(marks(&world), "queued\nbefore\nafter\n", "each step ran once");
    for number in 0..28 {
        person.says(&format!("message {number}"));
        person.sees(&format!("answer {number}."));
        person.sees("in all");
    }
    person.leaves();

    let task = first_id(&world);
    let exchanges = tasks(&world)[0]["exchanges"].as_array().unwrap().len();
    assert_eq!((tasks(&world).len(), exchanges), (1, 40));
    let replayed = world.run(&["--json", "task", "replay", &task]);
    assert_eq!((replayed.code, &last(&replayed)["data"]["same"]), (0, &json!(true)), "{replayed:?}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

fn edits_tests_and_questions(world: &CliFixture, person: &mut Person) {
    person.says("begin");
    for shown in
        ["> begin", "I begin with a file.", "* fs.write a.md  done", "+ one", "it is there", "in all"]
    {
        person.sees(shown);
    }
    person.says("edit it\\");
    person.says("in two lines");
    for shown in ["> edit it\n  in two lines", "* fs.edit a.md  done", "- one", "+ two", "edited", "in all"] {
        person.sees(shown);
    }
    person.says("test it");
    for shown in ["* process.exec sh -c", "done", "| test 1 ok", "| test 2 ok", "tests pass", "in all"] {
        person.sees(shown);
    }
    person.says("change the policy");
    for shown in ["* fs.write .regent/policy.yml  denied", "I may not do that", "in all"] {
        person.sees(shown);
    }
    person.says("ask me");
    for shown in ["+ one", "asked-in-test", "[N] no"] {
        person.sees(shown);
    }
    assert!(!world.project("asked.md").exists());
    person.approves("* fs.write");
    for shown in [" asked.md  done", "asked and done", "in all"] {
        person.sees(shown);
    }
    person.says("go slow");
    // It is asked: what comes now waits for the next turn.
    person.sees("thinking · turn 11");
    person.says("and one thing more");
    for shown in
        ["queued: and one thing more", "* fs.write marks", "> and one thing more", "heard both", "in all"]
    {
        person.sees(shown);
    }
}

fn stops_and_undoes(world: &CliFixture, person: &mut Person) {
    person.says("sleep");
    person.sees("[N] no");
    person.approves("| sleeping");
    until("it sleeps", || world.project("begun").exists().then_some(()));
    person.types("\u{1b}");
    person.sees("Ctrl-C stops what runs");
    person.types("\u{3}");
    for shown in ["cancelled", "stopped; say what to do instead", "in all"] {
        person.sees(shown);
    }
    person.says("something else");
    for shown in ["something else then", "in all"] {
        person.sees(shown);
    }
    assert!(!world.project("late").exists());
    person.says("write b");
    for shown in ["* fs.write b.md  done", "wrote b", "in all"] {
        person.sees(shown);
    }
    person.says("/diff");
    for shown in ["b.md", "+ one"] {
        person.sees(shown);
    }
    person.says("/undo");
    for shown in ["to remove  b.md", "[y/N]"] {
        person.sees(shown);
    }
    person.answers("y");
    for shown in ["removed    b.md", "hears of it with your next message"] {
        person.sees(shown);
    }
    assert!(!world.project("b.md").exists() && world.project("a.md").exists());
    person.says("what now?");
    for shown in ["I heard of the undo", "in all"] {
        person.sees(shown);
    }
    let exchanges = tasks(world)[0]["exchanges"].clone();
    let heard = exchanges.as_array().unwrap().last().unwrap()["request"].as_str().unwrap().to_owned();
    assert!(heard.contains("restored the workspace") && heard.contains("> write b"), "{heard}");
    for (line, answer) in [
        ("/mdel", "did you mean `/model`?"),
        ("/plan", "no to-do list"),
        ("/cost", "used: "),
        ("/model play/m", "goes to play/m"),
        ("/model nosuch", "nosuch"),
        ("/tools", "fs.read"),
    ] {
        person.says(line);
        person.sees(answer);
    }
}

#[test]
fn a_message_that_comes_instead_voids_what_was_left_of_the_turn() {
    let both = json!({"calls": [
        {"tool": "process.exec", "args": {"argv": ["sh", "-c", "touch begun; sleep 60"]}},
        {"tool": "fs.write", "args": {"path": "never.md", "content": "x"}},
    ]});
    let world = playing(&[("play", json!([both, finish("then not")]))]);
    let mut person = Person::talks(&world, &["chat"]);
    person.says("both");
    until("it sleeps", || world.project("begun").exists().then_some(()));
    person.types("\u{1b}\u{3}");
    person.sees("stopped; say what to do instead");
    person.says("no, don't");
    person.sees("then not");
    person.leaves();
    assert!(!world.project("never.md").exists(), "what was stopped is not made later");
    let replayed = world.run(&["--json", "task", "replay", &first_id(&world)]);
    assert_eq!((replayed.code, &last(&replayed)["data"]["same"]), (0, &json!(true)), "{replayed:?}");
}

#[test]
fn work_that_was_stopped_can_go_on_as_it_was() {
    let world = playing(&[("play", json!([slow(mark("one"), 3_000), finish("both")]))]);
    let mut person = Person::talks(&world, &["chat"]);
    person.says("go");
    person.sees("thinking");
    person.types("\u{3}");
    person.sees("stopped; say what to do instead");
    assert_eq!(marks(&world), "", "a model that is stopped has no effect");
    person.says("/resume");
    person.sees("both");
    person.leaves();
    assert_eq!(marks(&world), "one\n");
}

#[test]
fn messages_come_from_a_pipe_line_by_line() {
    let world = playing(&[("play", json!([mark("one"), finish("first"), {"text": "second"}]))]);
    let ended = world.run_with(&["chat"], &[], b"begin\n\nand then?\n");
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "first\nsecond\n"), "{ended:?}");
    assert_eq!(ended.stderr.matches("process.exec").count(), 1, "what was shown isn't repeated: {ended:?}");
    let more = world.run_with(&["--json", "chat", "--resume"], &[], b"more\n");
    let lines: Vec<Value> = more.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["event"] == "heard" && line["text"] == "more"), "{more:?}");
    assert_eq!(tasks(&world).len(), 1);
    let none = world.run(&["--json", "chat"]);
    assert_eq!((none.code, none.error_code().as_str()), (2, "usage"), "{none:?}");
    assert!(none.json()["error"]["help"].as_str().unwrap().contains("task run"));
}

#[test]
fn regent_alone_talks_where_it_can_and_says_what_is_next_where_not() {
    let world = playing(&[("play", json!([{"text": "hello"}]))]);
    let mut person = Person::talks(&world, &[]);
    person.says("hi");
    person.sees("hello");
    person.leaves();
    assert!(world.run(&[]).stdout.contains("regent task run GOAL"));
    std::fs::write(world.home(".config/regent/config.toml"), "").unwrap();
    let (code, shown) = world.at_terminal(&[], "");
    assert!(code == 0 && shown.contains("regent task run GOAL"), "{shown}");
}

#[test]
fn a_terminal_is_put_back_after_a_signal() {
    let world = playing(&[("play", json!([slow(json!({"text": "late"}), 60_000)]))]);
    let mut person = Person::talks(&world, &["chat"]);
    assert!(!person.is_cooked());
    person.says("go");
    person.sees("thinking");
    let pid = rustix::process::Pid::from_child(&person.program);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    person.sees("continues this conversation");
    person.program.wait().unwrap();
    assert!(person.is_cooked());
}
