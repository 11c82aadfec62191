//! What a model says while it speaks, in the one form that every provider's stream is translated to, and the whole made of it.

use std::collections::BTreeMap;

use regent_kernel::{Completion, Message, ModelUsage, Role, StopReason, ToolUse};
use serde_json::Value;

use crate::ProviderError;
use crate::names::Names;

/// Tools that one answer may ask for.
const CALLS_MAX: usize = 128;
/// What one answer may say, think and ask for in all.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// One piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More of what is said.
    Text(String),
    /// More of what is thought. It is counted, not kept.
    Reasoning(String),
    /// More of a request for a tool.
    Tool(ToolDelta),
    /// What has been used so far, in all: a later one replaces an earlier one, so that no repetition is charged twice.
    Usage(Used),
    /// It is over, and this is why. Without one the stream was cut.
    Stop(StopReason),
}

/// What has been used, as far as prices differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Tokens by kind.
    pub tokens: ModelUsage,
    /// Of those read anew, put into the provider's cache.
    pub cache_written: u64,
}

impl From<ModelUsage> for Used {
    fn from(tokens: ModelUsage) -> Self {
        Self { tokens, cache_written: 0 }
    }
}

/// More of a request for a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolDelta {
    /// Which of the answer's requests this belongs to.
    pub index: u64,
    /// The provider's name for it, where this piece has one.
    pub id: Option<String>,
    /// The tool as the provider spells it, where this piece has it.
    pub name: Option<String>,
    /// More of its arguments, as JSON text.
    pub args: String,
}

/// An answer so far.
#[derive(Debug, Default)]
pub struct Gathered {
    text: String,
    reasoning_bytes: usize,
    calls: BTreeMap<u64, Asked>,
    args_bytes: usize,
    usage: Option<Used>,
    stop: Option<StopReason>,
}

#[derive(Debug, Default)]
struct Asked {
    id: Option<String>,
    name: String,
    args: String,
}

impl Gathered {
    /// Adds a piece.
    pub fn take(&mut self, event: Event) -> Result<(), ProviderError> {
        match event {
            Event::Text(text) => self.text.push_str(&text),
            Event::Reasoning(text) => self.reasoning_bytes = self.reasoning_bytes.saturating_add(text.len()),
            Event::Tool(delta) => self.take_tool(delta)?,
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Stop(stop) => self.stop = Some(stop),
        }
        let all = self.text.len().saturating_add(self.reasoning_bytes).saturating_add(self.args_bytes);
        if all > ANSWER_BYTES_MAX {
            return Err(ProviderError::TooLarge("the answer"));
        }
        Ok(())
    }

    fn take_tool(&mut self, delta: ToolDelta) -> Result<(), ProviderError> {
        if self.calls.len() >= CALLS_MAX && !self.calls.contains_key(&delta.index) {
            return Err(ProviderError::TooLarge("the list of tools that it asks for"));
        }
        let call = self.calls.entry(delta.index).or_default();
        call.id = delta.id.filter(|id| !id.is_empty()).or(call.id.take());
        if let Some(name) = delta.name.filter(|name| !name.is_empty()) {
            call.name = name;
        }
        call.args.push_str(&delta.args);
        self.args_bytes = self.args_bytes.saturating_add(delta.args.len());
        Ok(())
    }

    /// Whether the model has said, thought or asked for anything: from then on the provider charges for it.
    pub fn has_begun(&self) -> bool {
        !self.text.is_empty() || self.reasoning_bytes > 0 || !self.calls.is_empty()
    }

    /// What was said.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the provider says was used, if it did.
    pub fn reported(&self) -> Option<Used> {
        self.usage
    }

    /// Everything that was written, for our own count: text, arguments, and the bytes of what was thought.
    pub(crate) fn written(&self) -> (impl Iterator<Item = &str>, usize) {
        let args = self.calls.values().flat_map(|call| [call.name.as_str(), call.args.as_str()]);
        (std::iter::once(self.text.as_str()).chain(args), self.reasoning_bytes)
    }

    /// The whole answer. A stream without an end was cut; arguments that aren't JSON were garbled.
    pub fn finish(self, model: &str, names: &Names, usage: ModelUsage) -> Result<Completion, ProviderError> {
        let stop = self.stop.ok_or(ProviderError::Cut)?;
        let mut calls = Vec::with_capacity(self.calls.len());
        for (at, call) in self.calls.into_values().enumerate() {
            let text = if call.args.trim().is_empty() { "{}" } else { call.args.as_str() };
            let args: Value = match serde_json::from_str(text) {
                Ok(args) => args,
                // It ran out of room in the middle of a request: what can't be read isn't asked for.
                Err(_) if stop == StopReason::Length => continue,
                Err(error) => {
                    return Err(ProviderError::Malformed(format!("arguments of a tool call: {error}")));
                }
            };
            if call.name.is_empty() {
                return Err(ProviderError::Malformed("a tool call without a name".to_owned()));
            }
            let id = call.id.unwrap_or_else(|| names.id(at));
            calls.push(ToolUse { id, tool: names.ours(&call.name).to_owned(), args });
        }
        // Some servers say that they have stopped as usual when they ask for tools.
        let stop = if calls.is_empty() || stop != StopReason::End { stop } else { StopReason::ToolUse };
        let message = Message { role: Role::Assistant, text: self.text, calls, answers: None };
        Ok(Completion { model: model.to_owned(), message, stop, usage })
    }
}
