//! Changing a policy with evidence: what the ledger's own calls would have met.

use serde_json::Value;

use crate::world::CliFixture;

const CANDIDATE: &str = "version: 1
rules:
  - { id: only-docs, effect: allow, match: { tool: fs.read, path: 'docs/**' } }
  - { id: own-life, effect: allow, match: { op: [agent.*, policy.*, vfs.*, signal.*, approval.*, budget.*] } }
";

/// A project in which three files were read and one write was refused.
fn lived_in() -> CliFixture {
    let world = CliFixture::ready();
    world.write("docs/a.txt", "a");
    world.write("src/b.txt", "b");
    for path in ["docs/a.txt", "src/b.txt", "src/b.txt"] {
        let ended = world.run(&["tool", "call", "fs.read", &format!(r#"{{"path": "{path}"}}"#)]);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    let write = world.run(&["tool", "call", "fs.write", r#"{"path": ".git/hooks/x", "content": "x"}"#]);
    assert_eq!(write.code, 10, "{write:?}");
    world
}

fn count(data: &Value, name: &str) -> u64 {
    data.pointer(&format!("/data/{name}")).and_then(Value::as_u64).unwrap_or_else(|| panic!("{name}: {data}"))
}

#[test]
fn a_back_test_on_the_real_ledger() {
    let world = lived_in();
    world.write("new.yml", CANDIDATE);
    let ended = world.run(&["--json", "policy", "sim", "new.yml", "--since", "7d"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let found = ended.json();
    assert_eq!((count(&found, "newly_denied"), count(&found, "newly_allowed")), (2, 0), "{found}");
    assert_eq!(found.pointer("/data/changes/0/what").and_then(Value::as_str), Some("fs.read"));
    assert_eq!(found.pointer("/data/changes/0/calls").and_then(Value::as_u64), Some(2));
    // Today's policy against what was decided: nothing changed.
    let same = world.run(&["--json", "policy", "sim"]).json();
    assert_eq!((count(&same, "newly_denied"), count(&same, "not_reproduced")), (0, 0), "{same}");
    let told = world.run(&["policy", "sim", "new.yml"]).stdout;
    assert!(told.contains("2 newly denied"), "{told}");
    assert_eq!(world.run(&["policy", "sim", "--since", "soon"]).code, 2);
}

#[test]
fn what_was_learnt_allows_what_was_done() {
    let world = lived_in();
    let ended = world.run(&["policy", "learn", "--out", "learnt.yml"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let check = world.run(&["policy", "check", "learnt.yml"]);
    assert_eq!(check.code, 0, "{check:?}");
    let tried = world.run(&["--json", "policy", "sim", "learnt.yml"]).json();
    assert_eq!((count(&tried, "newly_denied"), count(&tried, "newly_allowed")), (0, 0), "{tried}");
}

#[test]
fn a_learnt_policy_allows_calls_with_two_paths_and_learns_nothing_from_failures() {
    let world = CliFixture::ready();
    world.write("src/b.txt", "b");
    world.host("mkdir -p out");
    for (tool, args) in [
        ("fs.copy", r#"{"from": "src/b.txt", "to": "out/b.txt"}"#),
        ("fs.move", r#"{"from": "out/b.txt", "to": "src/c.txt"}"#),
    ] {
        let ended = world.run(&["tool", "call", tool, args]);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    assert_eq!(world.run(&["policy", "learn", "--out", "learnt.yml"]).code, 0);
    let tried = world.run(&["--json", "policy", "sim", "learnt.yml"]).json();
    assert_eq!((count(&tried, "newly_denied"), count(&tried, "newly_allowed")), (0, 0), "{tried}");

    assert_eq!(world.run(&["tool", "call", "fs.read", r#"{"path": "missing.txt"}"#]).code, 5);
    assert_ne!(world.run(&["run", "--", "/no/such/program"]).code, 0);
    assert_eq!(world.run(&["run", "--", "false"]).code, 1);
    let learnt = world.run(&["policy", "learn"]).stdout;
    assert!(!learnt.contains("missing.txt") && !learnt.contains("/no/such/program"), "{learnt}");
    assert!(learnt.contains("\"false\""), "a program that ran and exited is an example: {learnt}");
}

#[test]
fn a_difference_names_the_gain() {
    let world = CliFixture::ready();
    world.write("old.yml", CANDIDATE);
    world.write("new.yml", CANDIDATE.replace("'docs/**'", "['docs/**', 'keys/**']"));
    let found = world.run(&["--json", "policy", "diff", "old.yml", "new.yml"]).json();
    let gains = found.pointer("/data/gains").and_then(Value::as_array).unwrap();
    assert!(
        gains.iter().any(|gain| gain["call"]["path"].as_str().is_some_and(|path| path.starts_with("keys"))),
        "{found}"
    );
    assert!(world.run(&["policy", "diff", "old.yml", "old.yml"]).stdout.contains("nothing is different"));
}

#[test]
fn the_smallest_rule_for_a_call_and_what_else_it_covers() {
    let world = lived_in();
    let call = "{ tool: fs.read, agent: operator, class: operator, path: /etc/hostname }";
    let found = world.run(&["--json", "policy", "cover", call]).json();
    assert!(found.pointer("/data/cover/conditions/path").is_some(), "{found}");
    assert_eq!(count(&found, "covered"), 0, "{found}");
    let fine = world.run(&["--json", "policy", "cover", "{ tool: fs.read, path: src/b.txt }"]).json();
    assert!(fine.pointer("/data/cover").is_some_and(Value::is_null), "{fine}");
}

#[test]
fn a_candidate_is_asked_beside_the_policy_and_decides_nothing() {
    let world = lived_in();
    std::fs::write(world.home(".config/regent/policy.candidate.yml"), CANDIDATE).unwrap();
    let read = world.run(&["tool", "call", "fs.read", r#"{"path": "src/b.txt"}"#]);
    assert_eq!(read.code, 0, "{read:?}");
    let found = world.run(&["--json", "policy", "shadow"]).json();
    let denied = found.pointer("/data/counted/newly_denied").and_then(Value::as_u64).unwrap();
    assert!(denied >= 1, "{found}");
}

#[test]
fn a_bundle_is_what_was_signed_or_nothing() {
    let world = CliFixture::ready();
    world.write("a.yml", CANDIDATE);
    let made = world.run(&["--json", "policy", "bundle", "a.yml", "--out", "a.bundle"]);
    assert_eq!(made.code, 0, "{made:?}");
    let key = made.json().pointer("/data/key").and_then(Value::as_str).unwrap().to_owned();
    let verified = world.run(&["policy", "verify", "a.bundle", "--key", &key, "--out", "unpacked"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert_eq!(std::fs::read_to_string(world.project("unpacked/a.yml")).unwrap(), CANDIDATE);
    let text = std::fs::read_to_string(world.project("a.bundle")).unwrap();
    world.write("b.bundle", text.replace("docs/**", "keys/**"));
    let other = world.run(&["--json", "policy", "verify", "b.bundle", "--key", &key]);
    assert_eq!((other.code, other.error_code().as_str()), (3, "policy.bundle"), "{other:?}");
    let stranger = CliFixture::ready();
    stranger.write("a.yml", CANDIDATE);
    let theirs = stranger.run(&["--json", "policy", "bundle", "a.yml", "--out", "a.bundle"]).json();
    let theirs = theirs.pointer("/data/key").and_then(Value::as_str).unwrap().to_owned();
    assert_eq!(world.run(&["policy", "verify", "a.bundle", "--key", &theirs]).code, 3);
}

#[test]
fn a_tenants_policy_narrows_its_own_agents() {
    let world = lived_in();
    let folder = world.home(".config/regent/tenants");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("acme.yml"), format!("{CANDIDATE}agents: [acme, acme/*]\n")).unwrap();
    let why = |agent: &str| {
        let ended =
            world.run(&["--json", "policy", "why", "fs.read", r#"{"path": "src/b.txt"}"#, "--agent", agent]);
        ended.json().pointer("/data/effect").and_then(Value::as_str).map(str::to_owned)
    };
    assert_eq!(why("other").as_deref(), Some("allow"));
    assert_eq!(why("acme").as_deref(), Some("deny"));
    std::fs::write(folder.join("bad.yml"), "version: 9").unwrap();
    assert_eq!(
        world.run(&["tool", "call", "fs.read", r#"{"path": "src/b.txt"}"#]).code,
        3,
        "a tenant's policy that can't be read stops everything"
    );
}

#[test]
fn a_sessions_decisions_are_receipts_that_follow_one_another() {
    let world = lived_in();
    let entries = world.run(&["--json", "audit", "find", "--tool", "fs.read"]).json();
    let place = entries.pointer("/data/calls/0").unwrap();
    let entry = format!(
        "{}/{}",
        place["lane"].as_str().map_or_else(|| place["lane"].to_string(), str::to_owned),
        place["seq"]
    );
    let shown = world.run(&["--json", "audit", "show", &entry]).json();
    let session = shown.pointer("/data/intent/body/session").and_then(Value::as_str).unwrap().to_owned();
    let ended = world.run(&["audit", "receipts", "--session", &session, "--out", "receipts.jsonl"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let text = std::fs::read_to_string(world.project("receipts.jsonl")).unwrap();
    let receipts: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        receipts.iter().any(|receipt| receipt["tool_name"] == "fs.read" && receipt["decision"] == "allow"),
        "{text}"
    );
    assert!((1..).zip(&receipts).all(|(number, receipt)| receipt["sequence"] == number), "{text}");
    assert_eq!(world.run(&["audit", "receipts", "--session", "none"]).code, 5);
}
