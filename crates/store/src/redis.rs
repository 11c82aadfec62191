//! State in Redis: for kernels of several machines where a Redis is there already.
//!
//! A partition is four keys with one hash tag: values, versions with times, names in order, and names by age; and a counter of versions that
//! stays when all records are gone. Each commit is one script, so nothing comes in between, and the append-only file has all of it or nothing.
//! Redis answers before its data is on disk unless it runs with `appendonly yes` and `appendfsync always`. A server with other settings
//! is refused, or accepted and marked as lossy where that is accepted. So is one that evicts keys when its memory is full.

mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use redis::{Cmd, RedisError};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::remote::{SharedConnection, StateUrl, remove_due, upper_bound, wake};
use crate::state::{
    BoxFuture, Change, Check, Committed, Partition, Record, State, Version, Versioned, Write,
};
use crate::{FOR_GOOD, StateError, key_part};
use session::{Server, Session, failed};

/// State in Redis.
#[derive(Debug)]
pub struct RedisState {
    server: Arc<Server>,
    session: SharedConnection<Arc<Session>>,
    changed: watch::Sender<u64>,
    listener: AbortHandle,
    is_lossy: bool,
}

impl RedisState {
    /// Connects, and refuses a server that may lose commits, unless the caller accepts that.
    pub async fn open(url: &StateUrl) -> Result<Self, StateError> {
        let server = Arc::new(Server::new(url)?);
        let session = server.connect().await?;
        let (changed, is_lossy) = (watch::Sender::new(0), session.is_lossy);
        let (ready, is_ready) = oneshot::channel();
        let (listening, waiters) = (Arc::clone(&server), changed.clone());
        let task = tokio::spawn(async move { listening.listen(&waiters, ready).await });
        let state = Self {
            server,
            session: SharedConnection::new(Arc::new(session)),
            changed,
            listener: task.abort_handle(),
            is_lossy,
        };
        is_ready.await.unwrap_or(Err(StateError::Busy))?;
        Ok(state)
    }

    /// Asks the server. A connection that failed isn't used again.
    async fn ask<T: redis::FromRedisValue>(
        &self,
        command: impl FnOnce(&Session) -> Cmd,
    ) -> Result<T, StateError> {
        let connect = async { self.server.reconnect(self.is_lossy).await.map(Arc::new) };
        let session = self.session.get(|_| true, connect).await?;
        let answer: Result<T, RedisError> =
            command(&session).query_async(&mut session.connection.clone()).await;
        if let Err(error) = &answer
            && session::is_over(error)
        {
            self.session.drop_current().await;
        }
        answer.map_err(|error| failed(&error))
    }
}

