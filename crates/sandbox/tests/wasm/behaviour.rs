//! What guests can do, and what is written down of it.

use std::sync::Arc;

use regent_kernel::{Confidentiality, Digest, Driver, Integrity, ManualClock, Status};
use regent_sandbox::wasm::{WasmConfig, WasmTier};
use regent_testkit::{ALLOW_ALL, TestKernel};
use serde_json::json;

use crate::guests::{component, courier, echo, endless, reader, script, tool};
use crate::kit::{SMALL, WasmFixture, guest, spec};

#[tokio::test]
async fn a_tool_gets_its_arguments_and_gives_its_output() {
    let world = WasmFixture::new(SMALL, &[("same", echo())]).await;
    let outcome = world.outcome("same", json!({"a": [1, "ü"]})).await;
    assert_eq!(outcome.status, Status::Ok);
    assert_eq!(outcome.output.text(), r#"{"a":[1,"ü"]}"#);
    assert_eq!(outcome.output.label().integrity, Integrity::Tool);
    let receipt = outcome.obtained.unwrap();
    assert_eq!(receipt["tier"], "wasm");
    assert_eq!(receipt["world"], "tool");
    assert_eq!(receipt["sha256"], Digest::compute(&echo()).to_string());
    assert_eq!(receipt["fuel_max"], 300_000_000);
    assert_eq!(receipt["memory_bytes_max"], 8 << 20);
    let ended = &receipt["ended"];
    assert_eq!(ended["status"], "returned");
    assert_eq!(ended["memory_bytes_peak"], 2 << 16);
    let fuel = ended["fuel_used"].as_u64().unwrap();
    assert!((10..10_000).contains(&fuel), "{ended}");
}

#[tokio::test]
async fn the_same_call_costs_the_same_fuel() {
    let world = WasmFixture::new(SMALL, &[("same", echo())]).await;
    let mut fuel = Vec::new();
    for _ in 0..3 {
        let outcome = world.outcome("same", json!({"a": 1})).await;
        fuel.push(outcome.obtained.unwrap()["ended"]["fuel_used"].as_u64().unwrap());
    }
    assert!(fuel.iter().all(|one| *one == fuel[0]), "{fuel:?}");
}

#[tokio::test]
async fn a_tools_own_error_is_a_failure_with_its_words() {
    let fails = tool("", "no such thing", "(call $say (i32.const 1) (i32.const 64) (i32.const 13))");
    let world = WasmFixture::new(SMALL, &[("fails", fails)]).await;
    assert_eq!(world.said("fails", json!({})).await, Err("tool.failed: no such thing".to_owned()));
}

#[tokio::test]
async fn files_are_read_by_system_calls_of_the_same_caller() {
    let world = WasmFixture::new(ALLOW_ALL, &[("reads", reader("read-file", "notes.txt"))]).await;
    assert_eq!(world.said("reads", json!({})).await, Err("tool.failed: fs.not_found".to_owned()));
    world.put("notes.txt", "[cut at byte 1 of 2]");
    let before = world.intents().len();
    let outcome = world.outcome("reads", json!({})).await;
    assert_eq!(outcome.output.text(), "[cut at byte 1 of 2]");
    // The output is labelled as what went into it.
    assert_eq!(outcome.output.label().integrity, Integrity::Tool.max(Integrity::File));
    let intents = world.intents().split_off(before);
    let [outer, inner] = intents.as_slice() else { panic!("{intents:?}") };
    assert_eq!((&outer["tool"]["name"], &outer["depth"]), (&json!("reads"), &json!(0)));
    assert_eq!((&inner["tool"]["name"], &inner["depth"]), (&json!("fs.read"), &json!(1)));
    assert_eq!(inner["parent"], outcome.intent.seq);
    assert_eq!(inner["caller"], outer["caller"]);
}

#[tokio::test]
async fn what_came_in_labels_what_goes_out() {
    let world = WasmFixture::new(ALLOW_ALL, &[("reads", reader("read-text", ".env"))]).await;
    world.put(".env", "KEY=1");
    let outcome = world.outcome("reads", json!({})).await;
    assert_eq!(outcome.output.text(), "KEY=1");
    assert!(
        outcome.output.label().confidentiality >= Confidentiality::Secret,
        "{:?}",
        outcome.output.label()
    );
}

#[tokio::test]
async fn files_are_written_and_bytes_stay_as_they_are() {
    let import =
        r#"(import "regent:host/filesystem@0.1.0" "write-file" (func $write (param i32 i32 i32 i32 i32)))"#;
    let body = "(call $write (i32.const 64) (i32.const 7) (i32.const 71) (i32.const 4) (i32.const 4096))
        (if (i32.load8_u (i32.const 4096)) (then (return (call $pass_on))))
        (call $say (i32.const 0) (i32.const 64) (i32.const 7))";
    let writes = tool(import, "out.bin\\ff\\00\\01a", body);
    let world = WasmFixture::new(ALLOW_ALL, &[("writes", writes)]).await;
    assert_eq!(world.said("writes", json!({})).await, Ok("out.bin".to_owned()));
    assert_eq!(std::fs::read(world.kernel.workspace().join("out.bin")).unwrap(), [0xff, 0, 1, b'a']);
}

#[tokio::test]
async fn policy_says_no_to_a_guest_as_to_anybody() {
    let policy = "\
version: 1
rules:
  - { id: everything, effect: allow }
  - { id: no-notes, effect: deny, match: { tool: fs.read, path: 'notes*' }, reason: notes are private }
  - { id: ask-for-more, effect: ask, match: { tool: fs.read, path: 'more*' }, reason: is that needed }
";
    let guests = [("notes", reader("read-file", "notes.txt")), ("more", reader("read-file", "more.txt"))];
    let world = WasmFixture::new(policy, &guests).await;
    world.put("notes.txt", "private");
    world.put("more.txt", "more");
    assert_eq!(world.said("notes", json!({})).await, Err("tool.failed: policy.denied".to_owned()));
    assert_eq!(world.said("more", json!({})).await, Err("tool.failed: approval.pending".to_owned()));
}

#[tokio::test]
async fn a_folder_is_listed_and_a_file_described() {
    // The first entry's path; the size of a file as a character.
    let list = r#"(import "regent:host/filesystem@0.1.0" "list-dir" (func $list (param i32 i32 i32)))"#;
    let first = "(call $list (i32.const 64) (i32.const 3) (i32.const 4096))
        (if (i32.load8_u (i32.const 4096)) (then (return (call $pass_on))))
        (local.set $i (i32.load (i32.const 4100)))
        (call $say (i32.const 0) (i32.load (local.get $i)) (i32.load (i32.add (local.get $i) (i32.const 4))))";
    let stat = r#"(import "regent:host/filesystem@0.1.0" "stat" (func $stat (param i32 i32 i32)))"#;
    let size = "(call $stat (i32.const 64) (i32.const 7) (i32.const 4096))
        (i32.store8 (i32.const 32) (i32.wrap_i64 (i64.load (i32.const 4112))))
        (call $say (i32.const 0) (i32.const 32) (i32.const 1))";
    let guests = [("first", tool(list, "dir", first)), ("size", tool(stat, "dir/one", size))];
    let world = WasmFixture::new(ALLOW_ALL, &guests).await;
    world.put("dir/one", "x".repeat(65));
    assert_eq!(world.said("first", json!({})).await, Ok("dir/one".to_owned()));
    assert_eq!(world.said("size", json!({})).await, Ok("A".to_owned()));
}

#[tokio::test]
async fn tools_call_tools_down_to_the_kernels_limit() {
    let guests = [("same", echo()), ("to-same", courier("same")), ("round", courier("round"))];
    let world = WasmFixture::new(SMALL, &guests).await;
    assert_eq!(world.said("to-same", json!({"x": 1})).await, Ok(r#"{"x":1}"#.to_owned()));
    assert_eq!(world.said("round", json!({})).await, Err("tool.failed: tool.failed".to_owned()));
    let depths: Vec<u64> = world.intents().iter().filter_map(|body| body["depth"].as_u64()).collect();
    assert_eq!(depths.iter().max(), Some(&8));
}

#[tokio::test]
async fn log_lines_come_after_the_output_and_are_bounded() {
    let import = r#"(import "regent:host/logging@0.1.0" "log" (func $log (param i32 i32 i32)))"#;
    let body = "(call $log (i32.const 2) (i32.const 64) (i32.const 4))
        (call $say (i32.const 0) (local.get $text) (local.get $bytes))";
    let many = "(loop $again
        (call $log (i32.const 1) (i32.const 0) (i32.const 1000))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $i) (i32.const 1000))))
        (call $say (i32.const 0) (local.get $text) (local.get $bytes))";
    let guests = [("logs", tool(import, "hmm!", body)), ("storm", tool(import, "", many))];
    let world = WasmFixture::new(SMALL, &guests).await;
    let outcome = world.outcome("logs", json!({})).await;
    assert_eq!(outcome.output.text(), "{}warn: hmm!\n");
    let ended = outcome.obtained.unwrap()["ended"].clone();
    assert_eq!((&ended["stdout_bytes"], &ended["stderr_bytes"]), (&json!(2), &json!(11)));
    assert_eq!(ended["truncated"], false);
    let outcome = world.outcome("storm", json!({})).await;
    assert!(outcome.output.bytes().len() <= 10_000);
    let ended = outcome.obtained.unwrap()["ended"].clone();
    assert_eq!((&ended["stderr_bytes"], &ended["truncated"]), (&json!(10_000), &json!(true)));
}

