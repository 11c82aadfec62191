//! The forms that others know, as golden text; and finding tools.

use super::*;
use serde_json::json;

fn built_in(name: &str) -> ToolSpec {
    crate::specs().into_iter().find(|spec| spec.name == name).unwrap()
}

#[test]
fn the_forms_are_those_that_others_take() {
    let input = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "minLength": 1, "maxLength": 4095, "description": "the file or folder"},
        },
    });
    let description = "Describe a file or folder; of a link, what it leads to. Returns JSON: path, kind (file, folder, special), \
        bytes, mode, modified_ms, links.";
    let spec = built_in("fs.stat");
    assert_eq!(
        openai(&spec),
        json!({"type": "function", "function": {"name": "fs__stat", "description": description, "parameters": input}})
    );
    assert_eq!(
        anthropic(&spec),
        json!({"name": "fs__stat", "description": description, "input_schema": input})
    );
    let annotations = json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false});
    let expected = json!({"name": "fs.stat", "description": description, "inputSchema": input, "annotations": annotations});
    assert_eq!(mcp(&spec), expected);
}

#[test]
fn hints_follow_from_what_is_declared() {
    // Read only, destructive, idempotent, open world.
    let cases = [
        ("fs.read", [true, false, true, false]),
        ("fs.write", [false, true, false, false]),
        ("process.exec", [false, true, false, false]),
        ("http.fetch", [false, true, false, true]),
    ];
    for (name, expected) in cases {
        let told = mcp(&built_in(name));
        let hints = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];
        assert_eq!(hints.map(|hint| told["annotations"][hint].as_bool().unwrap()), expected, "{name}");
    }
}

#[test]
fn wire_names_are_short_plain_and_different() {
    let long = "a".repeat(128);
    let names = ["fs.read", "fs__read", "fs_.read", "fs._read", "fs_read", "fs-read", &long, &long[1..]];
    let mut wired: Vec<String> = names.iter().map(|name| wire_name(name)).collect();
    assert_eq!(wired[0], "fs__read");
    for name in &wired {
        assert!(
            name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)),
            "{name}"
        );
    }
    wired.sort();
    wired.dedup();
    assert_eq!(wired.len(), names.len(), "{wired:?}");
}

#[test]
fn tools_are_found_by_what_they_are() {
    let found = |wanted: ToolFilter<'_>| -> Vec<String> {
        crate::specs().into_iter().filter(|spec| wanted.fits(spec)).map(|spec| spec.name).collect()
    };
    let any = ToolFilter::default();
    assert_eq!(found(any).len(), crate::specs().len());
    let cases = [
        (
            ToolFilter { capability: Some("network"), ..any },
            &["http.fetch", "net.connect", "net.request"][..],
        ),
        (ToolFilter { capability: Some("network.request"), ..any }, &["http.fetch", "net.request"]),
        (ToolFilter { capability: Some("net"), ..any }, &[]),
        (
            ToolFilter { effect: Some(SideEffect::Network), ..any },
            &["http.fetch", "net.connect", "net.request"],
        ),
        (ToolFilter { origin: Some(Origin::Generated), ..any }, &[]),
        (ToolFilter { cost_max: Some(CostClass::Free), ..any }, &[]),
        (ToolFilter { capability: Some("process.exec"), cost_max: Some(CostClass::Cheap), ..any }, &[]),
    ];
    for (wanted, expected) in cases {
        assert_eq!(found(wanted), expected, "{wanted:?}");
    }
}
