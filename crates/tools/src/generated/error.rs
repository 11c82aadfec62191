//! Why a generated tool can't be made or used.

use std::path::PathBuf;

use regent_kernel::AdmitError;

use crate::pins::PinError;
use crate::tool::ToolError;

/// Why a generated tool can't be made or used.
#[derive(Debug, thiserror::Error)]
pub enum GeneratedError {
    /// There is no such tool, or no such version.
    #[error("there is no generated tool `{0}`")]
    Unknown(String),
    /// Bytes on disk are not the ones that were agreed to.
    #[error("`{name}` has changed on disk: {what}")]
    Changed {
        /// Which tool.
        name: String,
        /// What is not as it was.
        what: String,
    },
    /// It came with the folder; nobody here has tried it.
    #[error("`{0}` was not made here")]
    Unpinned(String),
    /// It was tried with another interpreter.
    #[error("`{0}` was made with another interpreter than this build has")]
    Interpreter(String),
    /// What was asked for can't be a tool.
    #[error("{0}")]
    Refused(String),
    /// The source is at fault.
    #[error("{0}")]
    Source(#[from] regent_script::ScriptError),
    /// It reaches for something that it doesn't ask to be granted.
    #[error(
        "the source uses `regent.{function}`, which needs the capability `{capability}`; ask for it, or do without"
    )]
    Undeclared {
        /// What it calls.
        function: String,
        /// What it would need.
        capability: &'static str,
    },
    /// An example comes out otherwise.
    #[error("example {number}: {why}")]
    Example {
        /// Which, from 1.
        number: usize,
        /// What happened.
        why: String,
    },
    /// The catalogue doesn't take it.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The tier doesn't take it.
    #[error("`{name}` can't be run: {why}")]
    Tier {
        /// Which tool.
        name: String,
        /// Why.
        why: String,
    },
    /// The record of what was agreed to can't be used.
    #[error(transparent)]
    Pins(#[from] PinError),
    /// A file can't be read or written.
    #[error("`{}`: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

impl GeneratedError {
    /// The stable word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "tool.unknown",
            Self::Changed { .. } => "tool.changed",
            Self::Unpinned(_) => "tool.not_made_here",
            Self::Interpreter(_) => "tool.interpreter",
            Self::Refused(_) | Self::Admit(_) => "tool.refused",
            Self::Source(_) => "tool.source",
            Self::Undeclared { .. } => "tool.undeclared",
            Self::Example { .. } => "tool.example",
            Self::Tier { .. } => "wasm.unavailable",
            Self::Io { .. } | Self::Pins(_) => "tool.unreadable",
        }
    }
}

impl From<GeneratedError> for ToolError {
    fn from(error: GeneratedError) -> Self {
        Self::failed(error.code(), error.to_string())
    }
}
