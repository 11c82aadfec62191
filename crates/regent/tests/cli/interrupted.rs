//! Tasks whose process ended: the messages about them, and that a closed terminal stops them in order.

use rustix::process::Signal;
use serde_json::json;

use crate::running::{interrupt, send, until};
use crate::tasks::{finish, first_id, mark, marks, playing, slow, tasks};
use crate::world::ended;

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
