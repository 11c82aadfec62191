//! Where does state live? A small ordered map of records, changed in atomic steps; in memory, or in a file that processes share.
//!
//! Rates, budgets, approvals and recovery keep their records here and are written once, on top of [`State::change`]; a backend
//! only has to make a step atomic. It passes `tests/contract.rs` as it stands: a new one is added to the list there.
//!
//! Compare-and-swap is a step that looks before it puts; a time to live is the `keep_until_ms` of a record, after which a
//! [`sweep`] may take it. What happens within one process (a permit, a running call) never comes here.
#![forbid(unsafe_code)]

mod memory;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

pub use memory::MemoryState;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteState;

/// A record that is kept until something removes it.
pub const FOR_GOOD: i64 = i64::MAX;
/// The longest key.
const KEY_BYTES_MAX: usize = 512;
/// The largest value.
const VALUE_BYTES_MAX: usize = 256 * 1024;

/// Where shared state lives.
pub trait State: Send + Sync + std::fmt::Debug {
    /// Runs one step: all of its changes happen, or none do (if it gives an error), and no other step comes in between.
    fn change(&self, step: Step<'_>) -> Result<(), StateError>;

    /// One record, as the last whole step left it.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError>;

    /// All records whose key starts with `prefix`, in the order of their keys, as the last whole step left them.
    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError>;

    /// The keys of the records whose `keep_until_ms` lies before `now_ms`. Looks at those alone, however many others there are.
    fn stale(&self, now_ms: i64) -> Result<Vec<String>, StateError>;
}

/// What one step does. It must not call the state that runs it.
pub type Step<'a> = &'a mut dyn FnMut(&mut dyn Records) -> Result<(), StateError>;

/// The records, while a step has them for itself.
pub trait Records {
    /// One record.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError>;
    /// All records whose key starts with `prefix`, in the order of their keys.
    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError>;
    /// Puts a record in place of what was there. After `keep_until_ms` it may be swept.
    fn put(&mut self, key: &str, value: &[u8], keep_until_ms: i64) -> Result<(), StateError>;
    /// Takes a record away, if it is there.
    fn remove(&mut self, key: &str) -> Result<(), StateError>;
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its name; `/` separates the parts.
    pub key: String,
    /// What it holds.
    pub value: Vec<u8>,
    /// From when on it may be swept.
    pub keep_until_ms: i64,
}

/// Shared state can't be read or changed. Whoever needed it refuses what it was about to do.
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
    /// Anything else.
    #[error("{0}")]
    Unusable(String),
}

/// Runs a step that gives something back.
pub fn change<T>(
    state: &dyn State,
    mut step: impl FnMut(&mut dyn Records) -> Result<T, StateError>,
) -> Result<T, StateError> {
    let mut given = None;
    state.change(&mut |records| {
        given = Some(step(records)?);
        Ok(())
    })?;
    given
        .ok_or_else(|| StateError::Unusable("the state reported success without running the step".to_owned()))
}

/// Reads a record as JSON.
pub fn load<T: DeserializeOwned>(records: &dyn Records, key: &str) -> Result<Option<T>, StateError> {
    records.get(key)?.map(|bytes| parse(key, &bytes)).transpose()
}

/// Writes a record as JSON.
pub fn save(
    records: &mut dyn Records,
    key: &str,
    value: &impl Serialize,
    keep_until_ms: i64,
) -> Result<(), StateError> {
    let bytes = serde_json::to_vec(value).map_err(|error| StateError::Unusable(error.to_string()))?;
    records.put(key, &bytes, keep_until_ms)
}

/// A record's JSON. What doesn't parse was not written by us.
pub fn parse<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, StateError> {
    serde_json::from_slice(bytes)
        .map_err(|error| StateError::Corrupt(format!("record `{}`: {error}", key.escape_debug())))
}

/// Removes what may go. Records say for how long they matter, so this changes no decision.
pub fn sweep(state: &dyn State, now_ms: i64) -> Result<usize, StateError> {
    let stale = state.stale(now_ms)?;
    if stale.is_empty() {
        return Ok(0);
    }
    change(state, |records| {
        let mut gone = 0_usize;
        for key in &stale {
            // Another process may have renewed it since.
            let is_stale = |record: &Record| record.key == *key && record.keep_until_ms < now_ms;
            if records.scan(key)?.iter().any(is_stale) {
                records.remove(key)?;
                gone = gone.saturating_add(1);
            }
        }
        Ok(gone)
    })
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
        return Err(StateError::TooLarge(
            key.chars().take(64).collect::<String>().escape_debug().to_string(),
        ));
    }
    Ok(())
}
