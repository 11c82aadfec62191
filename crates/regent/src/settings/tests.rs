//! Settings come from where they say, and a project only narrows.

use super::*;
use crate::paths::Project;

fn world() -> (tempfile::TempDir, Paths, Project) {
    let home = tempfile::tempdir().unwrap();
    let paths = Paths::below(home.path());
    std::fs::create_dir_all(home.path().join("project/.regent")).unwrap();
    std::fs::create_dir_all(&paths.config).unwrap();
    let project = Project::open(&home.path().join("project")).unwrap();
    (home, paths, project)
}

#[test]
fn durations_have_a_unit() {
    let cases = [
        ("90s", Some(90_000)),
        ("10m", Some(600_000)),
        ("1d", Some(86_400_000)),
        ("10", None),
        ("", None),
        ("ä", None),
        ("-1s", None),
    ];
    for (text, ms) in cases {
        assert_eq!(duration_ms(text), ms, "{text}");
    }
}

#[test]
fn a_project_can_only_make_it_stricter() {
    let (_home, paths, project) = world();
    let load = || Settings::load(&paths, Some(&Controls::read(&project).unwrap()), false);
    let cases = [
        ("[approve]\nvalid_for = \"5m\"", "approve.valid_for", "5m"),
        ("[approve]\nvalid_for = \"2h\"", "approve.valid_for", "10m"),
        ("[sandbox]\nfloor = \"full\"", "sandbox.floor", "full"),
    ];
    for (text, key, value) in cases {
        std::fs::write(project.settings(), text).unwrap();
        let settings = load().unwrap();
        assert_eq!(settings.text(key), value, "{text}");
    }
    std::fs::write(paths.settings(), "[sandbox]\nfloor = \"full\"").unwrap();
    std::fs::write(project.settings(), "[sandbox]\nfloor = \"landlock-seccomp\"").unwrap();
    assert!(load().unwrap().needs_namespaces());
    std::fs::write(project.settings(), "[network]\nallow_private = \"127.0.0.1:1\"").unwrap();
    assert_eq!(load().unwrap_err().exit, 3);
}

#[test]
fn reports_mistakes_with_their_line() {
    let (_home, paths, _project) = world();
    for (text, line) in [
        ("[ui]\ncolour = \"never\"", 2),
        ("\n\n[ui]\ncolor = \"pink\"", 4),
        ("[ui", 1),
        ("ui = 3", 1),
        ("[ui]\ncolor = true", 2),
    ] {
        std::fs::write(paths.settings(), text).unwrap();
        let failure = Settings::load(&paths, None, false).unwrap_err();
        assert_eq!((failure.exit, &*failure.code), (3, "config.invalid"), "{text}");
        assert_eq!(failure.excerpt.unwrap().marks[0].line, line, "{text}");
    }
}

#[test]
fn setting_a_value_keeps_comments() {
    let (_home, paths, _project) = world();
    std::fs::write(paths.settings(), "# mine\n[ui] # here\ncolor = \"auto\"\n").unwrap();
    let file = SettingsFile::User(paths.settings());
    set(&file, "ui.color", "never").unwrap();
    set(&file, "approve.valid_for", "1h").unwrap();
    let text = std::fs::read_to_string(paths.settings()).unwrap();
    assert!(text.contains("# mine\n[ui] # here\ncolor = \"never\""), "{text}");
    let settings = Settings::load(&paths, None, false).unwrap();
    assert_eq!(settings.approve_valid_ms(), 3_600_000);
    let line = text.lines().position(|line| line.starts_with("valid_for")).unwrap() + 1;
    assert_eq!(settings.0["approve.valid_for"].1, Origin::File(paths.settings(), line));
    assert_eq!(set(&file, "ui.color", "pink").unwrap_err().exit, 2);
    assert_eq!(set(&file, "ui.nope", "x").unwrap_err().code, "config.key");
}

#[test]
fn a_mistake_is_repaired_by_setting_or_removing_its_line() {
    let (_home, paths, _project) = world();
    let file = SettingsFile::User(paths.settings());
    let text = "stray = 1\n[ui]\ncolor = \"pink\"\ncolour = 1\n[approve]\nvalid_for = \"1h\"\n";
    std::fs::write(paths.settings(), text).unwrap();
    let (settings, mistakes) = Settings::read(&paths, None, false);
    assert_eq!(
        (mistakes.len(), settings.approve_valid_ms()),
        (3, 3_600_000),
        "the valid lines count: {mistakes:?}"
    );
    assert!(set(&file, "ui.color", "never").unwrap().is_some(), "two mistakes are left");
    assert!(matches!(unset(&file, "ui.colour"), Ok((true, Some(_)))));
    assert!(matches!(unset(&file, "stray"), Ok((true, None))));
    assert_eq!(Settings::load(&paths, None, false).unwrap().text("ui.color"), "never");
    assert!(matches!(unset(&file, "gc.payloads"), Ok((false, None))), "it was not set");
    assert_eq!(unset(&file, "ui.colour").unwrap_err().code, "config.key");
}

#[test]
fn a_key_that_a_project_may_not_set_is_not_written_for_it() {
    let (_home, _paths, project) = world();
    let file = SettingsFile::Project(project.settings());
    let refused = set(&file, "gc.payloads", "30d").unwrap_err();
    assert_eq!(refused.help.unwrap(), "set it in your own settings: `regent config set gc.payloads 30d`");
    assert!(!project.settings().exists());
    assert!(matches!(set(&file, "approve.valid_for", "5m"), Ok(None)));
    std::fs::write(project.settings(), "[gc]\npayloads = \"30d\"\n").unwrap();
    assert_eq!(check_project(&Controls::read(&project).unwrap()).unwrap_err().code, "config.invalid");
    assert!(matches!(unset(&file, "gc.payloads"), Ok((true, None))));
    check_project(&Controls::read(&project).unwrap()).unwrap();
}

#[test]
fn a_secret_in_place_of_its_file_is_refused_and_not_repeated() {
    let (_home, paths, project) = world();
    let secret = "postgres://ann:hunter2@db/x";
    let refused = set(&SettingsFile::User(paths.settings()), "state.url_file", secret).unwrap_err();
    assert!(!refused.message.contains("hunter2"), "{refused:?}");
    std::fs::write(paths.settings(), format!("[state]\nurl_file = \"{secret}\"\n")).unwrap();
    let refused = Settings::load(&paths, None, false).unwrap_err();
    assert!(!format!("{refused:?}").contains("hunter2") && refused.message.contains("line 2"), "{refused:?}");
    std::fs::write(paths.settings(), "").unwrap();
    for text in ["[state]\nurl_file = \"/etc/state.url\"", "[state]\naccept_loss = true"] {
        std::fs::write(project.settings(), text).unwrap();
        let refused = Settings::load(&paths, Some(&Controls::read(&project).unwrap()), false).unwrap_err();
        assert!(refused.message.contains("can't be set by a project"), "{refused:?}");
    }
}
