//! Resolves a host once, checks every address, and connects to a checked address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use regent_kernel::endpoint;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use url::{Host, Url};

use crate::proxy::{self, Proxy};
use crate::{address, name};

/// Maximum number of addresses to try per name.
const ADDRESSES_MAX: usize = 8;

/// Limits on hosts, time and size.
#[derive(Debug, Clone)]
pub struct Network {
    /// Hosts that may be reached at private addresses, as `host:port` in the spelling that policy sees (`[::1]:80` for an IPv6 address).
    /// Policy must allow them too.
    pub allow_private: Vec<String>,
    /// Certificates (DER) of further authorities, besides the public ones.
    pub roots: Vec<Vec<u8>>,
    /// A proxy on the way to Regent's own servers. Never for calls of agents: it looks names up itself.
    pub proxy: Option<Proxy>,
    /// Maximum time to connect, TLS included.
    pub connect_ms_max: u64,
    /// Maximum idle time of a server during one of Regent's own requests.
    pub idle_ms_max: u64,
    /// Maximum idle time of a program's exchange. Models think before they answer.
    pub quiet_ms_max: u64,
    /// Maximum total time of one request.
    pub total_ms_max: u64,
    /// Maximum bytes that one exchange of a program may send. Budgets and policy may allow less.
    pub bytes_out_max: u64,
    /// Maximum bytes that one exchange of a program may receive.
    pub bytes_in_max: u64,
    /// Maximum concurrent connections of one program.
    pub connections_max: usize,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            allow_private: Vec::new(),
            roots: Vec::new(),
            proxy: None,
            connect_ms_max: 10_000,
            idle_ms_max: 15_000,
            quiet_ms_max: 300_000,
            total_ms_max: 120_000,
            bytes_out_max: 1 << 30,
            bytes_in_max: 8 << 30,
            connections_max: 128,
        }
    }
}

/// Why a host wasn't reached, or why an exchange broke.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The URL can't be requested.
    #[error("{0}")]
    Url(&'static str),
    /// The name may not be looked up.
    #[error("refused to look up `{host}`: {why}")]
    Name {
        /// The host name.
        host: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The name has no address.
    #[error("`{host}` can't be found: {why}")]
    NoSuchHost {
        /// The host name.
        host: String,
        /// The resolver's error.
        why: String,
    },
    /// The address is not public.
    #[error(
        "`{host}` is at {address} ({what}), which is not a public address; to allow it, add `{host}:{port}` to the setting `network.allow_private`"
    )]
    Address {
        /// The host name.
        host: String,
        /// The port.
        port: u16,
        /// The address.
        address: IpAddr,
        /// Why it isn't public.
        what: &'static str,
    },
    /// The connection failed.
    #[error("can't connect to {address}: {why}")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        why: std::io::Error,
    },
    /// The server's certificate is not trusted.
    #[error("no trusted TLS connection: {0}")]
    Tls(String),
    /// A time limit was reached.
    #[error("{0}")]
    Timeout(&'static str),
    /// The response exceeds its limit.
    #[error("the response exceeds its limit")]
    TooLarge,
    /// The connection broke.
    #[error("the connection was lost: {0}")]
    Broken(#[from] hyper::Error),
}

impl ReachError {
    /// A stable word, the end of a failure's code.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Url(_) => "url",
            Self::Name { .. } => "name_refused",
            Self::NoSuchHost { .. } => "no_such_host",
            Self::Address { .. } => "address_refused",
            Self::Connect { .. } => "connect",
            Self::Tls(_) => "tls",
            Self::Timeout(_) => "timeout",
            Self::TooLarge => "too_large",
            Self::Broken(_) => "broken",
        }
    }
}

/// A connection to another machine.
pub(crate) trait EgressStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> EgressStream for T {}

/// An established connection.
pub(crate) struct Opened<S> {
    pub(crate) stream: S,
    /// The actual address.
    pub(crate) address: SocketAddr,
    /// Whether it leads to a private network.
    pub(crate) private: bool,
}

/// Connects to hosts. It caches nothing between connections.
#[derive(Debug)]
pub struct Reach {
    pub(crate) network: Network,
    tls: Result<Arc<ClientConfig>, String>,
}

impl Reach {
    /// With these limits.
    pub fn new(network: Network) -> Self {
        let tls = tls_config(&network.roots);
        Self { network, tls }
    }

    /// Connects to the host of a URL, with TLS if its scheme says so.
    pub(crate) async fn open(&self, url: &Url) -> Result<Opened<Box<dyn EgressStream>>, ReachError> {
        let opening = async {
            let proxy = self.network.proxy.as_ref().filter(|proxy| proxy.is_for(url));
            let Opened { stream, address, private } = match proxy {
                Some(proxy) => self.through(proxy, url).await?,
                None => self.connect(url).await?,
            };
            let stream: Box<dyn EgressStream> = match url.scheme() {
                "https" => self.encrypt(url, stream).await?,
                _plain => Box::new(stream),
            };
            Ok(Opened { stream, address, private })
        };
        self.soon(opening).await
    }

    /// Connects to the host of a URL; the caller speaks the protocol.
    pub(crate) async fn open_tunnel(&self, url: &Url) -> Result<Opened<TcpStream>, ReachError> {
        self.soon(self.connect(url)).await
    }

