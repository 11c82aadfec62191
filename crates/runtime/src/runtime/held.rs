//! Which journals the kernel holds for us: a task's own and those of the tasks it was forked from, for as long as one of them needs it.
//!
//! A journal is taken in once and let go when nobody needs it any more. Taking it in again under a task that runs, or letting it go under
//! a fork that still reads it, would make the kernel forget what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_kernel::{Fault, Kernel, TaskId};

use crate::task::TaskRecord;

/// How many need each journal.
#[derive(Debug, Default, Clone)]
pub(super) struct HeldJournals {
    counts: Arc<Mutex<BTreeMap<TaskId, usize>>>,
    /// Held while journals are taken in: nobody may call at a step before what was done there is known.
    taking: Arc<tokio::sync::Mutex<()>>,
}

/// Whose journals are taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    /// The task is only just being recorded: there is none of its own yet.
    New,
    /// The task was locked and is about to run. Another process may have run it while a fork held its journal here.
    Run,
    /// The task is replayed, perhaps while it runs here.
    Replay,
}

/// The journals that one task needs; let go when this is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    held: HeldJournals,
    kernel: Kernel,
    tasks: Vec<TaskId>,
}

impl HeldJournals {
    /// Takes in the journals of tasks, all in one reading of the ledger.
    pub(super) async fn take(
        &self,
        kernel: &Kernel,
        records: &[&TaskRecord],
        taking: Taking,
    ) -> Result<Vec<Hold>, Fault> {
        let _turn = self.taking.lock().await;
        let mut wanted: BTreeSet<TaskId> = BTreeSet::new();
        let mut holds = Vec::new();
        for record in records {
            let mut tasks: Vec<TaskId> = record.ancestors.iter().map(|one| one.task.clone()).collect();
            let mut counts = self.counts();
            wanted.extend(tasks.iter().filter(|task| !counts.contains_key(*task)).cloned());
            match taking {
                Taking::New => kernel.adopt_new(&record.task),
                Taking::Run => drop(wanted.insert(record.task.clone())),
                Taking::Replay if counts.contains_key(&record.task) => {}
                Taking::Replay => drop(wanted.insert(record.task.clone())),
            }
            tasks.push(record.task.clone());
            for task in &tasks {
                let count = counts.entry(task.clone()).or_default();
                *count = count.saturating_add(1);
            }
            holds.push(Hold { held: self.clone(), kernel: kernel.clone(), tasks });
        }
        if !wanted.is_empty() {
            kernel.adopt(&wanted.into_iter().collect::<Vec<_>>()).await?;
        }
        Ok(holds)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<TaskId, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut counts = self.held.counts();
        for task in &self.tasks {
            let left = counts.get(task).map_or(0, |count| count.saturating_sub(1));
            if left == 0 {
                counts.remove(task);
                self.kernel.release(task);
            } else {
                counts.insert(task.clone(), left);
            }
        }
    }
}
