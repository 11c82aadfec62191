//! Pipes, as they are asked for.

use regent_identity::AgentId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct PipeId(pub u64);

/// The specification of a pipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PipeSpec {
    /// Who may take messages out: an agent, or `operator`.
    pub reader: AgentId,
    /// JSON Schema of a message.
    pub schema: Value,
    /// How many messages wait at most.
    pub messages_max: u32,
    /// How large a message may be.
    pub message_bytes_max: u32,
}
