//! Google's generateContent.

use std::collections::BTreeMap;

use regent_kernel::{Effort, Message, ModelUsage, Part, Role, StopReason};
use serde_json::{Value, json};

use super::schema::shown;
use super::{
    Decoder, Question, Wire, count_at, list_at, opaque_at, put, results, some_list, text_at, text_in,
};
use crate::capability::Thinking;
use crate::event::{Event, ToolDelta};
use crate::names::Names;
use crate::provider::ProviderError;

/// What stands where a model's own signature of its thoughts would, in calls of another model: their word for it.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// In what goes back with a thought: its signature, and the part that it came on.
const SIGNATURE: &str = "thought_signature";
const ON: &str = "on";
/// The thought itself, the part that follows, or an empty one.
const ON_THOUGHT: &str = "thought";
const ON_NEXT: &str = "next";
const ON_NOTHING: &str = "nothing";
/// Models that don't take images within the answer of a tool, but beside it.
const OLDER: [&str; 2] = ["gemini-1", "gemini-2"];

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

    fn body(&self, question: &Question<'_>) -> Value {
        let Question { model, inference, names, .. } = *question;
        let sampling = &inference.sampling;
        let system: Vec<Value> = inference
            .messages
            .iter()
            .filter(|message| message.role == Role::System)
            .map(Message::text)
            .filter(|text| !text.is_empty())
            .map(|text| json!({"text": text}))
            .collect();
        let mut drawn = json!({"maxOutputTokens": inference.tokens_max});
        put(&mut drawn, "temperature", question.temperature());
        put(&mut drawn, "thinkingConfig", thinking(question));
        put(&mut drawn, "seed", sampling.seed.map(Value::from));
        put(&mut drawn, "stopSequences", some_list(sampling.stop.iter().map(|text| json!(text)).collect()));
        put(&mut drawn, "responseMimeType", sampling.schema.as_ref().map(|_| json!("application/json")));
        put(&mut drawn, "responseJsonSchema", sampling.schema.as_ref().map(shown));
        let mut body =
            json!({"contents": turns(model, &inference.messages, names), "generationConfig": drawn});
        put(&mut body, "systemInstruction", some_list(system).map(|parts| json!({"parts": parts})));
        let tool = |offer: &regent_kernel::Offer| {
            json!({
                "name": names.wire(&offer.name),
                "description": offer.description,
                "parametersJsonSchema": shown(&offer.input),
            })
        };
        let tools = some_list(inference.tools.iter().map(tool).collect());
        put(&mut body, "tools", tools.map(|tools| json!([{"functionDeclarations": tools}])));
        put(
            &mut body,
            "toolConfig",
            question.must_call().then(|| json!({"functionCallingConfig": {"mode": "ANY"}})),
        );
        body
    }

    fn takes(&self, _part: &Part) -> bool {
        true
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Generated { calls: 0 })
    }
}

/// How the model is told to think, if anyone says how much.
fn thinking(question: &Question<'_>) -> Option<Value> {
    match &question.capability.reasoning {
        Thinking::Words(_) => {
            Some(json!({"thinkingLevel": question.effort_word()?, "includeThoughts": question.thinks()}))
        }
        Thinking::Budget(_) if question.effort()? == Effort::None => Some(json!({"thinkingBudget": 0})),
        Thinking::Budget(_) => Some(json!({"thinkingBudget": question.budget()?, "includeThoughts": true})),
        Thinking::None | Thinking::Adaptive(_) | Thinking::Switch => None,
    }
}

