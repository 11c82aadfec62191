//! `--json` is one object of one shape, on success and on failure, and text is without colours where nobody looks.

use serde_json::Value;

use crate::world::CliFixture;

/// Every command once: arguments and the word that its object is marked with.
const COMMANDS: &[(&[&str], &str)] = &[
    (&[], "next"),
    (&["demo"], "demo"),
    (&["task", "list"], "task.list"),
    (&["task", "run", "x"], "task.run"),
    (&["task", "show", "t-none"], "task.show"),
    (&["task", "resume"], "task.resume"),
    (&["task", "cancel", "t-none"], "task.cancel"),
    (&["task", "fork", "t-none", "--at", "1"], "task.fork"),
    (&["task", "replay", "t-none"], "task.replay"),
    (&["task", "diff", "t-a", "t-b"], "task.diff"),
    (&["task", "rollback", "t-none"], "task.rollback"),
    (&["cost", "show"], "cost.show"),
    (&["budget", "show"], "budget.show"),
    (&["budget", "set", "project", "1usd"], "budget.set"),
    (&["init", "--quick"], "init"),
    (&["trust"], "trust"),
    (&["run", "--", "true"], "run"),
    (&["tool", "list"], "tool.list"),
    (&["tool", "call", "fs.list", r#"{"path": "."}"#], "tool.call"),
    (&["policy", "check"], "policy.check"),
    (&["policy", "test"], "policy.test"),
    (&["policy", "why", "fs.read", r#"{"path": "x"}"#], "policy.why"),
    (&["policy", "lint"], "policy.lint"),
    (&["policy", "diff", "a.yml", "b.yml"], "policy.diff"),
    (&["policy", "sim"], "policy.sim"),
    (&["policy", "learn"], "policy.learn"),
    (&["policy", "cover", "{ tool: fs.read, path: /etc/hostname }"], "policy.cover"),
    (&["policy", "shadow"], "policy.shadow"),
    (&["policy", "bundle", "a.yml", "--out", "a.bundle"], "policy.bundle"),
    (&["policy", "verify", "a.bundle", "--key", "x"], "policy.verify"),
    (&["audit", "tail"], "audit.tail"),
    (&["audit", "verify"], "audit.verify"),
    (&["audit", "prove", "1"], "audit.prove"),
    (&["audit", "show", "1"], "audit.show"),
    (&["audit", "backup", "copy"], "audit.backup"),
    (&["audit", "export", "--session", "none"], "audit.export"),
    (&["audit", "receipts", "--session", "none"], "audit.receipts"),
    (&["audit", "erase", "00", "--because", "x"], "audit.erase"),
    (&["audit", "restore", "none", "--because", "x", "--yes"], "audit.restore"),
    (&["audit", "begin-anew", "--because", "x"], "audit.begin_anew"),
    (&["agent", "ps"], "agent.ps"),
    (&["agent", "signal", "x", "KILL"], "agent.signal"),
    (&["approve", "list"], "approve.list"),
    (&["approve", "x"], "approve"),
    (&["approve", "show", "x"], "approve.show"),
    (&["deny", "x"], "deny"),
    (&["config", "get", "ui.color"], "config.get"),
    (&["config", "set", "ui.color", "never"], "config.set"),
    (&["config", "show"], "config.show"),
    (&["gc", "--dry-run"], "gc"),
    (&["sandbox", "probe"], "sandbox.probe"),
    (&["sandbox", "explain"], "sandbox.explain"),
    (&["completions", "zsh"], "completions"),
    (&["explain"], "explain"),
    (&["man", "pages"], "man"),
];

fn check_shape(args: &[&str], word: &str, text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "{args:?} gives one line: {text}");
    let object: Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"));
    let mut names: Vec<&String> = object.as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["data", "error", "ok", "schema"], "{args:?}");
    assert_eq!(object["schema"], format!("regent.{word}/v1"), "{args:?}");
    let is_ok = object["ok"].as_bool().unwrap();
    assert_eq!(is_ok, object["error"].is_null(), "{args:?}");
    if !is_ok {
        let code = object["error"]["code"].as_str().unwrap();
        assert!(!code.is_empty() && object["error"]["message"].is_string(), "{args:?}: {object}");
        assert!(object["error"].get("help").is_some(), "{args:?}");
    }
    object
}

#[test]
fn every_command_answers_with_one_object_whether_set_up_or_not() {
    for world in [CliFixture::bare(), CliFixture::ready()] {
        world.run(&["run", "--", "true"]);
        for (args, word) in COMMANDS {
            let json: Vec<&str> = std::iter::once("--json").chain(args.iter().copied()).collect();
            let ended = world.run(&json);
            let object = check_shape(args, word, &ended.stdout);
            assert_eq!(object["ok"].as_bool(), Some(ended.code == 0), "{args:?}: {ended:?}");
        }
    }
}

#[test]
fn every_code_that_is_given_is_explained() {
    let world = CliFixture::bare();
    for (args, _) in COMMANDS {
        let json: Vec<&str> = std::iter::once("--json").chain(args.iter().copied()).collect();
        let code = world.run(&json).error_code();
        if !code.is_empty() {
            assert_eq!(world.run(&["explain", &code]).code, 0, "{code}");
        }
    }
}

#[test]
fn colours_are_there_only_where_they_are_wanted() {
    let world = CliFixture::ready();
    let colour =
        |args: &[&str], env: &[(&str, &str)]| world.run_with(args, env, b"").stdout.contains('\u{1b}');
    assert!(!colour(&["policy", "check"], &[]), "a pipe gets none");
    assert!(!colour(&["policy", "check"], &[("TERM", "xterm-256color")]));
    assert!(colour(&["policy", "check"], &[("REGENT_UI_COLOR", "always")]));
    assert!(!colour(&["--no-color", "policy", "check"], &[("REGENT_UI_COLOR", "always")]), "a flag wins");
    assert!(!colour(&["--json", "policy", "check"], &[("REGENT_UI_COLOR", "always")]));
}
