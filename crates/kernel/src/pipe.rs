//! Typed pipes between agents: bounded, with a schema for what goes through.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PipeId(pub u64);

/// What a pipe is to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipeSpec {
    /// Who may take messages out.
    pub reader: crate::agent::AgentId,
    /// JSON Schema of a message.
    pub schema: Value,
    /// How many messages wait at most.
    pub messages_max: u32,
    /// How large a message may be.
    pub message_bytes_max: u32,
}

/// All pipes.
#[derive(Debug, Default)]
pub(crate) struct Pipes {}
