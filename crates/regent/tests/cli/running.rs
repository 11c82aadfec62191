//! Programs that run: seen, signalled and interrupted from outside, and the ledger says how they ended.

use std::io::{BufRead, BufReader};
use std::process::Child;

use serde_json::Value;

use crate::world::{CliFixture, ended};

/// Waits until something is so. The only clock here is patience: a minute is failure.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("never: {what}");
}

pub(crate) fn interrupt(child: &Child) {
    send(child, rustix::process::Signal::INT);
}

pub(crate) fn send(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

/// A program that says on disk that it runs, and then waits.
const SLEEPER: &str = "echo up > up; sleep 60";

#[test]
fn an_interrupt_stops_the_program_and_is_recorded() {
    let world = CliFixture::ready();
    let child = world.start(&["run", "--", "sh", "-c", SLEEPER]);
    until("the program runs", || world.project("up").exists().then_some(()));
    interrupt(&child);
    let ended = ended(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, 130, "{ended:?}");
    let outcome = world.entries().into_iter().find(|entry| entry["kind"] == "outcome").unwrap();
    assert_eq!(outcome["body"]["status"], "cancelled", "{outcome}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn agents_are_seen_and_killed_from_another_terminal() {
    let world = CliFixture::ready();
    let child = world.start(&["run", "--agent", "sleeper", "--", "sh", "-c", SLEEPER]);
    until("the program runs", || world.project("up").exists().then_some(()));
    let id = until("the agent is listed", || {
        let listed = world.run(&["--json", "agent", "ps"]).json();
        let agents = listed.pointer("/data/agents").and_then(Value::as_array).cloned().unwrap_or_default();
        let own = agents.into_iter().find(|one| one["agent"]["name"] == "sleeper")?;
        own["agent"]["agent"].as_str().map(str::to_owned)
    });
    assert!(world.run(&["agent", "ps"]).stdout.contains("sleeper"));
    let sent = world.run(&["--json", "agent", "signal", &id, "KILL"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    let ended = ended(&child.wait_with_output().unwrap());
    assert_ne!(ended.code, 0, "{ended:?}");
    let is_the_call =
        |entry: &Value| entry["body"]["status"] == "cancelled" && entry["body"]["op"] == "tool.run";
    let outcomes: Vec<_> = world.entries().into_iter().filter(is_the_call).collect();
    assert_eq!(outcomes.len(), 1, "the kill is real and recorded");
    let found = world.run(&["--json", "audit", "find", "--op", "signal.send"]).json();
    assert_eq!(found.pointer("/data/calls/0/status"), Some(&Value::from("ok")), "it was delivered: {found}");
}

#[test]
fn a_program_starts_in_the_folder_of_the_command() {
    let world = CliFixture::ready();
    world.write("src/deep/a.txt", "a");
    let below = world.project("src/deep").to_str().unwrap().to_owned();
    let ended = world.run(&["-C", &below, "run", "--", "sh", "-c", "pwd; cat a.txt"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, format!("{below}\na").as_str()), "{ended:?}");
    let root = world.run(&["run", "--", "pwd"]);
    assert_eq!(root.stdout.trim_end(), world.project("").to_str().unwrap().trim_end_matches('/'));
}

#[test]
fn stdin_that_is_not_text_or_too_large_is_refused_with_the_limit() {
    let world = CliFixture::ready();
    let large = vec![b'a'; (8 << 20) + 1];
    for (stdin, word) in [(&b"ok\xff"[..], "not UTF-8 text (byte 2)"), (&large, "more than 8388608 bytes")] {
        let ended = world.run_with(&["--json", "run", "-i", "--", "wc", "-c"], &[], stdin);
        assert_eq!((ended.code, ended.error_code().as_str()), (2, "usage"), "{ended:?}");
        let error = ended.json()["error"].clone();
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
        assert!(error["help"].as_str().unwrap().contains("a file in the project"), "{error}");
    }
}

/// Writes a line again and again, also in a session of its own.
const WRITER: &str = "setsid sh -c 'while :; do echo x >> other; sleep 0.02; done' & while :; do echo x >> own; sleep 0.02; done";

#[test]
fn stop_pauses_a_running_program_and_cont_lets_it_go_on() {
    let world = CliFixture::ready();
    let child = world.start(&["run", "--agent", "writer", "--", "sh", "-c", WRITER]);
    let lines = |name: &str| std::fs::metadata(world.project(name)).map_or(0, |file| file.len());
    let both = || (lines("own"), lines("other"));
    until("the program writes", || (both() > (0, 0) && lines("other") > 0).then_some(()));
    let id = until("the agent is listed", || {
        let listed = world.run(&["--json", "agent", "ps"]).json();
        let agents = listed.pointer("/data/agents").and_then(Value::as_array).cloned().unwrap_or_default();
        let own = agents.into_iter().find(|one| one["agent"]["name"] == "writer")?;
        own["agent"]["agent"].as_str().map(str::to_owned)
    });
    assert_eq!(world.run(&["agent", "signal", &id, "STOP"]).code, 0);
    // A command takes longer than many rounds of the program: what doesn't change during two of them stands still.
    let paused = until("it stands still", || {
        let before = both();
        world.run(&["agent", "ps"]);
        world.run(&["agent", "ps"]);
        (both() == before).then_some(before)
    });
    assert_eq!(world.run(&["agent", "signal", &id, "CONT"]).code, 0);
    until("it goes on", || (lines("own") > paused.0 && lines("other") > paused.1).then_some(()));
    assert_eq!(world.run(&["agent", "signal", &id, "KILL"]).code, 0);
    child.wait_with_output().unwrap();
}

#[test]
fn adv_097_a_call_cut_off_by_a_kill_is_reported_in_doubt() {
    let world = CliFixture::ready();
    let mut child = world.start(&["run", "--", "sh", "-c", SLEEPER]);
    until("the program runs", || world.project("up").exists().then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let ended = world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stderr.contains("may or may not have happened"), "{ended:?}");
    let again = world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]);
    assert!(!again.stderr.contains("may or may not have happened"), "reported once: {again:?}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn a_changed_policy_is_put_in_force_and_a_bad_one_is_not() {
    let world = CliFixture::ready();
    let mut child = world.start(&["run", "--", "sh", "-c", SLEEPER]);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    until("the program runs", || world.project("up").exists().then_some(()));
    let path = world.home(".config/regent/policy.yml");
    let good = std::fs::read_to_string(&path).unwrap();
    let changes = || world.entries().iter().filter(|entry| entry["kind"] == "policy").count();

    std::fs::write(&path, "rules: [").unwrap();
    assert!(said.any(|line| line.contains("the old one stays active")));
    assert_eq!(changes(), 0, "a bad file leaves the old policy in force");
    std::fs::write(&path, format!("{good}\n# changed\n")).unwrap();
    assert!(said.any(|line| line.contains("the new one is active")));
    assert_eq!(changes(), 1);

    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
