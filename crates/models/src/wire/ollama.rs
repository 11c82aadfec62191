//! Ollama's own chat: JSON Lines, arguments of tools as objects.

use std::collections::BTreeMap;

use regent_kernel::{Effort, Message, ModelUsage, Part, Role, StopReason};
use serde_json::{Value, json};

use super::openai_chat::function;
use super::schema::shown;
use super::{Decoder, Question, Wire, count_at, list_at, put, results, some_list, text_at, text_in};
use crate::capability::Thinking;
use crate::event::{Event, ToolDelta};
use crate::lines::Framing;
use crate::names::Names;
use crate::provider::ProviderError;

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ollama;

impl Wire for Ollama {
    fn path(&self, _model: &str) -> String {
        "/api/chat".to_owned()
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn framing(&self) -> Framing {
        Framing::JsonLines
    }

    fn body(&self, question: &Question<'_>) -> Value {
        let Question { model, inference, names, capability, .. } = *question;
        let sampling = &inference.sampling;
        let mut asked: BTreeMap<&str, &str> = BTreeMap::new();
        let mut messages = Vec::with_capacity(inference.messages.len());
        for message in &inference.messages {
            asked.extend(message.calls().map(|call| (call.id.as_str(), names.wire(&call.tool))));
            if message.role == Role::Tool {
                messages.extend(results(message).into_iter().map(|result| answer(result, &asked)));
            } else {
                messages.push(turn(message, names));
            }
        }
        // Its own default window is a few thousand tokens, and it cuts what is longer without a word.
        let mut options = json!({"num_predict": inference.tokens_max, "num_ctx": capability.window_tokens});
        put(&mut options, "temperature", sampling.temperature.map(Value::from));
        put(&mut options, "seed", sampling.seed.map(Value::from));
        put(&mut options, "stop", some_list(sampling.stop.iter().map(|text| json!(text)).collect()));
        let mut body = json!({"model": model, "messages": messages, "stream": true, "options": options});
        put(
            &mut body,
            "tools",
            some_list(inference.tools.iter().map(|offer| function(offer, names)).collect()),
        );
        put(&mut body, "format", sampling.schema.as_ref().map(shown));
        let think = match capability.reasoning {
            Thinking::Switch => question.effort().map(|effort| json!(effort != Effort::None)),
            Thinking::Words(_) => question.effort_word().map(|word| json!(word)),
            Thinking::None | Thinking::Adaptive(_) | Thinking::Budget(_) => None,
        };
        put(&mut body, "think", think);
        body
    }

    fn takes(&self, part: &Part) -> bool {
        !matches!(part, Part::File { .. })
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Chat { calls: 0 })
    }
}

fn turn(message: &Message, names: &Names) -> Value {
    let role = message.role.as_str();
    let mut turn = json!({"role": role, "content": text_in(&message.parts)});
    let call = |call: &regent_kernel::ToolUse| json!({"function": {"name": names.wire(&call.tool), "arguments": call.args}});
    put(&mut turn, "tool_calls", some_list(message.calls().map(call).collect()));
    put(&mut turn, "images", images(&message.parts));
    let thought =
        |part: &Part| if let Part::Reasoning(thought) = part { Some(thought.text.clone()) } else { None };
    let thoughts: String = message.parts.iter().filter_map(thought).collect();
    put(&mut turn, "thinking", (!thoughts.is_empty()).then(|| json!(thoughts)));
    turn
}

fn answer((id, parts): (&str, &[Part]), asked: &BTreeMap<&str, &str>) -> Value {
    let mut turn = json!({"role": "tool", "content": text_in(parts)});
    put(&mut turn, "tool_name", asked.get(id).map(|name| json!(name)));
    put(&mut turn, "images", images(parts));
    turn
}

fn images(parts: &[Part]) -> Option<Value> {
    let image =
        |part: &Part| if let Part::Image { payload, .. } = part { Some(json!(payload)) } else { None };
    some_list(parts.iter().filter_map(image).collect())
}

#[derive(Debug)]
struct Chat {
    calls: u64,
}

impl Decoder for Chat {
    fn message(&mut self, message: Value, events: &mut Vec<Event>) -> Result<(), ProviderError> {
        let said = message.get("message").unwrap_or(&Value::Null);
        let over = message.get("done").and_then(Value::as_bool);
        if said.is_null() && over.is_none() {
            return Err(ProviderError::Malformed("a line that is no message".to_owned()));
        }
        if let Some(text) = text_at(said, "/thinking").filter(|text| !text.is_empty()) {
            events.push(Event::Reasoning(text.to_owned()));
        }
        if let Some(text) = text_at(said, "/content").filter(|text| !text.is_empty()) {
            events.push(Event::Text(text.to_owned()));
        }
        for call in list_at(said, "/tool_calls") {
            let args = call.pointer("/function/arguments").filter(|args| args.is_object());
            events.push(Event::Tool(ToolDelta {
                index: self.calls,
                id: text_at(call, "/id").map(str::to_owned),
                name: text_at(call, "/function/name").map(str::to_owned),
                args: args.map(Value::to_string).unwrap_or_default(),
            }));
            self.calls = self.calls.saturating_add(1);
        }
        if over == Some(true) {
            let count = |field: &str| count_at(&message, field).unwrap_or(0);
            // It leaves the prompt's count out where all of it was cached.
            let usage = ModelUsage {
                input: count("/prompt_eval_count"),
                output: count("/eval_count"),
                ..ModelUsage::default()
            };
            events.push(Event::Usage(usage.into()));
            let cut = text_at(&message, "/done_reason") == Some("length");
            events.push(Event::Stop(if cut { StopReason::Length } else { StopReason::End }));
        }
        Ok(())
    }
}
