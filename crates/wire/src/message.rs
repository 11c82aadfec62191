//! Messages to and from a model, in the one form that every provider is translated to.

mod form;
mod part;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use form::Form;
pub use part::{Part, Reasoning};

/// One request to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inference {
    /// Which model, as `provider/name`; or `auto`, `auto:CLASS`, and the router chooses.
    pub model: String,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// The tools that the model may ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Offer>,
    /// How many tokens may come back.
    pub tokens_max: u64,
    /// How the answer is drawn.
    #[serde(default, skip_serializing_if = "Sampling::is_default")]
    pub sampling: Sampling,
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Form", into = "Form")]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What the turn is made of, in order.
    pub parts: Vec<Part>,
}

/// Who speaks in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The rules of the conversation.
    System,
    /// The user, or a program that acts for one.
    User,
    /// The model.
    Assistant,
    /// A tool that the model has asked for.
    Tool,
}

impl Role {
    /// The word that chat protocols and templates use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A model asks for a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolUse {
    /// The provider's name for this request, or ours where it has none.
    pub id: String,
    /// Which tool.
    pub tool: String,
    /// With what.
    pub args: Value,
}

/// The one field of arguments that were not JSON: the text as the model wrote it.
const RAW: &str = "_raw";
/// How much of such a text is kept.
const RAW_CHARS_MAX: usize = 4_000;

impl ToolUse {
    /// Arguments that can't be parsed, kept as received so that the model can learn of it.
    pub fn raw_args(text: &str) -> Value {
        let kept: String = text.chars().take(RAW_CHARS_MAX).collect();
        serde_json::json!({ RAW: kept })
    }

    /// The text of its arguments, if they were not JSON. Such a call is never made.
    pub fn unreadable(&self) -> Option<&str> {
        let fields = self.args.as_object().filter(|fields| fields.len() == 1)?;
        fields.get(RAW)?.as_str()
    }
}

/// A tool that a model may ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Its name in the catalogue.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input: Value,
}

/// How much a model thinks before it answers. Each model knows some of these words; the nearest is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Not at all, where that can be turned off.
    None,
    /// As little as it can.
    Minimal,
    /// Little.
    Low,
    /// As usual.
    Medium,
    /// Much.
    High,
    /// More than much.
    Xhigh,
    /// As much as it can.
    Max,
}

impl Effort {
    /// All of them, the least first.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// Sampling parameters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// 0 takes the likeliest token each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// For models that can repeat themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Texts that end the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The model must ask for a tool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub must_call: bool,
    /// JSON Schema that the answer must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

impl Sampling {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A model's answer: the output of a model call, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Completion {
    /// Which model really answered.
    pub model: String,
    /// Its turn.
    pub message: Message,
    /// Why it stopped.
    pub stop: StopReason,
    /// What it used.
    pub usage: ModelUsage,
    /// What redaction took out of the prompt, by placeholder (`[email:1]`), as far as the answer names it. Anyone who makes the calls
    /// that the model asks for puts it back where it stays on this machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub redacted: BTreeMap<String, String>,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The answer was complete.
    End,
    /// It asks for tools.
    ToolUse,
    /// It ran into `tokens_max`.
    Length,
    /// The provider would not continue.
    Refusal,
}

/// Tokens that a model used, as the provider counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelUsage {
    /// Input tokens that were not cached.
    pub input: u64,
    /// Read from the provider's cache.
    pub cached: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// Output tokens spent on reasoning.
    pub reasoning: u64,
}
