//! Core modules of the older `az` kind.

use regent_testkit::ALLOW_ALL;
use serde_json::json;

use crate::kit::{SMALL, WasmFixture};

const MEMORY: &str = r#"(memory (export "memory") 1)
    (global $free (mut i32) (i32.const 4096))
    (func (export "alloc") (param $bytes i32) (result i32)
      (local $at i32)
      (local.set $at (global.get $free))
      (global.set $free (i32.add (local.get $at) (local.get $bytes)))
      (local.get $at))"#;
const PACK: &str = r#"(func $pack (param $at i32) (param $bytes i32) (result i64)
      (i64.or (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32)) (i64.extend_i32_u (local.get $bytes))))"#;

fn module(imports: &str, rest: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {imports} {MEMORY} {PACK} {rest})")).unwrap()
}

const RUN_ECHO: &str =
    r#"(func (export "run") (param i32 i32) (result i64) (call $pack (local.get 0) (local.get 1)))"#;
const READ: &str = r#"(import "az" "read_file" (func $read (param i32 i32) (result i64)))"#;
const WRITE: &str = r#"(import "az" "write_file" (func $write (param i32 i32 i32 i32) (result i32)))"#;
const LOG: &str = r#"(import "az" "log" (func $log (param i32 i32)))"#;

#[tokio::test]
async fn run_gets_the_input_and_gives_the_output() {
    let world = WasmFixture::new(SMALL, &[("same", module("", RUN_ECHO))]).await;
    let outcome = world.outcome("same", json!({"a": "ü"})).await;
    assert_eq!(outcome.output.text(), r#"{"a":"ü"}"#);
    let receipt = outcome.obtained.unwrap();
    assert_eq!((&receipt["tier"], &receipt["world"]), (&json!("wasm"), &json!("module")));
}

#[tokio::test]
async fn files_and_lines_go_the_same_way_as_everybodys() {
    let reads = r#"(data (i32.const 64) "in.txt")
        (func (export "run") (param i32 i32) (result i64)
          (call $log (i32.const 64) (i32.const 6))
          (call $read (i32.const 64) (i32.const 6)))"#;
    let writes = r#"(data (i32.const 64) "out.txtwritten")
        (func (export "main") (result i32)
          (call $write (i32.const 64) (i32.const 7) (i32.const 71) (i32.const 7)))"#;
    let guests = [("reads", module(&format!("{READ}{LOG}"), reads)), ("writes", module(WRITE, writes))];
    let world = WasmFixture::new(ALLOW_ALL, &guests).await;
    assert_eq!(world.said("reads", json!({})).await, Err("tool.failed: it returned nothing".to_owned()));
    world.put("in.txt", "content");
    assert_eq!(world.said("reads", json!({})).await, Ok("contentin.txt\n".to_owned()));
    assert_eq!(world.said("writes", json!({})).await, Ok("0".to_owned()));
    assert_eq!(std::fs::read_to_string(world.kernel.workspace().join("out.txt")).unwrap(), "written");
    let nested: Vec<_> = world
        .intents()
        .into_iter()
        .filter(|body| body["depth"] == 1)
        .map(|body| body["tool"]["name"].clone())
        .collect();
    assert_eq!(nested, ["fs.read", "fs.read", "fs.write"]);
}

#[tokio::test]
async fn policy_says_no_to_older_modules_too() {
    let policy = "\
version: 1
rules:
  - { id: everything, effect: allow }
  - { id: no-files, effect: deny, match: { tool: 'fs.*' }, reason: no files here }
";
    let writes = r#"(data (i32.const 64) "out.txtwritten")
        (func (export "main") (result i32)
          (call $write (i32.const 64) (i32.const 7) (i32.const 71) (i32.const 7)))"#;
    let world = WasmFixture::new(policy, &[("writes", module(WRITE, writes))]).await;
    assert_eq!(world.said("writes", json!({})).await, Ok("1".to_owned()));
    assert!(!world.kernel.workspace().join("out.txt").exists());
}

#[tokio::test]
async fn pointers_that_lie_are_not_followed() {
    let cases = [
        // Text outside of memory, text that wraps round, a path outside, and a length that is negative.
        r#"(func (export "run") (param i32 i32) (result i64) (call $pack (i32.const 65530) (i32.const 100)))"#,
        r#"(func (export "run") (param i32 i32) (result i64) (call $pack (i32.const -16) (i32.const 32)))"#,
        r#"(func (export "run") (param i32 i32) (result i64) (call $read (i32.const 65530) (i32.const 100)))"#,
        r#"(func (export "run") (param i32 i32) (result i64) (call $read (i32.const 0) (i32.const -1)))"#,
    ];
    for case in cases {
        let world = WasmFixture::new(SMALL, &[("lies", module(READ, case))]).await;
        let said = world.said("lies", json!({})).await;
        assert!(said.as_ref().is_err_and(|why| why.starts_with("tool.failed: ")), "{case}: {said:?}");
        assert!(world.intents().iter().all(|body| body["depth"] == 0), "{case}");
    }
    // `alloc` itself lies: the input doesn't fit where it points.
    let wat = r#"(module (memory (export "memory") 1)
        (func (export "alloc") (param i32) (result i32) i32.const -4)
        (func (export "run") (param i32 i32) (result i64) i64.const 0))"#;
    let world = WasmFixture::new(SMALL, &[("lies", wat::parse_str(wat).unwrap())]).await;
    let said = world.said("lies", json!({})).await.unwrap_err();
    assert!(said.starts_with("wasm.trap: "), "{said}");
}

/// `alloc` that reads a file, which needs `alloc`, which reads a file …
#[tokio::test]
async fn reading_while_making_room_is_not_served() {
    let wat = r#"(module
        (import "az" "read_file" (func $read (param i32 i32) (result i64)))
        (memory (export "memory") 1)
        (data (i32.const 64) "in.txt")
        (func $alloc (export "alloc") (param i32) (result i32)
          (drop (call $read (i32.const 64) (i32.const 6)))
          (i32.const 1024))
        (func (export "run") (param i32 i32) (result i64) (call $read (i32.const 64) (i32.const 6))))"#;
    let world = WasmFixture::new(ALLOW_ALL, &[("again", wat::parse_str(wat).unwrap())]).await;
    world.put("in.txt", "content");
    assert_eq!(world.said("again", json!({})).await, Ok("content".to_owned()));
}
