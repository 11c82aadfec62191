//! What a model says while it speaks, in the one form that every provider's stream is translated to, and the whole made of it.

use std::collections::BTreeMap;

use regent_kernel::{Completion, Message, ModelUsage, Role, StopReason, ToolUse};
use serde_json::{Map, Value};

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

/// Usage, by price class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Tokens by kind.
    pub tokens: ModelUsage,
    /// Of the uncached ones, written to the provider's cache.
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
    calls: Vec<Asked>,
    args_bytes: usize,
    usage: Option<Used>,
    stop: Option<StopReason>,
}

#[derive(Debug, Default)]
struct Asked {
    index: u64,
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
        let id = delta.id.filter(|id| !id.is_empty());
        // Some servers give every call the index 0: another id there is another call.
        let is_same =
            |call: &Asked| call.index == delta.index && (id.is_none() || call.id.is_none() || call.id == id);
        let at = match self.calls.iter().rposition(is_same) {
            Some(at) => at,
            None if self.calls.len() >= CALLS_MAX => {
                return Err(ProviderError::TooLarge("the list of tools that it asks for"));
            }
            None => {
                self.calls.push(Asked { index: delta.index, ..Asked::default() });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(at) else { return Ok(()) };
        call.id = id.or(call.id.take());
        if let Some(name) = delta.name.filter(|name| !name.is_empty()) {
            call.name = name;
        }
        call.args.push_str(&delta.args);
        self.args_bytes = self.args_bytes.saturating_add(delta.args.len());
        Ok(())
    }

    /// Whether the answer has begun (text, reasoning or a call): from then on the provider charges for it.
    pub fn has_begun(&self) -> bool {
        !self.text.is_empty() || self.reasoning_bytes > 0 || !self.calls.is_empty()
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The usage that the provider reported, if any.
    pub fn reported(&self) -> Option<Used> {
        self.usage
    }

    /// Everything that was written, for our own count: text, arguments, and the bytes of what was thought.
    pub(crate) fn written(&self) -> (impl Iterator<Item = &str>, usize) {
        let args = self.calls.iter().flat_map(|call| [call.name.as_str(), call.args.as_str()]);
        (std::iter::once(self.text.as_str()).chain(args), self.reasoning_bytes)
    }

    /// The complete answer. A stream without an end was truncated. Arguments that aren't a JSON object stay as received, so that the model can
    /// learn of it; such a call is never made.
    pub fn finish(self, model: &str, names: &Names, usage: ModelUsage) -> Result<Completion, ProviderError> {
        let stop = self.stop.ok_or(ProviderError::Cut)?;
        let mut calls = Vec::with_capacity(self.calls.len());
        for (at, call) in self.calls.into_iter().enumerate() {
            let args = match serde_json::from_str(&call.args) {
                Ok(args @ Value::Object(_)) => args,
                Ok(Value::Null) => Value::Object(Map::new()),
                Err(_) if call.args.trim().is_empty() => Value::Object(Map::new()),
                // It ran out of room in the middle of a request: what can't be read isn't asked for.
                Err(_) if stop == StopReason::Length => continue,
                Ok(_) | Err(_) => ToolUse::raw_args(&call.args),
            };
            // One without a name is refused by the kernel, which the model hears.
            let name = if call.name.is_empty() { "unnamed" } else { call.name.as_str() };
            let id = call.id.unwrap_or_else(|| names.id(at));
            calls.push(ToolUse { id, tool: names.ours(name).to_owned(), args });
        }
        // Some servers say that they have stopped as usual when they ask for tools.
        let stop = if calls.is_empty() || stop != StopReason::End { stop } else { StopReason::ToolUse };
        let message = Message { role: Role::Assistant, text: self.text, calls, answers: None };
        Ok(Completion { model: model.to_owned(), message, stop, usage, redacted: BTreeMap::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(deltas: &[(u64, Option<&str>, Option<&str>, &str)]) -> Completion {
        let mut gathered = Gathered::default();
        for (index, id, name, args) in deltas {
            let delta = ToolDelta {
                index: *index,
                id: id.map(str::to_owned),
                name: name.map(str::to_owned),
                args: (*args).to_owned(),
            };
            gathered.take(Event::Tool(delta)).unwrap();
        }
        gathered.take(Event::Stop(StopReason::ToolUse)).unwrap();
        gathered.finish("p/m", &Names::default(), ModelUsage::default()).unwrap()
    }

    #[test]
    fn d8_calls_that_share_an_index_are_told_apart_by_their_ids() {
        let completion = gathered(&[
            (0, Some("a"), Some("fs_read"), "{\"path\":"),
            (0, None, None, "\"x\"}"),
            (0, Some("b"), Some("fs_read"), "{\"path\":\"y\""),
            (0, Some("b"), None, "}"),
            (1, Some("c"), Some("fs_list"), ""),
        ]);
        let calls: Vec<(String, String)> =
            completion.message.calls.into_iter().map(|call| (call.id, call.args.to_string())).collect();
        let expected = [("a", "{\"path\":\"x\"}"), ("b", "{\"path\":\"y\"}"), ("c", "{}")];
        assert_eq!(calls, expected.map(|(id, args)| (id.to_owned(), args.to_owned())));
    }

    #[test]
    fn d8_arguments_that_are_no_json_object_stay_as_they_came() {
        for (args, raw) in [
            ("{\"path\": \"x\"", Some("{\"path\": \"x\"")),
            ("[1]", Some("[1]")),
            ("rm -rf", Some("rm -rf")),
            ("null", None),
            ("  ", None),
            ("{}", None),
        ] {
            let call = gathered(&[(0, Some("a"), Some("t"), args)]).message.calls.remove(0);
            assert_eq!(call.unreadable(), raw, "{args}");
            assert!(call.args.is_object(), "{args}");
        }
        assert_eq!(gathered(&[(0, None, None, "{}")]).message.calls[0].tool, "unnamed");
    }
}
