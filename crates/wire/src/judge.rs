//! Messages of `regent judge`, which decides for agents that other programs run. `docs/judge.md` describes the protocol.
//!
//! A host sends one [`JudgeMessage`] a line and gets one [`JudgeAnswer`] a line. Unknown fields of a message are errors: a misspelt `store` or
//! `trusted` would leave out what it was meant to say. Hosts ignore fields of an answer that they don't know.

use std::collections::BTreeMap;

use regent_identity::AgentId;
use regent_policy::Class;
use regent_provenance::Declared;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Measured, Version, result};

const VERSION: u64 = 1;

/// A host's request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum JudgeMessage {
    /// A session begins, narrows what it may do, or comes to the user's next turn.
    Begin {
        /// The session's name.
        session: String,
        /// The user's request.
        #[serde(default)]
        prompt: String,
        /// The tools that the host performs.
        #[serde(default)]
        #[schemars(with = "Option<BTreeMap<String, Declared>>")]
        tools: Value,
        /// What a planner that saw nothing but the request derived from it: `tools`, `plan`.
        #[serde(default)]
        trusted: Value,
        /// Points of a manifest that the host sees to itself.
        #[serde(default)]
        mediates: Vec<String>,
        /// The host performs a call with the arguments that policy gives it.
        #[serde(default)]
        applies_changes: bool,
        /// Benchmarks name the suite that a task is of. It decides nothing.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        suite: Value,
        /// Which version this is.
        #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
        v: Version<VERSION>,
    },
    /// May this call be made?
    Decide {
        /// In which session.
        session: String,
        /// Which call.
        call: JudgeCall,
        /// What it was computed from, if the host runs a program.
        #[serde(default)]
        derived_from: Value,
        /// The host keeps the result from its agent.
        #[serde(default)]
        quarantined: bool,
        /// What the host has measured of its agent.
        #[serde(default)]
        measured: Option<Measured>,
        /// Which version this is.
        #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
        v: Version<VERSION>,
    },
    /// Read a typed value out of a text that the host keeps from its agent.
    Read {
        /// In which session.
        session: String,
        /// What to read.
        read: JudgeRead,
        /// Which version this is.
        #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
        v: Version<VERSION>,
    },
    /// The result of a call.
    Observe {
        /// In which session.
        session: String,
        /// Which call, as it was judged.
        call: JudgeCall,
        /// What came back.
        output: JudgeReport,
        /// What it did with a store of the host's.
        #[serde(default)]
        store: Value,
        /// Which version this is.
        #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
        v: Version<VERSION>,
    },
    /// The session is over.
    End {
        /// Which session.
        session: String,
        /// Which version this is.
        #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
        v: Version<VERSION>,
    },
}

impl JudgeMessage {
    /// The session that it is about.
    pub fn session(&self) -> &str {
        match self {
            Self::Begin { session, .. }
            | Self::Decide { session, .. }
            | Self::Read { session, .. }
            | Self::Observe { session, .. }
            | Self::End { session, .. } => session,
        }
    }

    /// Whether it reports what a call wrote into a store or read from one.
    pub fn names_store(&self) -> bool {
        matches!(self, Self::Observe { store, .. } if !store.is_null())
    }
}

/// A call that the host would make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeCall {
    /// The host's name for it.
    pub id: Value,
    /// Which tool.
    pub tool: String,
    /// With what.
    #[serde(default)]
    pub args: Value,
}

/// A text that the host keeps from its agent, and what to read out of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeRead {
    /// The host's name for it.
    pub id: Value,
    /// The arguments of the tool that reads.
    #[serde(flatten)]
    pub args: Map<String, Value>,
}

/// The result of a call that the host has made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeReport {
    /// As text.
    #[serde(default)]
    pub text: Value,
    /// As structured data.
    #[serde(default)]
    pub data: Value,
    /// What went wrong, if it did.
    #[serde(default)]
    pub error: Value,
}

/// The answer to a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum JudgeAnswer {
    /// To `decide`, also where the message is refused.
    Decision(JudgeDecision),
    /// To any other message that is refused.
    Refused {
        /// Why.
        error: String,
    },
    /// To `read`.
    Value(JudgeValue),
    /// To `observe`.
    Observed(JudgeObserved),
    /// To the first line of a connection.
    Authenticated {
        /// The subject of the token.
        authenticated: JudgeCaller,
    },
    /// To `begin`; and to `end`, without any field.
    Begun(Box<JudgeBegun>),
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum JudgeDecision {
    /// Yes.
    Allow {
        /// The arguments to make it with, if policy changed them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<Value>,
        /// Its number in the ledger.
        intent: u64,
        /// Empty.
        reason: String,
    },
    /// Not before the user has agreed.
    Ask {
        /// The id of the first call of the same cause that waits, if this isn't it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked_with: Option<Value>,
        /// A host can present calls of one cause as one question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
        /// Its number in the ledger.
        intent: u64,
        /// The call in a line.
        question: String,
        /// Why the user is asked, followed by the text of others.
        reason: String,
        /// The rule that asks.
        rule: String,
    },
    /// No.
    Deny {
        /// Stable code, if policy says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Why the message was refused, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Its number in the ledger, if it is there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        intent: Option<u64>,
        /// Why.
        reason: String,
    },
}

impl JudgeDecision {
    /// A refusal of a message that can't be judged.
    pub fn refused(why: &str) -> Self {
        Self::Deny { code: None, error: Some(why.to_owned()), intent: None, reason: why.to_owned() }
    }
}

/// What a session begins with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeBegun {
    /// The agent that the host is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Tools whose definition isn't what it was in earlier sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Descriptions that speak to the model rather than about the tool, by tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flagged: BTreeMap<String, Vec<String>>,
    /// Who proposed steps, if a model was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planner: Option<PlannerReport>,
    /// What the kernel says of the request.
    #[serde(flatten)]
    pub request: Option<result::Begun>,
    /// Tools whose declared labels can't be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// What became of asking a model for steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannerReport {
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Which model.
    pub model: String,
    /// How many steps it proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<u64>,
}

/// A report was accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeObserved {
    /// Its number in the ledger.
    pub outcome: u64,
    /// What the host may pass on, if policy changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Why the host may pass on nothing, if it may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

/// A value that was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeValue {
    /// Only the beginning of the text was read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Its number in the ledger.
    pub outcome: u64,
    /// The value; null if the text doesn't have it.
    #[serde(deserialize_with = "present")]
    pub value: Value,
}

/// A value that must be present, even if it is null.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Value::deserialize(deserializer)
}

/// The subject of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeCaller {
    /// What kind of caller it is.
    pub class: Class,
    /// The display name.
    pub name: String,
}

#[cfg(test)]
mod tests;
