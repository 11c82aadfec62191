//! Tasks whose files are far larger than the model's window.

use serde_json::{Value, json};

use crate::tasks::{finish, first_id, last, playing};

const FILES: usize = 50;

/// A model that reads one file after the other: each names the next.
fn script() -> Value {
    let read = |file: usize| json!({"tool": "fs.read", "args": {"path": format!("data/{file}.txt")}});
    let mut turns =
        vec![json!({"when": "turns that will be left out", "text": "half of the files are read"})];
    turns.extend((1..FILES).map(|file| json!({"when": format!("go to {file};"), "calls": [read(file)]})));
    let mut done = finish("all files are read");
    done["when"] = json!(format!("go to {FILES};"));
    done.as_object_mut().unwrap().remove("usage");
    turns.push(done);
    turns.push(json!({"calls": [read(0)]}));
    json!(turns)
}

#[test]
fn d4_a_task_over_many_long_files_is_compacted_and_replays_to_the_byte() {
    let world = playing(&[("reader", script())]);
    for file in 0..FILES {
        let lines: String =
            (0..1_500).map(|line| format!("{line}: the quick brown fox jumps over it\n")).collect();
        world.write(&format!("data/{file}.txt"), format!("go to {};\n{lines}", file + 1));
    }
    let args = [
        "--json",
        "task",
        "run",
        "read all files",
        "--model",
        "reader/m",
        "--window",
        "32768",
        "--turns",
        "60",
    ];
    let ran = world.run(&args);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        last(&ran).pointer("/data/answer").and_then(Value::as_str),
        Some("all files are read"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("\"event\":\"compacted\""));
    let task = first_id(&world);
    let shown = world.run(&["task", "show", &task]);
    assert!(shown.stdout.contains("compacted at turn "), "{}", shown.stdout);
    let record = world.run(&["--json", "task", "show", &task]).json();
    let limits = record.pointer("/data/record/spec/limits").unwrap();
    assert_eq!((&limits["window_tokens_max"], &limits["turns_max"]), (&json!(32_768), &json!(60)));
    assert_eq!(limits["answer_tokens_max"], json!(4_096));
    let replayed = world.run(&["task", "replay", &task]);
    assert_eq!(replayed.code, 0, "{replayed:?}");
}

#[test]
fn a_trusted_projects_instructions_and_templates_reach_the_prompt() {
    let world = playing(&[("m", json!([finish("done")]))]);
    world.write("AGENTS.md", "always use tabs\n");
    std::fs::write(world.home(".config/regent/CLAUDE.md"), "answer in French\n").unwrap();
    world.write(".regent/prompts/review/task.txt", "Review this: {{ goal }}\n");
    let run = || world.run(&["task", "run", "the goal", "--model", "m/m", "--prompt", "review"]);
    let refused = run();
    assert_ne!(refused.code, 0, "a template that came later needs trust: {refused:?}");
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    let ran = run();
    assert_eq!(ran.code, 0, "{ran:?}");
    let record = world.run(&["--json", "task", "show", &first_id(&world)]).json();
    let spec = record.pointer("/data/record/spec").unwrap();
    assert_eq!(spec["instructions"]["project"], json!(true), "{spec}");
    assert_eq!(spec.pointer("/instructions/own/0/text"), Some(&json!("answer in French\n")), "{spec}");
    assert_eq!(spec["prompts"]["task"], json!("Review this: {{ goal }}\n"));
    let unknown = world.run(&["task", "run", "the goal", "--model", "m/m", "--prompt", "nothing"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
}
