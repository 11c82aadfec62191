//! One HTTP/1.1 exchange with a host whose address was checked, within limits of size and time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use regent_kernel::{Failure, endpoint};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use url::{Host, Url};

use super::address;
use crate::output::failure;

/// How large the head of a response may be.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// What `http.fetch` may reach, and for how long it waits.
#[derive(Debug, Clone)]
pub struct Network {
    /// Hosts that may be reached although their addresses are private, as `host:port` in the spelling that policy sees
    /// (`[::1]:80` for an IPv6 address). Policy still has to allow them.
    pub allow_private: Vec<String>,
    /// Certificates (DER) of further authorities, besides the web's.
    pub roots: Vec<Vec<u8>>,
    /// How long connecting may take, TLS included.
    pub connect_ms_max: u64,
    /// How long the other side may say nothing.
    pub idle_ms_max: u64,
    /// How long one request may take in all.
    pub total_ms_max: u64,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            allow_private: Vec::new(),
            roots: Vec::new(),
            connect_ms_max: 10_000,
            idle_ms_max: 15_000,
            total_ms_max: 120_000,
        }
    }
}

/// What is sent.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) url: Url,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// There was more.
    pub(crate) truncated: bool,
    /// It came from a private network.
    pub(crate) private: bool,
    pub(crate) bytes_sent: u64,
}

/// Makes requests. It keeps nothing between them: no connection, no cookie.
#[derive(Debug)]
pub(crate) struct Client {
    network: Network,
    tls: Result<Arc<ClientConfig>, String>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Addresses that were checked, and whether an exception was made for them.
#[derive(Debug)]
struct Checked {
    addresses: Vec<SocketAddr>,
    private: bool,
}

impl Client {
    pub(crate) fn new(network: Network) -> Self {
        let tls = tls_config(&network.roots);
        Self { network, tls }
    }

    /// Sends a request and reads the answer, up to so many bytes of its body.
    pub(crate) async fn send(&self, request: &Request, bytes_max: u64) -> Result<Response, Failure> {
        let total = Duration::from_millis(self.network.total_ms_max);
        match tokio::time::timeout(total, self.exchange(request, bytes_max)).await {
            Ok(response) => response,
            Err(_) => Err(timeout("the request took longer than it may in all")),
        }
    }

    async fn exchange(&self, request: &Request, bytes_max: u64) -> Result<Response, Failure> {
        let connect = async {
            let checked = self.check(&request.url).await?;
            let stream = self.connect(&request.url, &checked.addresses).await?;
            Ok::<_, Failure>((checked, stream))
        };
        let limit = Duration::from_millis(self.network.connect_ms_max);
        let (checked, stream) =
            tokio::time::timeout(limit, connect).await.map_err(|_| timeout("connecting took too long"))??;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // Driven beside the exchange, and gone with it: nothing of ours keeps a connection open.
        let _driven = Driven(tokio::spawn(async move { connection.await.map_err(drop) }));
        let (wire, bytes_sent) = wire_request(request)?;
        let response = self.in_time(sender.send_request(wire)).await?.map_err(broken)?;
        let (head, body) = response.into_parts();
        let (body, truncated) = self.body(body, bytes_max).await?;
        let (status, headers) = (head.status, head.headers);
        Ok(Response { status, headers, body, truncated, private: checked.private, bytes_sent })
    }

    /// Finds out where a host is, once, and refuses it if any of its addresses isn't public: a name that is public and private at
    /// the same time is a trick.
    async fn check(&self, url: &Url) -> Result<Checked, Failure> {
        let (host, port) = (endpoint::host_of(url), url.port_or_known_default().unwrap_or(80));
        let mut addresses: Vec<SocketAddr> = match url.host() {
            Some(Host::Ipv4(address)) => vec![SocketAddr::new(IpAddr::V4(address), port)],
            Some(Host::Ipv6(address)) => vec![SocketAddr::new(IpAddr::V6(address), port)],
            Some(Host::Domain(_)) => tokio::net::lookup_host((host.as_str(), port))
                .await
                .map_err(|error| failure("http.no_such_host", format!("`{host}` can't be found: {error}")))?
                .collect(),
            None => Vec::new(),
        };
        if addresses.is_empty() {
            return Err(failure("http.no_such_host", format!("`{host}` has no address")));
        }
        let refused = addresses.iter().find_map(|at| address::refusal(at.ip()).map(|what| (at.ip(), what)));
        let excepted =
            self.network.allow_private.contains(&format!("{}:{port}", url.host_str().unwrap_or_default()));
        if let Some((address, what)) = refused
            && !excepted
        {
            let message = format!("`{host}` is at {address} ({what}), which is not a public address");
            return Err(failure("http.address_refused", message));
        }
        addresses.truncate(ADDRESSES_MAX);
        Ok(Checked { addresses, private: refused.is_some() })
    }

