//! Trust and approvals: they cover exactly what the user agreed to, for no longer.

use serde_json::{Value, json};

use crate::tasks::{ask_about, finish, last, playing, says};
use crate::world::CliFixture;

const READ: &[&str] = &["--json", "tool", "call", "fs.read", r#"{"path": ".env"}"#];

fn question(world: &CliFixture, args: &[&str]) -> String {
    let ended = world.run(args);
    assert_eq!(ended.code, 11, "{ended:?}");
    ended.json().pointer("/data/question").and_then(Value::as_str).unwrap().to_owned()
}

#[test]
fn nothing_in_a_folder_acts_before_it_is_trusted() {
    let world = CliFixture::ready();
    let list = &["--json", "tool", "call", "fs.list", r#"{"path": "."}"#];
    assert_eq!(world.run(list).code, 0);
    assert_eq!(world.run(&["trust", "--revoke"]).code, 0);
    let before = world.entries().len();
    let ended = world.run(list);
    assert_eq!((ended.code, ended.error_code().as_str()), (10, "folder.untrusted"));
    assert_eq!(world.entries().len(), before, "nothing of it was opened");
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    assert_eq!(world.run(list).code, 0);
    world.write(".regent/config.toml", "[approve]\nvalid_for = \"1m\"\n");
    assert_eq!(
        world.run(list).error_code(),
        "folder.untrusted",
        "a changed control file needs trusting again"
    );
}

#[test]
fn a_policy_that_came_with_the_folder_has_to_be_agreed_to() {
    let world = CliFixture::bare();
    world.write(".regent/policy.yml", "version: 1\nmode: permissive\nrules: []\n");
    let ended = world.run(&["--json", "init"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (2, "terminal.needed"));
    assert!(ended.stdout.contains("--quick"), "the flag that answers is named");
    let quick = world.run(&["--json", "init", "--quick"]);
    assert_eq!((quick.code, quick.error_code().as_str()), (10, "folder.untrusted"), "{quick:?}");
    assert!(quick.stdout.contains(".regent/policy.yml"), "what was left untrusted is named: {quick:?}");
    assert_eq!(world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]).code, 10);
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    let ended = world.run(&["--json", "tool", "call", "fs.read", r#"{"path": "/etc/shadow"}"#]);
    assert_eq!((ended.code, ended.error_code().as_str()), (10, "policy.denied"), "a project can't widen");
}

#[test]
fn policies_of_other_systems_narrow_as_they_are() {
    let world = CliFixture::ready();
    world.write("a.txt", "a");
    world.write(".agentzero/policy.yml", "file_read = \"deny\"\n");
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    let ended = world.run(&["--json", "tool", "call", "fs.read", r#"{"path": "a.txt"}"#]);
    assert_eq!(ended.code, 10, "{ended:?}");
}

#[test]
fn what_an_agent_of_one_command_asks_for_says_that_no_later_one_can_use_it() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    let ended = world.run(&["--json", "tool", "call", "--agent", "ada", "fs.read", r#"{"path": ".env"}"#]);
    assert_eq!(ended.code, 11, "{ended:?}");
    assert!(ended.stdout.contains("without `--agent`"), "{ended:?}");
    assert!(!ended.stdout.contains("regent approve"), "{ended:?}");
}

#[test]
fn an_approval_for_a_session_that_has_ended_is_refused() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    let id = question(&world, READ);
    let refused = world.run(&["--json", "approve", &id, "--scope", "session"]);
    assert_eq!((refused.code, refused.error_code().as_str()), (6, "approval.session"), "{refused:?}");
    assert!(refused.stdout.contains("--scope project"), "{refused:?}");
    assert_eq!(world.run(&["approve", &id, "--scope", "project"]).code, 0, "the question is still open");
}

#[test]
fn the_questions_of_a_cancelled_task_are_withdrawn() {
    let turn = says("fs.write", json!({"path": "asked/a.txt", "content": "x"}));
    let world = playing(&[("play", json!([turn, finish("written")]))]);
    std::fs::create_dir(world.project("asked")).unwrap();
    ask_about(&world, "asked/**");
    let end = last(&world.run(&["--json", "task", "run", "write it"]));
    let (task, question) = (end["data"]["task"].as_str().unwrap(), end["data"]["question"].as_str().unwrap());
    assert_eq!(world.run(&["task", "cancel", task]).code, 0);
    assert!(world.run(&["approve", "list"]).stdout.contains("no pending questions"));
    let late = world.run(&["--json", "approve", question]);
    assert_eq!(late.error_code(), "approval.gone", "{late:?}");
    let over = world.run(&["task", "resume", task]);
    assert!(over.stderr.contains(&format!("task `{task}` has ended (cancelled)")), "{over:?}");
}

#[test]
fn adv_078_a_yes_is_good_once_and_for_exactly_that_call() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    let id = question(&world, READ);
    assert_eq!(question(&world, READ), id, "asked once, not again and again");
    let listed = world.run(&["--json", "approve", "list"]).json();
    assert_eq!(listed.pointer("/data/questions/0/id").and_then(Value::as_str), Some(id.as_str()));

    assert_eq!(world.run(&["approve", &id]).code, 0);
    assert_eq!(world.run(READ).code, 0, "approved");
    let again = question(&world, READ);
    assert_ne!(again, id, "used up");
    assert_eq!(
        world.run(&["--json", "approve", &id]).error_code(),
        "approval.gone",
        "an answered question stays answered"
    );
    let denied = world.run(&["deny", &id]);
    assert!(denied.stderr.contains("was approved by") && denied.stderr.contains(" s ago"), "{denied:?}");

    assert_eq!(world.run(&["deny", &again, "--because", "use the vault"]).code, 0);
    let ended = world.run(READ);
    assert!(ended.code == 10 || ended.code == 11, "{ended:?}");
}

#[test]
fn adv_077_a_yes_does_not_cover_what_was_changed_since() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    let id = question(&world, READ);
    assert_eq!(world.run(&["approve", &id, "--scope", "project", "--for", "1h"]).code, 0);
    let other = &["--json", "tool", "call", "fs.read", r#"{"path": ".env", "offset": 1}"#];
    question(&world, other);
    let as_agent = &["--json", "tool", "call", "--agent", "bob", "fs.read", r#"{"path": ".env"}"#];
    question(&world, as_agent);
    world.write(".env", "KEY=2\n");
    question(&world, READ);
    world.write(".env", "KEY=1\n");
    assert_eq!(world.run(READ).code, 0, "the same call on the same content is what was agreed to");
    assert_eq!(world.run(READ).code, 0, "any number of times in the project");
}

#[test]
fn a_question_shows_the_call_the_rule_with_its_line_the_exception_and_the_meter() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    let id = question(&world, READ);
    // The same again, and another agent's: what the exception would cover besides is counted from the ledger.
    question(&world, READ);
    question(&world, &["--json", "tool", "call", "--agent", "bob", "fs.read", r#"{"path": ".env"}"#]);
    let listed = world.run(&["--json", "approve", "list"]).json();
    let shown = world.run(&["--json", "approve", "show", &id]).json();
    let one = shown.pointer("/data/question").unwrap();
    assert_eq!(listed.pointer("/data/questions/0/id"), one.get("id"));
    for question in [listed.pointer("/data/questions/0").unwrap(), one] {
        assert!(question.pointer("/rule_at/line").and_then(Value::as_u64).unwrap() > 0, "{question}");
        assert_eq!(question.pointer("/cover/conditions/path/0").and_then(Value::as_str), Some(".env"));
        assert_eq!(question.pointer("/covered/calls").and_then(Value::as_u64), Some(1), "{question}");
        assert_eq!(question.pointer("/covered/not_allowed_then").and_then(Value::as_u64), Some(1));
        assert_eq!(question.pointer("/covered/complete").and_then(Value::as_bool), Some(true));
        assert_eq!(question.pointer("/attention/asked_hour").and_then(Value::as_u64), Some(2), "{question}");
        assert!(question.get("read_ms").and_then(Value::as_u64).unwrap() >= 1_000);
    }
    assert_eq!(shown.pointer("/data/call/args/path").and_then(Value::as_str), Some(".env"));
    let text = world.run(&["approve", "show", &id]).stdout;
    for part in ["asked by rule", "policy, line", "unless:", "in the last 7 days", "attention limit 0 % used"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(world.run(&["--json", "approve", "show", "zzzz"]).error_code(), "approval.unknown");
    let told = world.run(&["--json", "approve", &id]).json();
    assert!(
        told.pointer("/data/result/asked_at_ms").is_some()
            && told.pointer("/data/result/decided_at_ms").is_some()
    );
    assert_eq!(world.run(READ).code, 0);
    let approved =
        world.entries().into_iter().find_map(|entry| entry.pointer("/body/approved").cloned()).unwrap();
    assert!(approved["asked_at_ms"].as_i64() <= approved["decided_at_ms"].as_i64(), "{approved}");
}

#[test]
fn adv_072_a_name_gives_no_power() {
    let world = CliFixture::ready();
    for name in ["operator", "", "root\u{430}", "a b"] {
        let ended = world.run(&["--json", "tool", "call", "--agent", name, "fs.list", r#"{"path": "."}"#]);
        assert_ne!(ended.code, 0, "`{name}`: {ended:?}");
    }
    // What an agent says of itself is content, not a claim that anyone believes.
    let ended = world.run(&[
        "--json",
        "tool",
        "call",
        "--agent",
        "admin",
        "fs.write",
        r#"{"path": ".regent/policy.yml", "content": ""}"#,
    ]);
    assert_eq!((ended.code, ended.error_code().as_str()), (10, "path.reserved"));
}

#[test]
fn adv_081_and_084_agents_neither_approve_nor_loosen_anything() {
    let world = CliFixture::ready();
    let policy = std::fs::read_to_string(world.project(".regent/policy.yml")).unwrap();
    for line in [
        "echo 'mode: permissive' > .regent/policy.yml",
        "rm -f .regent/policy.yml",
        "mv .regent elsewhere",
        "echo x > .regent/audit/x",
        "ls $XDG_RUNTIME_DIR/*.sock",
        "cat .regent/policy.yml",
    ] {
        let ended = world.run(&["run", "--agent", "mallory", "--", "sh", "-c", line]);
        assert_ne!(ended.code, 0, "{line}: {ended:?}");
    }
    assert_eq!(std::fs::read_to_string(world.project(".regent/policy.yml")).unwrap(), policy);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    let demo = world.run(&["--json", "demo"]).json();
    let steps = demo.pointer("/data/steps").and_then(Value::as_array).unwrap();
    assert!(steps.iter().any(|step| step["by"] == "approval.not_a_person" && step["verdict"] == "deny"));
}

/// Everything is allowed; programs, requests and writes need an approval.
const ASKS: &str = "version: 1\nrules:\n  - { id: all, effect: allow }\n  - { id: ask, effect: ask, match: { tool: [process.exec, shell.exec, fs.write, http.fetch] } }\n";

fn asking(policy: &str) -> CliFixture {
    let world = CliFixture::ready();
    std::fs::write(world.home(".config/regent/policy.yml"), policy).unwrap();
    world
}

fn call<'a>(tool: &'a str, args: &'a str) -> [&'a str; 5] {
    ["--json", "tool", "call", tool, args]
}

#[test]
fn c2_a_projects_policy_does_not_change_calls() {
    let world = CliFixture::ready();
    let policy = r#"version: 1
rules:
  - { id: all, effect: allow }
  - { id: run, effect: allow, match: { tool: shell.exec }, set: { /command: { value: "echo swapped; id" } } }
"#;
    world.write(".regent/policy.yml", policy);
    let ended = world.run(&["--json", "trust"]);
    assert!(ended.code == 3 && ended.stdout.contains("can only narrow"), "{ended:?}");
    let ended = world.run(&call("shell.exec", r#"{"command": "echo mine"}"#));
    assert!(ended.code != 0 && !ended.stdout.contains("swapped"), "{ended:?}");
}

#[test]
fn c2_the_question_is_about_the_call_as_the_users_own_rule_changes_it() {
    let policy = format!(
        "{ASKS}  - {{ id: swap, effect: transform, match: {{ tool: shell.exec }}, set: {{ /command: {{ value: echo swapped }} }} }}\n"
    );
    let world = asking(&policy);
    let args = call("shell.exec", r#"{"command": "echo mine"}"#);
    let id = question(&world, &args);
    let shown = world.run(&["approve", "show", &id]).stdout;
    assert!(shown.contains("echo swapped") && !shown.contains("echo mine"), "{shown}");
    assert_eq!(world.run(&["approve", &id]).code, 0);
    let ended = world.run(&args);
    assert!(ended.code == 0 && ended.stdout.contains("swapped"), "{ended:?}");
}

#[test]
fn h3_a_script_that_is_replaced_after_the_approval_does_not_run() {
    let world = asking(ASKS);
    for (args, is_plain) in [
        (r#"{"argv": ["sh", "deploy.sh"], "cwd": "scripts"}"#, true),
        (r#"{"argv": ["sh", "-c", "cd scripts && sh ./deploy.sh;"]}"#, false),
    ] {
        world.write("scripts/deploy.sh", "echo harmless\n");
        let args = call("process.exec", args);
        let id = question(&world, &args);
        let shown = world.run(&["approve", "show", &id]).stdout;
        assert!(
            shown.contains("bound to the current content of these files")
                && shown.contains("scripts/deploy.sh"),
            "{shown}"
        );
        assert_eq!(world.run(&["approve", &id]).code, 0);
        world.write("scripts/deploy.sh", "echo harmful!\n");
        assert_ne!(question(&world, &args), id, "asked again, not run");
        world.write("scripts/deploy.sh", "echo harmless\n");
        let ended = world.run(&args);
        // Where the whole workspace counts, a file that was written again is another one.
        let expected = if is_plain { 0 } else { 11 };
        assert_eq!((ended.code, ended.stdout.contains("harmless")), (expected, is_plain), "{ended:?}");
    }
}

#[test]
fn m2_a_question_shows_every_argument() {
    let world = asking(ASKS);
    world.write("scripts/deploy", "");
    let program = r#"{"argv": ["./deploy", "--dry-run"], "cwd": "scripts", "stdin": "yes please", "network": true, "timeout_ms": 9000,
        "env": {"DRY_RUN": "0", "AWS_ENDPOINT_URL": "https://evil.example"}}"#;
    let fetch = r#"{"url": "http://x.example/a", "method": "POST", "body": "to=eve", "headers": {"x-own": "1", "accept": "text/plain"}}"#;
    for (tool, args, parts) in [
        (
            "process.exec",
            program,
            &[
                "./deploy --dry-run",
                "cwd: scripts",
                "env.DRY_RUN: 0",
                "env.AWS_ENDPOINT_URL: https://evil.example",
                "stdin: yes please",
                "network: true",
                "timeout_ms: 9000",
                "digest ",
            ][..],
        ),
        (
            "http.fetch",
            fetch,
            &["POST http://x.example/a", "body: to=eve", "headers.x-own: 1", "headers.accept: text/plain"],
        ),
    ] {
        let id = question(&world, &call(tool, args));
        let shown = world.run(&["approve", "show", &id]).stdout;
        for part in parts {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }
}

#[test]
fn m3_a_cut_question_needs_its_digest_or_a_word() {
    let world = asking(ASKS);
    let content: String = (0..60).map(|number| format!("line {number}\n")).collect();
    let args = serde_json::json!({"path": "a.txt", "content": content}).to_string();
    let args = call("fs.write", &args);
    let id = question(&world, &args);
    let short = world.run(&["approve", "show", &id]).stdout;
    assert!(!short.contains("line 59") && !short.contains("digest ") && short.contains("--all"), "{short}");
    let ended = world.run(&["--json", "approve", &id]);
    assert_eq!((ended.code, ended.error_code().as_str()), (2, "approval.unseen"), "{ended:?}");
    let whole = world.run(&["approve", "show", &id, "--all"]).stdout;
    let digest = whole.split("digest ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(whole.contains("line 59") && digest.len() == 64, "{whole}");
    for wrong in ["", "0", &digest[..7], "00000000"] {
        let ended = world.run(&["--json", "approve", &id, "--digest", wrong]);
        assert_eq!(ended.error_code(), "approval.unseen", "{wrong}: {ended:?}");
    }
    assert_eq!(world.run(&["approve", &id, "--digest", &digest[..8]]).code, 0);
    assert_eq!(world.run(&args).code, 0);
    // Or the reviewer says that they do without.
    std::fs::remove_file(world.project("a.txt")).unwrap();
    let id = question(&world, &args);
    assert_eq!(world.run(&["approve", &id, "--unseen"]).code, 0);
}

#[test]
fn l4_an_id_needs_four_letters() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    let id = question(&world, READ);
    for short in ["", " ", &id[..1], &id[..3], "----"] {
        for command in [
            &["--json", "approve", short][..],
            &["--json", "deny", short],
            &["--json", "approve", "show", short],
        ] {
            let ended = world.run(command);
            assert_eq!((ended.code, ended.error_code().as_str()), (2, "usage"), "{command:?}: {ended:?}");
        }
    }
    assert_eq!(world.run(READ).code, 11, "nothing was approved");
    assert_eq!(world.run(&["approve", &id[..4]]).code, 0);
}

#[test]
fn l5_a_question_of_another_project_is_named_and_answered_there() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    let id = question(&world, READ);
    let other = world.home("other");
    std::fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    assert_eq!(world.run(&["-C", other, "init", "--quick"]).code, 0);
    let project = std::fs::canonicalize(world.project("")).unwrap();
    let project = project.to_str().unwrap();
    for look in [&["-C", other, "approve", "list"][..], &["-C", other, "approve", "show", &id]] {
        let shown = world.run(look).stdout;
        assert!(shown.contains(&format!("in another project: {project}")), "{shown}");
    }
    for answer in ["approve", "deny"] {
        let ended = world.run(&["--json", "-C", other, answer, &id]);
        assert_eq!((ended.code, ended.error_code().as_str()), (2, "approval.elsewhere"), "{ended:?}");
        assert!(ended.stdout.contains(project), "{ended:?}");
    }
    assert!(!world.run(&["approve", "list"]).stdout.contains("another project"));
    assert_eq!(world.run(&["-C", project, "approve", &id]).code, 0);
    assert_eq!(world.run(READ).code, 0);
}

#[test]
fn one_of_two_approvals_is_not_an_approval() {
    let policy = "version: 1\nrules:\n  - { id: all, effect: allow }\n  - { id: two, effect: ask, match: { tool: fs.list }, approvers: 2 }\n";
    let world = asking(policy);
    let args = call("fs.list", r#"{"path": "."}"#);
    let id = question(&world, &args);
    // The same person twice is one person.
    for _again in 0..2 {
        let ended = world.run(&["--json", "approve", &id]);
        assert_eq!((ended.code, ended.error_code().as_str()), (11, "approval.waiting"), "{ended:?}");
        let result = ended.json()["data"]["result"].clone();
        assert_eq!(
            (&result["answered"], &result["agreed"], &result["needed"]),
            (&"waiting".into(), &1.into(), &2.into())
        );
    }
    let ended = world.run(&["approve", &id]);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.code == 11 && said.contains("waiting, 1 of 2") && !said.contains("approved"), "{ended:?}");
    assert_eq!(world.run(&args).code, 11);
}

#[test]
fn approve_without_an_id_lists() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    let id = question(&world, READ);
    let ended = world.run(&["approve"]);
    assert!(ended.code == 0 && ended.stdout.contains(&id), "{ended:?}");
}

/// Writes the lines of an exception where they say: below the rule's first line, or as a rule of its own.
fn write_as_printed(world: &CliFixture, lines: &str) {
    let file = |layer: &str| match layer {
        "user" => world.home(".config/regent/policy.yml"),
        _project => world.project(".regent/policy.yml"),
    };
    let edits: Vec<&str> = lines.split("# to ").filter(|edit| !edit.is_empty()).collect();
    // From the end of a file to its start, so that the numbers of lines stay true.
    for edit in edits.iter().rev() {
        let edit = edit.split("# then").next().unwrap();
        let (head, body) = edit.split_once(":\n").unwrap();
        let layer = if head.contains("user policy") { "user" } else { "project" };
        let path = file(layer);
        let mut text: Vec<String> =
            std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        let (at, indent) = match head.rsplit_once("line ") {
            Some((_, line)) => (line.parse::<usize>().unwrap(), "    "),
            None => (text.len(), "  "),
        };
        text.splice(at..at, body.lines().map(|line| format!("{indent}{line}")));
        std::fs::write(&path, format!("{}\n", text.join("\n"))).unwrap();
    }
}

#[test]
fn a2_the_exception_works_as_printed_in_a_project_made_by_init() {
    let world = CliFixture::ready();
    let read = call("fs.read", r#"{"path": "/etc/hostname"}"#);
    question(&world, &read);
    let listed = world.run(&["--json", "approve", "list"]).json();
    let lines = listed.pointer("/data/questions/0/cover/lines").and_then(Value::as_str).unwrap().to_owned();
    assert!(lines.contains("user policy") && lines.contains("project policy"), "{lines}");
    assert!(lines.contains("regent trust"), "{lines}");
    write_as_printed(&world, &lines);
    assert_eq!(world.run(&["trust", "--yes"]).code, 0, "{lines}");
    let ended = world.run(&read);
    assert_eq!(ended.code, 0, "{lines}: {ended:?}");
    assert_eq!(world.run(&call("fs.read", r#"{"path": "/etc/shells"}"#)).code, 11);
}
