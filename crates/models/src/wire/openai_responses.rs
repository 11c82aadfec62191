//! OpenAI's responses. Nothing is kept on their side (`store: false`): the conversation is ours, and so are the model's thoughts, which
//! come and go back encrypted.

use regent_kernel::{Message, ModelUsage, Part, Role, StopReason};
use serde_json::{Value, json};

use super::schema::{shown, strict_or_not};
use super::{
    Decoder, Question, Wire, clipped, count_at, data_url, list_at, only_text, opaque_at, put, results,
    some_list, text_at, without_last_thoughts,
};
use crate::event::{Event, ToolDelta};
use crate::names::Names;
use crate::provider::ProviderError;

/// What the thoughts are in, encrypted.
const ENCRYPTED: &str = "encrypted_content";

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAiResponses;

impl Wire for OpenAiResponses {
    fn path(&self, _model: &str) -> String {
        "/responses".to_owned()
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn body(&self, question: &Question<'_>) -> Value {
        let Question { model, inference, names, .. } = *question;
        let input: Vec<Value> = inference.messages.iter().flat_map(|message| items(message, names)).collect();
        let sampling = &inference.sampling;
        let mut body = json!({
            "model": model,
            "input": input,
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": inference.tokens_max,
        });
        let tool = |offer: &regent_kernel::Offer| {
            json!({
                "type": "function",
                "name": names.wire(&offer.name),
                "description": offer.description,
                "parameters": shown(&offer.input),
                "strict": false,
            })
        };
        put(&mut body, "tools", some_list(inference.tools.iter().map(tool).collect()));
        put(&mut body, "tool_choice", question.must_call().then(|| json!("required")));
        put(&mut body, "temperature", question.temperature());
        put(&mut body, "reasoning", question.effort_word().map(|word| json!({"effort": word})));
        put(&mut body, "prompt_cache_key", question.cache_key());
        let format = |schema: &Value| {
            let mut format = strict_or_not(schema);
            put(&mut format, "type", Some(json!("json_schema")));
            json!({"format": format})
        };
        put(&mut body, "text", sampling.schema.as_ref().map(format));
        body
    }

    fn takes(&self, _part: &Part) -> bool {
        true
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Responses { last: None })
    }
}

fn items(message: &Message, names: &Names) -> Vec<Value> {
    let said = |role: &str, content: Value| json!({"type": "message", "role": role, "content": content});
    match message.role {
        Role::System => vec![said("developer", json!([text(&message.text())]))],
        Role::User if message.parts.is_empty() => vec![said("user", json!([text("")]))],
        Role::User => vec![said("user", contents(&message.parts))],
        Role::Tool => {
            let output = |(id, parts)| {
                let output = only_text(parts).map_or_else(|| contents(parts), |text| json!(text));
                json!({"type": "function_call_output", "call_id": id, "output": output})
            };
            results(message).into_iter().map(output).collect()
        }
        Role::Assistant => {
            let item = |part: &Part| match part {
                Part::Text { text } if text.is_empty() => None,
                Part::Text { text } => {
                    Some(said("assistant", json!([{"type": "output_text", "text": text}])))
                }
                Part::ToolUse(call) => Some(json!({
                    "type": "function_call",
                    "call_id": call.id,
                    "name": names.wire(&call.tool),
                    "arguments": call.args.to_string(),
                })),
                Part::Reasoning(thought) => {
                    opaque_at(thought, ENCRYPTED)?;
                    let mut item = thought.opaque.clone()?;
                    put(&mut item, "type", Some(json!("reasoning")));
                    Some(item)
                }
                Part::Image { .. } | Part::File { .. } | Part::ToolResult { .. } => None,
            };
            without_last_thoughts(&message.parts).iter().filter_map(item).collect()
        }
    }
}

fn text(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}

fn contents(parts: &[Part]) -> Value {
    let content = |part: &Part| match part {
        Part::Text { text: words } => Some(text(words)),
        Part::Image { media_type, payload } => {
            Some(json!({"type": "input_image", "image_url": data_url(media_type, payload)}))
        }
        Part::File { media_type, name, payload } => {
            let file_data = data_url(media_type, payload);
            Some(json!({"type": "input_file", "filename": name, "file_data": file_data}))
        }
        Part::ToolUse(_) | Part::ToolResult { .. } | Part::Reasoning(_) => None,
    };
    parts.iter().filter_map(content).collect()
}

