//! The beginning of a request: its words, the available tools, and what a trusted planner derived.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::infer::Unlabelled;
use crate::labels::FieldLabels;
use crate::plan::{Plan, PlanError, ProposedStep};
use crate::session::Trusted;

/// Maximum length of a request. Longer text was not typed by a user.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a tool name.
const NAME_BYTES_MAX: usize = 128;

/// A request from the user or the host application.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Begin {
    /// The request in the user's own words.
    pub request: String,
    /// The tools that the host executes itself.
    #[serde(default)]
    pub tools: BTreeMap<String, Declared>,
    /// What a planner derived from the request alone: `tools`, `plan`.
    #[serde(default)]
    pub trusted: Value,
}

/// A tool as declared by its host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Declared {
    /// For users and models. It grants nothing.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub schema: Value,
    /// See [`FieldLabels`]; missing labels are inferred.
    #[serde(default)]
    pub labels: Value,
    /// MCP annotations from the server.
    #[serde(default)]
    pub annotations: Value,
    /// The MCP server, named by the host. The built-in list has labels for common servers.
    #[serde(default)]
    pub server: String,
}

impl Declared {
    /// Its declared labels, or the strictest ones.
    pub fn field_labels(&self) -> FieldLabels {
        FieldLabels::declared(&self.labels, &self.schema)
    }

    /// The tool with labels: declared ones, or labels inferred from its name, schema and server. Unreadable declared labels become the
    /// strictest ones; they are never replaced by a guess.
    #[must_use]
    pub fn labelled(&self, name: &str) -> Self {
        if !self.labels.is_null() {
            return self.clone();
        }
        let Self { schema, annotations, server, .. } = self;
        let labels = Unlabelled { name, schema, annotations, server }.labels();
        Self { labels: serde_json::to_value(labels).unwrap_or_default(), ..self.clone() }
    }
}

impl Begin {
    /// Validates the request.
    pub fn check(&self) -> Result<Trusted, PlanError> {
        if self.request.len() > REQUEST_BYTES_MAX {
            return Err(PlanError::TooLong);
        }
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
        let odd = |name: &&String| name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fine);
        match self.tools.keys().find(odd) {
            // Look-alike letters would let one tool pass for another.
            Some(name) => {
                Err(PlanError::Unreadable(format!("`{}` can't be a tool's name", name.escape_debug())))
            }
            None => Trusted::read(&self.trusted),
        }
    }
}

impl Trusted {
    /// Parses `{tools, plan}`. For the plan `"propose"`, a plan is proposed from the words of the request. `{"propose": [STEP]}` adds steps
    /// that a model proposed; they count as far as the request supports them. Invalid input is an error, because it was intended to narrow.
    pub fn read(value: &Value) -> Result<Self, PlanError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Read {
            tools: Option<Vec<String>>,
            plan: Option<Value>,
        }
        if value.is_null() {
            return Ok(Self::default());
        }
        let read = Read::deserialize(value).map_err(|error| PlanError::Unreadable(error.to_string()))?;
        let tools = read.tools.map(|tools| tools.into_iter().collect());
        let plan = read.plan.unwrap_or_default();
        let propose = match plan.get("propose").filter(|_| plan.as_object().is_some_and(|all| all.len() == 1))
        {
            Some(steps) => Some(ProposedStep::read(steps)?),
            None => (plan == "propose").then(Vec::new),
        };
        let is_made = !plan.is_null() && propose.is_none();
        let plan = is_made.then(|| Plan::read(&plan)).transpose()?;
        Ok(Self { tools, plan, propose })
    }
}
