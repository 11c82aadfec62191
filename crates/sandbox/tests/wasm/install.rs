//! What can be installed and what can't, and code that is kept between runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use regent_kernel::{Digest, Reply};
use regent_sandbox::wasm::{WasmConfig, WasmTier};
use regent_testkit::ALLOW_ALL;
use serde_json::json;

use crate::guests::{echo, script, tool};
use crate::kit::WasmFixture;

fn code_of(wasm: &[u8]) -> &'static str {
    let tier = Arc::new(WasmTier::new(WasmConfig::default()));
    tier.tool(wasm, Digest::compute(wasm)).map_or_else(|error| error.code(), |_| "ok")
}

#[test]
fn only_what_can_be_called_and_served_is_installed() {
    let wat = |text: &str| wat::parse_str(text).unwrap();
    let cases = [
        (echo(), "ok"),
        (b"#!/bin/sh\n".to_vec(), "wasm.invalid"),
        (Vec::new(), "wasm.invalid"),
        (echo()[..200].to_vec(), "wasm.invalid"),
        (script("(call $say (i32.const 0) (i32.const 0) (i32.const 0))"), "wasm.world"),
        (wat("(component)"), "wasm.world"),
        (wat("(module)"), "wasm.world"),
        (
            wat(r#"(component (import "evil:host/anything@1.0.0" (instance (export "f" (func)))))"#),
            "wasm.world",
        ),
        (wat(r#"(module (import "env" "system" (func (param i32))) (func (export "main")))"#), "wasm.import"),
        (
            wat(r#"(module (import "wasi_snapshot_preview1" "fd_write" (func)) (func (export "main")))"#),
            "wasm.import",
        ),
        (wat(r#"(module (import "az" "exec" (func)) (func (export "main")))"#), "wasm.import"),
        // The right name with the wrong type.
        (wat(r#"(module (import "az" "log" (func (param i64))) (func (export "main")))"#), "wasm.invalid"),
        // More memories than a guest may have.
        (wat(&format!("(module {} (func (export \"main\")))", "(memory 1)".repeat(5))), "wasm.invalid"),
    ];
    for (index, (wasm, code)) in cases.iter().enumerate() {
        assert_eq!(code_of(wasm), *code, "case {index}");
    }
}

#[test]
fn a_foreign_import_is_named() {
    let wasm = wat::parse_str(
        r#"(component
  (import "evil:host/anything@1.0.0" (instance $evil (export "f" (func))))
  (core func $f (canon lower (func $evil "f")))
  (core module $guest
    (import "evil" "f" (func))
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 64)
    (func (export "run") (param i32 i32) (result i32) i32.const 16))
  (core instance $it (instantiate $guest (with "evil" (instance (export "f" (func $f))))))
  (func (export "run") (param "input" string) (result (result string (error string)))
    (canon lift (core func $it "run") (memory $it "memory") (realloc (func $it "realloc")))))"#,
    )
    .unwrap();
    let error =
        Arc::new(WasmTier::new(WasmConfig::default())).tool(&wasm, Digest::compute(&wasm)).unwrap_err();
    assert_eq!(error.to_string(), "it imports `evil:host/anything@1.0.0`, which Regent doesn't provide");
}

#[test]
fn bytes_that_are_not_the_agreed_ones_are_refused() {
    let (tier, wasm) = (Arc::new(WasmTier::new(WasmConfig::default())), echo());
    let error = tier.tool(&wasm, Digest::compute(b"something else")).unwrap_err();
    assert_eq!(error.code(), "tool.changed");
}

#[tokio::test]
async fn a_tool_that_was_withdrawn_is_gone() {
    let world = WasmFixture::new(ALLOW_ALL, &[("same", echo())]).await;
    assert_eq!(world.said("same", json!({})).await, Ok("{}".to_owned()));
    world.kernel.kernel.catalogue().withdraw("built-in");
    let gone = world.kernel.call(regent_testkit::run("same", json!({}))).await.unwrap();
    assert!(matches!(gone, Reply::Denied(denial) if denial.reason.code == "tool.unknown"));
}

fn compiled_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some());
    files.sort();
    files
}

fn tier_with(cache: &Path) -> Arc<WasmTier> {
    Arc::new(WasmTier::new(WasmConfig { cache: Some(cache.to_path_buf()), ..WasmConfig::default() }))
}

#[test]
fn compiled_code_is_kept_and_only_ours_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let wasm = echo();
    tier_with(&cache).tool(&wasm, Digest::compute(&wasm)).unwrap();
    assert_eq!(std::fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
    let [file] = compiled_files(&cache).try_into().unwrap();
    let kept = std::fs::read(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Loaded: the file stays the one that it was.
    let before = std::fs::metadata(&file).unwrap().modified().unwrap();
    tier_with(&cache).tool(&wasm, Digest::compute(&wasm)).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), before);
    // Changed, cut, emptied, from elsewhere: not loaded but compiled again.
    let mut flipped = kept.clone();
    flipped[kept.len() / 2] ^= 1;
    let mut forged = vec![0_u8; 32];
    forged.extend_from_slice(&kept[32..]);
    for bad in [flipped, kept[..kept.len() - 1].to_vec(), kept[..10].to_vec(), Vec::new(), forged] {
        std::fs::write(&file, &bad).unwrap();
        tier_with(&cache).tool(&wasm, Digest::compute(&wasm)).unwrap();
        assert_eq!(std::fs::read(&file).unwrap().len(), kept.len());
        assert_ne!(std::fs::read(&file).unwrap(), bad);
    }
}

#[test]
fn code_of_another_user_key_or_name_is_not_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let (mine, theirs) = (folder.path().join("mine"), folder.path().join("theirs"));
    let (one, two) = (echo(), tool("", "", "unreachable"));
    tier_with(&mine).tool(&one, Digest::compute(&one)).unwrap();
    tier_with(&theirs).tool(&one, Digest::compute(&one)).unwrap();
    let [file] = compiled_files(&mine).try_into().unwrap();
    let [foreign] = compiled_files(&theirs).try_into().unwrap();
    // Made with another key.
    let kept = std::fs::read(&file).unwrap();
    std::fs::copy(&foreign, &file).unwrap();
    tier_with(&mine).tool(&one, Digest::compute(&one)).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), kept);
    // Ours, but under the name of other code.
    tier_with(&mine).tool(&two, Digest::compute(&two)).unwrap();
    let other = compiled_files(&mine).into_iter().find(|path| *path != file).unwrap();
    let proper = std::fs::read(&other).unwrap();
    std::fs::copy(&file, &other).unwrap();
    tier_with(&mine).tool(&two, Digest::compute(&two)).unwrap();
    assert_eq!(std::fs::read(&other).unwrap(), proper);
}

