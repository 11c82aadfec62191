//! A SQLite index over the ledger, by agent, tool, task, session, verdict and time, with sums of the receipts.
//!
//! The index is derived and proves nothing: a hit is a position, and the caller reads the entry from the ledger. If the file is damaged, of
//! another version or doesn't match the ledger, it is discarded and rebuilt. It contains only entries under a signed checkpoint, because an
//! unproven tail may still be cut, and no unvouched intents.
#![forbid(unsafe_code)]

mod costs;
mod query;
mod rows;
mod tasks;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use regent_ledger::{Digest, Entry, EntryKind, LaneId, ReadError, Reader};
use regent_wire::body::BodyError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

pub use costs::{Cost, GroupBy};
pub use query::{Hit, Query};
pub use tasks::Span;

/// Raised when the columns change; an index of another version is rebuilt.
const VERSION: i64 = 6;
/// How long a refresh waits for another process that is refreshing the index.
const BUSY_MS_MAX: u64 = 10_000;
/// The indexed kinds. The ledger's own entries, such as checkpoints, are left out.
const INDEXED: &[EntryKind] = &[
    EntryKind::Intent,
    EntryKind::Outcome,
    EntryKind::Answer,
    EntryKind::Agent,
    EntryKind::Policy,
    EntryKind::Kernel,
];
const TABLES: &str = "
    CREATE TABLE lane (lane INTEGER PRIMARY KEY, size INTEGER NOT NULL, hash TEXT NOT NULL) STRICT;
    CREATE TABLE entry (
        lane INTEGER NOT NULL, seq INTEGER NOT NULL, at_ms INTEGER NOT NULL, kind TEXT NOT NULL,
        session TEXT, agent TEXT, person TEXT, op TEXT, tool TEXT, verdict TEXT, rule TEXT, status TEXT,
        intent_lane INTEGER, intent INTEGER,
        task TEXT, model TEXT, tokens INTEGER, money_microusd INTEGER, wall_ms INTEGER, bytes_out INTEGER,
        PRIMARY KEY (lane, seq)
    ) WITHOUT ROWID, STRICT;
    CREATE INDEX entry_by_time ON entry (at_ms);
    CREATE INDEX entry_by_agent ON entry (agent, at_ms);
    CREATE INDEX entry_by_person ON entry (person, at_ms) WHERE person IS NOT NULL;
    CREATE INDEX entry_by_tool ON entry (tool, at_ms);
    CREATE INDEX entry_by_op ON entry (op, at_ms) WHERE op IS NOT NULL;
    CREATE INDEX entry_by_session ON entry (session, at_ms);
    CREATE INDEX entry_by_verdict ON entry (verdict, at_ms);
    CREATE INDEX entry_by_intent ON entry (intent_lane, intent);
    CREATE INDEX entry_by_task ON entry (task, at_ms) WHERE task IS NOT NULL;
";

/// Why a lookup failed.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The index can't be used or created.
    #[error("the lookup index can't be used")]
    Index(#[from] rusqlite::Error),
    /// The ledger can't be read.
    #[error(transparent)]
    Ledger(#[from] ReadError),
    /// A newer Regent wrote an entry.
    #[error("the ledger can't be indexed: {0}")]
    Body(#[from] BodyError),
    /// The damaged index can't be removed.
    #[error("the lookup index can't be rebuilt")]
    Io(#[from] std::io::Error),
}

/// An open index.
#[derive(Debug)]
pub struct Lookup {
    connection: Connection,
}

impl Lookup {
    /// Opens the index, or creates it.
    pub fn open(path: &Path) -> Result<Self, LookupError> {
        match Self::try_open(path) {
            Err(LookupError::Index(error)) if is_spoilt(&error) => {
                for end in ["", "-wal", "-shm"] {
                    let mut name = path.as_os_str().to_owned();
                    name.push(end);
                    match std::fs::remove_file(&name) {
                        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                            return Err(error.into());
                        }
                        Ok(()) | Err(_) => {}
                    }
                }
                Self::try_open(path)
            }
            opened => opened,
        }
    }

    fn try_open(path: &Path) -> Result<Self, LookupError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_millis(BUSY_MS_MAX))?;
        // No sync per commit: rows that a power cut loses are read from the ledger again.
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF;",
        )?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version != VERSION {
            transaction.execute_batch("DROP TABLE IF EXISTS entry; DROP TABLE IF EXISTS lane;")?;
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        transaction.commit()?;
        Ok(Self { connection })
    }

    /// Indexes new entries of the ledger. Returns their number.
    pub fn refresh(&mut self, ledger: &Reader) -> Result<u64, LookupError> {
        self.refresh_some(ledger, u64::MAX)
    }

    /// [`Lookup::refresh`] with a limit on entries. [`sizes`](Self::sizes) then returns how far the index goes; the caller searches the
    /// rest of each lane.
    pub fn refresh_some(&mut self, ledger: &Reader, count_max: u64) -> Result<u64, LookupError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut known = known_lanes(&transaction)?;
        let mut taken = 0;
        for lane in ledger.lanes()? {
            let (known, left) = (known.remove(&lane.get()), count_max.saturating_sub(taken));
            taken += match take_in(&transaction, (ledger, lane), known, left)? {
                Some(count) => count,
                None => {
                    // The lane no longer matches its indexed part. `verify` finds out why; the index only starts over.
                    forget(&transaction, lane.get())?;
                    take_in(&transaction, (ledger, lane), None, left)?.unwrap_or(0)
                }
            };
        }
        for gone in known.into_keys() {
            forget(&transaction, gone)?;
        }
        transaction.commit()?;
        Ok(taken)
    }

    /// The newest matching entries, newest first.
    pub fn find(&self, query: &Query) -> Result<Vec<Hit>, LookupError> {
        Ok(query::find(&self.connection, query)?)
    }

    /// The tasks with steps in the ledger whose id starts with `prefix`, newest first, at most `count_max`.
    pub fn tasks(&self, prefix: &str, count_max: u32) -> Result<Vec<String>, LookupError> {
        Ok(tasks::ids(&self.connection, prefix, count_max)?)
    }

    /// The positions of the intents and outcomes of tasks.
    pub fn spans_of(&self, tasks: &[String]) -> Result<Vec<Span>, LookupError> {
        Ok(tasks::spans(&self.connection, tasks)?)
    }

    /// The positions of the outcomes of an operation's newest calls, e.g. of `model.infer`.
    pub fn outcomes_of(&self, op: &str, count_max: u32) -> Result<Vec<Span>, LookupError> {
        Ok(tasks::outcomes(&self.connection, op, count_max)?)
    }

    /// Number of indexed entries of each lane. The index doesn't contain the rest of a lane, its tail.
    pub fn sizes(&self) -> Result<BTreeMap<LaneId, u64>, LookupError> {
        Ok(tasks::sizes(&self.connection)?)
    }

    /// Sums of the receipts by group, largest first.
    pub fn costs(&self, by: GroupBy, since_ms: Option<i64>) -> Result<Vec<Cost>, LookupError> {
        Ok(costs::sums(&self.connection, by, since_ms)?)
    }

    /// The position of an intent's outcome.
    pub fn outcome_of(&self, lane: LaneId, intent: u64) -> Result<Option<(LaneId, u64)>, LookupError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT lane, seq FROM entry WHERE intent_lane = ?1 AND intent = ?2 LIMIT 1")?;
        let mut rows = statement.query(params![lane.get(), intent])?;
        Ok(match rows.next()? {
            Some(row) => LaneId::new(row.get(0)?).zip(Some(row.get(1)?)),
            None => None,
        })
    }
}

