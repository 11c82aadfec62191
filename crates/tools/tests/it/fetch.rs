//! `http.fetch` against servers on the loopback interface, which it reaches only because the test says that it may.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use regent_kernel::Confidentiality;
use regent_ledger::EntryKind;
use regent_tools::Network;
use serde_json::json;

use crate::world::{ALLOW_ALL, ToolsFixture};

/// A server that hands each connection, with the head of its request, to a function. It lives as long as the test's process.
struct Server {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let Some(head) = read_request(&mut stream) else { continue };
                seen.lock().unwrap().push(head.clone());
                answer(&head, &mut stream);
            }
        });
        Self { address, heads }
    }

    /// Answers everything with the same bytes.
    fn fixed(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |_, stream| stream.write_all(&answer).unwrap_or(()))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// The head and, after it, as much of the body as the head announces.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0_u8];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let mut head = String::from_utf8(head).ok()?;
    let length = head
        .to_lowercase()
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    head.push_str(std::str::from_utf8(&body).ok()?);
    Some(head)
}

fn reply(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

/// A network that may reach these servers, and is impatient.
fn network(servers: &[&Server]) -> Network {
    Network {
        allow_private: servers.iter().map(|server| server.address.to_string()).collect(),
        connect_ms_max: 5_000,
        idle_ms_max: 5_000,
        total_ms_max: 20_000,
        ..Network::default()
    }
}

#[tokio::test]
async fn a_page_is_fetched_and_labelled() {
    let server = Server::fixed(reply("200 OK", "x-one: 1\r\nset-cookie: session=1\r\n", "hello"));
    let world = ToolsFixture::with(ALLOW_ALL, network(&[&server])).await;
    let page = world.json("http.fetch", json!({"url": server.url("/a/../b?q=1#part")})).await;
    assert_eq!(page["url"], server.url("/b?q=1"));
    assert_eq!(
        (&page["status"], &page["body"], &page["truncated"]),
        (&json!(200), &json!("hello"), &json!(false))
    );
    assert_eq!(page["headers"], json!({"content-length": "5", "x-one": "1"}));
    let head = server.heads().remove(0);
    assert!(head.starts_with("GET /b?q=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {}\r\n", server.address)), "{head}");
    assert!(!head.to_lowercase().contains("cookie"), "{head}");
    let args = json!({"url": server.url("/"), "method": "POST", "body": "{}", "headers": {"Content-Type": "application/json"}});
    let heard = world.call("http.fetch", args).await;
    assert_eq!((heard.how.as_str(), heard.confidentiality), ("ok", Some(Confidentiality::Private)));
    let head = server.heads().remove(1);
    assert!(
        head.starts_with("POST / ")
            && head.contains("content-type: application/json\r\n")
            && head.ends_with("{}"),
        "{head}"
    );
}

#[tokio::test]
async fn a_body_is_cut_where_the_caller_says_or_policy_says() {
    let server = Server::fixed(reply("200 OK", "", &"x".repeat(100_000)));
    let world = ToolsFixture::with(ALLOW_ALL, network(&[&server])).await;
    let page = world.json("http.fetch", json!({"url": server.url("/"), "bytes_max": 1000})).await;
    assert_eq!((&page["bytes"], &page["truncated"]), (&json!(1000), &json!(true)));
    let small = "
version: 1
limits: { output: 4KiB }
rules:
  - { id: all, effect: allow, match: { op: tool.run } }
";
    for body in [vec![b'x'; 50_000], vec![0; 50_000], vec![0xff; 50_000]] {
        let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend(body);
        let server = Server::fixed(answer);
        let world = ToolsFixture::with(small, network(&[&server])).await;
        let heard = world.call("http.fetch", json!({"url": server.url("/")})).await;
        assert_eq!(heard.how, "ok", "{}", heard.message);
        assert!(heard.output.len() <= 4096, "{} bytes", heard.output.len());
    }
}

#[tokio::test]
async fn adv_005_a_stream_that_never_ends_is_ended() {
    // Says something and then nothing: the idle limit.
    let silent = Server::new(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n").unwrap_or(());
        drop(stream.read_to_end(&mut Vec::new()));
    });
    // Never even says what it will say.
    let mute = Server::new(|_, stream| drop(stream.read_to_end(&mut Vec::new())));
    // Always says a little more: the total limit.
    let dripping = Server::new(|_, stream| {
        let mut going = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_ok();
        while going {
            std::thread::sleep(std::time::Duration::from_millis(5));
            going = stream.write_all(b"1\r\nx\r\n").is_ok();
        }
    });
    let patience = |server: &Server, idle_ms_max, total_ms_max| Network {
        idle_ms_max,
        total_ms_max,
        ..network(&[server])
    };
    for (server, idle_ms, total_ms) in
        [(&silent, 100, 60_000), (&mute, 100, 60_000), (&dripping, 60_000, 300)]
    {
        let world = ToolsFixture::with(ALLOW_ALL, patience(server, idle_ms, total_ms)).await;
        let heard = world.call("http.fetch", json!({"url": server.url("/")})).await;
        assert_eq!(heard.how, "failed http.timeout", "{}", heard.message);
    }
}

