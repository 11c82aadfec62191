//! State for one process alone: tests, and kernels that share nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Record, Records, State, StateError, Step, check_size};

/// State in memory. It ends with the process.
#[derive(Debug, Default)]
pub struct MemoryState(Mutex<Whole>);

#[derive(Debug, Default)]
struct Whole {
    map: Map,
    /// The same records, by when each may go.
    by_age: BTreeSet<(i64, String)>,
}

type Map = BTreeMap<String, Kept>;

#[derive(Debug, Clone)]
struct Kept {
    value: Vec<u8>,
    keep_until_ms: i64,
}

impl MemoryState {
    fn whole(&self) -> MutexGuard<'_, Whole> {
        // A step that panicked never got as far as the map (see `Draft`), so a poisoned lock guards a whole map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State for MemoryState {
    fn change(&self, step: Step<'_>) -> Result<(), StateError> {
        let mut whole = self.whole();
        let mut draft = Draft { under: &whole.map, over: BTreeMap::new() };
        step(&mut draft)?;
        let Draft { over, .. } = draft;
        let Whole { map, by_age } = &mut *whole;
        for (key, kept) in over {
            let before = match kept {
                Some(kept) => {
                    by_age.insert((kept.keep_until_ms, key.clone()));
                    map.insert(key.clone(), kept)
                }
                None => map.remove(&key),
            };
            let now = map.get(&key).map(|kept| kept.keep_until_ms);
            if let Some(before) = before.filter(|before| Some(before.keep_until_ms) != now) {
                by_age.remove(&(before.keep_until_ms, key));
            }
        }
        Ok(())
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.whole().map.get(key).map(|kept| kept.value.clone()))
    }

    fn stale(&self, now_ms: i64) -> Result<Vec<String>, StateError> {
        let whole = self.whole();
        Ok(whole.by_age.iter().take_while(|(until, _)| *until < now_ms).map(|(_, key)| key.clone()).collect())
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError> {
        Ok(starting_with(&self.whole().map, prefix).map(|(key, kept)| record(key, kept)).collect())
    }
}

/// The map with the changes of an unfinished step laid over it.
struct Draft<'a> {
    under: &'a Map,
    over: BTreeMap<String, Option<Kept>>,
}

impl Records for Draft<'_> {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StateError> {
        let kept = match self.over.get(key) {
            Some(changed) => changed.as_ref(),
            None => self.under.get(key),
        };
        Ok(kept.map(|kept| kept.value.clone()))
    }

    fn scan(&self, prefix: &str) -> Result<Vec<Record>, StateError> {
        let mut found: BTreeMap<&str, &Kept> =
            starting_with(self.under, prefix).map(|(key, kept)| (key.as_str(), kept)).collect();
        for (key, changed) in starting_with(&self.over, prefix) {
            match changed {
                Some(kept) => found.insert(key, kept),
                None => found.remove(key.as_str()),
            };
        }
        Ok(found.into_iter().map(|(key, kept)| record(key, kept)).collect())
    }

    fn put(&mut self, key: &str, value: &[u8], keep_until_ms: i64) -> Result<(), StateError> {
        check_size(key, value)?;
        self.over.insert(key.to_owned(), Some(Kept { value: value.to_vec(), keep_until_ms }));
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), StateError> {
        self.over.insert(key.to_owned(), None);
        Ok(())
    }
}

fn starting_with<'a, T>(
    map: &'a BTreeMap<String, T>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a T)> {
    map.range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(prefix))
}

fn record(key: &str, kept: &Kept) -> Record {
    Record { key: key.to_owned(), value: kept.value.clone(), keep_until_ms: kept.keep_until_ms }
}
