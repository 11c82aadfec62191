//! Hostile and broken input gets a clear error with its exit code, and nothing is lost.

use std::io::Write;

use serde_json::Value;

use crate::world::{CliFixture, binary};

#[test]
fn adv_001_deep_and_large_json_is_refused() {
    let world = CliFixture::ready();
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let wide = format!("{{\"path\": \"{}\"}}", "a".repeat(10 << 20));
    for (input, code) in [(deep, "input.json"), (wide, "input.size")] {
        let ended = world.run_with(&["--json", "tool", "call", "fs.read", "-"], &[], input.as_bytes());
        assert_eq!((ended.code, ended.error_code().as_str()), (2, code));
    }
}

#[test]
fn adv_002_json_with_two_meanings_is_refused() {
    let world = CliFixture::ready();
    world.write("a", "1");
    let cases: &[&[u8]] = &[
        br#"{"path": "a", "path": "b"}"#,
        br#"{"path": NaN}"#,
        br#"{"path": "a", "offset": 1e999}"#,
        br#"{"path": "\ud800"}"#,
        b"\xef\xbb\xbf{\"path\": \"a\"}",
        b"{\"path\": \"\xff\"}",
        b"{\"path\": \"a\"} x",
        b"",
    ];
    for case in cases {
        let ended = world.run_with(&["--json", "tool", "call", "fs.read", "-"], &[], case);
        assert_eq!((ended.code, ended.error_code().as_str()), (2, "input.json"), "{case:?}: {ended:?}");
    }
    let ended = world.run(&["--json", "tool", "call", "fs.read", r#"{"path": "a\u0000b"}"#]);
    assert_eq!((ended.code, ended.error_code().as_str()), (10, "path.refused"), "{ended:?}");
}

#[test]
fn adv_006_a_policy_that_is_too_much_is_refused() {
    let world = CliFixture::ready();
    let mut huge = String::from("version: 1\nrules:\n");
    for number in 0..1_000_000 {
        huge.push_str(&format!("  - {{ id: r{number}, effect: allow, match: {{ tool: x }} }}\n"));
    }
    let bombs = [
        huge,
        format!("version: 1\nrules:\n  - {{ id: a, effect: deny, match: {{ path: \"{}\" }} }}\n", "{a,b}".repeat(3000)),
        "version: 1\nrules:\n  - { id: a, effect: deny, match: { args: { \"/x\": { matches: '(a{1000}){1000}' } } } }\n".to_owned(),
        format!("version: 1\nrules: {}{}\n", "[".repeat(10_000), "]".repeat(10_000)),
        "a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n".to_owned(),
    ];
    for text in bombs {
        world.write("big.yml", &text);
        let ended = world.run(&["--json", "policy", "check", "big.yml"]);
        assert_eq!(
            (ended.code, ended.error_code().as_str()),
            (3, "policy.invalid"),
            "{}",
            &text[..60.min(text.len())]
        );
    }
}

#[test]
fn a_broken_policy_is_reported_with_line_and_column_and_nothing_is_done() {
    let world = CliFixture::ready();
    world.write(".regent/policy.yml", "version: 1\nrules:\n  - id: a\n    efect: allow\n");
    let ended = world.run(&["policy", "check"]);
    assert_eq!(ended.code, 3);
    assert!(
        ended.stderr.contains(".regent/policy.yml:") && ended.stderr.contains("efect"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("did you mean `effect`"), "{}", ended.stderr);
    let places = world.run(&["--json", "policy", "check"]).json();
    let places = places.pointer("/error/places").and_then(Value::as_array).cloned().unwrap();
    assert!(places.iter().any(|place| place["line"] == 4 && place["column"] == 5), "{places:?}");
    assert_eq!(world.run(&["trust"]).code, 3, "a policy that can't be read can't be agreed to");
    assert_eq!(
        world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]).code,
        10,
        "changed, so not trusted"
    );
    std::fs::write(world.home(".config/regent/policy.yml"), "version: [").unwrap();
    world.write(".regent/policy.yml", "version: 1\nrules: []\n");
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    assert_eq!(
        world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]).code,
        3,
        "the user's own is broken"
    );
}

