//! What people with tokens see of themselves and of others: names in the ledger, the policy, the files of the ledger.

use std::path::Path;

use serde_json::{Value, json};

use crate::tasks::{finish, playing};
use crate::world::{CliFixture, CliOutput};

/// A token of a person in a file, and the flag that presents it.
fn person(world: &CliFixture, name: &str, role: &str) -> String {
    let file = world.home(&format!("{name}.token")).to_str().unwrap().to_owned();
    let ended = world.run(&["token", "create", "--person", name, "--role", role, "--out", &file]);
    assert_eq!(ended.code, 0, "{ended:?}");
    file
}

fn run_as(world: &CliFixture, file: &str, args: &[&str]) -> CliOutput {
    world.run(&[&["--json", "--token-file", file], args].concat())
}

fn segments(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("lanes/0000")).unwrap().count()
}

#[test]
fn a_persons_calls_are_shown_and_found_by_their_name() {
    let world = CliFixture::ready();
    let bob = person(&world, "bob", "operator");
    world.write("a.txt", "a");
    let read = run_as(&world, &bob, &["tool", "call", "fs.read", r#"{"path": "a.txt"}"#]);
    assert_eq!(read.code, 0, "{read:?}");
    let found = world.run(&["audit", "find", "--agent", "bob", "--tool", "fs.read"]).stdout;
    assert!(found.contains(" bob ") && found.lines().count() == 1, "{found}");
    let own = world.run(&["--json", "audit", "find", "--agent", "bob"]).json();
    let calls = own.pointer("/data/calls").and_then(Value::as_array).unwrap();
    assert!(calls.iter().all(|call| call["person"] == "bob" && call["agent"] == "operator"), "{own}");
    assert!(world.run(&["audit", "tail"]).stdout.contains(" bob "));
    // Rules know all people as `operator`, and so does the filter.
    let all = world.run(&["audit", "find", "--agent", "operator", "--tool", "fs.read"]).stdout;
    assert_eq!(all, found);
    assert_eq!(world.run(&["audit", "find", "--agent", "carol"]).stdout, "no matching calls\n");
}

#[test]
fn a_viewer_reads_the_policy_and_asks_what_it_would_say() {
    let world = playing(&[("play", json!([finish("done")]))]);
    let bob = person(&world, "bob", "viewer");
    let why = run_as(&world, &bob, &["policy", "why", "fs.read", r#"{"path": "x"}"#]);
    assert_eq!(why.code, 0, "{why:?}");
    assert_eq!(
        run_as(&world, &bob, &["policy", "get"]).error_code(),
        world.run(&["--json", "policy", "get"]).error_code()
    );
    assert_eq!(run_as(&world, &bob, &["policy", "check"]).error_code(), "usage");
    let task = run_as(&world, &bob, &["task", "run", "do it"]);
    assert_eq!((task.code, task.error_code().as_str()), (10, "auth.role"), "{task:?}");
    assert!(task.stdout.contains("the role viewer can't run tasks"), "{task:?}");
}

#[test]
fn asking_who_one_is_leaves_no_new_files_in_the_ledger() {
    let world = CliFixture::ready();
    let bob = person(&world, "bob", "viewer");
    let audit = world.project(".regent/audit");
    let before = segments(&audit);
    for _ in 0..3 {
        assert_eq!(run_as(&world, &bob, &["whoami"]).code, 0);
        assert_eq!(world.run(&["token", "list"]).code, 0);
    }
    assert_eq!(segments(&audit), before);
}

#[test]
fn a_name_that_differs_in_capitals_is_named() {
    let world = CliFixture::ready();
    person(&world, "bob", "viewer");
    let ended = world.run(&["token", "create", "--person", "Bob", "--role", "viewer"]);
    assert!(
        ended
            .stderr
            .replace("\n  │ ", " ")
            .contains("`Bob` differs from the existing name `bob` only in capitals"),
        "{ended:?}"
    );
}
