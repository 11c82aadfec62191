//! What a manifest's policies see at each point, made from the facts of a call, and how what they change is put back.

use serde_json::{Map, Value, json};

use super::{Point, RuntimeError};
use crate::body::input;
use crate::facts::Facts;
use crate::words::Confidentiality;

/// Turns of a user in one conversation; more can't be looked at in good time.
const TURNS_MAX: usize = 256;

/// The facts that every snapshot has beside what it is about: resolved things, which no argument can pretend to be.
/// The snapshots of the points before a call, as far as the points are `wanted`.
pub(super) fn before(
    facts: &Facts<'_>,
    wanted: &dyn Fn(Point) -> bool,
) -> Vec<(Point, Result<Value, RuntimeError>)> {
    let args = facts.args;
    let mut out = Vec::new();
    let mut add = |at: Point, about: Value| {
        if wanted(at) {
            out.push((at, Ok(with_envelope(facts, at, about))));
        }
    };
    match facts.op {
        "tool.run" | "tool.elsewhere" => {
            add(Point::PreToolCall, json!({"tool_call": {"name": facts.tool, "args": args}}));
        }
        "model.infer" => {
            let turns: Vec<&Value> = of_role(args, "user").collect();
            let too_many = turns.len() > TURNS_MAX;
            for turn in turns.into_iter().take(TURNS_MAX) {
                add(Point::Input, json!({"input": {"text": text_of(turn), "source": "user"}}));
            }
            add(Point::PreModelCall, json!({"model_request": model_request(args)}));
            if too_many && wanted(Point::Input) {
                out.push((Point::Input, Err(RuntimeError::ResourceLimitExceeded)));
            }
        }
        "request.begin" => {
            let text = args.pointer("/begin/request").cloned().unwrap_or_default();
            add(Point::Input, json!({"input": {"text": text, "source": "user"}}));
        }
        "agent.spawn" => add(Point::AgentStartup, json!({"agent": args})),
        "agent.exit" => {
            let reason = args.get("code").cloned().unwrap_or_default();
            add(Point::AgentShutdown, json!({"agent": {"name": facts.caller.agent}, "reason": reason}));
        }
        _another => {}
    }
    out
}

/// The snapshot of a point after a call, and the name of its output field; `None` where the point isn't about this call.
pub(super) fn after(
    facts: &Facts<'_>,
    at: Point,
    output: &Value,
    failure: Option<&str>,
) -> Option<(&'static str, Value)> {
    let is_tool = matches!(facts.op, "tool.run" | "tool.elsewhere");
    let (field, mut about) = match at {
        Point::PostToolCall if is_tool => {
            let call = json!({"name": facts.tool, "args": facts.args});
            ("tool_result", json!({"tool_call": call, "tool_result": output}))
        }
        Point::PostModelCall if facts.op == "model.infer" => {
            ("model_response", json!({"model_response": model_response(output)}))
        }
        Point::Output if facts.op == "model.infer" && asks_for_nothing(output) => {
            ("output", json!({"output": {"text": text_of(output.get("message").unwrap_or(&Value::Null))}}))
        }
        Point::PostToolCall
        | Point::PostModelCall
        | Point::Output
        | Point::AgentStartup
        | Point::Input
        | Point::PreModelCall
        | Point::PreToolCall
        | Point::AgentShutdown => return None,
    };
    if let (Some(failure), Some(fields)) = (failure, about.as_object_mut()) {
        fields.insert("error".to_owned(), failure.into());
    }
    Some((field, with_envelope(facts, at, about)))
}

/// Puts a changed view of an output in the output's place; false if it can't be. Of a model's message the text and the calls stay: its
/// thoughts may have what was taken out.
pub(super) fn put_back(at: Point, changed: Value, output: &mut Value) -> bool {
    let text = |output: &mut Value, text: Option<&Value>| match text {
        Some(text @ Value::String(_)) => output
            .get_mut("message")
            .and_then(Value::as_object_mut)
            .map(|message| {
                message.remove("parts");
                message.insert("text".to_owned(), text.clone());
            })
            .is_some(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) | None => {
            false
        }
    };
    match at {
        Point::PostToolCall => {
            *output = changed;
            true
        }
        Point::Output => text(output, changed.get("text")),
        Point::PostModelCall => {
            let calls = changed.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice);
            let Some(calls) = calls.unwrap_or_default().iter().map(asked_for).collect::<Option<Vec<_>>>()
            else {
                return false;
            };
            if let Some(message) = output.get_mut("message").and_then(Value::as_object_mut) {
                message.insert("calls".to_owned(), Value::Array(calls));
            }
            text(output, changed.get("content"))
        }
        Point::AgentStartup
        | Point::Input
        | Point::PreModelCall
        | Point::PreToolCall
        | Point::AgentShutdown => false,
    }
}

/// A label of the specification's lattice; one that isn't in it is the highest.
pub(super) fn confidentiality(label: &str) -> Confidentiality {
    match label {
        "public" => Confidentiality::Public,
        "internal" => Confidentiality::Internal,
        "confidential" => Confidentiality::Private,
        _unknown => Confidentiality::Secret,
    }
}

