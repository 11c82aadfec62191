//! Who has agreed? Questions for a person, answers bound to one exact call, and how much attention there is left for them.
//!
//! A question is a record in the shared state, so that any terminal can answer it. A yes is for one digest of a call; finding it and
//! using it up is one step, so of two callers that race for it one gets it. Attention is a budget too: whoever says yes faster than anyone
//! can read, or yes after yes, is slowed down ([`Attention`]). No clock in here: the kernel says what time it is.

mod attention;
mod posed;
mod questions;
#[cfg(test)]
mod tests;

use regent_ledger::{Digest, LaneId};
use regent_policy::{Cover, RuleRef};
use serde::{Deserialize, Serialize};

pub use attention::Attention;
pub use posed::OPEN_MS_MAX;
pub use questions::{Consulted, Given, OPEN_MAX, Questions};

/// A question's id: short enough to type, random enough not to be guessed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TicketId(pub String);

impl std::fmt::Display for TicketId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "say")]
pub enum Answer {
    /// Yes: how often and how long.
    Approve {
        /// For what.
        scope: Scope,
        /// For how long.
        valid_ms: u64,
    },
    /// No. It also takes back a yes that hasn't been used up.
    Deny {
        /// Advice to the agent.
        because: Option<String>,
    },
}

/// How far a yes goes. Always for exactly the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One time.
    Once,
    /// As often as wanted in this session.
    Session,
    /// As often as wanted in this project.
    Project,
}

/// A yes that was found for a call, as the intent records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Approved {
    /// When it was asked.
    pub asked_at_ms: i64,
    /// How worn down whoever said it was, in per cent of what is borne; of several people the most.
    pub attention_percent: u8,
    /// Who said it.
    pub by: Vec<String>,
    /// When the last of them said it.
    pub decided_at_ms: i64,
    /// How far it goes.
    pub scope: Scope,
    /// To which question.
    pub ticket: TicketId,
    /// The question as it was before this used it up, if it did.
    #[serde(skip)]
    pub(crate) used_up: Option<Box<posed::Posed>>,
}

/// Where a question stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answered")]
pub enum Answered {
    /// Yes.
    Approved,
    /// No, and what to do instead.
    Denied {
        /// Advice to the agent.
        because: Option<String>,
    },
    /// Not enough people have agreed yet.
    Waiting {
        /// How many have.
        agreed: u8,
        /// How many must.
        needed: u8,
    },
    /// There is no such question, or not any more: used up or expired.
    Gone,
}

/// Where an argument of the call comes from, in words for the person. What others wrote is quoted escaped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// The argument.
    pub argument: String,
    /// Whether it chooses who or what is affected.
    pub sink: bool,
    /// `request`, `trusted`, `untrusted` or `nowhere`.
    pub origin: String,
    /// The same in words: which call, which field.
    pub from: String,
}

/// A place in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The lane.
    pub lane: LaneId,
    /// The entry in it.
    pub seq: u64,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Its id.
    pub id: TicketId,
    /// The call in a line.
    pub summary: String,
    /// Why a person is asked.
    pub reason: String,
    /// The rule that asks.
    pub rule: String,
    /// Where that rule is written; none if it is the kernel's own.
    #[serde(default)]
    pub rule_at: Option<RuleRef>,
    /// Where the arguments come from, as far as the agent works on a request.
    #[serde(default)]
    pub origins: Vec<Traced>,
    /// The smallest thing to write so that exactly this isn't asked again; none where no rule can lift the question.
    #[serde(default)]
    pub cover: Option<Cover>,
    /// Where the ledger has the attempt, with the whole of its arguments.
    #[serde(default)]
    pub intent: Option<Place>,
    /// Who wants to make the call.
    pub caller: String,
    /// In which session.
    pub session: String,
    /// In which project.
    pub project: String,
    /// How many different people have to agree.
    pub approvers: u8,
    /// Who has agreed so far.
    pub agreed: Vec<String>,
    /// Since when it waits.
    pub created_at_ms: i64,
    /// Until when it waits.
    pub expires_at_ms: i64,
    /// The least time that reading it takes.
    #[serde(default)]
    pub read_ms: u64,
    /// How much attention whoever looks at it has left; filled in for them.
    #[serde(default)]
    pub attention: Option<Attention>,
}

/// A question that is about to be put.
#[derive(Debug, Clone)]
pub struct Draft {
    /// What a yes would be bound to.
    pub digest: Digest,
    /// The call in a line.
    pub summary: String,
    /// Why a person is asked.
    pub reason: String,
    /// The rule that asks.
    pub rule: RuleRef,
    /// Where the arguments come from.
    pub origins: Vec<Traced>,
    /// The smallest thing that would cover the call.
    pub cover: Option<Cover>,
    /// How many different people have to agree.
    pub approvers: u8,
    /// Who asks.
    pub asker: Asker,
    /// Another program puts it to its own person, whom we don't see reading.
    pub elsewhere: bool,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// By the name that policy matches.
    pub name: String,
    /// In which session.
    pub session: String,
    /// It is a step of a task, which goes on in another session.
    pub in_task: bool,
}
