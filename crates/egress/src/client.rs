//! HTTP/1.1 exchanges with hosts whose address was checked, within limits on size and time.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use regent_kernel::BoxFuture;
use url::{Origin, Url};

use crate::pool::{Connection, Pool};
use crate::reach::{EgressStream, Reach, ReachError, within};

/// Maximum size of the head of a response.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;
/// After what was waited for, the end of a body has this long to come.
const REST_MS_MAX: u64 = 1_000;

/// A request.
#[derive(Debug)]
pub struct Request {
    /// The URL that policy judged.
    pub url: Url,
    /// How.
    pub method: Method,
    /// Headers, besides those that the protocol needs.
    pub headers: HeaderMap,
    /// And this body.
    pub body: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    /// The response's status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// The body, possibly truncated.
    pub body: Vec<u8>,
    /// Whether the body was truncated.
    pub truncated: bool,
    /// Whether it came from a private network.
    pub private: bool,
    /// Bytes sent for the request.
    pub bytes_sent: u64,
}

/// A response whose body is still arriving. Its connection is kept if the body was read to its end, and closed if it is dropped before.
#[derive(Debug)]
pub struct Incomplete {
    /// The response's status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Whether it comes from a private network.
    pub private: bool,
    /// Bytes sent for the request.
    pub bytes_sent: u64,
    idle_ms_max: u64,
    body: Incoming,
    bytes_left: u64,
    /// Where the connection goes afterwards.
    kept: Option<(Arc<Pool>, Origin, Connection)>,
}

impl Incomplete {
    /// The next piece of the body; `None` at its end. The server may be idle for `idle_ms_max`. A body beyond the agreed limit is an error,
    /// not a truncation.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ReachError> {
        while let Some(frame) = within(self.idle_ms_max, self.body.frame()).await? {
            let Ok(piece) = frame?.into_data() else { continue };
            let left = self.bytes_left.checked_sub(piece.len() as u64);
            self.bytes_left = left.ok_or(ReachError::TooLarge)?;
            return Ok(Some(piece));
        }
        if let Some((pool, origin, connection)) = self.kept.take() {
            pool.keep(origin, connection);
        }
        Ok(None)
    }

    /// Reads what is left after the answer that was waited for, without waiting for it, so that the connection can be kept.
    pub fn release(mut self) {
        let rest = async move {
            // Whatever comes of it: a connection that isn't at its end is closed.
            while let Ok(Some(_)) = self.next().await {}
        };
        tokio::spawn(tokio::time::timeout(Duration::from_millis(REST_MS_MAX), rest));
    }
}

/// Makes requests. It keeps no cookie between them. Whole requests ([`send`](Self::send)) have a connection each; streamed ones
/// ([`begin`](Self::begin)) share this client's, so a client is for one caller's server.
#[derive(Debug, Clone)]
pub struct Client(Arc<Reach>, Arc<Pool>);

impl Client {
    /// A client over this network.
    pub fn new(reach: Arc<Reach>) -> Self {
        Self(reach, Arc::default())
    }

    /// Sends a request and reads the response with at most `bytes_max` bytes of its body.
    pub fn send<'a>(
        &'a self,
        request: &'a Request,
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<Response, ReachError>> {
        Box::pin(async move {
            let total = Duration::from_millis(self.0.network.total_ms_max);
            match tokio::time::timeout(total, self.exchange(request, bytes_max)).await {
                Ok(response) => response,
                Err(_) => Err(ReachError::Timeout("the request exceeded its total time limit")),
            }
        })
    }