    async fn connect(&self, url: &Url, addresses: &[SocketAddr]) -> Result<Box<dyn Stream>, Failure> {
        let mut last = failure("http.connect", "no address to connect to");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) if url.scheme() == "https" => return self.encrypt(url, stream).await,
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) => last = failure("http.connect", format!("can't connect to {address}: {error}")),
            }
        }
        Err(last)
    }

    async fn encrypt(&self, url: &Url, stream: TcpStream) -> Result<Box<dyn Stream>, Failure> {
        let tls = self.tls.as_ref().map_err(|why| failure("http.tls", why.clone()))?;
        // The name that the certificate must have is the one that policy judged and that the request names.
        let name = ServerName::try_from(endpoint::host_of(url))
            .map_err(|error| failure("http.tls", error.to_string()))?;
        let stream = TlsConnector::from(Arc::clone(tls))
            .connect(name, stream)
            .await
            .map_err(|error| failure("http.tls", format!("no trusted connection: {error}")))?;
        Ok(Box::new(stream))
    }

    async fn body(&self, mut body: Incoming, bytes_max: u64) -> Result<(Vec<u8>, bool), Failure> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let mut content = Vec::new();
        while let Some(frame) = self.in_time(body.frame()).await? {
            let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
            let room = bytes_max.saturating_sub(content.len());
            content.extend_from_slice(piece.get(..room).unwrap_or(&piece));
            if piece.len() > room {
                return Ok((content, true));
            }
        }
        Ok((content, false))
    }

    /// Waits for the other side, but not for ever.
    async fn in_time<T>(&self, next: impl Future<Output = T>) -> Result<T, Failure> {
        let idle = Duration::from_millis(self.network.idle_ms_max);
        tokio::time::timeout(idle, next)
            .await
            .map_err(|_| timeout("the other side said nothing for too long"))
    }
}

/// A task that ends with its owner.
#[derive(Debug)]
struct Driven(tokio::task::JoinHandle<Result<(), ()>>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn wire_request(request: &Request) -> Result<(hyper::Request<Full<Bytes>>, u64), Failure> {
    let url = &request.url;
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let host = match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => String::new(),
    };
    let mut wire = hyper::Request::new(Full::new(Bytes::from(request.body.clone())));
    *wire.method_mut() = request.method.clone();
    *wire.uri_mut() = target.parse().map_err(|_| failure("http.url", "the URL can't be sent"))?;
    let headers = wire.headers_mut();
    headers.clone_from(&request.headers);
    let host = HeaderValue::from_str(&host).map_err(|_| failure("http.url", "the host can't be sent"))?;
    headers.insert("host", host);
    // What is counted is what is read: nothing is unpacked here.
    headers.insert("accept-encoding", HeaderValue::from_static("identity"));
    headers.insert("connection", HeaderValue::from_static("close"));
    headers
        .entry("user-agent")
        .or_insert(HeaderValue::from_static(concat!("regent/", env!("CARGO_PKG_VERSION"))));
    headers.entry("accept").or_insert(HeaderValue::from_static("*/*"));
    let head: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let bytes_sent = (target.len() + head + request.body.len()) as u64;
    Ok((wire, bytes_sent))
}

/// The web's own authorities, compiled in, and those that the operator adds. The machine's store is not consulted: what may vouch
/// for a host is part of this program.
fn tls_config(roots: &[Vec<u8>]) -> Result<Arc<ClientConfig>, String> {
    let mut store = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for root in roots {
        store.add(CertificateDer::from(root.clone())).map_err(|error| error.to_string())?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn timeout(message: &str) -> Failure {
    failure("http.timeout", message)
}

fn broken(error: hyper::Error) -> Failure {
    failure("http.broken", format!("the exchange broke: {error}"))
}
