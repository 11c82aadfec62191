//! OpenAI's chat completions, and the many servers that speak them: llama.cpp, vLLM, LM Studio.

use regent_kernel::{Inference, Message, ModelUsage, Offer, Role, StopReason};
use serde_json::{Value, json};

use super::{Decoder, Wire, count_at, list_at, put, some_list, text_at};
use crate::event::{Event, ToolDelta};
use crate::names::Names;
use crate::provider::ProviderError;

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

    fn body(&self, model: &str, inference: &Inference, names: &Names) -> Value {
        let messages: Vec<Value> = inference.messages.iter().map(|message| turn(message, names)).collect();
        let mut body = json!({
            "model": model,
            "messages": messages,
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
        let must_call = sampling.must_call && !inference.tools.is_empty();
        put(&mut body, "tool_choice", must_call.then(|| json!("required")));
        put(&mut body, "temperature", sampling.temperature.map(Value::from));
        put(&mut body, "seed", sampling.seed.map(Value::from));
        put(&mut body, "stop", some_list(sampling.stop.iter().map(|text| json!(text)).collect()));
        let format = |schema: &Value| json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": true}});
        put(&mut body, "response_format", sampling.schema.as_ref().map(format));
        body
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Chat)
    }
}

/// A tool as this protocol, and Ollama's, shows it.
pub(super) fn function(offer: &Offer, names: &Names) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": names.wire(&offer.name),
            "description": offer.description,
            "parameters": offer.input,
        },
    })
}

fn turn(message: &Message, names: &Names) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut turn = json!({"role": role, "content": message.text});
    let call = |call: &regent_kernel::ToolUse| {
        json!({
            "id": call.id,
            "type": "function",
            "function": {"name": names.wire(&call.tool), "arguments": call.args.to_string()},
        })
    };
    put(&mut turn, "tool_calls", some_list(message.calls.iter().map(call).collect()));
    put(&mut turn, "tool_call_id", message.answers.as_ref().map(|id| json!(id)));
    turn
}

#[derive(Debug)]
struct Chat;

impl Decoder for Chat {
    fn message(&mut self, message: Value, events: &mut Vec<Event>) -> Result<(), ProviderError> {
        // Others than the first were not asked for.
        if let Some(choice) = list_at(&message, "/choices").first() {
            // A server that doesn't stream gives the whole message where a stream has its next piece.
            let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
            for field in ["/reasoning_content", "/reasoning"] {
                if let Some(text) = text_at(delta, field).filter(|text| !text.is_empty()) {
                    events.push(Event::Reasoning(text.to_owned()));
                }
            }
            for field in ["/content", "/refusal"] {
                if let Some(text) = text_at(delta, field).filter(|text| !text.is_empty()) {
                    events.push(Event::Text(text.to_owned()));
                }
            }
            for (at, call) in list_at(delta, "/tool_calls").iter().enumerate() {
                events.push(Event::Tool(tool(at as u64, call)));
            }
            if let Some(reason) = text_at(choice, "/finish_reason") {
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
