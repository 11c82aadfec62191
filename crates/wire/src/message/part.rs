//! What a message is made of, and what of it is text, a call, a result.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Message, Role, ToolUse};

/// What a call costs in tokens beside its own words.
const CALL_TOKENS: u64 = 8;
/// What an image costs at most at the resolutions that providers read by default, and a file beside its bytes.
const IMAGE_TOKENS: u64 = 5_000;
/// Characters of base64 for one token of what they encode: three bytes.
const PAYLOAD_CHARS: usize = 4;

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// An image.
    Image {
        /// Its format, e.g. `image/png`.
        media_type: String,
        /// Its bytes in base64.
        payload: String,
    },
    /// A document.
    File {
        /// Its format, e.g. `application/pdf`.
        media_type: String,
        /// Its name, for the model.
        name: String,
        /// Its bytes in base64.
        payload: String,
    },
    /// The model asks for a tool.
    ToolUse(ToolUse),
    /// A tool answers.
    ToolResult {
        /// The [`ToolUse::id`] that this answers.
        answers: String,
        /// What it answers: text, images and files.
        parts: Vec<Part>,
    },
    /// The model has thought.
    Reasoning(Reasoning),
}

/// What a model thought before it went on. It goes back only to the model that thought it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reasoning {
    /// The provider, as the settings name it.
    pub provider: String,
    /// The model, as the provider spells it.
    pub model: String,
    /// As far as the provider shows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What the provider wants back with it: a signature, or the thought itself, encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

impl Part {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Its words, if it has any.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image { .. }
            | Self::File { .. }
            | Self::ToolUse(_)
            | Self::ToolResult { .. }
            | Self::Reasoning(_) => None,
        }
    }

    /// At most so many tokens, as far as `of_text` counts from above.
    pub fn tokens(&self, of_text: &dyn Fn(&str) -> u64) -> u64 {
        let of_payload = |chars: usize| (chars / PAYLOAD_CHARS) as u64;
        match self {
            Self::Text { text } => of_text(text),
            Self::Image { .. } => IMAGE_TOKENS,
            Self::File { name, payload, .. } => {
                IMAGE_TOKENS.saturating_add(of_text(name)).saturating_add(of_payload(payload.len()))
            }
            Self::ToolUse(call) => of_text(&call.tool)
                .saturating_add(of_text(&call.args.to_string()))
                .saturating_add(CALL_TOKENS),
            Self::ToolResult { parts, .. } => {
                parts.iter().fold(0, |sum, part| sum.saturating_add(part.tokens(of_text)))
            }
            // A signature carries the thought that the text may only sum up.
            Self::Reasoning(Reasoning { text, opaque, .. }) => {
                let opaque = opaque.as_ref().map_or(0, |opaque| of_payload(opaque.to_string().len()));
                of_text(text).max(opaque)
            }
        }
    }
}

impl Message {
    /// A message with one text.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { role, parts: if text.is_empty() { Vec::new() } else { vec![Part::Text { text }] } }
    }

    /// What a model says, and the tools that it asks for.
    pub fn asking(text: impl Into<String>, calls: impl IntoIterator<Item = ToolUse>) -> Self {
        let mut message = Self::new(Role::Assistant, text);
        message.parts.extend(calls.into_iter().map(Part::ToolUse));
        message
    }

    /// The result of a tool.
    pub fn answer(to: impl Into<String>, text: impl Into<String>) -> Self {
        let Self { role, parts } = Self::new(Role::Tool, text);
        Self { role, parts: vec![Part::ToolResult { answers: to.into(), parts }] }
    }

    /// All its text, that of tools included, without reasoning.
    pub fn text(&self) -> Cow<'_, str> {
        let mut texts = self.texts();
        let first = texts.next().unwrap_or_default();
        texts.fold(Cow::Borrowed(first), |all, more| all + more)
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().flat_map(|part| {
            let within = if let Part::ToolResult { parts, .. } = part { parts.as_slice() } else { &[] };
            part.as_text().into_iter().chain(within.iter().filter_map(Part::as_text))
        })
    }

    /// Each of its texts, to be changed.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.parts.iter_mut().flat_map(|part| {
            let parts = if let Part::ToolResult { parts, .. } = part {
                parts.as_mut_slice()
            } else {
                std::slice::from_mut(part)
            };
            parts.iter_mut().filter_map(|part| if let Part::Text { text } = part { Some(text) } else { None })
        })
    }

    /// The tools that it asks for.
    pub fn calls(&self) -> impl Iterator<Item = &ToolUse> {
        self.parts.iter().filter_map(|part| if let Part::ToolUse(call) = part { Some(call) } else { None })
    }

    /// The same, to be changed.
    pub fn calls_mut(&mut self) -> impl Iterator<Item = &mut ToolUse> {
        self.parts
            .iter_mut()
            .filter_map(|part| if let Part::ToolUse(call) = part { Some(call) } else { None })
    }

    /// Whether it asks for tools.
    pub fn has_calls(&self) -> bool {
        self.calls().next().is_some()
    }

    /// What tools answer, each with the [`ToolUse::id`] of its call.
    pub fn results(&self) -> impl Iterator<Item = (&str, &[Part])> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolResult { answers, parts } => Some((answers.as_str(), parts.as_slice())),
            Part::Text { .. }
            | Part::Image { .. }
            | Part::File { .. }
            | Part::ToolUse(_)
            | Part::Reasoning(_) => None,
        })
    }

    /// The [`ToolUse::id`] that it answers.
    pub fn answers(&self) -> Option<&str> {
        self.results().next().map(|(id, _)| id)
    }
}
