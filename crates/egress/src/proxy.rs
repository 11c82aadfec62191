//! An HTTP proxy on the way to Regent's own servers (CONNECT). Only for hosts that the operator's settings name: calls of agents never go
//! through it, because the proxy looks names up itself, so that no address could be checked.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use url::{Host, Url};

/// The longest answer to CONNECT.
const ANSWER_BYTES_MAX: usize = 8 << 10;

/// A proxy, and the hosts that are reached without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    url: Url,
    bypass: Vec<String>,
}

impl Proxy {
    /// The proxy at `http://host:port`. Each entry of `bypass` is a host, `host:port`, or `.domain` with all its hosts; `*` is all.
    pub fn new(url: &str, bypass: Vec<String>) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("the proxy's URL is malformed: {error}"))?;
        if url.scheme() != "http" || url.host().is_none() || url.path() != "/" || url.query().is_some() {
            return Err("a proxy's URL has the form `http://host:port`".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a proxy with a password is not supported".to_owned());
        }
        Ok(Self { url, bypass: bypass.into_iter().map(|one| one.to_ascii_lowercase()).collect() })
    }

    /// Its own address.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Whether it is on the way to a URL: not to this machine, and not for plain HTTP.
    pub(crate) fn is_for(&self, url: &Url) -> bool {
        let is_own = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => true,
        };
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or(0);
        let is_bypassed = |one: &String| {
            let domain = one.strip_prefix('.');
            one == "*"
                || one == host
                || *one == format!("{host}:{port}")
                || domain.is_some_and(|domain| host == domain || host.ends_with(one.as_str()))
        };
        url.scheme() == "https" && !is_own && !self.bypass.iter().any(is_bypassed)
    }
}

/// Asks the proxy at the other end for a tunnel.
pub(crate) async fn connect(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), url: &Url) -> io::Result<()> {
    let target =
        format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(443));
    let request = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    // Byte by byte: what follows the head belongs to the tunnel.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= ANSWER_BYTES_MAX {
            return Err(io::Error::other("the proxy's answer is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    let line = String::from_utf8_lossy(&head);
    let status = line.lines().next().unwrap_or_default().split(' ').nth(1).unwrap_or_default();
    if status.len() == 3 && status.starts_with('2') {
        return Ok(());
    }
    Err(io::Error::other(format!("the proxy refused a tunnel to {target}: {}", status.escape_debug())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_to_other_machines_goes_through_the_proxy() {
        let bypass = ["corp.example", ".inside.example", "other.example:8443"].map(str::to_owned).to_vec();
        let proxy = Proxy::new("http://127.0.0.1:3128", bypass).unwrap();
        let cases = [
            ("https://api.example.com/v1", true),
            ("http://api.example.com/v1", false),
            ("https://corp.example/", false),
            ("https://notcorp.example/", true),
            ("https://a.inside.example/", false),
            ("https://inside.example/", false),
            ("https://other.example/", true),
            ("https://other.example:8443/", false),
            ("https://localhost:1/", false),
            ("https://127.0.0.1:1/", false),
            ("https://[::1]:1/", false),
            ("https://10.0.0.1/", true),
        ];
        for (url, expected) in cases {
            assert_eq!(proxy.is_for(&Url::parse(url).unwrap()), expected, "{url}");
        }
        assert!(
            !Proxy::new("http://p", vec!["*".to_owned()])
                .unwrap()
                .is_for(&Url::parse("https://a.b/").unwrap())
        );
    }

    #[test]
    fn proxies_that_are_not_understood_are_refused() {
        for url in ["socks5://a:1", "https://a:1", "http://a:b@c:1", "http://a:1/x", "a:1", ""] {
            assert!(Proxy::new(url, Vec::new()).is_err(), "{url}");
        }
    }
}
