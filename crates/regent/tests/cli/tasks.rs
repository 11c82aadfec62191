//! Durable tasks through the real binary, with models that play a script.

use serde_json::{Value, json};

use crate::running::{interrupt, until};
use crate::world::{CliFixture, CliOutput, ended};

/// A project whose models play these scripts, each under its own name.
pub(crate) fn playing(scripts: &[(&str, Value)]) -> CliFixture {
    let world = CliFixture::ready();
    play(&world, scripts);
    world
}

/// Sets up models that play these scripts from now on.
pub(crate) fn play(world: &CliFixture, scripts: &[(&str, Value)]) {
    let mut settings = String::new();
    for (name, turns) in scripts {
        let file = world.home(&format!("{name}.json"));
        std::fs::write(&file, json!({"turns": turns}).to_string()).unwrap();
        settings.push_str(&format!(
            "[models.{name}]\nkind = 'scripted'\nfile = '{}'\nmodels = ['m']\ncapabilities.m.price = {{ input = 1000000, output = 2000000 }}\n",
            file.display()
        ));
    }
    std::fs::write(world.home(".config/regent/config.toml"), settings).unwrap();
}

pub(crate) fn says(tool: &str, args: Value) -> Value {
    json!({"calls": [{"tool": tool, "args": args}], "usage": {"input": 100, "cached": 0, "output": 10, "reasoning": 0}})
}

fn write(path: &str, content: &str) -> Value {
    says("fs.write", json!({"path": path, "content": content}))
}

/// Leaves a mark each time it is really run.
pub(crate) fn mark(word: &str) -> Value {
    says("process.exec", json!({"argv": ["sh", "-c", format!("echo {word} >> marks")]}))
}

pub(crate) fn finish(answer: &str) -> Value {
    says("task.finish", json!({"answer": answer}))
}

pub(crate) fn slow(mut turn: Value, ms: u64) -> Value {
    turn["delay_ms"] = json!(ms);
    turn
}

/// Adds a rule to both policies, so that agents are asked about it.
pub(crate) fn ask_about(world: &CliFixture, path: &str) {
    let rule = format!(
        "\n  - id: asked-in-test\n    effect: ask\n    match: {{ tool: fs.write, path: \"{path}\" }}\n    reason: the test wants to be asked\n"
    );
    for file in [world.home(".config/regent/policy.yml"), world.project(".regent/policy.yml")] {
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{}{rule}", text.trim_end())).unwrap();
    }
    let trusted = world.run(&["trust", "--yes"]);
    assert_eq!(trusted.code, 0, "{trusted:?}");
}

pub(crate) fn marks(world: &CliFixture) -> String {
    std::fs::read_to_string(world.project("marks")).unwrap_or_default()
}

