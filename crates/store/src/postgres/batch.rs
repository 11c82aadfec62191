//! Group commit: all commits that wait are validated in order against one state, and become one transaction.

use std::collections::BTreeMap;

use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio_postgres::Transaction;

use super::session::{Server, Session, failed, in_time};
use super::{text, version};
use crate::StateError;
use crate::remote::{upper_bound, wake};
use crate::state::{Change, Check, Committed, Partition, Version, Write};

/// The most commits of one transaction.
const BATCH_MAX: usize = 256;
/// How often a transaction that met another one is tried.
const TRIES_MAX: u32 = 4;

/// A queued commit.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) partition: Partition,
    pub(super) change: Change,
    pub(super) reply: oneshot::Sender<Result<Committed, StateError>>,
}

/// A key of a partition.
type Name = (String, String);
/// What a record is put to and until when it is kept; nothing if it is removed.
type Put = Option<(Vec<u8>, i64)>;

/// What the transaction has come to.
#[derive(Default)]
struct Plan {
    /// The versions of the records that were looked at, as the batch has left them so far.
    versions: BTreeMap<Name, Option<Version>>,
    /// The last write of each record.
    writes: BTreeMap<Name, (Put, Version)>,
    /// The newest version that each partition may use next.
    next: BTreeMap<String, u64>,
}

/// Commits queued batches until the state is closed.
pub(super) async fn run(
    server: &Server,
    jobs: &Mutex<mpsc::UnboundedReceiver<Job>>,
    changed: &watch::Sender<u64>,
) {
    let mut session = None;
    let mut batch = Vec::new();
    loop {
        // What was put off stays in front.
        if batch.is_empty() && jobs.lock().await.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return;
        }
        batch.retain(|job: &Job| !job.reply.is_closed());
        let later = split_off_dependent(&mut batch);
        match commit(server, &mut session, &batch).await {
            Ok(done) => {
                // A waiter that only checks what it reads must not wake itself.
                let wrote = |(job, done): (&Job, &Committed)| {
                    *done == Committed::Done && !job.change.writes.is_empty()
                };
                if batch.iter().zip(&done).any(wrote) {
                    wake(changed);
                }
                batch.drain(..).zip(done).for_each(|(job, done)| drop(job.reply.send(Ok(done))));
            }
            Err(error) => batch.drain(..).for_each(|job| drop(job.reply.send(Err(error.clone())))),
        }
        batch = later;
    }
}

/// A check of a prefix is done by the server, which doesn't see writes of this batch. So such a commit and all after it are put off if
/// an earlier one writes in its partition.
fn split_off_dependent(batch: &mut Vec<Job>) -> Vec<Job> {
    let mut written = std::collections::BTreeSet::new();
    let is_prefix = |check: &Check| matches!(check, Check::Prefix { .. });
    let first = batch.iter().position(|job| {
        let depends = written.contains(&job.partition) && job.change.checks.iter().any(is_prefix);
        if !job.change.writes.is_empty() {
            written.insert(job.partition.clone());
        }
        depends
    });
    first.map_or_else(Vec::new, |first| batch.split_off(first))
}

/// Commits a batch. A transaction that the server ended because of another one is tried again.
async fn commit(
    server: &Server,
    session: &mut Option<Session>,
    batch: &[Job],
) -> Result<Vec<Committed>, StateError> {
    let mut tries = 0;
    loop {
        let mut current = match session.take().filter(|session| !session.client.is_closed()) {
            Some(session) => session,
            None => server.connect().await?,
        };
        match in_time(commit_once(server, &mut current, batch)).await {
            Err(StateError::Busy) if tries < TRIES_MAX => tries += 1,
            // The transaction may still be open there.
            Err(error @ StateError::Unreachable(_)) => return Err(error),
            result => {
                *session = Some(current);
                return result;
            }
        }
        *session = Some(current);
    }
}

async fn commit_once(
    server: &Server,
    session: &mut Session,
    batch: &[Job],
) -> Result<Vec<Committed>, StateError> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let Session { client, lock, held, prefix, put, remove, notify, .. } = session;
    let transaction = client.transaction().await.map_err(|error| failed(&error))?;
    let mut plan = Plan { next: lock_partitions(&transaction, lock, batch).await?, ..Plan::default() };
    plan.look_at(&transaction, held, batch).await?;
    let mut done = Vec::with_capacity(batch.len());
    for job in batch {
        let is_valid = plan.holds(&transaction, prefix, job).await?;
        done.push(if is_valid { Committed::Done } else { Committed::Conflict });
        if is_valid {
            plan.apply(job);
        }
    }
    // Without writes there is nothing to wait for: the transaction is dropped.
    if !plan.writes.is_empty() {
        plan.write(&transaction, put, remove).await?;
        transaction.execute(notify, &[&server.channel()]).await.map_err(|error| failed(&error))?;
        transaction.commit().await.map_err(|error| failed(&error))?;
    }
    Ok(done)
}

