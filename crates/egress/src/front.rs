//! The broker's HTTP proxy towards a program: turns requests into calls, and verdicts into responses.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use regent_kernel::{
    BoxFuture, Denial, Digest, Fault, Op, Outcome, Permit, Principal, Reply, Status, Ticket, ToolCall,
    endpoint, tier,
};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, oneshot};
use url::Url;

use crate::body::Piped;
use crate::broker::Broker;
use crate::headers;
use crate::specs;
use crate::table::{Exchange, ExchangeKind, Gone, ProgramRequest, RequestBody};

/// Maximum size of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;
/// Maximum time for a head to arrive.
const HEAD_MS_MAX: u64 = 30_000;
/// Maximum size of a body that is checked completely before any of it leaves.
const WHOLE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of texts with handles in a body.
const PLACEHOLDERS_MAX: usize = 32;
/// Maximum number of queued calls.
const ASKS_MAX: usize = 64;

/// The header that reports the verdict to the program: `allow`, `ask`, `deny`, `invalid`, or `none` if the request wasn't judged.
pub(crate) const VERDICT: &str = "x-regent-verdict";

/// A call submitted to the kernel.
type Called = BoxFuture<'static, Result<Reply, Fault>>;

/// Asks the future that holds the permit to make a call.
pub(crate) struct CallRequest {
    op: Op,
    reply: oneshot::Sender<Called>,
}

impl std::fmt::Debug for CallRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask").field("op", &self.op).finish_non_exhaustive()
    }
}

/// A channel for such requests.
pub(crate) fn asks() -> (mpsc::Sender<CallRequest>, mpsc::Receiver<CallRequest>) {
    mpsc::channel(ASKS_MAX)
}

/// Makes the requested calls with this permit until all senders are gone.
pub(crate) async fn put<T: tier::Tier>(permit: &Permit<'_, T>, mut asked: mpsc::Receiver<CallRequest>) {
    while let Some(CallRequest { op, reply }) = asked.recv().await {
        // The caller is gone and needs no reply; the call has not started.
        reply.send(permit.syscall(op)).ok();
    }
}

/// The HTTP side of one connection.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) broker: Broker,
    pub(crate) asks: mpsc::Sender<CallRequest>,
    /// The call that the connection belongs to.
    pub(crate) parent: u64,
    pub(crate) caller: Principal,
    pub(crate) gone: Gone,
    /// Limits concurrent exchanges of one program.
    pub(crate) room: Arc<Semaphore>,
    /// The impersonated host, in an inspected tunnel.
    pub(crate) inside: Option<Url>,
}