/// The last line that `--json` gave: how it ended.
pub(crate) fn last(ended: &CliOutput) -> Value {
    serde_json::from_str(ended.stdout.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

pub(crate) fn tasks(world: &CliFixture) -> Vec<Value> {
    let listed = world.run(&["--json", "task", "list"]).json();
    listed["data"]["tasks"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
}

pub(crate) fn first_id(world: &CliFixture) -> String {
    tasks(world)[0]["task"].as_str().unwrap().to_owned()
}

#[test]
fn a_resumed_agent_still_has_its_notes() {
    let world = playing(&[(
        "play",
        json!([
            says("memory.remember", json!({"key": "plan", "content": "water the fern"})),
            write("asked.md", "hi\n"),
            says("memory.recall", json!({"text": "fern"})),
            finish("done"),
        ]),
    )]);
    ask_about(&world, "asked.md");
    let waits = world.run(&["--json", "task", "run", "make notes", "--unattended", "wait"]);
    assert_eq!(waits.code, 11, "{waits:?}");
    let listed = world.run(&["--json", "approve", "list"]).json();
    let question = listed.pointer("/data/questions/0/id").and_then(Value::as_str).unwrap().to_owned();
    assert_eq!(world.run(&["approve", &question]).code, 0);
    let resumed = world.run(&["--json", "task", "resume", &first_id(&world)]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    let recalled = world
        .entries()
        .into_iter()
        .any(|entry| entry["body"]["op"] == "memory.recall" && entry["body"]["status"] == "ok");
    assert!(recalled, "the note was looked up");
    let kept = world.entries().iter().filter(|entry| entry["body"]["op"] == "memory.remember").count();
    assert!(kept >= 2, "once by each run: {kept}");
    let replayed = world.run(&["task", "replay", &first_id(&world)]);
    assert_eq!(replayed.code, 0, "{replayed:?}");
}

#[test]
fn a_task_runs_to_its_answer_and_the_ledger_tells_of_it() {
    let world = playing(&[("play", json!([write("notes.md", "hi\n"), mark("one"), finish("all done")]))]);
    let ran = world.run(&["task", "run", "make notes"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "all done\n"), "{ran:?}");
    assert!(ran.stderr.contains("fs.write") && ran.stderr.contains("process.exec"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(world.project("notes.md")).unwrap(), "hi\n");
    assert_eq!(marks(&world), "one\n");

    let listed = tasks(&world);
    assert_eq!(
        (listed.len(), &listed[0]["word"], &listed[0]["goal"]),
        (1, &json!("completed"), &json!("make notes"))
    );
    // Three turns at 100 in, 10 out; a dollar per million in, two out.
    assert_eq!(listed[0]["spent"]["tokens"], 330);
    assert_eq!(listed[0]["spent"]["money_microusd"], 360);
    let shown = world.run(&["task", "show", "t-"]);
    assert!(shown.stdout.contains("2/tool/0") && shown.stdout.contains("all done"), "{shown:?}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);

    let json = world.run_with(&["--json", "task", "run", "-"], &[], b"make notes");
    assert_eq!(json.code, 0, "{json:?}");
    let events: Vec<Value> = json.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (end, events) = events.split_last().unwrap();
    assert_eq!((&end["schema"], &end["data"]["answer"]), (&json!("regent.task.run/v1"), &json!("all done")));
    for kind in ["state", "turn", "tool", "verdict", "used", "snapshot"] {
        assert!(events.iter().any(|event| event["event"] == kind), "{kind}");
    }
}

#[test]
fn the_demonstration_of_a_task_needs_no_model_and_touches_nothing() {
    let world = CliFixture::bare();
    let ran = world.run(&["demo", "--task", "--no-model"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("the answer is correct") && ran.stdout.contains("verified"), "{ran:?}");
    assert!(!world.home(".config").exists() && !world.home(".local").exists());
    let json = last(&world.run(&["--json", "demo", "--task", "--no-model"]));
    assert_eq!((&json["ok"], &json["data"]["as_asked"]), (&json!(true), &json!(true)), "{json}");
}

#[test]
fn reports_mistakes_before_doing_anything() {
    let world = playing(&[("play", json!([finish("done")]))]);
    for (args, code, exit) in [
        (&["--json", "task", "run", " "][..], "task.goal", 2),
        (&["--json", "task", "run", "x", "--tools", "no.such"], "task.no_tool", 5),
        (&["--json", "task", "run", "x", "--budget", "lots"], "budget.value", 2),
        (&["--json", "task", "run", "x", "--model", "nosuch"], "model.unknown", 5),
        (&["--json", "task", "show", "t-nobody"], "task.unknown", 5),
        (&["--json", "task", "resume", "t-nobody"], "task.unknown", 5),
        (&["--json", "task", "replay", "t-nobody"], "task.unknown", 5),
    ] {
        let ran = world.run(args);
        assert_eq!((ran.error_code().as_str(), ran.code), (code, exit), "{args:?}: {ran:?}");
    }
    assert!(tasks(&world).is_empty());
    std::fs::write(world.home(".config/regent/config.toml"), "").unwrap();
    let ran = world.run(&["--json", "task", "run", "x"]);
    assert_eq!((ran.error_code().as_str(), ran.code), ("model.none", 5), "{ran:?}");
}

#[test]
fn a_model_on_this_machine_is_offered_a_few_tools_unless_others_are_named() {
    let world = playing(&[("play", json!([finish("done")]))]);
    let settings = world.home(".config/regent/config.toml");
    let scripted = std::fs::read_to_string(&settings).unwrap();
    // Its weights are not here, so it can't do anything; what it would be offered is recorded all the same.
    std::fs::write(&settings, format!("{scripted}[models.small]\nkind = 'local'\nmodels = ['w']\n")).unwrap();
    let offered = |goal: &str, more: &[&str]| -> Vec<String> {
        let ran = world.run(&[&["task", "run", goal], more].concat());
        let all = tasks(&world);
        let task = all.iter().find(|one| one["goal"] == goal).unwrap_or_else(|| panic!("{goal}: {ran:?}"));
        let shown = world.run(&["--json", "task", "show", task["task"].as_str().unwrap()]).json();
        shown["data"]["record"]["tools"].as_object().unwrap().keys().cloned().collect()
    };
    let few = [
        "fs.append",
        "fs.delete",
        "fs.edit",
        "fs.list",
        "fs.move",
        "fs.read",
        "fs.search",
        "fs.write",
        "shell.exec",
    ];
    assert_eq!(offered("few", &["--model", "small/w"]), few);
    assert_eq!(offered("named", &["--model", "small/w", "--tools", "fs.stat"]), ["fs.stat"]);
    let all = offered("all", &["--model", "play/m"]);
    assert!(all.len() > few.len() && few.iter().all(|one| all.iter().any(|name| name == one)), "{all:?}");
}

#[test]
fn a_task_that_is_asked_about_waits_and_goes_on_after_the_answer() {
    let world =
        playing(&[("play", json!([mark("one"), write("asked/a.txt", "hello\n"), finish("written")]))]);
    std::fs::create_dir(world.project("asked")).unwrap();
    ask_about(&world, "asked/**");
    let ran = world.run(&["--json", "task", "run", "write it"]);
    let end = last(&ran);
    assert_eq!((ran.code, &end["error"]["code"]), (11, &json!("task.waits")), "{ran:?}");
    let (task, question) = (end["data"]["task"].as_str().unwrap(), end["data"]["question"].as_str().unwrap());
    assert!(end["error"]["help"].as_str().unwrap().contains(&format!("regent approve {question}")), "{end}");
    let still = world.run(&["--json", "task", "resume", task]);
    assert_eq!(last(&still)["data"]["question"], question, "{still:?}");
    assert!(!world.project("asked/a.txt").exists());
    assert_eq!(tasks(&world)[0]["word"], "pending");
    // It waits for an approval, so nobody continues with it by accident.
    assert_eq!(world.run(&["task", "resume"]).stdout, "nothing to resume\n");

    assert_eq!(world.run(&["approve", question]).code, 0);
    let resumed = world.run(&["task", "resume", &task[..6]]);
    assert_eq!((resumed.code, resumed.stdout.as_str()), (0, "written\n"), "{resumed:?}");
    assert_eq!(marks(&world), "one\n", "what was done is replayed");
    assert!(world.project("asked/a.txt").exists());
    let over = world.run(&["--json", "task", "resume", task]);
    assert_eq!((over.code, over.error_code().as_str()), (6, "task.over"), "{over:?}");
}

#[test]
fn at_a_terminal_asks_inline_and_the_agent_gets_the_denial() {
    let turns = json!([write("asked/a.txt", "hello\n"), finish("tried")]);
    for (typed, written) in
        [(&["y"][..], true), (&[""], false), (&["what", "n"], false), (&["n write b.txt instead"], false)]
    {
        let world = playing(&[("play", turns.clone())]);
        world.write("asked/a.txt", "before\n");
        ask_about(&world, "asked/**");
        let (code, shown) = world.answering(&["task", "run", "write it"], typed);
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains("asked-in-test") && shown.contains("the test wants to be asked"), "{shown}");
        assert!(shown.contains("- before") && shown.contains("+ hello"), "what it would change: {shown}");
        let exception =
            r#"unless: {"access":["write"],"agent":"worker","path":["asked/a.txt"],"tool":"fs.write"}"#;
        assert!(shown.contains(exception), "{shown}");
        assert!(shown.contains("policy, line ") && shown.contains("attention limit 0 % used"), "{shown}");
        assert!(shown.contains("in the last 7 days it would have covered 0 other calls"), "{shown}");
        let content = std::fs::read_to_string(world.project("asked/a.txt")).unwrap();
        assert_eq!(content == "hello\n", written, "{shown}");
    }
}

#[test]
fn m4_two_lines_typed_at_one_question_do_not_answer_two() {
    let mut both = write("asked/a.txt", "a\n");
    let more = write("asked/b.txt", "b\n")["calls"][0].clone();
    both["calls"].as_array_mut().unwrap().push(more);
    let world = playing(&[("play", json!([both, finish("tried")]))]);
    ask_about(&world, "asked/**");
    // Both calls are one question; `1` answers them one by one. Both lines are typed at the first one. The second one is still asked,
    // and its answer is the one that counts.
    let (code, shown) = world.answering(&["task", "run", "write both"], &["1", "y\ny", "n"]);
    assert_eq!(code, 0, "{shown}");
    let written = ["a", "b"].map(|name| world.project(&format!("asked/{name}.txt")).exists());
    assert_eq!(written.iter().filter(|written| **written).count(), 1, "{written:?}: {shown}");
}

#[test]
fn adv_096_a_killed_process_is_resumed_and_nothing_is_done_twice() {
    let world = playing(&[("play", json!([mark("one"), slow(mark("two"), 60_000), finish("both")]))]);
    let mut child = world.start(&["task", "run", "mark"]);
    until("the first mark is there", || (marks(&world) == "one\n").then_some(()));
    // Between the steps: the model is being asked.
    until("the step has its end", || {
        let tail = world.run(&["audit", "tail"]);
        tail.stdout.matches("model.infer").nth(1).map(drop)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(tasks(&world)[0]["word"], "interrupted", "its process is gone");
    play(&world, &[("play", json!([mark("one"), mark("two"), finish("both")]))]);
    let resumed = world.run(&["--json", "task", "resume"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    assert_eq!(last(&resumed)["data"]["tasks"][0]["answer"], "both", "{resumed:?}");
    assert_eq!(marks(&world), "one\ntwo\n");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn adv_098_a_tool_that_was_killed_half_way_is_not_run_again_without_asking() {
    let long = says("process.exec", json!({"argv": ["sh", "-c", "echo one >> marks; sleep 60"]}));
    let world = playing(&[("play", json!([long, finish("over")]))]);
    let mut child = world.start(&["task", "run", "mark"]);
    until("the program runs", || (marks(&world) == "one\n").then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let resumed = world.run(&["--json", "task", "resume", &first_id(&world)]);
    let end = last(&resumed);
    assert_eq!((resumed.code, &end["error"]["code"]), (11, &json!("task.waits")), "{resumed:?}");
    let question = end["data"]["question"].as_str().unwrap();
    assert_eq!(world.run(&["deny", question, "--because", "it was made"]).code, 0);
    let resumed = world.run(&["task", "resume", &first_id(&world)]);
    assert_eq!((resumed.code, resumed.stdout.as_str()), (0, "over\n"), "{resumed:?}");
    assert_eq!(marks(&world), "one\n");
}

#[test]
fn an_interrupt_stops_between_two_steps_and_leaves_the_task_resumable() {
    let world =
        playing(&[("play", json!([mark("one"), slow(mark("two"), 1_500), mark("three"), finish("all")]))]);
    let child = world.start(&["task", "run", "mark"]);
    until("the first mark is there", || (marks(&world) == "one\n").then_some(()));
    interrupt(&child);
    let ran = ended(&child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran:?}");
    assert!(ran.stderr.contains("task.paused") && ran.stderr.contains("regent task resume"), "{ran:?}");
    assert!(!marks(&world).contains("three"));
    assert_eq!(tasks(&world)[0]["word"], "pending");
    let resumed = world.run(&["task", "resume"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    assert_eq!(marks(&world), "one\ntwo\nthree\n");
}

#[test]
fn a_task_is_cancelled_here_and_elsewhere_for_good() {
    let world = playing(&[("play", json!([mark("one"), slow(mark("two"), 60_000), finish("both")]))]);
    let child = world.start(&["task", "run", "mark"]);
    until("the first mark is there", || (marks(&world) == "one\n").then_some(()));
    let task = first_id(&world);
    let busy = world.run(&["--json", "task", "resume", &task]);
    assert_eq!((busy.code, busy.error_code().as_str()), (6, "task.busy"), "{busy:?}");
    let cancelled = world.run(&["task", "cancel", &task]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    let ran = ended(&child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran:?}");
    assert_eq!(tasks(&world)[0]["word"], "cancelled");
    assert_eq!(world.run(&["--json", "task", "cancel", &task]).error_code(), "task.over");
}

#[test]
fn a_fork_goes_its_own_way_a_replay_does_nothing_and_a_diff_shows_where_they_part() {
    let world = playing(&[
        ("shy", json!([mark("one"), mark("shy"), finish("shy")])),
        ("bold", json!([mark("one"), mark("bold"), finish("bold")])),
    ]);
    assert_eq!(world.run(&["task", "run", "mark", "--model", "shy/m"]).stdout, "shy\n");
    let first = first_id(&world);
    let wrong = world.run(&["--json", "task", "fork", &first, "--at", "9"]);
    assert_eq!((wrong.code, wrong.error_code().as_str()), (2, "task.step"), "{wrong:?}");
    let forked = world.run(&["--json", "task", "fork", &first, "--at", "2", "--model", "bold/m"]);
    let end = last(&forked);
    assert_eq!((forked.code, &end["data"]["answer"]), (0, &json!("bold")), "{forked:?}");
    let second = end["data"]["task"].as_str().unwrap();
    assert_eq!(marks(&world), "one\nshy\nbold\n", "the first step is shared");

    // Neither the models nor the tools are asked: the scripts are gone, and no mark is made.
    play(&world, &[]);
    for (task, answer) in [(first.as_str(), "shy"), (second, "bold")] {
        let replayed = world.run(&["--json", "task", "replay", task]);
        let end = replayed.json();
        assert_eq!(
            (replayed.code, &end["data"]["answer"], &end["data"]["same"]),
            (0, &json!(answer), &json!(true))
        );
    }
    assert_eq!(marks(&world), "one\nshy\nbold\n");
    let diff = world.run(&["--json", "task", "diff", &first, second]).json();
    let parted: Vec<&str> = diff["data"]["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["step"].as_str().unwrap())
        .collect();
    assert_eq!(parted, ["2/think", "2/tool/0", "3/think"]);
    assert!(world.run(&["task", "diff", &first, &first]).stdout.starts_with("no difference"));
}

#[test]
fn the_workspace_is_put_back_and_that_can_be_undone() {
    let world = playing(&[("play", json!([write("a.txt", "new\n"), write("b.txt", "b\n"), finish("done")]))]);
    world.write("a.txt", "old\n");
    assert_eq!(world.run(&["task", "run", "change"]).code, 0);
    let task = first_id(&world);
    let unasked = world.run(&["--json", "task", "rollback", &task]);
    assert_eq!((unasked.code, unasked.error_code().as_str()), (2, "terminal.needed"), "{unasked:?}");
    let (code, shown) = world.answering(&["task", "rollback", &task], &["n"]);
    assert!(code == 10 && shown.contains("a.txt") && shown.contains("b.txt"), "{code} {shown}");
    let read = |name: &str| std::fs::read_to_string(world.project(name)).unwrap_or_default();
    assert_eq!((read("a.txt"), read("b.txt")), ("new\n".to_owned(), "b\n".to_owned()));

    // To before the second turn: the first file stays as it was changed.
    assert_eq!(world.run(&["task", "rollback", &task, "--to", "2", "--yes"]).code, 0);
    assert_eq!((read("a.txt"), read("b.txt")), ("new\n".to_owned(), String::new()));
    let back = world.run(&["--json", "task", "rollback", &task, "--yes"]).json();
    assert_eq!(read("a.txt"), "old\n");
    let before = back["data"]["restored"]["before"].as_str().unwrap();
    let undone = world.run(&["task", "rollback", &task, "--to", before, "--yes"]);
    assert_eq!(undone.code, 0, "{undone:?}");
    assert_eq!(read("a.txt"), "new\n");
    let unknown = world.run(&["--json", "task", "rollback", &task, "--to", "0", "--yes"]);
    assert_eq!((unknown.code, unknown.error_code().as_str()), (5, "task.snapshot"), "{unknown:?}");
    let unknown = world.run(&["--json", "task", "rollback", &task, "--to", "99", "--yes"]);
    assert_eq!((unknown.code, unknown.error_code().as_str()), (2, "task.step"), "{unknown:?}");
}

#[test]
fn a_task_out_of_budget_stops_and_goes_on_when_there_is_more() {
    let world = playing(&[("play", json!([mark("one"), mark("two"), finish("both")]))]);
    let ran = world.run(&["--json", "task", "run", "mark", "--tools", "process.exec", "--budget", "calls=3"]);
    let end = last(&ran);
    assert_eq!((ran.code, &end["error"]["code"]), (12, &json!("task.budget")), "{ran:?}");
    assert_eq!(tasks(&world)[0]["word"], "pending");
    assert!(
        world.entries().iter().any(|entry| entry["body"]["signal"] == "BUDGET"),
        "the signal is recorded"
    );
    let task = first_id(&world);
    let again = world.run(&["--json", "task", "resume", &task]);
    assert_eq!(again.code, 12, "{again:?}");
    // What is missing is named with how much is needed, and the help is in the same unit.
    let error = last(&again)["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("may need 1 call, 0 calls left"), "{error}");
    assert!(error["help"].as_str().unwrap().contains("--budget calls=6`"), "{error}");
    let resumed = world.run(&["task", "resume", &task, "--budget", "calls=50"]);
    assert_eq!((resumed.code, resumed.stdout.as_str()), (0, "both\n"), "{resumed:?}");
    assert_eq!(marks(&world), "one\ntwo\n");
}

fn turn(calls: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> = calls.iter().map(|(tool, args)| json!({"tool": tool, "args": args})).collect();
    json!({"calls": calls, "usage": {"input": 100, "cached": 0, "output": 10, "reasoning": 0}})
}

#[test]
fn d2_three_edits_of_one_file_in_one_turn_are_all_kept() {
    let edit = |old: &str| ("fs.edit", json!({"path": "ed.txt", "old": old, "new": old.to_uppercase()}));
    let script = json!([turn(&[edit("one"), edit("two"), edit("three")]), finish("all three")]);
    for _ in 0..3 {
        let world = playing(&[("play", script.clone())]);
        world.write("ed.txt", "one\ntwo\nthree\n");
        let ran = world.run(&["task", "run", "edit"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(std::fs::read_to_string(world.project("ed.txt")).unwrap(), "ONE\nTWO\nTHREE\n");
    }
}

#[test]
fn d15_a_call_that_builds_on_another_of_its_turn_sees_what_it_did() {
    let made = ("shell.exec", json!({"command": "sleep 0.2; echo made > made.txt"}));
    let script = json!([turn(&[made, ("fs.read", json!({"path": "made.txt"}))]), finish("read")]);
    let world = playing(&[("play", script)]);
    let ran = world.run(&["--json", "task", "run", "make and read"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let events = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let read: Vec<Value> =
        events.filter(|event| event["step"] == "1/tool/1" && event["event"] == "verdict").collect();
    assert_eq!((&read[0]["word"], &read[0]["text"]), (&json!("done"), &json!("made\n")), "{read:?}");
}

#[test]
fn d2_a_file_that_the_user_changed_while_the_task_waited_is_not_replaced() {
    let world = playing(&[(
        "play",
        json!([
            says("fs.read", json!({"path": "notes.txt"})),
            write("asked.txt", "x"),
            write("notes.txt", "the agent's"),
            finish("done")
        ]),
    )]);
    world.write("notes.txt", "old");
    ask_about(&world, "asked.txt");
    let ran = world.run(&["--json", "task", "run", "rewrite"]);
    assert_eq!(ran.code, 11, "{ran:?}");
    let question = last(&ran)["data"]["question"].as_str().unwrap().to_owned();
    world.write("notes.txt", "changed by a person");
    assert_eq!(world.run(&["approve", &question]).code, 0);
    // Without an id: its question was answered, so it is among those that can continue.
    let resumed = world.run(&["--json", "task", "resume"]);
    assert_eq!(resumed.code, 21, "its change failed: {resumed:?}");
    assert!(resumed.stdout.contains("fs.changed"), "{}", resumed.stdout);
    assert_eq!(std::fs::read_to_string(world.project("notes.txt")).unwrap(), "changed by a person");
}

#[test]
fn m5_d11_rollback_survives_what_an_agent_left_and_says_what_it_left_out() {
    let command = "rm README.md; mkfifo README.md; ln main.rs .x; echo changed > main.rs; mkfifo pipe";
    let world =
        playing(&[("play", json!([says("shell.exec", json!({"command": command})), finish("done")]))]);
    world.write("README.md", "read me\n");
    world.write("main.rs", "fn main() {}\n");
    world.write(".env", "TOKEN=hunter2\n");
    let ran = world.run(&["task", "run", "spoil"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let task = first_id(&world);
    let (code, shown) = world.answering(&["task", "rollback", &task], &["n"]);
    assert!(code == 10 && shown.contains(".env (holds secrets)"), "the preview reports it: {code} {shown}");
    let back = world.run(&["--json", "task", "rollback", &task, "--yes"]);
    assert_eq!(back.code, 0, "{back:?}");
    let restored = back.json()["data"]["restored"].clone();
    assert_eq!(restored["left_out"], json!([{"path": ".env", "why": "secret"}]));
    assert_eq!(restored["removed"], json!(["pipe", ".x"]));
    let read = |name: &str| std::fs::read_to_string(world.project(name)).unwrap();
    assert_eq!((read("README.md"), read("main.rs")), ("read me\n".to_owned(), "fn main() {}\n".to_owned()));
    assert!(!world.project(".x").exists() && !world.project("pipe").exists());
    let tail = world.run(&["--json", "audit", "tail"]);
    assert!(tail.stdout.contains("workspace.restore"), "the call is in the ledger: {}", tail.stdout);
}
