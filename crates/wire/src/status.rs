//! How a call ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should.
    Ok,
    /// The tool says that it did not work.
    Failed(ToolFailure),
    /// The wall clock limit ran out.
    TimedOut,
    /// A signal or a shutdown stopped it.
    Cancelled,
    /// The executor broke; the effect may or may not have happened.
    Faulted(String),
}

impl Status {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed(_) => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Faulted(_) => "faulted",
        }
    }
}

/// The tool ran and says that it did not work: an answer to the agent, not a fault of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Failure")]
pub struct ToolFailure {
    /// A stable word, e.g. `fs.not_found`.
    pub code: String,
    /// What went wrong, in a sentence.
    pub message: String,
}
