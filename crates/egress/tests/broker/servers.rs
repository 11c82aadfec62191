//! Servers on loopback, plain and with TLS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A server that answers each request with a function's result. It lives as long as the test process.
pub(crate) struct Server {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    /// Its certificate, if it uses TLS.
    pub(crate) certificate: Option<Vec<u8>>,
    /// How many connections it has accepted.
    pub(crate) connections: Arc<AtomicUsize>,
}

type Responder = dyn Fn(&str) -> Vec<u8> + Send + Sync;

impl Server {
    pub(crate) fn new(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(Arc::new(answer), None)
    }

    /// A TLS server for these names.
    pub(crate) fn tls(names: &[&str], answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        Self::start(Arc::new(answer), Some(generate_simple_self_signed(names).unwrap()))
    }

    fn start(answer: Arc<Responder>, key: Option<CertifiedKey<rcgen::KeyPair>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let certificate = key.as_ref().map(|key| key.cert.der().to_vec());
        let config = key.map(|key| Arc::new(config(&key)));
        let seen = Arc::clone(&requests);
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let (answer, seen, config) = (Arc::clone(&answer), Arc::clone(&seen), config.clone());
                std::thread::spawn(move || match config {
                    Some(config) => {
                        let connection = ServerConnection::new(config).unwrap();
                        exchange(StreamOwned::new(connection, stream), &*answer, &seen);
                    }
                    None => exchange(stream, &*answer, &seen),
                });
            }
        });
        Self { port, requests, certificate, connections }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn config(key: &CertifiedKey<rcgen::KeyPair>) -> ServerConfig {
    let private = PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap()
}

fn exchange(mut stream: impl Read + Write, answer: &Responder, requests: &Mutex<Vec<String>>) {
    // As long as the client goes on, unless either side says that it closes.
    while let Some(request) = read(&mut stream) {
        requests.lock().unwrap().push(request.clone());
        let answer = answer(&request);
        stream.write_all(&answer).unwrap_or(());
        stream.flush().unwrap_or(());
        let closes = |text: &str| text.to_lowercase().contains("connection: close");
        if closes(&request) || closes(&String::from_utf8_lossy(&answer)) || !answer.starts_with(KEPT) {
            return;
        }
    }
}

/// How an answer begins after which the connection stays open.
pub(crate) const KEPT: &[u8] = b"HTTP/1.1 200 Kept";

/// The head, and then the announced body or all chunks.
fn read(stream: &mut impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0_u8];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes.clone()).ok()?.to_lowercase();
    if head.contains("transfer-encoding: chunked") {
        while !bytes.ends_with(b"0\r\n\r\n") {
            stream.read_exact(&mut byte).ok()?;
            bytes.push(byte[0]);
        }
    }
    let length =
        head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    bytes.extend(body);
    String::from_utf8(bytes).ok()
}

/// A plain 200 response.
pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
