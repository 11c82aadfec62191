//! Exchanges that we wrote, in `tests/exchanges`, replayed against each protocol: whole, and cut at every byte.

mod effort;
mod parts;

use regent_kernel::{Completion, Inference};
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::capability::Capability;
use crate::event::Gathered;
use crate::names::Names;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchanges {
    wire: String,
    /// What is asked in all of them, and how that is sent.
    inference: Inference,
    path: String,
    body: Value,
    cases: Vec<Case>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// A bad status; none if absent.
    status: Option<u16>,
    /// Messages, put into the protocol's framing.
    #[serde(default)]
    messages: Vec<Value>,
    /// Or the bytes as they are.
    raw: Option<String>,
    answer: Option<ExpectedAnswer>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedAnswer {
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<(String, String, Value)>,
    stop: String,
    /// input, cached, output, reasoning.
    usage: Option<[u64; 4]>,
}

const EXCHANGES: [&str; 5] = [
    include_str!("../../tests/exchanges/openai_chat.json"),
    include_str!("../../tests/exchanges/openai_responses.json"),
    include_str!("../../tests/exchanges/anthropic.json"),
    include_str!("../../tests/exchanges/gemini.json"),
    include_str!("../../tests/exchanges/ollama.json"),
];

fn wire_of(name: &str) -> Box<dyn Wire> {
    match name {
        "openai_chat" => Box::new(OpenAiChat { compatible: false }),
        "openai_responses" => Box::new(OpenAiResponses),
        "anthropic" => Box::new(Anthropic),
        "gemini" => Box::new(Gemini),
        "ollama" => Box::new(Ollama),
        unknown => panic!("no protocol `{unknown}`"),
    }
}

/// What a protocol sends to a model of which nothing is known.
fn body_of(wire: &dyn Wire, model: &str, inference: &Inference, names: &Names) -> Value {
    let (capability, effort) = (&Capability::default(), None);
    wire.body(&Question { model, inference, names, capability, effort, cache_ttl: CacheTtl::default() })
}

fn all() -> impl Iterator<Item = Exchanges> {
    EXCHANGES.iter().map(|text| serde_json::from_str(text).unwrap())
}

fn stream_of(wire: &dyn Wire, case: &Case) -> Vec<u8> {
    if let Some(raw) = &case.raw {
        return raw.clone().into_bytes();
    }
    let framed = |message: &Value| match (wire.framing(), message) {
        (Framing::JsonLines, message) => format!("{message}\n"),
        (Framing::Events, Value::String(text)) => format!("data: {text}\n\n"),
        (Framing::Events, message) => format!("data: {message}\n\n"),
    };
    case.messages.iter().map(framed).collect::<String>().into_bytes()
}

fn read(wire: &dyn Wire, names: &Names, pieces: &[&[u8]]) -> Result<(Completion, bool), ProviderError> {
    let mut reading = Reading::new(wire);
    let mut gathered = Gathered::default();
    let mut events = Vec::new();
    for piece in pieces {
        reading.push(piece, &mut events)?;
    }
    reading.finish(&mut events)?;
    for event in events {
        gathered.take(event)?;
    }
    let reported = gathered.reported();
    let usage = reported.unwrap_or_default().tokens;
    Ok((gathered.finish("test/model", names, usage)?, reported.is_some()))
}

fn check(case: &Case, result: &Result<(Completion, bool), ProviderError>, how: &str) {
    let name = &case.name;
    match (&case.answer, &case.error, result) {
        (None, Some(expected), Err(error)) => {
            assert!(error.to_string().contains(expected.as_str()), "{name}, {how}: {error}");
        }
        (Some(expected), None, Ok((completion, reported))) => {
            let message = &completion.message;
            assert_eq!(message.text(), expected.text, "{name}, {how}");
            let calls: Vec<_> =
                message.calls().map(|call| (call.id.clone(), call.tool.clone(), call.args.clone())).collect();
            assert_eq!(calls, expected.calls, "{name}, {how}");
            assert_eq!(serde_json::to_value(completion.stop).unwrap(), json!(expected.stop), "{name}, {how}");
            let usage = completion.usage;
            let usage = reported.then_some([usage.input, usage.cached, usage.output, usage.reasoning]);
            assert_eq!(usage, expected.usage, "{name}, {how}");
        }
        (_, _, result) => panic!("{name}, {how}: {result:?}"),
    }
}

#[test]
fn questions_are_put_as_each_protocol_wants_them() {
    for exchanges in all() {
        let wire = wire_of(&exchanges.wire);
        let names = Names::from_inference(&exchanges.inference);
        assert_eq!(wire.path("some-model"), exchanges.path, "{}", exchanges.wire);
        let body = body_of(&*wire, "some-model", &exchanges.inference, &names);
        let shown = serde_json::to_string_pretty(&body).unwrap();
        assert_eq!(body, exchanges.body, "{}: {shown}", exchanges.wire);
    }
}

#[test]
fn a_longer_conversation_begins_with_the_same_question() {
    for exchanges in all() {
        let wire = wire_of(&exchanges.wire);
        let whole = exchanges.inference;
        let shorter = Inference { messages: whole.messages[..2].to_vec(), ..whole.clone() };
        let names = |inference: &Inference| Names::from_inference(inference);
        let (long, short) =
            (body_of(&*wire, "m", &whole, &names(&whole)), body_of(&*wire, "m", &shorter, &names(&shorter)));
        for field in ["messages", "input", "contents"] {
            let (Some(long), Some(short)) = (long[field].as_array(), short[field].as_array()) else {
                continue;
            };
            assert_eq!(&long[..short.len()], short.as_slice(), "{}", exchanges.wire);
        }
        for field in ["system", "systemInstruction", "tools"] {
            assert_eq!(long[field], short[field], "{}", exchanges.wire);
        }
    }
}

#[test]
fn answers_are_understood_whole_and_in_pieces_of_any_size() {
    let mut cases = 0;
    for exchanges in all() {
        let wire = wire_of(&exchanges.wire);
        let names = Names::from_inference(&exchanges.inference);
        for case in &exchanges.cases {
            cases += 1;
            let stream = stream_of(&*wire, case);
            if let Some(status) = case.status {
                check(case, &Err(refused(status, None, &stream, &Value::Null)), &exchanges.wire);
                continue;
            }
            check(case, &read(&*wire, &names, &[&stream]), &exchanges.wire);
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            check(case, &read(&*wire, &names, &bytes), "byte by byte");
            for border in 0..=stream.len() {
                let (left, right) = stream.split_at(border);
                check(case, &read(&*wire, &names, &[left, right]), &format!("cut at {border}"));
            }
        }
    }
    assert!(cases >= 50, "{cases}");
}

#[test]
fn what_came_before_an_error_is_the_same_however_it_is_cut() {
    for exchanges in all() {
        let wire = wire_of(&exchanges.wire);
        for case in exchanges.cases.iter().filter(|case| case.error.is_some() && case.status.is_none()) {
            let stream = stream_of(&*wire, case);
            let events = |pieces: &[&[u8]]| {
                let (mut reading, mut events) = (Reading::new(&*wire), Vec::new());
                let failed = pieces.iter().any(|piece| reading.push(piece, &mut events).is_err());
                let _ended = failed || reading.finish(&mut events).is_err();
                events
            };
            let whole = events(&[&stream]);
            assert_eq!(
                events(&stream.chunks(1).collect::<Vec<_>>()),
                whole,
                "{}: {}",
                exchanges.wire,
                case.name
            );
        }
    }
}

#[test]
fn a_stream_cut_anywhere_is_a_cut_or_an_error_and_never_a_whole_answer() {
    for exchanges in all() {
        let wire = wire_of(&exchanges.wire);
        let names = Names::from_inference(&exchanges.inference);
        for case in exchanges.cases.iter().filter(|case| case.answer.is_some() && case.raw.is_none()) {
            let stream = stream_of(&*wire, case);
            let (whole, _) = read(&*wire, &names, &[&stream]).unwrap();
            for end in 0..stream.len() {
                if let Ok((part, _)) = read(&*wire, &names, &[&stream[..end]]) {
                    // The answer is complete, and only what comes after the end is missing.
                    assert_eq!(
                        (part.message, part.stop),
                        (whole.message.clone(), whole.stop),
                        "{} at {end}",
                        case.name
                    );
                }
            }
        }
    }
}

#[test]
fn any_bytes_are_survived() {
    use proptest::prelude::*;
    let pieces = proptest::collection::vec(
        prop_oneof![
            any::<Vec<u8>>(),
            Just(b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":9999999999}]}}]}\n\n".to_vec()),
            Just(b"{\"message\":{\"tool_calls\":[{\"function\":{}}]}}\n".to_vec()),
            Just(b"data: {\"type\":\"content_block_delta\",\"index\":-1,\"delta\":{}}\n\n".to_vec()),
            Just(b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":7}]}}]}\n\n".to_vec()),
        ],
        0..8,
    );
    proptest!(|(pieces in pieces)| {
        for name in ["openai_chat", "openai_responses", "anthropic", "gemini", "ollama"] {
            let wire = wire_of(name);
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let _any = read(&*wire, &Names::default(), &pieces).is_ok();
        }
    });
}
