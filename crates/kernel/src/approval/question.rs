//! What a question is, what an answer to it is, and where it stands. Any terminal can answer: a question is a record in the shared state.

use regent_ledger::{Digest, LaneId};
use regent_policy::{Cover, RuleRef};
use serde::{Deserialize, Serialize};

use crate::approval::attention::Attention;
use crate::approval::posed::Posed;

use regent_wire::{Scope, TicketId, Voice};

/// Who answers, where the system can't tell: inside a user namespace everybody can be any user. Such a name is one voice at most, and none
/// where several people have to agree.
pub const UNIDENTIFIED: &str = "unidentified (in a user namespace)";

/// An approval found for a call. The intent records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    /// When it was asked.
    pub asked_at_ms: i64,
    /// How full the approver's attention meter was, in per cent; the maximum of several people.
    pub attention_percent: u8,
    /// Who said it; nobody, where only the host says so.
    pub by: Vec<String>,
    /// When the last of them said it.
    pub decided_at_ms: i64,
    /// How far it goes.
    pub scope: Scope,
    /// To which question.
    pub ticket: TicketId,
    /// Whose word it is.
    pub voice: Voice,
    /// The question as it was before this used it up, if it did.
    pub(crate) used_up: Option<Box<Posed>>,
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

/// A file that an approval is bound to: if it holds something else when the call is made, the approval doesn't count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundFile {
    /// Its path in the workspace, with every link followed.
    pub path: String,
    /// The digest of what it held when the question was put.
    pub sha256: Digest,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Its id.
    pub id: TicketId,
    /// What an approval is bound to: the final call with all of its arguments, who makes it, where, and the files below.
    #[serde(default)]
    pub digest: Option<Digest>,
    /// The files that it is bound to.
    #[serde(default)]
    pub files: Vec<BoundFile>,
    /// The call can reach further files by names that are made at run time. The approval is bound to the whole workspace, for one run.
    #[serde(default)]
    pub open_names: bool,
    /// What it is in the call that makes such names.
    #[serde(default)]
    pub open_why: Option<String>,
    /// The call in a line.
    pub summary: String,
    /// The line leaves out a part of the call.
    #[serde(default)]
    pub summary_cut: bool,
    /// Why a person is asked.
    pub reason: String,
    /// The text of others behind it, quoted. None if there is none, or if it is confidential.
    #[serde(default)]
    pub quote: Option<String>,
    /// Questions with the same cause can be answered together: one caller, one rule, one source. None if the question stands alone.
    #[serde(default)]
    pub cause: Option<String>,
    /// Its place among the open questions of that cause, from 1. Later questions have higher numbers.
    #[serde(default)]
    pub number: u32,
    /// The first open question of that cause, if this isn't it.
    #[serde(default)]
    pub asked_with: Option<TicketId>,
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
    /// The attention meter of the reviewer who looks at it.
    #[serde(default)]
    pub attention: Option<Attention>,
}

/// A question that is about to be put.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// What an approval would be bound to.
    pub digest: Digest,
    /// The files that are part of it.
    pub files: Vec<BoundFile>,
    /// The call can reach further files by names that are made at run time, so an approval is for one run. This is
    /// what makes them.
    pub open_why: Option<String>,
    /// The call in a line, and whether that leaves out a part of it.
    pub summary: (String, bool),
    /// Why a person is asked.
    pub reason: String,
    /// The text of others behind it, quoted.
    pub quote: Option<String>,
    /// What it is asked for, if it can be answered together with others.
    pub cause: Option<String>,
    /// The rule that asks.
    pub rule: RuleRef,
    /// Where the arguments come from.
    pub origins: Vec<Traced>,
    /// The smallest thing that would cover the call.
    pub cover: Option<Cover>,
    /// How many different people have to agree.
    pub approvers: u8,
    /// The caller.
    pub asker: Asker,
    /// Another program puts it to its own person, whom we don't see reading.
    pub elsewhere: bool,
}

/// The caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asker {
    /// By the name that policy matches.
    pub name: String,
    /// In which session.
    pub session: String,
    /// The agent that a person started, or the session where it is no agent: whose open questions are counted together.
    pub root: String,
    /// It is a step of a task, which goes on in another session.
    pub in_task: bool,
}
