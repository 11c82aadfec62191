//! The states of a task.
//!
//! ```text
//! Initialized → Pending → Running → Completed ──────────────→ Finalized
//!                  ↑        │  ↑                                  ↑
//!                  └────────┤  └── Retrying ← Failed              │
//!                           ├─────────────────↑                   │
//!                           └─────────────→ Cancelled ────────────┘
//! ```
//!
//! Running goes back to Pending where a task waits for an approval or for a budget: nothing has failed, and nothing runs.

pub use regent_wire::event::TaskState;

/// Whether a transition to another state is valid. Running to running is a crash and a resume.
pub(crate) fn may_become(state: TaskState, next: TaskState) -> bool {
    match state {
        TaskState::Initialized => {
            matches!(next, TaskState::Pending | TaskState::Running | TaskState::Cancelled)
        }
        TaskState::Pending => matches!(next, TaskState::Running | TaskState::Cancelled),
        TaskState::Running => matches!(
            next,
            TaskState::Running
                | TaskState::Pending
                | TaskState::Completed
                | TaskState::Failed
                | TaskState::Cancelled
        ),
        TaskState::Failed => matches!(next, TaskState::Retrying | TaskState::Cancelled),
        TaskState::Retrying => matches!(next, TaskState::Running | TaskState::Cancelled),
        TaskState::Completed | TaskState::Cancelled => next == TaskState::Finalized,
        TaskState::Finalized => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_leads_to_the_end_and_the_end_leads_nowhere() {
        for start in TaskState::ALL {
            let mut reached = vec![start];
            let mut at = 0;
            while let Some(state) = reached.get(at).copied() {
                for next in TaskState::ALL {
                    if may_become(state, next) && !reached.contains(&next) {
                        reached.push(next);
                    }
                }
                at += 1;
            }
            assert!(reached.contains(&TaskState::Finalized), "{start}");
        }
        assert!(TaskState::ALL.iter().all(|next| !may_become(TaskState::Finalized, *next)));
        assert!(!may_become(TaskState::Completed, TaskState::Running));
    }
}
