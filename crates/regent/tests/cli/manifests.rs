//! ACS manifests in force, and signed bundles: the real program, real files.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{CliFixture, CliOutput};

/// A manifest whose rules are in a file beside it. `{target}` is where the tools' points look.
const MANIFEST: &str = "\
agent_control_specification_version: 0.3.1-beta
policies:
  p: { type: rego, bundle: rules, query: data.acs.verdict }
tools:
  fs.read: { clearance: internal }
  fs.write: {}
  pay: {}
intervention_points:
  pre_tool_call: { policy_target: $.tool_call.args, tool_name_from: $.tool_call.name, policy: { id: p } }
  post_tool_call: { policy_target: $.tool_result, tool_name_from: $.tool_call.name, policy: { id: p } }
";

const RULES: &str = r#"
package acs
import rego.v1
default verdict := {"decision": "allow"}
at := input.intervention_point
args := input.policy_target.value
verdict := {"decision": "deny", "reason": "private", "message": "private things stay where they are"} if {
    at == "pre_tool_call"
    startswith(args.path, "private/")
}
verdict := {"decision": "escalate", "message": "is this one meant?"} if {
    at == "pre_tool_call"
    startswith(args.path, "ask/")
}
verdict := {"decision": "warn", "message": "a draft"} if {
    at == "pre_tool_call"
    startswith(args.path, "draft/")
}
verdict := {"decision": "transform", "transform": {"path": "$policy_target.path", "value": "public.txt"}} if {
    at == "pre_tool_call"
    args.path == "link.txt"
}
verdict := {"decision": "deny", "reason": "leak", "message": "it holds a key"} if {
    at == "post_tool_call"
    contains(json.marshal(args), "BEGIN KEY")
}
verdict := {"decision": "transform", "transform": {"path": "$policy_target", "value": "masked"}} if {
    at == "post_tool_call"
    contains(json.marshal(args), "4242")
}
"#;

fn with_manifest() -> CliFixture {
    let world = CliFixture::ready();
    world.write(".regent/acs.yml", MANIFEST);
    world.write(".regent/rules/a.rego", RULES);
    for (name, text) in [
        ("public.txt", "for all"),
        ("private/a.txt", "not for all"),
        ("ask/a.txt", "asked"),
        ("ask/b.txt", "asked"),
        ("draft/a.txt", "drafted"),
        ("link.txt", "the link itself"),
        ("key.txt", "-- BEGIN KEY --"),
        ("card.txt", "4242"),
    ] {
        world.write(name, text);
    }
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    world
}

fn read(world: &CliFixture, path: &str) -> CliOutput {
    world.run(&["--json", "tool", "call", "fs.read", &json!({"path": path}).to_string()])
}

