//! Who an agent is, as a key. Private: whoever could reach an agent's key pair could sign as it.

pub(crate) use regent_identity::Identity;
pub use regent_identity::{Did, DidError};
