//! Where does state live? Ordered records in partitions, changed by optimistic commits; in memory, in a file that processes share, or on a
//! server that machines share.
//!
//! Rates, budgets, approvals and recovery keep their records here. Each is written once, on top of [`transact`]; a backend only has to
//! read a snapshot and make a commit atomic. Every backend passes `tests/contract.rs`: a new one is added to the list there.
//!
//! A time to live is the `keep_until_ms` of a record, after which a sweep may remove it. What happens within one process (a permit, a
//! running call) never comes here.
#![forbid(unsafe_code)]

#[cfg(feature = "dynamodb")]
mod dynamodb;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "sqlite")]
mod sqlite;
mod state;
#[cfg(test)]
mod tests;
mod transact;

use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

#[cfg(feature = "dynamodb")]
pub use dynamodb::DynamodbState;
pub use memory::MemoryState;
#[cfg(feature = "postgres")]
pub use postgres::PostgresState;
#[cfg(feature = "redis")]
pub use redis::RedisState;
#[cfg(feature = "remote")]
pub use remote::StateUrl;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteState;
pub use state::{
    BoxFuture, CHANGE_BYTES_MAX, CHANGE_WRITES_MAX, Change, Check, Committed, Partition, Record, State,
    Version, Versioned, Write,
};
pub use transact::{Snapshot, StateDraft, change, load, transact};

/// A record that is kept until something removes it.
pub const FOR_GOOD: i64 = i64::MAX;
/// The longest key.
const KEY_BYTES_MAX: usize = 512;
/// The largest value.
const VALUE_BYTES_MAX: usize = 256 * 1024;

/// Shared state can't be read or changed. The call that needed it is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Another process holds it for too long.
    #[error("another process has held the shared state for too long")]
    Busy,
    /// What is there can't be right.
    #[error("the shared state is damaged: {0}")]
    Corrupt(String),
    /// A newer Regent wrote it.
    #[error("the shared state has version {found}, and this program knows no newer than {known}")]
    Newer {
        /// What is there.
        found: i64,
        /// What we understand.
        known: i64,
    },
    /// Nothing can be written. SQLite doesn't tell no room, a limit and a failing disk apart.
    #[error(
        "the shared state can't be written: there is no room on the disk or within the limit of this process, or the disk fails"
    )]
    Full,
    /// A key or a value is larger than its limit.
    #[error("`{0}` is too large for the shared state")]
    TooLarge(String),
    /// A crash of the server could lose commits that it has acknowledged.
    #[error("the server of the shared state may lose acknowledged commits; set {0}")]
    Lossy(String),
    /// The backend is a feature that this build lacks.
    #[error(
        "this program was built without the state backend `{0}`; build it with `cargo build --release --features {0}`"
    )]
    NotBuilt(&'static str),
    /// The server of the state can't be reached now. What it was asked may have happened or not.
    #[error("{0}")]
    Unreachable(String),
    /// Anything else.
    #[error("{0}")]
    Unusable(String),
}

impl StateError {
    /// Whether the same may work a moment later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Busy | Self::Unreachable(_) => true,
            Self::Corrupt(_)
            | Self::Newer { .. }
            | Self::Full
            | Self::TooLarge(_)
            | Self::Lossy(_)
            | Self::NotBuilt(_)
            | Self::Unusable(_) => false,
        }
    }
}

/// A record's JSON. What doesn't parse was not written by us.
pub fn parse<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, StateError> {
    serde_json::from_slice(bytes)
        .map_err(|error| StateError::Corrupt(format!("record `{}`: {error}", key.escape_debug())))
}

/// A text as one part of a key: no separator in it, and never too long.
pub fn key_part(text: &str) -> String {
    let plain = text.len() <= 64
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    // Anything odd is named by its digest; the `~` keeps it apart from every plain name.
    if plain {
        return text.to_owned();
    }
    let digest = Sha256::digest(text.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("~{hex}")
}

fn check_size(key: &str, value: &[u8]) -> Result<(), StateError> {
    if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
        return Err(StateError::TooLarge(short(key)));
    }
    Ok(())
}

/// The beginning of a name, for an error.
fn short(name: &str) -> String {
    name.chars().take(64).collect::<String>().escape_debug().to_string()
}