/// Locks the rows of the partitions and gives the first version that each may use.
async fn lock_partitions(
    transaction: &Transaction<'_>,
    lock: &tokio_postgres::Statement,
    batch: &[Job],
) -> Result<BTreeMap<String, u64>, StateError> {
    let mut counts: BTreeMap<&[u8], i64> = BTreeMap::new();
    for job in batch {
        let count = counts.entry(job.partition.as_str().as_bytes()).or_default();
        *count = count.saturating_add(1);
    }
    let (names, numbers): (Vec<&[u8]>, Vec<i64>) = counts.iter().map(|(name, count)| (*name, *count)).unzip();
    let rows = transaction.query(lock, &[&names, &numbers]).await.map_err(|error| failed(&error))?;
    let mut next = BTreeMap::new();
    for row in &rows {
        let (name, last) = (text(row, 0)?, version(row, 1)?.0);
        let count = counts.get(name.as_bytes()).copied().unwrap_or_default().unsigned_abs();
        next.insert(name, last.saturating_sub(count).saturating_add(1));
    }
    Ok(next)
}

impl Plan {
    /// Reads the versions of all records that a check names.
    async fn look_at(
        &mut self,
        transaction: &Transaction<'_>,
        held: &tokio_postgres::Statement,
        batch: &[Job],
    ) -> Result<(), StateError> {
        for job in batch {
            for check in &job.change.checks {
                if let Check::Key { key, .. } = check {
                    self.versions.insert((job.partition.as_str().to_owned(), key.clone()), None);
                }
            }
        }
        if self.versions.is_empty() {
            return Ok(());
        }
        let (partitions, keys): (Vec<&[u8]>, Vec<&[u8]>) =
            self.versions.keys().map(|(partition, key)| (partition.as_bytes(), key.as_bytes())).unzip();
        let rows = transaction.query(held, &[&partitions, &keys]).await.map_err(|error| failed(&error))?;
        for row in &rows {
            self.versions.insert((text(row, 0)?, text(row, 1)?), Some(version(row, 2)?));
        }
        Ok(())
    }

    async fn holds(
        &self,
        transaction: &Transaction<'_>,
        statement: &tokio_postgres::Statement,
        job: &Job,
    ) -> Result<bool, StateError> {
        let partition = job.partition.as_str();
        for check in &job.change.checks {
            let is_so = match check {
                Check::Key { key, version } => {
                    let name = (partition.to_owned(), key.clone());
                    self.versions.get(&name).copied().flatten() == *version
                }
                Check::Prefix { prefix, count, newest } => {
                    let (from, to) = (prefix.as_bytes(), upper_bound(prefix));
                    let row = transaction
                        .query_one(statement, &[&partition.as_bytes(), &from, &to])
                        .await
                        .map_err(|error| failed(&error))?;
                    let found: i64 = row.try_get(0).map_err(|error| failed(&error))?;
                    let largest: Option<i64> = row.try_get(1).map_err(|error| failed(&error))?;
                    let largest = largest.map(|largest| Version(largest.unsigned_abs()));
                    (found.unsigned_abs(), largest) == (*count, *newest)
                }
            };
            if !is_so {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn apply(&mut self, job: &Job) {
        let next = self.next.entry(job.partition.as_str().to_owned()).or_insert(1);
        let version = Version(*next);
        *next = next.saturating_add(1);
        for write in &job.change.writes {
            let name = (job.partition.as_str().to_owned(), write.key().to_owned());
            let value = match write {
                Write::Put { value, keep_until_ms, .. } => Some((value.clone(), *keep_until_ms)),
                Write::Remove { .. } => None,
            };
            self.versions.insert(name.clone(), value.as_ref().map(|_| version));
            self.writes.insert(name, (value, version));
        }
    }

    async fn write(
        &self,
        transaction: &Transaction<'_>,
        put: &tokio_postgres::Statement,
        remove: &tokio_postgres::Statement,
    ) -> Result<(), StateError> {
        let (mut partitions, mut keys): (Vec<&[u8]>, Vec<&[u8]>) = Default::default();
        let (mut values, mut versions, mut until): (Vec<&[u8]>, Vec<i64>, Vec<i64>) = Default::default();
        let (mut gone_partitions, mut gone_keys): (Vec<&[u8]>, Vec<&[u8]>) = Default::default();
        for ((partition, key), (value, version)) in &self.writes {
            match value {
                Some((value, until_ms)) => {
                    partitions.push(partition.as_bytes());
                    keys.push(key.as_bytes());
                    values.push(value);
                    versions.push(version.0.cast_signed());
                    until.push(*until_ms);
                }
                None => {
                    gone_partitions.push(partition.as_bytes());
                    gone_keys.push(key.as_bytes());
                }
            }
        }
        if !keys.is_empty() {
            let rows: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&partitions, &keys, &values, &versions, &until];
            transaction.execute(put, &rows).await.map_err(|error| failed(&error))?;
        }
        if !gone_keys.is_empty() {
            transaction
                .execute(remove, &[&gone_partitions, &gone_keys])
                .await
                .map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}
