//! Connections to the server of the state: TCP, with TLS where the server isn't on this machine, and how they are made again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "redis"))]
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::StateError;

/// How long a server may take to accept a connection.
#[cfg(any(feature = "redis", feature = "dynamodb"))]
const CONNECT: Duration = Duration::from_secs(5);
/// A connection that only receives isn't told when its server is gone without a word. The system asks the server after this time, so
/// often, and gives up after so many questions without an answer: after 30 s.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
pub(crate) const KEEPALIVE_PROBES: u32 = 3;
/// How soon a lost subscription is made again, at first and at last.
#[cfg(any(feature = "postgres", feature = "redis"))]
const AGAIN: Duration = Duration::from_millis(50);
#[cfg(any(feature = "postgres", feature = "redis"))]
const AGAIN_MAX: Duration = Duration::from_secs(2);

/// Something that bytes are sent over.
#[cfg(any(feature = "redis", feature = "dynamodb"))]
pub(crate) trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Sync + Unpin {}
#[cfg(any(feature = "redis", feature = "dynamodb"))]
impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// A client of TLS that trusts these authorities, or the usual ones.
pub(crate) fn tls(authorities: Option<&Path>) -> Result<TlsConnector, StateError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let unusable =
                |why: String| StateError::Unusable(format!("`sslrootcert`, `{}`: {why}", path.display()));
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?
            {
                let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
                roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
            }
        }
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| StateError::Unusable(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Connects to a host, with TLS if there is a client of it.
#[cfg(any(feature = "redis", feature = "dynamodb"))]
pub(crate) async fn dial(
    (host, port): (&str, u16),
    tls: Option<&TlsConnector>,
) -> std::io::Result<Box<dyn Stream>> {
    let connected = async {
        let stream = connect_tcp((host, port)).await?;
        let Some(tls) = tls else { return Ok(Box::new(stream) as Box<dyn Stream>) };
        let name = tokio_rustls::rustls::pki_types::ServerName::try_from(host.to_owned())
            .map_err(|_| std::io::Error::other("its name can't be verified"))?;
        Ok(Box::new(tls.connect(name, stream).await?) as Box<dyn Stream>)
    };
    tokio::time::timeout(CONNECT, connected)
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

#[cfg(any(feature = "redis", feature = "dynamodb"))]
#[expect(clippy::disallowed_methods, reason = "the server of the state, which the operator names")]
pub(super) async fn connect_tcp(address: (&str, u16)) -> std::io::Result<tokio::net::TcpStream> {
    use rustix::net::sockopt;
    let stream = tokio::net::TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    Ok(stream)
}

/// The pauses between subscriptions: longer after each one that failed or ended soon, so that a server that closes all of them isn't asked
/// without a pause.
#[cfg(any(feature = "postgres", feature = "redis"))]
#[derive(Debug)]
pub(crate) struct ReconnectPause(Duration);

#[cfg(any(feature = "postgres", feature = "redis"))]
impl ReconnectPause {
    pub(crate) fn new() -> Self {
        Self(AGAIN)
    }

    /// The pause after a subscription that lasted so long; no time, if there was none.
    pub(crate) fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= AGAIN_MAX {
            self.0 = AGAIN;
        }
        let pause = self.0;
        self.0 = pause.saturating_mul(2).min(AGAIN_MAX);
        pause
    }
}

/// Turns a server's messages into wake-ups for as long as the state is open. `follow` ends with the connection; then `subscribe` makes it
/// again. The first attempt decides whether the state opens.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) async fn keep_subscribed<S, Subscribed, Followed>(
    changed: &watch::Sender<u64>,
    ready: oneshot::Sender<Result<(), StateError>>,
    subscribe: impl Fn() -> Subscribed,
    follow: impl Fn(S) -> Followed,
) where
    Subscribed: Future<Output = Result<S, StateError>>,
    Followed: Future<Output = ()>,
{
    let (mut ready, mut pause) = (Some(ready), ReconnectPause::new());
    loop {
        let subscribed = subscribe().await;
        // Commits during the disconnection must be read back.
        super::wake(changed);
        let began = std::time::Instant::now();
        match (subscribed, ready.take()) {
            (Ok(subscription), ready) => {
                ready.into_iter().for_each(|ready| drop(ready.send(Ok(()))));
                follow(subscription).await;
            }
            (Err(error), Some(ready)) => return drop(ready.send(Err(error))),
            (Err(_unreachable), None) => {}
        }
        tokio::time::sleep(pause.after(began.elapsed())).await;
    }
}
