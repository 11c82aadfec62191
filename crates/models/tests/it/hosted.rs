//! Providers at other hosts: their addresses, headers and bodies, as the settings say.

use std::sync::Arc;

use regent_kernel::{Status, SystemClock};
use regent_models::{Hub, Settings};

use crate::protocols::CHAT;
use crate::server::{Act, Server};
use crate::world::*;

async fn asked(settings: &str, model: &str, server: &Server) -> String {
    let settings = settings.replace("URL", &server.url());
    let settings = Settings::parse(&settings).unwrap();
    let hub = Hub::from_settings(settings, None, Arc::new(SystemClock::default())).unwrap();
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let outcome = world.ask(asking(model, "Hi")).await;
    let ledger: String = world.entries().iter().map(|entry| entry.body.to_string()).collect();
    assert!(!ledger.contains(KEY), "{ledger}");
    server.requests().first().cloned().unwrap_or_else(|| panic!("{:?}", outcome.status))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_host_gets_its_address_key_and_fields() {
    let cases = [
        (
            "kind = 'azure'\nurl = 'URL/openai/deployments/{model}?api-version=2024-10-21'\nheaders = { api-key = 'secret://anywhere' }",
            "POST /openai/deployments/m-1/chat/completions?api-version=2024-10-21 HTTP/1.1",
            vec![format!("api-key: {KEY}"), "\"max_completion_tokens\"".to_owned()],
            vec!["authorization"],
        ),
        (
            "kind = 'vertex'\nurl = 'URL/v1/projects/p/locations/l/publishers/google'\nheaders = { authorization = 'Bearer secret://anywhere', x-goog-user-project = 'p' }",
            "POST /v1/projects/p/locations/l/publishers/google/models/m-1:streamGenerateContent?alt=sse HTTP/1.1",
            vec![
                format!("authorization: Bearer {KEY}"),
                "x-goog-user-project: p".to_owned(),
                "\"contents\"".to_owned(),
            ],
            vec!["x-goog-api-key"],
        ),
        (
            "kind = 'vertex-anthropic'\nurl = 'URL/v1/publishers/anthropic'",
            "POST /v1/publishers/anthropic/models/m-1:streamRawPredict HTTP/1.1",
            vec!["\"anthropic_version\":\"vertex-2023-10-16\"".to_owned()],
            vec!["\"model\"", "anthropic-version:", "x-api-key"],
        ),
        (
            "kind = 'compatible'\nurl = 'URL/v1'\nheaders = { HTTP-Referer = 'https://me.example', X-Title = 'mine' }\nbody = { provider = { order = ['a'] }, temperature = 0.7 }",
            "POST /v1/chat/completions HTTP/1.1",
            vec![
                "http-referer: https://me.example".to_owned(),
                "x-title: mine".to_owned(),
                "\"provider\":{\"order\":[\"a\"]}".to_owned(),
                "\"temperature\":0.7".to_owned(),
            ],
            vec!["authorization"],
        ),
    ];
    for (settings, line, present, absent) in cases {
        let server = Server::new(vec![Act::Answer("200 OK", CHAT.to_owned())]);
        let request = asked(&format!("[models.far]\nmodels = ['m-1']\n{settings}\n"), "far", &server).await;
        assert_eq!(request.lines().next(), Some(line));
        for text in present {
            assert!(request.contains(&text), "{text}: {request}");
        }
        for text in absent {
            assert!(!request.to_lowercase().contains(text), "{text}: {request}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_whose_secret_is_missing_is_never_sent() {
    let server = Server::new(vec![Act::Answer("200 OK", CHAT.to_owned())]);
    let text = format!(
        "[models.far]\nkind = 'compatible'\nurl = '{}'\nmodels = ['m']\nheaders = {{ api-key = 'secret://none' }}\n",
        server.url()
    );
    let settings = Settings::parse(&text).unwrap();
    let hub = Hub::from_settings(settings, None, Arc::new(SystemClock::default())).unwrap();
    let world = ModelsFixture::new(ALLOW_ALL, hub).await;
    let outcome = world.ask(asking("far", "Hi")).await;
    assert!(matches!(outcome.status, Status::Failed(_)), "{:?}", outcome.status);
    assert!(server.requests().is_empty());
}
