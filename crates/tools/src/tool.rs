//! What a tool of the host tier is, and how it says that it did not work.

use regent_kernel::{BoxFuture, ExecuteError, Foreseen, Permit, RawOutput, ToolFailure, ToolSpec, tier};
use serde_json::Value;

/// What a tool's function may use beside its arguments: the permit of its call, lent. [`Permit::syscall`] asks for more through the one
/// door, [`Permit::workspace`] is where the files are, [`Permit::cancelled`] says when to stop.
pub type Context<'p> = Permit<'p, tier::Host>;

/// A tool that runs in this process. [`tool`](crate::tool) writes one from a function.
pub trait HostTool: Send + Sync {
    /// What it is and does, for the catalogue.
    fn spec(&self) -> ToolSpec;

    /// Does it. The permit stays the executor's: it is lent for as long as this call runs.
    fn run<'s>(&'s self, permit: &'s Context<'s>) -> BoxFuture<'s, Result<RawOutput, ToolError>>;

    /// What a call would do to the one file that it writes; see [`Executor::foresee`](regent_kernel::Executor::foresee). A tool that
    /// does anything else, or can't tell, says `None`: after a crash Regent asks a reviewer about its call.
    fn foresee(&self, _args: &Value, _before: Option<&[u8]>) -> Option<Foreseen> {
        None
    }
}

/// Why a tool gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It did not work, and the caller hears why.
    #[error("{}", .0.message)]
    Failed(ToolFailure),
    /// We broke.
    #[error(transparent)]
    Broke(#[from] ExecuteError),
}

impl ToolError {
    /// A failure with a stable code (`text.empty`) and a sentence.
    pub fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::Failed(ToolFailure { code: code.to_owned(), message: message.into() })
    }
}

impl From<ToolFailure> for ToolError {
    fn from(failure: ToolFailure) -> Self {
        Self::Failed(failure)
    }
}
