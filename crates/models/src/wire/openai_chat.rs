//! OpenAI's chat completions, and the many servers that speak them: llama.cpp, vLLM, LM Studio.

use regent_kernel::{Message, ModelUsage, Offer, Part, Reasoning, Role, StopReason, ToolUse};
use serde_json::{Map, Value, json};

use super::schema::{shown, strict_or_not};
use super::{
    Decoder, Question, Wire, count_at, data_url, list_at, only_text, opaque_at, put, results, some_list,
    text_at, text_in,
};
use crate::event::{Event, ToolDelta};
use crate::names::Names;
use crate::provider::ProviderError;

/// Where compatible servers put what is thought, as text.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];
/// And where some put what they want back as it was.
const DETAILS: &str = "reasoning_details";
/// In what goes back with a thought: the field that it came in.
const FIELD: &str = "field";

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAiChat {
    /// A server that speaks it, not OpenAI itself: the older name of a field.
    pub compatible: bool,
}

impl Wire for OpenAiChat {
    fn path(&self, _model: &str) -> String {
        "/chat/completions".to_owned()
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn body(&self, question: &Question<'_>) -> Value {
        let Question { model, inference, names, .. } = *question;
        let mut body = json!({
            "model": model,
            "messages": turns(&inference.messages, names),
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        let sampling = &inference.sampling;
        let tokens = if self.compatible { "max_tokens" } else { "max_completion_tokens" };
        put(&mut body, tokens, Some(inference.tokens_max.into()));
        put(
            &mut body,
            "tools",
            some_list(inference.tools.iter().map(|offer| function(offer, names)).collect()),
        );
        put(&mut body, "tool_choice", question.must_call().then(|| json!("required")));
        put(&mut body, "temperature", question.temperature());
        put(&mut body, "reasoning_effort", question.effort_word().map(|word| json!(word)));
        put(&mut body, "prompt_cache_key", question.cache_key().filter(|_| !self.compatible));
        put(&mut body, "seed", sampling.seed.map(Value::from));
        put(&mut body, "stop", some_list(sampling.stop.iter().map(|text| json!(text)).collect()));
        let format = |schema: &Value| json!({"type": "json_schema", "json_schema": strict_or_not(schema)});
        put(&mut body, "response_format", sampling.schema.as_ref().map(format));
        body
    }

    fn takes(&self, part: &Part) -> bool {
        match part {
            // Only OpenAI itself has files in this protocol.
            Part::File { .. } => !self.compatible,
            Part::Image { .. }
            | Part::Text { .. }
            | Part::ToolUse(_)
            | Part::ToolResult { .. }
            | Part::Reasoning(_) => true,
        }
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Chat::default())
    }
}

/// A tool as this protocol, and Ollama's, shows it.
pub(super) fn function(offer: &Offer, names: &Names) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": names.wire(&offer.name),
            "description": offer.description,
            "parameters": shown(&offer.input),
        },
    })
}

/// Answers of tools are text there, and must follow their calls. What tools showed comes after them, in a turn of its own.
fn turns(messages: &[Message], names: &Names) -> Vec<Value> {
    let mut turns = Vec::with_capacity(messages.len());
    let mut shown = Vec::new();
    for message in messages {
        if message.role != Role::Tool {
            turns.extend(shown_by_tools(&mut shown));
            turns.push(turn(message, names));
            continue;
        }
        for (id, parts) in results(message) {
            let mut turn = json!({"role": "tool", "content": text_in(parts)});
            put(&mut turn, "tool_call_id", (!id.is_empty()).then(|| json!(id)));
            turns.push(turn);
            let pictures: Vec<Value> =
                parts.iter().filter(|part| part.as_text().is_none()).filter_map(content).collect();
            if !pictures.is_empty() {
                shown.push(json!({"type": "text", "text": format!("[returned by the tool call `{id}`]")}));
                shown.extend(pictures);
            }
        }
    }
    turns.extend(shown_by_tools(&mut shown));
    turns
}

fn shown_by_tools(shown: &mut Vec<Value>) -> Option<Value> {
    some_list(std::mem::take(shown)).map(|content| json!({"role": "user", "content": content}))
}

fn turn(message: &Message, names: &Names) -> Value {
    let role = message.role.as_str();
    let content = match only_text(&message.parts) {
        None if message.role == Role::User => {
            Value::Array(message.parts.iter().filter_map(content).collect())
        }
        Some(_) | None => json!(text_in(&message.parts)),
    };
    let mut turn = json!({"role": role, "content": content});
    let call = |call: &ToolUse| {
        json!({
            "id": call.id,
            "type": "function",
            "function": {"name": names.wire(&call.tool), "arguments": call.args.to_string()},
        })
    };
    put(&mut turn, "tool_calls", some_list(message.calls().map(call).collect()));
    put_thoughts(&mut turn, &message.parts);
    turn
}

/// What was thought, where and as it came.
fn put_thoughts(turn: &mut Value, parts: &[Part]) {
    let mut details: Vec<Value> = Vec::new();
    let mut said: Option<(&'static str, String)> = None;
    for part in parts {
        let Part::Reasoning(thought) = part else { continue };
        if let Some(own) = opaque_at(thought, DETAILS).and_then(|text| serde_json::from_str(text).ok()) {
            let own: Vec<Value> = own;
            details.extend(own);
        } else if let Some(field) = field_of(thought) {
            said.get_or_insert_with(|| (field, String::new())).1.push_str(&thought.text);
        }
    }
    if let (Some((field, text)), true) = (said, details.is_empty()) {
        put(turn, field, Some(json!(text)));
    }
    put(turn, DETAILS, some_list(details));
}

fn field_of(thought: &Reasoning) -> Option<&'static str> {
    let field = opaque_at(thought, FIELD)?;
    THOUGHTS.into_iter().find(|known| *known == field)
}

