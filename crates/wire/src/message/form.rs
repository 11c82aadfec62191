//! How a message is written: as a text, calls and an answered id where that says all of it, which is the form of older journals, and
//! by its parts where it doesn't. So a digest that was taken of a message stays the same.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Message, Part, Role, ToolUse};

/// One turn of a conversation. Either `parts`, or `text`, `calls` and `answers`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Message")]
pub(super) struct Form {
    /// Who speaks.
    role: Role,
    /// The content.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    text: String,
    /// Tools that the model asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<ToolUse>,
    /// The [`ToolUse::id`] that a tool's turn answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answers: Option<String>,
    /// Everything, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
}

impl From<Message> for Form {
    fn from(Message { role, parts }: Message) -> Self {
        let mut form =
            Self { role, text: String::new(), calls: Vec::new(), answers: None, parts: Vec::new() };
        if !is_flat(&parts) {
            return Self { parts, ..form };
        }
        for part in parts {
            match part {
                Part::Text { text } => form.text = text,
                Part::ToolUse(call) => form.calls.push(call),
                Part::ToolResult { answers, parts } => {
                    form.answers = Some(answers);
                    if let Some(Part::Text { text }) = parts.into_iter().next() {
                        form.text = text;
                    }
                }
                // Not in a flat message.
                Part::Image { .. } | Part::File { .. } | Part::Reasoning(_) => {}
            }
        }
        form
    }
}

impl TryFrom<Form> for Message {
    type Error = &'static str;

    fn try_from(form: Form) -> Result<Self, Self::Error> {
        let Form { role, text, calls, answers, parts } = form;
        if parts.is_empty() {
            let mut message = match answers {
                Some(answers) => Self { role, ..Self::answer(answers, text) },
                None => Self::new(role, text),
            };
            message.parts.extend(calls.into_iter().map(Part::ToolUse));
            return Ok(message);
        }
        if !text.is_empty() || !calls.is_empty() || answers.is_some() {
            return Err("a message has either `parts`, or `text`, `calls` and `answers`");
        }
        let message = Self { role, parts };
        let is_content =
            |part: &Part| matches!(part, Part::Text { .. } | Part::Image { .. } | Part::File { .. });
        if !message.results().all(|(_, parts)| parts.iter().all(is_content)) {
            return Err("a tool result has only parts of type `text`, `image` and `file`");
        }
        Ok(message)
    }
}

/// At most one text, its own or the result's, and calls after it.
fn is_flat(parts: &[Part]) -> bool {
    let is_said = |part: &Part| part.as_text().is_some_and(|text| !text.is_empty());
    let calls = match parts {
        [Part::ToolResult { parts, .. }, calls @ ..] if parts.len() <= 1 && parts.iter().all(is_said) => {
            calls
        }
        [first, calls @ ..] if is_said(first) => calls,
        calls => calls,
    };
    calls.iter().all(|part| matches!(part, Part::ToolUse(_)))
}
