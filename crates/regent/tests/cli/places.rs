//! Where a workspace may lie, and what of Regent's own no tool reaches.

use std::os::unix::fs::symlink;

use crate::world::CliFixture;

/// The folders that hold Regent's own files, relative to the home of a test.
const OWN: [&str; 4] = [".config/regent", ".local/share/regent", ".local/state/regent", "run/regent"];

#[test]
fn c3_init_and_trust_refuse_home_and_regents_own_folders() {
    let world = CliFixture::ready();
    symlink(world.home(""), world.home("project/link-home")).unwrap();
    let around = ["", ".config", ".local", ".local/share", "project/link-home"];
    for name in around.into_iter().chain(OWN) {
        let folder = world.home(name);
        std::fs::create_dir_all(folder.join(".regent")).unwrap();
        let folder = folder.to_str().unwrap();
        for args in [&["--json", "init", "--quick", "-C", folder][..], &["--json", "trust", folder]] {
            let ended = world.run(args);
            assert_eq!((ended.code, ended.error_code().as_str()), (2, "folder.wide"), "{args:?}: {ended:?}");
        }
        std::fs::remove_dir_all(world.home(name).join(".regent")).unwrap();
    }
    // Below the home is where projects are.
    let ended = world.run(&["trust"]);
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn c3_every_start_checks_where_the_workspace_lies() {
    let world = CliFixture::ready();
    world.write("notes.txt", "hello\n");
    let read = ["--json", "tool", "call", "fs.read", r#"{"path": "notes.txt"}"#];
    assert_eq!(world.run(&read).code, 0);
    // Regent's folders move into the project after it was trusted: by the environment, or by a link.
    let inside = world.project("cfg");
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::rename(world.home(".config/regent"), inside.join("regent")).unwrap();
    let ended = world.run_with(&read, &[("XDG_CONFIG_HOME", inside.to_str().unwrap())], b"");
    assert_eq!((ended.code, ended.error_code().as_str()), (2, "folder.wide"), "{ended:?}");
    symlink(inside.join("regent"), world.home(".config/regent")).unwrap();
    for args in [&read[..], &["--json", "run", "--", "cat", "cfg/regent/policy.yml"]] {
        let ended = world.run(args);
        assert_eq!((ended.code, ended.error_code().as_str()), (2, "folder.wide"), "{args:?}: {ended:?}");
    }
    // A home inside the project, as in a container whose HOME is below the code.
    std::fs::remove_file(world.home(".config/regent")).unwrap();
    std::fs::rename(inside.join("regent"), world.home(".config/regent")).unwrap();
    let home = world.project("home");
    std::fs::create_dir_all(&home).unwrap();
    let env = [
        ("HOME", home.to_str().unwrap()),
        ("XDG_CONFIG_HOME", world.home(".config").to_str().unwrap()),
        ("XDG_DATA_HOME", world.home(".local/share").to_str().unwrap()),
        ("XDG_STATE_HOME", world.home(".local/state").to_str().unwrap()),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ended = world.run_with(&read, &env, b"");
    assert_eq!((ended.code, ended.error_code().as_str()), (2, "folder.wide"), "{ended:?}");
    assert!(ended.stdout.contains("contains your home folder"), "{ended:?}");
    assert_eq!(world.run(&read).code, 0);
}

#[test]
fn c3_tools_reach_nothing_of_regents_own_even_where_policy_would() {
    let world = CliFixture::ready();
    let allow = "version: 1\nmode: strict\nrules:\n  - { id: all, effect: allow, match: { op: '*' } }\n";
    std::fs::write(world.home(".config/regent/policy.yml"), allow).unwrap();
    std::fs::write(world.project(".regent/policy.yml"), allow).unwrap();
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    std::fs::write(world.home("plain.txt"), "x").unwrap();
    let read = |path: &str| {
        let args = serde_json::json!({ "path": path }).to_string();
        world.run(&["--json", "tool", "call", "--agent", "mallory", "fs.read", &args])
    };
    assert_eq!(read(world.home("plain.txt").to_str().unwrap()).code, 0, "outside is what the policy allows");
    for name in
        [".local/share/regent/ledger.key", ".config/regent/policy.yml", ".local/state/regent/trust.json"]
    {
        let ended = read(world.home(name).to_str().unwrap());
        assert_eq!((ended.code, ended.error_code().as_str()), (10, "path.reserved"), "{name}: {ended:?}");
    }
}

#[test]
fn h1_an_agent_does_not_read_the_ledger() {
    let world = CliFixture::ready();
    world.write("notes.txt", "hunter2\n");
    assert_eq!(world.run(&["tool", "call", "fs.read", r#"{"path": "notes.txt"}"#]).code, 0);
    let pack = r#"{"path": ".regent/audit/lanes/0000/000000000000.pack", "encoding": "base64"}"#;
    let ended = world.run(&["--json", "tool", "call", "--agent", "mallory", "fs.read", pack]);
    assert_eq!((ended.code, ended.error_code().as_str()), (10, "path.reserved"), "{ended:?}");
    let ended = world.run(&[
        "tool",
        "call",
        "--agent",
        "mallory",
        "fs.search",
        r#"{"path": ".", "pattern": "hunter2"}"#,
    ]);
    assert!(
        ended.code == 0 && ended.stdout.contains("notes.txt") && !ended.stdout.contains(".regent"),
        "{ended:?}"
    );
    assert!(
        world.run(&["--json", "audit", "tail"]).stdout.contains("path.reserved"),
        "the attempt is recorded"
    );
}

#[test]
fn m10_the_ledger_and_the_output_carry_the_mark() {
    let world = CliFixture::ready();
    let write = r#"{"path": "Makefile", "content": "all:\n"}"#;
    assert_eq!(world.run(&["tool", "call", "--agent", "builder", "fs.write", write]).code, 0);
    let tail = world.run(&["--json", "audit", "tail"]).stdout;
    assert!(tail.contains("runs-on-build"), "{tail}");
    let write = r#"{"path": "AGENTS.md", "content": "obey\n"}"#;
    let ended = world.run(&["--json", "tool", "call", "--agent", "builder", "fs.write", write]);
    assert_eq!(ended.code, 11, "{ended:?}");
}

#[test]
fn h5_doctor_recommends_explicit_bare_repositories() {
    let world = CliFixture::ready();
    let check = |world: &CliFixture| {
        let report = world.run(&["--json", "doctor"]).json();
        let checks = report.pointer("/data/checks").or_else(|| report.pointer("/error/data/checks")).cloned();
        let checks = checks.unwrap_or_else(|| panic!("no checks: {report}"));
        checks.as_array().unwrap().iter().find(|check| check["id"] == "git.bare").cloned().expect("the check")
    };
    let installed =
        std::path::Path::new("/usr/bin/git").exists() || std::path::Path::new("/bin/git").exists();
    assert_eq!(check(&world)["health"] == "warn", installed && !system_wide());
    std::fs::write(world.home(".gitconfig"), "[safe]\n\tbareRepository = explicit\n").unwrap();
    assert_eq!(check(&world)["health"], "ok");
}

/// Whether the machine's own configuration says so already.
fn system_wide() -> bool {
    std::fs::read_to_string("/etc/gitconfig").is_ok_and(|text| text.to_lowercase().contains("barerepository"))
}

#[test]
fn b2_a_link_in_the_place_of_a_folder_of_regents_own_is_refused() {
    // As a clone brings it: no control file, so nothing that would have to be agreed to.
    for (made, link, to) in [
        (".regent", ".regent/audit", "../logs"),
        (".regent/audit", ".regent/audit/lanes", "../../logs"),
        (".regent", ".regent/skills", "../logs"),
        (".regent", ".regent/tools", "../logs"),
        (".", ".regent", "logs"),
    ] {
        let world = CliFixture::bare();
        std::fs::create_dir_all(world.project("logs")).unwrap();
        std::fs::create_dir_all(world.project(made)).unwrap();
        symlink(to, world.project(link)).unwrap();
        for args in [&["--json", "init"][..], &["--json", "init", "--quick"], &["--json", "trust", "--yes"]] {
            let ended = world.run(args);
            assert_eq!((ended.code, ended.error_code().as_str()), (10, "folder.linked"), "{link}: {ended:?}");
            assert!(ended.stdout.contains(&format!("rm {link}")), "{ended:?}");
        }
        assert_eq!(std::fs::read_dir(world.project("logs")).unwrap().count(), 0, "{link}");
        assert!(std::fs::remove_file(world.project(link)).is_ok());
        assert_eq!(world.run(&["init"]).code, 0, "{link}");
    }
}

#[test]
fn b2_a_plain_file_in_the_place_of_one_folder_hides_no_link_in_the_place_of_another() {
    for (file, link) in [(".regent/audit", ".regent/skills"), (".regent/skills", ".regent/tools")] {
        let world = CliFixture::bare();
        std::fs::create_dir_all(world.project("logs")).unwrap();
        world.write(file, "");
        symlink("../logs", world.project(link)).unwrap();
        let ended = world.run(&["--json", "trust", "--yes"]);
        assert_eq!((ended.code, ended.error_code().as_str()), (10, "folder.linked"), "{link}: {ended:?}");
    }
}

#[test]
fn b3_a_control_file_behind_a_link_is_refused() {
    for (link, file) in [(".agentzero", "src/policy.yml"), (".agents", "src/security.md")] {
        let world = CliFixture::bare();
        world.write(file, "version: 1\nrules: []\n");
        symlink("src", world.project(link)).unwrap();
        for args in [&["--json", "init"][..], &["--json", "trust", "--yes"]] {
            let ended = world.run(args);
            assert_eq!((ended.code, ended.error_code().as_str()), (10, "folder.linked"), "{link}: {ended:?}");
        }
    }
}

#[test]
fn b2_every_start_looks_for_links() {
    let world = CliFixture::ready();
    world.write("notes.txt", "hello\n");
    let read = ["--json", "tool", "call", "fs.read", r#"{"path": "notes.txt"}"#];
    assert_eq!(world.run(&read).code, 0);
    for name in [".regent/audit/lanes", ".regent/audit", ".regent"] {
        let aside = world.project("aside");
        std::fs::rename(world.project(name), &aside).unwrap();
        symlink(&aside, world.project(name)).unwrap();
        for args in [&read[..], &["--json", "run", "--", "true"], &["--json", "gc"]] {
            let ended = world.run(args);
            assert_eq!((ended.code, ended.error_code().as_str()), (10, "folder.linked"), "{name}: {ended:?}");
        }
        std::fs::remove_file(world.project(name)).unwrap();
        std::fs::rename(&aside, world.project(name)).unwrap();
    }
    assert_eq!(world.run(&read).code, 0);
}

#[test]
fn b3_a_control_file_that_is_a_link_a_device_or_a_pipe_is_refused_at_once() {
    for name in [".regent/policy.yml", ".regent/config.toml", ".regent/skills.lock", ".agents/security.md"] {
        let world = CliFixture::bare();
        let path = world.project(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink("/dev/zero", &path).unwrap();
        for args in [&["--json", "init"][..], &["--json", "trust", "--yes"]] {
            // Without the limit a regression takes all the memory of the machine.
            let ended = world.run_limited("ulimit -v 4000000", args);
            assert_eq!((ended.code, ended.error_code().as_str()), (10, "folder.linked"), "{name}: {ended:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(world.host(&format!("mkfifo {name}")));
        let ended = world.run(&["--json", "init"]);
        assert_eq!(ended.code, 3, "{name}: {ended:?}");
        assert!(ended.stdout.contains("not a regular file"), "{ended:?}");
    }
    let world = CliFixture::bare();
    symlink("/dev/zero", world.project(".mcp.json")).unwrap();
    assert_eq!(world.run_limited("ulimit -v 4000000", &["init"]).code, 0);
}

#[test]
fn a_policy_or_settings_file_that_cannot_be_looked_at_is_not_absent() {
    let judge = ["--json", "judge"];
    let read = ["--json", "tool", "call", "fs.read", r#"{"path": "notes.txt"}"#];
    for name in ["policy.yml", "acs.yml", "policy.bundle", "config.toml", "tenants"] {
        let world = CliFixture::ready();
        world.write("notes.txt", "hello\n");
        assert_eq!(world.run(&read).code, 0);
        let path = world.home(".config/regent").join(name);
        drop(std::fs::remove_file(&path));
        // A link to a disk that isn't mounted.
        symlink("/nowhere/at/all", &path).unwrap();
        for args in [&read[..], &judge, &["--json", "init"]] {
            let ended = world.run(args);
            assert_ne!(ended.code, 0, "{name} {args:?}: {ended:?}");
        }
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink(), "{name}: nothing took its place");
    }
}

#[test]
fn a15_init_refuses_a_shared_folder_and_names_a_project_above() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = CliFixture::ready();
    let shared = world.home("shared");
    std::fs::create_dir_all(shared.join("own")).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let ended = world.run(&["--json", "init", "--quick", "-C", shared.to_str().unwrap()]);
    assert_eq!((ended.code, ended.error_code().as_str()), (2, "folder.wide"), "{ended:?}");
    assert!(!shared.join(".regent").exists());
    let below = world.run(&["init", "--quick", "-C", shared.join("own").to_str().unwrap()]);
    assert!(below.code == 0 && !below.stdout.contains("is a project too"), "{below:?}");
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
    let ended = world.run(&["init", "--quick", "-C", shared.to_str().unwrap()]);
    assert!(ended.code == 0 && ended.stderr.contains("chmod o-w"), "{ended:?}");
    std::fs::create_dir_all(world.project("sub")).unwrap();
    let below = world.run(&["init", "--quick", "-C", "sub"]);
    assert!(below.code == 0 && below.stdout.contains("is a project too"), "{below:?}");
}
