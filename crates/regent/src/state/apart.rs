//! State of a process that shares nothing but where the ledger was last examined: without that mark a start reads all of it again.

use std::sync::Arc;

use regent_store::{MemoryState, Record, Records, SqliteState, State, StateError, Step};

/// The marks of what was examined; see `regent_kernel`'s recovery.
const KEPT: &str = "examined/";

/// Everything in memory, but for the marks.
#[derive(Debug)]
pub(crate) struct Apart {
    memory: MemoryState,
    kept: Arc<SqliteState>,
}

impl Apart {
    pub(crate) fn new(kept: Arc<SqliteState>) -> Self {
        Self { memory: MemoryState::default(), kept }
    }
}

impl State for Apart {
    fn change(&self, step: Step<'_>) -> Result<(), StateError> {
        let mut noted = Vec::new();
        self.memory.change(&mut |records| {
            noted.clear();
            step(&mut Within { records, kept: &self.kept, noted: &mut noted })
        })?;
        if noted.is_empty() {
            return Ok(());
        }
        self.kept.change(&mut |records| {
            noted.iter().try_for_each(|change| match change {
                Noted::Put(key, value, until_ms) => records.put(key, value, *until_ms),
                Noted::Removed(key) => records.remove(key),
            })
        })
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        if key.starts_with(KEPT) { self.kept.get(key) } else { self.memory.get(key) }
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError> {
        if prefix.starts_with(KEPT) { self.kept.scan(prefix) } else { self.memory.scan(prefix) }
    }

    fn stale(&self, now_ms: i64) -> Result<Vec<String>, StateError> {
        self.memory.stale(now_ms)
    }
}

enum Noted {
    Put(String, Vec<u8>, i64),
    Removed(String),
}

/// One step: its changes of marks are made once all others are.
struct Within<'a> {
    records: &'a mut dyn Records,
    kept: &'a SqliteState,
    noted: &'a mut Vec<Noted>,
}

impl Records for Within<'_> {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        if key.starts_with(KEPT) { self.kept.get(key) } else { self.records.get(key) }
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError> {
        if prefix.starts_with(KEPT) { self.kept.scan(prefix) } else { self.records.scan(prefix) }
    }

    fn put(&mut self, key: &str, value: &[u8], keep_until_ms: i64) -> Result<(), StateError> {
        if key.starts_with(KEPT) {
            self.noted.push(Noted::Put(key.to_owned(), value.to_vec(), keep_until_ms));
            return Ok(());
        }
        self.records.put(key, value, keep_until_ms)
    }

    fn remove(&mut self, key: &str) -> Result<(), StateError> {
        if key.starts_with(KEPT) {
            self.noted.push(Noted::Removed(key.to_owned()));
            return Ok(());
        }
        self.records.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_outlive_the_process_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let first = Apart::new(Arc::new(SqliteState::open(&path).unwrap()));
        first
            .change(&mut |records| {
                records.put("examined/a/0", b"7", i64::MAX)?;
                records.put("question/1", b"secret", i64::MAX)
            })
            .unwrap();
        let failed = first.change(&mut |records| {
            records.put("examined/a/0", b"9", i64::MAX)?;
            Err(StateError::Busy)
        });
        assert_eq!(failed, Err(StateError::Busy));
        assert_eq!(first.get("question/1").unwrap().unwrap(), b"secret");
        let next = Apart::new(Arc::new(SqliteState::open(&path).unwrap()));
        assert_eq!(next.get("examined/a/0").unwrap().unwrap(), b"7", "a step that failed changes nothing");
        assert_eq!(next.get("question/1").unwrap(), None);
    }
}