#[test]
fn a_folder_or_key_that_others_can_touch_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let wasm = echo();
    let open = folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    tier_with(&open).tool(&wasm, Digest::compute(&wasm)).unwrap();
    assert_eq!(std::fs::read_dir(&open).unwrap().count(), 0);
    let cache = folder.path().join("cache");
    tier_with(&cache).tool(&wasm, Digest::compute(&wasm)).unwrap();
    std::fs::set_permissions(cache.join("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let [file] = compiled_files(&cache).try_into().unwrap();
    std::fs::remove_file(&file).unwrap();
    tier_with(&cache).tool(&wasm, Digest::compute(&wasm)).unwrap();
    assert!(compiled_files(&cache).is_empty());
}

#[test]
fn the_built_in_guest_is_what_its_source_says() {
    let wat = include_str!("../../src/wasm/hello.wat");
    assert_eq!(wat::parse_str(wat).unwrap(), include_bytes!("../../src/wasm/hello.wasm"));
}

#[tokio::test]
async fn the_self_test_passes() {
    let tested = regent_sandbox::wasm::self_test(3).await.unwrap();
    assert_eq!(tested.runs.len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever bytes are offered, the answer is an error or a tool, never a panic.
    #[test]
    fn no_bytes_break_the_installer(flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8)) {
        let mut wasm = echo();
        for (at, byte) in flips {
            let at = at.index(wasm.len());
            wasm[at] = byte;
        }
        code_of(&wasm);
    }
}
