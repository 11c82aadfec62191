//! Requests to DynamoDB: JSON over HTTP, signed, on a few connections that are kept.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;
use url::Url;
use zeroize::Zeroizing;

use super::items::Items;
use super::sign::{self, Credentials, Request};
use crate::StateError;
use crate::remote::{Parts, StateUrl, dial, is_here, tls, unreachable, unusable};
use crate::transact::chance;

const SERVICE: &str = "dynamodb";
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// The largest answer: DynamoDB gives 16 MB at most.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// How often a request is sent that the service was too busy for.
const SENDS_MAX: u32 = 6;
/// The longest pause between two tries.
const PAUSE_MS_MAX: u64 = 400;
/// How often a new table is looked at before it must be there.
const TABLE_LOOKS_MAX: u32 = 60;
/// A request with this token was sent before, and the service is still at it.
const IN_PROGRESS: &str = "TransactionInProgressException";
/// Connections that are kept.
const IDLE_MAX: usize = 8;

/// A way to the service.
#[derive(Debug)]
pub(super) struct Client {
    region: String,
    host: String,
    port: u16,
    /// As the header `host` has it.
    authority: String,
    tls: Option<Tls>,
    credentials: Credentials,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

#[derive(Clone)]
struct Tls(TlsConnector);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum ApiError {
    /// The service refused it.
    Refused {
        /// The kind of exception.
        kind: String,
        /// Why parts of a transaction failed.
        reasons: Vec<String>,
    },
    /// The result is unknown.
    Lost(String),
}

impl ApiError {
    /// Whether another transaction came in between, so that nothing of this one has happened or will.
    pub(super) fn is_conflict(&self) -> bool {
        let Self::Refused { kind, reasons } = self else { return false };
        let meets = |reason: &String| {
            ["ConditionalCheckFailed", "TransactionConflict", "ThrottlingError", "None"]
                .contains(&reason.as_str())
        };
        (kind == "TransactionCanceledException" && reasons.iter().all(meets))
            || kind == "TransactionConflictException"
    }

