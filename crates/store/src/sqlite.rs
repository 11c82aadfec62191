//! State in a SQLite file: what the kernel processes of one machine share.
//!
//! One thread writes: it takes all commits that wait, validates them in order, and makes them one `BEGIN IMMEDIATE` transaction in WAL mode
//! with full sync. Each is answered after the fsync, so a commit that was answered survives a power cut. Other threads read, on connections
//! of their own, and one watches the log for commits of other processes. No caller waits for a disk or a lock in its own thread.
//!
//! Every record carries a checksum, and one row carries the sum over all of them, so that a damaged file is an error and not
//! other data. These find accidents, not attackers: only the user can write the file, and the ledger is the evidence.
//! What they can't find: a damaged write-ahead log that hasn't been merged yet ends, for SQLite, before the damage, which
//! gives an older but whole state.

mod file;
mod queue;
mod reader;
mod rows;
#[cfg(test)]
mod tests;
mod watcher;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::ErrorCode;
use tokio::sync::{oneshot, watch};

use crate::StateError;
use crate::state::{BoxFuture, Change, Committed, Partition, Record, State, Versioned};
use queue::Queue;

/// Threads that read.
const READERS: usize = 2;

/// State in a SQLite file.
#[derive(Debug)]
pub struct SqliteState {
    writes: Arc<Queue<writer::Job>>,
    reads: Arc<Queue<reader::Job>>,
    changed: watch::Sender<u64>,
    watcher: Option<watcher::Watcher>,
    threads: Vec<JoinHandle<()>>,
}

impl SqliteState {
    /// Opens the file, or makes it, readable for its owner alone. Refuses a damaged file and one of a newer program.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let connection = file::open(path)?;
        let (writes, reads) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
        let changed = watch::Sender::new(rows::total(&connection)?.version);
        let watcher = watcher::Watcher::start(path, file::connect(path)?, changed.clone())?;
        let mut state = Self { writes, reads, changed, watcher: Some(watcher), threads: Vec::new() };
        let (queue, changed) = (Arc::clone(&state.writes), state.changed.clone());
        state.start("state-writer", move || writer::run(connection, &queue, &changed))?;
        for _ in 0..READERS {
            let (queue, connection) = (Arc::clone(&state.reads), file::connect(path)?);
            state.start("state-reader", move || reader::run(connection, &queue))?;
        }
        Ok(state)
    }

    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StateError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| StateError::Unusable(format!("no thread for the state: {error}")))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for SqliteState {
    /// Waits for the threads: the last connection that is closed merges the log into the file.
    fn drop(&mut self) {
        self.writes.close();
        self.reads.close();
        self.watcher.take().into_iter().for_each(watcher::Watcher::stop);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

impl State for SqliteState {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.reads.push(reader::Job::Keys { partition: partition.clone(), keys: keys.to_vec(), reply });
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let (partition, prefix) = (partition.clone(), prefix.to_owned());
            self.reads.push(reader::Job::Prefix { partition, prefix, reply });
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        Box::pin(async move {
            change.check_size()?;
            let (reply, answer) = oneshot::channel();
            self.writes.push(writer::Job::Commit { partition: partition.clone(), change, reply });
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.writes.push(writer::Job::Sweep { now_ms, max, reply });
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// Wakes those who wait for a change, unless they were woken for this version.
fn announce(changed: &watch::Sender<u64>, version: u64) {
    changed.send_if_modified(|known| {
        let is_newer = version > *known;
        *known = version.max(*known);
        is_newer
    });
}

/// A thread of the state ended without an answer. Nothing is known about what was asked of it.
fn gone() -> StateError {
    StateError::Unusable("the thread of the shared state has ended".to_owned())
}

/// What SQLite says, without the statement that it says it about.
fn words(error: &rusqlite::Error) -> String {
    if let rusqlite::Error::SqlInputError { msg, .. } = error {
        return msg.clone();
    }
    error.to_string()
}

/// Whether a file could not be made longer: no room for the log's index, or a limit on the size of files.
fn is_write(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi;
    let code = error.sqlite_error().map_or(0, |error| error.extended_code);
    [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_IOERR_TRUNCATE].contains(&code)
}

fn failed(error: rusqlite::Error) -> StateError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StateError::Busy,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StateError::Corrupt(words(&error)),
        Some(ErrorCode::DiskFull) => StateError::Full,
        Some(ErrorCode::SystemIoFailure) if is_write(&error) => StateError::Full,
        Some(_) => StateError::Unusable(words(&error)),
        // Not SQLite's own: a value of a type or form that we never write.
        None => StateError::Corrupt(error.to_string()),
    }
}
