//! Which snapshots are kept: those of tasks that can continue, of the newest tasks, and of the last days.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::task::{TaskState, TaskView};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// How long snapshots are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Those of the newest tasks, however old they are.
    pub tasks_min: usize,
    /// Those of every task that changed in the last days.
    pub days: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { tasks_min: 20, days: 30 }
    }
}

impl Retention {
    /// The snapshots to keep. Those of a task that isn't over are always kept.
    pub fn kept(&self, tasks: &[TaskView], now_ms: i64) -> BTreeSet<String> {
        let mut newest: Vec<&TaskView> = tasks.iter().collect();
        newest.sort_by_key(|view| std::cmp::Reverse(view.changed_ms));
        let since_ms = now_ms.saturating_sub(DAY_MS.saturating_mul(i64::from(self.days)));
        let is_kept = |(place, view): &(usize, &TaskView)| {
            let goes_on = !view.state.is_over() && view.state != TaskState::Failed;
            goes_on || *place < self.tasks_min || view.changed_ms >= since_ms
        };
        let kept = newest.into_iter().enumerate().filter(is_kept);
        kept.flat_map(|(_, view)| view.snapshots.iter().map(|(id, _)| id.clone())).collect()
    }
}

/// What pruning removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Snapshots.
    pub snapshots: usize,
    /// Pieces of content that no other snapshot has.
    pub pieces: usize,
    /// How much that was.
    pub bytes: u64,
}