    pub(super) fn into_state(self) -> StateError {
        match self {
            Self::Refused { kind, .. } => match kind.as_str() {
                "ProvisionedThroughputExceededException" | "ThrottlingException" | "RequestLimitExceeded" => {
                    StateError::Busy
                }
                "UnrecognizedClientException" | "InvalidSignatureException" | "AccessDeniedException" => {
                    unusable("DynamoDB", "it refused the credentials")
                }
                "ItemCollectionSizeLimitExceededException" => StateError::Full,
                kind => unusable("DynamoDB", format_args!("it answered `{kind}`")),
            },
            Self::Lost(why) => unreachable("DynamoDB", why),
        }
    }
}

/// The service and the table that an address names: `dynamodb://REGION/TABLE`.
pub(super) fn from_url(url: &StateUrl) -> Result<(Client, Items), StateError> {
    let wrong = |why: &str| StateError::Unusable(format!("the address of the state is wrong: {why}"));
    let Parts { url, options } = url.parts()?;
    let region = url.host_str().unwrap_or_default().to_owned();
    let table = url.path().trim_start_matches('/').to_owned();
    if region.is_empty() || table.is_empty() || table.contains('/') {
        return Err(wrong("it must be `dynamodb://REGION/TABLE`"));
    }
    let endpoint =
        options.endpoint.clone().unwrap_or_else(|| format!("https://dynamodb.{region}.amazonaws.com"));
    let endpoint = Url::parse(&endpoint).map_err(|error| wrong(&error.to_string()))?;
    let is_secure = endpoint.scheme() == "https";
    if !is_secure && !is_here(&endpoint) {
        return Err(wrong("`endpoint` is on another machine, so it must begin with `https://`"));
    }
    let host = endpoint.host_str().unwrap_or_default().to_owned();
    let port = endpoint.port_or_known_default().unwrap_or(443);
    let authority = endpoint.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
    let tls = is_secure.then(|| tls(options.authorities.as_deref()).map(Tls)).transpose()?;
    let credentials = credentials(&url).ok_or_else(|| {
        wrong("it names no credentials, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set")
    })?;
    let client = Client { region, host, port, authority, tls, credentials, idle: Mutex::default() };
    Ok((client, Items { table, namespace: options.namespace }))
}

/// From the address, or from where AWS's own programs look.
fn credentials(url: &Url) -> Option<Credentials> {
    let decoded = |text: &str| {
        let pair = format!("x={}", text.replace('+', "%2B"));
        url::form_urlencoded::parse(pair.as_bytes()).next().map(|(_, value)| value.into_owned())
    };
    if let Some(secret) = url.password() {
        let secret = Zeroizing::new(decoded(secret)?);
        return Some(Credentials { id: decoded(url.username())?, secret, session: None });
    }
    Some(Credentials {
        id: std::env::var("AWS_ACCESS_KEY_ID").ok()?,
        secret: Zeroizing::new(std::env::var("AWS_SECRET_ACCESS_KEY").ok()?),
        session: std::env::var("AWS_SESSION_TOKEN").ok().map(Zeroizing::new),
    })
}

/// Makes the table where there is none, and waits until it can be used.
pub(super) async fn make_table(client: &Client, items: &Items) -> Result<(), StateError> {
    for attempt in 0..TABLE_LOOKS_MAX {
        match client.call("DescribeTable", &json!({"TableName": items.table})).await {
            Ok(found) if found.pointer("/Table/TableStatus").and_then(Value::as_str) == Some("ACTIVE") => {
                return Ok(());
            }
            Ok(_not_yet) => {}
            Err(ApiError::Refused { kind, .. }) if kind == "ResourceNotFoundException" => {
                match client.call("CreateTable", &items.table()).await {
                    Ok(_) => {}
                    // Another process makes it just now.
                    Err(ApiError::Refused { kind, .. }) if kind == "ResourceInUseException" => {}
                    Err(error) => return Err(error.into_state()),
                }
            }
            Err(error) => return Err(error.into_state()),
        }
        pause(attempt).await;
    }
    Err(StateError::Busy)
}

/// Waits a little: longer each time, and by chance, so that two that met don't meet again.
pub(super) async fn pause(attempt: u32) {
    let most_ms = PAUSE_MS_MAX.min(4_u64.saturating_mul(1 << attempt.min(10)));
    let ms = chance().checked_rem(most_ms).unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

impl Client {
    /// Sends a request, again if the service was too busy. Each may be sent twice: reads change nothing, and transactions have a token.
    pub(super) async fn call(&self, operation: &str, request: &Value) -> Result<Value, ApiError> {
        let body = Bytes::from(request.to_string());
        let mut sends = 0;
        loop {
            sends += 1;
            match self.send(operation, body.clone()).await {
                Err(error) if sends < SENDS_MAX && is_temporary(&error) => pause(sends + 3).await,
                Err(ApiError::Refused { kind, .. }) if kind == IN_PROGRESS => {
                    return Err(lost("a transaction that was sent before hasn't ended"));
                }
                answer => return answer,
            }
        }
    }

    async fn send(&self, operation: &str, body: Bytes) -> Result<Value, ApiError> {
        let request = self.signed(operation, body)?;
        let mut connection = self.connection().await?;
        let exchange = async {
            let answer =
                connection.send_request(request).await.map_err(|_| lost("the connection was lost"))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok((status, body.map_err(|_| lost("the connection was lost"))?.to_bytes()))
        };
        let answer =
            tokio::time::timeout(ANSWER, exchange).await.unwrap_or_else(|_| Err(lost("it doesn't answer")));
        let (status, body) = answer?;
        let value: Option<Value> = serde_json::from_slice(&body).ok().filter(Value::is_object);
        if connection.is_ready() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE_MAX {
                idle.push(connection);
            }
        }
        if status.is_success() {
            // Something between us and the service has answered in its place. Nothing is absent because of that.
            return value.ok_or_else(|| lost("its answer can't be parsed"));
        }
        let value = value.unwrap_or_default();
        let kind = value.get("__type").and_then(Value::as_str).and_then(|kind| kind.rsplit('#').next());
        let reasons = value.get("CancellationReasons").and_then(Value::as_array).into_iter().flatten();
        let reasons = reasons.filter_map(|reason| Some(reason.get("Code")?.as_str()?.to_owned())).collect();
        Err(ApiError::Refused { kind: kind.map_or_else(|| status.to_string(), str::to_owned), reasons })
    }

    fn signed(&self, operation: &str, body: Bytes) -> Result<hyper::Request<Full<Bytes>>, ApiError> {
        #[expect(
            clippy::disallowed_methods,
            reason = "AWS compares the time of a signature with its own; nothing is decided by it"
        )]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let time = sign::timestamp(now);
        let target = format!("DynamoDB_20120810.{operation}");
        let mut headers = vec![
            ("content-type", "application/x-amz-json-1.0"),
            ("host", &self.authority),
            ("x-amz-date", &time),
        ];
        if let Some(session) = &self.credentials.session {
            headers.push(("x-amz-security-token", session));
        }
        headers.push(("x-amz-target", &target));
        let request = Request { method: "POST", headers: &headers, body: &body };
        let authorization = sign::authorization(&self.credentials, (&self.region, SERVICE), &time, &request);
        let mut request = hyper::Request::builder().method("POST").uri("/");
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        request
            .header("authorization", authorization)
            .body(Full::new(body))
            .map_err(|_| lost("a header is no text"))
    }

    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, ApiError> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(connection) if connection.is_ready() => return Ok(connection),
                Some(_closed) => {}
                None => break,
            }
        }
        let tls = self.tls.as_ref().map(|Tls(tls)| tls);
        let stream =
            dial((&self.host, self.port), tls).await.map_err(|error| lost(&error.kind().to_string()))?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|_| lost("the connection was lost"))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// A part that every answer of this kind has, also where nothing was found.
pub(super) fn required<'a>(answer: &'a Value, name: &str) -> Result<&'a Value, StateError> {
    answer.pointer(name).ok_or_else(|| lost("its answer is incomplete").into_state())
}

fn is_temporary(error: &ApiError) -> bool {
    match error {
        ApiError::Refused { kind, .. } => {
            kind.starts_with('5')
                || [
                    "ProvisionedThroughputExceededException",
                    "ThrottlingException",
                    "RequestLimitExceeded",
                    "InternalServerError",
                    IN_PROGRESS,
                ]
                .contains(&kind.as_str())
        }
        ApiError::Lost(_) => true,
    }
}

fn lost(why: &str) -> ApiError {
    ApiError::Lost(why.to_owned())
}
