//! Who an agent is, as a key. Private: whoever could reach an agent's key pair could sign as it.

pub use regent_identity::{Did, DidError};
pub(crate) use regent_identity::Identity;
