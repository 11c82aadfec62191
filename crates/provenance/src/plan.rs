//! Plans: what a request needs, written before the first untrusted byte. A plan can only be narrowed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text;

/// Steps of one plan.
const STEPS_MAX: usize = 512;
/// Arguments of one step.
const ARGUMENTS_MAX: usize = 128;

/// The steps that a request needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plan {
    /// In no order: what depends on what shows in where the arguments come from.
    pub steps: Vec<PlanStep>,
}

/// One call that the request needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanStep {
    /// Which tool.
    pub tool: String,
    /// What each argument may be. An argument that isn't here isn't planned.
    #[serde(default)]
    pub args: BTreeMap<String, Argument>,
}

/// A step that a model proposed after it read the request and nothing else. It counts only as far as the request supports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposedStep {
    /// Which tool.
    pub tool: String,
    /// The word of the request that asks for it.
    pub word: String,
    /// What single arguments are: a constant of the request or a selection. Everything else is judged as without a plan.
    #[serde(default)]
    pub args: BTreeMap<String, Argument>,
}

/// What an argument may be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// This value.
    Const(Value),
    /// A value out of the outputs of these tools; `tool.field` for one field of them.
    From(Vec<String>),
    /// What this selection gives.
    Select(Selection),
    /// Content that the agent writes. A sink is still not free to come from just anywhere.
    Free(bool),
}

/// A choice among records that is evaluated here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The tools whose outputs have the records.
    pub from: Vec<String>,
    /// The field that is the value.
    pub field: String,
    /// Which record.
    pub pick: Pick,
    /// The field that they are ordered by.
    #[serde(default)]
    pub by: Option<String>,
    /// Only records that fit.
    #[serde(default)]
    pub whose: Option<Where>,
}

/// Which of several records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// Any that fit; a list argument may have all of them.
    Every,
    /// The first in the order they came.
    First,
    /// The largest by the field.
    Largest,
    /// The smallest by the field.
    Smallest,
    /// The latest by the field.
    Latest,
    /// The earliest by the field.
    Earliest,
    /// Not a record but how many there are.
    Count,
}

/// A condition on a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Where {
    /// The field.
    pub field: String,
    /// What it must be, but for spelling.
    pub is: Value,
}

/// Why a plan is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It isn't one.
    #[error("the plan can't be read: {0}")]
    Unreadable(String),
    /// It is longer than anyone could have meant.
    #[error("the plan has more than {STEPS_MAX} steps, or a step more than {ARGUMENTS_MAX} arguments")]
    TooLong,
    /// It allows what the plan in force doesn't.
    #[error("step {step} (`{tool}`) is not within the active plan: a plan can only be narrowed")]
    Wider {
        /// Which, from 1.
        step: usize,
        /// Of which tool.
        tool: String,
    },
}

impl Plan {
    /// Reads a plan from JSON: a list of steps.
    pub fn read(value: &Value) -> Result<Self, PlanError> {
        let plan = Self::deserialize(value).map_err(|error| PlanError::Unreadable(error.to_string()))?;
        if plan.steps.len() > STEPS_MAX || plan.steps.iter().any(|step| step.args.len() > ARGUMENTS_MAX) {
            return Err(PlanError::TooLong);
        }
        Ok(plan)
    }

    /// Says which step of `self` isn't within a step of its own of `other`, if one isn't.
    pub(crate) fn beyond(&self, other: &Plan) -> Option<PlanError> {
        let mut left: Vec<&PlanStep> = other.steps.iter().collect();
        for (number, step) in self.steps.iter().enumerate() {
            let Some(at) = left.iter().position(|one| step.is_within(one)) else {
                return Some(PlanError::Wider { step: number.saturating_add(1), tool: step.tool.clone() });
            };
            left.swap_remove(at);
        }
        None
    }
}

impl ProposedStep {
    /// Reads a list of proposed steps.
    pub(crate) fn read(value: &Value) -> Result<Vec<Self>, PlanError> {
        let steps =
            Vec::<Self>::deserialize(value).map_err(|error| PlanError::Unreadable(error.to_string()))?;
        if steps.len() > STEPS_MAX || steps.iter().any(|step| step.args.len() > ARGUMENTS_MAX) {
            return Err(PlanError::TooLong);
        }
        Ok(steps)
    }
}

impl PlanStep {
    fn is_within(&self, other: &PlanStep) -> bool {
        let fits = |(name, argument): (&String, &Argument)| {
            other.args.get(name).is_some_and(|wider| argument.is_within(wider))
        };
        self.tool == other.tool && self.args.iter().all(fits)
    }
}

impl Argument {
    fn is_within(&self, other: &Argument) -> bool {
        match (self, other) {
            (_, Self::Free(_)) => true,
            (Self::Const(own), Self::Const(wider)) => text::same(own, wider),
            (Self::From(own), Self::From(wider)) => own.iter().all(|tool| wider.contains(tool)),
            (Self::Select(own), Self::From(wider)) => own.from.iter().all(|tool| wider.contains(tool)),
            (Self::Select(own), Self::Select(wider)) => own == wider,
            (Self::Const(_) | Self::From(_) | Self::Free(_), _) | (Self::Select(_), Self::Const(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan(value: Value) -> Plan {
        Plan::read(&value).unwrap()
    }

    #[test]
    fn a_plan_is_narrowed_never_widened() {
        let wide = plan(json!([
            {"tool": "list", "args": {}},
            {"tool": "send", "args": {"to": {"from": ["list", "find"]}, "text": {"free": true}}},
        ]));
        let within = [
            json!([]),
            json!([{"tool": "send", "args": {"to": {"from": ["list"]}, "text": {"const": "hi"}}}]),
            json!([{"tool": "list"}, {"tool": "send", "args": {"to": {"select": {"from": ["list"], "field": "id", "pick": "largest", "by": "size"}}}}]),
        ];
        for narrower in within {
            assert_eq!(plan(narrower.clone()).beyond(&wide), None, "{narrower}");
        }
        let beyond = [
            json!([{"tool": "delete"}]),
            json!([{"tool": "list"}, {"tool": "list"}]),
            json!([{"tool": "list", "args": {"all": {"free": true}}}]),
            json!([{"tool": "send", "args": {"to": {"const": "x"}}}]),
            json!([{"tool": "send", "args": {"to": {"from": ["list", "web"]}}}]),
            json!([{"tool": "send", "args": {"to": {"free": true}}}]),
        ];
        for wider in beyond {
            assert!(matches!(plan(wider.clone()).beyond(&wide), Some(PlanError::Wider { .. })), "{wider}");
        }
    }

    #[test]
    fn what_is_not_a_plan_is_refused() {
        for odd in [
            json!({}),
            json!([{"args": {}}]),
            json!([{"tool": "a", "args": {"x": {"any": 1}}}]),
            json!([{"tool": "a", "extra": 1}]),
        ] {
            assert!(matches!(Plan::read(&odd), Err(PlanError::Unreadable(_))), "{odd}");
        }
        let long: Vec<Value> = (0..600).map(|_| json!({"tool": "a"})).collect();
        assert_eq!(Plan::read(&json!(long)), Err(PlanError::TooLong));
    }
}
