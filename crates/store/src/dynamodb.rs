//! State in DynamoDB: for kernels of several machines that have no server of their own.
//!
//! An item per record, and one per partition, the head, with the newest version. A commit reads the head, verifies its checks by consistent
//! reads, and writes everything in one transaction on the condition that the head is still the same. So whatever changed after the head
//! was read makes the transaction fail, and it is tried again. A scan counts only if the head is the same after it.
//! There is no push: waiters are woken once a second, by one timer for all of them.

mod client;
mod items;
mod sign;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::StateError;
use crate::remote::{StateUrl, remove_due, wake};
use crate::state::{
    BoxFuture, Change, Check, Committed, Partition, Record, State, Version, Versioned, Write,
};
use client::{ApiError, Client};
use items::Items;

/// How often a commit or a read is tried that others come in between of.
const TRIES_MAX: u32 = 40;
/// How often waiters are woken.
const WAKE: Duration = Duration::from_secs(1);
/// The most keys that one request reads.
const KEYS_MAX: usize = 100;

/// State in DynamoDB.
#[derive(Debug)]
pub struct DynamodbState {
    client: Client,
    items: Items,
    changed: watch::Sender<u64>,
    timer: AbortHandle,
}

impl DynamodbState {
    /// Connects, and makes the table where there is none.
    pub async fn open(url: &StateUrl) -> Result<Self, StateError> {
        let (client, items) = client::from_url(url)?;
        client::make_table(&client, &items).await?;
        let changed = watch::Sender::new(0_u64);
        let waiters = changed.clone();
        let timer = tokio::spawn(async move {
            loop {
                tokio::time::sleep(WAKE).await;
                if waiters.receiver_count() > 0 {
                    wake(&waiters);
                }
            }
        });
        Ok(Self { client, items, changed, timer: timer.abort_handle() })
    }

    /// The newest version of a partition: zero if it never had one.
    async fn head(&self, partition: &Partition) -> Result<u64, StateError> {
        let mut request = self.items.get(partition, None);
        add(&mut request, "ConsistentRead", json!(true));
        let answer = self.client.call("GetItem", &request).await.map_err(ApiError::into_state)?;
        items::head_version(answer.get("Item"))
    }

    /// The same, by a transaction: none that is under way has written anything yet.
    async fn settled_head(&self, partition: &Partition) -> Result<Option<u64>, StateError> {
        let request = json!({"TransactItems": [{"Get": self.items.get(partition, None)}]});
        match self.client.call("TransactGetItems", &request).await {
            Ok(answer) => {
                items::head_version(client::required(&answer, "/Responses/0")?.get("Item")).map(Some)
            }
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error.into_state()),
        }
    }

    /// Reads until nothing was committed in between.
    async fn stable(&self, partition: &Partition, wanted: Wanted<'_>) -> Result<Vec<Record>, StateError> {
        for attempt in 0..TRIES_MAX {
            let before = self.head(partition).await?;
            let found = match wanted {
                Wanted::Keys(keys) => self.get_all(partition, keys).await?,
                Wanted::Prefix(prefix) => self.query(partition, prefix).await?,
            };
            if self.settled_head(partition).await? == Some(before) {
                return Ok(found);
            }
            client::pause(attempt).await;
        }
        Err(StateError::Busy)
    }

    async fn get_all(&self, partition: &Partition, keys: &[String]) -> Result<Vec<Record>, StateError> {
        let mut wanted = keys.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let mut found = Vec::new();
        for chunk in wanted.chunks(KEYS_MAX) {
            let mut request = self.items.batch_get(partition, chunk);
            let mut attempt = 0;
            loop {
                let answer =
                    self.client.call("BatchGetItem", &request).await.map_err(ApiError::into_state)?;
                for item in self.items.batch_found(&answer)? {
                    found.push(items::record(item)?);
                }
                let left = answer
                    .get("UnprocessedKeys")
                    .filter(|left| left.as_object().is_some_and(|left| !left.is_empty()));
                let Some(left) = left else { break };
                request = json!({"RequestItems": left});
                attempt += 1;
                if attempt > TRIES_MAX {
                    return Err(StateError::Busy);
                }
                client::pause(attempt).await;
            }
        }
        Ok(found)
    }

    async fn query(&self, partition: &Partition, prefix: &str) -> Result<Vec<Record>, StateError> {
        let mut request = self.items.query(partition, prefix);
        let mut found = Vec::new();
        loop {
            let answer = self.client.call("Query", &request).await.map_err(ApiError::into_state)?;
            for item in items::found(&answer)? {
                found.push(items::record(item)?);
            }
            let Some(last) = answer.get("LastEvaluatedKey") else { return Ok(found) };
            add(&mut request, "ExclusiveStartKey", last.clone());
        }
    }

    async fn holds(&self, partition: &Partition, checks: &[Check]) -> Result<bool, StateError> {
        let keys: Vec<String> = checks
            .iter()
            .filter_map(|check| if let Check::Key { key, .. } = check { Some(key.clone()) } else { None })
            .collect();
        let found = versions(self.get_all(partition, &keys).await?);
        for check in checks {
            let is_so = match check {
                Check::Key { key, version } => found.get(key).map(|held| held.version) == *version,
                Check::Prefix { prefix, .. } => {
                    *check == Check::prefix(prefix, &self.query(partition, prefix).await?)
                }
            };
            if !is_so {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Drop for DynamodbState {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl State for DynamodbState {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        Box::pin(async move {
            let found = match keys {
                [] => return Ok(Vec::new()),
                // One item is always whole.
                [_] => self.get_all(partition, keys).await?,
                _ => self.stable(partition, Wanted::Keys(keys)).await?,
            };
            let found = versions(found);
            Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
        })
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        Box::pin(self.stable(partition, Wanted::Prefix(prefix)))
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        Box::pin(async move {
            change.check_size()?;
            // A transaction takes one write of each item; the last counts.
            let writes: BTreeMap<&str, &Write> =
                change.writes.iter().map(|write| (write.key(), write)).collect();
            for attempt in 0..TRIES_MAX {
                let head = self.head(partition).await?;
                if !self.holds(partition, &change.checks).await? {
                    return Ok(Committed::Conflict);
                }
                if writes.is_empty() {
                    if change.checks.is_empty() || self.settled_head(partition).await? == Some(head) {
                        return Ok(Committed::Done);
                    }
                } else {
                    let request = self.items.transaction(partition, head, writes.values().copied())?;
                    match self.client.call("TransactWriteItems", &request).await {
                        Ok(_) => {
                            wake(&self.changed);
                            return Ok(Committed::Done);
                        }
                        Err(error) if error.is_conflict() => {}
                        Err(error) => return Err(error.into_state()),
                    }
                }
                client::pause(attempt).await;
            }
            Err(StateError::Busy)
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        Box::pin(async move {
            let request = self.items.due(now_ms, max);
            let answer = self.client.call("Query", &request).await.map_err(ApiError::into_state)?;
            let mut due: Vec<(Partition, String, Version)> = Vec::new();
            for item in items::found(&answer)? {
                due.push(self.items.due_record(item)?);
            }
            remove_due(self, due).await
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// What is read.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    Keys(&'a [String]),
    Prefix(&'a str),
}

fn versions(records: Vec<Record>) -> BTreeMap<String, Versioned> {
    let split =
        |Record { key, value, version, keep_until_ms }| (key, Versioned { value, version, keep_until_ms });
    records.into_iter().map(split).collect()
}

fn add(request: &mut Value, name: &str, value: Value) {
    if let Value::Object(fields) = request {
        fields.insert(name.to_owned(), value);
    }
}
