//! Receipts that this crate signs, and the public vectors where available.

use serde_json::{Value, json};

use super::*;

#[path = "../../../testkit/src/skip.rs"]
mod skip;

fn key() -> LedgerKey {
    LedgerKey::from_seed(&[7; 32])
}

/// A chain of these calls: tool, arguments, decision.
fn chain(calls: &[(String, Value, bool)]) -> Vec<DecisionReceipt> {
    let mut out: Vec<DecisionReceipt> = Vec::new();
    for (at, (tool, input, allowed)) in calls.iter().enumerate() {
        let decided = UnsignedDecision {
            sequence: at as u64 + 1,
            tool_name: tool,
            tool_input: input,
            allowed: *allowed,
            policy_id: "autoresearch-safe",
            policy_digest: Digest::compute(b"policy"),
            timestamp: "2026-01-05T12:00:00Z",
            issuer_id: "regent",
        };
        out.push(DecisionReceipt::sign(&decided, out.last(), &key()).unwrap());
    }
    out
}

fn calls() -> Vec<(String, Value, bool)> {
    vec![
        ("Read".to_owned(), json!({"file_path": "./README.md"}), true),
        ("Bash".to_owned(), json!({"command": "rm -rf /"}), false),
        ("Write".to_owned(), json!({"file_path": "./ü.md", "content": "x"}), true),
    ]
}

#[test]
fn a_chain_verifies_and_detects_every_change() {
    let receipts = chain(&calls());
    assert_eq!(DecisionReceipt::verify_chain(&receipts, Some(&key().public())), Ok(()));
    let other = LedgerKey::from_seed(&[8; 32]).public();
    assert_eq!(DecisionReceipt::verify_chain(&receipts, Some(&other)), Err(ReceiptError::BadSignature));
    for receipt in &receipts {
        assert_eq!(DecisionReceipt::parse(&receipt.as_json().to_string()).as_ref(), Ok(receipt));
        for (name, value) in receipt.as_json().as_object().unwrap() {
            let mut changed = receipt.as_json().clone();
            changed[name] = match value {
                Value::String(text) if name == "decision" => {
                    json!(if text == "allow" { "deny" } else { "allow" })
                }
                Value::String(text) => json!(format!("{text}0")),
                Value::Number(_) => json!(77),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => json!("sha256:00"),
            };
            assert!(DecisionReceipt(changed.clone()).verify(None).is_err(), "{name}: {changed}");
        }
    }
    let gap = [receipts[0].clone(), receipts[2].clone()];
    assert_eq!(DecisionReceipt::verify_chain(&gap, None), Err(ReceiptError::BrokenChain(1)));
    assert_eq!(DecisionReceipt::verify_chain(&receipts[1..], None), Err(ReceiptError::BrokenChain(0)));
}

#[test]
fn reads_the_envelope_shape() {
    let payload = json!({
        "type": "scopeblind.receipt.v1", "decision": "deny", "sequence": 0, "timestamp": "2026-01-05T12:00:00Z",
        "action": {"kind": "tool", "target": "Bash"}, "prev_hash": "",
    });
    let signature = key().sign(CanonicalJson::encode(&payload).unwrap().as_str().as_bytes());
    let envelope = json!({
        "payload": payload, "signature": hex_string(&signature), "pubkey": hex_string(key().public().as_bytes()),
    });
    let receipt = DecisionReceipt::parse(&envelope.to_string()).unwrap();
    assert_eq!(DecisionReceipt::verify_chain(&[receipt], Some(&key().public())), Ok(()));
    let mut changed = envelope;
    changed["payload"]["decision"] = json!("allow");
    assert_eq!(DecisionReceipt(changed).verify(None), Err(ReceiptError::BadSignature));
    for text in ["", "[]", "{}", "{\"receipt_id\": \"rcpt-1\"}", "{\"payload\": {}}"] {
        assert!(DecisionReceipt::parse(text).is_err(), "{text}");
    }
}

/// The public inputs, signed by this crate, give the expected chain and match the public schema.
#[test]
fn the_public_vectors() {
    let root = std::env::var("REGENT_VECTORS")
        .unwrap_or_else(|_| format!("{}/../../../shared/vectors", env!("CARGO_MANIFEST_DIR")));
    let root = std::path::PathBuf::from(root).join("receipts");
    if !root.is_dir() {
        skip::skipped("vectors", "REGENT_VECTORS names no folder with the public decision receipts");
        return;
    }
    let mut files: Vec<_> =
        std::fs::read_dir(root.join("inputs")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let inputs: Vec<Value> = files
        .iter()
        .map(|file| serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap())
        .collect();
    let calls: Vec<(String, Value, bool)> = inputs
        .iter()
        .map(|input| {
            let tool = input["tool_name"].as_str().unwrap().to_owned();
            (tool, input["tool_input"].clone(), input["expected_decision"] == "allow")
        })
        .collect();
    let receipts = chain(&calls);
    assert_eq!(DecisionReceipt::verify_chain(&receipts, Some(&key().public())), Ok(()));
    let expected = std::fs::read_to_string(root.join("chain.jsonl")).unwrap();
    let expected: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(receipts.len(), expected.len());
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(root.join("receipt-schema.json")).unwrap()).unwrap();
    let flat = &schema["definitions"]["v1Flat"];
    for (receipt, expected) in receipts.iter().zip(&expected) {
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&receipt.as_json()[name], value, "{name}");
        }
        for name in flat["required"].as_array().unwrap() {
            assert!(!receipt.as_json()[name.as_str().unwrap()].is_null(), "{name}");
        }
        for (name, rule) in flat["properties"].as_object().unwrap() {
            let (value, kinds) = (&receipt.as_json()[name], rule["type"].to_string());
            let fits = match value {
                Value::Null => true,
                Value::String(_) => kinds.contains("string"),
                Value::Number(_) => kinds.contains("integer"),
                Value::Object(_) => kinds.contains("object"),
                Value::Bool(_) | Value::Array(_) => false,
            };
            assert!(fits, "{name}: {value} is not {kinds}");
        }
        assert!(receipt.as_json()["input_hash"].as_str().unwrap().starts_with("sha256:"));
    }
}
