//! What people are here for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An operator's role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PersonRole {
    /// Looks: agents, questions, the policy.
    Viewer,
    /// Runs tools, models and agents, and signals agents. Doesn't approve.
    Operator,
    /// Answers questions. Doesn't run anything.
    Approver,
    /// Does all of this, sets budgets, and manages tokens and data.
    Admin,
}

impl PersonRole {
    /// Every role.
    pub const ALL: &[Self] = &[Self::Viewer, Self::Operator, Self::Approver, Self::Admin];

    /// How it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }

    /// The roles that policy matches. An admin has all of them.
    pub fn words(self) -> Vec<String> {
        let has = |one: &&Self| **one == self || self == Self::Admin;
        Self::ALL.iter().filter(has).map(|one| one.as_str().to_owned()).collect()
    }

    /// Whether it acts through agents.
    pub fn runs_agents(self) -> bool {
        matches!(self, Self::Operator | Self::Admin)
    }
}

impl std::fmt::Display for PersonRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
