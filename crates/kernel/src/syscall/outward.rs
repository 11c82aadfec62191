//! Replies as they leave the process: what `wire` says, without the labelled output that only this process can hold.

use regent_wire as wire;
use regent_wire::body::DoubtEffect;
use regent_wire::result::{self, ResultError};
use serde::de::DeserializeOwned;

use super::{Denial, Fault, Outcome, Reply};
use crate::approval::Ticket;

impl Outcome {
    /// The result of the operation; see [`regent_wire::result`].
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ResultError> {
        result::read(&self.status, self.output.bytes())
    }
}

impl From<Reply> for wire::Reply {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Done(outcome) => Self::Done(Box::new(outcome.into())),
            Reply::Denied(Denial { reason, intent }) => {
                Self::Denied(wire::Denial { reason: reason.into(), intent })
            }
            Reply::Pending(ticket) => Self::Pending(Box::new(ticket.into())),
        }
    }
}

impl From<Outcome> for wire::Outcome {
    fn from(outcome: Outcome) -> Self {
        let Outcome { output, status, intent, receipt, spent, obtained, truncated, warnings } = outcome;
        let label = output.label();
        let output = wire::Output::from_bytes(output.into_bytes());
        let warnings = warnings.into_iter().map(Into::into).collect();
        Self { output, label, status, intent, receipt, spent, obtained, truncated, warnings }
    }
}

impl From<Ticket> for wire::Ticket {
    fn from(ticket: Ticket) -> Self {
        let Ticket { id, summary, rule, reason, question, intent } = ticket;
        Self { id, summary, rule, reason, intent, question: Some(question) }
    }
}

impl Fault {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooDeep => "kernel.too_deep",
            Self::NotRunning(_) => "kernel.not_running",
            Self::Ledger(_) => "ledger.unwritable",
            Self::Unrecorded { .. } => "ledger.unrecorded",
            Self::Record(_) => "ledger.record",
            Self::Executor { .. } => "kernel.executor",
            Self::Read(_) | Self::Body(_) => "ledger.unreadable",
            Self::State(_) => "state.unusable",
            Self::Diverged { .. } => "task.diverged",
            Self::Erased(_) => "task.erased",
            Self::TornDown => "kernel.torn_down",
        }
    }

    /// Whether the call took effect.
    pub fn effect(&self) -> DoubtEffect {
        match self {
            Self::Unrecorded { .. } => DoubtEffect::Done,
            // The executor broke half-way, or the state or the ledger failed at a step that the fault doesn't name.
            Self::Executor { .. } | Self::TornDown | Self::State(_) | Self::Read(_) | Self::Body(_) => {
                DoubtEffect::Unknown
            }
            Self::TooDeep
            | Self::NotRunning(_)
            | Self::Ledger(_)
            | Self::Record(_)
            | Self::Diverged { .. }
            | Self::Erased(_) => DoubtEffect::NotDone,
        }
    }
}

impl From<&Fault> for wire::Fault {
    fn from(fault: &Fault) -> Self {
        let effect = fault.effect();
        let (code, message) = (fault.code().to_owned(), fault.to_string());
        Self { code, message, happened: effect == DoubtEffect::Done, effect }
    }
}
