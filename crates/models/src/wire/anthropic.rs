//! Anthropic's messages.

use regent_kernel::{Effort, Message, Part, Role, StopReason};
use serde_json::{Value, json};

use super::schema::{shown, strict};
use super::{
    CacheTtl, Decoder, Question, Wire, count_at, only_text, opaque_at, put, results, some_list, text_at,
    text_of_payload, without_last_thoughts,
};
use crate::capability::{Caching, Thinking};
use crate::event::{Event, TokenUsage, ToolDelta};
use crate::names::Names;
use crate::provider::ProviderError;

const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
const PDF: &str = "application/pdf";
/// In what goes back with a thought: the proof that it is unchanged, or the whole of it where it isn't shown.
const SIGNATURE: &str = "signature";
const REDACTED: &str = "redacted_thinking";

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anthropic;

impl Wire for Anthropic {
    fn path(&self, _model: &str) -> String {
        "/messages".to_owned()
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-api-key", "")
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn body(&self, question: &Question<'_>) -> Value {
        let Question { model, inference, names, .. } = *question;
        let sampling = &inference.sampling;
        let mut system: Vec<Value> = inference
            .messages
            .iter()
            .filter(|message| message.role == Role::System)
            .flat_map(|message| blocks(&message.parts, names))
            .collect();
        let tool = |offer: &regent_kernel::Offer| json!({"name": names.wire(&offer.name), "description": offer.description, "input_schema": shown(&offer.input)});
        let mut tools: Vec<Value> = inference.tools.iter().map(tool).collect();
        let mut turns = turns(&inference.messages, names);
        if question.capability.caching == Caching::Breakpoints {
            mark_for_cache(&mut tools, &mut system, &mut turns, question.cache_ttl);
        }
        let mut body = json!({
            "model": model,
            "max_tokens": inference.tokens_max,
            "messages": turns,
            "stream": true,
        });
        put(&mut body, "system", some_list(system));
        put(&mut body, "tools", some_list(tools));
        let thinking = thinking(question);
        // A model that thinks decides itself whether it calls a tool.
        let is_free =
            thinking.as_ref().is_some_and(|thinking| thinking.get("type") != Some(&json!("disabled")));
        put(&mut body, "tool_choice", (question.must_call() && !is_free).then(|| json!({"type": "any"})));
        // No temperature: the models of today refuse any but their own.
        put(&mut body, "stop_sequences", some_list(sampling.stop.iter().map(|text| json!(text)).collect()));
        let mut output = json!({});
        let effort = question.effort_word().filter(|word| is_free && *word != Effort::None);
        put(&mut output, "effort", effort.map(|word| json!(word)));
        let format = |schema: &Value| {
            let schema = strict(schema).unwrap_or_else(|| shown(schema));
            json!({"type": "json_schema", "schema": schema})
        };
        put(&mut output, "format", sampling.schema.as_ref().map(format));
        put(&mut body, "output_config", (output != json!({})).then_some(output));
        put(&mut body, "thinking", thinking);
        body
    }

    fn takes(&self, part: &Part) -> bool {
        match part {
            Part::Image { media_type, .. } => IMAGES.contains(&media_type.as_str()),
            Part::File { media_type, payload, .. } => {
                media_type == PDF || text_of_payload(payload).is_some_and(|text| !text.is_empty())
            }
            Part::Text { .. } | Part::ToolUse(_) | Part::ToolResult { .. } | Part::Reasoning(_) => false,
        }
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Messages::default())
    }
}

/// How the model is told to think, if anyone says how much.
fn thinking(question: &Question<'_>) -> Option<Value> {
    match &question.capability.reasoning {
        Thinking::Adaptive(_) => Some(match question.effort_word()? {
            Effort::None => json!({"type": "disabled"}),
            Effort::Minimal | Effort::Low | Effort::Medium | Effort::High | Effort::Xhigh | Effort::Max => {
                json!({"type": "adaptive", "display": "summarized"})
            }
        }),
        Thinking::Budget(_) => {
            let budget = question.budget().filter(|_| question.goes_on_thinking())?;
            Some(json!({"type": "enabled", "budget_tokens": budget}))
        }
        Thinking::None | Thinking::Words(_) | Thinking::Switch => None,
    }
}

/// Marks what their side keeps, at the four places that it allows: the tools, the system prompt, and the last two turns of the user. The
/// next question finds the last of these at the same place; the one before it is for a turn with more blocks than are looked through.
fn mark_for_cache(tools: &mut [Value], system: &mut [Value], turns: &mut [Value], ttl: CacheTtl) {
    let mut mark = json!({"type": "ephemeral"});
    put(&mut mark, "ttl", (ttl == CacheTtl::Hour).then(|| json!("1h")));
    let of_user = turns.iter_mut().rev().filter(|turn| turn.get("role") == Some(&json!("user")));
    let last_blocks = of_user.take(2).filter_map(|turn| turn.get_mut("content")?.as_array_mut()?.last_mut());
    for block in tools.last_mut().into_iter().chain(system.last_mut()).chain(last_blocks) {
        put(block, "cache_control", Some(mark.clone()));
    }
}

