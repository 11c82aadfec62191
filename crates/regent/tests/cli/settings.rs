//! Settings with mistakes: what is refused before it does harm, and the commands that find and correct the rest.

use serde_json::Value;

use crate::world::CliFixture;

#[test]
fn a_key_that_a_project_may_not_set_is_refused_by_config_set_and_by_trust() {
    let world = CliFixture::ready();
    let set = world.run(&["--json", "config", "set", "gc.payloads", "30d", "--project"]);
    assert_eq!((set.code, set.error_code().as_str()), (2, "config.key"), "{set:?}");
    let help = set.json().pointer("/error/help").and_then(Value::as_str).unwrap().to_owned();
    assert_eq!(help, "set it in your own settings: `regent config set gc.payloads 30d`");
    assert!(!world.project(".regent/config.toml").exists());

    world.write(".regent/config.toml", "[gc]\npayloads = \"30d\"\n");
    let trust = world.run(&["--json", "trust", "--yes"]);
    assert_eq!((trust.code, trust.error_code().as_str()), (3, "config.invalid"), "{trust:?}");
    let unset = world.run(&["config", "unset", "gc.payloads", "--project"]);
    assert_eq!(unset.code, 0, "{unset:?}");
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    assert_eq!(world.run(&["policy", "why", "fs.read", r#"{"path": "x"}"#]).code, 0);
}

#[test]
fn a_bad_line_stops_no_command_that_finds_or_corrects_it() {
    let world = CliFixture::ready();
    let file = world.home(".config/regent/config.toml");
    for (bad, repair) in [
        ("[ui]\ncolor = \"pink\"\n", &["config", "set", "ui.color", "never"][..]),
        ("[ui]\ncolour = 1\n", &["config", "unset", "ui.colour"]),
        ("stray = 1\n", &["config", "unset", "stray"]),
    ] {
        std::fs::write(&file, bad).unwrap();
        let other = world.run(&["--json", "policy", "check"]);
        assert_eq!((other.code, other.error_code().as_str()), (3, "config.invalid"), "{bad}: {other:?}");
        for fine in [&["explain", "config.invalid"][..], &["explain"], &["completions", "bash"]] {
            let ended = world.run(fine);
            assert_eq!(ended.code, 0, "{bad}: {fine:?}: {ended:?}");
        }
        let shown = world.run(&["config", "show"]);
        assert!(shown.code == 3 && shown.stdout.contains("approve.valid_for"), "{bad}: {shown:?}");
        let doctor = world.run(&["--json", "doctor"]).json();
        let checks = doctor.pointer("/data/checks").and_then(Value::as_array).unwrap();
        let check = checks.iter().find(|check| check["id"] == "config.valid").unwrap();
        assert_eq!(check["health"], "failed", "{bad}");
        assert!(check["says"].as_str().unwrap().contains("config.toml"), "{check}");
        assert_eq!(world.run(repair).code, 0, "{bad}");
        assert_eq!(world.run(&["config", "show"]).code, 0, "{bad}");
    }
}

#[test]
fn a_file_that_is_not_toml_is_named_with_its_line_and_left_alone() {
    let world = CliFixture::ready();
    let file = world.home(".config/regent/config.toml");
    std::fs::write(&file, "[ui]\ncolor = \"never\"\n[gc\n").unwrap();
    let set = world.run(&["--json", "config", "set", "ui.color", "auto"]);
    assert_eq!((set.code, set.error_code().as_str()), (3, "config.invalid"), "{set:?}");
    assert!(set.stdout.contains("line 3"), "{set:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "[ui]\ncolor = \"never\"\n[gc\n");
    assert_eq!(world.run(&["explain", "config.invalid"]).code, 0);
}

#[test]
fn a_mistake_on_the_command_line_names_the_argument_in_json_too() {
    let world = CliFixture::bare();
    let ended = world.run(&["--json", "tool", "call"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (2, "usage"));
    let error = ended.json()["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("<NAME>"), "{error}");
    assert_eq!(error["help"], "`regent tool call --help` describes its arguments");
    let unknown = world.run(&["--json", "nope"]).json();
    assert_eq!(unknown["error"]["help"], "`regent --help` lists the commands");
}
