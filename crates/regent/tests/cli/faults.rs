//! Files that are damaged, gone, open or full: errors name the file and the command that fixes it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::world::CliFixture;

const LIST: &[&str] = &["--json", "tool", "call", "fs.list", r#"{"path": "."}"#];

fn check(world: &CliFixture, id: &str, args: &[&str]) -> Value {
    found(&world.run(args).json(), id)
}

fn found(doctor: &Value, id: &str) -> Value {
    let checks = doctor["data"]["checks"].as_array().unwrap();
    checks.iter().find(|check| check["id"] == id).cloned().unwrap_or_default()
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn f11_a_damaged_state_database_is_moved_away_by_doctor() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let state = world.home(".local/state/regent/state.db");
    for damage in [&b"garbage, and more of it than a header has"[..], b""] {
        std::fs::write(&state, damage).unwrap();
        for end in ["-wal", "-shm"] {
            std::fs::remove_file(format!("{}{end}", state.display())).ok();
        }
        let ended = world.run(LIST);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.error_code().starts_with("state."), "{ended:?}");
        assert!(ended.stdout.contains("doctor --fix") && ended.stdout.contains("budgets"), "{ended:?}");
        let path = state.display().to_string();
        assert_eq!(ended.json()["error"]["message"].as_str().unwrap().matches(&path).count(), 1, "{ended:?}");
        assert_eq!(check(&world, "state.database", &["--json", "doctor"])["health"], "failed");
        let fixed = world.run(&["--json", "doctor", "--fix"]).json();
        assert!(fixed["data"]["fixed"].to_string().contains("start again"), "{fixed}");
        assert_eq!(found(&fixed, "state.database")["health"], "ok");
        assert_eq!(world.run(LIST).code, 0);
    }
    // Deleted is noticed as well: budgets and rates would begin again.
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", state.display())).ok();
    }
    let ended = world.run(LIST);
    assert_eq!((ended.code, ended.error_code().as_str()), (1, "state.gone"), "{ended:?}");
    world.run(&["doctor", "--fix"]);
    assert_eq!(world.run(LIST).code, 0);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[cfg(not(any(feature = "postgres", feature = "redis", feature = "dynamodb")))]
#[test]
fn a_server_that_this_build_has_no_client_for_is_an_error_with_the_build_command() {
    let world = CliFixture::ready();
    let file = world.home("state.url");
    std::fs::write(&file, "redis://:hunter2@127.0.0.1:1\n").unwrap();
    let set = ["config", "set", "state.url_file", file.to_str().unwrap()];
    assert_eq!(world.run(&set).code, 0);
    assert!(world.host("chmod 644 ~/state.url"));
    assert_eq!(world.run(LIST).error_code(), "state.url");
    assert!(world.host("chmod 600 ~/state.url"));
    let ended = world.run(LIST);
    assert_eq!((ended.code, ended.error_code().as_str()), (1, "state.feature"), "{ended:?}");
    assert!(ended.stdout.contains("--features redis") && !ended.stdout.contains("hunter2"), "{ended:?}");
    assert_eq!(check(&world, "state.database", &["--json", "doctor"])["health"], "failed");
    assert_eq!(world.run(&["config", "set", "state.url_file", ""]).code, 0);
    assert_eq!(world.run(LIST).code, 0);
}

#[test]
fn f11_a_database_without_a_version_is_refused_without_sql() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let state = world.home(".local/state/regent/state.db");
    // The version is at offset 60 of SQLite's header.
    for end in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", state.display())).ok();
    }
    let mut bytes = std::fs::read(&state).unwrap();
    bytes[60..64].copy_from_slice(&[0; 4]);
    std::fs::write(&state, bytes).unwrap();
    let ended = world.run(LIST);
    assert_eq!(ended.error_code(), "state.unusable", "{ended:?}");
    assert!(!ended.stdout.contains("CREATE"), "{ended:?}");
}

