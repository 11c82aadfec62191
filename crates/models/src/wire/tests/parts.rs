//! What comes in an answer goes back with the next question, as it came and where it came; and what a tool shows reaches each provider.

use regent_kernel::{Message, Part, Role, ToolUse};

use super::*;

/// An answer, what it is to us, and how the next request repeats it to the same model.
struct Trip {
    wire: &'static str,
    stream: Vec<Value>,
    parts: Value,
    sent: Value,
}

fn thought(text: &str, opaque: Value) -> Value {
    let mut part = json!({"type": "reasoning", "provider": "test", "model": "model"});
    put(&mut part, "text", (!text.is_empty()).then(|| json!(text)));
    put(&mut part, "opaque", (!opaque.is_null()).then_some(opaque));
    part
}

fn said(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn asks(id: &str, path: &str) -> Value {
    json!({"type": "tool_use", "id": id, "tool": "fs.read", "args": {"path": path}})
}

fn anthropic() -> Trip {
    let block = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let thinking = || json!({"type": "thinking", "thinking": "", "signature": ""});
    let signed = |signature: &str| json!({"type": "signature_delta", "signature": signature});
    Trip {
        wire: "anthropic",
        stream: vec![
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}),
            block(0, thinking()),
            delta(0, json!({"type": "thinking_delta", "thinking": "Which "})),
            delta(0, json!({"type": "thinking_delta", "thinking": "file?"})),
            delta(0, signed("c2ln")),
            delta(0, signed("LTE=")),
            stop(0),
            block(1, json!({"type": "redacted_thinking", "data": "aGlkZGVu"})),
            stop(1),
            block(2, json!({"type": "text", "text": ""})),
            delta(2, json!({"type": "text_delta", "text": "I look."})),
            stop(2),
            // One that isn't shown, only signed, between the text and the call.
            block(3, thinking()),
            delta(3, signed("c2lnLTI=")),
            stop(3),
            block(4, json!({"type": "tool_use", "id": "c1", "name": "fs_read", "input": {}})),
            delta(4, json!({"type": "input_json_delta", "partial_json": "{\"path\":\"a.txt\"}"})),
            stop(4),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
            json!({"type": "message_stop"}),
        ],
        parts: json!([
            thought("Which file?", json!({"signature": "c2lnLTE="})),
            thought("", json!({"redacted_thinking": "aGlkZGVu"})),
            said("I look."),
            thought("", json!({"signature": "c2lnLTI="})),
            asks("c1", "a.txt"),
        ]),
        sent: json!([{"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Which file?", "signature": "c2lnLTE="},
            {"type": "redacted_thinking", "data": "aGlkZGVu"},
            {"type": "text", "text": "I look."},
            {"type": "thinking", "thinking": "", "signature": "c2lnLTI="},
            {"type": "tool_use", "id": "c1", "name": "fs_read", "input": {"path": "a.txt"}},
        ]}]),
    }
}

fn responses() -> Trip {
    let event = |kind: &str, more: Value| {
        let mut event = more;
        put(&mut event, "type", Some(json!(format!("response.{kind}"))));
        event
    };
    let summary = |text: &str| json!({"type": "summary_text", "text": text});
    let item = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "ZW5j", "status": "completed",
        "summary": [summary("First."), summary("Then.")]});
    let call =
        |args: &str| json!({"type": "function_call", "call_id": "c1", "name": "fs_read", "arguments": args});
    Trip {
        wire: "openai_responses",
        stream: vec![
            event(
                "output_item.added",
                json!({"output_index": 0, "item": {"type": "reasoning", "id": "rs_1", "summary": []}}),
            ),
            event("reasoning_summary_part.added", json!({"summary_index": 0})),
            event("reasoning_summary_text.delta", json!({"summary_index": 0, "delta": "First."})),
            event("reasoning_summary_part.added", json!({"summary_index": 1})),
            event("reasoning_summary_text.delta", json!({"summary_index": 1, "delta": "Then."})),
            event("output_item.done", json!({"output_index": 0, "item": item})),
            event("output_text.delta", json!({"output_index": 1, "delta": "I look."})),
            event("output_item.added", json!({"output_index": 2, "item": call("")})),
            event(
                "function_call_arguments.delta",
                json!({"output_index": 2, "delta": "{\"path\":\"a.txt\"}"}),
            ),
            event("output_item.done", json!({"output_index": 2, "item": call("{\"path\":\"a.txt\"}")})),
            event("completed", json!({"response": {}})),
        ],
        parts: json!([
            thought(
                "First.\n\nThen.",
                json!({"id": "rs_1", "encrypted_content": "ZW5j",
                "summary": [summary("First."), summary("Then.")]})
            ),
            said("I look."),
            asks("c1", "a.txt"),
        ]),
        sent: json!([
            {"type": "reasoning", "id": "rs_1", "encrypted_content": "ZW5j", "summary": [summary("First."), summary("Then.")]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            call("{\"path\":\"a.txt\"}"),
        ]),
    }
}

