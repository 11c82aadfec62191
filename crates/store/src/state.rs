//! The trait of shared state: snapshot reads, and commits that check what was read.
//!
//! A version is larger than all versions that its partition had before. So a prefix is unchanged if and only if the number of its records
//! and the largest version among them are: an addition or a replacement raises the one, a removal lowers the other.

use std::pin::Pin;

use tokio::sync::watch;

use crate::{StateError, check_size, key_part, short};

/// The longest name of a partition.
const PARTITION_BYTES_MAX: usize = 256;
/// The most writes of one commit. DynamoDB takes 100 items in a transaction, and we add one.
pub const CHANGE_WRITES_MAX: usize = 96;
/// The most bytes of keys and values in one commit. DynamoDB takes 4 MB.
pub const CHANGE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A future that can be sent and whose type is not named.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where shared state lives. Users call [`transact`](crate::transact) or [`change`](crate::change), which retry.
pub trait State: Send + Sync + std::fmt::Debug {
    /// Reads these keys of one partition, in this order, as one consistent snapshot of what has been committed for good.
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>>;

    /// The records of a partition whose key starts with `prefix`, in order of keys, as one consistent snapshot.
    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>>;

    /// Applies all writes if every check holds; otherwise changes nothing and returns [`Committed::Conflict`]. A commit that was answered
    /// with [`Committed::Done`] survives a power cut. After an error it may have happened or not, but not in part.
    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>>;

    /// Removes records of any partition whose `keep_until_ms` lies before `now_ms`, at most `max`; never one that was renewed. Reads
    /// those alone, however many others there are.
    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>>;

    /// Wakes when any record may have changed, in this process or another. Subscribe before you read.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Whether a crash of the server may lose commits that it has acknowledged.
    fn is_lossy(&self) -> bool {
        false
    }
}

/// Records that one commit can change together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(String);

impl Partition {
    /// A partition by name: 1 to 256 bytes.
    pub fn new(name: impl Into<String>) -> Result<Self, StateError> {
        let name = name.into();
        if name.is_empty() {
            return Err(StateError::Unusable("a partition of the shared state needs a name".to_owned()));
        }
        if name.len() > PARTITION_BYTES_MAX {
            return Err(StateError::TooLarge(short(&name)));
        }
        Ok(Self(name))
    }

    /// The partition that a record of this key is in. Here is the only list: files of schema 2 had keys alone, and are sorted by it.
    pub fn containing(key: &str) -> Self {
        let mut parts = key.split('/');
        let first = parts.next().unwrap_or_default();
        let name = match first {
            // One step reads and writes all three.
            "question" | "question-of" | "attention" => "approval",
            // By whose rate it is, so that one read gives all rates that a call is charged to.
            "rate" if parts.clone().count() > 1 => &format!("rate/{}", parts.next_back().unwrap_or_default()),
            // By workspace: the marks of its lanes.
            "examined" => &format!("examined/{}", parts.next().unwrap_or_default()),
            // No step touches two budgets, or two tasks.
            "budget" | "task" => key,
            _ => first.split('.').next().unwrap_or_default(),
        };
        match name {
            "" => Self("none".to_owned()),
            name if name.len() > PARTITION_BYTES_MAX => Self(key_part(name)),
            name => Self(name.to_owned()),
        }
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// When a record was last written, as a number that only grows within a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub(crate) u64);

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// Its bytes.
    pub value: Vec<u8>,
    /// When it was written.
    pub version: Version,
    /// From when on it may be swept.
    pub keep_until_ms: i64,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its name within the partition; `/` separates the parts.
    pub key: String,
    /// What it holds.
    pub value: Vec<u8>,
    /// When it was written.
    pub version: Version,
    /// From when on it may be swept.
    pub keep_until_ms: i64,
}

/// A commit: what must still hold, and what changes then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// What must hold.
    pub checks: Vec<Check>,
    /// What changes. The last write of a key counts.
    pub writes: Vec<Write>,
}

/// Something that was read and must not have changed since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// A record, or its absence.
    Key {
        /// Which.
        key: String,
        /// Its version; none if it must be absent.
        version: Option<Version>,
    },
    /// All records whose key starts with a prefix: none was added, replaced or removed.
    Prefix {
        /// The prefix.
        prefix: String,
        /// How many records there are.
        count: u64,
        /// The largest version among them.
        newest: Option<Version>,
    },
}

impl Check {
    /// That a prefix still has exactly these records.
    pub fn prefix(prefix: &str, records: &[Record]) -> Self {
        let newest = records.iter().map(|record| record.version).max();
        let count = u64::try_from(records.len()).unwrap_or(u64::MAX);
        Self::Prefix { prefix: prefix.to_owned(), count, newest }
    }
}

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Puts a record in place of what was there.
    Put {
        /// Its key.
        key: String,
        /// What it holds.
        value: Vec<u8>,
        /// From when on it may be swept.
        keep_until_ms: i64,
    },
    /// Removes a record, if it is there.
    Remove {
        /// Its key.
        key: String,
    },
}

impl Write {
    /// The key that is written.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Remove { key } => key,
        }
    }
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Committed {
    /// All of it has happened.
    Done,
    /// A check failed, and nothing has changed.
    Conflict,
}

impl Change {
    /// Whether every backend can take it.
    pub(crate) fn check_size(&self) -> Result<(), StateError> {
        let mut bytes = 0_usize;
        for write in &self.writes {
            let key = write.key();
            let value: &[u8] = if let Write::Put { value, .. } = write { value } else { &[] };
            if key.is_empty() {
                return Err(StateError::Unusable("a record of the shared state needs a key".to_owned()));
            }
            check_size(key, value)?;
            bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
        }
        if self.writes.len() > CHANGE_WRITES_MAX || bytes > CHANGE_BYTES_MAX {
            let first = self.writes.first().map_or("", Write::key);
            return Err(StateError::TooLarge(format!(
                "{} and {} more",
                short(first),
                self.writes.len().saturating_sub(1)
            )));
        }
        Ok(())
    }
}
