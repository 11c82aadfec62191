//! What messages are made of beside text, on its way to models and back.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::{Channel, Inference, Message, Op, Part, Reasoning, Reply, Role, Status};
use regent_models::{ProviderKind, Remote, Script, Scripted, wire::OpenAiChat};
use serde_json::{Value, json};

use crate::server::{Act, Server};
use crate::world::*;

const THOUGHT: &str = "it must be blue";

fn thinks() -> Act {
    let delta = |delta: Value| format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}));
    let pieces = [
        delta(json!({"reasoning_content": "it must "})),
        delta(json!({"reasoning_content": "be blue"})),
        delta(json!({"content": "Blue."})),
        format!("data: {}\n\n", json!({"choices": [{"delta": {}, "finish_reason": "stop"}]})),
    ];
    Act::Answer("200 OK", format!("{}data: [DONE]\n\n", pieces.concat()))
}

fn remote(server: &Server) -> Remote {
    Remote::new(Box::new(OpenAiChat { compatible: true }), &server.url(), None, hasty()).unwrap()
}

fn image() -> Part {
    Part::Image { media_type: "image/png".to_owned(), payload: "iVBORw0KGgo=".to_owned() }
}

fn shows(model: &str, part: Part) -> Inference {
    let parts = vec![Part::text("What is this?"), part];
    Inference { messages: vec![Message { role: Role::User, parts }], ..asking(model, "") }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_thought_goes_back_to_it_and_to_no_other() {
    let (one, two) = (Server::new(vec![thinks()]), Server::new(vec![thinks()]));
    let own = || {
        let mut own = quick(ProviderKind::Compatible);
        own.models.push("n".to_owned());
        own
    };
    let hub = hub(vec![("one", Arc::new(remote(&one)), own()), ("two", Arc::new(remote(&two)), own())]);
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let first = asking("one/m", "Which colour?");
    let answer = completion(&world.ask(first.clone()).await).message;
    let Part::Reasoning(thought) = &answer.parts[0] else { panic!("{answer:?}") };
    assert_eq!((&*thought.provider, &*thought.model, &*thought.text), ("one", "m", THOUGHT));
    assert_eq!(answer.text(), "Blue.");

    let mut next = first;
    next.messages.extend([answer, Message::new(Role::User, "Sure?")]);
    for (model, server, gets_it) in [("one/m", &one, true), ("one/n", &one, false), ("two/m", &two, false)] {
        let outcome = world.ask(Inference { model: model.to_owned(), ..next.clone() }).await;
        assert_eq!(outcome.status, Status::Ok, "{model}");
        let sent = server.requests().pop().unwrap();
        assert!(sent.contains("Blue."), "{sent}");
        assert_eq!(sent.contains(THOUGHT), gets_it, "{model}: {sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thoughts_flow_apart_from_the_answer() {
    let server = Server::new(vec![thinks()]);
    let hub = hub(vec![("one", Arc::new(remote(&server)), quick(ProviderKind::Compatible))]);
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let operator = world.kernel.operator();
    let mut stream = world.kernel.stream(&operator, Op::Infer(asking("one", "Which colour?")));
    let (mut said, mut thought) = (String::new(), String::new());
    while let Some(chunk) = stream.next().await {
        match chunk.channel {
            Channel::Output => said.push_str(&chunk.output.text()),
            Channel::Reasoning => {
                assert!(said.is_empty(), "no thought comes late");
                thought.push_str(&chunk.output.text());
            }
            Channel::Error => panic!("{chunk:?}"),
        }
    }
    assert_eq!((&*said, &*thought), ("Blue.", THOUGHT));
    assert!(matches!(stream.reply().await.unwrap(), Reply::Done(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_a_model_does_not_take_is_refused_by_name_and_the_router_finds_one_that_does() {
    let blind = Server::new(vec![thinks()]);
    let script: Script = serde_json::from_value(json!({"turns": [{"text": "A pixel."}]})).unwrap();
    let hub = hub(vec![
        ("blind", Arc::new(Elsewhere(remote(&blind))), quick(ProviderKind::Compatible)),
        ("near", Arc::new(Scripted::new(script)), quick(ProviderKind::Scripted)),
    ]);
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let file = Part::File {
        media_type: "application/pdf".to_owned(),
        name: "a.pdf".to_owned(),
        payload: "JVBERi0=".to_owned(),
    };
    let result = Part::ToolResult { answers: "c1".to_owned(), parts: vec![file.clone()] };
    let from_tool = Message { role: Role::Tool, parts: vec![result] };
    let cases = [
        shows("blind/m", file.clone()),
        Inference { messages: vec![Message::new(Role::User, "?"), from_tool], ..asking("blind/m", "") },
    ];
    let operator = world.kernel.operator();
    for inference in cases {
        let reply = world.kernel.syscall(&operator, Op::Infer(inference)).await.unwrap();
        let Reply::Denied(denial) = reply else { panic!("{reply:?}") };
        assert_eq!(&*denial.reason.code, "model.unsupported_part");
        let message = "the model `blind/m` takes no file of type `application/pdf` (`a.pdf`)";
        assert_eq!(denial.reason.message, message);
    }
    assert!(blind.requests().is_empty());
    assert_eq!(completion(&world.ask(shows("auto", file)).await).model, "near/m");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_out_of_place_or_not_what_they_say_are_refused() {
    let script: Script = serde_json::from_value(json!({"turns": [{"text": "?"}]})).unwrap();
    let hub = hub(vec![("s", Arc::new(Scripted::new(script)), quick(ProviderKind::Scripted))]);
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let picture = |media_type: &str, payload: &str| Part::Image {
        media_type: media_type.to_owned(),
        payload: payload.to_owned(),
    };
    let named = |name: &str| Part::File {
        media_type: "text/plain".to_owned(),
        name: name.to_owned(),
        payload: "YQ==".to_owned(),
    };
    let thought =
        Reasoning { provider: String::new(), model: String::new(), text: "x".to_owned(), opaque: None };
    let cases = [
        (Role::Assistant, image(), "another role"),
        (Role::System, image(), "another role"),
        (Role::User, Part::Reasoning(thought), "another role"),
        (Role::User, Part::ToolResult { answers: "c".to_owned(), parts: vec![] }, "another role"),
        (Role::User, picture("image/png", ""), "base64"),
        (Role::User, picture("image/png", "not base64!"), "base64"),
        (Role::User, picture("png", "YQ=="), "image/png"),
        (Role::User, picture("image/png\r\nx", "YQ=="), "image/png"),
        (Role::User, named(""), "name"),
        (Role::User, named("a\nb"), "name"),
    ];
    let operator = world.kernel.operator();
    for (role, part, why) in cases {
        let messages = vec![Message { role, parts: vec![part] }];
        let reply =
            world.kernel.syscall(&operator, Op::Infer(Inference { messages, ..asking("s", "") })).await;
        let Reply::Denied(denial) = reply.unwrap() else { panic!("{why}") };
        assert_eq!(&*denial.reason.code, "args.invalid");
        assert!(denial.reason.message.contains(why), "{}", denial.reason.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_leaves_is_redacted_in_every_part_but_thoughts_stay_as_they_came() {
    let server = Server::new(vec![thinks()]);
    let hub = hub(vec![("far", Arc::new(Elsewhere(remote(&server))), quick(ProviderKind::Compatible))]);
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let thought = |text: &str| {
        let (provider, model) = ("far".to_owned(), "m".to_owned());
        let opaque = Some(json!({"field": "reasoning_content"}));
        Part::Reasoning(Reasoning { provider, model, text: text.to_owned(), opaque })
    };
    let assistant = |parts| Message { role: Role::Assistant, parts };
    let result = |text: &str| {
        let parts = vec![Part::text(text), image()];
        Message { role: Role::Tool, parts: vec![Part::ToolResult { answers: "c1".to_owned(), parts }] }
    };
    let messages = vec![
        Message::new(Role::User, "write to ada@example.com"),
        assistant(vec![thought("[email:1] is who it is for"), Part::text("To ada@example.com.")]),
        result("ada@example.com, bob@example.com"),
    ];
    let inference = Inference { messages, ..asking("far/m", "") };
    let outcome = world.ask(inference.clone()).await;
    assert_eq!(outcome.status, Status::Ok, "{outcome:?}");
    let sent = server.requests().pop().unwrap();
    assert!(!sent.contains("ada@") && !sent.contains("bob@"), "{sent}");
    assert!(sent.contains("write to [email:1]") && sent.contains("\"[email:1], [email:2]\""), "{sent}");
    assert!(sent.contains("[email:1] is who it is for"), "{sent}");
    assert!(sent.contains("iVBORw0KGgo="), "an image is no text");

    // A text file is redacted within its encoding.
    let note = |text: &str| Part::File {
        media_type: "text/plain".to_owned(),
        name: "for ada@example.com".to_owned(),
        payload: STANDARD.encode(text),
    };
    let openai =
        Remote::new(Box::new(OpenAiChat { compatible: false }), &server.url(), None, hasty()).unwrap();
    let hub = crate::world::hub(vec![("far", Arc::new(Elsewhere(openai)), quick(ProviderKind::Openai))]);
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let outcome = world.ask(shows("far/m", note("call ada@example.com"))).await;
    assert_eq!(outcome.status, Status::Ok, "{outcome:?}");
    let sent = server.requests().pop().unwrap();
    assert!(sent.contains(&STANDARD.encode("call [email:1]")) && sent.contains("for [email:1]"), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thought_with_a_value_of_the_vault_does_not_leave() {
    let server = Server::new(vec![thinks()]);
    let wire = Box::new(OpenAiChat { compatible: true });
    // The call itself reveals the value.
    let remote = Remote::new(wire, &server.url(), Some("key".to_owned()), hasty()).unwrap();
    let hub = hub(vec![("far", Arc::new(Elsewhere(remote)), quick(ProviderKind::Compatible))]);
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let thought = |text: String| {
        let (provider, model) = ("far".to_owned(), "m".to_owned());
        Part::Reasoning(Reasoning { provider, model, text, opaque: Some(json!({"field": "reasoning"})) })
    };
    let parts = vec![thought("harmless".to_owned()), thought(format!("it is {KEY}")), Part::text("So.")];
    let said = Message { role: Role::Assistant, parts };
    let messages = vec![Message::new(Role::User, "Hi"), said, Message::new(Role::User, "Go on")];
    for _ in 0..2 {
        world.ask(Inference { messages: messages.clone(), ..asking("far/m", "") }).await;
    }
    let sent = server.requests().pop().unwrap();
    let (_, body) = sent.split_once("\r\n\r\n").unwrap();
    assert!(body.contains("harmless") && !body.contains("it is") && !body.contains(KEY), "{body}");
}
