//! What redaction took out of a prompt comes back beside the answer that names it.

use std::sync::Arc;

use regent_kernel::{Inference, Message, Role};
use regent_models::{ProviderKind, Remote, wire::OpenAiChat};
use serde_json::json;

use crate::server::{Act, Server};
use crate::world::*;

/// The answer of a model that copies a text into a file.
fn copies(text: &str) -> Act {
    let args = json!({"path": "copy.txt", "content": text}).to_string();
    let call = json!([{"index": 0, "id": "a", "function": {"name": "fs_write", "arguments": args}}]);
    let answer = json!({"choices": [{"delta": {"tool_calls": call}, "finish_reason": "tool_calls"}]});
    Act::Answer("200 OK", format!("data: {answer}\n\ndata: [DONE]\n\n"))
}

async fn asked(server: &Server, texts: &[&str]) -> (regent_kernel::Completion, String) {
    let remote =
        Remote::new(Box::new(OpenAiChat { compatible: true }), &server.url(), None, hasty()).unwrap();
    let hub = hub(vec![("far", Arc::new(Elsewhere(remote)), quick(ProviderKind::Compatible))]);
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let message = |text: &&str| Message::new(Role::User, *text);
    let inference = Inference { messages: texts.iter().map(message).collect(), ..asking("far/m", "") };
    let outcome = world.ask(inference).await;
    (completion(&outcome), server.requests().pop().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_an_answer_brings_the_values_of_the_placeholders_that_it_names() {
    let server = Server::new(vec![copies("mail [email:1], key [key:1]")]);
    let key = "AKIAIOSFODNN7EXAMPLE";
    let text = format!("write to ada@example.com and bob@example.com, aws {key}");
    let (completion, sent) = asked(&server, &[&text]).await;
    assert!(!sent.contains("ada@example.com") && !sent.contains(key), "{sent}");
    let expected = [("[email:1]", "ada@example.com"), ("[key:1]", key)];
    let expected = expected.map(|(placeholder, value)| (placeholder.to_owned(), value.to_owned()));
    assert_eq!(completion.redacted, expected.into(), "and not that of [email:2], which it doesn't name");
    assert_eq!(completion.message.calls().next().unwrap().args["content"], "mail [email:1], key [key:1]");
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_a_placeholder_that_was_text_before_stands_for_nothing() {
    let server = Server::new(vec![copies("[email:1] and [email:2]")]);
    let (completion, sent) = asked(&server, &["the file says [email:1]", "mail ada@example.com"]).await;
    assert!(sent.contains("mail [email:2]") && sent.contains("says [email:1]"), "{sent}");
    assert_eq!(completion.redacted, [("[email:2]".to_owned(), "ada@example.com".to_owned())].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_a_value_of_the_vault_never_comes_back() {
    let server = Server::new(vec![copies("[key:1] [token:1] [password:1]")]);
    let remote = Remote::new(
        Box::new(OpenAiChat { compatible: true }),
        &server.url(),
        Some("key".to_owned()),
        hasty(),
    )
    .unwrap();
    let hub = hub(vec![("far", Arc::new(Elsewhere(remote)), quick(ProviderKind::Compatible))]);
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    // The first call reveals the key to the provider's own header; from then on it is scrubbed from everything.
    world.ask(asking("far/m", "Hi")).await;
    let outcome = world.ask(asking("far/m", &format!("the key is {KEY}"))).await;
    assert!(!outcome.output.text().contains(KEY), "{}", outcome.output.text());
    let sent = server.requests().pop().unwrap();
    assert!(!sent.split_once("\r\n\r\n").unwrap().1.contains(KEY), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_base64_of_what_is_redacted_does_not_leave() {
    use base64::Engine as _;
    // Short base64 looks like a key as it is; that of a file doesn't.
    let words = "some words in a row, and a few more of them\n".repeat(40);
    let content = format!("{words}contact ada@example.com, aws AKIAIOSFODNN7EXAMPLE\n{words}");
    let harmless = base64::engine::general_purpose::STANDARD.encode(&words);
    let texts = [
        base64::engine::general_purpose::STANDARD.encode(&content),
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&content),
        format!("{}x", base64::engine::general_purpose::STANDARD_NO_PAD.encode(&content)),
    ];
    for encoded in texts {
        let server = Server::new(vec![copies("fine")]);
        let result = json!({"base64": encoded, "offset": 0, "bytes": content.len()}).to_string();
        let (_, sent) = asked(&server, &[&result, &harmless]).await;
        assert!(!sent.contains(encoded.trim_end_matches('=')), "{sent}");
        assert!(sent.contains("left out: base64") && sent.contains("offset"), "{sent}");
        assert!(sent.contains(harmless.trim_end_matches('=')), "{sent}");
    }
}
