//! Allowed answers match the schema, valid answers in the usual format are allowed, and no schema hangs.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn grammar(schema: &Value) -> Grammar {
    let mut shapes = Shapes::default();
    let root = shapes.compile(schema);
    Grammar::new(shapes, root, "", "")
}

fn accepts(schema: &Value, text: &str) -> bool {
    let mut grammar = grammar(schema);
    grammar.take(text.as_bytes()) && grammar.may_end()
}

fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "string", "minLength": 2, "maxLength": 5}),
        json!({"type": "integer"}),
        json!({"type": ["number", "null"]}),
        json!({"enum": ["a", "ab", 7, {"x": [1]}, null]}),
        json!({"const": "only"}),
        json!({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}),
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "boolean"}}, "required": ["b"]}),
        json!({"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]}]}),
        json!({"$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "v": {"type": "integer"}}, "required": ["v"]}}, "$ref": "#/$defs/tree"}),
        json!({}),
        json!({"type": "object"}),
        json!(true),
    ]
}

#[test]
fn cases() {
    let object = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"], "additionalProperties": false});
    let mut both = object.clone();
    both["required"] = json!(["b", "nowhere", "a", "b"]);
    let cases = [
        (&object, r#"{"b": "x"}"#, true),
        (&object, r#"{"b": "", "a": -12}"#, true),
        // Required members come first, in the schema's order.
        (&object, r#"{"a": -12, "b": ""}"#, false),
        (&both, r#"{"b": "x", "a": 1}"#, true),
        (&both, r#"{"a": 1, "b": "x"}"#, false),
        (&object, r#"{"a": 1}"#, false),
        (&object, r#"{"b": "x", "z": 1}"#, false),
        (&object, r#"{"b": "x", "a": 01}"#, false),
        (&object, r#"{"b": "x\n\u00e9é"}"#, true),
        (&object, r#"{"b": "\ud800"}"#, false),
        (&object, "{\"b\": \"\n\"}", false),
        (&object, r#"{"b": "x"}}"#, false),
        (&json!({"enum": ["a", "ab"]}), r#""ab""#, true),
        (&json!({"type": "number"}), "-0.50", true),
        (&json!({"type": "number"}), "1.", false),
        (&json!({"type": "integer"}), "1.5", false),
        (&json!({"type": "string", "maxLength": 2}), "\"éé\"", true),
        (&json!({"type": "string", "maxLength": 2}), "\"ééé\"", false),
    ];
    for (schema, text, expected) in cases {
        assert_eq!(accepts(schema, text), expected, "{schema} {text}");
    }
    assert!(!grammar(&json!({"type": "string"})).take(b"\"\xC3\""), "half a character");
    assert!(!grammar(&json!({"type": "string"})).take(b"\"\xED\xA0\x80\""), "half a pair");
}

#[test]
fn knows_forced_bytes_in_advance() {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": false});
    let mut grammar = grammar(&schema);
    assert_eq!(grammar.forced(100), b"{\"path\": \"");
    assert_eq!(grammar.forced(3), b"{\"p");
    assert!(grammar.take(b"{\"path\": \"a.txt\""));
    assert_eq!(grammar.forced(100), b"}");
    assert!(grammar.take(b"}") && grammar.is_over() && grammar.may_end());
}

#[test]
fn self_referential_schemas_do_not_hang() {
    let cases = [
        json!({"$ref": "#"}),
        json!({"$ref": "#/nowhere"}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"}),
        json!({"enum": []}),
        json!({"anyOf": []}),
    ];
    for schema in cases {
        let grammar = grammar(&schema);
        let _some = (grammar.allows(b"null"), grammar.forced(64), grammar.is_over());
    }
    let deep = (0..200).fold(json!({"type": "integer"}), |inner, _| json!({"type": "array", "items": inner}));
    grammar(&deep);
    let wide = json!({"enum": (0..2_000).collect::<Vec<_>>()});
    assert!(grammar(&wide).allows(b"1"));
}

proptest! {
    /// A random walk through the grammar ends in valid JSON that matches the schema.
    #[test]
    fn allowed_answers_match_the_schema(which in 0_usize..11, choices in proptest::collection::vec(any::<u8>(), 1..300)) {
        let schema = &schemas()[which];
        let mut grammar = grammar(schema);
        let mut text = Vec::new();
        let preferred = b"\"}]0a, :{[t\\n\xC3\xA9";
        for choice in choices.iter().cycle().take(2_000) {
            if grammar.is_over() {
                break;
            }
            let usual = preferred[usize::from(*choice) % preferred.len()];
            let byte = if grammar.allows(&[usual]) { Some(usual) } else { (0..=255_u8).map(|byte| byte.wrapping_add(*choice)).find(|byte| grammar.allows(&[*byte])) };
            let Some(byte) = byte else { break };
            prop_assert!(grammar.take(&[byte]));
            text.push(byte);
        }
        if grammar.may_end() {
            let value: Value = serde_json::from_slice(&text).map_err(|error| TestCaseError::fail(format!("{error}: {}", String::from_utf8_lossy(&text))))?;
            prop_assert!(jsonschema::is_valid(schema, &value), "{} {}", schema, value);
        }
    }

    /// A schema without constraints allows any value in the usual format.
    #[test]
    fn an_unconstrained_schema_allows_any_json(text in "[ -~é🙂]{0,20}", number in -1_000_000_i64..1_000_000) {
        let value = json!({"k": [text, number, null, true, {"x": text}]});
        let text = crate::chat::spaced(&value);
        let is_accepted = accepts(&json!({}), &text);
        prop_assert!(is_accepted, "{}", text);
    }
}
