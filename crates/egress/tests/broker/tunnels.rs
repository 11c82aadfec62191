//! Tunnels: the host that they name, and inspection where policy enables it.

use regent_egress::Network;
use regent_ledger::EntryKind;
use serde_json::json;

use crate::fixture::{BrokerFixture, Setup, reaching};
use crate::servers::{Server, ok};

/// Two names of loopback for one port, with the server trusted.
fn network(server: &Server) -> Network {
    let (named, at) = (format!("localhost:{}", server.port), server.address());
    Network { roots: server.certificate.clone().into_iter().collect(), ..reaching(&[&named, &at]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_passes_and_the_ledger_records_its_address() {
    let server = Server::tls(&["localhost", "127.0.0.1"], |_| ok("hello"));
    let port = server.port;
    let world = BrokerFixture::new(Setup { network: network(&server), ..Setup::default() }).await;
    assert_eq!(world.out(&format!("curl -sSk https://localhost:{port}/secret/path")).await, "hello");
    let recorded = world.recorded().await;
    let [(EntryKind::Intent, intent), (EntryKind::Outcome, ended)] = recorded.as_slice() else {
        panic!("{recorded:#?}")
    };
    let target = &intent["targets"][0]["endpoint"];
    assert_eq!(intent["tool"]["name"], "net.connect");
    assert_eq!((&target["host"], &target["port"]), (&json!("localhost"), &json!(port)));
    assert_eq!((&target["method"], &ended["status"]), (&json!("CONNECT"), &json!("ok")));
    let told = world.payload_of(ended);
    assert_eq!((&told["sni"], &told["address"]), (&json!("localhost"), &json!(server.address())));
    assert_eq!(told["bytes_out"], ended["spent"]["bytes_out"]);
    assert!(told["bytes_in"].as_u64().unwrap() > 500, "{told}");
    // An IP address sends no server name, and passes without one.
    assert_eq!(world.out(&format!("curl -sSk https://127.0.0.1:{port}/")).await, "hello");
    // Without -k, the program itself rejects the server's certificate.
    let said = world.out(&format!("curl -sS https://localhost:{port}/ 2>&1")).await;
    assert!(said.contains("certificate"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_051_cuts_a_tunnel_to_another_host() {
    let server = Server::tls(&["localhost"], |_| ok("hello"));
    let port = server.port;
    let world = BrokerFixture::new(Setup { network: network(&server), ..Setup::default() }).await;
    let lines = [
        // A name other than the tunnel's; no name; a name with an IP address; no TLS at all.
        format!("curl -sSk --connect-to other.test:443:localhost:{port} https://other.test/ 2>&1"),
        format!("curl -sSk --connect-to 127.0.0.1:443:localhost:{port} https://127.0.0.1/ 2>&1"),
        format!("curl -sSk --connect-to other.test:443:127.0.0.1:{port} https://other.test/ 2>&1"),
        format!("curl -sSp http://localhost:{port}/ 2>&1"),
    ];
    for line in &lines {
        let said = world.out(line).await;
        assert!(said.starts_with("curl: ("), "{line}: {said}");
    }
    assert_eq!(server.requests(), Vec::<String>::new());
    let recorded = world.recorded().await;
    let codes: Vec<_> =
        recorded.iter().filter_map(|(_, body)| body["status"]["failed"]["code"].as_str()).collect();
    assert_eq!(codes, ["net.tls_refused"; 4], "{recorded:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_051_other_ports_are_judged_by_their_number() {
    let server = Server::tls(&["localhost"], |_| ok("hello"));
    let policy = "
version: 1
rules:
  - { id: programs, effect: allow, match: { tool: shell.exec } }
  - { id: web, effect: allow, match: { tool: net.connect, host: localhost, port: 443 } }
";
    let world = BrokerFixture::new(Setup { policy, network: network(&server), ..Setup::default() }).await;
    let said = world.out(&format!("curl -sSkv https://localhost:{}/ 2>&1", server.port)).await;
    assert!(said.contains("403") && said.to_lowercase().contains("x-regent-verdict: deny"), "{said}");
    assert_eq!(server.requests(), Vec::<String>::new());
}

const INSPECT: &str = "
version: 1
limits: { wall: 20s, output: 1MiB }
rules:
  - { id: programs, effect: allow, match: { tool: shell.exec } }
  - { id: look-inside, effect: allow, match: { tool: net.connect, host: localhost }, set: { /inspect: { value: true } } }
  - { id: reads, effect: allow, match: { tool: net.request, host: localhost, method: GET, url_path: '/open/**' } }
";

#[tokio::test(flavor = "multi_thread")]
async fn adv_051_a_tunnel_that_policy_opens_is_judged_request_by_request() {
    let server = Server::tls(&["localhost"], |_| ok("hello"));
    let port = server.port;
    let world =
        BrokerFixture::new(Setup { policy: INSPECT, network: network(&server), ..Setup::default() }).await;
    // Without -k: the sandbox trusts the session's authority.
    let said = world
        .out(&format!("curl -sS https://localhost:{port}/open/a https://localhost:{port}/open/b 2>&1"))
        .await;
    assert_eq!(said, "hellohello");
    for line in [
        format!("curl -sSi https://localhost:{port}/closed"),
        format!("curl -sSi -d x https://localhost:{port}/open/a"),
        format!("curl -sSi -X DELETE https://localhost:{port}/open/a"),
    ] {
        let said = world.out(&line).await;
        assert!(said.contains("403 Forbidden") && said.contains("x-regent-verdict: deny"), "{line}: {said}");
    }
    // Another host in the header than in the tunnel.
    let said = world.out(&format!("curl -sSi -H 'Host: other.test' https://localhost:{port}/open/a")).await;
    assert!(said.contains("400 Bad Request") && said.contains("different hosts"), "{said}");
    assert_eq!(server.requests().len(), 2);
    let recorded = world.recorded().await;
    let tools: Vec<_> = recorded.iter().filter_map(|(_, body)| body["tool"]["name"].as_str()).collect();
    assert_eq!(tools[..3], ["net.connect", "net.request", "net.request"], "both requests of one tunnel");
    let target = &recorded[1].1["targets"][0]["endpoint"];
    assert_eq!((&target["scheme"], &target["path"]), (&json!("https"), &json!("/open/a")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inspected_tunnel_still_verifies_the_real_server() {
    let server = Server::tls(&["localhost"], |_| ok("hello"));
    let port = server.port;
    let network = Network { roots: Vec::new(), ..network(&server) };
    let world = BrokerFixture::new(Setup { policy: INSPECT, network, ..Setup::default() }).await;
    let said = world.out(&format!("curl -sSi https://localhost:{port}/open/a")).await;
    assert!(said.contains("502 Bad Gateway") && said.contains("net.tls"), "{said}");
    assert_eq!(server.requests(), Vec::<String>::new());
}
