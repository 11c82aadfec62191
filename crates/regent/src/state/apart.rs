//! State of a process that shares nothing but where the ledger was last examined: without that mark a start reads all of it again.

use std::sync::Arc;

use regent_store::{
    BoxFuture, Change, Committed, MemoryState, Partition, Record, State, StateError, Versioned,
};
use tokio::sync::watch;

/// The partitions of what was examined; see `regent_kernel`'s recovery.
const KEPT: &str = "examined/";

/// Everything in memory, but for the marks.
#[derive(Debug)]
pub(crate) struct Apart {
    memory: MemoryState,
    kept: Arc<dyn State>,
}

impl Apart {
    pub(crate) fn new(kept: Arc<dyn State>) -> Self {
        Self { memory: MemoryState::default(), kept }
    }

    fn holding(&self, partition: &Partition) -> &dyn State {
        if partition.as_str().starts_with(KEPT) { &*self.kept } else { &self.memory }
    }
}

impl State for Apart {
    fn read<'s>(
        &'s self,
        partition: &'s Partition,
        keys: &'s [String],
    ) -> BoxFuture<'s, Result<Vec<Option<Versioned>>, StateError>> {
        self.holding(partition).read(partition, keys)
    }

    fn scan<'s>(
        &'s self,
        partition: &'s Partition,
        prefix: &'s str,
    ) -> BoxFuture<'s, Result<Vec<Record>, StateError>> {
        self.holding(partition).scan(partition, prefix)
    }

    fn commit<'s>(
        &'s self,
        partition: &'s Partition,
        change: Change,
    ) -> BoxFuture<'s, Result<Committed, StateError>> {
        self.holding(partition).commit(partition, change)
    }

    fn sweep(&self, now_ms: i64, max: usize) -> BoxFuture<'_, Result<usize, StateError>> {
        self.memory.sweep(now_ms, max)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.memory.changes()
    }

    fn is_lossy(&self) -> bool {
        self.kept.is_lossy()
    }
}

#[cfg(test)]
mod tests {
    use regent_store::{SqliteState, change, load};

    use super::*;

    #[tokio::test]
    async fn marks_outlive_the_process_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let open = || Apart::new(Arc::new(SqliteState::open(&path).unwrap()));
        let (mark, question) = (Partition::containing("examined/a/0"), Partition::containing("question/1"));
        let first = open();
        change(&first, &mark, &[], |records| records.save("examined/a/0", &7, i64::MAX)).await.unwrap();
        change(&first, &question, &[], |records| records.save("question/1", &1, i64::MAX)).await.unwrap();
        assert_eq!(load::<u8>(&first, "question/1", &question).await.unwrap(), Some(1));
        let next = open();
        assert_eq!(load::<u8>(&next, "examined/a/0", &mark).await.unwrap(), Some(7));
        assert_eq!(load::<u8>(&next, "question/1", &question).await.unwrap(), None);
    }
}
