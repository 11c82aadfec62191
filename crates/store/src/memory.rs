//! State for one process alone: tests, and kernels that share nothing. No step waits, so the order of commits is the order of calls.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::StateError;
use crate::state::{
    BoxFuture, Change, Check, Committed, Partition, Record, State, Version, Versioned, Write,
};

/// State in memory. It ends with the process.
#[derive(Debug, Default)]
pub struct MemoryState {
    whole: Mutex<Whole>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Whole {
    partitions: BTreeMap<String, Map>,
    /// The same records, by when each may go.
    by_age: BTreeSet<(i64, String, String)>,
    version: u64,
}

type Map = BTreeMap<String, Versioned>;

impl MemoryState {
    fn whole(&self) -> MutexGuard<'_, Whole> {
        // Nothing that is called under the lock panics halfway through a commit.
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, version: u64) {
        self.changed.send_replace(version);
    }
}

impl State for MemoryState {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        Box::pin(async move {
            let whole = self.whole();
            let map = whole.partitions.get(partition.as_str());
            Ok(keys.iter().map(|key| map.and_then(|map| map.get(key)).cloned()).collect())
        })
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        Box::pin(async move {
            let whole = self.whole();
            let Some(map) = whole.partitions.get(partition.as_str()) else { return Ok(Vec::new()) };
            Ok(starting_with(map, prefix).map(|(key, held)| record(key, held)).collect())
        })
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        Box::pin(async move {
            change.check_size()?;
            let mut whole = self.whole();
            if !change.checks.iter().all(|check| whole.holds(partition.as_str(), check)) {
                return Ok(Committed::Conflict);
            }
            if change.writes.is_empty() {
                return Ok(Committed::Done);
            }
            let version = whole.advance();
            for write in change.writes {
                whole.write(partition.as_str(), write, version);
            }
            drop(whole);
            self.announce(version.0);
            Ok(Committed::Done)
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        Box::pin(async move {
            let mut whole = self.whole();
            let due = whole.by_age.iter().take_while(|(until, ..)| *until < now_ms).take(max);
            let due: Vec<_> = due.map(|(_, partition, key)| (partition.clone(), key.clone())).collect();
            if due.is_empty() {
                return Ok(0);
            }
            let version = whole.advance();
            let count = due.len();
            for (partition, key) in due {
                whole.write(&partition, Write::Remove { key }, version);
            }
            drop(whole);
            self.announce(version.0);
            Ok(count)
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl Whole {
    fn advance(&mut self) -> Version {
        self.version = self.version.saturating_add(1);
        Version(self.version)
    }

    fn holds(&self, partition: &str, check: &Check) -> bool {
        let map = self.partitions.get(partition);
        match check {
            Check::Key { key, version } => {
                map.and_then(|map| map.get(key)).map(|held| held.version) == *version
            }
            Check::Prefix { prefix, count, newest } => {
                let (mut found, mut largest) = (0_u64, None);
                for (_, held) in map.into_iter().flat_map(|map| starting_with(map, prefix)) {
                    found = found.saturating_add(1);
                    largest = largest.max(Some(held.version));
                }
                (found, largest) == (*count, *newest)
            }
        }
    }

    fn write(&mut self, partition: &str, write: Write, version: Version) {
        let (key, before) = match write {
            Write::Put { key, value, keep_until_ms } => {
                let held = Versioned { value, version, keep_until_ms };
                let before =
                    self.partitions.entry(partition.to_owned()).or_default().insert(key.clone(), held);
                self.by_age.insert((keep_until_ms, partition.to_owned(), key.clone()));
                let before = before.filter(|before| before.keep_until_ms != keep_until_ms);
                (key, before)
            }
            Write::Remove { key } => {
                let Some(map) = self.partitions.get_mut(partition) else { return };
                let before = map.remove(&key);
                if map.is_empty() {
                    self.partitions.remove(partition);
                }
                (key, before)
            }
        };
        if let Some(before) = before {
            self.by_age.remove(&(before.keep_until_ms, partition.to_owned(), key));
        }
    }
}

fn starting_with<'a, T>(
    map: &'a BTreeMap<String, T>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a T)> {
    map.range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(prefix))
}

fn record(key: &str, held: &Versioned) -> Record {
    let Versioned { value, version, keep_until_ms } = held.clone();
    Record { key: key.to_owned(), value, version, keep_until_ms }
}
