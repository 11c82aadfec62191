//! What a task may change: by a flag, or by what it was asked for. The kernel holds its agent to it, whatever the model tries.

use serde_json::{Value, json};

use crate::tasks::{finish, last, playing, says};
use crate::world::{CliFixture, CliOutput};

/// A model that tries to change things whatever it was asked for, in every way that it has.
fn eager() -> Value {
    json!([
        says("fs.write", json!({"path": "notes.txt", "content": "changed"})),
        says("fs.delete", json!({"path": "notes.txt"})),
        says(
            "shell.exec",
            json!({"command": "echo changed > notes.txt; rm -f notes.txt; echo new > new.txt; cat notes.txt"})
        ),
        finish("I tried"),
    ])
}

fn world() -> CliFixture {
    let world = playing(&[("play", eager())]);
    world.write("notes.txt", "as it was\n");
    world
}

fn state(world: &CliFixture) -> (Option<String>, bool) {
    (std::fs::read_to_string(world.project("notes.txt")).ok(), world.project("new.txt").exists())
}

fn refused(world: &CliFixture) -> Vec<String> {
    let reasons = world.entries().into_iter().filter_map(|entry| {
        let code = entry.pointer("/body/verdict/code").or_else(|| entry.pointer("/body/verdict/reason/code"));
        code.and_then(Value::as_str).map(str::to_owned)
    });
    reasons.filter(|code| code.starts_with("agent.")).collect()
}

fn run(world: &CliFixture, goal: &str, flags: &[&str]) -> CliOutput {
    world.run(&[&["--json", "task", "run", goal, "--unattended", "deny"], flags].concat())
}

#[test]
fn what_may_not_be_changed_stays_whatever_the_model_does() {
    let cases: &[(&str, &[&str])] = &[
        ("make the notes better", &["--read-only"]),
        ("make the notes better", &["--plan-only"]),
        ("What do the notes say?", &[]),
        ("who wrote notes.txt?", &["--tools", "fs.read,fs.write,fs.delete,shell.exec"]),
    ];
    for (goal, flags) in cases {
        let world = world();
        let ended = run(&world, goal, flags);
        assert_eq!(ended.code, 0, "{goal} {flags:?}: {ended:?}");
        assert_eq!(last(&ended)["data"]["answer"], "I tried");
        assert_eq!(state(&world), (Some("as it was\n".to_owned()), false), "{goal} {flags:?}: {ended:?}");
        assert_eq!(refused(&world), ["agent.read_only", "agent.read_only"], "{goal} {flags:?}: {ended:?}");
        // A program may look.
        assert!(ended.stdout.contains("as it was"), "{ended:?}");
    }
}

#[test]
fn each_change_is_asked_about_where_that_is_wanted() {
    let world = world();
    let ended = run(&world, "make the notes better", &["--ask-writes"]);
    assert_eq!(ended.code, 10, "{ended:?}");
    assert_eq!(last(&ended)["data"]["undone"].as_array().map(Vec::len), Some(3), "{ended:?}");
    assert_eq!(state(&world), (Some("as it was\n".to_owned()), false));
}

#[test]
fn what_is_asked_for_may_be_changed() {
    for (goal, flags) in [("make the notes better", &[][..]), ("What do the notes say?", &["--may-write"])] {
        let world = world();
        let ended = run(&world, goal, flags);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(state(&world), (None, true), "{goal}: {ended:?}");
    }
}

#[test]
fn a_tool_that_was_not_chosen_is_refused_also_if_the_model_names_it() {
    let world = world();
    let ended = run(&world, "make the notes better", &["--tools", "fs.read"]);
    assert_eq!(ended.code, 21, "{ended:?}");
    assert_eq!(state(&world), (Some("as it was\n".to_owned()), false));
}

#[test]
fn in_a_conversation_each_message_decides_for_itself() {
    let turns = json!([
        says("fs.read", json!({"path": "notes.txt"})),
        says("fs.write", json!({"path": "notes.txt", "content": "too early"})),
        finish("they say: as it was"),
        says("fs.write", json!({"path": "notes.txt", "content": "changed"})),
        finish("done"),
        says("fs.read", json!({"path": "notes.txt"})),
        says("fs.write", json!({"path": "notes.txt", "content": "too late"})),
        finish("they say: changed"),
    ]);
    let world = playing(&[("play", turns)]);
    world.write("notes.txt", "as it was\n");
    assert_eq!(run(&world, "What do the notes say?", &[]).code, 0);
    let task = crate::tasks::first_id(&world);
    assert_eq!(state(&world).0.as_deref(), Some("as it was\n"));
    assert_eq!(world.run(&["task", "continue", &task, "then change them"]).code, 0);
    assert_eq!(state(&world).0.as_deref(), Some("changed"));
    assert_eq!(world.run(&["task", "continue", &task, "what do they say now?"]).code, 0);
    assert_eq!(state(&world).0.as_deref(), Some("changed"));
    let replayed = world.run(&["task", "replay", &task]);
    assert_eq!(replayed.code, 0, "{replayed:?}");
}

#[test]
fn an_answer_that_is_not_borne_out_is_unverified() {
    let write = |path: &str| says("fs.write", json!({"path": path, "content": "x"}));
    let cases: &[(&str, Value, &str)] = &[
        ("create new.txt", json!([finish("created")]), "changed nothing"),
        ("create new.txt", json!([write("other.txt"), finish("created")]), "`new.txt` doesn't exist"),
        (
            "change notes.txt",
            json!([
                says("fs.edit", json!({"path": "notes.txt", "old": "nowhere", "new": "x"})),
                finish("changed")
            ]),
            "last change failed",
        ),
    ];
    for (goal, turns, why) in cases {
        let world = playing(&[("play", turns.clone())]);
        world.write("notes.txt", "as it was\n");
        let ended = world.run(&["task", "run", goal, "--unattended", "deny"]);
        assert_eq!(ended.code, 21, "{goal}: {ended:?}");
        assert!(!ended.stdout.is_empty() && ended.stderr.contains(why), "{ended:?}");
        assert!(ended.stderr.contains("regent task rollback"), "{ended:?}");
        let listed = crate::tasks::tasks(&world);
        assert_eq!(listed[0]["word"], "unverified", "{listed:?}");
        // What is missing can be said, and then it stands.
        crate::tasks::play(
            &world,
            &[("play", json!([finish("x"), finish("x"), finish("x"), finish("nothing to do")]))],
        );
        let task = crate::tasks::first_id(&world);
        let told = world.run(&["task", "continue", &task, "never mind"]);
        assert_eq!(told.code, 0, "{told:?}");
        assert_eq!(crate::tasks::tasks(&world)[0]["word"], "completed");
    }
}
