//! Replies: what an operation comes to, as it travels. The kernel's own replies hold labelled output, which doesn't leave the process.
//!
//! Version 1 is what the control socket has always spoken. Fields are added to it; none is renamed or taken away.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_ledger::Receipt;
use regent_policy::Label;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::DoubtEffect;
use crate::result::{self, ResultError};
use crate::{OpenQuestion, Spent, Status, TicketId};

/// What an operation comes to. Denials and pending approvals are replies; a fault is a failure of Regent itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It was done.
    Done(Box<Outcome>),
    /// Policy, or the kernel's own rules, say no.
    Denied(Denial),
    /// An approval is needed first.
    Pending(Box<Ticket>),
    /// A failure of the kernel itself.
    Fault(Fault),
}

/// The outcome of a call that was allowed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReplyOutcome")]
pub struct Outcome {
    /// What came back: as text where it is text.
    pub output: Output,
    /// Where it came from and how secret it is.
    pub label: Label,
    /// How it ended, as the ledger has it.
    pub status: Status,
    /// Where the intent is in the ledger.
    pub intent: Receipt,
    /// Where the outcome is in the ledger.
    pub receipt: Receipt,
    /// What it really used.
    #[serde(default)]
    pub spent: Spent,
    /// What the executor reports of how it ran, as the ledger has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obtained: Option<Value>,
    /// More came back than the grant allowed; the rest was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// What policy wants the caller to hear although it allowed the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Reason>,
}

impl Outcome {
    /// The result of the operation.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ResultError> {
        let output = self.output.bytes().map_err(ResultError::Unreadable)?;
        result::read(&self.status, &output)
    }
}

/// Bytes in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// They were UTF-8.
    Text(String),
    /// They were not.
    Base64(String),
}

impl Output {
    /// Text if the bytes are UTF-8, base64 otherwise.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes)
            .map_or_else(|binary| Self::Base64(STANDARD.encode(binary.as_bytes())), Self::Text)
    }

    /// The bytes themselves; an error says why there are none.
    pub fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64(text) => STANDARD.decode(text).map_err(|error| error.to_string()),
        }
    }
}

/// Why a call is denied, or what an allow comes with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Stable code.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// The rule, if one decided.
    pub rule: Option<String>,
    /// What to do about it.
    pub help: Option<String>,
}

impl From<regent_policy::Reason> for Reason {
    fn from(reason: regent_policy::Reason) -> Self {
        let regent_policy::Reason { code, message, rule, help } = reason;
        Self { code: code.into_owned(), message, rule: rule.map(|rule| rule.to_string()), help }
    }
}

/// A denial, and its entry in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Denial {
    /// Why, by which rule, and what to do about it.
    #[serde(flatten)]
    pub reason: Reason,
    /// Where the denied attempt is in the ledger.
    pub intent: Receipt,
}

/// What the caller gets while an approval is pending.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ticket {
    /// The question's id.
    pub id: TicketId,
    /// The call in a line.
    pub summary: String,
    /// The rule that asks.
    pub rule: String,
    /// Why it asks.
    pub reason: String,
    /// Where it is in the ledger.
    pub intent: Receipt,
    /// All that the person should see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Box<OpenQuestion>>,
}

/// A failure of the kernel itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// Stable code.
    #[serde(default)]
    pub code: String,
    /// What broke.
    pub message: String,
    /// The call took effect all the same, and must not be repeated.
    #[serde(default)]
    pub happened: bool,
    /// Whether the call took effect: `unknown` where it can't be known.
    #[serde(default)]
    pub effect: DoubtEffect,
}

#[cfg(test)]
mod tests;