#[tokio::test]
async fn adv_048_private_addresses_are_refused_however_they_are_spelt() {
    let server = Server::fixed(reply("200 OK", "", "inside"));
    let port = server.address.port();
    let world = ToolsFixture::new(ALLOW_ALL).await;
    let hosts = [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.0.0.1.",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:7f00:0001]",
        "[::127.0.0.1]",
        "[2002:7f00:1::]",
        "[64:ff9b::7f00:1]",
        "0.0.0.0",
        "0",
        "[::]",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "100.64.0.1",
        "①②⑦.⓪.⓪.①",
    ];
    for host in hosts {
        let heard = world.call("http.fetch", json!({"url": format!("http://{host}:{port}/")})).await;
        assert_eq!(heard.how, "failed http.address_refused", "{host}: {}", heard.message);
    }
    for url in [
        "http://good.test@127.0.0.1/",
        "http://user:pw@127.0.0.1/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://",
    ] {
        let heard = world.call("http.fetch", json!({"url": url})).await;
        assert_eq!(heard.how, "denied url.refused", "{url}: {}", heard.message);
    }
    assert_eq!(server.heads(), Vec::<String>::new(), "something got through");
}

#[tokio::test]
async fn adv_048_policy_sees_the_host_that_is_contacted() {
    let only_good = "
version: 1
rules:
  - { id: good, effect: allow, match: { tool: http.fetch, host: example.com } }
";
    let world = ToolsFixture::new(only_good).await;
    for url in [
        "http://exаmple.com/",
        "http://example.com.evil.test/",
        "http://evil.test/example.com",
        "http://evil.test/?@example.com",
    ] {
        let heard = world.call("http.fetch", json!({"url": url})).await;
        assert_eq!(heard.how, "denied policy.no_rule", "{url}");
    }
}

#[tokio::test]
async fn adv_050_every_hop_of_a_redirect_is_judged() {
    let end = Server::fixed(reply("200 OK", "", "the end"));
    let target = end.url("/end");
    let start = Server::new(move |head, stream| {
        let to = match head.split(' ').nth(1).unwrap() {
            "/allowed" => target.clone(),
            "/relative" => "/allowed".to_owned(),
            "/denied" => target.replace("/end", "/forbidden"),
            "/file" => "file:///etc/passwd".to_owned(),
            "/gopher" => "gopher://127.0.0.1/".to_owned(),
            "/metadata" => "http://169.254.169.254/latest/meta-data/".to_owned(),
            "/user" => "http://a:b@127.0.0.1/".to_owned(),
            "/nowhere" => "http://".to_owned(),
            other => other.to_owned(),
        };
        let answer = reply("302 Found", &format!("location: {to}\r\n"), "");
        stream.write_all(answer.as_bytes()).unwrap_or(());
    });
    let policy = "
version: 1
rules:
  - { id: fetch, effect: allow, match: { tool: http.fetch } }
  - { id: forbidden, effect: deny, match: { url_path: /forbidden } }
";
    let world = ToolsFixture::with(policy, network(&[&start, &end])).await;
    let cases = [
        ("/allowed", "ok"),
        ("/relative", "ok"),
        ("/denied", "failed http.redirect_denied"),
        ("/file", "failed http.redirect_denied"),
        ("/gopher", "failed http.redirect_denied"),
        ("/metadata", "failed http.address_refused"),
        ("/user", "failed http.redirect_denied"),
        ("/nowhere", "failed http.redirects"),
        ("/loop", "failed http.redirects"),
    ];
    for (path, how) in cases {
        let heard = world.call("http.fetch", json!({"url": start.url(path)})).await;
        assert_eq!(heard.how, how, "{path}: {}", heard.message);
    }
    assert_eq!(end.heads().len(), 2, "a denied hop was made");
    // The first request and five redirects.
    assert_eq!(start.heads().iter().filter(|head| head.starts_with("GET /loop ")).count(), 6);
    let before = world.recorded().len();
    let page = world.json("http.fetch", json!({"url": start.url("/relative")})).await;
    let intents: Vec<_> = world
        .recorded()
        .drain(before..)
        .filter(|(kind, _)| *kind == EntryKind::Intent)
        .map(|(_, body)| body)
        .collect();
    let hops: Vec<_> =
        intents.iter().map(|intent| intent["targets"][0]["endpoint"]["path"].as_str().unwrap()).collect();
    assert_eq!(hops, ["/relative", "/allowed", "/end"]);
    let depths: Vec<_> = intents.iter().map(|intent| (&intent["depth"], intent["parent"].is_u64())).collect();
    assert_eq!(depths, [(&json!(0), false), (&json!(1), true), (&json!(2), true)]);
    assert_eq!((&page["url"], &page["body"]), (&json!(end.url("/end")), &json!("the end")));
}

