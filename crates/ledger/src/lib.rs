//! What happened? One append-only, hash-linked, signed log.

pub mod canonical;
mod digest;
mod key;
pub mod note;
pub mod tree;

pub use canonical::{CanonicalError, CanonicalJson};
pub use digest::{Digest, DigestError};
pub use key::{KeyError, LedgerKey, PublicKey};
