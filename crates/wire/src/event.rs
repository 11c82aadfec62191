//! Progress of a running task, for a live view. The ledger is the record; events may be lost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::body::Channel;
use crate::{Budget, Spent, TaskId, Version};

const VERSION: u64 = 1;

/// An event with the task that it is of: a line of `regent task run --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventLine {
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
    /// In which task; none if it concerns the reader alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Which version this is.
    #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
    pub v: Version<VERSION>,
}

impl EventLine {
    /// The line of an event.
    pub fn new(task: Option<&TaskId>, event: Event) -> Self {
        Self { event, task: task.cloned(), v: Version::CURRENT }
    }
}

/// Something that happened in a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The task is in another state.
    State {
        /// The state it is in now.
        state: TaskState,
        /// Why, if that needs saying.
        why: Option<String>,
    },
    /// There is a plan.
    Plan {
        /// Its steps, in the order in which they can be done.
        #[schemars(with = "Vec<(String, String)>")]
        steps: Vec<PlannedStep>,
    },
    /// A turn begins.
    Turn {
        /// The step's name in the journal.
        step: String,
    },
    /// The model says something, and this is how it goes on.
    Token {
        /// At which step.
        step: String,
        /// The next piece of text.
        text: String,
        /// The answer begins again: what came before is void.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        anew: bool,
    },
    /// The model thinks before it answers, and this is the next piece.
    Thought {
        /// At which step.
        step: String,
        /// The next piece of it.
        text: String,
    },
    /// The person's next message begins to be worked on: the goal, or a later one.
    Heard {
        /// The first turn that works on it.
        turn: u32,
        /// What, shortened.
        text: String,
    },
    /// The model returned text.
    Said {
        /// At which step.
        step: String,
        /// What, shortened.
        text: String,
        /// Which model answered.
        model: String,
    },
    /// The conversation neared the model's window, so that earlier turns were left out of it.
    Compacted {
        /// The step of the summary.
        step: String,
        /// How many turns were left out.
        turns: u64,
        /// About how many tokens the conversation had.
        tokens_before: u64,
        /// About how many it has now.
        tokens_after: u64,
        /// Why there is no summary of them, if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        no_summary: Option<String>,
    },
    /// A tool is called.
    Tool {
        /// At which step.
        step: String,
        /// Which tool.
        tool: String,
        /// With what, shortened.
        args: String,
    },
    /// A tool writes something while it runs. Of a tool that writes much, this is the beginning.
    Output {
        /// At which step.
        step: String,
        /// Which output it is.
        channel: Channel,
        /// The next piece of text.
        text: String,
    },
    /// The verdict on a call, and how it ended.
    Verdict {
        /// At which step.
        step: String,
        /// How it ended.
        word: CallEnd,
        /// The reason or the output, shortened.
        text: String,
        /// It was answered from the ledger.
        replayed: bool,
    },
    /// A question is put to a reviewer.
    Asked {
        /// The question's id.
        ticket: String,
        /// The first question of the same cause, if it was put with that one: both can be answered together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked_with: Option<String>,
        /// The call in a line.
        summary: String,
        /// Why it is asked.
        reason: String,
        /// The text of others behind it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quote: Option<String>,
    },
    /// What the agent has to do, by its own list: the whole list, each time that it changes.
    Todo {
        /// In its order.
        items: Vec<TodoItem>,
    },
    /// What the task has used so far, and what it may still use.
    Used {
        /// So far, all runs together.
        spent: Spent,
        /// What is left of the task's own budget.
        left: Budget,
    },
    /// A snapshot of the workspace was taken.
    Snapshot {
        /// Its id.
        id: String,
        /// After which step.
        step: String,
    },
    /// A snapshot of the workspace could not be taken: the task continues, and can't be rolled back to here.
    NoSnapshot {
        /// After which step.
        step: String,
        /// Why.
        why: String,
    },
    /// A reader was slow and has missed some events. The ledger has what happened.
    Missed {
        /// How many.
        count: u64,
    },
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// It is recorded.
    Initialized,
    /// It waits for its turn, for a reviewer, or for a budget.
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

/// A step of a plan. It travels as a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(String, String)", into = "(String, String)")]
pub struct PlannedStep {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub goal: String,
}

impl From<(String, String)> for PlannedStep {
    fn from((name, goal): (String, String)) -> Self {
        Self { name, goal }
    }
}

impl From<PlannedStep> for (String, String) {
    fn from(step: PlannedStep) -> Self {
        (step.name, step.goal)
    }
}

/// How a call of a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    /// As it should.
    Done,
    /// The tool says that it did not work.
    Failed,
    /// Policy or a reviewer denied it.
    Denied,
    /// Its time ran out.
    TimedOut,
    /// A signal or a shutdown stopped it.
    Cancelled,
    /// Something of ours broke.
    Broke,
}

impl CallEnd {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Broke => "broke",
        }
    }
}

/// Something that an agent has to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TodoItem {
    /// What, in its words.
    pub text: String,
    /// How far it is.
    pub state: TodoState,
}

/// How far something to do is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TodoState {
    /// Not begun.
    Open,
    /// Being done.
    Doing,
    /// Done.
    Done,
}

impl TodoState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Open, Self::Doing, Self::Done];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Doing => "doing",
            Self::Done => "done",
        }
    }
}

#[cfg(test)]
mod tests;