#[test]
fn a_projects_manifest_is_in_force_at_every_call_and_every_result() {
    let world = with_manifest();
    let ended = read(&world, "public.txt");
    assert_eq!(ended.code, 0, "{ended:?}");
    let ended = read(&world, "private/a.txt");
    assert_eq!((ended.code, ended.error_code().as_str()), (10, "policy.manifest"), "{ended:?}");
    assert!(ended.stdout.contains("private things stay where they are"), "{ended:?}");
    let ended = read(&world, "link.txt");
    assert!(ended.code == 10 && ended.stdout.contains("a project can only narrow"), "c2: {ended:?}");
    let ended = world.run(&["tool", "call", "fs.read", r#"{"path": "draft/a.txt"}"#]);
    assert!(ended.code == 0 && ended.stderr.contains("a draft"), "{ended:?}");
    // What comes back: withheld, changed. The tool has run, and the ledger says so.
    let before = world.entries().len();
    let ended = read(&world, "key.txt");
    assert!(ended.code != 0 && ended.error_code() == "policy.withheld", "{ended:?}");
    assert!(!ended.stdout.contains("BEGIN KEY") && ended.stdout.contains("it holds a key"), "{ended:?}");
    assert!(world.entries().len() > before);
    let ended = read(&world, "card.txt");
    // Not the whole answer: the digests in it hold any four digits now and then.
    assert_eq!((ended.code, &ended.json()["data"]["output"]), (0, &json!("masked")), "{ended:?}");
    // A tool that the manifest doesn't know, and a project's file can't widen what the user's own forbids.
    let ended = world.run(&["--json", "tool", "call", "fs.list", r#"{"path": "."}"#]);
    assert!(ended.code == 10 && ended.stdout.contains("runtime_error:tool_unknown"), "{ended:?}");
    assert_eq!(read(&world, "/etc/shadow").error_code(), "policy.denied");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn an_approval_is_for_the_action_that_was_escalated() {
    let world = with_manifest();
    let ended = read(&world, "ask/a.txt");
    assert_eq!(ended.code, 11, "{ended:?}");
    assert!(ended.stdout.contains("is this one meant?"), "{ended:?}");
    let id = ended.json().pointer("/data/question").and_then(Value::as_str).unwrap().to_owned();
    assert_eq!(world.run(&["approve", &id]).code, 0);
    assert_eq!(read(&world, "ask/b.txt").code, 11, "another action");
    assert_eq!(read(&world, "ask/a.txt").code, 0, "this one");
    assert_eq!(read(&world, "ask/a.txt").code, 11, "once");
}

#[test]
fn check_test_why_and_trust_work_on_a_manifest() {
    let world = with_manifest();
    let checked = world.run(&["--json", "policy", "check"]).json();
    let files = checked.pointer("/data/files").and_then(Value::as_array).unwrap();
    assert!(files.iter().any(|one| one["file"] == ".regent/acs.yml" && one["ok"] == true), "{checked}");
    let why = |path: &str| {
        let args = json!({"path": path}).to_string();
        world.run(&["--json", "policy", "why", "fs.read", &args]).json()["data"].clone()
    };
    let said = why("private/a.txt");
    assert_eq!((&said["effect"], &said["rule"]["id"]), (&json!("deny"), &json!("acs.pre_tool_call")));
    assert_eq!(said["rule"]["line"], 9, "the line of the point");
    assert_eq!(why("ask/a.txt")["effect"], "ask");
    world.write(
        "cases.yml",
        "cases:\n  - { call: { tool: fs.read, path: private/x, args: { path: private/x } }, expect: deny, rule: acs.pre_tool_call }\n  - { call: { tool: fs.read, path: a, args: { path: a } }, expect: allow }\n",
    );
    let tested = world.run(&["--json", "policy", "test", "cases.yml"]);
    assert_eq!(tested.code, 0, "{tested:?}");
    // The rules beside it are as much its own as its text.
    world.write(".regent/rules/a.rego", RULES.replace("private/", "other/"));
    let ended = read(&world, "public.txt");
    assert_eq!((ended.code, ended.error_code().as_str()), (10, "folder.untrusted"), "{ended:?}");
    // What can't be read decides nothing: the folder is closed until it can.
    world.write(".regent/rules/a.rego", "package acs\nverdict := {");
    assert_eq!(world.run(&["trust"]).code, 3, "nor is it agreed to");
    assert_ne!(read(&world, "public.txt").code, 0);
    assert_eq!(world.run(&["policy", "check"]).code, 3);
}

#[test]
fn a_users_own_manifest_decides_beside_the_policy() {
    let world = with_manifest();
    std::fs::remove_file(world.project(".regent/acs.yml")).unwrap();
    std::fs::create_dir_all(world.home(".config/regent/rules")).unwrap();
    std::fs::write(world.home(".config/regent/acs.yml"), MANIFEST).unwrap();
    std::fs::write(world.home(".config/regent/rules/a.rego"), RULES).unwrap();
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    assert_eq!(read(&world, "public.txt").code, 0);
    assert_eq!(read(&world, "private/a.txt").error_code(), "policy.manifest");
    let health = world.run(&["--json", "doctor"]).json();
    assert!(health.to_string().contains("policy.user"), "{health}");
    std::fs::write(world.home(".config/regent/acs.yml"), MANIFEST.replace("0.3.1-beta", "0.9.9")).unwrap();
    assert_eq!(read(&world, "public.txt").code, 3, "one that isn't known stops everything");
}

#[test]
fn judged_sessions_are_under_the_manifest_too() {
    let world = CliFixture::bare();
    std::fs::create_dir_all(world.home(".config/regent/rules")).unwrap();
    let tools = json!({"pay": {"schema": {"properties": {"path": {"type": "string"}}}, "labels": {"effect": "read", "taint": "none"}}});
    let begin = |more: Value| {
        let mut message = json!({"op": "begin", "session": "s", "prompt": "go", "tools": tools});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        message.to_string()
    };
    let call = |op: &str, id: u32, path: &str, text: &str| {
        let call = json!({"id": id, "tool": "pay", "args": {"path": path}});
        let mut message = json!({"op": op, "session": "s", "call": call});
        if op == "observe" {
            message["output"] = json!({"text": text});
        }
        message.to_string()
    };
    let talk = |manifest: &str, messages: &[String]| -> Vec<Value> {
        std::fs::write(world.home(".config/regent/acs.yml"), manifest).unwrap();
        std::fs::write(world.home(".config/regent/rules/a.rego"), RULES).unwrap();
        let ended = world.run_with(&["judge", "--stdio"], &[], messages.join("\n").as_bytes());
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let session = [
        begin(json!({"applies_changes": true})),
        call("decide", 1, "private/x", ""),
        call("decide", 2, "ask/x", ""),
        call("decide", 3, "link.txt", ""),
        call("observe", 3, "link.txt", "BEGIN KEY"),
        call("decide", 4, "a", ""),
        call("observe", 4, "a", "4242"),
        call("decide", 5, "a", ""),
        call("observe", 5, "a", "fine"),
    ];
    let said = talk(MANIFEST, &session);
    assert_eq!((&said[1]["decision"], &said[1]["code"]), (&json!("deny"), &json!("policy.manifest")));
    assert_eq!(said[2]["decision"], "ask");
    assert_eq!((&said[3]["decision"], &said[3]["args"]), (&json!("allow"), &json!({"path": "public.txt"})));
    assert!(said[4]["withheld"].as_str().unwrap().contains("it holds a key"), "{}", said[4]);
    assert_eq!(said[6]["output"], "masked");
    assert!(said[8].get("output").is_none() && said[8].get("outcome").is_some(), "{}", said[8]);
    // A host that doesn't say that it applies changes gets no yes that depends on one.
    let said = talk(MANIFEST, &[begin(json!({})), call("decide", 1, "link.txt", "")]);
    assert_eq!(said[1]["decision"], "deny", "{}", said[1]);
    // Points that a host passes without us: it says that it sees to them, or there is no session.
    let more = format!("{MANIFEST}  output: {{ policy_target: $.output, policy: {{ id: p }} }}\n");
    let said = talk(&more, &[begin(json!({})), call("decide", 1, "a", "")]);
    assert!(
        said[0]["error"].as_str().unwrap().contains("output") && said[1]["decision"] == "deny",
        "{said:?}"
    );
    let said = talk(&more, &[begin(json!({"mediates": ["output"]})), call("decide", 1, "a", "")]);
    assert_eq!(said[1]["decision"], "allow", "{said:?}");
}

const NARROW: &str = "\
version: 1
rules:
  - { id: read, effect: allow, match: { tool: fs.read } }
  - { id: no-notes, effect: deny, match: { path: 'notes/**' } }
";

/// Makes a bundle of these files as somebody else, and says how it is verified.
fn bundle(publisher: &CliFixture, name: &str, text: &str) -> (Vec<u8>, String) {
    publisher.write(&format!("{name}.yml"), text);
    let out = format!("{name}.bundle");
    let made = publisher.run(&["--json", "policy", "bundle", &format!("{name}.yml"), "--out", &out]);
    assert_eq!(made.code, 0, "{made:?}");
    let key = made.json().pointer("/data/key").and_then(Value::as_str).unwrap().to_owned();
    (std::fs::read(publisher.project(&out)).unwrap(), key)
}

fn apply(world: &CliFixture, bytes: &[u8], more: &[&str]) -> CliOutput {
    world.write("in.bundle", bytes);
    world.run(&[&["--json", "policy", "apply", "in.bundle"], more].concat())
}

#[test]
fn a_bundle_is_put_in_force_by_a_publisher_that_the_user_named() {
    let (world, publisher) = (CliFixture::ready(), CliFixture::ready());
    world.write("notes/a.txt", "n");
    world.write("b.txt", "b");
    let (old, key) = bundle(&publisher, "old", &NARROW.replace("notes/**", "b.txt"));
    let (new, _) = bundle(&publisher, "new", NARROW);
    let ended = apply(&world, &new, &[]);
    assert_eq!((ended.code, ended.error_code().as_str()), (3, "policy.bundle"));
    assert!(
        ended.stdout.contains("no publisher is configured") && ended.stdout.contains("policy.publishers"),
        "{ended:?}"
    );
    assert_eq!(world.run(&["config", "set", "policy.publishers", &key]).code, 0);
    assert_eq!(read(&world, "notes/a.txt").code, 0);

    let ended = apply(&world, &new, &[]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(read(&world, "notes/a.txt").error_code(), "policy.denied");
    assert_eq!(read(&world, "b.txt").code, 0);
    let recorded: Vec<Value> =
        world.entries().into_iter().filter(|entry| entry["kind"] == "policy").collect();
    assert!(
        recorded.iter().any(|entry| entry["body"]["files"].to_string().contains("new.yml")),
        "{recorded:?}"
    );
    let checked = world.run(&["policy", "check"]);
    assert!(checked.code == 0 && checked.stdout.contains("new.yml"), "{checked:?}");
    let health = world.run(&["--json", "doctor"]).json().to_string();
    assert!(health.contains("policy.bundle") && health.contains("is active"), "{health}");

    // It doesn't go back by itself.
    let ended = apply(&world, &old, &[]);
    assert!(
        ended.code == 3 && ended.stdout.contains("older") && ended.stdout.contains("--allow-older"),
        "{ended:?}"
    );
    assert_eq!(read(&world, "notes/a.txt").error_code(), "policy.denied", "the new one is still in force");
    assert_eq!(apply(&world, &new, &[]).code, 0, "the same again");
    assert_eq!(apply(&world, &old, &["--allow-older"]).code, 0);
    assert_eq!(
        (read(&world, "notes/a.txt").code, read(&world, "b.txt").error_code().as_str()),
        (0, "policy.denied")
    );
    assert_eq!(apply(&world, &new, &[]).code, 0);
    assert_eq!(world.run(&["policy", "apply", "--withdraw"]).code, 0);
    assert_eq!(read(&world, "notes/a.txt").code, 0);
    assert_eq!(apply(&world, &old, &[]).code, 3, "what is older stays older");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn a_manifest_travels_with_its_rules() {
    let (world, publisher) = (CliFixture::ready(), CliFixture::ready());
    world.write("private/a.txt", "n");
    publisher.write("rules/a.rego", RULES);
    let (bytes, key) = bundle(&publisher, "acs", MANIFEST);
    assert_eq!(world.run(&["config", "set", "policy.publishers", &key]).code, 0);
    assert_eq!(apply(&world, &bytes, &[]).code, 0);
    assert_eq!(read(&world, "private/a.txt").error_code(), "policy.manifest");
    world.write("b.txt", "b");
    assert_eq!(read(&world, "b.txt").code, 0);
    let unpacked = world.run(&["policy", "verify", "in.bundle", "--key", &key, "--out", "unpacked"]);
    assert_eq!(unpacked.code, 0, "{unpacked:?}");
    assert_eq!(std::fs::read_to_string(world.project("unpacked/rules/a.rego")).unwrap(), RULES);
}

#[test]
fn a_tampered_or_wrongly_signed_bundle_is_refused_and_the_old_one_holds() {
    let (world, publisher, stranger) = (CliFixture::ready(), CliFixture::ready(), CliFixture::ready());
    world.write("notes/a.txt", "n");
    let (good, key) = bundle(&publisher, "good", NARROW);
    let (forged, _) = bundle(&stranger, "forged", "version: 1\nrules: [{ id: all, effect: allow }]\n");
    assert_eq!(world.run(&["config", "set", "policy.publishers", &key]).code, 0);
    assert_eq!(apply(&world, &good, &[]).code, 0);
    let text = String::from_utf8(good.clone()).unwrap();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("another publisher", forged),
        ("a file changed", text.replace("notes/**", "other/**").into_bytes()),
        ("a digest changed", text.replacen("sha256\":\"", "sha256\":\"0", 1).into_bytes()),
        ("no signature", text.split("\n\n").next().unwrap().as_bytes().to_vec()),
        ("cut", good[..good.len() / 2].to_vec()),
        ("nothing", Vec::new()),
        ("not text", vec![0xff, 0xfe]),
    ];
    for (what, bytes) in &cases {
        let ended = apply(&world, bytes, &["--allow-older"]);
        assert_eq!(ended.code, 3, "{what}: {ended:?}");
        assert_eq!(read(&world, "notes/a.txt").error_code(), "policy.denied", "{what}: the old one holds");
    }
    // What lies where the bundle in force lies is believed again each time.
    let place = world.home(".config/regent/policy.bundle");
    for (what, bytes) in &cases {
        std::fs::write(&place, bytes).unwrap();
        let ended = read(&world, "notes/a.txt");
        assert_eq!(ended.code, 3, "{what}: {ended:?}");
    }
    let health = world.run(&["--json", "doctor"]).json().to_string();
    assert!(health.contains("policy.bundle"), "{health}");
    let (other, _) = bundle(&publisher, "other", &NARROW.replace("notes/**", "other/**"));
    std::fs::write(&place, other).unwrap();
    let ended = read(&world, "notes/a.txt");
    assert!(ended.code == 3 && ended.stdout.contains("differs from the one that was applied"), "{ended:?}");
    std::fs::write(&place, &good).unwrap();
    assert_eq!(read(&world, "notes/a.txt").error_code(), "policy.denied");
    assert_eq!(world.run(&["config", "set", "policy.publishers", ""]).code, 0);
    assert_eq!(read(&world, "notes/a.txt").code, 3, "nobody vouches for it any more");
}

#[test]
fn a_kernel_that_runs_takes_up_a_bundle_and_stays_with_the_old_policy_if_it_is_bad() {
    let (world, publisher) = (CliFixture::ready(), CliFixture::ready());
    let (good, key) = bundle(&publisher, "good", NARROW);
    assert_eq!(world.run(&["config", "set", "policy.publishers", &key]).code, 0);
    let mut running = world.start(&["run", "--agent", "waits", "--", "sleep", "60"]);
    let mut said = running.stderr.take().unwrap();
    let (to, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = said.read(&mut piece) {
            let _gone = to.send(String::from_utf8_lossy(&piece[..length]).into_owned());
        }
    });
    let wait_for = |words: &str| {
        let (mut all, until) = (String::new(), Instant::now() + Duration::from_secs(60));
        while !all.contains(words) {
            let left = until.saturating_duration_since(Instant::now());
            all.push_str(&heard.recv_timeout(left).unwrap_or_else(|_| panic!("never said {words:?}: {all}")));
        }
    };
    let up = || world.run(&["--json", "agent", "ps"]).stdout.contains("waits");
    while !up() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(apply(&world, &good, &[]).code, 0);
    wait_for("the new one is active");
    std::fs::write(world.home(".config/regent/policy.bundle"), "broken").unwrap();
    wait_for("the old one stays active");
    running.kill().unwrap();
    running.wait().unwrap();
}
