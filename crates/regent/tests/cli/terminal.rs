//! At a terminal: questions are asked there, only an explicit `y` approves, and no outside text drives it.

use std::io::{Read, Write};

use crate::running::until;
use crate::world::{CliFixture, INTERRUPT};

const READ: &[&str] = &["tool", "call", "fs.read", r#"{"path": ".env"}"#];

#[test]
fn only_an_explicit_yes_approves() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    for (typed, exit) in [("", 10), ("n", 10), ("sure", 10), ("y", 0)] {
        let (code, shown) = world.answering(READ, &[typed]);
        assert!(
            shown.contains("[y/N]") && shown.contains(".env") && shown.contains("secrets-in-workspace"),
            "{shown}"
        );
        assert_eq!(code, exit, "{typed:?}: {shown}");
        assert_eq!(shown.contains("KEY=1"), exit == 0, "{shown}");
        // A denial is remembered for the session that asked; each run of the program is its own session.
    }
    let (code, shown) =
        world.at_terminal(&["--json", "tool", "call", "fs.read", r#"{"path": ".env"}"#], "y\n");
    assert_eq!(code, 11, "with --json nobody is asked: {shown}");
}

#[test]
fn m4_what_was_typed_before_a_question_does_not_answer_it() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    // As fast as one can: before the program has even begun. The answer that counts is the one at the prompt.
    let (code, shown) = world.on_terminal(READ, "y\ny\ny\n", &["n"]);
    assert_eq!(code, 10, "{shown}");
    assert!(!shown.contains("KEY=1"), "{shown}");
    // A file that came with the folder is trusted by the same rule.
    let world = CliFixture::bare();
    world.write(".regent/policy.yml", "version: 1\nrules: []\n");
    let (code, shown) = world.on_terminal(&["init"], "y\n", &["n"]);
    assert_eq!(code, 10, "{shown}");
}

#[test]
fn m3_a_cut_call_must_be_read_in_full_before_approval() {
    let world = CliFixture::ready();
    let asks = "version: 1\nrules:\n  - { id: all, effect: allow }\n  - { id: ask, effect: ask, match: { tool: shell.exec } }\n";
    std::fs::write(world.home(".config/regent/policy.yml"), asks).unwrap();
    let line = format!("{}echo HIDDEN-PART > made.txt", "true\n".repeat(60));
    let call = serde_json::json!({"command": line}).to_string();
    let args = ["tool", "call", "shell.exec", call.as_str()];
    let (code, shown) = world.answering(&args, &["y", ""]);
    assert_eq!(code, 10, "{shown}");
    assert!(shown.contains("more lines") && !world.project("made.txt").exists(), "{shown}");
    let (code, shown) = world.answering(&args, &["y", "a", "y"]);
    assert!(shown.contains("\n    echo HIDDEN-PART") && shown.contains("digest "), "{shown}");
    assert_eq!((code, world.project("made.txt").exists()), (0, true), "{shown}");
}

#[test]
fn a_question_can_be_interrupted_and_stays_open() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    let (code, shown) = world.answering(READ, &[INTERRUPT]);
    assert!(shown.contains("nothing was done") && !shown.contains("KEY=1"), "{shown}");
    assert_eq!(code, 130, "{shown}");
    assert_eq!(open_questions(&world).len(), 1);
}