    /// Sends a request and returns once the response's head has arrived, within the given time. The body, up to the given size, is read as
    /// it arrives. The caller limits the total time.
    pub fn begin<'a>(
        &'a self,
        request: &'a Request,
        bytes_max: u64,
        first_byte_ms_max: u64,
    ) -> BoxFuture<'a, Result<Incomplete, ReachError>> {
        Box::pin(self.begun(request, bytes_max, first_byte_ms_max))
    }

    async fn begun(
        &self,
        request: &Request,
        bytes_max: u64,
        first_byte_ms_max: u64,
    ) -> Result<Incomplete, ReachError> {
        let Self(reach, pool) = self;
        let origin = request.url.origin();
        let first = Duration::from_millis(first_byte_ms_max);
        let late = |_| ReachError::Timeout("no response started in time");
        let mut kept = pool.take(&origin);
        loop {
            let is_kept = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => Connection::open(reach, &request.url).await?,
            };
            let (wire, bytes_sent) = wire_request(request, true)?;
            let answered = tokio::time::timeout(first, connection.sender.try_send_request(wire)).await;
            let response = match answered.map_err(late)? {
                Ok(response) => response,
                // The server closed it while it was idle.
                Err(failed) if is_kept && is_stale(failed.error()) => continue,
                Err(failed) => return Err(failed.into_error().into()),
            };
            let (head, body) = response.into_parts();
            return Ok(Incomplete {
                status: head.status,
                headers: head.headers,
                private: connection.private,
                bytes_sent,
                idle_ms_max: reach.network.idle_ms_max,
                body,
                bytes_left: bytes_max,
                kept: Some((Arc::clone(pool), origin, connection)),
            });
        }
    }

    async fn exchange(&self, request: &Request, bytes_max: u64) -> Result<Response, ReachError> {
        let opened = self.0.open(&request.url).await?;
        let (mut sender, _driven) = handshake(opened.stream).await?;
        let (wire, bytes_sent) = wire_request(request, false)?;
        let response = within(self.0.network.idle_ms_max, sender.send_request(wire)).await??;
        let (head, body) = response.into_parts();
        let (body, truncated) = self.body(body, bytes_max).await?;
        let (status, headers) = (head.status, head.headers);
        Ok(Response { status, headers, body, truncated, private: opened.private, bytes_sent })
    }

    async fn body(&self, mut body: Incoming, bytes_max: u64) -> Result<(Vec<u8>, bool), ReachError> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let mut content = Vec::new();
        while let Some(frame) = within(self.0.network.idle_ms_max, body.frame()).await? {
            let Ok(piece) = frame?.into_data() else { continue };
            let room = bytes_max.saturating_sub(content.len());
            content.extend_from_slice(piece.get(..room).unwrap_or(&piece));
            if piece.len() > room {
                return Ok((content, true));
            }
        }
        Ok((content, false))
    }
}

/// Starts HTTP on a connection.
pub(crate) async fn handshake<B>(
    stream: Box<dyn EgressStream>,
) -> Result<(http1::SendRequest<B>, DrivenTask), ReachError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .handshake::<_, B>(TokioIo::new(stream))
        .await?;
    // The task is aborted with its owner, so it never keeps a connection open.
    Ok((sender, DrivenTask(tokio::spawn(async move { connection.await.map_err(drop) }))))
}

/// A task that is aborted with its owner.
#[derive(Debug)]
pub(crate) struct DrivenTask(tokio::task::JoinHandle<Result<(), ()>>);

impl Drop for DrivenTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The request target and the `Host` value of a URL.
pub(crate) fn target_of(url: &Url) -> Result<(hyper::Uri, HeaderValue), ReachError> {
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let host = match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => String::new(),
    };
    let target = target.parse().map_err(|_| ReachError::Url("the URL can't be sent"))?;
    let host = HeaderValue::from_str(&host).map_err(|_| ReachError::Url("the host can't be sent"))?;
    Ok((target, host))
}

/// Approximate size of a request's head on the wire.
pub(crate) fn head_bytes(target: &hyper::Uri, headers: &HeaderMap) -> u64 {
    let lines: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    target.to_string().len().saturating_add(lines) as u64
}

/// Whether a kept connection had ended before anything of an answer came. Something else came if it can't be parsed.
fn is_stale(error: &hyper::Error) -> bool {
    !error.is_parse() && !error.is_user()
}

fn wire_request(request: &Request, is_kept: bool) -> Result<(hyper::Request<Full<Bytes>>, u64), ReachError> {
    let (target, host) = target_of(&request.url)?;
    let mut wire = hyper::Request::new(Full::new(Bytes::from(request.body.clone())));
    *wire.method_mut() = request.method.clone();
    *wire.uri_mut() = target;
    let headers = wire.headers_mut();
    headers.clone_from(&request.headers);
    headers.insert("host", host);
    // The byte limit applies to the bytes read, so the response must not be compressed.
    headers.insert("accept-encoding", HeaderValue::from_static("identity"));
    if !is_kept {
        headers.insert("connection", HeaderValue::from_static("close"));
    }
    headers
        .entry("user-agent")
        .or_insert(HeaderValue::from_static(concat!("regent/", env!("CARGO_PKG_VERSION"))));
    headers.entry("accept").or_insert(HeaderValue::from_static("*/*"));
    let bytes_sent = head_bytes(wire.uri(), wire.headers()).saturating_add(request.body.len() as u64);
    Ok((wire, bytes_sent))
}