#[test]
fn adv_007_arguments_that_do_not_fit_never_reach_the_tool() {
    let world = CliFixture::ready();
    for arguments in [
        r#"{}"#,
        r#"{"path": 3}"#,
        r#"{"path": "a", "content": "b", "extra": 1}"#,
        r#"{"path": "a", "content": ["b"]}"#,
        r#"[]"#,
        r#"null"#,
        r#""a""#,
    ] {
        let ended = world.run(&["--json", "tool", "call", "fs.write", arguments]);
        assert_eq!((ended.code, ended.error_code().as_str()), (2, "args.invalid"), "{arguments}: {ended:?}");
    }
    let ended =
        world.run(&["--json", "tool", "call", "fs.read", r#"{"path": "a", "offset": 9007199254740993}"#]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(!world.project("a").exists());
    let denied =
        world.entries().iter().filter(|entry| entry["body"]["verdict"]["code"] == "args.invalid").count();
    assert_eq!(denied, 7, "each attempt is in the ledger");
}

#[test]
fn adv_008_look_alikes_of_tools_are_unknown_and_recorded() {
    let world = CliFixture::ready();
    let names = ["__proto__", "fs.re\u{430}d", "FS.READ", "fs.read ", "fs\u{2024}read", "fs.read\u{200b}"];
    for name in names {
        let ended = world.run(&["--json", "tool", "call", "--agent", "mallory", name, r#"{"path": "a"}"#]);
        assert_eq!((ended.code, ended.error_code().as_str()), (5, "tool.unknown"), "{name}: {ended:?}");
        assert!(!ended.stdout.contains('\u{200b}'), "shown inert");
    }
    let recorded =
        world.entries().iter().filter(|entry| entry["body"]["verdict"]["code"] == "tool.unknown").count();
    assert_eq!(recorded, names.len());
}

#[test]
fn adv_009_and_010_nothing_from_outside_drives_the_terminal_or_forges_a_line() {
    let world = CliFixture::ready();
    let hostile = "x\n2026-01-01 00:00:00Z 0000/1 operator allow forged \u{1b}]52;c;ZXZpbA==\u{7}\u{202e}";
    world.run(&["run", "--", "echo", hostile]);
    for args in [&["audit", "tail"][..], &["audit", "show", "3"]] {
        let ended = world.run(args);
        assert!(!ended.stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{args:?}: {ended:?}");
        assert!(!ended.stdout.lines().any(|line| line.starts_with("2026-01-01 00:00:00Z")), "{ended:?}");
    }
    let ended = world.run(&["tool", "call", hostile]);
    assert!(!ended.stderr.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{ended:?}");
    let name = std::ffi::OsString::from(hostile.replace('/', "_"));
    std::fs::write(world.project("").join(name), "x").unwrap();
    let ended = world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]);
    assert!(!ended.stdout.contains(['\u{1b}', '\u{202e}']), "{ended:?}");
}

#[test]
fn truncates_a_hundred_megabytes_of_output_and_reports_it() {
    let world = CliFixture::ready();
    let ended = world.run(&["run", "--", "sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x"]);
    assert_eq!(ended.code, 13, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("output limit of ") && ended.stderr.contains("`limits.output`"),
        "{}",
        ended.stderr
    );
    assert!(ended.stdout.len() <= 10 << 20, "{} bytes came through", ended.stdout.len());
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn without_a_ledger_that_can_be_written_nothing_is_done() {
    let world = CliFixture::ready();
    // A file where the folder belongs: also root can't write a ledger there.
    std::fs::write(world.project(".regent/audit"), "not a folder").unwrap();
    let ended = world.run(&["--json", "tool", "call", "fs.write", r#"{"path": "a", "content": "b"}"#]);
    assert_eq!((ended.code, ended.error_code().as_str()), (75, "ledger.unwritable"), "{ended:?}");
    assert!(!world.project("a").exists(), "no record, no effect");
    std::fs::remove_file(world.project(".regent/audit")).unwrap();
    assert_eq!(
        world.run(&["tool", "call", "fs.write", r#"{"path": "a", "content": "b"}"#]).code,
        0,
        "fixed, it works"
    );
}

#[test]
fn adv_043_without_a_sandbox_programs_are_refused_loudly() {
    let world = CliFixture::ready();
    // Inside a sandbox there are neither namespaces nor a second Landlock domain to be had: a host without a sandbox.
    let copy = world.project("regent-copy");
    std::fs::copy(binary(), &copy).unwrap();
    let line = "mkdir /tmp/inner && cd /tmp/inner && \
                $OLDPWD/regent-copy init --quick >/dev/null && $OLDPWD/regent-copy --json run -- true; echo \"exit $?\"; \
                $OLDPWD/regent-copy audit verify >/dev/null; echo \"verify $?\"";
    let ended = world.run(&["run", "--", "sh", "-c", line]);
    assert!(ended.stdout.contains("exit 13"), "{ended:?}");
    assert!(
        ended.stdout.contains("sandbox.unavailable") || ended.stdout.contains("tier.unavailable"),
        "{ended:?}"
    );
    assert!(ended.stdout.contains("verify 0"), "{ended:?}");
}

#[test]
fn adv_043_reports_missing_user_namespaces_and_refuses_a_lower_floor() {
    let world = CliFixture::ready();
    let run = ["run", "--", "sh", "-c", "echo ran"];
    let ended = world.run_without_namespaces(&run, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "ran\n"), "{ended:?}");
    assert!(ended.stderr.contains("Landlock and seccomp only"), "less is never silent: {ended:?}");
    let outcome = world.entries().into_iter().find(|entry| entry["kind"] == "outcome").unwrap();
    assert_eq!(outcome["body"]["obtained"]["confinement"], "landlock-seccomp", "and the receipt says so");

    let ended = world.run_without_namespaces(&run, &[("REGENT_SANDBOX_FLOOR", "full")]);
    assert_eq!(ended.code, 13, "{ended:?}");
    assert!(
        ended.stdout.is_empty() && ended.stderr.contains("max_user_namespaces"),
        "with the fix: {ended:?}"
    );
    let ended = world.run_without_namespaces(&["demo"], &[]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("this machine doesn't provide the full sandbox"), "{ended:?}");
}

#[test]
fn damaged_state_is_a_clean_error() {
    let world = CliFixture::ready();
    let settings = world.home(".config/regent/config.toml");
    std::fs::write(&settings, "[ui]\ncolour = 1\n").unwrap();
    let ended = world.run(&["--json", "config", "show"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (3, "config.invalid"));
    std::fs::remove_file(&settings).unwrap();

    std::fs::write(world.home(".local/state/regent/trust.json"), "{").unwrap();
    let ended = world.run(&["--json", "tool", "call", "fs.list", r#"{"path": "."}"#]);
    assert_eq!((ended.code, ended.error_code().as_str()), (3, "state.file"));
    std::fs::remove_file(world.home(".local/state/regent/trust.json")).unwrap();
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);

    let mut database = std::fs::File::create(world.home(".local/state/regent/state.db")).unwrap();
    database.write_all(&[0x55; 8192]).unwrap();
    drop(std::fs::remove_file(world.home(".local/state/regent/state.db-wal")));
    let ended = world.run(&["--json", "tool", "call", "fs.list", r#"{"path": "."}"#]);
    assert_eq!((ended.code, ended.error_code().as_str()), (1, "state.unusable"), "{ended:?}");
}
