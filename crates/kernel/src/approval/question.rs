//! What a question is, what an answer to it is, and where it stands. Any terminal can answer: a question is a record in the shared state.

use regent_ledger::Digest;
use regent_policy::{Cover, RuleRef};
pub use regent_wire::{Answered, BoundFile, LedgerPlace, OpenQuestion, Traced};
use regent_wire::{Scope, TicketId, TokenId, Voice};

use crate::approval::posed::Posed;

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
    /// Who answered; empty where only the host reports it.
    pub by: Vec<String>,
    /// When the last of them answered.
    pub decided_at_ms: i64,
    /// How far it goes.
    pub scope: Scope,
    /// To which question.
    pub ticket: TicketId,
    /// Whose word it is.
    pub voice: Voice,
    /// The tokens that the answers were given with.
    pub(crate) tokens: Vec<TokenId>,
    /// The question as it was before this used it up, if it did.
    pub(crate) used_up: Option<Box<Posed>>,
}

/// A question that is about to be put.
#[derive(Debug, Clone)]
pub(crate) struct QuestionDraft {
    /// What an approval would be bound to.
    pub digest: Digest,
    /// The files that are part of it.
    pub files: Vec<BoundFile>,
    /// The call can reach further files by names that are made at run time, so an approval is for one run. This is
    /// what makes them.
    pub open_why: Option<String>,
    /// The call in a line, and whether that leaves out a part of it.
    pub summary: (String, bool),
    /// Why it is asked.
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
    /// Another program puts it to its own user; we don't see them read it.
    pub elsewhere: bool,
}

/// The caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asker {
    /// By the name that policy matches.
    pub name: String,
    /// In which session.
    pub session: String,
    /// The agent that an operator started, or the session where it is no agent: its open questions are counted together.
    pub root: String,
    /// It is a step of a task, which continues in another session.
    pub in_task: bool,
}
