//! What a model says while it speaks, in the one form that every provider's stream is translated to, and the whole made of it.

use std::collections::{BTreeMap, BTreeSet};

use regent_kernel::{Completion, Message, ModelUsage, Part, Reasoning, Role, StopReason, ToolUse};
use serde_json::{Map, Value};

use crate::ProviderError;
use crate::names::Names;

/// Tools that one answer may ask for.
const CALLS_MAX: usize = 128;
/// Parts of one answer.
const PARTS_MAX: usize = 4_096;
/// What one answer may say, think and ask for in all.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// One piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// More of the answer's text.
    Text(String),
    /// More of what is thought.
    Reasoning(String),
    /// What the provider wants back with the thought that just came, which ends with it. It is a thought of its own if none just came.
    Opaque(Value),
    /// More of a request for a tool.
    Tool(ToolDelta),
    /// What has been used so far, in all: a later one replaces an earlier one, so that no repetition is charged twice.
    Usage(TokenUsage),
    /// It is over, and this is why. Without one the stream was cut.
    Stop(StopReason),
}

/// Usage, by price class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens by kind.
    pub tokens: ModelUsage,
    /// Of the uncached ones, written to the provider's cache.
    pub cache_written: u64,
}

impl From<ModelUsage> for TokenUsage {
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
    slots: Vec<PartialPart>,
    said_bytes: usize,
    reasoning_bytes: usize,
    usage: Option<TokenUsage>,
    stop: Option<StopReason>,
}

/// A part that is still coming.
#[derive(Debug)]
enum PartialPart {
    Text(String),
    Reasoning { text: String, opaque: Option<Value> },
    Call(PartialCall),
}

#[derive(Debug, Default)]
struct PartialCall {
    index: u64,
    id: Option<String>,
    name: String,
    args: String,
}

impl Gathered {
    /// Adds a piece.
    pub fn take(&mut self, event: Event) -> Result<(), ProviderError> {
        match event {
            Event::Text(text) => self.take_text(text),
            Event::Reasoning(text) => self.take_reasoning(text),
            Event::Opaque(opaque) => self.take_opaque(opaque),
            Event::Tool(delta) => self.take_tool(delta)?,
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Stop(stop) => self.stop = Some(stop),
        }
        if self.said_bytes.saturating_add(self.reasoning_bytes) > ANSWER_BYTES_MAX {
            return Err(ProviderError::TooLarge("the answer"));
        }
        if self.slots.len() > PARTS_MAX {
            return Err(ProviderError::TooLarge("the list of its parts"));
        }
        Ok(())
    }

    fn take_text(&mut self, more: String) {
        self.said_bytes = self.said_bytes.saturating_add(more.len());
        match self.slots.last_mut() {
            Some(PartialPart::Text(text)) => text.push_str(&more),
            Some(_) | None if more.is_empty() => {}
            Some(_) | None => self.slots.push(PartialPart::Text(more)),
        }
    }

    fn take_reasoning(&mut self, more: String) {
        self.reasoning_bytes = self.reasoning_bytes.saturating_add(more.len());
        match self.slots.last_mut() {
            Some(PartialPart::Reasoning { text, opaque: None }) => text.push_str(&more),
            Some(_) | None if more.is_empty() => {}
            Some(_) | None => self.slots.push(PartialPart::Reasoning { text: more, opaque: None }),
        }
    }

    fn take_opaque(&mut self, value: Value) {
        let bytes = value.to_string().len();
        match self.slots.last_mut() {
            Some(PartialPart::Reasoning { opaque: opaque @ None, .. }) => *opaque = Some(value),
            Some(_) | None => {
                self.slots.push(PartialPart::Reasoning { text: String::new(), opaque: Some(value) })
            }
        }
        // Not thought again, only written otherwise.
        self.said_bytes = self.said_bytes.saturating_add(bytes);
    }

