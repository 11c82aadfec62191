//! OpenAI's responses. Nothing is kept on their side (`store: false`): the conversation is ours.

use regent_kernel::{Inference, Message, ModelUsage, Role, StopReason};
use serde_json::{Value, json};

use super::{Decoder, Wire, clipped, count_at, put, some_list, text_at};
use crate::event::{Event, ToolDelta};
use crate::names::Names;
use crate::provider::ProviderError;

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

    fn body(&self, model: &str, inference: &Inference, names: &Names) -> Value {
        let input: Vec<Value> = inference.messages.iter().flat_map(|message| items(message, names)).collect();
        let sampling = &inference.sampling;
        let mut body = json!({
            "model": model,
            "input": input,
            "stream": true,
            "store": false,
            "max_output_tokens": inference.tokens_max,
        });
        let tool = |offer: &regent_kernel::Offer| {
            json!({
                "type": "function",
                "name": names.wire(&offer.name),
                "description": offer.description,
                "parameters": offer.input,
                "strict": false,
            })
        };
        put(&mut body, "tools", some_list(inference.tools.iter().map(tool).collect()));
        let must_call = sampling.must_call && !inference.tools.is_empty();
        put(&mut body, "tool_choice", must_call.then(|| json!("required")));
        put(&mut body, "temperature", sampling.temperature.map(Value::from));
        let format = |schema: &Value| json!({"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": true}});
        put(&mut body, "text", sampling.schema.as_ref().map(format));
        body
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Responses { last: None })
    }
}

fn items(message: &Message, names: &Names) -> Vec<Value> {
    let said = |role: &str, kind: &str| json!({"type": "message", "role": role, "content": [{"type": kind, "text": message.text}]});
    match message.role {
        Role::System => vec![said("developer", "input_text")],
        Role::User => vec![said("user", "input_text")],
        Role::Tool => vec![json!({
            "type": "function_call_output",
            "call_id": message.answers.as_deref().unwrap_or_default(),
            "output": message.text,
        })],
        Role::Assistant => {
            let text = (!message.text.is_empty()).then(|| said("assistant", "output_text"));
            let calls = message.calls.iter().map(|call| {
                json!({
                    "type": "function_call",
                    "call_id": call.id,
                    "name": names.wire(&call.tool),
                    "arguments": call.args.to_string(),
                })
            });
            text.into_iter().chain(calls).collect()
        }
    }
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
            // Other events repeat what has been said, or tell how far it is.
            "" => return Err(ProviderError::Malformed("an event without a type".to_owned())),
            _progress => {}
        }
        Ok(())
    }
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
