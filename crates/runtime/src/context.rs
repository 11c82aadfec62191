//! The input of a model: layered prompts, a window of turns that fits, and the last look before anything is sent.
//!
//! Putting a conversation together is a pure function: the same parts give the same bytes, so that a replay can be held against the
//! ledger by digest. Nothing here reads a clock, a file or the environment.

mod guard;
mod markers;
mod prompt;
mod tokens;
mod window;

pub use guard::{GuardError, Guardrails};
pub use markers::Markers;
pub use prompt::{Finding, Layer, PromptError, Prompts, Variables};
pub use tokens::{Estimator, tokens_about};
pub use window::{Turn, Window, WindowError};
