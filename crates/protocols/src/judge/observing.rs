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
        // Only a session whose caller the kernel has accepted changes what is kept.
        self.session(name)?;
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
    let Outcome { status, truncated, output, receipt, .. } = outcome;
    let (output, withheld) = match Allowance::decide(status, *truncated, (output.bytes(), observed)) {
        Allowance::All => (None, None),
        Allowance::Changed(value) => (Some(value), None),
        Allowance::Nothing(why) => (None, Some(why)),
    };
    JudgeObserved { outcome: receipt.seq, output, withheld }
}

/// How much of a result the host may pass on.
#[derive(Debug, PartialEq)]
enum Allowance {
    All,
    /// Only what policy has made of it.
    Changed(Value),
    /// Nothing, and why.
    Nothing(String),
}

impl Allowance {
    /// All of it only if the kernel has accepted all of it: what came too late or was cut is not in the ledger, and no label covers it.
    fn decide(status: &Status, truncated: bool, (accepted, observed): (&[u8], &[u8])) -> Self {
        let nothing = |why: &str| Self::Nothing(why.to_owned());
        match status {
            Status::Failed(failure) if failure.code == codes::WITHHELD => {
                return Self::Nothing(failure.message.clone());
            }
            Status::Ok | Status::Failed(_) => {}
            Status::TimedOut => return nothing("the result came too late"),
            Status::Cancelled => return nothing("the call was stopped before its result came"),
            Status::Faulted(why) => return Self::Nothing(format!("the result was not recorded: {why}")),
        }
        if truncated {
            return nothing("the result was cut: it is larger than the limit for output");
        }
        // What nobody changed needs no parsing.
        if accepted == observed {
            return Self::All;
        }
        let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
        match parsed(accepted) {
            Some(value) if parsed(observed).as_ref() == Some(&value) => Self::All,
            Some(value) => Self::Changed(value),
            None => nothing("what is left of the result can't be parsed"),
        }
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

#[cfg(test)]
mod tests {
    use regent_kernel::ToolFailure;

    use super::*;

    #[test]
    fn all_of_a_result_passes_only_if_the_kernel_accepted_all_of_it() {
        let failed =
            |code: &str| Status::Failed(ToolFailure { code: code.to_owned(), message: "because".to_owned() });
        let (observed, changed) = (r#"{"a": 1, "b": "key"}"#, r#"{"b":"***","a":1}"#);
        let value = || serde_json::from_str(changed).unwrap();
        let nothing = |why: &str| Allowance::Nothing(why.to_owned());
        let cut = || nothing("the result was cut: it is larger than the limit for output");
        let late = || nothing("the result came too late");
        let unparsable = || nothing("what is left of the result can't be parsed");
        let cases = [
            (Status::Ok, false, observed, Allowance::All),
            (Status::Ok, false, r#"{"b":"key","a":1}"#, Allowance::All),
            (Status::Ok, false, changed, Allowance::Changed(value())),
            (Status::Ok, false, "", unparsable()),
            (Status::Ok, false, r#"{"a": 1, "b": "#, unparsable()),
            (Status::Ok, true, r#"{"a": 1, "b": "#, cut()),
            (Status::Ok, true, observed, cut()),
            (failed("host.failed"), false, observed, Allowance::All),
            (failed("host.failed"), false, changed, Allowance::Changed(value())),
            (failed("host.failed"), true, "", cut()),
            (failed(codes::WITHHELD), false, "", nothing("because")),
            (failed(codes::WITHHELD), false, observed, nothing("because")),
            (Status::TimedOut, false, "", late()),
            (Status::TimedOut, false, observed, late()),
            (Status::Cancelled, false, "", nothing("the call was stopped before its result came")),
            (
                Status::Faulted("it broke".to_owned()),
                false,
                "",
                nothing("the result was not recorded: it broke"),
            ),
        ];
        for (status, truncated, accepted, expected) in cases {
            let given = Allowance::decide(&status, truncated, (accepted.as_bytes(), observed.as_bytes()));
            assert_eq!(given, expected, "{status:?}, cut: {truncated}, `{accepted}`");
        }
    }
}
