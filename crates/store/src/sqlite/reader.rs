//! The threads that read: all reads that wait see one snapshot.

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::queue::Queue;
use super::{failed, rows};
use crate::StateError;
use crate::state::{Partition, Record, Versioned};

/// The most reads of one snapshot. A few, so that other threads find some too.
const BATCH_MAX: usize = 64;

/// A read, and where its result goes.
#[derive(Debug)]
pub(super) enum Job {
    Keys {
        partition: Partition,
        keys: Vec<String>,
        reply: oneshot::Sender<Result<Vec<Option<Versioned>>, StateError>>,
    },
    Prefix {
        partition: Partition,
        prefix: String,
        reply: oneshot::Sender<Result<Vec<Record>, StateError>>,
    },
}

pub(super) fn run(mut connection: Connection, queue: &Queue<Job>) {
    let _serving = queue.serve();
    while let Some(jobs) = queue.take(BATCH_MAX) {
        match connection.transaction_with_behavior(TransactionBehavior::Deferred) {
            Ok(snapshot) => jobs.into_iter().for_each(|job| answer(&snapshot, job)),
            Err(error) => {
                let error = failed(error);
                jobs.into_iter().for_each(|job| refuse(job, &error));
            }
        }
    }
}

fn answer(snapshot: &Transaction<'_>, job: Job) {
    match job {
        Job::Keys { partition, keys, reply } => {
            let found = keys.iter().map(|key| rows::get(snapshot, partition.as_str(), key)).collect();
            drop(reply.send(found));
        }
        Job::Prefix { partition, prefix, reply } => {
            drop(reply.send(rows::scan(snapshot, partition.as_str(), &prefix)));
        }
    }
}

fn refuse(job: Job, error: &StateError) {
    match job {
        Job::Keys { reply, .. } => drop(reply.send(Err(error.clone()))),
        Job::Prefix { reply, .. } => drop(reply.send(Err(error.clone()))),
    }
}
