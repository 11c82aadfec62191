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
//! Running goes back to Pending where a task waits for an approval or for a budget: nothing has failed, and nothing runs. A task that has
//! ended with an answer goes back there too when the person says more.

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
        TaskState::Completed => matches!(next, TaskState::Finalized | TaskState::Pending),
        TaskState::Cancelled => next == TaskState::Finalized,
        // Whether it may be taken up again is a matter of how it ended; see `Runtime::say`.
        TaskState::Finalized => next == TaskState::Pending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_leads_to_the_end_and_only_more_words_lead_on_from_there() {
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
        let after = TaskState::ALL.into_iter().filter(|next| may_become(TaskState::Finalized, *next));
        assert_eq!(after.collect::<Vec<_>>(), [TaskState::Pending]);
        assert!(!may_become(TaskState::Completed, TaskState::Running));
    }
}
