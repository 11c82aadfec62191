//! Reviews outputs before anyone reads them, if a manifest has a point for that.

use serde_json::Value;

use super::control::ReviewedOutput;
use crate::facts::Facts;
use crate::policy::Policy;
use crate::verdict::Reason;
use crate::words::Confidentiality;

/// A review that passed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reviewed {
    /// Minimum confidentiality; `None` if no point sets it.
    pub confidentiality: Option<Confidentiality>,
    /// Warnings for the caller.
    pub warnings: Vec<Reason>,
}

impl Policy {
    /// Whether the output of an operation is reviewed, so that nothing may be streamed before.
    pub fn reviews(&self, op: &str) -> bool {
        self.sets().iter().filter_map(|set| set.control.as_ref()).any(|control| control.looks_after(op))
    }

    /// Reviews the output of a call and applies policy's changes; `Err` if it must be withheld. `failure` is the tool's
    /// own error, if it failed.
    pub fn review(
        &self,
        facts: &Facts<'_>,
        output: &mut Vec<u8>,
        failure: Option<&str>,
    ) -> Result<Reviewed, Reason> {
        let mut reviewed = Reviewed::default();
        if !self.reviews(facts.op) {
            return Ok(reviewed);
        }
        let parsed: Option<Value> =
            if output.is_empty() { Some(Value::Null) } else { serde_json::from_slice(output).ok() };
        let is_text = parsed.is_none();
        let before = parsed.unwrap_or_else(|| Value::String(String::from_utf8_lossy(output).into_owned()));
        let mut after = before.clone();
        // The user's manifest applies last, as for changes to calls.
        for set in self.sets().iter().rev().filter(|set| set.is_about(facts)) {
            let Some(control) = &set.control else { continue };
            let ReviewedOutput { warnings, result } = control.after(facts, &mut after, failure)?;
            reviewed.warnings.extend(warnings);
            reviewed.confidentiality = reviewed.confidentiality.max(result);
        }
        if after != before {
            // Text stays text.
            let text = after.as_str().filter(|_| is_text).map(str::to_owned);
            *output = text.unwrap_or_else(|| after.to_string()).into_bytes();
        }
        Ok(reviewed)
    }
}
