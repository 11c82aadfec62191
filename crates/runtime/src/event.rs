//! What is told while a task runs, for a live view. The ledger is what happened; these are only news, and a slow reader misses some.

use regent_kernel::{Budget, Channel, Spent, TaskId};
use serde::Serialize;
use tokio::sync::broadcast;

use crate::task::TaskState;

/// How many events wait for a slow reader before it misses the oldest.
const EVENTS_WAITING_MAX: usize = 128;
/// How much of a text an event shows.
const SHOWN_CHARS_MAX: usize = 2_000;

/// Something that happened in a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The task is in another state.
    State {
        /// Which task.
        task: TaskId,
        /// The state it is in now.
        state: TaskState,
        /// Why, if that needs saying.
        why: Option<String>,
    },
    /// There is a plan.
    Plan {
        /// Its steps: name and goal, in the order in which they can be done.
        steps: Vec<(String, String)>,
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
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        anew: bool,
    },
    /// The model said something.
    Said {
        /// At which step.
        step: String,
        /// What, shortened.
        text: String,
        /// Which model answered.
        model: String,
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
    /// A tool says something while it runs. Of a tool that says much, this is the beginning.
    Output {
        /// At which step.
        step: String,
        /// Where it says it.
        channel: Channel,
        /// The next piece of text.
        text: String,
    },
    /// The verdict on a call, and how it ended.
    Verdict {
        /// At which step.
        step: String,
        /// `done`, `failed`, `denied`, `timed_out`, `cancelled` or `broke`.
        word: &'static str,
        /// The reason or the output, shortened.
        text: String,
        /// It was answered from the ledger.
        replayed: bool,
    },
    /// A person is asked.
    Asked {
        /// The question's id.
        ticket: String,
        /// The first question of the same cause, if it was put with that one: both can be answered together.
        #[serde(skip_serializing_if = "Option::is_none")]
        asked_with: Option<String>,
        /// The call in a line.
        summary: String,
        /// Why it is asked.
        reason: String,
        /// The text of others behind it.
        #[serde(skip_serializing_if = "Option::is_none")]
        quote: Option<String>,
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
}

/// Where events go. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(EVENTS_WAITING_MAX))
    }
}

impl Events {
    /// Notifies listeners, if any.
    pub fn tell(&self, event: Event) {
        let _nobody_listens = self.0.send(event).is_err();
    }

    /// Whether anybody listens.
    pub(crate) fn has_listeners(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// How many events the slowest listener hasn't taken.
    pub(crate) fn waiting(&self) -> usize {
        self.0.len()
    }

    /// Listens from now on.
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}

/// A text as an event shows it.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
