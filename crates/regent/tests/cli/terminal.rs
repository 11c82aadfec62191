//! At a terminal: questions are asked there, only a yes is a yes, and nothing from outside drives it.

use crate::world::World;

const READ: &[&str] = &["tool", "call", "fs.read", r#"{"path": ".env"}"#];

#[test]
fn a_person_is_asked_and_only_a_yes_is_a_yes() {
    let world = World::ready();
    world.write(".env", "KEY=1\n");
    for (typed, exit) in [("\n", 10), ("n\n", 10), ("sure\n", 10), ("y\n", 0)] {
        let (code, shown) = world.at_terminal(READ, typed);
        assert!(
            shown.contains("[y/N]") && shown.contains(".env") && shown.contains("secrets-in-workspace"),
            "{shown}"
        );
        assert_eq!(code, exit, "{typed:?}: {shown}");
        assert_eq!(shown.contains("KEY=1"), exit == 0, "{shown}");
        // A no is remembered for the session that asked; each run of the program is one of its own.
    }
    let (code, shown) =
        world.at_terminal(&["--json", "tool", "call", "fs.read", r#"{"path": ".env"}"#], "y\n");
    assert_eq!(code, 11, "with --json nobody is asked: {shown}");
}

#[test]
fn adv_010_output_is_inert_on_a_terminal() {
    let world = World::ready();
    world.write(
        "evil.txt",
        "\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}]8;;http://evil.test\u{7}x\u{1b}[2J\u{9b}31m\u{202e}",
    );
    for args in [
        &["tool", "call", "fs.read", r#"{"path": "evil.txt"}"#][..],
        &["audit", "tail"],
        &["tool", "call", "shell.exec", r#"{"command": "cat evil.txt; cat evil.txt >&2; exit 3"}"#],
    ] {
        let (_, shown) = world.at_terminal(args, "");
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{args:?}: {shown:?}");
    }
}

#[test]
fn a_program_gets_the_terminal_that_the_person_has() {
    let world = World::ready();
    let (code, shown) = world.at_terminal(
        &["run", "--", "sh", "-c", "test -t 0 && test -t 1 && read x && echo got $x"],
        "hello\n",
    );
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("got hello"), "{shown}");
}

#[test]
fn init_asks_before_it_trusts_what_came_with_the_folder() {
    for (typed, exit) in [("\n", 10), ("y\n", 0)] {
        let world = World::bare();
        world.write(".regent/policy.yml", "version: 1\nrules: []\n");
        let (code, shown) = world.at_terminal(&["init"], typed);
        assert_eq!(code, exit, "{shown}");
        assert_eq!(world.home(".config/regent/policy.yml").exists(), exit == 0, "a no changes nothing");
    }
}
