//! The vault: stores secrets encrypted, releases a value against a permit, and scrubs values from output.
#![forbid(unsafe_code)]

mod error;
mod file;
pub mod import;
pub mod redact;
mod revealed;
mod scope;
mod scrub;
mod seal;
mod store;
mod tokens;
mod vault;

pub use error::VaultError;
pub use scope::Scope;
pub use scrub::{ScrubError, Scrubber};
pub use seal::{seal, unseal};
pub use vault::{Listed, Short, VALUE_BYTES_FORCED_MIN, VALUE_BYTES_MAX, VALUE_BYTES_MIN, Vault};