#[test]
fn f11_a_damaged_record_of_trust_is_fixed_by_trust() {
    let world = CliFixture::ready();
    std::fs::write(world.home(".local/state/regent/trust.json"), "{").unwrap();
    let ended = world.run(LIST);
    assert_eq!((ended.code, ended.error_code().as_str()), (3, "state.file"), "{ended:?}");
    let trusted = world.run(&["trust"]);
    assert_eq!(trusted.code, 0, "{trusted:?}");
    assert!(trusted.stderr.contains("other folders"), "{trusted:?}");
    assert_eq!(world.run(LIST).code, 0);
}

#[test]
fn f11_doctor_closes_the_ledger_and_the_state_to_others() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let (audit, state) = (world.project(".regent/audit"), world.home(".local/state/regent/state.db"));
    chmod(&audit, 0o755);
    chmod(&audit.join("lanes"), 0o755);
    chmod(&state, 0o644);
    assert_eq!(check(&world, "ledger.verifies", &["--json", "doctor"])["health"], "failed");
    let fixed = world.run(&["--json", "doctor", "--fix"]).json();
    assert_eq!(
        (&found(&fixed, "ledger.verifies")["health"], &found(&fixed, "state.database")["health"]),
        (&json!("ok"), &json!("ok")),
        "{fixed}"
    );
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&audit), mode(&state)), (0o700, 0o600));
}

#[test]
fn f12_doctor_notices_a_read_only_project_and_a_full_runtime_folder() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let project = world.project("").display().to_string();
    let project = project.trim_end_matches('/');
    let line =
        format!("mount --bind {project} {project} && mount -o remount,ro,bind {project} && cd {project}");
    let ended = world.run_after(&line, &["--json", "doctor"]);
    assert_ne!(ended.code, 0, "{ended:?}");
    assert_eq!(found(&ended.json(), "project.writable")["health"], "failed", "{ended:?}");
    let run = world.home("run").display().to_string();
    let ended = world.run_after(&format!("mount -t tmpfs -o size=64k none {run}"), &["--json", "doctor"]);
    assert_ne!(ended.code, 0, "{ended:?}");
    assert_eq!(found(&ended.json(), "runtime.writable")["health"], "failed", "{ended:?}");
}

#[test]
fn f14_a_full_state_folder_is_no_room_and_temporary() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let state = world.home(".local/state").display().to_string();
    // A copy of the state on a disk with no room left.
    let line = format!(
        "cp -a {state} {state}.copy && mount -t tmpfs -o size=32m none {state} && cp -a {state}.copy/. {state}/ && \
         {{ dd if=/dev/zero of={state}/fill bs=64k 2>/dev/null; true; }}"
    );
    let ended = world.run_after(&line, LIST);
    assert_eq!(ended.code, 75, "{ended:?}");
    assert!(ended.stdout.contains("room") || ended.stdout.contains("No space"), "{ended:?}");
}

