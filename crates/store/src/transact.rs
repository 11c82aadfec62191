//! The loop that users of the state write against: read, run a pure step, commit with checks on all that was read, retry on a conflict.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::{Change, Check, Committed, Partition, Record, State, Versioned, Write};
use crate::{StateError, check_size, parse};

/// How often a step is run before the state counts as busy. Each conflict means that another step went through.
const ATTEMPTS_MAX: u32 = 64;
/// How often a step may come back for more to read.
const ROUNDS_MAX: u32 = 32;
/// The longest pause between two attempts.
const PAUSE_US_MAX: u64 = 20_000;

/// Runs a pure step on a snapshot of `keys` and commits the writes that it returns, with a check on everything that was read.
///
/// The step may look at further keys and at prefixes: it is then run again with those read as well. It is also run again after a conflict,
/// so it must have no effect of its own. What it returns, an error included, is what it returned for a state that really was.
/// An empty list of writes commits nothing. [`StateError::Busy`] says that others were always faster.
pub async fn transact<T: Send>(
    state: &dyn State,
    partition: &Partition,
    keys: &[String],
    mut step: impl FnMut(&Snapshot) -> Result<(T, Vec<Write>), StateError> + Send,
) -> Result<T, StateError> {
    let mut reads = Reads { keys: keys.iter().cloned().collect(), prefixes: BTreeSet::new() };
    for attempt in 0..ATTEMPTS_MAX {
        if attempt > 0 {
            pause(attempt).await;
        }
        if let Some(result) = attempt_once(state, partition, &mut reads, &mut step).await? {
            return result;
        }
    }
    Err(StateError::Busy)
}

/// Reads the JSON of one record.
pub async fn load<T: DeserializeOwned>(
    state: &dyn State,
    key: &str,
    partition: &Partition,
) -> Result<Option<T>, StateError> {
    let found = state.read(partition, &[key.to_owned()]).await?;
    found.into_iter().next().flatten().map(|found| parse(key, &found.value)).transpose()
}

/// The same for a step that is written as code over records: it sees its own writes.
pub async fn change<T: Send>(
    state: &dyn State,
    partition: &Partition,
    keys: &[String],
    mut step: impl FnMut(&mut StateDraft<'_>) -> Result<T, StateError> + Send,
) -> Result<T, StateError> {
    transact(state, partition, keys, |snapshot| {
        let mut draft = StateDraft { snapshot, over: BTreeMap::new() };
        let value = step(&mut draft)?;
        Ok((value, draft.into_writes()))
    })
    .await
}

/// What a step looks at.
#[derive(Debug, Default)]
struct Reads {
    keys: BTreeSet<String>,
    prefixes: BTreeSet<String>,
}

impl Reads {
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.prefixes.is_empty()
    }
}

/// Reads, runs the step until it has all that it looks at, and commits. Nothing means a conflict.
async fn attempt_once<T: Send>(
    state: &dyn State,
    partition: &Partition,
    reads: &mut Reads,
    step: &mut (impl FnMut(&Snapshot) -> Result<(T, Vec<Write>), StateError> + Send),
) -> Result<Option<Result<T, StateError>>, StateError> {
    let mut snapshot = Snapshot::default();
    snapshot.fetch(state, partition, reads).await?;
    for _round in 0..ROUNDS_MAX {
        let result = step(&snapshot);
        let missing = snapshot.missing.take();
        if missing.is_empty() {
            let (result, writes) = match result {
                Ok((value, writes)) => (Ok(value), writes),
                Err(error) => (Err(error), Vec::new()),
            };
            // What was read at once was true at once. Several reads are true together only if nothing has changed in between.
            if writes.is_empty() && snapshot.fetches <= 1 {
                return Ok(Some(result));
            }
            let change = Change { checks: snapshot.checks(), writes };
            return Ok(match state.commit(partition, change).await? {
                Committed::Done => Some(result),
                Committed::Conflict => None,
            });
        }
        snapshot.fetch(state, partition, &missing).await?;
        reads.keys.extend(missing.keys);
        reads.prefixes.extend(missing.prefixes);
    }
    Err(StateError::Unusable("a step of the shared state always has more to read".to_owned()))
}

/// Waits a little: longer after each conflict, and by chance, so that two that met don't meet again.
async fn pause(attempt: u32) {
    if attempt <= 2 {
        return tokio::task::yield_now().await;
    }
    let most_us = PAUSE_US_MAX.min(50_u64.saturating_mul(1 << attempt.min(16)));
    let us = chance().checked_rem(most_us).unwrap_or_default();
    tokio::time::sleep(Duration::from_micros(us)).await;
}

/// A number by chance. Nothing but pauses depends on it.
pub(crate) fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// What a step has read.
#[derive(Debug, Default)]
pub struct Snapshot {
    keys: BTreeMap<String, Option<Versioned>>,
    prefixes: BTreeMap<String, Vec<Record>>,
    /// What the step looked for and wasn't read yet.
    missing: RefCell<Reads>,
    /// How many reads it is made of.
    fetches: u32,
}

impl Snapshot {
    /// What a key holds.
    pub fn get(&self, key: &str) -> Result<Option<&[u8]>, StateError> {
        if let Some(found) = self.keys.get(key) {
            return Ok(found.as_ref().map(|found| found.value.as_slice()));
        }
        if let Some(records) = self.covering(key) {
            let found = records.iter().find(|record| record.key == key);
            return Ok(found.map(|record| record.value.as_slice()));
        }
        self.missing.borrow_mut().keys.insert(key.to_owned());
        Err(unread(key))
    }