#[test]
fn a_question_at_the_terminal_is_answered_from_another_one() {
    for (word, exit) in [("approve", 0), ("deny", 10)] {
        let world = CliFixture::ready();
        world.write(".env", "KEY=1\n");
        let (code, shown) = std::thread::scope(|scope| {
            let asked = scope.spawn(|| world.answering(READ, &[]));
            let answered = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !open_questions(&world)
                .iter()
                .any(|id| world.run(&[word, id, "--unseen"][..if word == "deny" { 2 } else { 3 }]).code == 0)
            {
                assert!(std::time::Instant::now() < answered, "nobody was asked");
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            asked.join().unwrap()
        });
        assert_eq!((code, shown.contains("KEY=1")), (exit, exit == 0), "{shown}");
        assert!(shown.contains("answered from another terminal"), "{shown}");
    }
}

fn open_questions(world: &CliFixture) -> Vec<String> {
    let listed = world.run(&["--json", "approve", "list"]).json();
    let questions = listed.pointer("/data/questions").and_then(|questions| questions.as_array());
    let id = |question: &serde_json::Value| question.get("id").and_then(|id| id.as_str()).map(str::to_owned);
    questions.map(|questions| questions.iter().filter_map(id).collect()).unwrap_or_default()
}

/// What would drive a terminal, and a part of it that is still to be read when it is shown.
const HOSTILE: &[(&str, &str, &str)] = &[
    ("a link (OSC 8)", "\u{1b}]8;;http://evil.test\u{7}click\u{1b}]8;;\u{7}", "]8;;http://evil.test"),
    ("the clipboard (OSC 52)", "\u{1b}]52;c;ZXZpbA==\u{7}", "]52;c;ZXZpbA=="),
    ("the title (OSC 0)", "\u{1b}]0;owned\u{7}", "]0;owned"),
    ("the title, ended otherwise (OSC 2)", "\u{1b}]2;owned\u{1b}\\", "]2;owned"),
    ("a question to the terminal (DECRQSS)", "\u{1b}P$qm\u{1b}\\", "P$qm"),
    ("where the cursor is (DSR)", "\u{1b}[6n", "[6n"),
    ("an empty screen (CSI)", "\u{1b}[2J\u{1b}[H", "[2J"),
    ("CSI in one character", "\u{9b}31mred", "31mred"),
    ("text turned around", "\u{202e}gpj.exe", "gpj.exe"),
    ("a line drawn over", "fine\rowned", "owned"),
];

/// Nothing that a terminal would act on is left. A line ends in `\r\n` there.
fn is_inert(shown: &str) -> bool {
    let shown = shown.replace("\r\n", "\n");
    !shown.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\r', '\u{8}'])
}

#[test]
fn adv_010_output_is_inert_on_a_terminal() {
    let world = CliFixture::ready();
    for (what, sequence, left) in HOSTILE {
        world.write("evil.txt", sequence);
        let shell = r#"{"command": "cat evil.txt; cat evil.txt >&2; exit 3"}"#;
        for (args, shows) in [
            (&["tool", "call", "fs.read", r#"{"path": "evil.txt"}"#][..], true),
            (&["--json", "tool", "call", "fs.read", r#"{"path": "evil.txt"}"#], true),
            (&["tool", "call", "shell.exec", shell], true),
            (&["audit", "tail"], false),
        ] {
            let (_, shown) = world.at_terminal(args, "");
            assert!(is_inert(&shown), "{what}, {args:?}: {shown:?}");
            assert!(!shows || shown.contains(left), "{what} is shown, not swallowed: {args:?}: {shown:?}");
        }
    }
    // What programs wrote is in the payloads; the lines that people and other programs read are inert as they lie there.
    let mut lines = 0;
    for folder in walk(&world.project(".regent/audit")) {
        if folder.extension().is_some_and(|ending| ending == "jsonl") {
            let text = std::fs::read_to_string(&folder).unwrap();
            assert!(is_inert(&text), "{}", folder.display());
            lines += text.lines().count();
        }
    }
    assert!(lines > 40, "{lines}");
}

#[test]
fn adv_010_a_question_is_inert_and_shows_what_it_is_about() {
    let world = CliFixture::ready();
    let asks = "version: 1\nrules:\n  - { id: all, effect: allow }\n  - { id: ask, effect: ask, match: { tool: [shell.exec, fs.write] } }\n";
    std::fs::write(world.home(".config/regent/policy.yml"), asks).unwrap();
    for (what, sequence, left) in HOSTILE {
        let calls = [
            ("shell.exec", serde_json::json!({"command": format!("echo {sequence}")})),
            ("fs.write", serde_json::json!({"path": "a.txt", "content": sequence})),
        ];
        for (tool, args) in calls {
            let args = args.to_string();
            let (code, shown) = world.answering(&["tool", "call", tool, &args], &["n"]);
            assert_eq!(code, 10, "{what}: {shown:?}");
            assert!(is_inert(&shown), "{what}: {shown:?}");
            assert!(shown.contains("[y/N]") && shown.contains(left), "{what}: {shown:?}");
            // Left open by a run that nobody was at, it is listed by another.
            assert_eq!(world.run(&["tool", "call", tool, &args]).code, 11, "{what}");
        }
        for list in [&["approve", "list"][..], &["--json", "approve", "list"], &["audit", "tail"]] {
            let (_, shown) = world.at_terminal(list, "");
            assert!(is_inert(&shown), "{what}, {list:?}: {shown:?}");
        }
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn a_program_gets_the_terminal_that_the_person_has() {
    let world = CliFixture::ready();
    let (code, shown) = world.at_terminal(
        &["run", "--", "sh", "-c", "test -t 0 && test -t 1 && read x && echo got $x"],
        "hello\n",
    );
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("got hello"), "{shown}");
}

#[test]
fn l9_a_program_at_the_terminal_does_not_reach_the_clipboard_or_the_title() {
    let world = CliFixture::ready();
    let script = r"stty size; printf 'one\033]52;c;ZXZpbA==\007two\033]0;owned\033\\three\033[31mred\033[0m\033P$qm\033\\four\n'; stty -echo raw; exit 7";
    let (code, shown) = world.at_terminal(&["run", "--no-network", "--", "sh", "-c", script], "");
    assert_eq!(code, 7, "{shown:?}");
    assert!(shown.contains("onetwothree\u{1b}[31mred\u{1b}[0mfour"), "{shown:?}");
    assert!(!shown.contains("]52;") && !shown.contains("owned") && !shown.contains("P$q"), "{shown:?}");
}

#[test]
fn init_asks_before_it_trusts_what_came_with_the_folder() {
    for (typed, exit) in [("", 10), ("y", 0)] {
        let world = CliFixture::bare();
        world.write(".regent/policy.yml", "version: 1\nrules: []\n");
        let (code, shown) = world.answering(&["init"], &[typed]);
        assert_eq!(code, exit, "{shown}");
        assert_eq!(world.home(".config/regent/policy.yml").exists(), exit == 0, "a denial changes nothing");
    }
}

/// A policy whose default limit of time is so short, with a rule that may have a limit of its own.
fn with_time_limits(world: &CliFixture, default: &str, rule: &str) {
    let text = format!(
        "version: 1\nlimits: {{ wall: {default} }}\nrules:\n  - {{ id: all, effect: allow{rule} }}\n"
    );
    for policy in [world.home(".config/regent/policy.yml"), world.project(".regent/policy.yml")] {
        std::fs::write(policy, &text).unwrap();
    }
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
}

#[test]
fn a_program_on_the_terminal_outlasts_the_default_time_limit_and_not_that_of_a_rule() {
    const SLEEPS: &[&str] = &["run", "--no-network", "--", "sh", "-c", "sleep 3; echo en\"\"ded"];
    let world = CliFixture::ready();
    with_time_limits(&world, "1s", "");
    let (code, shown) = world.at_terminal(SLEEPS, "");
    assert!(code == 0 && shown.contains("ended"), "{code} {shown}");
    let piped = world.run(SLEEPS);
    assert!(piped.code != 0 && piped.stderr.contains("time limit of 1 s"), "{piped:?}");
    with_time_limits(&world, "10min", ", limits: { wall: 1s }");
    let (code, shown) = world.at_terminal(SLEEPS, "");
    assert!(code != 0 && !shown.contains("ended") && shown.contains("time limit of 1 s"), "{code} {shown}");
}

/// A shell's terminal: types, and sees what was shown.
struct ShellTerminal {
    keyboard: std::fs::File,
    seen: std::sync::Arc<std::sync::Mutex<String>>,
}

impl ShellTerminal {
    fn open(world: &CliFixture) -> Self {
        let (keyboard, mut screen) = world.shell();
        let seen = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let shown = std::sync::Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Self { keyboard, seen }
    }

    fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn see(&self, text: &str) {
        until(text, || self.seen.lock().unwrap().contains(text).then_some(()));
    }
}

#[test]
fn time_in_which_ctrl_z_stopped_a_program_does_not_count() {
    let world = CliFixture::ready();
    with_time_limits(&world, "10min", ", limits: { wall: 4s }");
    let mut shell = ShellTerminal::open(&world);
    // In two parts, so that the echo of what is typed isn't taken for what is meant.
    shell.keys("$REGENT run --no-network -- sh -c 'echo be\"\"gun; read x; echo he\"\"ard $x'\n");
    shell.see("begun");
    shell.keys("\u{1a}");
    shell.see("Stopped");
    std::thread::sleep(std::time::Duration::from_secs(6));
    shell.keys("fg\n");
    let again = || (shell.seen.lock().unwrap().matches("run --no-network").count() >= 3).then_some(());
    until("the job is back", again);
    // Long enough to be killed, had the deadline passed.
    std::thread::sleep(std::time::Duration::from_millis(500));
    shell.keys("hello\n");
    shell.see("heard hello");
    shell.keys("exit\n");
}

#[test]
fn ctrl_z_stops_the_program_with_the_shells_job_and_fg_continues_it() {
    let world = CliFixture::ready();
    let (mut keyboard, screen) = world.shell();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let shown = std::sync::Arc::clone(&seen);
    let reader = std::thread::spawn(move || {
        let (mut screen, mut buffer) = (screen, [0; 4096]);
        while let Ok(count @ 1..) = screen.read(&mut buffer) {
            shown.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    });
    let see = |text: &str| until(text, || seen.lock().unwrap().contains(text).then_some(()));
    let mut type_in = |keys: &str| keyboard.write_all(keys.as_bytes()).unwrap();
    // In two parts, so that the echo of what is typed isn't taken for what is meant.
    type_in("$REGENT run --no-network -- sh -c 'echo be\"\"gun; read x; echo he\"\"ard $x'\n");
    see("begun");
    type_in("\u{1a}");
    see("Stopped");
    type_in("stty -a | grep -q -- '-icanon' || echo coo\"\"ked\n");
    see("cooked");
    type_in("fg\n");
    until("the job is back", || {
        (seen.lock().unwrap().matches("run --no-network").count() >= 3).then_some(())
    });
    type_in("hello\n");
    see("heard hello");
    // What is typed while the program runs is the program's: the shell must have the terminal back.
    until("a prompt", || {
        let seen = seen.lock().unwrap();
        seen.rsplit("heard hello").next().is_some_and(|after| after.contains("bash-")).then_some(())
    });
    type_in("exit\n");
    reader.join().unwrap();
}
