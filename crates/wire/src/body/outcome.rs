//! What became of a call.

use std::borrow::Cow;

use regent_ledger::{Digest, LaneId, PayloadRef};
use regent_policy::{Declassified, Label};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Spent, Status, Version};

pub(super) const VERSION: u64 = 1;

/// How a call ended, what it cost, and what really confined it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Outcome")]
pub struct OutcomeBody<'a> {
    /// Labels that rules have lowered: which rule, which fields.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub declassified: Cow<'a, [Declassified]>,
    /// What a reader was given while the call ran.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub delivered: Cow<'a, [Delivery]>,
    /// The place of its intent.
    pub intent: u64,
    /// The label of the output.
    #[serde(default)]
    pub label: Option<Label>,
    /// The lane of its intent: after a full disk the outcome can be in another one. Its own, if it doesn't say.
    #[serde(default)]
    pub lane: Option<LaneId>,
    /// What an agent has written that runs later: names of kinds of guarded files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Cow<'a, str>>,
    /// What the executor reports of how it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Cow<'a, Value>>,
    /// What was asked for.
    #[serde(borrow, default)]
    pub op: Cow<'a, str>,
    /// What came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PayloadRef>,
    /// In which session.
    #[serde(borrow, default)]
    pub session: Cow<'a, str>,
    /// What it is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Charged<'a>>,
    /// How it ended.
    pub status: Cow<'a, Status>,
    /// More came back than was allowed, and was cut.
    #[serde(default)]
    pub truncated: bool,
    /// Which version this is.
    #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
    pub v: Version<VERSION>,
}

/// What was delivered on one channel while a call ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// How much the reader was given.
    pub bytes: u64,
    /// Where it was written.
    pub channel: Channel,
    /// The digest of exactly that.
    pub digest: Digest,
    /// How much of it the outcome's output has.
    pub kept_bytes: u64,
}

/// Which of its outputs a call writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// The output proper: a program's standard output, the text of a model.
    Output,
    /// A program's standard error.
    Error,
    /// What a model thinks before it goes on.
    Reasoning,
}

impl Channel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Output, Self::Error, Self::Reasoning];
}

/// What a call is charged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Charged<'a> {
    /// Bytes sent to other machines.
    #[serde(default)]
    pub bytes_out: u64,
    /// Money, in millionths of a US dollar.
    #[serde(default)]
    pub money_microusd: u64,
    /// What it used more of than was set aside. It is charged in full.
    #[serde(default)]
    pub over: Vec<Cow<'a, str>>,
    /// Tokens of models.
    #[serde(default)]
    pub tokens: u64,
    /// Time on the wall clock.
    #[serde(default)]
    pub wall_ms: u64,
}

impl Charged<'_> {
    /// The amounts alone.
    pub fn spent(&self) -> Spent {
        let Self { bytes_out, money_microusd, tokens, wall_ms, over: _ } = *self;
        Spent { bytes_out, money_microusd, tokens, wall_ms }
    }
}

/// A call that a crash cut off, noted in the place of its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InDoubt")]
pub struct InDoubtBody<'a> {
    /// Whether it took effect.
    #[serde(default)]
    pub effect: DoubtEffect,
    /// Doing it twice is the same as doing it once.
    #[serde(default)]
    pub idempotent: bool,
    /// The place of its intent.
    pub intent: u64,
    /// The lane of its intent; its own, if it doesn't say.
    #[serde(default)]
    pub lane: Option<LaneId>,
    /// What may be done about it.
    #[serde(default)]
    pub next: DoubtNext,
    /// What was asked for.
    #[serde(borrow, default)]
    pub op: Cow<'a, str>,
    /// In which session.
    #[serde(borrow, default)]
    pub session: Cow<'a, str>,
    /// What tells it from an outcome.
    pub status: DoubtMark,
    /// Which version this is.
    #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
    pub v: Version<VERSION>,
}

/// What tells a note of a call in doubt from an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DoubtMark {
    /// Its end was not recorded.
    InDoubt,
}

impl DoubtMark {
    pub(super) fn is_in(body: &Value) -> bool {
        body.get("status").is_some_and(|status| status == "in_doubt")
    }
}

/// How a call ended, as far as the ledger knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EndStatus {
    /// It has an outcome.
    Ended(Status),
    /// It has a note that it is in doubt.
    InDoubt(DoubtMark),
}

impl EndStatus {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ended(status) => status.word(),
            Self::InDoubt(DoubtMark::InDoubt) => "in_doubt",
        }
    }
}

/// Whether a call in doubt took effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DoubtEffect {
    /// It did.
    Done,
    /// It did not.
    NotDone,
    /// It can't be known.
    #[default]
    Unknown,
}

/// What may be done about a call in doubt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DoubtNext {
    /// Its outcome is owed, nothing else.
    Record,
    /// It may be made again.
    Retry,
    /// A reviewer must decide.
    #[default]
    Ask,
}
