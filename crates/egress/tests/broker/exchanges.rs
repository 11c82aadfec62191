//! Allowed exchanges: real clients, plain requests, verdicts, budgets, ledger entries.

use regent_kernel::{ApprovalAnswer, Budget, BudgetScope, Integrity, Op, Reply, Scope, Status, TicketId};
use regent_ledger::EntryKind;
use serde_json::{Value, json};

use crate::fixture::{BrokerFixture, Setup, reaching};
use crate::servers::{Server, ok};

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_request_is_a_call() {
    let server = Server::new(|_| ok("hello"));
    let at = server.address();
    let world = BrokerFixture::new(Setup { network: reaching(&[&at]), ..Setup::default() }).await;
    let outcome = world.sh(&format!("curl -sS -H 'X-Own: 1' -d 'a=b' http://{at}/path?q=1")).await;
    assert_eq!(outcome.output.bytes(), b"hello", "{outcome:?}");
    assert_eq!(
        outcome.output.label().integrity,
        Integrity::Web,
        "what it got from the network has the network's label"
    );
    let heard = server.requests();
    assert!(
        heard[0].starts_with("POST /path?q=1 HTTP/1.1\r\n") && heard[0].ends_with("\r\n\r\na=b"),
        "{heard:?}"
    );
    assert!(
        heard[0].to_lowercase().contains("x-own: 1") && !heard[0].to_lowercase().contains("proxy"),
        "{heard:?}"
    );

    let recorded = world.recorded().await;
    let [(EntryKind::Intent, intent), (EntryKind::Outcome, ended)] = recorded.as_slice() else {
        panic!("{recorded:#?}")
    };
    assert_eq!(intent["tool"]["name"], "net.request");
    let target = &intent["targets"][0]["endpoint"];
    assert_eq!((&target["host"], &target["port"]), (&json!("127.0.0.1"), &json!(server.port)));
    assert_eq!((&target["method"], &target["path"]), (&json!("POST"), &json!("/path")));
    assert_eq!((&intent["parent"], &ended["status"]), (&json!(outcome.intent.seq), &json!("ok")));
    assert_eq!(ended["label"]["integrity"], "web");
    assert!(ended["spent"]["bytes_out"].as_u64().unwrap() > 20, "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_and_large_bodies_work_in_both_directions() {
    let body = "x".repeat(3 << 20);
    let server = Server::new(move |request| ok(&format!("{} {body}", request.len())));
    let at = server.address();
    let world = BrokerFixture::new(Setup { network: reaching(&[&at]), ..Setup::default() }).await;
    let script = format!(
        "import urllib.request as u; r=u.urlopen('http://{at}/', data=b'y'*2000000).read(); print(len(r), r[:7])"
    );
    let said = world.out(&format!("/usr/bin/python3 -c \"{script}\"")).await;
    assert!(said.starts_with("3145736 b'2000"), "{said}");
    // A body of unannounced length.
    let line = format!(
        "head -c 300000 /dev/zero | tr '\\0' z | curl -sS -T - -H 'Expect:' http://{at}/up | head -c 6"
    );
    let said = world.out(&line).await;
    assert!(said.starts_with("300") || said.starts_with("301"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn serves_several_requests_on_one_connection_and_empty_bodies() {
    let server = Server::new(|request| match request.split(' ').next() {
        Some("DELETE") => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
        Some("HEAD") => {
            b"HTTP/1.1 200 OK\r\ncontent-length: 12345\r\nx-regent-verdict: deny\r\n\r\n".to_vec()
        }
        _other => ok("hello"),
    });
    let at = server.address();
    let world = BrokerFixture::new(Setup { network: reaching(&[&at]), ..Setup::default() }).await;
    assert_eq!(
        world.out(&format!("curl -sS http://{at}/a http://{at}/b http://{at}/c")).await,
        "hellohellohello"
    );
    let said = world.out(&format!("curl -sSI http://{at}/; curl -sSi -X DELETE http://{at}/")).await;
    assert!(said.contains("content-length: 12345") && said.contains("204 No Content"), "{said}");
    assert!(!said.contains("x-regent-verdict"), "only the broker says what Regent says: {said}");
    assert_eq!(world.recorded().await.len(), 10);
}

const SOME: &str = "
version: 1
limits: { wall: 20s, output: 1MiB }
rules:
  - { id: programs, effect: allow, match: { tool: shell.exec } }
  - { id: person, effect: allow, match: { class: operator, op: 'approval.*' } }
  - { id: reads, effect: allow, match: { tool: net.request, method: GET, url_path: '/open/**' } }
  - { id: uploads, effect: deny, match: { tool: net.request, method: [POST, PUT] }, reason: nothing is uploaded, help: ask Ada }
  - { id: others, effect: ask, match: { tool: net.request, url_path: '/asked/**' }, reason: this needs a look }
";

#[tokio::test(flavor = "multi_thread")]
async fn adv_051_judges_method_and_path_and_reports_the_reason() {
    let server = Server::new(|_| ok("hello"));
    let at = server.address();
    let world =
        BrokerFixture::new(Setup { policy: SOME, network: reaching(&[&at]), ..Setup::default() }).await;
    assert_eq!(world.out(&format!("curl -sS http://{at}/open/x")).await, "hello");
    let said = world.out(&format!("curl -sSi -d x http://{at}/open/x")).await;
    assert!(said.starts_with("HTTP/1.1 403") && said.contains("x-regent-verdict: deny"), "{said}");
    assert!(
        said.contains("denied by rule `uploads` (user policy, line 8): nothing is uploaded")
            && said.contains("help: ask Ada"),
        "{said}"
    );
    let said = world.out(&format!("curl -sSi http://{at}/open/../secret")).await;
    assert!(said.contains("403") && said.contains("x-regent-verdict: deny"), "{said}");
    assert_eq!(server.requests().len(), 1);
}

/// Approves a question as soon as an approval counts.
async fn approve(world: &BrokerFixture, id: &str) {
    loop {
        let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 60_000 };
        let answer = Op::Answer { ticket: TicketId(id.to_owned()), with: Vec::new(), answer };
        let reply = world.kernel.syscall(&world.kernel.operator(), answer).await.unwrap();
        let Reply::Done(outcome) = reply else { panic!("{reply:?}") };
        match outcome.status {
            Status::Ok => return,
            Status::Failed(failure) if failure.code == "approval.too_soon" => {
                world.clock.advance_ms(250);
            }
            other @ (Status::Failed(_) | Status::TimedOut | Status::Cancelled | Status::Faulted(_)) => {
                panic!("{other:?}")
            }
        }
    }
}

fn question_in(said: &str) -> &str {
    said.split("regent approve ")
        .nth(1)
        .and_then(|rest| rest.split('`').next())
        .unwrap_or_else(|| panic!("{said}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn m2_an_approval_applies_to_one_body_only() {
    let server = Server::new(|_| ok("hello"));
    let at = server.address();
    let policy = SOME.replace("effect: deny", "effect: ask");
    let world =
        BrokerFixture::new(Setup { policy: &policy, network: reaching(&[&at]), ..Setup::default() }).await;
    let post = |body: &str, cookie: &str| {
        format!("curl -sSi -H 'cookie: {cookie}' -d '{body}' http://{at}/asked/transfer")
    };
    let said = world.out(&post("to=ada&amount=10", "sid=1234")).await;
    approve(&world, question_in(&said)).await;
    // Other bytes of the same length.
    for (body, cookie) in [("to=eve&amount=99", "sid=1234"), ("to=ada&amount=10", "sid=9999")] {
        let said = world.out(&post(body, cookie)).await;
        assert!(said.contains("x-regent-verdict: ask"), "{body} {cookie}: {said}");
    }
    assert!(world.out(&post("to=ada&amount=10", "sid=1234")).await.ends_with("hello"));
    assert_eq!(server.requests().len(), 1);
    // An approval can't be bound to a stream, so it never applies to another attempt.
    let stream = format!("printf abc | curl -sSi -H 'transfer-encoding: chunked' -T - http://{at}/asked/up");
    let first = world.out(&stream).await;
    approve(&world, question_in(&first)).await;
    let second = world.out(&stream).await;
    assert!(second.contains("x-regent-verdict: ask"), "{second}");
    assert_ne!(question_in(&first), question_in(&second));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_request_passes_on_retry() {
    let server = Server::new(|_| ok("hello"));
    let at = server.address();
    let world =
        BrokerFixture::new(Setup { policy: SOME, network: reaching(&[&at]), ..Setup::default() }).await;
    let line = format!("curl -sSi http://{at}/asked/x");
    let said = world.out(&line).await;
    assert!(said.contains("x-regent-verdict: ask") && said.contains("this needs a look"), "{said}");
    approve(&world, question_in(&said)).await;
    let said = world.out(&line).await;
    assert!(said.ends_with("hello"), "{said}");
    let said = world.out(&line).await;
    assert!(said.contains("x-regent-verdict: ask"), "once is once: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sent_bytes_are_charged_to_the_budget() {
    let server = Server::new(|_| ok("hello"));
    let at = server.address();
    let world = BrokerFixture::new(Setup { network: reaching(&[&at]), ..Setup::default() }).await;
    let limits = Budget { bytes_out: Some(1_500_000), ..Budget::default() };
    let set = Op::SetBudget { scope: BudgetScope::Session, limits };
    let reply = world.kernel.syscall(&world.kernel.operator(), set).await.unwrap();
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    let send = |bytes: u32| format!("head -c {bytes} /dev/zero | curl -sS -T - -H 'Expect:' http://{at}/");
    assert_eq!(world.out(&send(1_000_000)).await, "hello");
    let said = world.out(&send(1_000_000)).await;
    // A program that is still sending may see the connection close before it reads the reason.
    assert!(said.contains("budget.exhausted") || said.contains("curl: (55)"), "{said}");
    let recorded = world.recorded().await;
    assert!(recorded.iter().any(|(_, body)| body.to_string().contains("budget.exhausted")), "{recorded:?}");
    let spent: u64 = recorded.iter().filter_map(|(_, body)| body["spent"]["bytes_out"].as_u64()).sum();
    assert!((1_000_000..=1_500_000).contains(&spent), "{spent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_cannot_call_the_broker_tools_directly() {
    let world = BrokerFixture::new(Setup::default()).await;
    for (tool, args) in [
        ("net.connect", json!({"url": "https://example.com/", "method": "CONNECT"})),
        ("net.request", json!({"url": "http://example.com/", "method": "GET", "headers": {}})),
    ] {
        let outcome = world.call(tool, args).await;
        assert!(format!("{:?}", outcome.status).contains("net.no_connection"), "{outcome:?}");
    }
    let Reply::Denied(denial) = world.reply("net.request", json!({"url": "http://a.test/"})).await else {
        panic!("the arguments don't fit");
    };
    assert_eq!(denial.reason.code, "args.invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_network_true_a_sandbox_has_neither_network_nor_proxy_settings() {
    let world = BrokerFixture::new(Setup::default()).await;
    let outcome =
        world.call("shell.exec", json!({"command": "env; curl -sS http://127.0.0.1:3128/ 2>&1"})).await;
    let said = String::from_utf8_lossy(outcome.output.bytes()).into_owned();
    assert!(!said.to_lowercase().contains("proxy=") && said.contains("curl:"), "{said}");
    let text = serde_json::to_string(&outcome.obtained).unwrap();
    let obtained: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(obtained["egress_proxy"], false);
}