/// The indexed part of a lane: number of entries, and the hash of the last one.
struct IndexedLane {
    size: u64,
    hash: String,
}

fn known_lanes(connection: &Connection) -> rusqlite::Result<BTreeMap<u16, IndexedLane>> {
    let mut statement = connection.prepare("SELECT lane, size, hash FROM lane")?;
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, IndexedLane { size: row.get(1)?, hash: row.get(2)? })))?;
    rows.collect()
}

/// Indexes at most `count_max` new entries of a lane; `None` if the lane no longer matches its indexed part.
fn take_in(
    connection: &Connection,
    (ledger, lane): (&Reader, LaneId),
    known: Option<IndexedLane>,
    count_max: u64,
) -> Result<Option<u64>, LookupError> {
    let (mut size, mut tip) = known.map_or((0, String::new()), |known| (known.size, known.hash));
    // Starts at the last known entry, to verify that it is unchanged.
    let from = size.saturating_sub(1);
    let mut entries = ledger.lane_since(lane, from)?.only(INDEXED);
    let mut taken = 0;
    if size > 0 {
        match entries.next().transpose()? {
            Some(entry) if entry.seq == from && entry.hash.to_string() == tip => {}
            Some(_) | None => return Ok(None),
        }
    }
    let mut last: Option<Digest> = None;
    // A crash may have left unvouched entries in the middle of a lane. An unvouched outcome proves nothing. An unvouched intent may have
    // been acted on, so its task must find it. Unvouched entries at the end of a lane may still be cut.
    let mut unvouched: Vec<Entry> = Vec::new();
    while taken < count_max {
        let Some(entry) = entries.next() else { break };
        let entry: Entry = entry?;
        if !entry.proven {
            if entry.kind == EntryKind::Intent && !entry.refused {
                unvouched.push(entry);
            }
            continue;
        }
        for intent in unvouched.drain(..) {
            rows::insert(connection, &intent)?;
            taken += 1;
        }
        rows::insert(connection, &entry)?;
        (size, last, taken) = (entry.seq + 1, Some(entry.hash), taken + 1);
    }
    if let Some(hash) = last {
        tip = hash.to_string();
    }
    if taken > 0 {
        connection
            .prepare_cached("INSERT OR REPLACE INTO lane (lane, size, hash) VALUES (?1, ?2, ?3)")?
            .execute(params![lane.get(), size, tip])?;
    }
    Ok(Some(taken))
}

fn forget(connection: &Connection, lane: u16) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM entry WHERE lane = ?1", [lane])?;
    connection.execute("DELETE FROM lane WHERE lane = ?1", [lane])?;
    Ok(())
}

/// Whether the file isn't a valid index, rather than busy or inaccessible.
fn is_spoilt(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    error.sqlite_error_code().is_some_and(|code| matches!(code, DatabaseCorrupt | NotADatabase))
}

#[cfg(test)]
mod tests;