fn gemini() -> Trip {
    let piece = |parts: Value| json!({"candidates": [{"content": {"role": "model", "parts": parts}}]});
    let call = |path: &str| json!({"name": "fs_read", "args": {"path": path}});
    Trip {
        wire: "gemini",
        stream: vec![
            piece(json!([{"text": "Which file?", "thought": true}])),
            piece(json!([{"text": "I "}, {"text": "look.", "thoughtSignature": "czE="}])),
            piece(json!([{"functionCall": call("a.txt"), "thoughtSignature": "czI="}])),
            piece(json!([{"functionCall": call("b.txt")}])),
            piece(json!([{"text": "", "thoughtSignature": "czM="}])),
            json!({"candidates": [{"finishReason": "STOP"}]}),
        ],
        parts: json!([
            thought("Which file?", Value::Null),
            said("I "),
            thought("", json!({"thought_signature": "czE=", "on": "next"})),
            said("look."),
            thought("", json!({"thought_signature": "czI=", "on": "next"})),
            asks("call_0_0", "a.txt"),
            asks("call_0_1", "b.txt"),
            thought("", json!({"thought_signature": "czM=", "on": "nothing"})),
        ]),
        sent: json!([{"role": "model", "parts": [
            {"text": "Which file?", "thought": true},
            {"text": "I "},
            {"text": "look.", "thoughtSignature": "czE="},
            {"functionCall": call("a.txt"), "thoughtSignature": "czI="},
            {"functionCall": call("b.txt")},
            {"text": "", "thoughtSignature": "czM="},
        ]}]),
    }
}

fn chat(thoughts: [Value; 2], part: Value, sent: (&str, Value)) -> Trip {
    let delta = |delta: Value| json!({"choices": [{"delta": delta}]});
    let call = json!({"index": 0, "id": "c1", "type": "function",
        "function": {"name": "fs_read", "arguments": "{\"path\":\"a.txt\"}"}});
    let mut turn = json!({"role": "assistant", "content": "I look.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "fs_read", "arguments": "{\"path\":\"a.txt\"}"}},
    ]});
    put(&mut turn, sent.0, Some(sent.1));
    let [first, second] = thoughts;
    Trip {
        wire: "openai_chat",
        stream: vec![
            delta(first),
            delta(second),
            delta(json!({"content": "I look."})),
            delta(json!({"tool_calls": [call]})),
            json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
            json!("[DONE]"),
        ],
        parts: json!([part, said("I look."), asks("c1", "a.txt")]),
        sent: json!([turn]),
    }
}

fn chats() -> [Trip; 3] {
    let named = |field: &str| {
        let pieces = [json!({field: "Which "}), json!({field: "file?"})];
        chat(pieces, thought("Which file?", json!({"field": field})), (field, json!("Which file?")))
    };
    let detail = |text: &str, signature: Value| json!({"type": "reasoning.text", "index": 0, "text": text, "signature": signature, "format": "any-v1"});
    let whole = json!([detail("Which file?", json!("c2ln"))]);
    let pieces = [
        json!({"reasoning": "Which ", "reasoning_details": [detail("Which ", Value::Null)]}),
        json!({"reasoning": "file?", "reasoning_details": [detail("file?", json!("c2ln"))]}),
    ];
    let opaque = json!({"reasoning_details": whole.to_string()});
    [
        named("reasoning_content"),
        named("reasoning"),
        chat(pieces, thought("Which file?", opaque), ("reasoning_details", whole)),
    ]
}

