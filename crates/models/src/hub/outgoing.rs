//! What leaves for a remote model: without any value that was revealed in this process, and without what looks like credentials or
//! personal details. The same conversation is redacted to the same text, so that the provider's cache of prompts holds.

use regent_kernel::{Inference, Permit, tier};
use regent_vault::redact::{Numbers, redact_with};
use serde_json::Value;

/// The conversation as it may leave, and how many places were taken out.
pub(super) fn redacted(permit: &Permit<'_, tier::Host>, inference: &Inference) -> (Inference, usize) {
    let mut outgoing = inference.clone();
    let mut numbers = Numbers::default();
    let mut places = 0;
    let mut clean = |text: &mut String| {
        let mut bytes = std::mem::take(text).into_bytes();
        places += usize::from(permit.scrub(&mut bytes));
        let redacted = redact_with(&bytes, &mut numbers);
        places += redacted.findings.len();
        *text = String::from_utf8(redacted.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    };
    for message in &mut outgoing.messages {
        clean(&mut message.text);
        for call in &mut message.calls {
            each_text(&mut call.args, &mut clean);
        }
    }
    (outgoing, places)
}

/// Depth is bounded by whoever parsed the value.
fn each_text(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_text(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
