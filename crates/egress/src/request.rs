//! The driver of `net.request`: one request of a program, and its response.

use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};
use regent_kernel::{Permit, ToolFailure, endpoint, tier};
use serde_json::Value;
use tokio::sync::oneshot;
use url::Url;

use crate::body::{Pieces, Piped};
use crate::broker::Broker;
use crate::client::{handshake, head_bytes, target_of};
use crate::front::VERDICT;
use crate::headers;
use crate::outgoing;
use crate::reach::Reach;
use crate::table::{ProgramRequest, RequestBody};
use crate::tally::{ExchangeTally, failure, unreached};

/// Performs the request.
pub(crate) async fn run(
    permit: &Permit<'_, tier::Host>,
    broker: &Broker,
    asked: ProgramRequest,
    answer: oneshot::Sender<Response<Piped>>,
    tally: &ExchangeTally<'_>,
) -> Result<(), ToolFailure> {
    let reach = broker.reach();
    let (url, method) = judged(permit.args())?;
    let ProgramRequest { headers: came, body, basic } = asked;
    outgoing::check(permit, "URL", url.as_str().as_bytes())?;
    for (name, value) in &came {
        outgoing::check(permit, "head", name.as_str().as_bytes())?;
        outgoing::check(permit, "head", value.as_bytes())?;
    }
    let (body, rest, filled) = body_of(permit, body)?;
    let mut headers = headers::outgoing(permit, &came, basic.as_deref())?;
    let secret = filled || headers.values().any(HeaderValue::is_sensitive);
    if secret {
        broker.has_revealed();
        // A compressed response can't be scrubbed.
        headers.insert("accept-encoding", HeaderValue::from_static("identity"));
    }
    if secret || came.contains_key("authorization") || came.contains_key("cookie") {
        tally.label_private();
    }
    let opened = reach.open(&url).await.map_err(|error| unreached(&error))?;
    tally.connected(opened.address, opened.private);
    let (mut sender, _driven) = handshake(opened.stream).await.map_err(|error| unreached(&error))?;
    let (target, host) = target_of(&url).map_err(|error| unreached(&error))?;
    headers.insert("host", host);
    headers.insert("connection", HeaderValue::from_static("close"));
    tally.leave(head_bytes(&target, &headers).saturating_add(whole_bytes(&body))).await?;
    let mut wire = hyper::Request::new(body);
    (*wire.method_mut(), *wire.uri_mut(), *wire.headers_mut()) = (method.clone(), target, headers);

    let broken = |error| unreached(&error);
    let mut upload = std::pin::pin!(upload(permit, reach, tally, rest));
    let mut uploaded = false;
    let mut responded = std::pin::pin!(sender.send_request(wire));
    let response = tokio::select! {
        biased;
        response = &mut responded => response,
        sent = &mut upload => {
            (uploaded, _) = (true, sent?);
            reach.in_time(&mut responded).await.map_err(broken)?
        }
    }
    .map_err(|error| unreached(&error.into()))?;
    tally.record("status", response.status().as_u16());
    let exact = !broker.revealed_any();
    let (body, pieces) = begin(permit, &method, response, answer, exact)?;
    let mut download = std::pin::pin!(pass_on(permit, reach, tally, body, pieces));
    loop {
        tokio::select! {
            biased;
            done = &mut download => return done,
            sent = &mut upload, if !uploaded => (uploaded, _) = (true, sent?),
        }
    }
}

/// The URL and method that policy judged.
fn judged(args: &Value) -> Result<(Url, Method), ToolFailure> {
    let text = |field: &str| args.get(field).and_then(Value::as_str).unwrap_or_default();
    let url = endpoint::parse(text("url")).map_err(|why| failure("net.url", why))?;
    let method = Method::from_bytes(text("method").as_bytes())
        .map_err(|_| failure("net.method", "this is not an HTTP method"))?;
    Ok((url, method))
}