fn label(level: Confidentiality) -> &'static str {
    match level {
        Confidentiality::Public => "public",
        Confidentiality::Internal => "internal",
        Confidentiality::Private
        | Confidentiality::Unknown
        | Confidentiality::Pii
        | Confidentiality::Regulated => "confidential",
        Confidentiality::Secret | Confidentiality::Credential => "secret",
    }
}

fn with_envelope(facts: &Facts<'_>, at: Point, about: Value) -> Value {
    let mut fields = match about {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    let (agent, session) = (facts.caller.agent, &facts.session);
    let budgets = json!({"token_count": session.tokens, "tool_call_count": session.tool_calls});
    fields.insert(
        "envelope".to_owned(),
        json!({"agent": {"id": agent, "name": agent}, "budgets": budgets, "intervention_point": at.as_str()}),
    );
    let source = label(facts.labels.label_of("").confidentiality);
    fields.insert("ifc".to_owned(), json!({"source_labels": [source]}));
    fields.insert("regent".to_owned(), Value::Object(input::only(facts, input::AMBIENT.iter().copied())));
    Value::Object(fields)
}

fn of_role<'v>(args: &'v Value, role: &'static str) -> impl Iterator<Item = &'v Value> {
    let messages = args.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    messages.iter().filter(move |turn| turn.get("role").and_then(Value::as_str) == Some(role))
}

fn model_request(args: &Value) -> Value {
    let list = |key: &str| args.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let messages: Vec<Value> = list("messages")
        .iter()
        .map(|turn| {
            let view = json!({
                "role": turn.get("role"),
                "content": text_of(turn),
                "tool_call_id": answered_by(turn),
                "tool_calls": tool_calls(turn),
            });
            with_some(view, "attachments", attachments(turn))
        })
        .collect();
    let offer = |offer: &Value| json!({"name": offer.get("name"), "description": offer.get("description"), "schema": offer.get("input")});
    let tools: Vec<Value> = list("tools").iter().map(offer).collect();
    json!({"model": args.get("model"), "max_tokens": args.get("tokens_max"), "messages": messages, "tools": tools})
}

fn model_response(output: &Value) -> Value {
    let message = output.get("message").unwrap_or(&Value::Null);
    let view = json!({
        "content": text_of(message),
        "finish_reason": output.get("stop"),
        "model": output.get("model"),
        "tool_calls": tool_calls(message),
    });
    let thoughts = parts_of(message, "reasoning").filter_map(|part| part.get("text").cloned());
    with_some(view, "reasoning", thoughts.collect())
}

fn with_some(mut view: Value, field: &str, values: Vec<Value>) -> Value {
    if let (Some(fields), false) = (view.as_object_mut(), values.is_empty()) {
        fields.insert(field.to_owned(), Value::Array(values));
    }
    view
}

/// The parts of a message and of the tool results in it. One that is written as text and calls has none.
fn parts(message: &Value) -> impl Iterator<Item = &Value> {
    let list = |of| Value::as_array(Value::get(of, "parts")?);
    let own = list(message).into_iter().flatten();
    own.flat_map(move |part| std::iter::once(part).chain(list(part).into_iter().flatten()))
}

fn parts_of<'v>(message: &'v Value, kind: &'v str) -> impl Iterator<Item = &'v Value> {
    parts(message).filter(move |part| part.get("type").and_then(Value::as_str) == Some(kind))
}

/// The text of a message, in either form.
fn text_of(message: &Value) -> Value {
    let flat = message.get("text").cloned();
    let parts =
        || parts_of(message, "text").filter_map(|part| part.get("text")?.as_str()).collect::<String>();
    flat.unwrap_or_else(|| json!(parts()))
}

/// The call that a message answers, however it is written.
fn answered_by(message: &Value) -> Option<&Value> {
    message.get("answers").or_else(|| parts_of(message, "tool_result").next()?.get("answers"))
}

/// Images and files, without their bytes.
fn attachments(message: &Value) -> Vec<Value> {
    let all = parts_of(message, "image").chain(parts_of(message, "file"));
    all.map(|part| json!({"type": part.get("type"), "media_type": part.get("media_type"), "name": part.get("name")}))
        .collect()
}

/// The calls of a message, however it is written.
fn calls_of(message: &Value) -> impl Iterator<Item = &Value> {
    let flat = message.get("calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    flat.iter().chain(parts_of(message, "tool_use"))
}

fn tool_calls(message: &Value) -> Vec<Value> {
    let call =
        |call: &Value| json!({"id": call.get("id"), "name": call.get("tool"), "args": call.get("args")});
    calls_of(message).map(call).collect()
}

/// A call of [`tool_calls`], back in our own form.
fn asked_for(call: &Value) -> Option<Value> {
    let (id, name) = (call.get("id")?.as_str()?, call.get("name")?.as_str()?);
    Some(json!({"id": id, "tool": name, "args": call.get("args")?}))
}

/// Whether a model's answer is the last word: it asks for no tool.
fn asks_for_nothing(output: &Value) -> bool {
    output.get("message").is_none_or(|message| calls_of(message).next().is_none())
}
