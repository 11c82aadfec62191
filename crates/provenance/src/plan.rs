//! Plans: the steps of a request, written before any untrusted input. A plan can only be narrowed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text;

/// Maximum steps of a plan.
const STEPS_MAX: usize = 512;
/// Maximum arguments of a step.
const ARGUMENTS_MAX: usize = 128;

/// The steps of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plan {
    /// Unordered: the origin of arguments shows the dependencies.
    pub steps: Vec<PlanStep>,
}

/// One call of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanStep {
    /// The tool.
    pub tool: String,
    /// The allowed value of each argument. Arguments not listed here aren't planned.
    #[serde(default)]
    pub args: BTreeMap<String, Argument>,
}

/// A step proposed by a model that read only the request. It counts only as far as the request supports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposedStep {
    /// The tool.
    pub tool: String,
    /// The word of the request that asks for it.
    pub word: String,
    /// Constants from the request or selections. Other arguments are judged as without a plan.
    #[serde(default)]
    pub args: BTreeMap<String, Argument>,
}

/// The allowed value of an argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// Exactly this value.
    Const(Value),
    /// A value from the outputs of these tools; `tool.field` for one field.
    From(Vec<String>),
    /// The result of this selection.
    Select(Selection),
    /// Content that the agent writes. A sink must still come from a trusted source.
    Free(bool),
}

/// A selection among records, evaluated here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The tools whose outputs contain the records.
    pub from: Vec<String>,
    /// The field to return.
    pub field: String,
    /// Which record to pick.
    pub pick: Pick,
    /// The field to order by.
    #[serde(default)]
    pub by: Option<String>,
    /// A filter on records.
    #[serde(default)]
    pub whose: Option<Where>,
}

/// Which of several records to pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// Any match; a list argument may have all of them.
    Every,
    /// The first in output order.
    First,
    /// The largest by the field.
    Largest,
    /// The smallest by the field.
    Smallest,
    /// The latest by the field.
    Latest,
    /// The earliest by the field.
    Earliest,
    /// The number of records instead of a record.
    Count,
}

/// A condition on a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Where {
    /// The field.
    pub field: String,
    /// The required value, compared without regard to spelling.
    pub is: Value,
}

/// Why a plan is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Malformed.
    #[error("the plan can't be read: {0}")]
    Unreadable(String),
    /// Too many steps or arguments.
    #[error("the plan has more than {STEPS_MAX} steps, or a step more than {ARGUMENTS_MAX} arguments")]
    TooLong,
    /// Wider than the active plan.
    #[error("step {step} (`{tool}`) is not within the active plan: a plan can only be narrowed")]
    Wider {
        /// The step, from 1.
        step: usize,
        /// Its tool.
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

    /// The first step of `self` that no distinct step of `other` covers.
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
    /// Parses a list of proposed steps.
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
    fn rejects_invalid_plans() {
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