fn ollama() -> Trip {
    let piece = |message: Value| json!({"message": message, "done": false});
    let call = json!({"function": {"name": "fs_read", "arguments": {"path": "a.txt"}}});
    Trip {
        wire: "ollama",
        stream: vec![
            piece(json!({"thinking": "Which "})),
            piece(json!({"thinking": "file?"})),
            piece(json!({"content": "I look."})),
            piece(json!({"tool_calls": [call]})),
            json!({"done": true, "done_reason": "stop"}),
        ],
        parts: json!([thought("Which file?", Value::Null), said("I look."), asks("call_0_0", "a.txt")]),
        sent: json!([{"role": "assistant", "content": "I look.", "thinking": "Which file?", "tool_calls": [call]}]),
    }
}

/// What a question has where its turns are.
fn turns_of(body: &Value) -> &[Value] {
    let fields = ["messages", "input", "contents"];
    fields.iter().find_map(|field| body[field].as_array()).unwrap()
}

fn asking(messages: Vec<Message>) -> Inference {
    let input = json!({"type": "object"});
    let tools = vec![regent_kernel::Offer { name: "fs.read".to_owned(), description: String::new(), input }];
    Inference { model: "test/model".to_owned(), messages, tools, tokens_max: 9, sampling: Default::default() }
}

#[test]
fn what_a_model_thought_goes_back_to_it_as_it_came() {
    for trip in [anthropic(), responses(), gemini(), ollama()].into_iter().chain(chats()) {
        let wire = wire_of(trip.wire);
        let names = Names::from_inference(&asking(Vec::new()));
        let case = Case { messages: trip.stream, ..Case::default() };
        let stream = stream_of(&*wire, &case);
        for cut in 0..=stream.len() {
            let (left, right) = stream.split_at(cut);
            let (completion, _) = read(&*wire, &names, &[left, right]).unwrap();
            let parts = serde_json::to_value(&completion.message.parts).unwrap();
            assert_eq!(parts, trip.parts, "{} cut at {cut}", trip.wire);
        }
        let (completion, _) = read(&*wire, &names, &[&stream]).unwrap();
        // As the ledger keeps it.
        let written = serde_json::to_string(&completion.message).unwrap();
        let message: Message = serde_json::from_str(&written).unwrap();
        let body = body_of(&*wire, "model", &asking(vec![Message::new(Role::User, "Hi"), message]), &names);
        assert_eq!(json!(turns_of(&body)[1..]), trip.sent, "{}", trip.wire);
    }
}

#[test]
fn drops_reasoning_that_led_to_nothing() {
    let thoughts = [anthropic(), responses()].map(|trip| (trip.wire, trip.parts[0].clone()));
    for (wire, thought) in thoughts {
        let thought: Part = serde_json::from_value(thought).unwrap();
        let message = |parts| Message { role: Role::Assistant, parts };
        let messages = vec![message(vec![thought.clone()]), message(vec![Part::text("Hi"), thought])];
        let body = body_of(&*wire_of(wire), "model", &asking(messages), &Names::default()).to_string();
        assert!(body.contains("Hi") && !body.contains("c2lnLTE=") && !body.contains("ZW5j"), "{body}");
    }
}

const PIXEL: &str = "iVBORw0KGgo=";
const NOTE: &str = "YSBub3Rl";

fn image() -> Part {
    Part::Image { media_type: "image/png".to_owned(), payload: PIXEL.to_owned() }
}

fn file(media_type: &str, name: &str, payload: &str) -> Part {
    Part::File { media_type: media_type.to_owned(), name: name.to_owned(), payload: payload.to_owned() }
}

