//! Why a task doesn't continue now: for good, or until someone does something about it.

use regent_kernel::{Fault, Reason, Ticket, TicketId};

use crate::context::{GuardError, PromptError, WindowError};
use crate::door::is_not_now;

/// The work stopped before it was done.
#[derive(Debug, thiserror::Error)]
pub enum StopCause {
    /// Someone cancelled it.
    #[error("it was cancelled")]
    Cancelled,
    /// Someone wants it to stop for now.
    #[error("it was interrupted")]
    Paused,
    /// The person has said more: the task begins another run, which works on that.
    #[error("it was told more")]
    Told,
    /// An approval is needed first.
    #[error("{}", waits(last, *calls, summary))]
    Waiting {
        /// The question about the call that comes next.
        ticket: TicketId,
        /// The last question that was put with it. An answer to that one answers all of them.
        last: TicketId,
        /// How many calls such an answer is for.
        calls: usize,
        /// The call that comes next in a line.
        summary: String,
    },
    /// The budget or a rate is used up.
    #[error("budget exhausted: {0}")]
    Used(Reason),
    /// The model, or something else that may recover, failed for now.
    #[error("temporary failure: {0}")]
    Passing(String),
    /// The model can't be used for now, however often it is asked. It may work later, or at a time that its provider named.
    #[error("the model can't be used now: {why}; {}", when(.at_ms))]
    Unavailable {
        /// The provider's last error.
        why: String,
        /// Not before this, in milliseconds since 1970.
        at_ms: Option<i64>,
    },
    /// The provider refuses the question, and would refuse it again.
    #[error("the model can't be called: {0}")]
    Refused(String),
    /// Policy says no to what the work can't do without.
    #[error("denied: {0}")]
    Denied(Reason),
    /// More turns than it may take.
    #[error("it took {0} turns without an answer")]
    Turns(u32),
    /// It goes round in circles.
    #[error("it is in a loop: {0}")]
    Circles(String),
    /// The model answers with something that is no answer.
    #[error("the model's answer is invalid: {0}")]
    Model(String),
    /// The plan is not one.
    #[error("the plan is invalid: {0}")]
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
    #[error("`{0}` is not a valid step name")]
    Step(String),
    /// A prompt can't be made.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// The conversation doesn't fit.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// The conversation must not be sent.
    #[error("the conversation was not sent: {0}")]
    Guard(#[from] GuardError),
    /// The kernel could not do its part.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Ticket> for StopCause {
    fn from(Ticket { id, summary, .. }: Ticket) -> Self {
        Self::Waiting { ticket: id.clone(), last: id, calls: 1, summary }
    }
}

impl StopCause {
    /// What a denial stops the task with, whatever was called: the agent is over, or time or money can change the answer. None if the task can
    /// go on without the call.
    pub(crate) fn of_denial(reason: &Reason) -> Option<Self> {
        match reason.code.as_ref() {
            "agent.ended" => Some(Self::Ended),
            _code => is_not_now(reason).then(|| Self::Used(reason.clone())),
        }
    }

    /// How the task can continue from here.
    pub fn outlook(&self) -> Outlook {
        match self {
            Self::Waiting { .. } | Self::Used(_) | Self::Unavailable { .. } => Outlook::Later,
            Self::Passing(_) | Self::Told => Outlook::Again,
            Self::Paused => Outlook::Paused,
            Self::Cancelled | Self::Ended => Outlook::Cancelled,
            Self::Denied(_)
            | Self::Refused(_)
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

impl StopCause {
    /// From when on the task can continue without anybody, if that is a matter of time.
    pub(crate) fn until_ms(&self) -> Option<i64> {
        if let Self::Unavailable { at_ms, .. } = self { Some(at_ms.unwrap_or(0)) } else { None }
    }

    /// The question that it waits for.
    pub(crate) fn question(&self) -> Option<String> {
        if let Self::Waiting { ticket, .. } = self { Some(ticket.to_string()) } else { None }
    }
}

/// The id is the one that answers all of them, so that nobody gets two.
fn waits(last: &TicketId, calls: usize, summary: &str) -> String {
    match calls {
        0 | 1 => format!("a call waits for your approval: {summary} (question `{last}`)"),
        calls => {
            format!("{calls} calls wait for your approval (question `{last}`); the next one is: {summary}")
        }
    }
}

fn when(at_ms: &Option<i64>) -> String {
    at_ms.map_or_else(|| "resume it later".to_owned(), |at_ms| format!("resume at {}", utc(at_ms)))
}

/// A time in UTC, to the second.
pub fn utc(ms: i64) -> String {
    let (days, second) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000) / 1_000);
    // Civil date from days since 1970, counted in eras of 400 years that start on 1 March.
    let shifted = days.saturating_add(719_468);
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

/// What is wanted of a running task. It looks between two steps, so that no step is torn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopRequest {
    /// To continue.
    GoOn,
    /// To begin another run, with what the person has said meanwhile.
    Hear,
    /// To stop for now.
    Pause,
    /// To stop for good.
    Cancel,
}

impl StopRequest {
    /// What it is to stop with, if it is to stop.
    pub(crate) fn stop(self) -> Option<StopCause> {
        match self {
            // What was said is heard between two turns; a turn that has begun is finished under the grants that it began with.
            Self::GoOn | Self::Hear => None,
            Self::Pause => Some(StopCause::Paused),
            Self::Cancel => Some(StopCause::Cancelled),
        }
    }
}

/// How a task that stopped can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// By itself, after a pause.
    Again,
    /// When a reviewer has answered, or raised its budget.
    Later,
    /// Whenever someone resumes it: it waits for nothing.
    Paused,
    /// Not: it was cancelled.
    Cancelled,
    /// Not as it is.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d7_a_stop_says_when_to_resume() {
        let stop =
            |at_ms| StopCause::Unavailable { why: "`p/m`: it answered 429: slow down".to_owned(), at_ms };
        let said = stop(Some(951_782_400_000)).to_string();
        assert_eq!(
            said,
            "the model can't be used now: `p/m`: it answered 429: slow down; resume at 2000-02-29 00:00:00Z"
        );
        assert!(stop(None).to_string().ends_with("; resume it later"));
        assert_eq!((stop(None).outlook(), stop(None).until_ms()), (Outlook::Later, Some(0)));
    }
}
