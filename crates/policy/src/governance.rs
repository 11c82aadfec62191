//! The governance fields at the top of a policy file: allowed tools, blocked patterns, ceilings and thresholds.
//!
//! They only narrow. Each is reported like a rule, with an id such as `governance.max_tool_calls` and its line.

use regex::RegexSet;
use serde_json::Value;

use crate::condition::Names;
use crate::facts::Facts;
use crate::verdict::{RuleRef, codes};

/// The checks of one policy file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Governance {
    pub allowed_tools: Option<Check<Names>>,
    pub blocked: Option<Check<Blocked>>,
    pub max_tokens_per_request: Option<Check<u64>>,
    pub max_tool_calls_per_request: Option<Check<u32>>,
    pub confidence_threshold: Option<Check<f64>>,
    pub drift_threshold: Option<Check<f64>>,
    /// Tools that need an approval.
    pub human_approval: Option<Check<Names>>,
}

/// A check and where it is written.
#[derive(Debug, Clone)]
pub(crate) struct Check<T> {
    pub at: RuleRef,
    pub bound: T,
}

/// Patterns that no argument may contain, compiled into one automaton: one pass, however many there are.
#[derive(Debug, Clone)]
pub(crate) struct Blocked {
    pub set: RegexSet,
    /// As written, in the same order.
    pub patterns: Box<[Box<str>]>,
}

/// A check that failed.
#[derive(Debug)]
pub(crate) struct Breach<'p> {
    pub code: &'static str,
    pub at: &'p RuleRef,
    pub message: String,
}

impl Governance {
    /// The first check that says no.
    pub(crate) fn breach(&self, facts: &Facts<'_>) -> Option<Breach<'_>> {
        // An agent may always end, also when it has used up what it had.
        if facts.op == "agent.exit" {
            return None;
        }
        self.tools(facts)
            .or_else(|| self.ceilings(facts))
            .or_else(|| self.thresholds(facts))
            .or_else(|| self.patterns(facts))
    }

    /// The check that requires an approval.
    pub(crate) fn asks(&self, facts: &Facts<'_>) -> Option<&RuleRef> {
        let check = self.human_approval.as_ref()?;
        facts.tool.is_some_and(|tool| check.bound.matches(tool)).then_some(&check.at)
    }

    fn tools(&self, facts: &Facts<'_>) -> Option<Breach<'_>> {
        let (check, tool) = (self.allowed_tools.as_ref()?, facts.tool?);
        (!check.bound.matches(tool)).then(|| Breach {
            code: codes::ALLOWED_TOOLS,
            at: &check.at,
            message: format!("`{tool}` is not among the allowed tools"),
        })
    }

    fn ceilings(&self, facts: &Facts<'_>) -> Option<Breach<'_>> {
        let session = &facts.session;
        if let Some(check) = &self.max_tokens_per_request
            && session.request_tokens > check.bound
        {
            let message =
                format!("the request has used {} of {} tokens", session.request_tokens, check.bound);
            return Some(Breach { code: codes::MAX_TOKENS, at: &check.at, message });
        }
        let check = self.max_tool_calls_per_request.as_ref()?;
        (facts.tool.is_some() && session.tool_calls >= check.bound).then(|| Breach {
            code: codes::MAX_TOOL_CALLS,
            at: &check.at,
            message: format!("the request has made {} of {} tool calls", session.tool_calls, check.bound),
        })
    }

    /// Where nothing measures confidence or drift there is nothing to compare. A measure that is no number fails.
    fn thresholds(&self, facts: &Facts<'_>) -> Option<Breach<'_>> {
        if let (Some(check), Some(confidence)) = (&self.confidence_threshold, facts.session.confidence)
            && (confidence.is_nan() || confidence < check.bound)
        {
            let message = format!("confidence {confidence:.2} is below {:.2}", check.bound);
            return Some(Breach { code: codes::CONFIDENCE, at: &check.at, message });
        }
        let (check, drift) = (self.drift_threshold.as_ref()?, facts.session.drift?);
        (drift.is_nan() || drift > check.bound).then(|| Breach {
            code: codes::DRIFT,
            at: &check.at,
            message: format!("drift {drift:.2} is above {:.2}", check.bound),
        })
    }

    fn patterns(&self, facts: &Facts<'_>) -> Option<Breach<'_>> {
        let check = self.blocked.as_ref()?;
        let mut canonical = String::new();
        write_canonical(facts.args, &mut canonical);
        let hit = check.bound.first_in(&canonical).or_else(|| check.bound.first_in_leaves(facts.args))?;
        Some(Breach {
            code: codes::BLOCKED_PATTERN,
            at: &check.at,
            message: format!("the arguments contain the blocked pattern `{hit}`"),
        })
    }
}

impl Blocked {
    fn first_in(&self, text: &str) -> Option<&str> {
        let at = self.set.matches(text).iter().next()?;
        self.patterns.get(at).map(|pattern| &**pattern)
    }

    /// Escapes hide things in the canonical text: `\"` for a quote. The leaves have none.
    fn first_in_leaves(&self, value: &Value) -> Option<&str> {
        match value {
            Value::String(text) => self.first_in(text),
            Value::Array(items) => items.iter().find_map(|item| self.first_in_leaves(item)),
            Value::Object(fields) => fields.values().find_map(|field| self.first_in_leaves(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }
}

/// JSON with sorted keys and no spaces, whatever order the map keeps.
pub(crate) fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_unstable();
            out.push('{');
            for (at, name) in names.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                if let Some(field) = fields.get(name) {
                    write_canonical(field, out);
                }
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push_str(&value.to_string())
        }
    }
}