#[test]
fn what_a_tool_shows_reaches_every_provider() {
    let url = format!("data:image/png;base64,{PIXEL}");
    let inline = json!({"inlineData": {"mimeType": "image/png", "data": PIXEL}});
    let source = json!({"type": "base64", "media_type": "image/png", "data": PIXEL});
    let response = json!({"name": "fs_read", "response": {"output": "a picture"}});
    let within = json!({"name": "fs_read", "response": {"output": "a picture"}, "parts": [inline]});
    let cases = [
        (
            ("anthropic", "any"),
            json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [
                {"type": "text", "text": "a picture"}, {"type": "image", "source": source},
            ]}]}]),
        ),
        (
            ("openai_chat", "any"),
            json!([
                {"role": "tool", "tool_call_id": "c1", "content": "a picture"},
                {"role": "user", "content": [
                    {"type": "text", "text": "[returned by the tool call `c1`]"},
                    {"type": "image_url", "image_url": {"url": url}},
                ]},
            ]),
        ),
        (
            ("openai_responses", "any"),
            json!([{"type": "function_call_output", "call_id": "c1", "output": [
                {"type": "input_text", "text": "a picture"}, {"type": "input_image", "image_url": url},
            ]}]),
        ),
        (("gemini", "gemini-3-pro"), json!([{"role": "user", "parts": [{"functionResponse": within}]}])),
        (
            ("gemini", "gemini-2.5-pro"),
            json!([{"role": "user", "parts": [{"functionResponse": response}, inline]}]),
        ),
        (
            ("ollama", "any"),
            json!([{"role": "tool", "content": "a picture", "tool_name": "fs_read", "images": [PIXEL]}]),
        ),
    ];
    let call = ToolUse { id: "c1".to_owned(), tool: "fs.read".to_owned(), args: json!({}) };
    let parts = vec![Part::text("a picture"), image()];
    let answer =
        Message { role: Role::Tool, parts: vec![Part::ToolResult { answers: "c1".to_owned(), parts }] };
    let asked = asking(vec![Message::new(Role::User, "Look"), Message::asking("", [call]), answer]);
    let names = Names::from_inference(&asked);
    for ((name, model), expected) in cases {
        let wire = wire_of(name);
        assert!(wire.takes(&image()), "{name}");
        let body = body_of(&*wire, model, &asked, &names);
        assert_eq!(json!(turns_of(&body)[2..]), expected, "{name}");
    }
}

#[test]
fn what_a_user_shows_reaches_every_provider_that_takes_it() {
    let pdf = file("application/pdf", "a.pdf", PIXEL);
    let note = file("text/plain", "a.txt", NOTE);
    let url = |media_type: &str, payload: &str| format!("data:{media_type};base64,{payload}");
    let document = |name: &str, source: Value| json!({"type": "document", "title": name, "source": source});
    let text = json!({"type": "text", "media_type": "text/plain", "data": "a note"});
    let based = json!({"type": "base64", "media_type": "application/pdf", "data": PIXEL});
    let named = |name: &str, data: String| json!({"filename": name, "file_data": data});
    let inline = |media_type: &str, data: &str| json!({"inlineData": {"mimeType": media_type, "data": data}});
    let input = |name: &str, data: String| json!({"type": "input_file", "filename": name, "file_data": data});
    let cases = [
        ("anthropic", &pdf, Some(document("a.pdf", based))),
        ("anthropic", &note, Some(document("a.txt", text))),
        (
            "openai_chat",
            &pdf,
            Some(json!({"type": "file", "file": named("a.pdf", url("application/pdf", PIXEL))})),
        ),
        ("openai_responses", &note, Some(input("a.txt", url("text/plain", NOTE)))),
        ("gemini", &pdf, Some(inline("application/pdf", PIXEL))),
        ("ollama", &pdf, None),
        ("compatible", &pdf, None),
    ];
    for (name, part, expected) in cases {
        let wire: Box<dyn Wire> =
            if name == "compatible" { Box::new(OpenAiChat { compatible: true }) } else { wire_of(name) };
        assert_eq!(wire.takes(part), expected.is_some(), "{name}");
        let message = Message { role: Role::User, parts: vec![Part::text("Read"), part.clone()] };
        let body = body_of(&*wire, "model", &asking(vec![message]), &Names::default());
        let turn = &turns_of(&body)[0];
        let contents = turn.get("content").or_else(|| turn.get("parts")).unwrap();
        if let Some(expected) = expected {
            assert_eq!(contents[1], expected, "{name}");
        }
    }
    let animation = Part::Image { media_type: "image/svg+xml".to_owned(), payload: NOTE.to_owned() };
    assert!(!Anthropic.takes(&animation) && !Anthropic.takes(&file("application/zip", "a.zip", PIXEL)));
}
