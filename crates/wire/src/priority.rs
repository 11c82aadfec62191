//! How urgent something is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How urgent a task, an agent or a call to a model is. It is a larger share, not a right of way: no task starves.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// No user waits for it.
    Low,
    /// An agent at work.
    #[default]
    Normal,
    /// A user waits for it.
    High,
}
