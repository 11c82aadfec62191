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
//! Running goes back to Pending where a task waits for a person or for a budget: nothing has failed, and nothing runs.

use serde::{Deserialize, Serialize};

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// It is recorded.
    Initialized,
    /// It waits for its turn, for a person, or for a budget.
    Pending,
    /// It runs; or it did when its process died, and can be resumed.
    Running,
    /// It has an answer.
    Completed,
    /// It has stopped without one.
    Failed,
    /// It will be run again after a pause.
    Retrying,
    /// Someone stopped it.
    Cancelled,
    /// Its agent has ended and nothing of it is held any more.
    Finalized,
}

impl TaskState {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Initialized,
        Self::Pending,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Retrying,
        Self::Cancelled,
        Self::Finalized,
    ];

    /// Whether a transition to another state is valid. Running to running is a crash and a resume.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Initialized => matches!(next, Self::Pending | Self::Running | Self::Cancelled),
            Self::Pending => matches!(next, Self::Running | Self::Cancelled),
            Self::Running => matches!(
                next,
                Self::Running | Self::Pending | Self::Completed | Self::Failed | Self::Cancelled
            ),
            Self::Failed => matches!(next, Self::Retrying | Self::Cancelled),
            Self::Retrying => matches!(next, Self::Running | Self::Cancelled),
            Self::Completed | Self::Cancelled => next == Self::Finalized,
            Self::Finalized => false,
        }
    }

    /// Whether it will never run again.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Finalized)
    }

    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Initialized => "initialized",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Retrying => "retrying",
            Self::Cancelled => "cancelled",
            Self::Finalized => "finalized",
        }
    }
}

impl std::fmt::Display for TaskState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
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
                    if state.may_become(next) && !reached.contains(&next) {
                        reached.push(next);
                    }
                }
                at += 1;
            }
            assert!(reached.contains(&TaskState::Finalized), "{start}");
        }
        assert!(TaskState::ALL.iter().all(|next| !TaskState::Finalized.may_become(*next)));
        assert!(!TaskState::Completed.may_become(TaskState::Running));
    }
}
