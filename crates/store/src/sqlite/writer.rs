//! The thread that writes: all commits that wait become one transaction with one fsync.

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{oneshot, watch};

use super::queue::Queue;
use super::rows::{self, Total};
use super::{announce, failed};
use crate::StateError;
use crate::state::{Change, Committed, Partition, Version, Write};

/// The most commits of one transaction, so that the first doesn't wait for too many others.
const BATCH_MAX: usize = 512;

/// A write, and where its result goes.
#[derive(Debug)]
pub(super) enum Job {
    Commit { partition: Partition, change: Change, reply: oneshot::Sender<Result<Committed, StateError>> },
    Sweep { now_ms: i64, max: usize, reply: oneshot::Sender<Result<usize, StateError>> },
}

/// What a job has come to.
#[derive(Clone, Copy)]
enum Done {
    Commit(Committed),
    Sweep(usize),
}

pub(super) fn run(mut connection: Connection, queue: &Queue<Job>, changed: &watch::Sender<u64>) {
    let _serving = queue.serve();
    while let Some(mut jobs) = queue.take(BATCH_MAX) {
        // Skip writes whose callers have gone.
        jobs.retain(|job| !job.is_abandoned());
        let mut done = Vec::with_capacity(jobs.len());
        match write_all(&mut connection, &jobs, &mut done) {
            Ok(version) => {
                announce(changed, version);
                jobs.into_iter().zip(done).for_each(|(job, done)| job.answer(Ok(done)));
            }
            Err(error) => jobs.into_iter().for_each(|job| job.answer(Err(error.clone()))),
        }
    }
}

/// Does all jobs in order, in one transaction. After an error none has happened. Gives the newest version.
fn write_all(connection: &mut Connection, jobs: &[Job], done: &mut Vec<Done>) -> Result<u64, StateError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let before = rows::total(&transaction)?;
    let mut total = before;
    for job in jobs {
        done.push(match job {
            Job::Commit { partition, change, .. } => {
                Done::Commit(commit(&transaction, &mut total, partition.as_str(), change)?)
            }
            Job::Sweep { now_ms, max, .. } => Done::Sweep(sweep(&transaction, &mut total, *now_ms, *max)?),
        });
    }
    if total != before {
        rows::set_total(&transaction, total)?;
    }
    transaction.commit().map_err(failed)?;
    Ok(total.version)
}

fn commit(
    connection: &Connection,
    total: &mut Total,
    partition: &str,
    change: &Change,
) -> Result<Committed, StateError> {
    for check in &change.checks {
        if !rows::holds(connection, partition, check)? {
            return Ok(Committed::Conflict);
        }
    }
    if !change.writes.is_empty() {
        let version = total.advance();
        for write in &change.writes {
            rows::write(connection, total, partition, write, version)?;
        }
    }
    Ok(Committed::Done)
}

fn sweep(connection: &Connection, total: &mut Total, now_ms: i64, max: usize) -> Result<usize, StateError> {
    let due = rows::due(connection, now_ms, max)?;
    if due.is_empty() {
        return Ok(0);
    }
    let (version, count): (Version, usize) = (total.advance(), due.len());
    for (partition, key) in due {
        rows::write(connection, total, &partition, &Write::Remove { key }, version)?;
    }
    Ok(count)
}

impl Job {
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Commit { reply, .. } => reply.is_closed(),
            Self::Sweep { reply, .. } => reply.is_closed(),
        }
    }

    /// Tells the caller, if it still waits.
    fn answer(self, done: Result<Done, StateError>) {
        match (self, done) {
            (Self::Commit { reply, .. }, Ok(Done::Commit(committed))) => drop(reply.send(Ok(committed))),
            (Self::Sweep { reply, .. }, Ok(Done::Sweep(count))) => drop(reply.send(Ok(count))),
            (Self::Commit { reply, .. }, Err(error)) => drop(reply.send(Err(error))),
            (Self::Sweep { reply, .. }, Err(error)) => drop(reply.send(Err(error))),
            // A result of the other kind can't be: they are made from the jobs, in their order.
            (Self::Commit { .. }, Ok(Done::Sweep(_))) | (Self::Sweep { .. }, Ok(Done::Commit(_))) => {}
        }
    }
}
