//! Google's generateContent.

use std::collections::BTreeMap;

use regent_kernel::{Inference, Message, ModelUsage, Role, StopReason};
use serde_json::{Value, json};

use super::{Decoder, Wire, count_at, list_at, put, some_list, text_at};
use crate::event::{Event, ToolDelta};
use crate::names::Names;
use crate::provider::ProviderError;

/// What stands where a model's own signature of its thoughts would: we keep no thoughts, and say so in their word for it.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemini;

impl Wire for Gemini {
    fn path(&self, model: &str) -> String {
        format!("/models/{model}:streamGenerateContent?alt=sse")
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-goog-api-key", "")
    }

    fn body(&self, _model: &str, inference: &Inference, names: &Names) -> Value {
        let sampling = &inference.sampling;
        let system: Vec<Value> = inference
            .messages
            .iter()
            .filter(|message| message.role == Role::System && !message.text.is_empty())
            .map(|message| json!({"text": message.text}))
            .collect();
        let mut drawn = json!({"maxOutputTokens": inference.tokens_max});
        put(&mut drawn, "temperature", sampling.temperature.map(Value::from));
        put(&mut drawn, "seed", sampling.seed.map(Value::from));
        put(&mut drawn, "stopSequences", some_list(sampling.stop.iter().map(|text| json!(text)).collect()));
        put(&mut drawn, "responseMimeType", sampling.schema.as_ref().map(|_| json!("application/json")));
        put(&mut drawn, "responseJsonSchema", sampling.schema.clone());
        let mut body = json!({"contents": turns(&inference.messages, names), "generationConfig": drawn});
        put(&mut body, "systemInstruction", some_list(system).map(|parts| json!({"parts": parts})));
        let tool = |offer: &regent_kernel::Offer| {
            json!({
                "name": names.wire(&offer.name),
                "description": offer.description,
                "parametersJsonSchema": offer.input,
            })
        };
        let tools = some_list(inference.tools.iter().map(tool).collect());
        put(&mut body, "tools", tools.map(|tools| json!([{"functionDeclarations": tools}])));
        let must_call = sampling.must_call && !inference.tools.is_empty();
        put(&mut body, "toolConfig", must_call.then(|| json!({"functionCallingConfig": {"mode": "ANY"}})));
        body
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Generated { calls: 0 })
    }
}

fn turns(messages: &[Message], names: &Names) -> Vec<Value> {
    // An answer of a tool is told by the tool's name there, which only the request for it has.
    let mut asked: BTreeMap<&str, &str> = BTreeMap::new();
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let text = (!message.text.is_empty()).then(|| json!({"text": message.text}));
        let (role, parts): (&str, Vec<Value>) = match message.role {
            Role::System => continue,
            Role::User => ("user", text.into_iter().collect()),
            Role::Assistant => {
                asked.extend(message.calls.iter().map(|call| (call.id.as_str(), names.wire(&call.tool))));
                let calls = message.calls.iter().map(|call| {
                    json!({
                        "functionCall": {"name": names.wire(&call.tool), "args": call.args},
                        "thoughtSignature": NO_SIGNATURE,
                    })
                });
                ("model", text.into_iter().chain(calls).collect())
            }
            Role::Tool => {
                let id = message.answers.as_deref().unwrap_or_default();
                let name = asked.get(id).copied().unwrap_or(id);
                let response = json!({"name": name, "response": {"output": message.text}});
                ("user", vec![json!({"functionResponse": response})])
            }
        };
        match turns.last_mut() {
            Some((before, gathered)) if *before == role => gathered.extend(parts),
            Some(_) | None => turns.push((role, parts)),
        }
    }
    let turns = turns.into_iter().filter(|(_, parts)| !parts.is_empty());
    turns.map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

#[derive(Debug)]
struct Generated {
    /// Requests for tools so far: they come whole, without a number.
    calls: u64,
}

impl Decoder for Generated {
    fn message(&mut self, message: Value, events: &mut Vec<Event>) -> Result<(), ProviderError> {
        if !message.is_object() {
            return Err(ProviderError::Malformed("a message that is not an object".to_owned()));
        }
        let candidate = list_at(&message, "/candidates").first().unwrap_or(&Value::Null);
        for part in list_at(candidate, "/content/parts") {
            let text = text_at(part, "/text").unwrap_or_default().to_owned();
            if part.get("thought").and_then(Value::as_bool).unwrap_or(false) {
                events.push(Event::Reasoning(text));
            } else if !text.is_empty() {
                events.push(Event::Text(text));
            }
            if let Some(name) = text_at(part, "/functionCall/name") {
                let args = part.pointer("/functionCall/args").filter(|args| args.is_object());
                events.push(Event::Tool(ToolDelta {
                    index: self.calls,
                    id: text_at(part, "/functionCall/id").map(str::to_owned),
                    name: Some(name.to_owned()),
                    args: args.map(Value::to_string).unwrap_or_default(),
                }));
                self.calls = self.calls.saturating_add(1);
            }
        }
        if let Some(usage) = message.get("usageMetadata") {
            events.push(Event::Usage(usage_of(usage).into()));
        }
        if text_at(&message, "/promptFeedback/blockReason").is_some() {
            events.push(Event::Stop(StopReason::Refusal));
        } else if let Some(reason) = text_at(candidate, "/finishReason") {
            events.push(Event::Stop(stop(reason)?));
        }
        Ok(())
    }
}

fn usage_of(usage: &Value) -> ModelUsage {
    let count = |field: &str| count_at(usage, field).unwrap_or(0);
    let (cached, reasoning) = (count("/cachedContentTokenCount"), count("/thoughtsTokenCount"));
    ModelUsage {
        input: count("/promptTokenCount").saturating_sub(cached),
        cached,
        output: count("/candidatesTokenCount").saturating_add(reasoning),
        reasoning,
    }
}

fn stop(reason: &str) -> Result<StopReason, ProviderError> {
    match reason {
        "MAX_TOKENS" => Ok(StopReason::Length),
        "STOP" | "FINISH_REASON_UNSPECIFIED" => Ok(StopReason::End),
        "MALFORMED_FUNCTION_CALL" => {
            Err(ProviderError::Malformed("the model's request for a tool was malformed".to_owned()))
        }
        _safety_and_the_like => Ok(StopReason::Refusal),
    }
}
