//! What is written is read again, and what an older Regent wrote is written as it was.

use proptest::prelude::*;
use regent_ledger::{CanonicalJson, Digest};
use schemars::schema_for;
use serde_json::json;

use super::*;

fn call(id: &str) -> ToolUse {
    ToolUse { id: id.to_owned(), tool: "fs.read".to_owned(), args: json!({"path": "a.txt"}) }
}

fn image() -> Part {
    Part::Image { media_type: "image/png".to_owned(), payload: "aWNv".to_owned() }
}

fn thought(text: &str) -> Part {
    let (provider, model) = ("claude".to_owned(), "one".to_owned());
    Part::Reasoning(Reasoning {
        provider,
        model,
        text: text.to_owned(),
        opaque: Some(json!({"signature": "c2ln"})),
    })
}

fn result(parts: Vec<Part>) -> Part {
    Part::ToolResult { answers: "c1".to_owned(), parts }
}

#[test]
fn a_message_of_text_and_calls_is_written_as_older_journals_have_it() {
    let asked = json!({"id": "c1", "tool": "fs.read", "args": {"path": "a.txt"}});
    let cases = [
        (Message::new(Role::User, "hello"), json!({"role": "user", "text": "hello"})),
        (Message::new(Role::Assistant, ""), json!({"role": "assistant"})),
        (
            Message::asking("I look.", [call("c1")]),
            json!({"role": "assistant", "text": "I look.", "calls": [asked]}),
        ),
        (Message::asking("", [call("c1")]), json!({"role": "assistant", "calls": [asked]})),
        (Message::answer("c1", "alpha"), json!({"role": "tool", "text": "alpha", "answers": "c1"})),
        (Message::answer("c1", ""), json!({"role": "tool", "answers": "c1"})),
    ];
    for (message, written) in cases {
        assert_eq!(serde_json::to_value(&message).unwrap(), written);
        assert_eq!(serde_json::from_value::<Message>(written).unwrap(), message);
    }
}

#[test]
fn anything_else_is_written_by_its_parts() {
    let cases = [
        vec![thought("hm"), Part::text("yes")],
        vec![image()],
        vec![Part::text("a"), Part::text("b")],
        vec![Part::text("")],
        vec![Part::ToolUse(call("c1")), Part::text("after")],
        vec![result(vec![image()])],
        vec![result(vec![Part::text("a"), image()])],
        vec![result(vec![Part::text("")])],
        vec![result(Vec::new()), result(Vec::new())],
        vec![Part::text("before"), result(Vec::new())],
        vec![result(vec![Part::text("a")]), Part::text("b")],
    ];
    for parts in cases {
        let message = Message { role: Role::Tool, parts };
        let written = serde_json::to_value(&message).unwrap();
        assert!(written.get("parts").is_some() && written.get("text").is_none(), "{written}");
        assert_eq!(serde_json::from_value::<Message>(written).unwrap(), message);
    }
}

