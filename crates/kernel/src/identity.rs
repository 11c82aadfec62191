//! Who an agent is, as a key. Private: code with access to an agent's key pair could sign as it.

pub(crate) use regent_identity::Identity;
pub use regent_identity::{Did, DidError};
