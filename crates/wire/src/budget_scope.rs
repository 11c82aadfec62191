//! Whose budget.

use std::borrow::Cow;

use regent_identity::AgentId;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Whose budget. As text: `user/day`, `project`, `session`, `agent/<id>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BudgetScope {
    /// All kernels of this user, counted anew each day (UTC).
    UserDay,
    /// All kernels that work in this project.
    Project,
    /// This kernel's session.
    Session,
    /// One agent, and all that it starts.
    Agent(AgentId),
}

impl std::fmt::Display for BudgetScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UserDay => f.write_str("user/day"),
            Self::Project => f.write_str("project"),
            Self::Session => f.write_str("session"),
            Self::Agent(id) => write!(f, "agent/{}", id.as_str()),
        }
    }
}

impl From<BudgetScope> for String {
    fn from(scope: BudgetScope) -> Self {
        scope.to_string()
    }
}

impl TryFrom<String> for BudgetScope {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "user/day" => Ok(Self::UserDay),
            "project" => Ok(Self::Project),
            "session" => Ok(Self::Session),
            other => match other.strip_prefix("agent/") {
                Some(id) if !id.is_empty() => Ok(Self::Agent(AgentId::from(id))),
                Some(_) | None => Err(format!(
                    "`{}` is not a scope: `user/day`, `project`, `session` or `agent/<id>`",
                    other.escape_debug()
                )),
            },
        }
    }
}

impl JsonSchema for BudgetScope {
    fn schema_name() -> Cow<'static, str> {
        "BudgetScope".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "pattern": "^(user/day|project|session|agent/.+)$",
            "description": "Whose budget: `user/day`, `project`, `session` or `agent/<id>`.",
        })
    }
}