/// Serves HTTP on a connection until it ends.
pub(crate) async fn serve(front: Arc<Front>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(move |request| {
        let front = Arc::clone(&front);
        async move { Ok::<_, Infallible>(front.answer(request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEAD_MS_MAX))
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // A broken connection concerns only the program. Its calls have outcomes.
    serving.await.ok();
}

impl Front {
    async fn answer(&self, request: Request<Incoming>) -> Response<Piped> {
        match self.understand(request).await {
            Ok((call, kind)) => self.put_through(call, kind).await,
            Err((status, why)) => refusal(status, "invalid", &format!("regent: {why}\n")),
        }
    }

    /// Parses a request into a call.
    async fn understand(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<(ToolCall, ExchangeKind), (StatusCode, String)> {
        let bad = |why: &str| (StatusCode::BAD_REQUEST, why.to_owned());
        let url = self.target(&request).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        framing(request.headers()).map_err(bad)?;
        if request.method() == Method::CONNECT {
            let args = json!({"url": url.as_str(), "method": "CONNECT"});
            let upgrade = hyper::upgrade::on(&mut request);
            return Ok((ToolCall { tool: specs::CONNECT.to_owned(), args }, ExchangeKind::Tunnel(upgrade)));
        }
        if request.headers().contains_key("upgrade") {
            let why = "plain connections can't be upgraded; use a tunnel (CONNECT)";
            return Err((StatusCode::NOT_IMPLEMENTED, why.to_owned()));
        }
        let (mut head, body) = request.into_parts();
        let bytes = body.size_hint().exact();
        let body = body_of(&head.headers, body).await.map_err(bad)?;
        headers::strip(&mut head.headers);
        head.headers.remove("host");
        head.headers.remove("content-length");
        let (headers, basic) = headers::for_policy(&head.headers);
        let mut args = json!({"url": url.as_str(), "method": head.method.as_str(), "headers": headers});
        if let Some(fields) = args.as_object_mut() {
            if let Some(bytes) = bytes.filter(|bytes| *bytes > 0) {
                fields.insert("body_bytes".to_owned(), bytes.into());
            }
            match &body {
                RequestBody::Whole { bytes, .. } if bytes.is_empty() => {}
                RequestBody::Whole { bytes, .. } => {
                    fields.insert("body_sha256".to_owned(), json!(Digest::compute(bytes)));
                }
                // The content of a stream is unknown in advance. The random mark makes every attempt a different call, so that an approval
                // of one never applies to another.
                RequestBody::Stream(..) => {
                    let mark = once().ok_or_else(|| bad("the system returned no random numbers"))?;
                    fields.insert("body_unbound".to_owned(), mark.into());
                }
            }
            if let RequestBody::Whole { json: Some(value), .. } = &body {
                let mut texts = Vec::new();
                headers::placeholders(value, &mut texts);
                if texts.len() > PLACEHOLDERS_MAX {
                    return Err(bad("the body has too many handles to secrets"));
                }
                fields.insert("placeholders".to_owned(), texts.into());
            }
        }
        let asked = Box::new(ProgramRequest { headers: head.headers, body, basic });
        Ok((ToolCall { tool: specs::REQUEST.to_owned(), args }, ExchangeKind::Request(asked)))
    }

    /// The request's URL. All parts of the request that name it must agree.
    fn target(&self, request: &Request<Incoming>) -> Result<Url, String> {
        let uri = request.uri();
        let url = match (&self.inside, request.method() == Method::CONNECT) {
            (Some(_), true) => return Err("a tunnel inside a tunnel is not supported".to_owned()),
            (None, true) => match uri.authority() {
                Some(authority) if authority.port().is_some() => {
                    endpoint::parse(&format!("https://{authority}/"))?
                }
                Some(_) | None => return Err("name the host and the port of the tunnel".to_owned()),
            },
            (None, false) if uri.scheme().is_some() => endpoint::parse(&uri.to_string())?,
            (None, false) => {
                return Err("this is a proxy: send the full URL, or set http_proxy".to_owned());
            }
            (Some(host), false) => {
                let url = match uri.scheme() {
                    Some(_) => endpoint::parse(&uri.to_string())?,
                    None => endpoint::parse(&format!("{}{uri}", host.as_str().trim_end_matches('/')))?,
                };
                if url.origin() != host.origin() {
                    return Err("the request is for another host than its tunnel".to_owned());
                }
                url
            }
        };
        let named: Vec<_> = request.headers().get_all("host").iter().collect();
        match named.as_slice() {
            [] if self.inside.is_none() => Ok(url),
            [one] if agrees(&url, one) => Ok(url),
            _other => Err("the header `host` and the URL name different hosts".to_owned()),
        }
    }

    /// Submits a call to the kernel, and waits for its driver's response or its verdict.
    async fn put_through(&self, call: ToolCall, kind: ExchangeKind) -> Response<Piped> {
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            let text = "regent: the program has too many concurrent requests\n";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "none", text);
        };
        let (answer, mut answered) = oneshot::channel();
        let exchange = Exchange { kind, answer, gone: self.gone.clone(), room };
        let _place = self.broker.table().put(self.parent, &self.caller, &call, exchange);
        let (reply, promised) = oneshot::channel();
        let asked = self.asks.send(CallRequest { op: Op::RunTool(call), reply }).await;
        let (Ok(()), Ok(mut called)) = (asked, promised.await) else {
            return refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "none",
                "regent: the program's call has ended\n",
            );
        };
        tokio::select! {
            biased;
            Ok(response) = &mut answered => response,
            reply = &mut called => match answered.try_recv() {
                Ok(response) => response,
                Err(_) => verdict(reply),
            }
        }
    }
}

/// A value that no other request has.
fn once() -> Option<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Rejects framing that two parsers could read differently. Content-Length together with chunking is harmless here: the length is ignored,
/// the connection ends with the request, and the broker frames the outgoing request itself.
fn framing(headers: &HeaderMap) -> Result<(), &'static str> {
    if headers.get_all("content-length").iter().count() > 1 {
        return Err("the request has contradictory lengths");
    }
    Ok(())
}

