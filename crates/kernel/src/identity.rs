//! Who an agent is, as a key: Ed25519 and did:key.

/// A `did:key` identifier.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Did(String);

impl std::fmt::Display for Did {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
