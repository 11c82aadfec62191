//! Each protocol over a socket.

use std::sync::Arc;

use regent_kernel::SystemClock;
use regent_kernel::{Confidentiality, Integrity, Op, Reply, Status, StopReason};
use regent_models::{Hub, Remote, Settings, wire::OpenAiChat};

use crate::server::{Act, Server};
use crate::world::*;

pub(crate) const CHAT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello \"}}]}\n\n\
     data: {\"choices\":[{\"delta\":{\"content\":\"there\"}}]}\n\n\
     data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
     data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n";

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_provider_is_asked_in_its_own_protocol() {
    let anthropic = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":20,\"output_tokens\":1}}}\n\n\
         data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello there\"}}\n\n\
         data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":4}}\n\n\
         data: {\"type\":\"message_stop\"}\n\n";
    let gemini = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hello there\"}]},\"finishReason\":\"STOP\"}],\
         \"usageMetadata\":{\"promptTokenCount\":20,\"candidatesTokenCount\":4}}\r\n\r\n";
    let ollama = "{\"message\":{\"content\":\"Hello there\"},\"done\":false}\n\
         {\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":20,\"eval_count\":4}\n";
    let responses = "data: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"Hello there\"}\n\n\
         data: {\"type\":\"response.completed\",\"sequence_number\":2,\"response\":{\"usage\":{\"input_tokens\":20,\"output_tokens\":4}}}\n\n";
    let cases = [
        ("openai", CHAT, "POST /chat/completions HTTP/1.1"),
        ("compatible", CHAT, "POST /chat/completions HTTP/1.1"),
        ("openai-responses", responses, "POST /responses HTTP/1.1"),
        ("anthropic", anthropic, "POST /messages HTTP/1.1"),
        ("gemini", gemini, "POST /models/m:streamGenerateContent?alt=sse HTTP/1.1"),
        ("ollama", ollama, "POST /api/chat HTTP/1.1"),
    ];
    for (kind, answer, line) in cases {
        let server = Server::new(vec![Act::Answer("200 OK", answer.to_owned())]);
        let text = format!("[models.one]\nkind = '{kind}'\nurl = '{}'\nmodels = ['m']\n", server.url());
        let hub = Hub::from_settings(Settings::parse(&text).unwrap(), None, Arc::new(SystemClock::default()))
            .unwrap();
        let world = ModelsFixture::new(ALLOW_ALL, hub).await;
        let operator = world.kernel.operator();
        let mut stream = world.kernel.stream(&operator, Op::Infer(asking("one", "Hi")));
        let mut flowed = String::new();
        while let Some(chunk) = stream.next().await {
            assert_eq!(chunk.output.label().integrity, Integrity::OwnModel, "{kind}");
            flowed.push_str(&chunk.output.text());
        }
        let Reply::Done(outcome) = stream.reply().await.unwrap() else { panic!("{kind}") };
        let completion = completion(&outcome);
        assert_eq!((flowed.as_str(), &*completion.message.text()), ("Hello there", "Hello there"), "{kind}");
        assert_eq!((completion.model.as_str(), completion.stop), ("one/m", StopReason::End), "{kind}");
        assert_eq!(
            (outcome.status, outcome.spent.tokens, outcome.spent.money_microusd),
            (Status::Ok, 24, 0),
            "{kind}"
        );
        assert!(outcome.spent.bytes_out > 0);
        let obtained = outcome.obtained.unwrap();
        assert_eq!(
            (&obtained["usage"]["source"], &obtained["place"]),
            (&"reported".into(), &"this machine".into())
        );
        let requests = server.requests();
        assert_eq!((requests.len(), requests[0].lines().next()), (1, Some(line)), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_goes_to_its_host_by_its_handle_and_is_seen_nowhere_else() {
    // The server says the key back, as some do in their errors, cut in two.
    let (left, right) = KEY.split_at(9);
    let body = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{left}\"}}}}]}}\n\n\
         data: {{\"choices\":[{{\"delta\":{{\"content\":\"{right}\"}},\"finish_reason\":\"stop\"}}]}}\n\ndata: [DONE]\n\n"
    );
    let server = Server::new(vec![Act::Answer("200 OK", body)]);
    let wire = Box::new(OpenAiChat { compatible: false });
    let remote = Remote::new(wire, &server.url(), Some("key".to_owned()), hasty()).unwrap();
    let world = ModelsFixture::new(
        ALLOW_ALL,
        hub(vec![("far", Arc::new(Elsewhere(remote)), quick(regent_models::ProviderKind::Openai))]),
    )
    .await;
    let operator = world.kernel.operator();
    let mut stream = world.kernel.stream(&operator, Op::Infer(asking("far", "Hi")));
    let mut flowed = String::new();
    while let Some(chunk) = stream.next().await {
        flowed.push_str(&chunk.output.text());
    }
    let outcome = match stream.reply().await.unwrap() {
        Reply::Done(outcome) => outcome,
        other @ (Reply::Denied(_) | Reply::Pending(_)) => panic!("{other:?}"),
    };
    assert!(
        server.requests()[0].contains(&format!("authorization: Bearer {KEY}")),
        "{:?}",
        server.requests()
    );
    assert!(
        !flowed.contains(right) && !outcome.output.text().contains(right),
        "{flowed} {:?}",
        outcome.output.text()
    );
    let ledger: String = world.entries().iter().map(|entry| entry.body.to_string()).collect();
    assert!(!ledger.contains(KEY) && !ledger.contains(right));
    // What was judged is the endpoint; the receipt has the key's name.
    assert!(ledger.contains("api.example.com") && ledger.contains("\"secret\":\"key\""), "{ledger}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_leaves_is_redacted_and_what_stays_is_not() {
    let text = "Mail ada@example.com about sk-ant-api03-Zk3vQ9pL7xW2mN8rT5yB1cD4eF6gH0jK";
    for (is_remote, redact) in [(true, None), (true, Some(false)), (false, None)] {
        let server = Server::new(vec![Act::Answer("200 OK", CHAT.to_owned())]);
        let wire = Box::new(OpenAiChat { compatible: true });
        let remote = Remote::new(wire, &server.url(), None, hasty()).unwrap();
        let provider: Arc<dyn regent_models::Provider> =
            if is_remote { Arc::new(Elsewhere(remote)) } else { Arc::new(remote) };
        let own =
            regent_models::ProviderSettings { redact, ..quick(regent_models::ProviderKind::Compatible) };
        let world = ModelsFixture::new(ALLOW_ALL, hub(vec![("one", provider, own)])).await;
        let outcome = world.ask(asking("one", text)).await;
        let sent = server.requests().concat();
        let is_redacted = is_remote && redact.is_none();
        assert_eq!(sent.contains("ada@example.com"), !is_redacted, "{sent}");
        assert_eq!(sent.contains("[email:1]"), is_redacted, "{sent}");
        assert_eq!(outcome.obtained.unwrap()["redacted"].as_u64().unwrap() > 0, is_redacted);
        assert_eq!(outcome.output.label().confidentiality, Confidentiality::Internal);
    }
}
