//! Serialised replies, and the form of older programs.

use regent_policy::{Confidentiality, Integrity};

use super::*;
use crate::result::Spawned;

/// Version 1 before it had more fields.
const WRITTEN: &str = include_str!("written.jsonl");
const PLACE: &str =
    r#"{"lane":"0001","seq":7,"hash":"abababababababababababababababababababababababababababababababab"}"#;

#[test]
fn replies_of_version_1_are_read_and_written_with_their_fields() {
    for line in WRITTEN.lines() {
        let reply: Reply = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let old: Value = serde_json::from_str(line).unwrap();
        let new = serde_json::to_value(&reply).unwrap();
        assert!(contains(&new, &old), "{new} has not all of {old}");
        assert_eq!(serde_json::from_value::<Reply>(new).unwrap(), reply);
    }
}

/// Whether `new` has all fields of `old`.
fn contains(new: &Value, old: &Value) -> bool {
    match (new.as_object(), old.as_object()) {
        (Some(new), Some(old)) => {
            old.iter().all(|(name, value)| new.get(name).is_some_and(|new| contains(new, value)))
        }
        _ => new == old,
    }
}

#[test]
fn a_result_is_read_only_where_the_call_succeeded() {
    let receipt: Receipt = serde_json::from_str(PLACE).unwrap();
    let label = Label { integrity: Integrity::System, confidentiality: Confidentiality::Internal };
    let outcome = |status: Status, output: &[u8]| Outcome {
        output: Output::from_bytes(output.to_vec()),
        label,
        status,
        intent: receipt,
        receipt,
        spent: Spent::default(),
        obtained: None,
        truncated: false,
        warnings: Vec::new(),
    };
    let born = br#"{"agent":"calm-otter","did":null}"#;
    let read = outcome(Status::Ok, born).read::<Spawned>().unwrap();
    assert_eq!(read, Spawned { agent: "calm-otter".into(), did: None });
    let failure = crate::ToolFailure { code: "agent.too_many".into(), message: "no room".into() };
    let failed = outcome(Status::Failed(failure.clone()), born).read::<Spawned>();
    assert_eq!(failed, Err(ResultError::Failed(failure)));
    for (status, output) in [(Status::TimedOut, &born[..]), (Status::Ok, b"[]"), (Status::Ok, b"\xff")] {
        assert!(outcome(status, output).read::<Spawned>().is_err());
    }
}

#[test]
fn bytes_come_back_as_they_were() {
    for bytes in [&b""[..], b"text", "äöü".as_bytes(), b"\xff\x00\xfe"] {
        assert_eq!(Output::from_bytes(bytes.to_vec()).bytes().unwrap(), bytes);
    }
    assert!(Output::Base64("%".to_owned()).bytes().is_err());
}
