//! What the kernel asks of anything that can cause an effect.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use regent_ledger::PAYLOAD_BYTES_MAX;
use regent_policy::Label;
use regent_store::StateError;
pub use regent_wire::ToolFailure;
use regent_workspace::FileState;
use serde::Serialize;
use serde_json::{Value, json};

use crate::budget::Spent;
use crate::model::Models;
use crate::stores::StoreUse;
use crate::syscall::{Permit, tier};

/// A boxed future that may borrow for `'a`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Performs one permitted call. The permit is deliberately the only argument.
pub trait Executor<T: tier::Tier>: Send + Sync {
    /// Does what the permit says, within its limits, and stops when it is cancelled.
    fn execute<'s>(&'s self, permit: Permit<'s, T>) -> BoxFuture<'s, Result<RawOutput, ExecuteError>>;

    /// What a call would do to the paths of its arguments, computed from the judged arguments and from what the file that it writes holds
    /// now (`None`: it doesn't exist). The kernel records digests in the intent and compares them with the files after a crash. `None`
    /// if the tool does anything else, or can't tell.
    fn foresee(&self, _args: &Value, _before: Option<&[u8]>) -> Option<Foreseen> {
        None
    }
}

/// What a call would do to the paths of its arguments.
#[derive(Debug, PartialEq, Eq)]
pub enum Foreseen {
    /// The one file will hold this.
    Holds(Vec<u8>),
    /// What it deletes will be gone, and what it writes will be what it reads or deletes now.
    Relocates,
    /// The call will fail and leave everything as it is.
    Fails,
}

/// What performs operations that are no tools. The driver of a tool is in the catalogue.
#[derive(Clone, Default)]
pub struct Executors {
    /// The host application that performs its own tools and reports the result; `None` where there is none.
    pub elsewhere: Option<Arc<dyn Executor<tier::Host>>>,
    /// Models; `None` where no provider is set up.
    pub models: Option<Arc<dyn Models>>,
}

impl std::fmt::Debug for Executors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executors")
            .field("elsewhere", &self.elsewhere.is_some())
            .field("models", &self.models.is_some())
            .finish_non_exhaustive()
    }
}

/// Bytes from outside, unreadable until the kernel has labelled them.
#[derive(Debug)]
pub struct RawOutput {
    pub(crate) bytes: Vec<u8>,
    pub(crate) label: Option<Label>,
    pub(crate) obtained: Option<Value>,
    pub(crate) spent: Spent,
    pub(crate) failure: Option<ToolFailure>,
    pub(crate) breach: Option<String>,
    pub(crate) store: Option<StoreUse>,
    pub(crate) read: Vec<(String, FileState)>,
}

impl RawOutput {
    /// The output.
    pub fn new(bytes: Vec<u8>) -> Self {
        let spent = Spent::default();
        let (label, obtained, failure, breach, store) = Default::default();
        Self { bytes, label, obtained, spent, failure, breach, store, read: Vec::new() }
    }

    /// Cuts what is more than allowed, and says whether there was more.
    pub(crate) fn cut_to(&mut self, bytes_max: u64) -> bool {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(PAYLOAD_BYTES_MAX);
        let more = self.bytes.len() > bytes_max;
        self.bytes.truncate(bytes_max);
        more
    }

    /// Raises the label by what the kernel knows of what was read.
    pub(crate) fn raise(&mut self, by: Option<Label>) {
        self.label = match (self.label, by) {
            (Some(own), Some(by)) => Some(own.join(by)),
            (own, by) => own.or(by),
        };
    }

    /// A JSON result.
    pub fn json(value: &Value) -> Self {
        Self::new(value.to_string().into_bytes())
    }

    /// The result of an operation: one of [`regent_wire::result`].
    pub(crate) fn result(result: &impl Serialize) -> Self {
        Self::json(&json!(result))
    }

    /// The tool's own report of failure.
    pub fn failed(code: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let failure = ToolFailure { code: code.to_owned(), message };
        Self { failure: Some(failure), ..Self::new(Vec::new()) }
    }

    /// Adds a failure to existing output (a program that wrote something and then exited with 1).
    #[must_use]
    pub fn with_failure(mut self, code: &str, message: impl Into<String>) -> Self {
        self.failure = Some(ToolFailure { code: code.to_owned(), message: message.into() });
        self
    }

    /// Raises the label above what the tool's manifest declares. It can't be lowered here: the kernel joins.
    #[must_use]
    pub fn with_label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// The confinement obtained, for the receipt.
    #[must_use]
    pub fn with_obtained(mut self, obtained: Value) -> Self {
        self.obtained = Some(obtained);
        self
    }

    /// The confinement failed, and the damage could not be undone. The kernel records the outcome and seals itself.
    #[must_use]
    pub fn with_breach(mut self, what: impl Into<String>) -> Self {
        self.breach = Some(what.into());
        self
    }

    /// The files that the output has something of, and the state that each was in when it was read: the kernel knows their labels.
    #[must_use]
    pub fn with_read(mut self, files: Vec<(String, FileState)>) -> Self {
        self.read = files;
        self
    }

    /// What the call did with a store of the host's.
    #[must_use]
    pub fn with_store(mut self, store: Option<StoreUse>) -> Self {
        self.store = store;
        self
    }

    /// What the call really used, for settling budgets.
    #[must_use]
    pub fn with_spent(mut self, spent: Spent) -> Self {
        self.spent = spent;
        self
    }
}

/// Why an executor failed.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// This host doesn't give the confinement that the permit demands.
    #[error("the sandbox is not available here: {0}")]
    Unavailable(String),
    /// The executor has no driver for this call.
    #[error("no driver for `{0}`")]
    NoDriver(String),
    /// Something of ours broke.
    #[error("the executor failed: {0}")]
    Broken(String),
}

impl From<StateError> for ExecuteError {
    fn from(error: StateError) -> Self {
        Self::Broken(error.to_string())
    }
}