/// Turns must alternate: several tool results and the user message after them are one turn.
fn turns(messages: &[Message], names: &Names) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message.role {
            Role::System => continue,
            Role::User => ("user", blocks(&message.parts, names)),
            Role::Assistant => ("assistant", blocks(without_last_thoughts(&message.parts), names)),
            Role::Tool => {
                let result = |(id, parts)| result(id, parts, names);
                ("user", results(message).into_iter().map(result).collect())
            }
        };
        match turns.last_mut() {
            Some((before, gathered)) if *before == role => gathered.extend(blocks),
            Some(_) | None => turns.push((role, blocks)),
        }
    }
    let turns = turns.into_iter().filter(|(_, blocks)| !blocks.is_empty());
    turns.map(|(role, blocks)| json!({"role": role, "content": blocks})).collect()
}

fn blocks(parts: &[Part], names: &Names) -> Vec<Value> {
    parts.iter().filter_map(|part| block(part, names)).collect()
}

fn block(part: &Part, names: &Names) -> Option<Value> {
    match part {
        // Empty texts are refused there.
        Part::Text { text } => (!text.is_empty()).then(|| json!({"type": "text", "text": text})),
        Part::Image { media_type, payload } => {
            let source = json!({"type": "base64", "media_type": media_type, "data": payload});
            Some(json!({"type": "image", "source": source}))
        }
        Part::File { media_type, name, payload } => {
            let source = match text_of_payload(payload).filter(|_| media_type != PDF) {
                Some(text) => json!({"type": "text", "media_type": "text/plain", "data": text}),
                None => json!({"type": "base64", "media_type": media_type, "data": payload}),
            };
            Some(json!({"type": "document", "title": name, "source": source}))
        }
        Part::ToolUse(call) => Some(
            json!({"type": "tool_use", "id": call.id, "name": names.wire(&call.tool), "input": call.args}),
        ),
        Part::ToolResult { answers, parts } => Some(result(answers, parts, names)),
        Part::Reasoning(thought) => match (opaque_at(thought, SIGNATURE), opaque_at(thought, REDACTED)) {
            (Some(signature), _) => {
                Some(json!({"type": "thinking", "thinking": thought.text, "signature": signature}))
            }
            (None, Some(data)) => Some(json!({"type": REDACTED, "data": data})),
            (None, None) => None,
        },
    }
}

fn result(id: &str, parts: &[Part], names: &Names) -> Value {
    let content = only_text(parts).map_or_else(|| Value::Array(blocks(parts, names)), |text| json!(text));
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

#[derive(Debug, Default)]
struct Messages {
    used: TokenUsage,
    stop: Option<StopReason>,
    /// Of the thought that comes just now.
    signature: String,
}

impl Decoder for Messages {
    fn message(&mut self, message: Value, events: &mut Vec<Event>) -> Result<(), ProviderError> {
        let index = count_at(&message, "/index").unwrap_or(0);
        match text_at(&message, "/type").unwrap_or_default() {
            "message_start" => self.count(&message, "/message/usage", events),
            "content_block_start" if text_at(&message, "/content_block/type") == Some("tool_use") => {
                events.push(Event::Tool(ToolDelta {
                    index,
                    id: text_at(&message, "/content_block/id").map(str::to_owned),
                    name: text_at(&message, "/content_block/name").map(str::to_owned),
                    args: String::new(),
                }));
            }
            "content_block_start" => {
                if let Some(data) = text_at(&message, "/content_block/data") {
                    events.push(Event::Opaque(json!({REDACTED: data})));
                }
                self.signature = owned(&message, "/content_block/signature");
            }
            "content_block_stop" if !self.signature.is_empty() => {
                events.push(Event::Opaque(json!({SIGNATURE: std::mem::take(&mut self.signature)})));
            }
            "content_block_delta" => match text_at(&message, "/delta/type").unwrap_or_default() {
                "text_delta" => events.push(Event::Text(owned(&message, "/delta/text"))),
                "thinking_delta" => events.push(Event::Reasoning(owned(&message, "/delta/thinking"))),
                "input_json_delta" => {
                    let args = owned(&message, "/delta/partial_json");
                    events.push(Event::Tool(ToolDelta { index, args, ..ToolDelta::default() }));
                }
                "signature_delta" => {
                    self.signature.push_str(text_at(&message, "/delta/signature").unwrap_or_default())
                }
                _citation => {}
            },
            "message_delta" => {
                self.count(&message, "/usage", events);
                self.stop = text_at(&message, "/delta/stop_reason").map(stop).or(self.stop);
            }
            "message_stop" => events.push(Event::Stop(self.stop.unwrap_or(StopReason::End))),
            "" => return Err(ProviderError::Malformed("an event without a type".to_owned())),
            _ping_or_end_of_block => {}
        }
        Ok(())
    }
}

impl Messages {
    /// Counts so far, in all; what a message leaves out stays as it was.
    fn count(&mut self, message: &Value, place: &str, events: &mut Vec<Event>) {
        let count = |field: &str| count_at(message, &format!("{place}/{field}"));
        let TokenUsage { tokens, cache_written } = &mut self.used;
        if let Some(input) = count("input_tokens") {
            *cache_written = count("cache_creation_input_tokens").unwrap_or(0);
            tokens.input = input.saturating_add(*cache_written);
        }
        tokens.cached = count("cache_read_input_tokens").unwrap_or(tokens.cached);
        tokens.output = count("output_tokens").unwrap_or(tokens.output);
        if message.pointer(place).is_some() {
            events.push(Event::Usage(self.used));
        }
    }
}

fn owned(message: &Value, pointer: &str) -> String {
    text_at(message, pointer).unwrap_or_default().to_owned()
}

fn stop(reason: &str) -> StopReason {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "tool_use" => StopReason::ToolUse,
        "refusal" => StopReason::Refusal,
        _end => StopReason::End,
    }
}
