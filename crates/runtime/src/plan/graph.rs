//! A plan as data: steps, what each builds on, and how each can be undone.

use std::collections::{BTreeMap, BTreeSet};

use regent_kernel::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Steps of one plan.
const STEPS_MAX: usize = 32;
const ID_CHARS_MAX: usize = 40;
const GOAL_CHARS_MAX: usize = 8_000;

/// A plan, as a model or a program writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What is to be done.
    pub steps: Vec<PlanStep>,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanStep {
    /// Lower case letters, digits, `-` and `_`.
    pub id: String,
    /// What is to be done, for an agent that knows nothing else.
    pub goal: String,
    /// The steps whose answers it builds on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// The tools it needs; all that the task has, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The call that makes up for it if a later step fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<ToolCall>,
}

/// A plan can't be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No steps, or too many.
    #[error("a plan has 1 to {STEPS_MAX} steps")]
    Count,
    /// A name that isn't one.
    #[error("`{}` is not a valid step name", .0.escape_debug())]
    Name(String),
    /// Two steps of the same name.
    #[error("duplicate step `{0}`")]
    Twice(String),
    /// A goal that is empty or too long.
    #[error("step `{0}` has no goal, or one that is too long")]
    Goal(String),
    /// It builds on something that isn't there.
    #[error("step `{step}` needs `{needs}`, which doesn't exist")]
    Unknown {
        /// Which step.
        step: String,
        /// What it needs.
        needs: String,
    },
    /// Steps that wait for each other.
    #[error("these steps depend on each other: {0}")]
    Circle(String),
}

/// An executable plan: its steps in topological order.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    steps: Vec<PlanStep>,
    /// By place, the places of what each needs.
    needs: Vec<Vec<usize>>,
}

impl Plan {
    /// JSON Schema of a plan, for models.
    pub fn schema() -> Value {
        let step = json!({
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "goal": {"type": "string"},
                "needs": {"type": "array", "items": {"type": "string"}},
                "tools": {"type": "array", "items": {"type": "string"}},
                "undo": {
                    "type": "object",
                    "properties": {"tool": {"type": "string"}, "args": {"type": "object"}},
                    "required": ["tool", "args"],
                },
            },
            "required": ["id", "goal"],
            "additionalProperties": false,
        });
        json!({
            "type": "object",
            "properties": {"steps": {"type": "array", "items": step, "minItems": 1, "maxItems": STEPS_MAX}},
            "required": ["steps"],
            "additionalProperties": false,
        })
    }

    /// Sorts the steps topologically, or says why that is impossible. The same plan gives the same order.
    pub fn order(self) -> Result<Graph, PlanError> {
        if self.steps.is_empty() || self.steps.len() > STEPS_MAX {
            return Err(PlanError::Count);
        }
        let mut left: BTreeMap<usize, PlanStep> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for (place, step) in self.steps.into_iter().enumerate() {
            check(&step)?;
            if !names.insert(step.id.clone()) {
                return Err(PlanError::Twice(step.id));
            }
            left.insert(place, step);
        }
        for step in left.values() {
            if let Some(needs) = step.needs.iter().find(|needs| !names.contains(*needs)) {
                return Err(PlanError::Unknown { step: step.id.clone(), needs: needs.clone() });
            }
        }
        let mut steps: Vec<PlanStep> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        // The first step of the plan that needs nothing that is left comes next.
        while let Some(place) = left
            .iter()
            .find(|(_, step)| step.needs.iter().all(|needs| places.contains_key(needs)))
            .map(|(place, _)| *place)
        {
            if let Some(step) = left.remove(&place) {
                places.insert(step.id.clone(), steps.len());
                steps.push(step);
            }
        }
        if !left.is_empty() {
            let ids: Vec<String> = left.into_values().map(|step| step.id).collect();
            return Err(PlanError::Circle(ids.join(", ")));
        }
        let needs = steps
            .iter()
            .map(|step| step.needs.iter().filter_map(|id| places.get(id).copied()).collect())
            .collect();
        Ok(Graph { steps, needs })
    }
}

impl Graph {
    /// The steps in topological order.
    pub fn steps(&self) -> &[PlanStep] {
        &self.steps
    }

    /// The places of the steps that one builds on.
    pub fn needs(&self, place: usize) -> &[usize] {
        self.needs.get(place).map_or(&[], Vec::as_slice)
    }
}

fn check(step: &PlanStep) -> Result<(), PlanError> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    if step.id.is_empty() || step.id.len() > ID_CHARS_MAX || !step.id.chars().all(fine) {
        return Err(PlanError::Name(step.id.chars().take(ID_CHARS_MAX).collect()));
    }
    if step.goal.trim().is_empty() || step.goal.len() > GOAL_CHARS_MAX {
        return Err(PlanError::Goal(step.id.clone()));
    }
    Ok(())
}
