//! What goes wrong has its exit code and its error code, for people and with `--json`.

use serde_json::json;

use crate::tasks::{finish, playing};
use crate::world::CliFixture;

/// Runs cases: arguments, exit code, error code.
fn check(world: &CliFixture, cases: &[(&[&str], i32, &str)]) {
    for (args, exit, code) in cases {
        let ended = world.run(args);
        assert_eq!(ended.code, *exit, "{args:?}: {ended:?}");
        assert!(*exit != 0 || !ended.stdout.is_empty() || args.contains(&"run"), "{args:?} says nothing");
        // Options of ours go before a program's own words.
        let json: Vec<&str> = std::iter::once("--json").chain(args.iter().copied()).collect();
        let ended = world.run(&json);
        assert_eq!(ended.code, *exit, "{json:?}: {ended:?}");
        assert_eq!(ended.error_code(), *code, "{json:?}: {ended:?}");
    }
}

#[test]
fn without_anything_set_up() {
    check(
        &CliFixture::bare(),
        &[
            (&[], 0, ""),
            (&["explain", "policy.none"], 0, ""),
            (&["explain", "no.such"], 5, "explain.unknown"),
            (&["nonsense"], 2, "usage"),
            (&["init", "--quick", "-C", "/"], 2, "folder.wide"),
            (&["init", "--quick", "-C", ".."], 2, "folder.wide"),
            (&["tool"], 2, "usage"),
            (&["tool", "call"], 2, "usage"),
            (&["run"], 2, "usage"),
            (&["tool", "call", "fs.read", "{}"], 5, "folder.none"),
            (&["run", "--", "true"], 5, "folder.none"),
            (&["trust"], 5, "folder.none"),
            (&["audit", "verify"], 5, "folder.none"),
            (&["policy", "check"], 10, "policy.none"),
            (&["policy", "lint"], 10, "policy.none"),
            (&["policy", "test"], 10, "policy.none"),
            (&["config", "get", "no.such"], 2, "config.key"),
            (&["config", "set", "ui.color", "pink"], 2, "config.value"),
            (&["agent", "ps"], 0, ""),
            (&["agent", "signal", "nobody", "KILL"], 5, "agent.unknown"),
            (&["agent", "signal", "nobody", "NOSUCH"], 2, "usage"),
            (&["tool", "list"], 0, ""),
            (&["completions", "bash"], 0, ""),
            (&["completions", "tcsh"], 2, "usage"),
        ],
    );
}

#[test]
fn in_a_project_that_is_set_up() {
    let world = CliFixture::ready();
    world.write("notes.txt", "hello\n");
    check(
        &world,
        &[
            (&["tool", "call", "fs.read", r#"{"path": "notes.txt"}"#], 0, ""),
            (&["tool", "call", "fs.read", r#"{"path": "absent.txt"}"#], 5, "fs.not_found"),
            (&["tool", "call", "fs.read", r#"{"path": ".env"}"#], 11, "approval.needed"),
            (&["tool", "call", "fs.read", r#"{"path": "/etc/hosts"}"#], 11, "approval.needed"),
            (&["tool", "call", "fs.read", r#"{"path": "/etc/shadow"}"#], 10, "policy.denied"),
            (
                &["tool", "call", "fs.write", r#"{"path": ".git/hooks/x", "content": ""}"#],
                10,
                "policy.denied",
            ),
            (&["tool", "call", "no.such"], 5, "tool.unknown"),
            (&["tool", "call", "fs.read", "{}"], 2, "args.invalid"),
            (&["tool", "call", "fs.read", "{"], 2, "input.json"),
            (&["run", "--", "true"], 0, ""),
            (&["run", "--", "rm", "-rf", "/"], 10, "policy.denied"),
            (&["run", "--", "no-such-program"], 5, "process.not_started"),
            (&["run", "--timeout", "soon", "--", "true"], 2, "usage"),
            (&["run", "--timeout", "1s", "--", "sleep", "30"], 13, "limit.hit"),
            (&["policy", "check"], 0, ""),
            (&["policy", "lint"], 0, ""),
            (&["policy", "test"], 0, ""),
            (&["policy", "why", "fs.read", r#"{"path": "notes.txt"}"#], 0, ""),
            (&["policy", "why", "fs.read {"], 2, "input.json"),
            (&["approve", "list"], 0, ""),
            (&["approve", "zzzz-zzzz"], 5, "approval.unknown"),
            (&["approve", "show", "zzzz-zzzz"], 5, "approval.unknown"),
            (&["deny", "zzzz-zzzz"], 5, "approval.unknown"),
            (&["approve", "zzzz-zzzz", "--for", "ever"], 2, "usage"),
            (&["audit", "verify"], 0, ""),
            (&["audit", "tail"], 0, ""),
            (&["audit", "show", "99999"], 5, "audit.no_entry"),
            (&["audit", "show", "x"], 2, "usage"),
            (&["audit", "prove", "99999"], 5, "audit.no_entry"),
            (&["audit", "export", "--session", "none"], 5, "audit.no_entry"),
            (&["audit", "erase", "abc", "--because", "test"], 2, "usage"),
            (&["audit", "verify", "--ledger", "nowhere"], 5, "audit.none"),
            (&["sandbox", "probe"], 0, ""),
            (&["sandbox", "explain"], 0, ""),
            (&["config", "show", "--origin"], 0, ""),
        ],
    );
}

#[test]
fn the_exit_code_of_a_program_is_passed_on() {
    let world = CliFixture::ready();
    for (line, exit) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137)] {
        let ended = world.run(&["run", "--", "sh", "-c", line]);
        assert_eq!(ended.code, exit, "{line}: {ended:?}");
    }
    let ended = world.run(&["run", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
    let ended = world.run_with(&["run", "-i", "--", "cat"], &[], "grüße\n".as_bytes());
    assert_eq!(ended.stdout, "grüße\n");
}

#[test]
fn an_unknown_command_gets_a_suggestion() {
    let ended = CliFixture::bare().run(&["polcy"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("policy"), "{}", ended.stderr);
}

#[test]
fn a_mistyped_name_gets_the_name_that_was_meant() {
    let world = playing(&[("play", json!([finish("done")]))]);
    let cases = [
        (&["tool", "call", "fs.raed", "{}"][..], "fs.read"),
        (&["tool", "show", "fs.serch"], "fs.search"),
        (&["task", "run", "x", "--tools", "fs.lsit"], "fs.list"),
        (&["task", "run", "x", "--model", "palyy"], "play"),
        (&["explain", "folder.unttrusted"], "folder.untrusted"),
        (&["config", "get", "ui.colour"], "ui.color"),
    ];
    for (args, meant) in cases {
        let ended = world.run(args);
        let hint = format!("did you mean `{meant}`?");
        assert!(ended.code != 0 && ended.stderr.contains(&hint), "{args:?}: {ended:?}");
    }
}

#[test]
fn a_program_that_reaches_a_limit_reports_the_amount_and_its_source() {
    let world = CliFixture::ready();
    let ended = world.run(&["run", "--timeout", "1s", "--", "sleep", "30"]);
    assert!(ended.stderr.contains("time limit of 1 s reached (--timeout)"), "{ended:?}");
    for file in [world.home(".config/regent/policy.yml"), world.project(".regent/policy.yml")] {
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("wall: 10min", "wall: 2s")).unwrap();
    }
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    let ended = world.run(&["run", "--timeout", "1h", "--", "sleep", "30"]);
    assert!(ended.stderr.contains("time limit of 2 s reached (`limits.wall` of "), "{ended:?}");
    assert!(ended.stderr.contains("--timeout can only lower"), "{ended:?}");
}
