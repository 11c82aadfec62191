//! The ledger as people use it: what happened, proof of it, and tampering found.

use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::Value;

use crate::world::CliFixture;

fn segment(ledger: &Path) -> std::path::PathBuf {
    let lane = ledger.join("lanes/0000");
    let mut files: Vec<_> = std::fs::read_dir(lane).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
    files.sort();
    files.remove(0)
}

#[test]
fn attempts_verdicts_and_outcomes_are_there() {
    let world = CliFixture::ready();
    world.write("a.txt", "alpha\n");
    world.run(&["tool", "call", "fs.read", r#"{"path": "a.txt"}"#]);
    world.run(&["tool", "call", "fs.write", r#"{"path": ".git/config", "content": ""}"#]);
    let entries = world.entries();
    let of = |kind: &str| entries.iter().filter(|entry| entry["kind"] == kind).collect::<Vec<_>>();
    let verdicts: Vec<&Value> =
        of("intent").into_iter().map(|entry| &entry["body"]["verdict"]["effect"]).collect();
    assert_eq!(verdicts, ["allow", "deny"]);
    assert_eq!(of("outcome").len(), 1);
    let intent = of("intent")[0];
    let place = format!("{}/{}", intent["lane"].as_str().unwrap(), intent["seq"]);
    let shown = world.run(&["audit", "show", &place]);
    assert!(shown.stdout.contains("alpha") && shown.stdout.contains("a.txt"), "{shown:?}");
    let proof = world.run(&["--json", "audit", "prove", &place]).json();
    assert!(proof.pointer("/data/proof/checkpoint").is_some());
}

#[test]
fn an_export_holds_the_session_with_proofs() {
    let world = CliFixture::ready();
    world.run(&["run", "--", "true"]);
    let entries = world.entries();
    let session = entries.last().unwrap()["body"]["session"].as_str().unwrap().to_owned();
    let ended = world.run(&["--json", "audit", "export", "--session", &session, "--out", "session.json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let export: Value =
        serde_json::from_slice(&std::fs::read(world.project("session.json")).unwrap()).unwrap();
    assert_eq!(export["session"], session);
    assert!(export.pointer("/lanes/0/entries/0/path").is_some());
}

#[test]
fn adv_085_a_changed_ledger_is_found_named_and_sealed() {
    let world = CliFixture::ready();
    world.run(&["run", "--", "true"]);
    let path = segment(&world.project(".regent/audit"));
    let good = std::fs::read(&path).unwrap();
    for at in [good.len() / 3, good.len() / 2, good.len() - 40] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let ended = world.run(&["--json", "audit", "verify"]);
        assert_eq!((ended.code, ended.error_code().as_str()), (14, "audit.broken"), "byte {at}: {ended:?}");
        let ended = world.run(&["--json", "tool", "call", "fs.list", r#"{"path": "."}"#]);
        assert_eq!(ended.code, 14, "sealed: {ended:?}");
        assert_eq!(std::fs::read(&path).unwrap(), bad, "nothing was changed");
    }
    std::fs::write(&path, &good).unwrap();
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    assert_eq!(world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]).code, 0);
}

#[test]
fn adv_088_an_unproven_tail_is_never_plain_ok() {
    let world = CliFixture::ready();
    world.run(&["run", "--", "true"]);
    let path = segment(&world.project(".regent/audit"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"at\":17");
    std::fs::write(&path, &bytes).unwrap();
    let ended = world.run(&["--json", "audit", "verify"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (14, "audit.unproven"), "{ended:?}");
    assert_eq!(
        world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]).code,
        0,
        "a crash causes this; work continues"
    );
    assert_eq!(world.run(&["audit", "verify"]).code, 0, "settled and recorded");
}

#[test]
fn adv_090_a_rolled_back_ledger_is_found() {
    let world = CliFixture::ready();
    world.run(&["run", "--", "true"]);
    assert_eq!(world.run(&["audit", "backup", "../yesterday"]).code, 0);
    world.run(&["run", "--", "true"]);
    let audit = world.project(".regent/audit");
    std::fs::remove_dir_all(&audit).unwrap();
    std::fs::rename(world.home("yesterday"), &audit).unwrap();
    assert_eq!(world.run(&["audit", "verify"]).code, 14);
    assert_eq!(world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]).code, 14);
}

#[test]
fn adv_094_a_payload_can_be_erased_and_the_ledger_still_verifies() {
    let world = CliFixture::ready();
    world.write("private.txt", "a name and an address\n");
    world.run(&["tool", "call", "fs.read", r#"{"path": "private.txt"}"#]);
    let outcome = world.entries().into_iter().find(|entry| entry["kind"] == "outcome").unwrap();
    let digest = outcome["body"]["output"]["sha256"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["audit", "erase", &digest, "--because", "asked to"]).code, 0);
    let place = format!("{}/{}", outcome["lane"].as_str().unwrap(), outcome["seq"]);
    assert!(!world.run(&["audit", "show", &place]).stdout.contains("a name and an address"));
    let ended = world.run(&["--json", "audit", "verify"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(ended.json().pointer("/data/report/erased"), Some(&Value::from(1)));
}

#[test]
fn an_erasure_is_a_call_of_the_operators_and_names_who_made_it() {
    let world = CliFixture::ready();
    world.write("private.txt", "a name and an address\n");
    world.run(&["tool", "call", "fs.read", r#"{"path": "private.txt"}"#]);
    let outcome = world.entries().into_iter().find(|entry| entry["kind"] == "outcome").unwrap();
    let digest = outcome["body"]["output"]["sha256"].as_str().unwrap().to_owned();
    // No agent erases anything.
    let args = serde_json::json!({"digest": digest, "because": "cover up"}).to_string();
    let refused = world.run(&["--json", "tool", "call", "--agent", "mallory", "audit.erase", &args]);
    assert_eq!((refused.code, refused.error_code().as_str()), (10, "tool.operator_only"), "{refused:?}");
    assert_eq!(world.run(&["audit", "erase", &digest, "--because", "asked to"]).code, 0);
    let entries = world.entries();
    let at = |kind: &str, tool: Option<&str>| {
        entries.iter().rposition(|entry| {
            entry["kind"] == kind && tool.is_none_or(|tool| entry["body"]["tool"]["name"] == tool)
        })
    };
    let (intent, erased) = (at("intent", Some("audit.erase")).unwrap(), at("erase", None).unwrap());
    assert!(intent < erased, "the intent comes first");
    let who = entries[intent]["body"]["caller"]["chain"][0].as_str().unwrap();
    assert!(!who.is_empty() && who != "operator", "{who}");
    let reason = entries[erased]["body"]["reason"].as_str().unwrap();
    assert!(reason.contains("asked to") && reason.contains(who), "{reason}");
}

#[test]
fn the_processes_of_this_machine_are_for_the_operator_alone() {
    let world = CliFixture::ready();
    let agents = world.run(&["tool", "call", "--agent", "worker", "process.list", "{}"]);
    assert_eq!(agents.code, 0, "{agents:?}");
    assert!(agents.stdout.contains("programs") && !agents.stdout.contains("processes"), "{agents:?}");
    let operators = world.run(&["tool", "call", "process.list", "{}"]);
    assert!(operators.code == 0 && operators.stdout.contains("processes"), "{operators:?}");
}

#[test]
fn adv_103_two_at_once_both_work_and_a_copy_opens() {
    let world = CliFixture::ready();
    let children: Vec<_> =
        (0..4).map(|_| world.start(&["tool", "call", "fs.list", r#"{"path": "."}"#])).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let intents = world.entries().iter().filter(|entry| entry["kind"] == "intent").count();
    assert_eq!(intents, 4);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    assert_eq!(world.run(&["audit", "backup", "../copy"]).code, 0);
    assert_eq!(world.run(&["audit", "verify", "--ledger", "../copy"]).code, 0);
    assert_eq!(world.run(&["audit", "backup", "../copy"]).code, 6, "a copy never overwrites");
}

#[test]
fn a_ledger_can_be_followed_as_json_lines() {
    let world = CliFixture::ready();
    world.run(&["tool", "call", "fs.list", r#"{"path": "."}"#]);
    let mut follower = world.start(&["--json", "audit", "tail", "-n", "2", "--follow"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    for _ in 0..2 {
        assert_eq!(next()["schema"], "regent.audit.tail/v1");
    }
    world.run(&["tool", "call", "no.such"]);
    let denied = loop {
        let entry = next();
        if entry["data"]["kind"] == "intent" {
            break entry;
        }
    };
    assert_eq!(denied["data"]["body"]["verdict"]["code"], "tool.unknown", "only what came since");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn calls_are_found_without_reading_them_all() {
    let world = CliFixture::ready();
    world.write("a.txt", "a");
    for path in ["a.txt", "missing"] {
        world.run(&["tool", "call", "fs.read", &format!(r#"{{"path":"{path}"}}"#)]);
    }
    world.run(&["tool", "call", "fs.write", r#"{"path":".git/hooks/x","content":"x"}"#]);
    for (words, count) in [
        (&["--tool", "fs.read"][..], 2),
        (&["--status", "failed"], 1),
        (&["--verdict", "deny", "--rule", "control-files"], 1),
        (&["--since", "1h", "-n", "1"], 1),
        (&["--until", "1h"], 0),
        (&["--agent", "nobody-else"], 0),
    ] {
        let found = world.run(&[&["--json", "audit", "find"], words].concat()).json();
        assert_eq!(found["data"]["calls"].as_array().map(Vec::len), Some(count), "{words:?}: {found}");
    }
    assert_eq!(world.run(&["audit", "find", "--since", "soon"]).code, 2);
}

#[test]
fn f13_a_lost_signing_key_is_not_replaced_silently() {
    let world = CliFixture::ready();
    let list: &[&str] = &["--json", "tool", "call", "fs.list", r#"{"path": "."}"#];
    assert_eq!(world.run(list).code, 0);
    let key = world.home(".local/share/regent/ledger.key");
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    for command in [list, &["--json", "init", "--quick"]] {
        let ended = world.run(command);
        assert_eq!((ended.code, ended.error_code().as_str()), (14, "ledger.key_missing"), "{ended:?}");
        assert!(ended.stdout.contains("begin-anew"), "{ended:?}");
    }
    assert!(!key.exists(), "no new key was created");
    let doctor = world.run(&["--json", "doctor"]).json();
    let check = doctor["data"]["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["id"] == "ledger.key")
        .cloned();
    assert_eq!(check.unwrap()["health"], "failed");

    // A different file in its place is reported.
    std::fs::create_dir(&key).unwrap();
    let ended = world.run(list);
    assert_eq!(ended.error_code(), "ledger.key", "{ended:?}");
    assert!(ended.stdout.contains("not a regular file") && !ended.stdout.contains("chmod"), "{ended:?}");
    std::fs::remove_dir(&key).unwrap();
    // Put back, everything continues.
    std::fs::write(&key, kept).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(world.run(list).code, 0);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn f13_a_ledger_of_another_key_is_not_called_broken() {
    let world = CliFixture::ready();
    let list: &[&str] = &["--json", "tool", "call", "fs.list", r#"{"path": "."}"#];
    assert_eq!(world.run(list).code, 0);
    // The same ledger as a colleague sees it: their own key, and no witness.
    std::fs::remove_dir_all(world.home(".local/state/regent/witness")).unwrap();
    std::fs::remove_file(world.home(".local/share/regent/ledger.key")).unwrap();
    assert_eq!(world.run(&["init", "--quick"]).code, 0);
    for command in [list, &["--json", "audit", "verify"]] {
        let ended = world.run(command);
        assert_eq!((ended.code, ended.error_code().as_str()), (14, "audit.other_key"), "{ended:?}");
        assert!(!ended.stdout.contains("broken"), "{ended:?}");
    }
    assert_eq!(world.run(&["explain", "audit.other_key"]).code, 0);
}

#[test]
fn doctor_and_lint_agree_on_the_policy_that_init_wrote() {
    let world = CliFixture::ready();
    assert_eq!(world.run(&["policy", "lint"]).code, 0);
    let doctor = world.run(&["--json", "doctor"]).json();
    let check = doctor["data"]["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["id"] == "policy.lint")
        .cloned();
    assert_eq!(check.unwrap()["health"], "ok");
}
