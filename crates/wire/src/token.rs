//! Tokens, as they are asked for and shown. The token itself never travels in these.

use regent_identity::AgentId;
use regent_ledger::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PersonRole;

/// The public part of a token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct TokenId(pub String);

impl std::fmt::Display for TokenId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whom a token stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "class", rename_all = "lowercase", deny_unknown_fields)]
pub enum Subject {
    /// An operator with a role.
    Person {
        /// By this name they approve, and are in the ledger.
        name: String,
        /// What they are here for.
        role: PersonRole,
    },
    /// A program of our own organisation.
    Service {
        /// What policy matches, after `service:`.
        name: String,
    },
    /// An agent system of another organisation.
    Peer {
        /// What policy matches, after `peer:`.
        name: String,
    },
    /// An agent of this kernel whose program runs elsewhere.
    Agent {
        /// Which.
        agent: AgentId,
    },
}

/// What a new token is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSpec {
    /// Its public part.
    pub id: TokenId,
    /// The SHA-256 of the whole token.
    pub sha256: Digest,
    /// Whom it stands for.
    pub subject: Subject,
    /// How long it is valid; `None` is until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_ms: Option<u64>,
}

/// Whether a token can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenState {
    /// It can.
    Active,
    /// Its time is over.
    Expired,
    /// An admin has revoked it.
    Revoked,
}

/// A token as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenSummary {
    /// Its public part.
    pub id: TokenId,
    /// Whom it stands for.
    pub subject: Subject,
    /// Whether it can be used.
    pub state: TokenState,
    /// Who created it.
    pub created_by: String,
    /// When.
    pub created_at_ms: i64,
    /// Until when it is valid, if it ends by itself.
    pub expires_at_ms: Option<i64>,
    /// The hour in which it was last used.
    pub last_used_at_ms: Option<i64>,
    /// How often its secret was replaced.
    pub rotations: u32,
}
