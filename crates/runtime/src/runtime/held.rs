//! Which journals the kernel holds for us: a task's own and those of the tasks it was forked from, for as long as one of them needs it.
//!
//! A journal is taken in once and let go when nobody needs it any more. Taking it in again under a task that runs, or letting it go under
//! a fork that still reads it, would make the kernel forget what was done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::{Fault, Kernel, TaskId};

use crate::task::TaskRecord;

/// How many need each journal.
#[derive(Debug, Default, Clone)]
pub(super) struct Held(Arc<Mutex<BTreeMap<TaskId, usize>>>);

/// The journals that one task needs; let go when this is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    held: Held,
    kernel: Kernel,
    tasks: Vec<TaskId>,
}

impl Held {
    /// Takes in the journals of tasks, all that are new in one reading of the ledger. Of a task that is only just being recorded there
    /// is none yet.
    pub(super) fn take(
        &self,
        kernel: &Kernel,
        records: &[&TaskRecord],
        just_begun: bool,
    ) -> Result<Vec<Hold>, Fault> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted: Vec<TaskId> = Vec::new();
        for record in records {
            let own = (!just_begun).then(|| record.task.clone());
            wanted.extend(record.ancestors.iter().map(|one| one.task.clone()).chain(own));
        }
        wanted.retain(|task| !counts.contains_key(task));
        wanted.sort();
        wanted.dedup();
        // Under the lock: nobody may call at a step before what was done there is known.
        if !wanted.is_empty() {
            kernel.adopt(&wanted)?;
        }
        let mut holds = Vec::new();
        for record in records {
            let tasks: Vec<TaskId> =
                record.ancestors.iter().map(|one| one.task.clone()).chain([record.task.clone()]).collect();
            for task in &tasks {
                let count = counts.entry(task.clone()).or_default();
                *count = count.saturating_add(1);
            }
            holds.push(Hold { held: self.clone(), kernel: kernel.clone(), tasks });
        }
        Ok(holds)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut counts = self.held.0.lock().unwrap_or_else(PoisonError::into_inner);
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