    fn take_tool(&mut self, delta: ToolDelta) -> Result<(), ProviderError> {
        let id = delta.id.filter(|id| !id.is_empty());
        // Some servers give every call the index 0: another id there is another call. So is a whole request after a whole one, where
        // nobody gives ids.
        let is_next = |call: &PartialCall| {
            let is_named = delta.name.as_ref().is_some_and(|name| !name.is_empty());
            let is_whole = |args: &str| matches!(serde_json::from_str(args), Ok(Value::Object(_)));
            call.id.is_none()
                && id.is_none()
                && is_named
                && is_whole(&call.args)
                && delta.args.trim_start().starts_with('{')
        };
        let is_same = |call: &PartialCall| {
            call.index == delta.index
                && (id.is_none() || call.id.is_none() || call.id == id)
                && !is_next(call)
        };
        if !self.calls().any(is_same) {
            if self.calls().count() >= CALLS_MAX {
                return Err(ProviderError::TooLarge("the list of tools that it asks for"));
            }
            self.slots.push(PartialPart::Call(PartialCall { index: delta.index, ..PartialCall::default() }));
        }
        let mut calls = self.slots.iter_mut().rev().filter_map(|slot| match slot {
            PartialPart::Call(call) => Some(call),
            PartialPart::Text(_) | PartialPart::Reasoning { .. } => None,
        });
        let Some(call) = calls.find(|call| is_same(call)) else { return Ok(()) };
        call.id = id.or(call.id.take());
        if let Some(name) = delta.name.filter(|name| !name.is_empty()) {
            call.name = name;
        }
        call.args.push_str(&delta.args);
        self.said_bytes = self.said_bytes.saturating_add(delta.args.len());
        Ok(())
    }

    fn calls(&self) -> impl Iterator<Item = &PartialCall> {
        self.slots.iter().filter_map(|slot| match slot {
            PartialPart::Call(call) => Some(call),
            PartialPart::Text(_) | PartialPart::Reasoning { .. } => None,
        })
    }

    /// Whether the answer has begun (text, reasoning or a call): from then on the provider charges for it.
    pub fn has_begun(&self) -> bool {
        !self.slots.is_empty()
    }

    /// The usage that the provider reported, if any.
    pub fn reported(&self) -> Option<TokenUsage> {
        self.usage
    }

    /// Everything that was written, for our own count: text, arguments, and the bytes of what was thought.
    pub(crate) fn written(&self) -> (impl Iterator<Item = &str>, usize) {
        let words = self.slots.iter().flat_map(|slot| match slot {
            PartialPart::Text(text) => [text.as_str(), ""],
            PartialPart::Call(call) => [call.name.as_str(), call.args.as_str()],
            PartialPart::Reasoning { .. } => ["", ""],
        });
        (words, self.reasoning_bytes)
    }

    /// The complete answer of a model, `provider/name`. A stream without an end was truncated. Arguments that aren't a JSON object stay as received, so that the model can
    /// learn of it; such a call is never made.
    pub fn finish(self, model: &str, names: &Names, usage: ModelUsage) -> Result<Completion, ProviderError> {
        let stop = self.stop.ok_or(ProviderError::Cut)?;
        let (provider, own) = model.split_once('/').unwrap_or((model, ""));
        let (mut parts, mut asked) = (Vec::with_capacity(self.slots.len()), 0);
        let mut ids = BTreeSet::new();
        for slot in self.slots {
            match slot {
                PartialPart::Text(text) => parts.push(Part::Text { text }),
                PartialPart::Reasoning { text, opaque } => {
                    let (provider, model) = (provider.to_owned(), own.to_owned());
                    parts.push(Part::Reasoning(Reasoning { provider, model, text, opaque }));
                }
                PartialPart::Call(call) => {
                    let mut call = call.finish(asked, names, stop);
                    if let Some(call) = &mut call
                        && !ids.insert(call.id.clone())
                    {
                        // Two results for one id would be taken for one.
                        call.id = names.id(asked);
                    }
                    parts.extend(call.map(Part::ToolUse));
                    asked += 1;
                }
            }
        }
        let message = Message { role: Role::Assistant, parts };
        // Some servers say that they have stopped as usual when they ask for tools.
        let is_usual = stop != StopReason::End || !message.has_calls();
        let stop = if is_usual { stop } else { StopReason::ToolUse };
        Ok(Completion { model: model.to_owned(), message, stop, usage, redacted: BTreeMap::new() })
    }
}