    async fn soon<T>(&self, opening: impl Future<Output = Result<T, ReachError>>) -> Result<T, ReachError> {
        let limit = Duration::from_millis(self.network.connect_ms_max);
        tokio::time::timeout(limit, opening)
            .await
            .map_err(|_| ReachError::Timeout("connecting took too long"))?
    }

    /// Resolves a host once, and rejects it if any of its addresses isn't public: a name with both public and private addresses is an
    /// attack.
    async fn check(&self, url: &Url) -> Result<(Vec<SocketAddr>, bool), ReachError> {
        let (host, port) = (endpoint::host_of(url), url.port_or_known_default().unwrap_or(80));
        let mut addresses: Vec<SocketAddr> = match url.host() {
            Some(Host::Ipv4(address)) => vec![SocketAddr::new(IpAddr::V4(address), port)],
            Some(Host::Ipv6(address)) => vec![SocketAddr::new(IpAddr::V6(address), port)],
            Some(Host::Domain(_)) => {
                if let Some(why) = name::refusal(&host) {
                    return Err(ReachError::Name { host, why });
                }
                let found = tokio::net::lookup_host((host.as_str(), port)).await;
                let found = found.map(Iterator::collect::<Vec<_>>).map_err(|error| error.to_string());
                match found {
                    Ok(found) => found,
                    Err(why) => return Err(ReachError::NoSuchHost { host, why }),
                }
            }
            None => Vec::new(),
        };
        if addresses.is_empty() {
            return Err(ReachError::NoSuchHost { host, why: "it has no address".to_owned() });
        }
        let refused = addresses.iter().find_map(|at| refusal(at.ip()).map(|what| (at.ip(), what)));
        let excepted =
            self.network.allow_private.contains(&format!("{}:{port}", url.host_str().unwrap_or_default()));
        if let Some((address, what)) = refused
            && !excepted
        {
            return Err(ReachError::Address { host, port, address, what });
        }
        addresses.truncate(ADDRESSES_MAX);
        Ok((addresses, refused.is_some()))
    }

    /// Connects through a proxy, which looks the host up. A host that is an address must be one that may be reached, and a name one that
    /// may be looked up.
    async fn through(&self, proxy: &Proxy, url: &Url) -> Result<Opened<TcpStream>, ReachError> {
        match url.host() {
            Some(Host::Domain(_)) => {
                let host = endpoint::host_of(url);
                if let Some(why) = name::refusal(&host) {
                    return Err(ReachError::Name { host, why });
                }
            }
            Some(Host::Ipv4(_) | Host::Ipv6(_)) | None => drop(self.check(url).await?),
        }
        let at = proxy.url();
        let (host, port) = (endpoint::host_of(at), at.port_or_known_default().unwrap_or(80));
        let found = tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await;
        let found = found.map(|found| found.take(ADDRESSES_MAX).collect()).map_err(|error| error.to_string());
        let found = found.map_err(|why| ReachError::NoSuchHost { host, why })?;
        let mut opened = Self::dial(found, false).await?;
        let address = opened.address;
        let asked = proxy::connect(&mut opened.stream, url).await;
        asked.map_err(|why| ReachError::Connect { address, why })?;
        Ok(opened)
    }

    async fn connect(&self, url: &Url) -> Result<Opened<TcpStream>, ReachError> {
        let (addresses, private) = self.check(url).await?;
        Self::dial(addresses, private).await
    }

    #[expect(clippy::disallowed_methods, reason = "the one connector")]
    async fn dial(addresses: Vec<SocketAddr>, private: bool) -> Result<Opened<TcpStream>, ReachError> {
        let mut last = ReachError::Url("there is no address to connect to");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Sends small pieces immediately. On failure, they are only delayed.
                    stream.set_nodelay(true).ok();
                    return Ok(Opened { stream, address, private });
                }
                Err(why) => last = ReachError::Connect { address, why },
            }
        }
        Err(last)
    }

    async fn encrypt(&self, url: &Url, stream: TcpStream) -> Result<Box<dyn EgressStream>, ReachError> {
        let tls = self.tls.as_ref().map_err(|why| ReachError::Tls(why.clone()))?;
        // The certificate must have the name that policy judged and that the request contains.
        let name = ServerName::try_from(endpoint::host_of(url))
            .map_err(|error| ReachError::Tls(error.to_string()))?;
        let stream = TlsConnector::from(Arc::clone(tls))
            .connect(name, stream)
            .await
            .map_err(|error| ReachError::Tls(error.to_string()))?;
        Ok(Box::new(stream))
    }

    /// Waits for the other side of a program's exchange, up to the idle limit.
    pub(crate) async fn in_time<T>(&self, next: impl Future<Output = T>) -> Result<T, ReachError> {
        within(self.network.quiet_ms_max, next).await
    }
}

/// Waits up to a limit.
pub(crate) async fn within<T>(ms_max: u64, next: impl Future<Output = T>) -> Result<T, ReachError> {
    tokio::time::timeout(Duration::from_millis(ms_max), next)
        .await
        .map_err(|_| ReachError::Timeout("the connection was idle for too long"))
}

/// The public authorities, compiled in, and those that the operator adds. The system's store is used only if the operator says so, so that
/// the trusted authorities are part of this program.
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
/// Why an address may not be reached, or `None` if it may.
fn refusal(address: IpAddr) -> Option<&'static str> {
    address::refusal(address).or_else(|| address::is_ours(address).then_some("this machine's own"))
}