fn turns(model: &str, messages: &[Message], names: &Names) -> Vec<Value> {
    // Gemini matches a tool's result by the tool's name, which only the request for it has.
    let mut asked: BTreeMap<&str, &str> = BTreeMap::new();
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, parts): (&str, Vec<Value>) = match message.role {
            Role::System => continue,
            Role::User => ("user", message.parts.iter().filter_map(content).collect()),
            Role::Assistant => {
                asked.extend(message.calls().map(|call| (call.id.as_str(), names.wire(&call.tool))));
                ("model", of_model(&message.parts, names))
            }
            Role::Tool => {
                let result = |(id, parts): (&str, &[Part])| {
                    response(model, asked.get(id).copied().unwrap_or(id), parts)
                };
                ("user", results(message).into_iter().flat_map(result).collect())
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

/// A turn of the model, each signature on the part that it came on.
fn of_model(parts: &[Part], names: &Names) -> Vec<Value> {
    let is_own = parts.iter().any(|part| matches!(part, Part::Reasoning(_)));
    let mut first_call = true;
    let mut next = None;
    let mut turn = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Part::Reasoning(thought) => {
                let signature = opaque_at(thought, SIGNATURE).map(|signature| json!(signature));
                let on = opaque_at(thought, ON).unwrap_or(ON_THOUGHT);
                if !thought.text.is_empty() || (on == ON_THOUGHT && signature.is_some()) {
                    let mut thought = json!({"text": thought.text, "thought": true});
                    put(&mut thought, "thoughtSignature", signature.clone().filter(|_| on == ON_THOUGHT));
                    turn.push(thought);
                }
                if on == ON_NOTHING {
                    turn.push(json!({"text": "", "thoughtSignature": signature}));
                }
                next = signature.filter(|_| on == ON_NEXT);
            }
            Part::ToolUse(call) => {
                let mut part = json!({"functionCall": {"name": names.wire(&call.tool), "args": call.args}});
                // Of calls side by side only the first is signed.
                let none = (!is_own || first_call).then(|| json!(NO_SIGNATURE));
                put(&mut part, "thoughtSignature", next.take().or(none));
                first_call = false;
                turn.push(part);
            }
            Part::Text { .. } | Part::Image { .. } | Part::File { .. } | Part::ToolResult { .. } => {
                let mut part = content(part);
                if let Some(part) = &mut part {
                    put(part, "thoughtSignature", next.take());
                }
                turn.extend(part);
            }
        }
    }
    turn
}

fn content(part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => (!text.is_empty()).then(|| json!({"text": text})),
        Part::Image { media_type, payload } | Part::File { media_type, payload, .. } => {
            Some(json!({"inlineData": {"mimeType": media_type, "data": payload}}))
        }
        Part::ToolUse(_) | Part::ToolResult { .. } | Part::Reasoning(_) => None,
    }
}

/// The answer of a tool, with what else it brought in it or after it.
fn response(model: &str, tool: &str, parts: &[Part]) -> Vec<Value> {
    let mut response = json!({"name": tool, "response": {"output": text_in(parts)}});
    let beside: Vec<Value> =
        parts.iter().filter(|part| part.as_text().is_none()).filter_map(content).collect();
    if OLDER.iter().any(|older| model.starts_with(older)) {
        return std::iter::once(json!({"functionResponse": response})).chain(beside).collect();
    }
    put(&mut response, "parts", some_list(beside));
    vec![json!({"functionResponse": response})]
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
            let call = text_at(part, "/functionCall/name");
            let is_thought = part.get("thought").and_then(Value::as_bool).unwrap_or(false);
            let on = match (is_thought, call.is_some() || !text.is_empty()) {
                (true, _) => ON_THOUGHT,
                (false, true) => ON_NEXT,
                (false, false) => ON_NOTHING,
            };
            let signature = text_at(part, "/thoughtSignature").filter(|signature| !signature.is_empty());
            let signature = signature.map(|signature| Event::Opaque(json!({SIGNATURE: signature, ON: on})));
            if is_thought {
                events.push(Event::Reasoning(text));
                events.extend(signature);
            } else {
                events.extend(signature);
                events.extend((!text.is_empty()).then_some(Event::Text(text)));
            }
            if let Some(name) = call {
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
