//! TLS for Postgres, over the rustls that everything else uses.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};

use crate::state::BoxFuture;

/// Makes connections secure.
#[derive(Clone)]
pub(super) struct MakeTls(pub(super) TlsConnector);

/// The same, for one server.
pub(super) struct ConnectTls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// A secure connection.
pub(super) struct Secured<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for MakeTls {
    type Stream = Secured<S>;
    type TlsConnect = ConnectTls;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<ConnectTls, InvalidDnsNameError> {
        // Behind a Unix socket there is no name, and no TLS either.
        let domain = if domain.is_empty() { "localhost" } else { domain };
        Ok(ConnectTls { connector: self.0.clone(), name: ServerName::try_from(domain.to_owned())? })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for ConnectTls {
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Secured<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { Ok(Secured(self.connector.connect(self.name, stream).await?)) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Secured<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