#[derive(Debug)]
struct Responses {
    /// The number of the last event: one that comes again was sent again.
    last: Option<u64>,
}

impl Decoder for Responses {
    fn message(&mut self, message: Value, events: &mut Vec<Event>) -> Result<(), ProviderError> {
        let number = count_at(&message, "/sequence_number");
        if number.is_some() && number <= self.last {
            return Ok(());
        }
        self.last = number.or(self.last);
        let delta = || text_at(&message, "/delta").unwrap_or_default().to_owned();
        match text_at(&message, "/type").unwrap_or_default() {
            "response.output_text.delta" | "response.refusal.delta" => events.push(Event::Text(delta())),
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                events.push(Event::Reasoning(delta()));
            }
            "response.reasoning_summary_part.added" if count_at(&message, "/summary_index") > Some(0) => {
                events.push(Event::Reasoning("\n\n".to_owned()));
            }
            "response.output_item.done" if text_at(&message, "/item/type") == Some("reasoning") => {
                events.extend(thought(&message).map(Event::Opaque));
            }
            "response.output_item.added" if text_at(&message, "/item/type") == Some("function_call") => {
                events.push(Event::Tool(ToolDelta {
                    index: index(&message),
                    id: text_at(&message, "/item/call_id").map(str::to_owned),
                    name: text_at(&message, "/item/name").map(str::to_owned),
                    args: text_at(&message, "/item/arguments").unwrap_or_default().to_owned(),
                }));
            }
            "response.function_call_arguments.delta" => {
                let more = ToolDelta { index: index(&message), args: delta(), ..ToolDelta::default() };
                events.push(Event::Tool(more));
            }
            "response.completed" | "response.incomplete" => over(&message, events),
            "response.failed" => return Err(failed(&message, "/response/error")),
            "error" => return Err(failed(&message, "")),
            // Other events repeat earlier text, or report progress.
            "" => return Err(ProviderError::Malformed("an event without a type".to_owned())),
            _progress => {}
        }
        Ok(())
    }
}

/// A thought as it goes back; none if only its server could read it, which keeps nothing.
fn thought(message: &Value) -> Option<Value> {
    let encrypted = text_at(message, &format!("/item/{ENCRYPTED}"))?;
    let summary: Vec<Value> = list_at(message, "/item/summary")
        .iter()
        .filter_map(|part| text_at(part, "/text"))
        .map(|text| json!({"type": "summary_text", "text": text}))
        .collect();
    let id = text_at(message, "/item/id").unwrap_or_default();
    Some(json!({"id": id, ENCRYPTED: encrypted, "summary": summary}))
}

fn index(message: &Value) -> u64 {
    count_at(message, "/output_index").unwrap_or(0)
}

fn over(message: &Value, events: &mut Vec<Event>) {
    if let Some(usage) = message.pointer("/response/usage").filter(|usage| usage.is_object()) {
        let cached = count_at(usage, "/input_tokens_details/cached_tokens").unwrap_or(0);
        let tokens = ModelUsage {
            input: count_at(usage, "/input_tokens").unwrap_or(0).saturating_sub(cached),
            cached,
            output: count_at(usage, "/output_tokens").unwrap_or(0),
            reasoning: count_at(usage, "/output_tokens_details/reasoning_tokens").unwrap_or(0),
        };
        events.push(Event::Usage(tokens.into()));
    }
    let stop = match text_at(message, "/response/incomplete_details/reason") {
        Some("max_output_tokens") => StopReason::Length,
        Some(_filtered) => StopReason::Refusal,
        None => StopReason::End,
    };
    events.push(Event::Stop(stop));
}

fn failed(message: &Value, place: &str) -> ProviderError {
    let word = |field: &str| text_at(message, &format!("{place}/{field}")).unwrap_or_default();
    let code = match word("code") {
        "" => "error",
        code => code,
    };
    ProviderError::Reported { code: code.to_owned(), message: clipped(word("message")) }
}
