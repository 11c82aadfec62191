//! Model providers behind one trait, and the [`Hub`] that the kernel calls.
//!
//! A model call is a system call like any other. The [`Hub`] first reports which model it would use, its address and its
//! maximum cost ([`Models::plan`](regent_kernel::Models::plan)), and policy judges that. Then the hub performs the call: it waits for its turn
//! ([`scheduler`]), asks the [`Provider`], retries ([`Patience`]) unless the provider is down ([`breaker`]), and falls back to another
//! model with a nested system call, so that policy judges every fallback.
//!
//! [`wire`] translates protocols without I/O, one file each. Output streams through the kernel's channel as
//! plain text; a record separator (U+001E) means that the following text replaces the previous, because the answer was truncated and
//! requested again. The call's output is a [`Completion`](regent_kernel::Completion).
//!
//! Limits:
//! - Tokens are estimated from above before a call ([`tokens`]), for usual text. Costs are what the provider reports; if the report is
//!   missing or impossible, they are our own count, which is marked.
//! - A truncated answer is not resumed in the middle: it is requested again as a separate call with its own cost.
//! - Redaction removes text that looks like credentials and personal details ([`regent_vault::redact`]), as a convenience. Labels
//!   keep secrets away from remote models.
#![forbid(unsafe_code)]

pub mod breaker;
mod capability;
mod event;
mod hub;
mod lines;
mod names;
mod patience;
mod prices;
mod provider;
pub mod pull;
mod remote;
pub mod router;
pub mod scheduler;
mod scripted;
mod settings;
pub mod tokens;
pub mod wire;

pub use capability::{
    ANSWER_TOKENS, Caching, Capability, CapabilitySource, CapabilitySpec, CapabilityTable, TableError,
    Thinking, ToolChoice, WINDOW_TOKENS,
};
pub use event::{Event, Gathered, TokenUsage, ToolDelta};
pub use hub::{Hub, Listed, OpenWeights};
pub use lines::{Framing, Lines};
pub use names::Names;
pub use patience::{Patience, Wait};
pub use prices::{Long, Price, usd};
pub use provider::{Events, Next, Provider, ProviderError, ProviderRequest};
pub use remote::Remote;
pub use scripted::{Fault, Script, Scripted, ScriptedCall, ScriptedTurn};
pub use settings::{ClassSettings, ProviderKind, ProviderSettings, RouterSettings, Settings, SettingsError};
