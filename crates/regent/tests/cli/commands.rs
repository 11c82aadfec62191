//! Set-up and help: init, config, doctor, demo, completions, manual pages.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::world::CliFixture;

#[test]
fn init_sets_everything_up_and_changes_nothing_the_second_time() {
    let world = CliFixture::bare();
    world.write(".mcp.json", r#"{"mcpServers": {"files": {}, "evil\u001b[31m": {}}}"#);
    let env = [("ANTHROPIC_API_KEY", "sk-not-to-be-seen")];
    let ended = world.run_with(&["init", "--quick"], &env, b"");
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.stdout.contains("ANTHROPIC_API_KEY") && ended.stdout.contains("2 servers"),
        "{}",
        ended.stdout
    );
    assert!(
        !ended.stdout.contains("sk-not-to-be-seen") && !ended.stdout.contains('\u{1b}'),
        "{}",
        ended.stdout
    );
    let mode = |name: &str| std::fs::metadata(world.home(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(".local/share/regent/ledger.key"), 0o600);
    assert_eq!(mode(".local/state/regent"), 0o700);
    let read = || {
        [".config/regent/policy.yml", ".local/share/regent/ledger.key"]
            .map(|name| std::fs::read(world.home(name)).unwrap())
    };
    let before = read();
    assert_eq!(world.run(&["init"]).code, 0, "trusted already, so nothing to ask");
    assert_eq!(read(), before);
}

#[test]
fn init_fails_where_the_ledger_could_not_be_written() {
    let world = CliFixture::ready();
    let folder = world.project(".regent").display().to_string();
    let line = format!("mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}");
    let ended = world.run_after(&line, &["--json", "init", "--quick"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (1, "io"), "{ended:?}");
    assert!(ended.stdout.contains("make the folder writable"), "{ended:?}");
}

#[test]
fn prints_a_value_with_its_origin() {
    let world = CliFixture::ready();
    let origin = |env: &[(&str, &str)], args: &[&str]| {
        let args: Vec<&str> = ["--json"].into_iter().chain(args.iter().copied()).collect();
        let got = world.run_with(&args, env, b"").json();
        got.pointer("/data/origin").and_then(Value::as_str).unwrap().to_owned()
    };
    let get = &["config", "get", "ui.color"];
    assert_eq!(origin(&[], get), "default");
    assert_eq!(world.run(&["config", "set", "ui.color", "never"]).code, 0);
    assert!(origin(&[], get).ends_with("config.toml:2"));
    assert_eq!(origin(&[("REGENT_UI_COLOR", "auto")], get), "environment REGENT_UI_COLOR");
    assert_eq!(
        origin(&[("REGENT_UI_COLOR", "auto")], &["--no-color", "config", "get", "ui.color"]),
        "flag --no-color"
    );
}

#[test]
fn doctor_names_problems_and_fixes_what_is_safe() {
    let world = CliFixture::ready();
    let key = world.home(".local/share/regent/ledger.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::remove_file(world.home(".config/regent/policy.yml")).unwrap();
    let ended = world.run(&["--json", "doctor"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (1, "doctor.failed"), "{ended:?}");
    let report = ended.json();
    let checks = report.pointer("/data/checks").and_then(Value::as_array).unwrap();
    assert!(checks.len() >= 20, "{} checks", checks.len());
    assert!(checks.iter().filter(|check| check["id"].as_str().unwrap().starts_with("escape.")).count() >= 20);
    let health = |id: &str| checks.iter().find(|check| check["id"] == id).unwrap()["health"].clone();
    assert_eq!((health("ledger.key"), health("policy.user")), ("failed".into(), "failed".into()));
    let ids: std::collections::BTreeSet<_> = checks.iter().map(|check| check["id"].to_string()).collect();
    assert_eq!(ids.len(), checks.len(), "every check has an id of its own");

    let fixed = world.run(&["--json", "doctor", "--fix"]);
    assert_eq!(fixed.code, 0, "{fixed:?}");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]).code, 0);
}

#[test]
fn the_demonstration_is_a_self_check_and_touches_nothing() {
    let world = CliFixture::bare();
    let ended = world.run(&["demo"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for word in ["allowed", "denied", "asked", "contained", "verified", "one bit flipped"] {
        assert!(ended.stdout.contains(word), "{word}: {}", ended.stdout);
    }
    assert!(!world.home(".config").exists() && !world.home(".local/share").exists(), "nothing of the user's");
    // Sandboxes of one user wait for each other, so there is a lock. Nothing else is left.
    let state = std::fs::read_dir(world.home(".local/state/regent")).unwrap();
    let left: Vec<_> = state.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["sandbox.lock"]);
    let steps = world.run(&["--json", "demo"]).json();
    let steps = steps.pointer("/data/steps").and_then(Value::as_array).unwrap().clone();
    assert!(steps.len() >= 15 && steps.iter().all(|step| step["as_expected"] == true), "{steps:?}");
}

#[test]
fn help_comes_in_every_form() {
    let world = CliFixture::bare();
    assert_eq!(world.run(&["--version"]).stdout, concat!("regent ", env!("CARGO_PKG_VERSION"), "\n"));
    assert!(world.run(&["--help"]).stdout.contains("audit"));
    assert_eq!(world.run(&["help"]).stdout, world.run(&["--help"]).stdout);
    assert_eq!(world.run(&["help", "task", "run"]).stdout, world.run(&["task", "run", "--help"]).stdout);
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(world.run(&["completions", shell]).stdout.contains("regent"), "{shell}");
    }
    assert_eq!(world.run(&["man", "pages"]).code, 0);
    assert!(world.project("pages/regent-audit-verify.1").is_file());
    let completed = world.run_with(&["--", "regent", "explain", "folder.u"], &[("COMPLETE", "fish")], b"");
    assert!(completed.stdout.contains("folder.untrusted"), "{completed:?}");
}

#[test]
fn cases_beside_a_policy_are_run() {
    let world = CliFixture::ready();
    let case = |expect: &str| {
        format!(
            "cases:\n  - name: a case\n    call: {{ tool: fs.write, path: .git/config }}\n    expect: {expect}\n"
        )
    };
    for (text, exit, code) in
        [(case("deny"), 0, ""), (case("allow"), 1, "policy.cases"), (case("perhaps"), 3, "policy.invalid")]
    {
        world.write("cases.yml", text);
        let ended = world.run(&["--json", "policy", "test", "cases.yml"]);
        assert_eq!((ended.code, ended.error_code().as_str()), (exit, code), "{ended:?}");
    }
    let why = world.run(&["policy", "why", r#"fs.write {"path": ".git/config", "content": ""}"#]);
    assert!(
        why.stdout.starts_with("deny") && why.stdout.contains("control-files") && why.stdout.contains("line"),
        "{why:?}"
    );
}
