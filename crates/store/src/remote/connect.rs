//! Connections to the server of the state: TCP, with TLS where the server isn't on this machine.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::StateError;

/// How long a server may take to accept a connection.
#[cfg(any(feature = "redis", feature = "dynamodb"))]
const CONNECT: std::time::Duration = std::time::Duration::from_secs(5);

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
        let stream = tokio::net::TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = tls else { return Ok(Box::new(stream) as Box<dyn Stream>) };
        let name = tokio_rustls::rustls::pki_types::ServerName::try_from(host.to_owned())
            .map_err(|_| std::io::Error::other("its name can't be verified"))?;
        Ok(Box::new(tls.connect(name, stream).await?) as Box<dyn Stream>)
    };
    tokio::time::timeout(CONNECT, connected)
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}