#[tokio::test]
async fn the_clock_is_the_kernels() {
    let import = r#"(import "regent:host/clock@0.1.0" "now-ms" (func $now (result i64)))"#;
    let body =
        "(i64.store (i32.const 32) (call $now)) (call $say (i32.const 0) (i32.const 32) (i32.const 8))";
    let clock = Arc::new(ManualClock::starting_at(0x3132_3334_3536));
    let world =
        WasmFixture::with(ALLOW_ALL, &[("now", tool(import, "", body))], |builder| builder.clock(clock))
            .await;
    assert_eq!(world.said("now", json!({})).await, Ok("654321\0\0".to_owned()));
}

#[tokio::test]
async fn what_is_kept_is_found_again_by_the_same_tool_only() {
    let set = r#"(import "regent:host/kv@0.1.0" "set" (func $set (param i32 i32 i32 i32 i32)))"#;
    let get = r#"(import "regent:host/kv@0.1.0" "get" (func $get (param i32 i32 i32)))"#;
    // Says what was there before, or `none`, and keeps its input.
    let body = "(call $get (i32.const 64) (i32.const 3) (i32.const 4096))
        (if (i32.load8_u (i32.const 4096)) (then (return (call $pass_on))))
        (call $set (i32.const 64) (i32.const 3) (local.get $text) (local.get $bytes) (i32.const 4160))
        (if (i32.load8_u (i32.const 4160)) (then (return (call $say
            (i32.const 1) (i32.load (i32.const 4164)) (i32.load (i32.const 4168))))))
        (if (i32.load8_u (i32.const 4100)) (then (return (call $say
            (i32.const 0) (i32.load (i32.const 4104)) (i32.load (i32.const 4108))))))
        (call $say (i32.const 0) (i32.const 68) (i32.const 4))";
    let keeps = tool(&format!("{set}{get}"), "key none", body);
    let bad = "(call $get (i32.const 64) (i32.const 3) (i32.const 4096)) (call $pass_on)";
    let guests = [("one", keeps.clone()), ("two", keeps), ("bad", tool(get, "../", bad))];
    let world = WasmFixture::new(ALLOW_ALL, &guests).await;
    assert_eq!(world.said("one", json!({"v": 1})).await, Ok("none".to_owned()));
    assert_eq!(world.said("one", json!({"v": 2})).await, Ok(r#"{"v":1}"#.to_owned()));
    assert_eq!(world.said("two", json!({})).await, Ok("none".to_owned()));
    assert_eq!(world.said("one", json!({})).await, Ok(r#"{"v":2}"#.to_owned()));
    assert_eq!(world.said("bad", json!({})).await, Err("tool.failed: kv.key".to_owned()));
}

#[tokio::test]
async fn a_secret_is_a_name_to_a_guest() {
    let import = r#"(import "regent:host/secrets@0.1.0" "handle" (func $handle (param i32 i32 i32)))"#;
    let body = "(call $handle (i32.const 64) (i32.const 8) (i32.const 4096)) (call $pass_on)";
    let guests = [("named", tool(import, "api/keys", body)), ("bad", tool(import, "Api keys", body))];
    let world = WasmFixture::new(ALLOW_ALL, &guests).await;
    assert_eq!(world.said("named", json!({})).await, Ok("secret://api/keys".to_owned()));
    assert_eq!(world.said("bad", json!({})).await, Err("tool.failed: secret.name".to_owned()));
}

#[tokio::test]
async fn one_interpreter_serves_many_scripts() {
    // Gives back its source.
    let interpreter = script("(call $say (i32.const 0) (local.get $source) (local.get $length))");
    let digest = regent_kernel::Digest::compute(&interpreter);
    let tier = Arc::new(WasmTier::new(WasmConfig::default()));
    let declare = |builder: regent_testkit::test_kernel::Builder| {
        let scripts = [("first", "let a = 1"), ("second", "let b = 2")];
        scripts.into_iter().fold(builder, |so_far, (name, source)| {
            let script = tier.script(&interpreter, digest, source.to_owned()).unwrap();
            so_far.driven(spec(name), Driver::wasm(Arc::new(script)))
        })
    };
    let world = WasmFixture::with(ALLOW_ALL, &[], declare).await;
    for (name, source) in [("first", "let a = 1"), ("second", "let b = 2")] {
        let outcome = world.outcome(name, json!({})).await;
        assert_eq!(outcome.output.text(), source);
        let receipt = outcome.obtained.unwrap();
        assert_eq!(receipt["world"], "script");
        assert_eq!(receipt["source_sha256"], regent_kernel::Digest::compute(source.as_bytes()).to_string());
    }
}

/// On one thread: a guest that never ends must let others have it.
#[tokio::test(flavor = "current_thread")]
async fn a_busy_guest_lets_others_run() {
    let world = Arc::new(WasmFixture::new(SHORT, &[("spins", endless("", "", "")), ("same", echo())]).await);
    let spinning = {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.outcome("spins", json!({})).await.status })
    };
    tokio::task::yield_now().await;
    for _ in 0..3 {
        assert_eq!(world.said("same", json!({})).await, Ok("{}".to_owned()));
    }
    assert!(!spinning.is_finished(), "it ended before the others had a turn");
    assert_eq!(spinning.await.unwrap(), Status::TimedOut);
}

const SHORT: &str = "\
version: 1
limits: { wall: 1500ms }
rules:
  - { id: everything, effect: allow }
";

/// The only place is taken by a guest that waits for another guest.
#[tokio::test]
async fn a_call_waits_for_a_place_but_not_for_ever() {
    let tier = Arc::new(WasmTier::new(WasmConfig { guests_max: 1, ..WasmConfig::default() }));
    let mut builder = TestKernel::builder();
    for (name, wasm) in [("same", echo()), ("to-same", courier("same"))] {
        let (spec, driver) = guest(&tier, name, &wasm);
        builder = builder.driven(spec, driver);
    }
    let world = WasmFixture { kernel: builder.boot().await.unwrap() };
    assert_eq!(world.said("to-same", json!({})).await, Err("tool.failed: wasm.busy".to_owned()));
    assert_eq!(world.said("same", json!({})).await, Ok("{}".to_owned()));
}

/// Its time is over while a call that it made is still running: its stack is taken down in the middle of that.
#[tokio::test]
async fn a_guest_that_waits_for_a_call_is_stopped_too() {
    let tier = Arc::new(WasmTier::new(WasmConfig::default()));
    let mut builder = TestKernel::builder().policy(SHORT);
    for (name, wasm) in [("same", echo()), ("to-hangs", courier("hangs"))] {
        let (spec, driver) = guest(&tier, name, &wasm);
        builder = builder.driven(spec, driver);
    }
    let world = WasmFixture { kernel: builder.boot().await.unwrap() };
    let outcome = world.outcome("to-hangs", json!({})).await;
    assert_eq!(outcome.status, Status::TimedOut);
    assert_eq!(outcome.obtained.unwrap()["ended"]["host_calls"], 1);
    assert_eq!(world.said("same", json!({})).await, Ok("{}".to_owned()));
}

#[test]
fn the_wit_package_is_valid_and_has_both_worlds() {
    for world in ["tool", "script"] {
        let parameters = if world == "tool" { "(param i32 i32)" } else { "(param i32 i32 i32 i32)" };
        let module = format!(
            r#"(module (memory (export "memory") 1)
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 64)
                (func (export "run") {parameters} (result i32) i32.const 16))"#
        );
        assert!(!component(world, &module).is_empty());
    }
}
