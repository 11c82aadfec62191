//! Real values fit the schemas that are published, and what isn't one doesn't.

use std::path::PathBuf;

use serde_json::{Value, json};

fn published(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn fits(schema: &str, lines: &str) {
    let schema = jsonschema::validator_for(&published(schema)).unwrap();
    for line in lines.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        if let Err(error) = schema.validate(&value) {
            panic!("{error}: {line}");
        }
    }
}

#[test]
fn what_travels_fits_its_schema() {
    fits("op.json", include_str!("../../src/op/written.jsonl"));
    fits("reply.json", include_str!("../../src/reply/written.jsonl"));
    fits("question.json", include_str!("../../src/question/written.jsonl"));
    fits("event.json", include_str!("../../src/event/written.jsonl"));
    fits("judge-message.json", include_str!("../../src/judge/messages.jsonl"));
    fits("judge-answer.json", include_str!("../../src/judge/answers.jsonl"));
}

#[test]
fn results_fit_the_schema_of_their_operation() {
    for line in include_str!("../../src/result/written.txt").lines() {
        let (op, result) = line.split_once(' ').unwrap();
        fits("results.json", &format!("{{\"{op}\":{result}}}"));
    }
}

#[test]
fn entries_fit_the_schema_of_their_body() {
    for line in include_str!("../../src/body/written.jsonl").lines() {
        let written: Value = serde_json::from_str(line).unwrap();
        let body = &written["body"];
        let schema = match written["kind"].as_str().unwrap() {
            "intent" => "ledger-intent.json",
            "outcome" if body["status"] == "in_doubt" => "ledger-in-doubt.json",
            "outcome" => "ledger-outcome.json",
            "agent" => "ledger-agent.json",
            "policy" => "ledger-policy.json",
            "kernel" => "ledger-kernel.json",
            other => panic!("{other}"),
        };
        fits(schema, &body.to_string());
    }
}

#[test]
fn what_no_reader_takes_fits_no_schema() {
    let cases = [
        ("op.json", json!({"op": "reboot"})),
        ("op.json", json!({"op": "wait", "args": {}})),
        ("op.json", json!({"op": "recall", "args": {"region": "all", "text": "", "entries_max": 1}})),
        ("question.json", json!({"id": "kuzo"})),
        ("event.json", json!({"event": "party"})),
        ("event.json", json!({"event": "turn", "step": "1", "v": 2})),
        ("judge-message.json", json!({"op": "end", "session": "s", "prompt": ""})),
        ("judge-message.json", json!({"op": "decide", "session": "s", "call": {"tool": "t"}})),
        ("results.json", json!({"vfs.open": {}})),
        ("results.json", json!({"vfs.shut": {}})),
        ("reply.json", json!({"done": {}})),
        ("ledger-intent.json", json!({"verdict": {"effect": "perhaps"}})),
    ];
    for (schema, value) in cases {
        let compiled = jsonschema::validator_for(&published(schema)).unwrap();
        assert!(!compiled.is_valid(&value), "{schema}: {value}");
    }
}

#[test]
fn every_reference_of_the_openapi_document_leads_somewhere() {
    let document = published("openapi.json");
    let mut waiting = vec![&document];
    let mut count = 0;
    while let Some(value) = waiting.pop() {
        if let Some(to) = value.get("$ref").and_then(Value::as_str) {
            count += 1;
            assert!(document.pointer(to.strip_prefix('#').unwrap()).is_some(), "{to}");
        }
        waiting.extend(value.as_object().into_iter().flat_map(|fields| fields.values()));
        waiting.extend(value.as_array().into_iter().flatten());
    }
    assert!(count > 100, "{count} references");
    let names = document["components"]["schemas"].as_object().unwrap();
    let doubled = names.keys().find(|name| name.ends_with(|last: char| last.is_ascii_digit()));
    assert_eq!(doubled, None, "two types have one name");
}