    /// The JSON of a key.
    pub fn load<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StateError> {
        self.get(key)?.map(|bytes| parse(key, bytes)).transpose()
    }

    /// The records whose key starts with `prefix`, in order of keys.
    pub fn scan(&self, prefix: &str) -> Result<&[Record], StateError> {
        if let Some(records) = self.covering(prefix) {
            let from = records.partition_point(|record| record.key.as_str() < prefix);
            let rest = records.get(from..).unwrap_or_default();
            let count = rest.iter().take_while(|record| record.key.starts_with(prefix)).count();
            return Ok(rest.get(..count).unwrap_or_default());
        }
        self.missing.borrow_mut().prefixes.insert(prefix.to_owned());
        Err(unread(prefix))
    }

    /// The records of a prefix that was read and that this key or prefix starts with.
    fn covering(&self, name: &str) -> Option<&[Record]> {
        let found = self.prefixes.iter().find(|(prefix, _)| name.starts_with(prefix.as_str()));
        found.map(|(_, records)| records.as_slice())
    }

    async fn fetch(
        &mut self,
        state: &dyn State,
        partition: &Partition,
        reads: &Reads,
    ) -> Result<(), StateError> {
        if reads.is_empty() {
            return Ok(());
        }
        if !reads.keys.is_empty() {
            let keys: Vec<String> = reads.keys.iter().cloned().collect();
            let found = state.read(partition, &keys).await?;
            self.keys.extend(keys.into_iter().zip(found));
            self.fetches = self.fetches.saturating_add(1);
        }
        for prefix in &reads.prefixes {
            let records = state.scan(partition, prefix).await?;
            self.prefixes.insert(prefix.clone(), records);
            self.fetches = self.fetches.saturating_add(1);
        }
        Ok(())
    }

    fn checks(&self) -> Vec<Check> {
        let keys = self.keys.iter().map(|(key, found)| Check::Key {
            key: key.clone(),
            version: found.as_ref().map(|found| found.version),
        });
        let prefixes = self.prefixes.iter().map(|(prefix, records)| Check::prefix(prefix, records));
        keys.chain(prefixes).collect()
    }

    /// Whether a record is there with exactly this.
    fn has(&self, key: &str, value: &[u8], until_ms: i64) -> bool {
        let same = |held: &[u8], held_ms: i64| held == value && held_ms == until_ms;
        match self.keys.get(key) {
            Some(found) => found.as_ref().is_some_and(|found| same(&found.value, found.keep_until_ms)),
            None => self.covering(key).is_some_and(|records| {
                records.iter().any(|record| record.key == key && same(&record.value, record.keep_until_ms))
            }),
        }
    }
}

/// A snapshot with the writes of an unfinished step laid over it.
#[derive(Debug)]
pub struct StateDraft<'s> {
    snapshot: &'s Snapshot,
    over: BTreeMap<String, Option<(Vec<u8>, i64)>>,
}

impl StateDraft<'_> {
    /// What a key holds.
    pub fn get(&self, key: &str) -> Result<Option<&[u8]>, StateError> {
        match self.over.get(key) {
            Some(written) => Ok(written.as_ref().map(|(value, _)| value.as_slice())),
            None => self.snapshot.get(key),
        }
    }

    /// The JSON of a key.
    pub fn load<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StateError> {
        self.get(key)?.map(|bytes| parse(key, bytes)).transpose()
    }

    /// Keys that start with `prefix` and what they hold, in order.
    pub fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StateError> {
        let read = self.snapshot.scan(prefix)?;
        let mut found: BTreeMap<&str, &[u8]> =
            read.iter().map(|record| (record.key.as_str(), record.value.as_slice())).collect();
        for (key, written) in self.over.iter().filter(|(key, _)| key.starts_with(prefix)) {
            match written {
                Some((value, _)) => found.insert(key, value),
                None => found.remove(key.as_str()),
            };
        }
        Ok(found.into_iter().map(|(key, value)| (key.to_owned(), value.to_vec())).collect())
    }

    /// Puts a record in place of what was there. After `keep_until_ms` it may be swept.
    pub fn put(&mut self, key: &str, value: &[u8], keep_until_ms: i64) -> Result<(), StateError> {
        check_size(key, value)?;
        self.over.insert(key.to_owned(), Some((value.to_vec(), keep_until_ms)));
        Ok(())
    }

    /// Puts a record as JSON.
    pub fn save(&mut self, key: &str, value: &impl Serialize, keep_until_ms: i64) -> Result<(), StateError> {
        let bytes = serde_json::to_vec(value).map_err(|error| StateError::Unusable(error.to_string()))?;
        self.put(key, &bytes, keep_until_ms)
    }

    /// Removes a record, if it is there.
    pub fn remove(&mut self, key: &str) {
        self.over.insert(key.to_owned(), None);
    }

    /// The writes, without those that would change nothing: their checks are enough.
    fn into_writes(self) -> Vec<Write> {
        let Self { snapshot, over } = self;
        let writes = over.into_iter().filter_map(|(key, written)| match written {
            Some((value, until_ms)) if snapshot.has(&key, &value, until_ms) => None,
            Some((value, keep_until_ms)) => Some(Write::Put { key, value, keep_until_ms }),
            None => Some(Write::Remove { key }),
        });
        writes.collect()
    }
}

fn unread(name: &str) -> StateError {
    StateError::Unusable(format!("`{}` has not been read yet", crate::short(name)))
}