fn content(part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => (!text.is_empty()).then(|| json!({"type": "text", "text": text})),
        Part::Image { media_type, payload } => {
            Some(json!({"type": "image_url", "image_url": {"url": data_url(media_type, payload)}}))
        }
        Part::File { media_type, name, payload } => {
            let file = json!({"filename": name, "file_data": data_url(media_type, payload)});
            Some(json!({"type": "file", "file": file}))
        }
        Part::ToolUse(_) | Part::ToolResult { .. } | Part::Reasoning(_) => None,
    }
}

#[derive(Debug, Default)]
struct Chat {
    /// The field that the thought of just now comes in.
    field: Option<&'static str>,
    /// What its server wants back of it.
    details: Vec<Value>,
}

impl Chat {
    fn thought(&mut self, delta: &Value, events: &mut Vec<Event>) {
        for field in THOUGHTS {
            if let Some(text) = delta.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()) {
                events.push(Event::Reasoning(text.to_owned()));
                self.field = Some(field);
                // The other one would say the same.
                break;
            }
        }
        for detail in delta.get(DETAILS).and_then(Value::as_array).into_iter().flatten() {
            match self.details.last_mut() {
                Some(last) if is_continued(last, detail) => append(last, detail),
                Some(_) | None => self.details.push(detail.clone()),
            }
        }
    }

    /// The thought is over.
    fn seal(&mut self, events: &mut Vec<Event>) {
        let field = self.field.take();
        let details = std::mem::take(&mut self.details);
        if !details.is_empty() {
            // As text: what a server has in there need not be JSON that a ledger takes.
            events.push(Event::Opaque(json!({DETAILS: Value::Array(details).to_string()})));
        } else if let Some(field) = field {
            events.push(Event::Opaque(json!({FIELD: field})));
        }
    }
}

/// A stream has a detail in pieces.
fn is_continued(last: &Value, piece: &Value) -> bool {
    ["type", "index", "id"].iter().all(|field| {
        let (ours, theirs) = (last.get(field), piece.get(field));
        ours == theirs || (*field == "id" && theirs.is_none_or(Value::is_null))
    }) && last.get("index").is_some()
}

fn append(last: &mut Value, piece: &Value) {
    let (Some(last), Some(piece)) = (last.as_object_mut(), piece.as_object()) else { return };
    for (name, more) in piece {
        match (last.get_mut(name), more) {
            (Some(Value::String(text)), Value::String(more))
                if matches!(name.as_str(), "text" | "summary" | "data") =>
            {
                text.push_str(more);
            }
            (_, Value::Null) => {}
            (_, more) => drop(Map::insert(last, name.clone(), more.clone())),
        }
    }
}

impl Decoder for Chat {
    fn message(&mut self, message: Value, events: &mut Vec<Event>) -> Result<(), ProviderError> {
        // Others than the first were not asked for.
        if let Some(choice) = list_at(&message, "/choices").first() {
            // A server that doesn't stream gives the whole message where a stream has its next piece.
            let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
            self.thought(delta, events);
            for field in ["/content", "/refusal"] {
                if let Some(text) = text_at(delta, field).filter(|text| !text.is_empty()) {
                    self.seal(events);
                    events.push(Event::Text(text.to_owned()));
                }
            }
            for (at, call) in list_at(delta, "/tool_calls").iter().enumerate() {
                self.seal(events);
                events.push(Event::Tool(tool(at as u64, call)));
            }
            if let Some(reason) = text_at(choice, "/finish_reason") {
                self.seal(events);
                events.push(Event::Stop(stop(reason)));
            }
        } else if message.get("choices").is_none() && message.get("usage").is_none() {
            return Err(ProviderError::Malformed("a message without choices".to_owned()));
        }
        if let Some(usage) = message.get("usage").filter(|usage| usage.is_object()) {
            events.push(Event::Usage(usage_of(usage).into()));
        }
        Ok(())
    }
}

fn tool(at: u64, call: &Value) -> ToolDelta {
    let args = match call.pointer("/function/arguments") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(object) => object.to_string(),
    };
    ToolDelta {
        index: count_at(call, "/index").unwrap_or(at),
        id: text_at(call, "/id").map(str::to_owned),
        name: text_at(call, "/function/name").map(str::to_owned),
        args,
    }
}

fn stop(reason: &str) -> StopReason {
    match reason {
        "length" => StopReason::Length,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "content_filter" => StopReason::Refusal,
        _stop => StopReason::End,
    }
}

fn usage_of(usage: &Value) -> ModelUsage {
    let cached = count_at(usage, "/prompt_tokens_details/cached_tokens").unwrap_or(0);
    ModelUsage {
        input: count_at(usage, "/prompt_tokens").unwrap_or(0).saturating_sub(cached),
        cached,
        output: count_at(usage, "/completion_tokens").unwrap_or(0),
        reasoning: count_at(usage, "/completion_tokens_details/reasoning_tokens").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d8_calls_without_an_index_have_their_place() {
        let call = |index: Value| {
            let mut call = json!({"function": {"name": "t", "arguments": {}}});
            put(&mut call, "index", (!index.is_null()).then_some(index));
            call
        };
        for (index, expected) in [(json!(null), 1), (json!(0), 0), (json!("0"), 1), (json!(-1), 1)] {
            assert_eq!(tool(1, &call(index.clone())).index, expected, "{index}");
        }
    }
}
