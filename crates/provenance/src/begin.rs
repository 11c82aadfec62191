//! How a request begins: in words, with the tools there are, and with what is known of what it needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::infer::Unlabelled;
use crate::labels::FieldLabels;
use crate::plan::{Plan, PlanError, ProposedStep};
use crate::session::Trusted;

/// The longest request. Whatever is longer was not typed by a person.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// The longest name of a tool.
const NAME_BYTES_MAX: usize = 128;

/// A request, as a person or the host application gives it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Begin {
    /// What is wanted, in the person's own words.
    pub request: String,
    /// The tools that the host performs itself.
    #[serde(default)]
    pub tools: BTreeMap<String, Declared>,
    /// What a planner that saw nothing but the request derived from it: `tools`, `plan`.
    #[serde(default)]
    pub trusted: Value,
}

/// A tool, as its host declares it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Declared {
    /// For people and models. No power comes from it.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub schema: Value,
    /// See [`FieldLabels`]; where they are missing, they are inferred.
    #[serde(default)]
    pub labels: Value,
    /// MCP's annotations, as the server gives them.
    #[serde(default)]
    pub annotations: Value,
    /// Which MCP server it is of, as the host has installed it: the list of common servers has labels for some.
    #[serde(default)]
    pub server: String,
}

impl Declared {
    /// Its labels, declared or the strictest.
    pub fn field_labels(&self) -> FieldLabels {
        FieldLabels::declared(&self.labels, &self.schema)
    }

    /// The same tool with labels: declared ones, or those inferred from its name, its schema and its server. If declared labels
    /// can't be read, the strictest ones apply: nothing is guessed in their place.
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
    /// Checks the request; an error says what is invalid.
    pub fn check(&self) -> Result<Trusted, PlanError> {
        if self.request.len() > REQUEST_BYTES_MAX {
            return Err(PlanError::TooLong);
        }
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
        let odd = |name: &&String| name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fine);
        match self.tools.keys().find(odd) {
            // Look-alikes of other letters are how one tool passes for another.
            Some(name) => {
                Err(PlanError::Unreadable(format!("`{}` can't be a tool's name", name.escape_debug())))
            }
            None => Trusted::read(&self.trusted),
        }
    }
}

impl Trusted {
    /// Reads `{tools, plan}`. The plan `"propose"` is made here, from the words of the request. `{"propose": [STEP]}` is the same with steps that
    /// a model proposed: they count as far as the request supports them. Invalid input is an error: it was meant to narrow.
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
