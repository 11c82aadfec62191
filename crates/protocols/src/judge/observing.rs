//! What a host reports of a call that it has performed, and what of it outlives the session.

use std::collections::HashSet;

use regent_kernel::{Outcome, Status, StoreUse};
use regent_policy::codes;
use regent_wire::judge::{JudgeBegun, JudgeCall, JudgeObserved, JudgeReport};
use serde_json::{Value, json};

use super::host::Observation;
use super::{Judge, JudgeError};
use crate::labels::known::{KnownTools, Noted};
use crate::labels::stores::Stores;

/// What outlives sessions: what is remembered of tools, and the labels of what is in stores.
#[derive(Debug)]
pub struct Labels {
    /// What is remembered of tools.
    pub known: KnownTools,
    /// The labels of what is in stores.
    pub stores: Stores,
}

impl Judge {
    /// Receives the result of a call, and keeps the label of what it wrote into a store.
    pub(super) async fn observe(
        &self,
        name: &str,
        call: JudgeCall,
        output: JudgeReport,
        store: &Value,
    ) -> Result<JudgeObserved, JudgeError> {
        let used = self.parts.labels.stores.read(store, &call.args).await.map_err(JudgeError::Refused)?;
        let wrote = used.clone().filter(|used| used.wrote.is_some());
        let (output, observation) = Observation::from_report(output, used);
        let bytes = observation.output.clone();
        let done = self.observed(name, call, (&output, observation)).await;
        match (wrote, &done) {
            (Some(wrote), Ok(Outcome { obtained, .. })) => {
                let label = obtained.as_ref().and_then(|receipt| receipt.pointer("/store/label"));
                self.parts.labels.stores.keep(&wrote, label).await.map_err(JudgeError::Refused)?;
            }
            // The host has written it, whatever we think of the report.
            (Some(wrote), Err(_)) => {
                self.parts.labels.stores.keep(&wrote, None).await.map_err(JudgeError::Refused)?;
            }
            (None, _) => {}
        }
        done.map(|outcome| passed(&outcome, &bytes))
    }
}

/// The answer to a beginning, with the tools whose definition is not what it was in earlier sessions, and those whose labels can't be read.
pub(super) fn with_noted(told: JudgeBegun, noted: &Noted) -> JudgeBegun {
    JudgeBegun { changed: noted.changed.clone(), unreadable: noted.unreadable.clone(), ..told }
}

/// What the host may do with what it has observed: all of it, what policy has made of it, or nothing.
fn passed(outcome: &Outcome, observed: &[u8]) -> JudgeObserved {
    let all = JudgeObserved { outcome: outcome.receipt.seq, output: None, withheld: None };
    if let Status::Failed(failure) = &outcome.status
        && failure.code == codes::WITHHELD
    {
        return JudgeObserved { withheld: Some(failure.message.clone()), ..all };
    }
    // What nobody changed needs no parsing.
    if outcome.output.bytes() == observed {
        return all;
    }
    let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    match parsed(outcome.output.bytes()) {
        Some(passed) if parsed(observed).as_ref() != Some(&passed) => {
            JudgeObserved { output: Some(passed), ..all }
        }
        Some(_) | None => all,
    }
}

impl Observation {
    /// Structured output if there is any, because its fields have labels of their own; as a value and as it is passed on.
    fn from_report(output: JudgeReport, store: Option<StoreUse>) -> (Value, Self) {
        let JudgeReport { text, data, error } = output;
        let error = match error {
            Value::Null => None,
            Value::String(text) => Some(text),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Some(other.to_string())
            }
        };
        let output = match (data.is_null(), has_more(&text, &data)) {
            (true, _) => text,
            (false, true) => json!([data, text]),
            (false, false) => data,
        };
        let bytes = output.to_string().into_bytes();
        (output, Self { output: bytes, error, store })
    }
}

/// How languages print the absence of a value, in lower case. Data has it as `null`.
const ABSENT: &[&str] = &["none", "nil", "null", "undefined"];

/// Whether a text says more than the data that it comes with. If it only tells the same in other lines, the data has better labels.
fn has_more(text: &Value, data: &Value) -> bool {
    let words = |value: &Value| -> HashSet<String> {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let said = if text.is_null() { HashSet::new() } else { words(text) };
    let in_data = words(data);
    said.iter().any(|word| !in_data.contains(word) && !ABSENT.contains(&word.as_str()))
}
