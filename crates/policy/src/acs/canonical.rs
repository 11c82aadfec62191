//! The canonical form of a value: members sorted by name at every level, nothing else changed.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::governance::write_canonical;

pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    write_canonical(value, &mut out);
    out
}

pub(super) fn identity(value: &Value) -> String {
    let digest = Sha256::digest(text(value).as_bytes());
    digest.iter().fold(String::from("sha256:"), |text, byte| format!("{text}{byte:02x}"))
}

/// Nesting depth of objects and arrays.
pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
