//! Questions to reviewers, and their answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A question's id: short enough to type, random enough not to be guessed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct TicketId(pub String);

impl std::fmt::Display for TicketId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "say")]
#[schemars(rename = "Answer")]
pub enum ApprovalAnswer {
    /// Yes: how often and how long.
    Approve {
        /// For what.
        scope: Scope,
        /// For how long.
        valid_ms: u64,
    },
    /// The application that performs the call reports that it did, so its user must have agreed. That is the host's report, not
    /// a reviewer's approval: it covers one call, only for a question that the host put to its own user, and the ledger records it as such.
    HostSays {
        /// For how long.
        valid_ms: u64,
    },
    /// No. It also revokes an unused approval.
    Deny {
        /// Advice to the agent.
        because: Option<String>,
    },
}

/// The arguments of `approval.answer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnswerCall {
    /// Which question.
    pub ticket: TicketId,
    /// Questions of the same cause that the reviewer saw with it. They get the same answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<TicketId>,
    /// What the person says.
    pub answer: ApprovalAnswer,
}

/// The scope of an approval. Always for exactly the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One time.
    Once,
    /// Any number of times in this session.
    Session,
    /// Any number of times in this project.
    Project,
}

/// Who gave an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Voice {
    /// A reviewer answered here.
    #[default]
    Person,
    /// The application that performed the call reports it.
    HostSays,
}

impl Voice {
    /// Whether a reviewer answered here.
    pub fn is_person(&self) -> bool {
        matches!(self, Self::Person)
    }
}
