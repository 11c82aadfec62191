//! Generated tools through the real program and the real WASM tier.

use serde_json::{Value, json};

use crate::world::CliFixture;

const WORDS: &str = r#"/* regent-tool
{
  "name": "gen.words",
  "description": "Counts the words of a text.",
  "input": {"type": "object", "additionalProperties": false, "required": ["text"], "properties": {"text": {"type": "string"}}},
  "examples": [{"input": {"text": "the cat the hat"}, "output": {"the": 2, "cat": 1, "hat": 1}}]
}
*/
export function run({ text }) {
  const counts = {};
  for (const [word] of text.toLowerCase().matchAll(/[a-z]+/g)) counts[word] = (counts[word] ?? 0) + 1;
  return counts;
}
"#;

fn call(world: &CliFixture, tool: &str, args: Value) -> Result<Value, (i32, String)> {
    let ended = world.run(&["tool", "call", tool, &args.to_string(), "--json"]);
    if ended.code == 0 {
        let output = ended.json().pointer("/data/output").cloned().unwrap_or_default();
        return Ok(output.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(output));
    }
    Err((ended.code, ended.error_code()))
}

#[test]
fn made_in_one_session_used_in_the_next_rolled_back_and_refused_when_changed() {
    let world = CliFixture::ready();
    world.write("words.js", WORDS);
    let made = world.run(&["tool", "generate", "words.js"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.stdout.contains("\"version\":1"), "{made:?}");

    // Each command is a session of its own.
    let counted = call(&world, "gen.words", json!({"text": "a b a"})).unwrap();
    assert_eq!(counted, json!({"a": 2, "b": 1}));
    let listed = world.run(&["tool", "list", "--generated"]);
    assert!(listed.stdout.starts_with("gen.words"), "{listed:?}");
    let shown = world.run(&["tool", "show", "gen.words", "--json"]).json();
    assert_eq!(shown.pointer("/data/usable"), Some(&json!(true)), "{shown}");

    let longer = WORDS.replace("return counts;", "return Object.keys(counts).length;");
    let longer = longer.replace(r#"{"the": 2, "cat": 1, "hat": 1}"#, "3");
    world.write("words.js", longer);
    assert_eq!(world.run(&["tool", "generate", "words.js"]).code, 0);
    assert_eq!(call(&world, "gen.words", json!({"text": "a b a"})).unwrap(), json!(2));
    let back = world.run(&["tool", "rollback", "gen.words"]);
    assert_eq!(back.code, 0, "{back:?}");
    assert_eq!(call(&world, "gen.words", json!({"text": "a b a"})).unwrap(), json!({"a": 2, "b": 1}));

    let source = world.project(".regent/tools/gen.words/v1/tool.js");
    let before = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, before.replace("?? 0", "?? 1")).unwrap();
    assert_eq!(call(&world, "gen.words", json!({"text": "a"})).unwrap_err(), (13, "tool.changed".to_owned()));
    let shown = world.run(&["tool", "show", "gen.words", "--json"]).json();
    assert_eq!(shown.pointer("/data/code"), Some(&json!("tool.changed")), "{shown}");
    let said = world.run(&["tool", "list"]);
    assert!(!said.stdout.contains("gen.words"), "{said:?}");
    std::fs::write(&source, before).unwrap();
    assert_eq!(call(&world, "gen.words", json!({"text": "a"})).unwrap(), json!({"a": 1}));

    assert_eq!(world.run(&["tool", "renew", "gen.words"]).code, 0);
    assert_eq!(world.run(&["tool", "remove", "gen.words"]).code, 0);
    assert_eq!(call(&world, "gen.words", json!({"text": "a"})).unwrap_err().1, "tool.unknown");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

fn generate(world: &CliFixture, name: &str, source: &str, example: &Value, may: &[&str]) -> (i32, String) {
    world.write("tool.js", source);
    world.write("examples.json", json!([example]).to_string());
    let mut args = vec![
        "tool",
        "generate",
        "tool.js",
        "--name",
        name,
        "--description",
        "Tries.",
        "--examples",
        "examples.json",
        "--json",
    ];
    for word in may {
        args.extend(["--may", word]);
    }
    let ended = world.run(&args);
    (
        ended.code,
        if ended.code == 0 { String::new() } else { format!("{} {}", ended.error_code(), ended.stdout) },
    )
}

#[test]
fn a_tool_uses_the_host_as_it_was_granted_and_no_further() {
    let world = CliFixture::ready();
    world.write("notes/a.txt", "one\ntwo\n");
    let source = "export function run({ folder }) {
        const files = regent.listDir(folder).filter((e) => e.kind === 'file');
        const lines = files.map((e) => regent.readFile(e.path).trim().split('\\n').length);
        regent.writeFile('count.txt', String(lines));
        regent.log('counted', files.length);
        return { files: files.map((e) => e.name), lines };
    }";
    let example = json!({"input": {"folder": "notes"}, "output": {"files": ["a.txt"], "lines": [2]}});
    let (code, why) = generate(&world, "gen.lines", source, &example, &["file.read", "file.list"]);
    assert!(code == 2 && why.starts_with("tool.undeclared") && why.contains("file.write"), "{code} {why}");
    let (code, why) =
        generate(&world, "gen.lines", source, &example, &["file.read", "file.list", "file.write"]);
    assert_eq!((code, why.as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(world.project("count.txt")).unwrap(), "2");

    // What a program reaches for behind the checker's back, by a name that it only knows when it runs.
    let sly = "export function run({ tool }) {
        try { regent.callTool(tool, { path: 'notes/a.txt', content: 'x', command: 'true' }); return 'done'; } catch (e) { return e.code; }
    }";
    for (tool, granted) in
        [("fs.write", "file.read"), ("shell.exec", "file.read"), ("tool.remove", "file.read")]
    {
        let example = json!({"input": {"tool": tool}, "output": "tool.not_granted"});
        let (code, why) = generate(&world, "gen.sly", sly, &example, &[granted]);
        assert!(code == 0 || why.contains("args.invalid"), "{tool}: {code} {why}");
    }
    assert_eq!(std::fs::read_to_string(world.project("notes/a.txt")).unwrap(), "one\ntwo\n");
    // Policy holds too: what the caller may not have, its tool may not.
    let reader = "export function run() { try { return regent.readFile('/etc/shadow'); } catch (e) { return e.code; } }";
    let example = json!({"input": {}, "output": "read"});
    let (_, why) = generate(&world, "gen.reader", reader, &example, &["file.read"]);
    assert!(why.contains("tool.example") && !why.contains("root:"), "{why}");
}

#[test]
fn limits_hold_and_say_so() {
    let world = CliFixture::ready();
    let example = json!({"input": {}, "output": 1});
    let deep = "export function run() { const f = (n) => n + f(n + 1); try { return f(0); } catch (e) { return e instanceof RangeError ? 1 : 0; } }";
    assert_eq!(generate(&world, "gen.deep", deep, &example, &[]), (0, String::new()));
    let nested = format!("export function run() {{ return {}1{}; }}", "[".repeat(80), "]".repeat(80));
    let (_, why) = generate(&world, "gen.nested", &nested, &example, &[]);
    assert!(why.contains("tool.example") && !why.contains("wasm."), "{why}");
    let walk = "const depth = (n) => n ? 1 + Math.max(0, ...n.c.map((x) => depth(x))) : 0;
        export function run() { let t = { c: [] }; for (let i = 1; i < 60; i++) t = { c: [t] }; return depth(t) === 60 ? 1 : 0; }";
    assert_eq!(generate(&world, "gen.walk", walk, &example, &[]), (0, String::new()));
}

#[test]
fn an_agent_has_to_ask() {
    let world = CliFixture::ready();
    world.write("words.js", WORDS);
    let ended = world.run(&["tool", "generate", "words.js", "--agent", "ada", "--json"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (11, "approval.needed"), "{ended:?}");
}
