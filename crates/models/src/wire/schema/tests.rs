//! Schemas that strict modes take, and answers to them.

use proptest::prelude::*;

use super::*;

#[test]
fn strict_schemas_close_objects_and_say_the_rest() {
    let cases = [
        (
            json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}),
            json!({"type": "object", "properties": {"n": {"type": "integer", "description": "(minimum: 1)"}},
                "required": ["n"], "additionalProperties": false}),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "description": "A.", "maxLength": 9_000}}}),
            json!({"type": "object", "properties": {"a": {"anyOf": [
                {"type": "string", "description": "A."}, {"type": "null"}]}},
                "required": ["a"], "additionalProperties": false}),
        ),
        (
            json!({"type": "object", "properties": {"x": {"type": ["string", "null"], "pattern": "^a"}, "y": {"$ref": "#/$defs/y"}},
                "required": ["x", "y"], "$defs": {"y": {"type": "object"}}}),
            json!({"type": "object", "properties": {
                "x": {"anyOf": [{"type": "string", "description": "(pattern: \"^a\")"}, {"type": "null"}]},
                "y": {"type": "string", "description": "a JSON object, written as text"}},
                "required": ["x", "y"], "additionalProperties": false}),
        ),
        (
            json!({"allOf": [{"$ref": "#/definitions/base"}], "definitions": {"base": {"type": "object",
                "properties": {"l": {"type": "array", "items": {"oneOf": [{"type": "integer"}, {"const": "all"}]}}}, "required": ["l"]}}}),
            json!({"type": "object", "properties": {"l": {"type": "array", "items": {"anyOf": [
                {"type": "integer"}, {"type": "string", "const": "all"}]}}},
                "required": ["l"], "additionalProperties": false}),
        ),
    ];
    for (schema, expected) in cases {
        let shown = strict(&schema).unwrap_or_else(|| panic!("{schema} has no strict form"));
        assert_eq!(shown, expected);
        assert_eq!(strict_problem(&shown), None);
    }
}

#[test]
fn schemas_without_a_strict_form_are_left_to_others() {
    let properties: Map<String, Value> =
        (0..20).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
    let cases = [
        json!({"type": "string"}),
        json!({"type": "object"}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
        json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/schema"}}}),
        json!({"type": "object", "properties": properties}),
        json!({"anyOf": [{"type": "object", "properties": {"a": {"type": "null"}}}, {"type": "null"}]}),
        json!(true),
    ];
    for schema in cases {
        assert_eq!(strict(&schema), None, "{schema}");
    }
}

#[test]
fn problems_are_the_documented_ones() {
    let open = json!({"type": "object", "properties": {}, "required": []});
    let optional = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": [], "additionalProperties": false});
    let limited = json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}, "required": ["a"], "additionalProperties": false});
    for (schema, expected) in [(open, "open"), (optional, "not required"), (limited, "`minLength`")] {
        assert!(strict_problem(&schema).unwrap().contains(expected), "{schema}");
    }
}

#[test]
fn answers_are_restored() {
    let schema = json!({"type": "object", "properties": {
        "id": {"type": "string"}, "note": {"type": "string"}, "kept": {"type": ["string", "null"]},
        "undo": {"type": "object", "properties": {"tool": {"type": "string"}, "args": {"type": "object"}}, "required": ["tool", "args"]},
        "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}},
        "required": ["id"]});
    let cases = [
        (
            json!({"id": "a", "note": null, "kept": null, "undo": null, "list": null}),
            json!({"id": "a", "kept": null}),
        ),
        (json!({"id": null}), json!({"id": null})),
        (
            json!({"id": "a", "undo": {"tool": "t", "args": "{\"path\":\"x\"}"}, "list": [{"n": null}, {"n": 1}]}),
            json!({"id": "a", "undo": {"tool": "t", "args": {"path": "x"}}, "list": [{}, {"n": 1}]}),
        ),
        (
            json!({"id": "a", "undo": {"tool": "t", "args": "no"}}),
            json!({"id": "a", "undo": {"tool": "t", "args": "no"}}),
        ),
        (json!(["else"]), json!(["else"])),
    ];
    for (answer, expected) in cases {
        assert_eq!(restored(&schema, answer), expected);
    }
}

#[test]
fn only_long_limits_are_taken_out() {
    let schema = json!({"a": {"maxLength": 2_000}, "b": [{"maxLength": 8_388_608, "type": "string"}]});
    assert_eq!(shown(&schema), json!({"a": {"maxLength": 2_000}, "b": [{"type": "string"}]}));
}

/// Schemas as tools have them: objects of objects, lists, alternatives and limits.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string", "minLength": 1, "maxLength": 4_000, "format": "uri"})),
        Just(json!({"type": ["integer", "null"], "minimum": 0, "maximum": 9, "default": 3})),
        Just(json!({"enum": ["a", "b"]})),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "object", "additionalProperties": {"type": "string"}})),
        Just(json!({})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (proptest::collection::btree_map("[a-z]{1,3}", (inner.clone(), any::<bool>()), 1..4)).prop_map(|map| {
                let required: Vec<_> = map.iter().filter(|(_, (_, required))| *required).map(|(name, _)| name.clone()).collect();
                let properties: Map<String, Value> = map.into_iter().map(|(name, (schema, _))| (name, schema)).collect();
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
            }),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items, "minItems": 1, "uniqueItems": true})),
            (inner.clone(), inner).prop_map(|(one, other)| json!({"anyOf": [one, other], "description": "either"})),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_called_strict_breaks_no_rule(schema in any_schema()) {
        let root = json!({"type": "object", "properties": {"root": schema}, "required": ["root"]});
        if let Some(strict) = strict(&root) {
            prop_assert_eq!(strict_problem(&strict), None);
        } else {
            // Only for its size.
            let rewritten = rewritten(&root, &root, 0);
            let nullable = rewritten.map(|schema| schema.to_string().matches("anyOf").count());
            prop_assert!(nullable.is_none_or(|nullable| nullable > NULLABLE_MAX) , "{}", root);
        }
    }

    #[test]
    fn a_full_answer_is_its_own(schema in any_schema()) {
        let root = json!({"type": "object", "properties": {"root": schema}});
        prop_assert_eq!(restored(&root, json!({"root": "text", "more": [1]})), json!({"root": "text", "more": [1]}));
    }
}