impl Drop for RedisState {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl State for RedisState {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        Box::pin(async move {
            if keys.is_empty() {
                return Ok(Vec::new());
            }
            let rows: Vec<(Option<String>, Option<Vec<u8>>)> = self
                .ask(|session| {
                    let mut command = session.script(&session.read, &self.server.names(partition));
                    for key in keys {
                        command.arg(key.as_str());
                    }
                    command
                })
                .await?;
            rows.into_iter()
                .map(|row| row.0.zip(row.1).map(|(meta, value)| versioned(&meta, value)).transpose())
                .collect()
        })
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        Box::pin(async move {
            let (from, to) = range(prefix);
            let rows: Vec<(String, String, Vec<u8>)> = self
                .ask(|session| {
                    let mut command = session.script(&session.scan, &self.server.names(partition));
                    command.arg(from).arg(to);
                    command
                })
                .await?;
            let record = |(key, meta, value): (String, String, Vec<u8>)| {
                let Versioned { value, version, keep_until_ms } = versioned(&meta, value)?;
                Ok(Record { key, value, version, keep_until_ms })
            };
            rows.into_iter().map(record).collect()
        })
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        Box::pin(async move {
            change.check_size()?;
            let done: i64 = self
                .ask(|session| {
                    let mut command = session.script(&session.commit, &self.server.names(partition));
                    command.arg(self.server.channel()).arg(partition.as_str());
                    add_checks(&mut command, &change.checks);
                    add_writes(&mut command, &change.writes);
                    command
                })
                .await?;
            if done == 1 && !change.writes.is_empty() {
                wake(&self.changed);
            }
            Ok(if done == 1 { Committed::Done } else { Committed::Conflict })
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        Box::pin(async move {
            let before = format!("({now_ms}");
            let partitions: Vec<String> = self
                .ask(|_| {
                    let mut command = redis::cmd("ZRANGEBYSCORE");
                    command.arg(self.server.due()).arg("-inf").arg(&before).arg("LIMIT").arg(0).arg(max);
                    command
                })
                .await?;
            let mut gone = 0_usize;
            for name in partitions {
                let partition = Partition::new(name)?;
                let names = self.server.names(&partition);
                let due: Vec<(String, Option<String>)> = self
                    .ask(|session| {
                        let mut command = session.script(&session.due, &names);
                        command.arg(&before).arg(max.saturating_sub(gone));
                        command
                    })
                    .await?;
                let mut found = Vec::new();
                for (key, meta) in due {
                    let Some(meta) = meta else { continue };
                    // The order by age is rounded for times far away; this isn't.
                    let held = versioned(&meta, Vec::new())?;
                    if held.keep_until_ms < now_ms {
                        found.push((partition.clone(), key, held.version));
                    }
                }
                gone = gone.saturating_add(remove_due(self, found).await?);
                if gone >= max {
                    break;
                }
            }
            Ok(gone)
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn is_lossy(&self) -> bool {
        self.is_lossy
    }
}

/// The ends of a prefix, as `ZRANGEBYLEX` takes them.
fn range(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    ([b"[", prefix.as_bytes()].concat(), [&b"("[..], &upper_bound(prefix)].concat())
}

fn add_checks(command: &mut Cmd, checks: &[Check]) {
    let number = |version: &Option<Version>| version.map_or("-".to_owned(), |version| version.0.to_string());
    let is_key = |check: &&Check| matches!(check, Check::Key { .. });
    command.arg(checks.iter().filter(is_key).count());
    for check in checks {
        if let Check::Key { key, version } = check {
            command.arg(key.as_str()).arg(number(version));
        }
    }
    command.arg(checks.iter().filter(|check| !is_key(check)).count());
    for check in checks {
        if let Check::Prefix { prefix, count, newest } = check {
            let (from, to) = range(prefix);
            command.arg(from).arg(to).arg(*count).arg(number(newest));
        }
    }
}

fn add_writes(command: &mut Cmd, writes: &[Write]) {
    command.arg(writes.len());
    for write in writes {
        match write {
            Write::Put { key, value, keep_until_ms } => {
                let age = if *keep_until_ms == FOR_GOOD { "-".to_owned() } else { keep_until_ms.to_string() };
                command.arg("put").arg(key.as_str()).arg(*keep_until_ms).arg(age).arg(value.as_slice());
            }
            Write::Remove { key } => {
                command.arg("remove").arg(key.as_str());
            }
        }
    }
}

/// What a record's version and time, `version until`, and its value are together.
fn versioned(meta: &str, value: Vec<u8>) -> Result<Versioned, StateError> {
    let parts = meta
        .split_once(' ')
        .and_then(|(version, until)| Some((Version(version.parse().ok()?), until.parse::<i64>().ok()?)));
    let (version, keep_until_ms) =
        parts.ok_or_else(|| StateError::Corrupt("a record has no version".to_owned()))?;
    Ok(Versioned { value, version, keep_until_ms })
}

/// The name of a partition within its keys. A hash tag ends at a brace, so an odd name is replaced by its digest.
fn tag(partition: &Partition) -> String {
    key_part(partition.as_str())
}
