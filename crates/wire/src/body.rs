//! The bodies of ledger entries: one writer, one reader.
//!
//! Fields are declared in the order of canonical JSON, so that writing one sorts nothing. Text borrows: a writer from the call, a
//! reader from the entry. What older versions of Regent did not write is optional. Fields that a reader doesn't know are left alone;
//! what a reader must not overlook gets a new version, and a newer version than this one knows is an error ([`BodyError::Newer`]).

mod agent;
mod intent;
mod kernel;
mod outcome;
#[cfg(test)]
mod tests;

use regent_ledger::{Entry, EntryKind, LaneId};
use serde::Deserialize;
use serde_json::Value;

pub use agent::{AgentBody, AgentEnd, AgentEvent, BySignal, Ended, Slowed, Spawned, Stopped};
pub use intent::{
    ApprovedBody, CallerBody, Decision, IntentBody, QuestionRef, StepBody, ToolBody, VerdictBody,
};
pub use kernel::{InUse, KernelBody, KernelState, PolicyBody, RemovalBody, RemovalGroup};
pub use outcome::{
    Channel, Charged, Delivery, DoubtEffect, DoubtMark, DoubtNext, EndStatus, InDoubtBody, OutcomeBody,
};

/// Why the body of an entry can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// A newer Regent wrote it.
    #[error("{what} has version {version}, and this Regent reads versions up to {known}; update Regent")]
    Newer {
        /// What it is, e.g. `an intent`.
        what: &'static str,
        /// Its version.
        version: u64,
        /// The newest version that is known here.
        known: u64,
    },
    /// It isn't what its kind says.
    #[error("{what} can't be read: {why}")]
    Malformed {
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

impl BodyError {
    /// Whether a newer Regent wrote it.
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Newer { .. })
    }
}

/// What the body of an entry says.
#[derive(Debug, Clone, PartialEq)]
pub enum EntryBody<'a> {
    /// A call was judged.
    Intent(Box<IntentBody<'a>>),
    /// What became of a call.
    Outcome(Box<OutcomeBody<'a>>),
    /// A call whose end was not recorded.
    InDoubt(InDoubtBody<'a>),
    /// Something in an agent's life.
    Agent(Box<AgentBody<'a>>),
    /// Another policy is in force.
    Policy(PolicyBody<'a>),
    /// The kernel changed its state, or removed data that is no longer kept.
    Kernel(Box<KernelBody<'a>>),
    /// What the ledger writes for itself. Its bodies are in `FORMAT.md`, and the ledger reads them.
    Internal,
}

impl<'a> EntryBody<'a> {
    /// Reads the body of an entry.
    pub fn read(entry: &'a Entry) -> Result<Self, BodyError> {
        let body = &entry.body;
        Ok(match entry.kind {
            EntryKind::Intent => Self::Intent(Box::new(IntentBody::parse(body)?)),
            EntryKind::Outcome if DoubtMark::is_in(body) => Self::InDoubt(InDoubtBody::parse(body)?),
            EntryKind::Outcome => Self::Outcome(Box::new(OutcomeBody::parse(body)?)),
            EntryKind::Agent => Self::Agent(Box::new(AgentBody::parse(body)?)),
            EntryKind::Policy => Self::Policy(PolicyBody::parse(body)?),
            EntryKind::Kernel => Self::Kernel(Box::new(KernelBody::parse(body)?)),
            // Answers are calls (`approval.answer`) since 0.1: no entry of this kind was ever written.
            EntryKind::Answer
            | EntryKind::Lane
            | EntryKind::Recovery
            | EntryKind::Key
            | EntryKind::Erase
            | EntryKind::Pack
            | EntryKind::Resume
            | EntryKind::Checkpoint => Self::Internal,
        })
    }

    /// The same, where one that is malformed counts as none. Only a crash or somebody else's hand leaves such a one, and each reader
    /// knows what is the worst that it can stand for.
    pub fn read_known(entry: &'a Entry) -> Result<Option<Self>, BodyError> {
        match Self::read(entry) {
            Ok(body) => Ok(Some(body)),
            Err(error @ BodyError::Newer { .. }) => Err(error),
            Err(BodyError::Malformed { .. }) => Ok(None),
        }
    }

    /// The place of the intent that an outcome, or a note of a call in doubt, belongs to.
    pub fn intent_place(&self, entry: &Entry) -> Option<(LaneId, u64)> {
        let (lane, seq) = match self {
            Self::Outcome(outcome) => (outcome.lane, outcome.intent),
            Self::InDoubt(note) => (note.lane, note.intent),
            Self::Intent(_) | Self::Agent(_) | Self::Policy(_) | Self::Kernel(_) | Self::Internal => {
                return None;
            }
        };
        Some((lane.unwrap_or(entry.lane), seq))
    }
}

/// A body of one kind.
trait Body<'a>: Deserialize<'a> {
    /// What it is, with its article.
    const WHAT: &'static str;
    /// The newest version of it.
    const VERSION: u64;

    /// Reads it. The version comes first: what a newer one means is not guessed at, even if all of its fields look familiar.
    fn parse(body: &'a Value) -> Result<Self, BodyError> {
        let malformed = |why: String| BodyError::Malformed { what: Self::WHAT, why };
        match body.get("v").map(Value::as_u64) {
            Some(Some(version)) if version > Self::VERSION => {
                Err(BodyError::Newer { what: Self::WHAT, version, known: Self::VERSION })
            }
            Some(None) => Err(malformed("its version is not a number".to_owned())),
            Some(Some(_)) | None => Self::deserialize(body).map_err(|error| malformed(error.to_string())),
        }
    }
}

macro_rules! bodies {
    ($($name:ident: $what:literal, $version:expr;)*) => {
        $(impl<'a> Body<'a> for $name<'a> {
            const WHAT: &'static str = $what;
            const VERSION: u64 = $version;
        }

        impl<'a> $name<'a> {
            /// Reads it from JSON.
            pub fn parse(body: &'a Value) -> Result<Self, BodyError> {
                Body::parse(body)
            }
        })*
    };
}

bodies! {
    IntentBody: "an intent", intent::VERSION;
    OutcomeBody: "an outcome", outcome::VERSION;
    InDoubtBody: "a note of a call in doubt", outcome::VERSION;
    AgentBody: "an entry of an agent's life", agent::VERSION;
    PolicyBody: "a change of policy", kernel::VERSION;
    KernelBody: "an entry of the kernel", kernel::VERSION;
}
