//! Guests in WAT, and what makes components of them.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A core module as a component of one of the worlds of `regent:host`.
pub(crate) fn component(world: &str, module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("host.wit", include_str!("../../wit/host.wit")).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    let mut module = wat::parse_str(module).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}

/// A tool whose `run` is this body, with `$text` and `$bytes` for its input, words of data from address 64 on, and room for answers
/// at 4096.
pub(crate) fn tool(imports: &str, words: &str, body: &str) -> Vec<u8> {
    component("tool", &module(imports, words, body, "(param $text i32) (param $bytes i32)"))
}

/// The same for the world `script`.
pub(crate) fn script(body: &str) -> Vec<u8> {
    let parameters = "(param $source i32) (param $length i32) (param $text i32) (param $bytes i32)";
    component("script", &module("", "", body, parameters))
}

fn module(imports: &str, words: &str, body: &str, parameters: &str) -> String {
    format!(
        r#"(module
  {imports}
  (memory (export "memory") 2)
  (data (i32.const 64) "{words}")
  (global $free (mut i32) (i32.const 8192))
  (func $make_room (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $free) (i32.const 15)) (i32.const -16)))
    (global.set $free (i32.add (local.get $at) (local.get 3)))
    (block $enough
      (loop $more
        (br_if $enough (i32.le_u (global.get $free) (i32.mul (memory.size) (i32.const 65536))))
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
        (br $more)))
    (local.get $at))
  ;; The result: 0 for `ok` and 1 for `err`, then where the text is.
  (func $say (param $how i32) (param $at i32) (param $bytes i32) (result i32)
    (i32.store (i32.const 16) (local.get $how))
    (i32.store (i32.const 20) (local.get $at))
    (i32.store (i32.const 24) (local.get $bytes))
    (i32.const 16))
  ;; What an import left at 4096, a text or a failure: the text, or the failure's code as an error.
  (func $pass_on (result i32)
    (call $say (i32.load8_u (i32.const 4096)) (i32.load (i32.const 4100)) (i32.load (i32.const 4104))))
  (func (export "run") {parameters} (result i32)
    (local $i i32)
    {body}))"#
    )
}

pub(crate) const CALL: &str =
    r#"(import "regent:host/tools@0.1.0" "call" (func $call (param i32 i32 i32 i32 i32)))"#;

/// Gives back what it gets.
pub(crate) fn echo() -> Vec<u8> {
    tool("", "", "(call $say (i32.const 0) (local.get $text) (local.get $bytes))")
}

/// Hands its own arguments to another tool, and gives back what that says.
pub(crate) fn courier(to: &str) -> Vec<u8> {
    let body = format!(
        "(call $call (i32.const 64) (i32.const {}) (local.get $text) (local.get $bytes) (i32.const 4096))
    (call $pass_on)",
        to.len()
    );
    tool(CALL, to, &body)
}

/// Calls a function of `filesystem` that takes one path, and gives back its answer, or the code of its failure as an error.
pub(crate) fn reader(function: &str, path: &str) -> Vec<u8> {
    let import =
        format!(r#"(import "regent:host/filesystem@0.1.0" "{function}" (func $read (param i32 i32 i32)))"#);
    let body =
        format!("(call $read (i32.const 64) (i32.const {}) (i32.const 4096)) (call $pass_on)", path.len());
    tool(&import, path, &body)
}

/// Runs this body for ever.
pub(crate) fn endless(imports: &str, words: &str, body: &str) -> Vec<u8> {
    tool(imports, words, &format!("(loop $again {body} (br $again)) unreachable"))
}