#[test]
fn f14_a_limit_on_file_sizes_is_an_error_and_not_the_end_of_the_process() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let ended = world.run_limited("ulimit -f 1", LIST);
    assert_eq!(ended.code, 75, "{ended:?}");
    assert!(!ended.error_code().is_empty(), "{ended:?}");
    assert_eq!(world.run(LIST).code, 0);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn f14_reports_too_few_file_descriptors() {
    let world = CliFixture::ready();
    let ended = world.run_limited("ulimit -n 20", &["--json", "run", "--", "true"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (1, "limit.files"), "{ended:?}");
    assert!(ended.stdout.contains("20 files") && ended.stdout.contains("ulimit -n"), "{ended:?}");
    // A soft limit that may be raised is raised.
    let ended = world.run_limited("ulimit -S -n 20", LIST);
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn f14_a_long_runtime_folder_is_the_same_for_all_commands() {
    let world = CliFixture::ready();
    let long = world.home(&format!("run/{}", "x".repeat(90)));
    std::fs::create_dir_all(&long).unwrap();
    chmod(&long, 0o700);
    let env = [("XDG_RUNTIME_DIR", long.to_str().unwrap())];
    for args in [LIST, &["--json", "run", "--", "true"], &["--json", "agent", "ps"]] {
        let ended = world.run_with(args, &env, b"");
        assert_eq!(ended.code, 0, "{args:?}: {ended:?}");
    }
}

#[test]
fn f14_a_backup_inside_the_ledger_is_refused() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let ended = world.run(&["--json", "audit", "backup", ".regent/audit/x"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (2, "usage"), "{ended:?}");
    assert!(!world.project(".regent/audit/x").exists());
    assert_eq!(world.run(&["audit", "backup", "copy"]).code, 0);
}

/// As it looks after this many days.
fn age(path: &Path, days: u64) {
    let now = std::fs::metadata(path).unwrap().modified().unwrap();
    let then = now - std::time::Duration::from_secs(days * 24 * 60 * 60);
    std::fs::File::open(path).unwrap().set_modified(then).unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap().flatten() {
            age(&entry.path(), days);
        }
        std::fs::File::open(path).unwrap().set_modified(then).unwrap();
    }
}

#[test]
fn f5_gc_removes_what_is_left_of_dead_projects_and_records_it() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let state = world.home(".local/state/regent");
    let dead = "0".repeat(64);
    for name in [
        format!("witness/{dead}"),
        format!("lookup/{dead}.db"),
        format!("tasks/{dead}/locks/t-1"),
        format!("skills/{dead}.json"),
    ] {
        let path = state.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "x").unwrap();
    }
    // Everything here is old; what belongs to a project that is there stays all the same.
    for folder in ["witness", "lookup", "tasks", "skills"] {
        age(&state.join(folder), 200);
    }
    let planned = world.run(&["--json", "gc", "--dry-run"]).json();
    assert_eq!(planned["data"]["groups"].as_array().unwrap().len(), 4, "{planned}");
    assert!(state.join(format!("witness/{dead}")).exists(), "a dry run removes nothing");
    let before = world.entries().len();

    let ended = world.run(&["--json", "gc"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for name in [
        format!("witness/{dead}"),
        format!("lookup/{dead}.db"),
        format!("tasks/{dead}"),
        format!("skills/{dead}.json"),
    ] {
        assert!(!state.join(&name).exists(), "{name}");
    }
    assert_eq!(
        std::fs::read_dir(state.join("witness")).unwrap().count(),
        1,
        "the live project's witness stays"
    );
    let recorded: Vec<Value> = world
        .entries()
        .split_off(before)
        .into_iter()
        .filter(|entry| !entry["body"]["gc"].is_null())
        .collect();
    assert_eq!(recorded.len(), 4, "{recorded:?}");
    assert!(
        recorded.iter().any(|entry| entry["body"]["gc"]["items"].to_string().contains(&dead)),
        "{recorded:?}"
    );
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    assert_eq!(world.run(LIST).code, 0);
    assert_eq!(world.run(&["--json", "gc"]).json()["data"]["groups"], json!([]));
}

#[test]
fn f5_gc_keeps_everything_of_a_live_project_whatever_its_path_is() {
    let world = CliFixture::ready();
    for name in ["m\u{fa}sica", "it's", "a \"b\"", "back\\slash"] {
        let other = world.home(name);
        std::fs::create_dir_all(&other).unwrap();
        let other = other.to_str().unwrap();
        assert_eq!(world.run(&["init", "--quick", "-C", other]).code, 0, "{name}");
        let list = ["tool", "call", "-C", other, "fs.list", r#"{"path": "."}"#];
        assert_eq!(world.run(&list).code, 0, "{name}");
    }
    assert_eq!(world.run(LIST).code, 0);
    let state = world.home(".local/state/regent");
    let witnesses = || std::fs::read_dir(state.join("witness")).unwrap().count();
    let before = witnesses();
    for folder in ["witness", "lookup", "tasks", "skills", "generated"] {
        if state.join(folder).exists() {
            age(&state.join(folder), 200);
        }
    }
    let planned = world.run(&["--json", "gc", "--dry-run"]);
    assert_eq!(planned.json()["data"]["groups"], json!([]), "{planned:?}");
    assert_eq!(world.run(&["gc"]).code, 0);
    assert_eq!(witnesses(), before);
}

#[test]
fn gc_is_a_call_that_policy_judges() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let dead = world.home(".local/state/regent/witness").join("0".repeat(64));
    std::fs::write(&dead, "x").unwrap();
    age(&dead, 200);
    let deny = "version: 1\nrules:\n  - { id: no-gc, effect: deny, match: { tool: gc.remove }, reason: not today }\n";
    let policy = world.project(".regent/policy.yml");
    let before = std::fs::read_to_string(&policy).unwrap();
    std::fs::write(&policy, deny).unwrap();
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    let ended = world.run(&["--json", "gc"]);
    assert_eq!(ended.code, 10, "{ended:?}");
    assert!(dead.exists(), "{ended:?}");
    std::fs::write(&policy, before).unwrap();
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    assert_eq!(world.run(&["gc"]).code, 0);
    assert!(!dead.exists());
    let calls = world.entries();
    let intents = calls.iter().filter(|entry| entry.pointer("/body/tool/name") == Some(&json!("gc.remove")));
    assert_eq!(intents.count(), 2, "one that was denied, one that was done");
    let named = calls.iter().find(|entry| !entry["body"]["gc"].is_null()).unwrap();
    assert!(
        named["body"]["by"]
            .as_str()
            .unwrap()
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._@-".contains(c)),
        "{named}"
    );
}

/// Runs a call in a project whose ledger lies on a disk with this much room beyond what it has.
fn with_room(world: &CliFixture, kib: usize, args: &[&str]) -> crate::world::CliOutput {
    let audit = world.project(".regent/audit").display().to_string();
    let line = format!(
        "cp -a {audit} {audit}.copy && used=$(du -sk {audit}.copy | cut -f1) && mount -t tmpfs -o size=$((used + {kib}))k none {audit} && \
         cp -a {audit}.copy/. {audit}/ && rm -r {audit}.copy"
    );
    world.run_after(&line, args)
}

#[test]
fn f2_a_call_whose_outcome_finds_no_room_ends_with_16() {
    let seen: std::collections::BTreeSet<i32> = [0, 4, 8, 16, 32, 48, 64, 4096]
        .into_iter()
        .map(|kib| {
            let world = CliFixture::ready();
            // What is read is a payload of the outcome, so the intent fits where the outcome doesn't.
            world.write("big.txt", "x".repeat(200_000));
            assert_eq!(world.run(LIST).code, 0);
            let read = ["--json", "tool", "call", "fs.read", r#"{"path": "big.txt", "bytes_max": 200000}"#];
            let ended = with_room(&world, kib, &read);
            match ended.code {
                16 => {
                    assert_eq!(ended.error_code(), "outcome.unrecorded", "{kib}: {ended:?}");
                    assert!(!ended.stdout.contains("nothing was done"), "{kib}: {ended:?}");
                    assert!(ended.stdout.contains("don't repeat"), "{kib}: {ended:?}");
                }
                75 => assert!(ended.stdout.contains("nothing was done"), "{kib}: {ended:?}"),
                0 | 17 => {}
                _other => panic!("{kib}: {ended:?}"),
            }
            ended.code
        })
        .collect();
    assert!(seen.contains(&16) && seen.contains(&0), "{seen:?}");
}

#[test]
fn f5_gc_keeps_what_is_young_or_set_to_stay() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let state = world.home(".local/state/regent");
    let dead = state.join(format!("witness/{}", "0".repeat(64)));
    std::fs::write(&dead, "x").unwrap();
    assert_eq!(world.run(&["gc"]).code, 0);
    assert!(dead.exists(), "younger than the setting says");
    age(&dead, 200);
    assert_eq!(world.run(&["config", "set", "gc.dead_projects", "forever"]).code, 0);
    assert_eq!(world.run(&["gc"]).code, 0);
    assert!(dead.exists(), "set to stay");
    assert_eq!(world.run(&["config", "set", "gc.dead_projects", "soon"]).code, 2);
}

#[test]
fn f5_gc_removes_old_payloads_and_the_ledger_still_verifies() {
    let world = CliFixture::ready();
    world.write("a.txt", "alpha\n");
    // A second process writes to a lane of its own, which nobody writes to afterwards.
    let line = "touch up; until [ -e done ]; do sleep 0.05; done";
    let child = world.start(&["run", "--", "sh", "-c", line]);
    while !world.project("up").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(world.run(&["tool", "call", "fs.read", r#"{"path": "a.txt"}"#]).code, 0);
    world.write("done", "");
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(world.run(&["config", "set", "gc.payloads", "1s"]).code, 0);
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let packs = || {
        let lanes = std::fs::read_dir(world.project(".regent/audit/lanes")).unwrap().flatten();
        let files = lanes.flat_map(|lane| std::fs::read_dir(lane.path()).unwrap().flatten());
        files.filter(|file| file.path().extension().is_some_and(|end| end == "pack")).count()
    };
    let before = packs();
    let ended = world.run(&["--json", "gc"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(ended.json().pointer("/data/groups/0/removed"), Some(&json!(2)), "{ended:?}");
    // On a slow machine gc takes longer than a second, and so more than one pack.
    let own = packs() + 2 - before;
    assert!((1..=3).contains(&own), "gc has recorded itself in packs of its own: {own}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    let recorded = raw_entries(&world);
    assert!(recorded.contains("gc.payloads=1s"), "each removal is recorded: {recorded}");
    assert_eq!(world.run(LIST).code, 0);
}

fn lost(world: &CliFixture, what: &str) {
    for command in [LIST, &["--json", "audit", "verify"]] {
        let ended = world.run(command);
        assert_eq!((ended.code, ended.error_code().as_str()), (14, "audit.replaced"), "{what}: {ended:?}");
        for word in ["audit restore", "audit begin-anew"] {
            assert!(ended.stdout.contains(word), "{what}: {ended:?}");
        }
    }
}

fn raw_entries(world: &CliFixture) -> String {
    let lanes = std::fs::read_dir(world.project(".regent/audit/lanes")).unwrap().flatten();
    let files =
        lanes.flat_map(|lane| std::fs::read_dir(lane.path()).unwrap().flatten()).map(|file| file.path());
    let segments = files.filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    segments.map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn f1_a_ledger_that_git_clean_took_is_begun_anew_by_a_decision() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    std::fs::remove_dir_all(world.project(".regent/audit")).unwrap();
    lost(&world, "git clean");
    let init = world.run(&["--json", "init", "--quick"]);
    assert_eq!((init.code, init.error_code().as_str()), (14, "audit.replaced"), "{init:?}");
    let asked = world.run(&["--json", "audit", "begin-anew", "--because", "git clean"]);
    assert_eq!((asked.code, asked.error_code().as_str()), (2, "terminal.needed"), "{asked:?}");
    let (code, shown) = world.answering(&["audit", "begin-anew", "--because", "git clean"], &["n"]);
    assert_eq!(code, 10, "{shown}");
    lost(&world, "nobody agreed");
    let begun = world.run(&["--json", "audit", "begin-anew", "--because", "git clean -fdx", "--yes"]);
    assert_eq!(begun.code, 0, "{begun:?}");
    assert_eq!(world.run(LIST).code, 0);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    let said = raw_entries(&world);
    assert!(said.contains("begun_anew") && said.contains("git clean -fdx"), "{said}");
    assert_eq!(world.run(&["explain", "audit.replaced"]).code, 0);
}

#[test]
fn f1_a_backup_is_restored_by_a_decision() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    assert_eq!(world.run(&["audit", "backup", "../copy"]).code, 0);
    assert_eq!(world.run(LIST).code, 0);
    let calls = |world: &CliFixture| world.entries().iter().filter(|entry| entry["kind"] == "intent").count();
    let all = calls(&world);
    std::fs::remove_dir_all(world.project(".regent/audit")).unwrap();
    lost(&world, "the ledger is gone");
    let restored =
        world.run(&["--json", "audit", "restore", "../copy", "--because", "the disk died", "--yes"]);
    assert_eq!(restored.code, 0, "{restored:?}");
    assert_eq!(calls(&world), all - 1, "what the backup had");
    assert_eq!(world.run(LIST).code, 0);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    let said = raw_entries(&world);
    assert!(said.contains("restored") && said.contains("the disk died"), "{said}");
}

#[test]
fn f1_a_project_made_anew_at_an_old_place_gets_a_message() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    std::fs::remove_dir_all(world.project("")).unwrap();
    std::fs::create_dir_all(world.project("")).unwrap();
    let init = world.run(&["--json", "init"]);
    assert_eq!((init.code, init.error_code().as_str()), (14, "audit.replaced"), "{init:?}");
    assert!(init.stdout.contains("begin-anew"), "{init:?}");
    assert_eq!(world.run(&["audit", "begin-anew", "--because", "a new project", "--yes"]).code, 0);
    assert_eq!(world.run(LIST).code, 0);
    assert_eq!(world.run(&["init"]).code, 0);
}

#[test]
fn f1_a_lost_key_is_replaced_by_a_decision() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    std::fs::remove_file(world.home(".local/share/regent/ledger.key")).unwrap();
    let refused = world.run(&["--json", "audit", "begin-anew", "--because", "lost", "--yes"]);
    assert_eq!((refused.code, refused.error_code().as_str()), (14, "ledger.key_missing"), "{refused:?}");
    let begun =
        world.run(&["--json", "audit", "begin-anew", "--new-key", "--because", "the key is lost", "--yes"]);
    assert_eq!(begun.code, 0, "{begun:?}");
    assert_eq!(world.run(LIST).code, 0);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    // The old ledger is kept, and verifies by itself.
    let aside = begun.json()["data"]["aside"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["audit", "verify", "--ledger", &aside]).code, 0);
}

#[test]
fn f11_an_unreadable_witness_is_named_and_can_be_replaced() {
    let world = CliFixture::ready();
    assert_eq!(world.run(LIST).code, 0);
    let folder = world.home(".local/state/regent/witness");
    let witness = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_none())
        .unwrap();
    std::fs::write(&witness, "").unwrap();
    let ended = world.run(LIST);
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains(&witness.display().to_string()), "{ended:?}");
    assert!(ended.stdout.contains("audit restore"), "{ended:?}");
    let accepted = world.run(&["--json", "audit", "restore", "--because", "the witness was cut", "--yes"]);
    assert_eq!(accepted.code, 0, "{accepted:?}");
    assert_eq!(world.run(LIST).code, 0);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn f3_a_ledger_that_goes_while_a_program_runs_is_no_success() {
    for script in ["rm -rf .regent/audit", "mv .regent/audit aside"] {
        let world = CliFixture::ready();
        let child = world.start(&["run", "--", "sh", "-c", "touch started; sleep 2; touch finished"]);
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !world.project("started").exists() {
            assert!(std::time::Instant::now() < limit, "it never started");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(world.host(script));
        let ended = crate::world::ended(&child.wait_with_output().unwrap());
        assert!(world.project("finished").exists(), "{script}: {ended:?}");
        assert_eq!(ended.code, 16, "{script}: {ended:?}");
        assert!(!ended.stderr.contains("nothing was done"), "{script}: {ended:?}");
    }
}