fn agrees(url: &Url, host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    endpoint::parse(&format!("{}://{host}/", url.scheme())).is_ok_and(|named| named.origin() == url.origin())
}

async fn body_of(headers: &HeaderMap, body: Incoming) -> Result<RequestBody, &'static str> {
    let size = body.size_hint().exact();
    if size.is_none_or(|bytes| bytes > WHOLE_BYTES_MAX) {
        return Ok(RequestBody::Stream(body, size));
    }
    let limit = usize::try_from(WHOLE_BYTES_MAX).unwrap_or(usize::MAX);
    let reading = Limited::new(body, limit).collect();
    let bytes: Bytes = tokio::time::timeout(Duration::from_millis(HEAD_MS_MAX), reading)
        .await
        .map_err(|_| "the body arrived too slowly")?
        .map_err(|_| "the body doesn't have its declared length")?
        .to_bytes();
    let is_json = headers
        .get("content-type")
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.to_ascii_lowercase().contains("json"));
    let json = match is_json && headers::has_handle(&bytes) {
        true => serde_json::from_slice::<Value>(&bytes).ok(),
        false => None,
    };
    Ok(RequestBody::Whole { bytes, json })
}

/// The response to a program whose request was not performed.
fn verdict(reply: Result<Reply, Fault>) -> Response<Piped> {
    match reply {
        Ok(Reply::Denied(denial)) => denied(&denial),
        Ok(Reply::Pending(ticket)) => pending(&ticket),
        Ok(Reply::Done(outcome)) => failed(&outcome),
        Err(fault) => refusal(StatusCode::SERVICE_UNAVAILABLE, "none", &format!("regent: {fault}\n")),
    }
}

fn denied(denial: &Denial) -> Response<Piped> {
    let reason = &denial.reason;
    let mut text = match &reason.rule {
        Some(rule) => format!("regent: denied by rule {rule}: {}\n", reason.message),
        None => format!("regent: denied ({}): {}\n", reason.code, reason.message),
    };
    if let Some(help) = &reason.help {
        text.push_str(&format!("help: {help}\n"));
    }
    refusal(StatusCode::FORBIDDEN, "deny", &text)
}

fn pending(ticket: &Ticket) -> Response<Piped> {
    let (rule, reason, id) = (&ticket.rule, &ticket.reason, &ticket.id.0);
    let text = format!(
        "regent: needs your approval (rule `{rule}`): {reason}\nhelp: approve with `regent approve {id}`, then try again\n"
    );
    refusal(StatusCode::FORBIDDEN, "ask", &text)
}

fn failed(outcome: &Outcome) -> Response<Piped> {
    let (status, why) = match &outcome.status {
        Status::Failed(failure) if failure.code == "net.secret_leaving" => {
            (StatusCode::FORBIDDEN, format!("{} ({})", failure.message, failure.code))
        }
        Status::Failed(failure) => {
            (StatusCode::BAD_GATEWAY, format!("{} ({})", failure.message, failure.code))
        }
        Status::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "the time limit was reached".to_owned()),
        Status::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, "the call was stopped".to_owned()),
        Status::Ok | Status::Faulted(_) => {
            (StatusCode::BAD_GATEWAY, "it ended without a response".to_owned())
        }
    };
    refusal(status, "allow", &format!("regent: allowed, but {why}\n"))
}

fn refusal(status: StatusCode, verdict: &'static str, text: &str) -> Response<Piped> {
    let mut response = Response::new(Piped::whole(text.to_owned()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(VERDICT, HeaderValue::from_static(verdict));
    response
}
