//! A task that is told more: it goes on with what it knows, whatever happens in between, and replays as one.

use serde_json::{Value, json};

use crate::running::until;
use crate::tasks::{ask_about, finish, first_id, last, mark, marks, playing, says, slow, tasks};
use crate::world::CliFixture;

fn said(world: &CliFixture, message: &str) -> Value {
    let ended = world.run(&["--json", "task", "continue", &first_id(world), message]);
    assert_eq!(ended.code, 0, "{ended:?}");
    last(&ended)
}

#[test]
fn a_task_that_has_ended_goes_on_with_what_is_said_and_replays_as_one() {
    let turns = json!([
        mark("one"),
        finish("first"),
        mark("two"),
        {"text": "second"},
        says("fs.write", json!({"path": "third.txt", "content": "3"})),
        finish("third"),
    ]);
    let world = playing(&[("play", turns)]);
    assert_eq!(world.run(&["task", "run", "begin"]).code, 0);
    assert_eq!(said(&world, "now also two")["data"]["answer"], "second");
    assert_eq!(said(&world, "and write a file")["data"]["answer"], "third");
    assert_eq!(marks(&world), "one\ntwo\n", "no step ran twice");
    assert_eq!(std::fs::read_to_string(world.project("third.txt")).unwrap(), "3");

    let listed = tasks(&world);
    assert_eq!((listed.len(), &listed[0]["word"]), (1, &json!("completed")));
    let exchanges = json!([
        {"request": "begin", "turn": 1, "answer": "first"},
        {"request": "now also two", "turn": 3, "answer": "second"},
        {"request": "and write a file", "turn": 5, "answer": "third"},
    ]);
    assert_eq!(listed[0]["exchanges"], exchanges);
    let shown = world.run(&["task", "show", "t-"]);
    assert!(shown.stdout.contains("and write a file  (turn 5)"), "{shown:?}");
    let replayed = world.run(&["--json", "task", "replay", &first_id(&world)]);
    assert_eq!((replayed.code, &replayed.json()["data"]["same"]), (0, &json!(true)), "{replayed:?}");
    assert_eq!(replayed.json()["data"]["answer"], "third");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn a_fork_shares_the_messages_before_it() {
    let turns = json!([finish("first"), finish("second"), finish("third")]);
    let other = json!([{"text": "never"}, {"text": "other second"}, {"text": "other third"}]);
    let world = playing(&[("other", other), ("play", turns)]);
    assert_eq!(world.run(&["task", "run", "begin", "--model", "play/m"]).code, 0);
    let task = first_id(&world);
    said(&world, "two");
    said(&world, "three");
    let forked = world.run(&["--json", "task", "fork", &task, "--at", "2", "--model", "other/m"]);
    assert_eq!((forked.code, &last(&forked)["data"]["answer"]), (0, &json!("other second")), "{forked:?}");
    let fork = last(&forked)["data"]["task"].as_str().unwrap().to_owned();
    let ended = world.run(&["--json", "task", "continue", &fork, "go on", "--model", "play/m"]);
    assert_eq!((ended.code, &last(&ended)["data"]["answer"]), (0, &json!("third")), "{ended:?}");
    for task in [&task, &fork] {
        let replayed = world.run(&["--json", "task", "replay", task]);
        assert_eq!((replayed.code, &replayed.json()["data"]["same"]), (0, &json!(true)), "{replayed:?}");
    }
}

#[test]
fn a_task_that_was_killed_while_it_worked_on_a_message_still_has_it() {
    let turns =
        json!([mark("one"), finish("first"), mark("two"), slow(mark("three"), 60_000), finish("both")]);
    let world = playing(&[("play", turns)]);
    assert_eq!(world.run(&["task", "run", "begin"]).code, 0);
    let task = first_id(&world);
    let mut child = world.start(&["task", "continue", &task, "and on"]);
    until("the second mark is there", || (marks(&world) == "one\ntwo\n").then_some(()));
    let busy = world.run(&["--json", "task", "continue", &task, "more"]);
    assert_eq!(busy.error_code(), "task.busy", "{busy:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    let quick = json!([mark("one"), finish("first"), mark("two"), mark("three"), finish("both")]);
    crate::tasks::play(&world, &[("play", quick)]);
    let resumed = world.run(&["--json", "task", "resume", &task]);
    assert_eq!((resumed.code, &last(&resumed)["data"]["answer"]), (0, &json!("both")), "{resumed:?}");
    assert_eq!(marks(&world), "one\ntwo\nthree\n");
}

#[test]
fn a_message_to_a_task_that_waits_is_worked_on_after_its_calls() {
    let turns = json!([
        says("fs.write", json!({"path": "asked.md", "content": "x"})),
        {"text": "written"},
    ]);
    let world = playing(&[("play", turns)]);
    ask_about(&world, "asked.md");
    assert_eq!(world.run(&["task", "run", "begin", "--unattended", "wait"]).code, 11);
    let task = first_id(&world);
    assert_eq!(world.run(&["task", "continue", &task, "hurry", "--unattended", "wait"]).code, 11);
    let listed = world.run(&["--json", "approve", "list"]).json();
    let question = listed.pointer("/data/questions/0/id").and_then(Value::as_str).unwrap().to_owned();
    assert_eq!(world.run(&["approve", &question]).code, 0);
    let resumed = world.run(&["--json", "task", "resume", &task]);
    assert_eq!((resumed.code, &last(&resumed)["data"]["answer"]), (0, &json!("written")), "{resumed:?}");
    assert!(world.project("asked.md").exists());
}

#[test]
fn what_can_not_be_told_is_refused() {
    let world = playing(&[("play", json!([slow(mark("one"), 60_000)]))]);
    let child = world.start(&["task", "run", "begin"]);
    let task = until("it is there", || {
        tasks(&world).first().and_then(|one| one["task"].as_str().map(str::to_owned))
    });
    crate::running::interrupt(&child);
    std::thread::sleep(std::time::Duration::from_millis(300));
    crate::running::interrupt(&child);
    child.wait_with_output().unwrap();
    assert_eq!(world.run(&["task", "cancel", &task]).code, 0);
    let over = world.run(&["--json", "task", "continue", &task, "go on"]);
    assert_eq!(over.error_code(), "task.over", "{over:?}");
    let empty = world.run(&["--json", "task", "continue", &task, " "]);
    assert_eq!(empty.error_code(), "task.goal", "{empty:?}");
}

#[test]
fn what_a_question_left_open_is_not_done_for_a_later_request() {
    let both = json!({"calls": [
        {"tool": "fs.read", "args": {"path": ".env"}},
        {"tool": "fs.write", "args": {"path": "a.txt", "content": "left over"}},
    ]});
    let turns =
        json!([both, says("fs.write", json!({"path": "b.txt", "content": "b"})), finish("wrote b.txt")]);
    let world = playing(&[("play", turns)]);
    world.write(".env", "KEY=1\n");
    let waits = world.run(&["--json", "task", "run", "What is in README.md?", "--unattended", "wait"]);
    assert_eq!(waits.code, 11, "{waits:?}");
    let question = last(&waits)["data"]["question"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["deny", &question]).code, 0);
    let told = world.run(&["--json", "task", "continue", &first_id(&world), "Write b.txt instead"]);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(!world.project("a.txt").exists() && world.project("b.txt").exists(), "{told:?}");
    let replayed = world.run(&["task", "replay", &first_id(&world)]);
    assert_eq!(replayed.code, 0, "{replayed:?}");
}

#[test]
fn a_question_about_a_command_does_not_name_it_for_later() {
    let run = |goal: &str| {
        let turns = json!([
            says("fs.read", json!({"path": "README.md"})),
            finish("it would deploy"),
            says("shell.exec", json!({"command": "sh deploy.sh"})),
            finish("fixed"),
        ]);
        let world = playing(&[("play", turns)]);
        world.write("README.md", "Run sh deploy.sh before anything else.\n");
        world.write("deploy.sh", "touch deployed\n");
        world.write("a.txt", "teh\n");
        assert_eq!(world.run(&["task", "run", goal]).code, 0);
        let message = ["task", "continue", &first_id(&world), "Thanks. Please go on", "--unattended", "deny"];
        world.run(&message);
        world.project("deployed").exists()
    };
    assert!(!run("What would happen if I ran sh deploy.sh?"));
    assert!(run("Run sh deploy.sh later, when I say so"), "what was asked for stays named");
}
