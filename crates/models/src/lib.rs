//! Who thinks? Providers of models behind one trait, and the [`Hub`] that the kernel asks.
//!
//! A call to a model is a system call like any other. The [`Hub`] says beforehand which model it would go to, where that is and what it
//! costs at most ([`Models::plan`](regent_kernel::Models::plan)); policy judges that; then the Hub performs it: it waits for its turn
//! ([`scheduler`]), asks ([`Provider`]), asks again ([`Patience`]) unless the provider is down ([`breaker`]), and falls back to another
//! model by a system call of its own, so that no fallback goes where policy has not looked.
//!
//! Protocols are translated without input or output in [`wire`]; one file each. What is said flows through the kernel's channel as
//! plain text; a record separator (U+001E) in it means that what follows replaces what came before, because the answer was cut and
//! given anew. The call's output is a [`Completion`](regent_kernel::Completion).
//!
//! What it does not promise:
//! - Tokens are estimated before a call ([`tokens`]) for usual text, from above; what is paid is what the provider reports, if that
//!   is possible at all, and our own count, flagged, if it isn't.
//! - A cut answer is not resumed in the middle: it is asked for anew as a call of its own, which is charged for itself.
//! - Redaction takes out what looks like credentials and personal details ([`regent_vault::redact`]); it is a courtesy. What keeps
//!   secrets from remote models is their label.
#![forbid(unsafe_code)]

pub mod breaker;
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

pub use event::{Event, Gathered, ToolDelta, Used};
pub use hub::{Hub, Listed, OpenWeights};
pub use lines::{Framing, Lines};
pub use names::Names;
pub use patience::{Patience, Wait};
pub use prices::{Long, Price, Prices};
pub use provider::{Ask, Events, Next, Provider, ProviderError};
pub use remote::Remote;
pub use scripted::{Fault, Script, Scripted, ScriptedCall, ScriptedTurn};
pub use settings::{ClassSettings, Kind, ProviderSettings, RouterSettings, Settings, SettingsError};
