//! Providers that are reached over HTTP: a [`Wire`] on egress's client. The address is the one that policy judged, redirects are not
//! followed, and the key goes into one header and nowhere else.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::Method;
use hyper::header::{HeaderMap, HeaderValue};
use regent_egress::{Client, Incomplete, Network, Reach, Request};
use regent_kernel::{BoxFuture, Part, endpoint};
use serde_json::Value;
use url::{Host, Url};

use crate::event::Event;
use crate::patience::{Patience, retry_after};
use crate::provider::{Events, Provider, ProviderError, ProviderRequest};
use crate::wire::{Reading, Wire, parameters, refused};

/// What one answer may take on the wire, framing included.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// How much of a refusal is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// After the end of an answer its usage may still follow, within this time.
const AFTERWARDS_MS_MAX: u64 = 2_000;

/// A provider that is reached over HTTP.
#[derive(Debug)]
pub struct Remote {
    wire: Box<dyn Wire>,
    url: Url,
    secret: Option<String>,
    client: Client,
    first_byte_ms_max: u64,
}

impl Remote {
    /// One that speaks `wire` at a URL, opened by a secret. Its URL may be a private address; no other private address is reached.
    pub fn new(
        wire: Box<dyn Wire>,
        url: &str,
        secret: Option<String>,
        patience: Patience,
    ) -> Result<Self, String> {
        let url = endpoint::parse(url.trim_end_matches('/'))?;
        if url.query().is_some() {
            return Err("a provider's URL has no query".to_owned());
        }
        let port = url.port_or_known_default().unwrap_or(0);
        let network = Network {
            allow_private: vec![format!("{}:{port}", url.host_str().unwrap_or_default())],
            connect_ms_max: patience.connect_ms_max,
            idle_ms_max: patience.idle_ms_max,
            total_ms_max: patience.total_ms_max,
            ..Network::default()
        };
        let client = Client::new(Arc::new(Reach::new(network)));
        Ok(Self { wire, url, secret, client, first_byte_ms_max: patience.first_byte_ms_max })
    }

    fn url_of(&self, model: &str) -> String {
        format!("{}{}", self.url.as_str().trim_end_matches('/'), self.wire.path(model))
    }

    fn body(&self, ask: &ProviderRequest<'_>) -> Value {
        let mut body = self.wire.body(ask.model, ask.inference, ask.names);
        parameters::adapt(&mut body, &ask.capability.refused);
        parameters::adapt(&mut body, ask.refused);
        body
    }

    fn request(&self, ask: &ProviderRequest<'_>, body: &Value) -> Result<Request, ProviderError> {
        let url = endpoint::parse(&self.url_of(ask.model)).map_err(ProviderError::Unfit)?;
        let body = body.to_string().into_bytes();
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        for (name, value) in self.wire.headers() {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        if let Some(secret) = ask.secret {
            let (name, before) = self.wire.key_header();
            let mut value = HeaderValue::from_bytes(&[before.as_bytes(), secret.expose()].concat())
                .map_err(|_| ProviderError::Unfit("its key isn't a valid header value".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Request { url, method: Method::POST, headers, body })
    }

    async fn exchange(&self, ask: ProviderRequest<'_>, events: Events) -> Result<(), ProviderError> {
        let body = self.body(&ask);
        let request = self.request(&ask, &body)?;
        let mut answer = self.client.begin(&request, ANSWER_BYTES_MAX, self.first_byte_ms_max).await?;
        ask.bytes_out.fetch_add(answer.bytes_sent, Ordering::Relaxed);
        if !answer.status.is_success() {
            return Err(refusal(answer, &body).await);
        }
        if let Some(page) = web_page(&answer.headers) {
            return Err(ProviderError::NotAnApi(page));
        }
        let mut reading = Reading::new(&*self.wire);
        let (mut is_over, mut is_empty) = (false, true);
        while !reading.is_done() {
            let piece = if is_over {
                let afterwards = Duration::from_millis(AFTERWARDS_MS_MAX);
                // What is missing after the end is not missed.
                let Ok(Ok(piece)) = tokio::time::timeout(afterwards, answer.next()).await else { break };
                piece
            } else {
                answer.next().await?
            };
            let Some(piece) = piece else { break };
            is_empty &= piece.is_empty();
            let mut gathered = Vec::new();
            let understood = reading.push(&piece, &mut gathered);
            is_over |= gathered.iter().any(|event| matches!(event, Event::Stop(_)));
            give_all(&events, gathered).await?;
            understood?;
        }
        if is_empty {
            return Err(ProviderError::Malformed("it is empty".to_owned()));
        }
        let mut rest = Vec::new();
        let understood = reading.finish(&mut rest);
        give_all(&events, rest).await?;
        understood
    }
}

/// Events before an unreadable one still count.
async fn give_all(events: &Events, gathered: Vec<Event>) -> Result<(), ProviderError> {
    for event in gathered {
        events.give(event).await?;
    }
    Ok(())
}

impl Provider for Remote {
    fn endpoint(&self, model: &str) -> Option<String> {
        (!is_this_machine(&self.url)).then(|| self.url_of(model))
    }

    fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    fn takes(&self, part: &Part) -> bool {
        self.wire.takes(part)
    }

    fn ask<'a>(
        &'a self,
        ask: ProviderRequest<'a>,
        events: Events,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(self.exchange(ask, events))
    }
}

async fn refusal(mut answer: Incomplete, request: &Value) -> ProviderError {
    let mut body = Vec::new();
    // Unreadable parts are left out.
    while let Ok(Some(piece)) = answer.next().await {
        let room = REFUSAL_BYTES_MAX.saturating_sub(body.len());
        body.extend_from_slice(piece.get(..room).unwrap_or(&piece));
        if body.len() >= REFUSAL_BYTES_MAX {
            break;
        }
    }
    refused(answer.status.as_u16(), retry_after(&answer.headers), &body, request)
}

/// What an answer is, if it is a page for people: a login, a proxy's error, the wrong path.
fn web_page(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get("content-type")?.to_str().ok()?;
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(kind.as_str(), "text/html" | "application/xhtml+xml").then_some(kind)
}

/// Only addresses, and the one name that stands for them: any other name may lead elsewhere tomorrow.
fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Gemini, OpenAiChat};

    #[test]
    fn a_server_on_this_machine_is_not_remote() {
        let cases = [
            ("http://127.0.0.1:8080/v1", true),
            ("http://127.1:8080/v1", true),
            ("http://[::1]:8080", true),
            ("http://[::ffff:127.0.0.1]:80", true),
            ("http://localhost:11434", true),
            ("http://localhost.example.com", false),
            ("http://192.168.1.5:8080", false),
            ("https://api.example.com/v1/", false),
        ];
        for (url, is_local) in cases {
            let wire = Box::new(OpenAiChat { compatible: true });
            let remote = Remote::new(wire, url, None, Patience::default()).unwrap();
            assert_eq!(remote.endpoint("m").is_none(), is_local, "{url}");
        }
    }

    #[test]
    fn urls_are_put_together_and_odd_ones_refused() {
        let remote =
            Remote::new(Box::new(Gemini), "https://g.example/v1beta/", None, Patience::default()).unwrap();
        let url = remote.endpoint("gemini-x").unwrap();
        assert_eq!(url, "https://g.example/v1beta/models/gemini-x:streamGenerateContent?alt=sse");
        for url in ["ftp://x", "https://a:b@x", "https://x?key=1", "x"] {
            assert!(Remote::new(Box::new(Gemini), url, None, Patience::default()).is_err(), "{url}");
        }
    }
}