impl PartialCall {
    /// The request that it is, the `at`-th of its answer.
    fn finish(self, at: usize, names: &Names, stop: StopReason) -> Option<ToolUse> {
        let args = match serde_json::from_str(&self.args) {
            Ok(args @ Value::Object(_)) => args,
            Ok(Value::Null) => Value::Object(Map::new()),
            Err(_) if self.args.trim().is_empty() => Value::Object(Map::new()),
            // It ran out of room in the middle of a request: what can't be read isn't asked for.
            Err(_) if stop == StopReason::Length => return None,
            Ok(_) | Err(_) => ToolUse::raw_args(&self.args),
        };
        // One without a name is refused by the kernel, which the model hears.
        let name = if self.name.is_empty() { "unnamed" } else { self.name.as_str() };
        let id = self.id.unwrap_or_else(|| names.id(at));
        Some(ToolUse { id, tool: names.ours(name).to_owned(), args })
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
    fn d8_distinguishes_calls_whatever_their_ids_and_indexes() {
        type Deltas<'t> = &'t [(u64, Option<&'t str>, Option<&'t str>, &'t str)];
        type Calls<'t> = &'t [(&'t str, &'t str)];
        let cases: &[(&str, Deltas<'_>, Calls<'_>)] = &[
            (
                "one index for all, ids differ",
                &[
                    (0, Some("a"), Some("t"), "{\"path\":"),
                    (0, None, None, "\"x\"}"),
                    (0, Some("b"), Some("t"), "{\"path\":\"y\""),
                    (0, Some("b"), None, "}"),
                    (1, Some("c"), Some("u"), ""),
                ],
                &[("a", "{\"path\":\"x\"}"), ("b", "{\"path\":\"y\"}"), ("c", "{}")],
            ),
            (
                "one index for all, no ids, whole requests",
                &[(0, None, Some("t"), "{\"n\":1}"), (0, Some(""), Some("t"), "{\"n\":2}")],
                &[("call_0_0", "{\"n\":1}"), ("call_0_1", "{\"n\":2}")],
            ),
            (
                "the name again with each piece",
                &[(0, None, Some("t"), "{\"n\":"), (0, None, Some("t"), "1}"), (0, None, Some("t"), "")],
                &[("call_0_0", "{\"n\":1}")],
            ),
            (
                "empty ids, indexes differ",
                &[
                    (0, Some(""), Some("t"), "{\"n\":"),
                    (1, Some(""), Some("t"), "{}"),
                    (0, Some(""), None, "1}"),
                ],
                &[("call_0_0", "{\"n\":1}"), ("call_0_1", "{}")],
            ),
            ("the id comes late", &[(0, None, Some("t"), ""), (0, Some("a"), None, "{}")], &[("a", "{}")]),
            (
                "one id twice",
                &[(0, Some("a"), Some("t"), "{\"n\":1}"), (1, Some("a"), Some("t"), "{\"n\":2}")],
                &[("a", "{\"n\":1}"), ("call_0_1", "{\"n\":2}")],
            ),
            (
                "indexes that jump",
                &[(7, Some("a"), Some("t"), "{}"), (u64::MAX, Some("b"), Some("t"), "{}")],
                &[("a", "{}"), ("b", "{}")],
            ),
        ];
        for (name, deltas, expected) in cases {
            let message = gathered(deltas).message;
            let calls: Vec<_> =
                message.calls().map(|call| (call.id.clone(), call.args.to_string())).collect();
            let expected: Vec<_> =
                expected.iter().map(|(id, args)| ((*id).to_owned(), (*args).to_owned())).collect();
            assert_eq!(calls, expected, "{name}");
        }
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
            let completion = gathered(&[(0, Some("a"), Some("t"), args)]);
            let call = completion.message.calls().next().unwrap();
            assert_eq!(call.unreadable(), raw, "{args}");
            assert!(call.args.is_object(), "{args}");
        }
        let unnamed = gathered(&[(0, None, None, "{}")]).message;
        assert_eq!(unnamed.calls().next().unwrap().tool, "unnamed");
    }
}
