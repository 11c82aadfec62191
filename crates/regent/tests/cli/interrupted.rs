//! Tasks whose process ended: the messages about them, that a closed terminal stops them in order, and that a reader who has stopped
//! reading neither keeps them from ending nor lets what they say pile up.

use std::io::Read;
use std::process::Child;

use rustix::process::Signal;
use serde_json::json;

use crate::running::{interrupt, send, until};
use crate::tasks::{finish, first_id, mark, marks, playing, says, slow, tasks};
use crate::world::{CliFixture, ended};

#[test]
fn a1_a_task_without_a_process_is_interrupted_and_not_running() {
    let world = playing(&[("play", json!([mark("one"), slow(mark("two"), 60_000), finish("both")]))]);
    let child = world.start(&["task", "run", "mark"]);
    until("the first mark is there", || (marks(&world) == "one\n").then_some(()));
    assert_eq!(tasks(&world)[0]["word"], "running");
    let task = first_id(&world);
    interrupt(&child);
    std::thread::sleep(std::time::Duration::from_millis(300));
    interrupt(&child);
    let ran = ended(&child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran:?}");
    let listed = world.run(&["task", "list"]);
    assert!(listed.stdout.contains("interrupted") || listed.stdout.contains("pending"), "{listed:?}");
    assert!(!listed.stdout.contains("running"), "{listed:?}");

    let mut child = world.start(&["task", "resume", &task]);
    until("it runs", || (tasks(&world)[0]["word"] == "running").then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let listed = world.run(&["task", "list"]);
    assert!(listed.stdout.contains("interrupted") && listed.stdout.contains("task resume"), "{listed:?}");
    let shown = world.run(&["task", "show", &task]);
    assert!(shown.stdout.contains(&format!("its process ended; `regent task resume {task}`")), "{shown:?}");
}

#[test]
fn a1_a_closed_terminal_stops_a_task_in_order_despite_repeated_signals() {
    let world = playing(&[("play", json!([mark("one"), slow(mark("two"), 1_500), finish("all")]))]);
    let child = world.start(&["task", "run", "mark"]);
    until("the first mark is there", || (marks(&world) == "one\n").then_some(()));
    for _ in 0..3 {
        send(&child, Signal::HUP);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let ran = ended(&child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran:?}");
    assert_eq!(tasks(&world)[0]["word"], "pending", "{ran:?}");
}

#[test]
fn a18_tasks_of_a_ledger_that_is_gone_are_not_no_tasks() {
    let world = playing(&[("play", json!([finish("done")]))]);
    assert_eq!(world.run(&["task", "run", "x"]).code, 0);
    std::fs::remove_dir_all(world.project(".regent/audit")).unwrap();
    let listed = world.run(&["--json", "task", "list"]);
    assert_eq!(listed.error_code(), "audit.replaced", "{listed:?}");
}

#[test]
fn a_task_that_was_killed_right_after_its_record_is_listed_before_anything_else_runs() {
    let world = playing(&[("play", json!([finish("done")]))]);
    assert_eq!(world.run(&["task", "run", "x"]).code, 0);
    let task = first_id(&world);
    // As the process left it that was killed there: the record is to be made, and no checkpoint follows.
    let lanes = std::fs::read_dir(world.project(".regent/audit/lanes")).unwrap().flatten();
    let segments = lanes.map(|lane| lane.path().join("000000000000.jsonl"));
    let is_record = |line: &&str| line.contains("\"name\":\"run/0/record\"");
    let cut = segments.filter_map(|file| {
        let text = std::fs::read_to_string(&file).ok()?;
        let before = text.lines().position(|line| is_record(&line))?;
        let kept: Vec<&str> = text.lines().take(before + 1).collect();
        std::fs::write(&file, format!("{}\n", kept.join("\n"))).ok()
    });
    assert_eq!(cut.count(), 1);
    std::fs::remove_dir_all(world.home(".local/state/regent/lookup")).unwrap();
    let listed = world.run(&["task", "list"]);
    assert!(listed.stdout.contains(&task) && listed.stdout.contains("interrupted"), "{listed:?}");
    let shown = world.run(&["task", "show", &task]);
    assert!(shown.stdout.contains("its process ended"), "{shown:?}");
}

/// Turns in which the model says something: together less than its context holds, and each more than is left in a page.
fn talk(turns: usize) -> impl Iterator<Item = serde_json::Value> {
    (0..turns).map(|number| {
        let mut turn = says("process.exec", json!({"argv": ["true", number.to_string()]}));
        turn["text"] = "x".repeat(1_500).into();
        turn
    })
}

/// Starts a task whose events go into a pipe that holds a page.
fn with_small_pipe(world: &CliFixture) -> Child {
    let child = world.start(&["--json", "task", "run", "talk"]);
    rustix::pipe::fcntl_setpipe_size(child.stdout.as_ref().unwrap(), 4096).unwrap();
    child
}

#[test]
fn an_interrupt_ends_a_task_whose_events_nobody_reads() {
    let turns = talk(8).chain([mark("one"), slow(mark("two"), 60_000), finish("never")]);
    let world = playing(&[("play", turns.collect())]);
    let mut child = with_small_pipe(&world);
    until("the model has spoken", || (marks(&world) == "one\n").then_some(()));
    interrupt(&child);
    std::thread::sleep(std::time::Duration::from_millis(300));
    interrupt(&child);
    let status = until("it ends", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn events_that_nobody_reads_do_not_pile_up() {
    const TURNS: usize = 16;
    let world = playing(&[("play", talk(TURNS).chain([finish("done")]).collect())]);
    let mut child = with_small_pipe(&world);
    until("it completed", || {
        tasks(&world).first().is_some_and(|task| task["word"] == "completed").then_some(())
    });
    let mut read = String::new();
    child.stdout.take().unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(read.lines().last().unwrap().contains("\"answer\":\"done\""), "{read}");
    let told = read.matches("\"event\":\"token\"").count();
    assert!(
        told < TURNS,
        "the model wasn't slowed down, and all it said was kept for a reader that had stopped"
    );
}
