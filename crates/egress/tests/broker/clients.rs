//! The client of Regent's own servers: private authorities, kept connections, and a proxy.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use hyper::Method;
use hyper::header::HeaderMap;
use regent_egress::{Client, Network, Proxy, Reach, ReachError, Request, authorities};
use url::Url;

use crate::servers::{Server, ok};

fn request(url: &str) -> Request {
    Request {
        url: Url::parse(url).unwrap(),
        method: Method::POST,
        headers: HeaderMap::new(),
        body: b"hi".to_vec(),
    }
}

async fn asked(client: &Client, url: &str) -> Result<String, ReachError> {
    let mut answer = client.begin(&request(url), 1 << 20, 5_000).await?;
    let mut body = Vec::new();
    while let Some(piece) = answer.next().await? {
        body.extend_from_slice(&piece);
    }
    Ok(String::from_utf8(body).unwrap())
}

fn network(server: &Server) -> Network {
    Network { allow_private: vec![server.address()], ..Network::default() }
}

fn client(network: Network) -> Client {
    Client::new(Arc::new(Reach::new(network)))
}

fn kept(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 Kept\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[tokio::test]
async fn requests_share_a_connection_and_survive_its_end() {
    let server = Server::new(|_| kept("yes"));
    let kept_client = client(network(&server));
    let url = format!("http://{}/x", server.address());
    for _ in 0..5 {
        assert_eq!(asked(&kept_client, &url).await.unwrap(), "yes");
    }
    assert_eq!((server.connections.load(Ordering::SeqCst), server.requests().len()), (1, 5));
    // A body that nobody reads to its end closes its connection.
    drop(kept_client.begin(&request(&url), 1 << 20, 5_000).await.unwrap());
    assert_eq!(asked(&kept_client, &url).await.unwrap(), "yes");
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    // A server that closes after each answer without a word.
    let closing = Server::new(|_| ok("once"));
    let closed_client = client(network(&closing));
    for _ in 0..5 {
        assert_eq!(asked(&closed_client, &format!("http://{}/x", closing.address())).await.unwrap(), "once");
    }
    assert_eq!(closing.requests().len(), 5, "no request is made twice");
    // Whole requests are those of agents: each has a connection that was checked for it.
    let before = server.connections.load(Ordering::SeqCst);
    for _ in 0..2 {
        kept_client.send(&request(&url), 1 << 20).await.unwrap();
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), before + 2);
}

#[tokio::test]
async fn a_connection_is_released_in_the_background() {
    let server = Server::new(|_| kept("yes"));
    let client = client(network(&server));
    let url = format!("http://{}/x", server.address());
    for _ in 0..3 {
        client.begin(&request(&url), 1 << 20, 5_000).await.unwrap().release();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_private_authority_is_trusted_only_if_it_is_named() {
    let server = Server::tls(&["localhost"], |_| kept("private"));
    let url = format!("https://localhost:{}/x", server.port);
    let network =
        || Network { allow_private: vec![format!("localhost:{}", server.port)], ..Network::default() };
    let refused = asked(&client(network()), &url).await.unwrap_err();
    assert!(matches!(refused, ReachError::Tls(_)), "{refused}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let letters = base64(server.certificate.as_ref().unwrap());
    std::fs::write(
        &file,
        format!("# ours\n-----BEGIN CERTIFICATE-----\n{letters}\n-----END CERTIFICATE-----\n"),
    )
    .unwrap();
    let trusting = client(Network { roots: authorities(&file).unwrap(), ..network() });
    for _ in 0..2 {
        assert_eq!(asked(&trusting, &url).await.unwrap(), "private");
    }
    assert_eq!(server.requests().len(), 2);
    let cases = [
        ("", "has none"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "certificate 1"),
    ];
    for (text, expected) in cases {
        std::fs::write(&file, text).unwrap();
        let error = authorities(&file).unwrap_err();
        assert!(error.contains("ca.pem") && error.contains(expected), "{error}");
    }
    assert!(authorities(&folder.path().join("none.pem")).is_err());
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A proxy that leads every tunnel to one port, and what it was asked.
#[expect(clippy::disallowed_methods, reason = "the test's proxy connects to the test's server")]
fn proxy(to: u16, answer: &'static str) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&seen);
    std::thread::spawn(move || {
        for mut near in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0_u8];
            while !head.ends_with(b"\r\n\r\n") {
                near.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            asked.lock().unwrap().push(String::from_utf8(head).unwrap());
            near.write_all(answer.as_bytes()).unwrap();
            if !answer.contains("200") {
                continue;
            }
            let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                std::thread::spawn(move || {
                    std::io::copy(&mut from, &mut to).unwrap_or(0);
                    to.shutdown(Shutdown::Write).unwrap_or(());
                });
            }
        }
    });
    (port, seen)
}

#[tokio::test]
async fn a_proxy_is_a_tunnel_to_the_named_host_and_no_way_round_the_rules() {
    let server = Server::tls(&["api.example.com"], |_| kept("through"));
    let (port, seen) = proxy(server.port, "HTTP/1.1 200 Connection established\r\nvia: us\r\n\r\n");
    let network = Network {
        roots: vec![server.certificate.clone().unwrap()],
        proxy: Some(Proxy::new(&format!("http://127.0.0.1:{port}"), Vec::new()).unwrap()),
        ..Network::default()
    };
    let through = client(network.clone());
    for _ in 0..2 {
        assert_eq!(asked(&through, "https://api.example.com/v1").await.unwrap(), "through");
    }
    let tunnels = seen.lock().unwrap().clone();
    assert_eq!(tunnels.len(), 1, "the tunnel is kept");
    assert!(tunnels[0].starts_with("CONNECT api.example.com:443 HTTP/1.1\r\n"), "{tunnels:?}");
    assert!(
        server.requests()[0].contains("host: api.example.com"),
        "the request itself is inside the tunnel"
    );
    // The certificate is the host's, whatever the proxy does.
    let error = asked(&through, "https://other.example.com/v1").await.unwrap_err();
    assert!(matches!(error, ReachError::Tls(_)), "{error}");
    let before = seen.lock().unwrap().len();
    for url in ["https://10.0.0.1/", "https://169.254.169.254/", "https://[fd00::1]/"] {
        let error = asked(&through, url).await.unwrap_err();
        assert!(matches!(error, ReachError::Address { .. } | ReachError::Name { .. }), "{url}: {error}");
    }
    assert_eq!(seen.lock().unwrap().len(), before, "the proxy wasn't asked");
    let (port, _) = proxy(server.port, "HTTP/1.1 403 Forbidden\r\n\r\n");
    let refusing = Network {
        proxy: Some(Proxy::new(&format!("http://127.0.0.1:{port}"), Vec::new()).unwrap()),
        ..network
    };
    let error = asked(&client(refusing), "https://api.example.com/v1").await.unwrap_err();
    assert!(error.to_string().contains("refused a tunnel to api.example.com:443: 403"), "{error}");
}
