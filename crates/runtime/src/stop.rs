//! Why a task doesn't go on now: for good, or until someone does something about it.

use regent_kernel::{Fault, Reason, TicketId};

use crate::context::{GuardError, PromptError, WindowError};

/// The work stopped before it was done.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// Someone cancelled it.
    #[error("it was cancelled")]
    Cancelled,
    /// Someone wants it to stop for now.
    #[error("it was interrupted")]
    Paused,
    /// A person has to agree first.
    #[error("a person has to agree first: {summary} (question `{ticket}`)")]
    Waiting {
        /// The question.
        ticket: TicketId,
        /// The call in a line.
        summary: String,
    },
    /// The budget or a rate is used up.
    #[error("there is not enough left: {0}")]
    Used(Reason),
    /// The model, or something else that may recover, failed for now.
    #[error("it does not work now: {0}")]
    Passing(String),
    /// Policy says no to what the work can't do without.
    #[error("denied: {0}")]
    Denied(Reason),
    /// More turns than it may take.
    #[error("it took {0} turns without an answer")]
    Turns(u32),
    /// It goes round in circles.
    #[error("it goes round in circles: {0}")]
    Circles(String),
    /// The model answers with something that is no answer.
    #[error("the model's answer can't be used: {0}")]
    Model(String),
    /// The plan is not one.
    #[error("the plan can't be used: {0}")]
    Plan(String),
    /// A step of a plan failed; what had been done was undone as far as the plan says how.
    #[error("step `{step}` of the plan failed: {why}")]
    Branch {
        /// Which step.
        step: String,
        /// Why.
        why: String,
    },
    /// The agent ended itself, or was ended.
    #[error("the agent has ended")]
    Ended,
    /// A replay came to a step that the ledger doesn't have.
    #[error(
        "the ledger has no step `{0}`: the replay differs from what was recorded, or the task was not finished"
    )]
    NotRecorded(String),
    /// The name of a step is too long.
    #[error("`{0}` can't be the name of a step")]
    Step(String),
    /// A prompt can't be made.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The conversation doesn't fit.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// The conversation must not be sent.
    #[error("the conversation was held back: {0}")]
    Guard(#[from] GuardError),
    /// The kernel could not do its part.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Stop {
    /// How the task can go on from here.
    pub fn outlook(&self) -> Outlook {
        match self {
            Self::Waiting { .. } | Self::Used(_) => Outlook::Later,
            Self::Passing(_) => Outlook::Again,
            Self::Paused => Outlook::Paused,
            Self::Cancelled | Self::Ended => Outlook::Cancelled,
            Self::Denied(_)
            | Self::Turns(_)
            | Self::Circles(_)
            | Self::Model(_)
            | Self::Plan(_)
            | Self::Branch { .. }
            | Self::NotRecorded(_)
            | Self::Step(_)
            | Self::Prompt(_)
            | Self::Window(_)
            | Self::Guard(_)
            | Self::Fault(_) => Outlook::Never,
        }
    }
}

/// What is wanted of a running task. It looks between two steps, so that no step is torn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To go on.
    GoOn,
    /// To stop for now.
    Pause,
    /// To stop for good.
    Cancel,
}

impl Wish {
    /// What it is to stop with, if it is to stop.
    pub(crate) fn stop(self) -> Option<Stop> {
        match self {
            Self::GoOn => None,
            Self::Pause => Some(Stop::Paused),
            Self::Cancel => Some(Stop::Cancelled),
        }
    }
}

/// How a task that stopped can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// By itself, after a pause.
    Again,
    /// When a person has answered, or given it more.
    Later,
    /// Whenever someone resumes it: it waits for nothing.
    Paused,
    /// Not: it was cancelled.
    Cancelled,
    /// Not as it is.
    Never,
}
