//! Pending questions.

use regent_ledger::{Digest, LaneId};
use regent_policy::{Cover, RuleRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TicketId;

/// Where a question stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerPlace {
    /// The lane.
    pub lane: LaneId,
    /// The entry in it.
    pub seq: u64,
}

/// A file that an approval is bound to: if it holds something else when the call is made, the approval doesn't count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoundFile {
    /// Its path in the workspace, with every link followed.
    pub path: String,
    /// The digest of its content when the question was put.
    pub sha256: Digest,
}

/// A pending question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenQuestion {
    /// Its id.
    pub id: TicketId,
    /// What an approval is bound to: the final call with all of its arguments, who makes it, where, and the files below.
    #[serde(default)]
    pub digest: Option<Digest>,
    /// The files that it is bound to.
    #[serde(default)]
    pub files: Vec<BoundFile>,
    /// The approval is for one run: the call can reach further files by names that are made at run time, and the approval is bound to the
    /// whole workspace; or the call covers whole folders, and the approval is bound to everything in them.
    #[serde(default)]
    pub open_names: bool,
    /// What it is in the call that makes such names, or which folders it covers, with how many entries.
    #[serde(default)]
    pub open_why: Option<String>,
    /// The call in a line.
    pub summary: String,
    /// The line leaves out a part of the call.
    #[serde(default)]
    pub summary_cut: bool,
    /// Why it is asked.
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
    pub intent: Option<LedgerPlace>,
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

/// How often a reviewer was asked, and how they answered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Attention {
    /// Questions put within the last hour.
    pub asked_hour: u32,
    /// And within the last day.
    pub asked_day: u32,
    /// Answers of this person within the last hour.
    pub answered_hour: u32,
    /// And within the last day.
    pub answered_day: u32,
    /// The day's approval rate, in per cent.
    pub yes_percent_day: Option<u8>,
    /// How long this person took to decide, in the middle.
    pub decide_ms_median: Option<u64>,
    /// Yes within the last hour that came faster than the question can be read.
    pub hasty_hour: u32,
    /// Yes in a row, the last hour's, with no no in between.
    pub yes_in_a_row: u32,
    /// How full the meter is. At 100 an approval is `once` only and has to wait until the question can have been read.
    pub percent: u8,
}

impl Attention {
    /// Whether the meter is full.
    pub fn is_worn(&self) -> bool {
        self.percent >= 100
    }
}

#[cfg(test)]
mod tests {
    use super::OpenQuestion;

    /// A question with the least and one with the most.
    const WRITTEN: &str = include_str!("question/written.jsonl");

    #[test]
    fn a_question_travels_byte_for_byte() {
        assert_eq!(WRITTEN.lines().count(), 2);
        for line in WRITTEN.lines() {
            let question: OpenQuestion = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&question).unwrap(), line);
        }
    }
}