#[test]
fn a_message_with_two_meanings_is_an_error() {
    for (written, why) in [
        (json!({"role": "user", "text": "a", "parts": [{"type": "text", "text": "b"}]}), "either"),
        (json!({"role": "tool", "answers": "a", "parts": [{"type": "text", "text": "b"}]}), "either"),
        (
            json!({"role": "tool", "parts": [{"type": "tool_result", "answers": "a", "parts": [
                {"type": "tool_result", "answers": "b", "parts": []},
            ]}]}),
            "a tool result has only",
        ),
        (json!({"role": "user", "parts": [{"type": "sound"}]}), "unknown variant `sound`"),
        (
            json!({"role": "user", "parts": [{"type": "text", "text": "a", "more": 1}]}),
            "unknown field `more`",
        ),
        (json!({"role": "user", "picture": 1}), "unknown field `picture`"),
    ] {
        let error = serde_json::from_value::<Message>(written).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// Taken when messages had no parts.
#[test]
fn the_digest_of_an_older_conversation_is_the_same() {
    let written = r#"{"messages":[{"role":"system","text":"Be brief."},{"role":"user","text":"And é?"},{"calls":[{"args":{},"id":"c1","tool":"fs.list"}],"role":"assistant"},{"answers":"c1","role":"tool","text":"alpha"}],"model":"claude/one","tokens_max":256}"#;
    let inference: Inference = serde_json::from_str(written).unwrap();
    let again = CanonicalJson::encode(&inference).unwrap();
    assert_eq!(again.as_str(), written);
    assert_eq!(Digest::compute(again.as_str().as_bytes()), Digest::compute(written.as_bytes()));
}

#[test]
fn text_is_what_is_said_and_not_what_is_thought() {
    let parts =
        vec![thought("hm"), Part::text("I "), image(), Part::text("look."), Part::ToolUse(call("c1"))];
    let mut message = Message { role: Role::Assistant, parts };
    assert_eq!(message.text(), "I look.");
    assert!(message.has_calls() && message.answers().is_none());
    message.texts_mut().for_each(|text| *text = text.to_uppercase());
    message.calls_mut().for_each(|call| call.tool = "fs.list".to_owned());
    assert_eq!(message.text(), "I LOOK.");
    assert_eq!(message.calls().next().unwrap().tool, "fs.list");

    let parts = vec![result(vec![Part::text("one"), image(), Part::text(" two")])];
    let mut answer = Message { role: Role::Tool, parts };
    assert_eq!((&*answer.text(), answer.answers()), ("one two", Some("c1")));
    answer.texts_mut().for_each(String::clear);
    assert_eq!(answer.text(), "");
}

#[test]
fn parts_without_words_have_tokens_too() {
    let of_text = |text: &str| text.len() as u64;
    assert_eq!(Part::text("four").tokens(&of_text), 4);
    assert!(image().tokens(&of_text) >= 4_784, "the most that a provider takes by default");
    let payload = "x".repeat(40_000);
    let file = Part::File { media_type: "text/plain".to_owned(), name: "a".to_owned(), payload };
    assert!(file.tokens(&of_text) >= 10_000);
    // A signature carries what the text only sums up.
    let opaque = Some(json!({"signature": "x".repeat(4_000)}));
    let thought = Reasoning { provider: String::new(), model: String::new(), text: "hm".to_owned(), opaque };
    assert!(Part::Reasoning(thought).tokens(&of_text) >= 1_000);
    assert_eq!(result(vec![Part::text("four"), Part::text("five")]).tokens(&of_text), 8);
}

#[test]
fn the_schema_names_every_kind_of_part() {
    let schema = serde_json::to_value(schema_for!(Completion)).unwrap().to_string();
    for word in ["text", "image", "file", "tool_use", "tool_result", "reasoning"] {
        assert!(schema.contains(&format!("\"const\":\"{word}\"")), "{word}: {schema}");
    }
    assert!(schema.contains("\"answers\"") && schema.contains("\"calls\""), "{schema}");
}

fn any_part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        4 => "[a-z]{0,4}".prop_map(Part::text),
        1 => Just(image()),
    ];
    let results = prop::collection::vec(content.clone(), 0..3);
    prop_oneof![
        3 => content,
        3 => "[a-c]".prop_map(|id| Part::ToolUse(call(&id))),
        3 => results.prop_map(result),
        1 => "[a-z]{0,4}".prop_map(|text| thought(&text)),
    ]
}

proptest! {
    #[test]
    fn parts_are_the_same_after_either_form(
        role in prop::sample::select(vec![Role::System, Role::User, Role::Assistant, Role::Tool]),
        parts in prop::collection::vec(any_part(), 0..4),
    ) {
        let message = Message { role, parts };
        let written = serde_json::to_string(&message).unwrap();
        let again: Message = serde_json::from_str(&written).unwrap();
        prop_assert_eq!(&again, &message);
        prop_assert_eq!(serde_json::to_string(&again).unwrap(), written);
    }

    #[test]
    fn an_older_message_is_written_as_it_was(
        role in prop::sample::select(vec!["system", "user", "assistant", "tool"]),
        text in "[a-z]{0,4}",
        calls in 0..3_usize,
        answers in prop::option::of("[a-z]{0,2}"),
    ) {
        let mut written = json!({"role": role});
        let mut put = |field: &str, value: Option<Value>| if let Some(value) = value { written[field] = value };
        put("text", (!text.is_empty()).then(|| json!(text)));
        put("calls", (calls > 0).then(|| json!(vec![call("c1"); calls])));
        put("answers", answers.map(|id| json!(id)));
        let message: Message = serde_json::from_value(written.clone()).unwrap();
        prop_assert_eq!(serde_json::to_value(&message).unwrap(), written);
    }
}
