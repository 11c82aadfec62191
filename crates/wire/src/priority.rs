//! How urgent something is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How urgent a task, an agent or a call to a model is. It is a larger share, not a right of way: nobody starves.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Nobody waits for it.
    Low,
    /// An agent at work.
    #[default]
    Normal,
    /// A person waits for it.
    High,
}
