//! What leaves for a remote model: without any value that was revealed in this process, and without what looks like credentials or
//! personal details. What was taken out can be put back into what the model asks for, by whoever makes the call. The same conversation is redacted to the same text, so that the provider's cache of prompts holds.

use std::collections::BTreeMap;

use regent_kernel::{Completion, Inference, Permit, tier};
use regent_vault::redact::{Numbers, redact_with};
use serde_json::Value;

/// A conversation as it may leave.
pub(super) struct Outgoing {
    pub(super) inference: Inference,
    /// How many places were taken out.
    pub(super) places: usize,
    numbers: Numbers,
}

impl Outgoing {
    /// What the placeholders that an answer names stand for. Values of the vault are not among them: they were scrubbed before.
    pub(super) fn named_in(&self, completion: &Completion) -> BTreeMap<String, String> {
        let mut said = completion.message.text.clone();
        for call in &completion.message.calls {
            said.push_str(&call.args.to_string());
        }
        let text = |(placeholder, value): (String, &[u8])| {
            let value = std::str::from_utf8(value).ok()?;
            said.contains(&placeholder).then(|| (placeholder, value.to_owned()))
        };
        self.numbers.placeholders().filter_map(text).collect()
    }
}

pub(super) fn redacted(permit: &Permit<'_, tier::Host>, inference: &Inference) -> Outgoing {
    let mut outgoing = inference.clone();
    let mut numbers = Numbers::default();
    for message in &outgoing.messages {
        numbers.avoid(&message.text);
        message.calls.iter().for_each(|call| numbers.avoid(&call.args.to_string()));
    }
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
    Outgoing { inference: outgoing, places, numbers }
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