/// The remaining part of a body, and where to send it.
type Rest = Option<(Incoming, Pieces)>;

/// The outgoing body, and whether it contains a secret.
fn body_of(permit: &Permit<'_, tier::Host>, body: RequestBody) -> Result<(Piped, Rest, bool), ToolFailure> {
    match body {
        RequestBody::Whole { bytes, json } => {
            outgoing::check(permit, "body", &bytes)?;
            let Some(mut value) = json else { return Ok((Piped::whole(bytes), None, false)) };
            headers::fill(permit, &mut value)?;
            Ok((Piped::whole(value.to_string()), None, true))
        }
        RequestBody::Stream(body, bytes) => {
            let (pieces, piped) = Piped::coming(bytes);
            Ok((piped, Some((body, pieces)), false))
        }
    }
}

fn whole_bytes(body: &Piped) -> u64 {
    match body {
        Piped::Whole(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
        Piped::Coming { .. } => 0,
    }
}

async fn upload(
    permit: &Permit<'_, tier::Host>,
    reach: &Reach,
    tally: &ExchangeTally<'_>,
    rest: Rest,
) -> Result<(), ToolFailure> {
    match rest {
        Some((body, pieces)) => outgoing::stream(permit, reach, tally, body, pieces).await,
        None => Ok(()),
    }
}

/// Sends the scrubbed head of the response to the program.
fn begin(
    permit: &Permit<'_, tier::Host>,
    method: &Method,
    response: Response<Incoming>,
    answer: oneshot::Sender<Response<Piped>>,
    exact: bool,
) -> Result<(Incoming, Pieces), ToolFailure> {
    let (head, body) = response.into_parts();
    let bodyless =
        *method == Method::HEAD || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let (pieces, piped) = Piped::coming(body.size_hint().exact().filter(|_| exact));
    let piped = if bodyless { Piped::Whole(None) } else { piped };
    let mut reply = Response::new(piped);
    *reply.status_mut() = head.status;
    let mut headers = head.headers;
    headers::strip(&mut headers);
    // Only the broker may set this header.
    headers.remove(VERDICT);
    if !bodyless {
        // Set again later, for the bytes actually passed on.
        headers.remove("content-length");
    }
    scrub(permit, &mut headers);
    *reply.headers_mut() = headers;
    answer.send(reply).map_err(|_| gone())?;
    Ok((body, pieces))
}

fn scrub(permit: &Permit<'_, tier::Host>, headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        let mut bytes = value.as_bytes().to_vec();
        if permit.scrub(&mut bytes) {
            *value =
                HeaderValue::from_bytes(&bytes).unwrap_or_else(|_| HeaderValue::from_static("(removed)"));
        }
    }
}

/// Streams the response's body to the program, scrubbed across piece boundaries.
async fn pass_on(
    permit: &Permit<'_, tier::Host>,
    reach: &Reach,
    tally: &ExchangeTally<'_>,
    mut body: Incoming,
    pieces: Pieces,
) -> Result<(), ToolFailure> {
    let late = |error| unreached(&error);
    let mut held = Vec::new();
    while let Some(frame) = reach.in_time(body.frame()).await.map_err(late)? {
        let Ok(piece) = frame.map_err(|error| unreached(&error.into()))?.into_data() else { continue };
        tally.come(piece.len() as u64)?;
        held.extend_from_slice(&piece);
        let part = permit.scrub_part(&mut held);
        tally.given(&part.bytes);
        reach.in_time(pieces.send(part.bytes)).await.map_err(late)?.map_err(|_| gone())?;
    }
    permit.scrub(&mut held);
    tally.given(&held);
    reach.in_time(pieces.send(held)).await.map_err(late)?.map_err(|_| gone())?;
    pieces.finish().await;
    Ok(())
}

fn gone() -> ToolFailure {
    failure("net.gone", "the program no longer waits for it")
}
