//! State in Postgres: what the kernels of several machines share.
//!
//! A row per partition has its newest version. Every transaction locks the rows of its partitions first, in order of names, so commits of one
//! partition happen one after the other and versions only grow. As in SQLite, all commits that wait become one transaction, validated in
//! order; each is answered after the server has it on disk. A server that runs without `fsync` is refused.

mod batch;
mod session;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use crate::StateError;
use crate::remote::{SharedConnection, StateUrl, remove_due, upper_bound};
use crate::state::{BoxFuture, Change, Committed, Partition, Record, State, Version, Versioned};
use batch::Job;
use session::{Server, Session, failed, in_time};

/// Connections that write, so that one batch is validated while another waits for the disk.
const WRITERS: usize = 2;

/// State in Postgres.
#[derive(Debug)]
pub struct PostgresState {
    server: Arc<Server>,
    reads: SharedConnection<Arc<Session>>,
    writes: mpsc::UnboundedSender<Job>,
    changed: watch::Sender<u64>,
    tasks: Vec<AbortHandle>,
}

impl PostgresState {
    /// Connects, makes the tables where there are none, and refuses a server that may lose commits.
    pub async fn open(url: &StateUrl) -> Result<Self, StateError> {
        let server = Arc::new(Server::new(url)?);
        let session = server.connect().await?;
        let (writes, jobs) = mpsc::unbounded_channel();
        let (jobs, changed) = (Arc::new(Mutex::new(jobs)), watch::Sender::new(0));
        let mut tasks = Vec::new();
        for _ in 0..WRITERS {
            let (server, jobs, changed) = (Arc::clone(&server), Arc::clone(&jobs), changed.clone());
            tasks
                .push(tokio::spawn(async move { batch::run(&server, &jobs, &changed).await }).abort_handle());
        }
        let (ready, is_ready) = oneshot::channel();
        let (listening, waiters) = (Arc::clone(&server), changed.clone());
        tasks.push(tokio::spawn(async move { listening.listen(&waiters, ready).await }).abort_handle());
        let state = Self { server, reads: SharedConnection::new(Arc::new(session)), writes, changed, tasks };
        is_ready.await.unwrap_or(Err(StateError::Busy))?;
        Ok(state)
    }

    /// Asks the server. A connection that doesn't answer in time isn't used again.
    async fn query(
        &self,
        statement: impl Fn(&Session) -> &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StateError> {
        let connect = async { self.server.connect().await.map(Arc::new) };
        let session = self.reads.get(|session| !session.client.is_closed(), connect).await?;
        match in_time(async { Ok(session.client.query(statement(&session), values).await) }).await {
            Ok(rows) => rows.map_err(|error| failed(&error)),
            Err(late) => {
                self.reads.drop_current().await;
                Err(late)
            }
        }
    }
}

impl Drop for PostgresState {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl State for PostgresState {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        Box::pin(async move {
            let wanted: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
            let rows =
                self.query(|session| &session.read, &[&partition.as_str().as_bytes(), &wanted]).await?;
            let mut found = std::collections::BTreeMap::new();
            for row in rows {
                let Record { key, value, version, keep_until_ms } = record(&row)?;
                found.insert(key, Versioned { value, version, keep_until_ms });
            }
            Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
        })
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        Box::pin(async move {
            let (from, to) = (prefix.as_bytes(), upper_bound(prefix));
            let values: [&(dyn ToSql + Sync); 3] = [&partition.as_str().as_bytes(), &from, &to];
            self.query(|session| &session.scan, &values).await?.iter().map(record).collect()
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
            let ended = || StateError::Unusable("the task of the shared state has ended".to_owned());
            self.writes.send(Job { partition: partition.clone(), change, reply }).map_err(|_| ended())?;
            answer.await.unwrap_or_else(|_| Err(ended()))
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        Box::pin(async move {
            let limit = i64::try_from(max).unwrap_or(i64::MAX);
            let mut due = Vec::new();
            for row in self.query(|session| &session.due, &[&now_ms, &limit]).await? {
                due.push((Partition::new(text(&row, 0)?)?, text(&row, 1)?, version(&row, 2)?));
            }
            remove_due(self, due).await
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

fn record(row: &tokio_postgres::Row) -> Result<Record, StateError> {
    Ok(Record {
        key: text(row, 0)?,
        value: row.try_get(1).map_err(|error| failed(&error))?,
        version: version(row, 2)?,
        keep_until_ms: row.try_get(3).map_err(|error| failed(&error))?,
    })
}

/// Names are kept as bytes: Postgres orders text by language, and has no text with a zero byte.
fn text(row: &tokio_postgres::Row, at: usize) -> Result<String, StateError> {
    let bytes: Vec<u8> = row.try_get(at).map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|_| StateError::Corrupt("a key is not text".to_owned()))
}

fn version(row: &tokio_postgres::Row, at: usize) -> Result<Version, StateError> {
    let number: i64 = row.try_get(at).map_err(|error| failed(&error))?;
    u64::try_from(number).map(Version).map_err(|_| StateError::Corrupt("a version is negative".to_owned()))
}