#[tokio::test]
async fn credentials_and_bodies_do_not_follow_a_redirect_elsewhere() {
    let end = Server::fixed(reply("200 OK", "", ""));
    let target = end.url("/");
    let start = Server::new(move |head, stream| {
        let status = if head.contains("/keep") { "307 Temporary Redirect" } else { "302 Found" };
        let answer = reply(status, &format!("location: {target}\r\n"), "");
        stream.write_all(answer.as_bytes()).unwrap_or(());
    });
    let world = ToolsFixture::with(ALLOW_ALL, network(&[&start, &end])).await;
    for path in ["/change", "/keep"] {
        let headers = json!({"Authorization": "Bearer x", "X-Api-Key": "y", "Accept": "a/b"});
        let args = json!({"url": start.url(path), "method": "POST", "body": "payload", "headers": headers});
        world.json("http.fetch", args).await;
    }
    let heads = end.heads();
    assert!(heads[0].starts_with("GET / ") && !heads[0].contains("payload"), "{}", heads[0]);
    assert!(heads[1].starts_with("POST / ") && heads[1].ends_with("payload"), "{}", heads[1]);
    for head in heads {
        let lower = head.to_lowercase();
        assert!(
            lower.contains("accept: a/b") && !lower.contains("bearer") && !lower.contains("x-api-key"),
            "{head}"
        );
    }
}

#[tokio::test]
async fn a_broken_answer_is_a_failure_not_a_fault() {
    let answers: [(&str, Vec<u8>); 5] = [
        ("nothing", Vec::new()),
        ("noise", b"\x00\x01\x02\r\n\r\n".to_vec()),
        ("short", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec()),
        ("head", format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(200_000)).into_bytes()),
        ("chunk", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec()),
    ];
    for (what, answer) in answers {
        let server = Server::fixed(answer);
        let world = ToolsFixture::with(ALLOW_ALL, network(&[&server])).await;
        let heard = world.call("http.fetch", json!({"url": server.url("/")})).await;
        assert_eq!(heard.how, "failed http.broken", "{what}: {}", heard.message);
    }
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world = ToolsFixture::with(
        ALLOW_ALL,
        Network { allow_private: vec![unused.to_string()], ..Network::default() },
    )
    .await;
    let heard = world.call("http.fetch", json!({"url": format!("http://{unused}/")})).await;
    assert_eq!(heard.how, "failed http.connect", "{}", heard.message);
}

#[tokio::test]
async fn a_deadline_of_the_kernel_stops_a_fetch() {
    let mute = Server::new(|_, stream| drop(stream.read_to_end(&mut Vec::new())));
    let hasty = "
version: 1
limits: { wall: 200ms }
rules:
  - { id: all, effect: allow, match: { op: tool.run } }
";
    let world = ToolsFixture::with(hasty, network(&[&mute])).await;
    let heard = world.call("http.fetch", json!({"url": mute.url("/")})).await;
    assert_eq!(heard.how, "timed out", "{}", heard.message);
}

/// A server with a certificate for `localhost` that it signed itself; its address and the certificate.
async fn tls_server() -> (SocketAddr, Vec<u8>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], PrivateKeyDer::try_from(key).unwrap())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if stream.read_u8().await.is_ok() {
                stream.write_all(reply("200 OK", "", "over TLS").as_bytes()).await.unwrap_or(());
                stream.shutdown().await.unwrap_or(());
            }
        }
    });
    (address, certificate.to_vec())
}

#[tokio::test]
async fn adv_051_a_certificate_must_be_trusted_and_of_the_judged_host() {
    let (address, certificate) = tls_server().await;
    let port = address.port();
    let allow_private = vec![format!("localhost:{port}"), format!("127.0.0.1:{port}")];
    let trusting = Network { allow_private, roots: vec![certificate], ..Network::default() };
    let careful = Network { roots: Vec::new(), ..trusting.clone() };
    let cases = [
        (&trusting, "localhost", "ok"),
        (&trusting, "127.0.0.1", "failed http.tls"),
        (&careful, "localhost", "failed http.tls"),
    ];
    for (network, host, how) in cases {
        let world = ToolsFixture::with(ALLOW_ALL, network.clone()).await;
        let heard = world.call("http.fetch", json!({"url": format!("https://{host}:{port}/")})).await;
        assert_eq!(heard.how, how, "{host}: {}", heard.message);
    }
}
