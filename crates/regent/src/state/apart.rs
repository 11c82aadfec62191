//! The shared state as a judge on a pipe sees it: its questions, and what only its own sessions use, are in memory. The host puts these
//! questions to its own person, so nobody else looks for them, and a call that no lasting rule is about commits nothing.
//!
//! If a rule needs several people, the host's person isn't enough: questions are then in the shared state, for `regent approve`.

use std::sync::Arc;

use regent_kernel::Policy;
use regent_store::{
    BoxFuture, Change, Check, Committed, MemoryState, Partition, Record, State, StateError, Versioned, Write,
};
use tokio::sync::watch;

/// Questions and their answers.
const QUESTIONS: &str = "approval";
/// What rules that look back have noted, of sessions and of agents' names.
const HISTORY: &str = "history";
/// The quotas of questions, by agents of this process; see `QUESTIONS` in `regent_kernel`'s approvals.
const QUOTAS: &str = "rate/ffffffffffffffff/";
/// A history that is otherwise the same is kept for longer only if that adds at least this much: a commit for each call would cost more.
const RENEWED_MS_MIN: i64 = 24 * 60 * 60 * 1000;

/// The shared state, with these parts in memory.
#[derive(Debug)]
pub(crate) struct Apart {
    memory: MemoryState,
    shared: Arc<dyn State>,
    shares_questions: bool,
    /// Histories of sessions belong to this process alone. They are changed in one step with those of names.
    shares_history: bool,
}

impl Apart {
    pub(crate) fn new(shared: Arc<dyn State>, policy: &Policy) -> Self {
        Self {
            memory: MemoryState::default(),
            shared,
            shares_questions: policy.approvers_max() > 1,
            shares_history: policy.reach().lasting,
        }
    }

    /// Where records are whose keys are, or begin with, `name`.
    fn holding(&self, partition: &Partition, name: Option<&str>) -> &dyn State {
        let is_quota = name.is_some_and(|name| name.starts_with(QUOTAS));
        let is_shared = match partition.as_str() {
            QUESTIONS => self.shares_questions,
            HISTORY => self.shares_history,
            _ => !is_quota,
        };
        if is_shared { &*self.shared } else { &self.memory }
    }

    /// Whether a commit would only keep histories for a little longer. One read is one snapshot, so all checks held then.
    async fn only_renews(&self, partition: &Partition, change: &Change) -> Result<bool, StateError> {
        if partition.as_str() != HISTORY || change.writes.is_empty() {
            return Ok(false);
        }
        let mut keys = Vec::new();
        for check in &change.checks {
            let Check::Key { key, .. } = check else { return Ok(false) };
            keys.push(key.clone());
        }
        let found = self.shared.read(partition, &keys).await?;
        let is_unchanged = |(check, found): (&Check, &Option<Versioned>)| matches!(check, Check::Key { version, .. } if *version == found.as_ref().map(|found| found.version));
        let is_renewal = |write: &Write| match write {
            Write::Put { key, value, keep_until_ms } => {
                let held =
                    keys.iter().zip(&found).find(|(one, _)| *one == key).and_then(|(_, held)| held.as_ref());
                held.is_some_and(|held| {
                    held.value == *value && keep_until_ms.saturating_sub(held.keep_until_ms) < RENEWED_MS_MIN
                })
            }
            Write::Remove { .. } => false,
        };
        Ok(change.checks.iter().zip(&found).all(is_unchanged) && change.writes.iter().all(is_renewal))
    }
}

impl State for Apart {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        self.holding(partition, keys.first().map(String::as_str)).read(partition, keys)
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        self.holding(partition, Some(prefix)).scan(partition, prefix)
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        Box::pin(async move {
            let state = self.holding(partition, first_key(&change));
            if self.shares_history && self.only_renews(partition, &change).await? {
                return Ok(Committed::Done);
            }
            state.commit(partition, change).await
        })
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        Box::pin(async move {
            let own = self.memory.sweep(now_ms, max).await?;
            Ok(own.saturating_add(self.shared.sweep(now_ms, max).await?))
        })
    }

    /// Those who wait for answers wait for these.
    fn changes(&self) -> watch::Receiver<u64> {
        if self.shares_questions { self.shared.changes() } else { self.memory.changes() }
    }

    fn is_lossy(&self) -> bool {
        self.shared.is_lossy()
    }
}

fn first_key(change: &Change) -> Option<&str> {
    let checked = change.checks.first().map(|check| match check {
        Check::Key { key, .. } => key.as_str(),
        Check::Prefix { prefix, .. } => prefix.as_str(),
    });
    checked.or_else(|| change.writes.first().map(Write::key))
}

#[cfg(test)]
mod tests;
