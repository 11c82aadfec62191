//! Servers that refuse as real ones do: they look at the parameters, and say which one they don't take.

use std::sync::Arc;

use regent_kernel::{Inference, Offer, Sampling, Status, SystemClock};
use regent_models::{Hub, Settings};
use regent_wire::body::EntryBody;
use serde_json::{Value, json};

use crate::protocols::CHAT;
use crate::server::{Act, Server};
use crate::world::*;

const ANTHROPIC: &str = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":20,\"output_tokens\":1}}}\n\n\
     data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello there\"}}\n\n\
     data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":4}}\n\n\
     data: {\"type\":\"message_stop\"}\n\n";
const RESPONSES: &str = "data: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"Hello there\"}\n\n\
     data: {\"type\":\"response.completed\",\"sequence_number\":2,\"response\":{\"usage\":{\"input_tokens\":20,\"output_tokens\":4}}}\n\n";

/// What a server makes of a request.
type Decides = fn(&str) -> (&'static str, String);

fn body_of(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn refuse(error: Value) -> (&'static str, String) {
    ("400 Bad Request", error.to_string())
}

/// As a LiteLLM proxy in front of a model that reasons.
fn litellm(request: &str) -> (&'static str, String) {
    match body_of(request).get("temperature") {
        Some(temperature) if *temperature != json!(1.0) => {
            let message = format!(
                "litellm.UnsupportedParamsError: gpt-5 models (including gpt-5-codex) don't support temperature={temperature}. Only temperature=1 is supported. For gpt-5.1, temperature is supported when reasoning_effort='none'. To drop unsupported params set `litellm.drop_params = True`. Received Model Group=gpt-5.5"
            );
            refuse(json!({"error": {"message": message, "type": null, "param": null, "code": "400"}}))
        }
        Some(_) | None => ("200 OK", CHAT.to_owned()),
    }
}

/// As OpenAI's responses.
fn openai(request: &str) -> (&'static str, String) {
    match body_of(request).get("temperature") {
        Some(_) => refuse(json!({"error": {
            "message": "Unsupported parameter: 'temperature' is not supported with this model.",
            "type": "invalid_request_error", "param": "temperature", "code": null,
        }})),
        None => ("200 OK", RESPONSES.to_owned()),
    }
}

/// As OpenAI's chat completions with a model that takes tools only without reasoning, and takes no `max_tokens`.
fn openai_chat(request: &str) -> (&'static str, String) {
    let body = body_of(request);
    if body.get("max_tokens").is_some() {
        return refuse(json!({"error": {
            "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "type": "invalid_request_error", "param": "max_tokens", "code": "unsupported_parameter",
        }}));
    }
    if body.get("tools").is_some() && body.get("reasoning_effort") != Some(&json!("none")) {
        return refuse(json!({"error": {
            "message": "Function tools with reasoning_effort are not supported for gpt-5.6-luna in /v1/chat/completions. Please use /v1/responses instead.",
            "type": "invalid_request_error", "param": "reasoning_effort", "code": null,
        }}));
    }
    ("200 OK", CHAT.to_owned())
}

/// As Anthropic's messages with a model that can't be forced.
fn anthropic(request: &str) -> (&'static str, String) {
    match body_of(request).pointer("/tool_choice/type").and_then(Value::as_str) {
        Some("any" | "tool") => refuse(json!({"type": "error", "error": {
            "type": "invalid_request_error", "message": "tool_choice: Forced tool use is not supported on this model.",
        }})),
        Some(_) | None => ("200 OK", ANTHROPIC.to_owned()),
    }
}

fn hub_of(kind: &str, server: &Server) -> Hub {
    let text = format!("[models.one]\nkind = '{kind}'\nurl = '{}'\nmodels = ['m']\n", server.url());
    Hub::from_settings(Settings::parse(&text).unwrap(), None, Arc::new(SystemClock::default())).unwrap()
}

/// A question with all that may be refused.
fn demanding() -> Inference {
    let offer = Offer {
        name: "fs.read".to_owned(),
        description: "Reads.".to_owned(),
        input: json!({"type": "object"}),
    };
    let sampling = Sampling { temperature: Some(0.0), must_call: true, ..Sampling::default() };
    Inference { tools: vec![offer], sampling, ..asking("one", "Hi") }
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_parameter_that_a_provider_refuses_is_dropped_once_and_remembered() {
    let cases: [(&str, Decides, Value); 4] = [
        ("openai", litellm, json!(["temperature"])),
        ("openai-responses", openai, json!(["temperature"])),
        ("compatible", openai_chat, json!(["max_tokens", "reasoning_effort"])),
        ("anthropic", anthropic, json!(["tool_choice"])),
    ];
    for (kind, decide, refused) in cases {
        let server = Server::new(vec![Act::By(decide)]);
        let world = ModelsFixture::new(ALLOW_ALL, hub_of(kind, &server)).await;
        let outcome = world.ask(demanding()).await;
        assert_eq!(outcome.status, Status::Ok, "{kind}");
        let first = 1 + refused.as_array().unwrap().len();
        assert_eq!(server.requests().len(), first, "{kind}");
        assert_eq!(outcome.obtained.unwrap()["refused"], refused, "{kind}");
        // The next question goes without it from the start.
        assert_eq!(world.ask(demanding()).await.status, Status::Ok, "{kind}");
        assert_eq!(server.requests().len(), first + 1, "{kind}");
        // So does the first one of another process that has read the ledger.
        let later = hub_of(kind, &server);
        for entry in world.entries() {
            if let Ok(EntryBody::Outcome(outcome)) = EntryBody::read(&entry) {
                later.learn_from(&outcome);
            }
        }
        let later = ModelsFixture::new(ALLOW_ALL, later).await;
        assert_eq!(later.ask(demanding()).await.status, Status::Ok, "{kind}");
        assert_eq!(server.requests().len(), first + 2, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_question_as_tasks_put_it_is_refused_by_none_of_them() {
    let cases: [(&str, Decides); 3] =
        [("openai", litellm), ("openai-responses", openai), ("anthropic", anthropic)];
    for (kind, decide) in cases {
        let server = Server::new(vec![Act::By(decide)]);
        let world = ModelsFixture::new(ALLOW_ALL, hub_of(kind, &server)).await;
        let usual = Inference { sampling: Sampling::default(), ..demanding() };
        assert_eq!(world.ask(usual).await.status, Status::Ok, "{kind}");
        assert_eq!(server.requests().len(), 1, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d7_a_permanent_error_is_asked_once_and_says_so() {
    let long = json!({"error": {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}});
    let cases = [
        (Act::Answer("400 Oh", "{\"error\":\"no\"}".to_owned()), "model.refused"),
        (Act::Answer("400 Oh", long.to_string()), "model.too_long"),
        (Act::Answer("401 Oh", String::new()), "model.unauthorised"),
        (Act::Answer("403 Oh", String::new()), "model.unauthorised"),
        (Act::Answer("404 Oh", String::new()), "model.refused"),
        (Act::With("302 Found", "location: http://127.0.0.1:1/", String::new()), "model.refused"),
        (
            Act::With("200 OK", "content-type: text/html; charset=utf-8", "<html>Sign in</html>".to_owned()),
            "model.not_an_api",
        ),
    ];
    for (act, code) in cases {
        let server = Server::new(vec![act.clone()]);
        let world = ModelsFixture::new(ALLOW_ALL, hub_of("compatible", &server)).await;
        let outcome = world.ask(asking("one", "Hi")).await;
        let Status::Failed(failure) = &outcome.status else { panic!("{act:?}: {:?}", outcome.status) };
        assert_eq!((failure.code.as_str(), server.requests().len()), (code, 1), "{act:?}");
        assert_eq!(outcome.obtained.unwrap()["retry"], "never", "{act:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d7_a_long_wait_is_kept_and_not_asked_into() {
    let limited = "{\"error\":{\"message\":\"slow down\"}}".to_owned();
    let headers = [
        "retry-after: 3600",
        "date: Thu, 01 Jan 2026 00:00:00 GMT\r\nretry-after: Thu, 01 Jan 2026 01:00:00 GMT",
    ];
    for header in headers {
        let server = Server::new(vec![Act::With("429 Too Many Requests", header, limited.clone())]);
        let world = ModelsFixture::new(ALLOW_ALL, hub_of("compatible", &server)).await;
        let before_ms = world.kernel.now_ms();
        let outcome = world.ask(asking("one", "Hi")).await;
        let after_ms = world.kernel.now_ms();
        assert!(matches!(&outcome.status, Status::Failed(failure) if failure.code == "model.rate_limited"));
        let at_ms = outcome.obtained.unwrap()["retry"]["at_ms"].as_i64().unwrap();
        assert!((before_ms + 3_600_000..=after_ms + 3_600_000).contains(&at_ms), "{header}: {at_ms}");
        assert_eq!(server.requests().len(), 1, "{header}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d7_what_passes_is_tried_a_few_times_and_the_cause_stays_visible() {
    let server =
        Server::new(vec![Act::Answer("503 Oh", "{\"error\":{\"message\":\"the disk is full\"}}".to_owned())]);
    let text = format!(
        "[models.one]\nkind = 'compatible'\nurl = '{}'\nmodels = ['m']\npatience = {{ wait_ms = 1, wait_ms_max = 2 }}\n",
        server.url()
    );
    let hub =
        Hub::from_settings(Settings::parse(&text).unwrap(), None, Arc::new(SystemClock::default())).unwrap();
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let mut requests = 0;
    for call in 0..4 {
        let outcome = world.ask(asking("one", "Hi")).await;
        let Status::Failed(failure) = &outcome.status else { panic!("{:?}", outcome.status) };
        assert!(failure.message.contains("the disk is full"), "call {call}: {}", failure.message);
        assert_eq!(outcome.obtained.unwrap()["retry"], "later", "call {call}");
        requests = server.requests().len();
    }
    assert_eq!(requests, 5, "the breaker opens after five failures");
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_a_malformed_call_is_part_of_the_answer() {
    let call = json!([{"index": 0, "id": "a", "function": {"name": "fs_read", "arguments": "{\"path\": "}}]);
    let answer = json!({"choices": [{"delta": {"tool_calls": call}, "finish_reason": "tool_calls"}]});
    let server = Server::new(vec![Act::Answer("200 OK", format!("data: {answer}\n\ndata: [DONE]\n\n"))]);
    let world = ModelsFixture::new(ALLOW_ALL, hub_of("compatible", &server)).await;
    let outcome = world.ask(demanding()).await;
    assert_eq!((&outcome.status, server.requests().len()), (&Status::Ok, 1));
    let message = completion(&outcome).message;
    let calls: Vec<_> = message.calls().collect();
    assert_eq!((calls[0].tool.as_str(), calls[0].unreadable()), ("fs.read", Some("{\"path\": ")));
}
