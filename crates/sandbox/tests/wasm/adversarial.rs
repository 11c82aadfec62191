//! The hostile cases that a WASM guest can try, by number.

use std::net::TcpListener;
use std::time::Duration;

use regent_kernel::{Op, Reply, Signal, Status};
use regent_testkit::test_kernel::spawn;
use regent_testkit::{ALLOW_ALL, run};
use serde_json::json;

use crate::guests::{CALL, courier, echo, endless, reader, tool};
use crate::kit::{SMALL, WasmFixture};

/// Everything is allowed, but of files only those of the workspace.
const INSIDE: &str = "\
version: 1
rules:
  - { id: everything, effect: allow }
  - { id: outside, effect: deny, match: { path: '/**' } }
";
const FILES: &[&str] =
    &["../outside", "/etc/passwd", "//etc/passwd", "a/../../outside", "..%2foutside/../../outside"];

#[tokio::test]
async fn adv_016_paths_that_lead_out_are_refused() {
    for path in FILES {
        let world = WasmFixture::new(INSIDE, &[("reads", reader("read-file", path))]).await;
        let beside = world.kernel.workspace().parent().unwrap().join("outside");
        std::fs::write(&beside, "a-word-of-the-host").unwrap();
        let said = world.said("reads", json!({})).await;
        assert!(said.as_ref().is_err_and(|why| why.starts_with("tool.failed: ")), "{path}: {said:?}");
    }
}

#[tokio::test]
async fn adv_017_links_that_lead_out_are_refused() {
    let world = WasmFixture::new(
        INSIDE,
        &[("reads", reader("read-file", "link")), ("loops", reader("read-file", "a"))],
    )
    .await;
    let workspace = world.kernel.workspace();
    std::os::unix::fs::symlink("/etc/passwd", workspace.join("link")).unwrap();
    std::os::unix::fs::symlink("b", workspace.join("a")).unwrap();
    std::os::unix::fs::symlink("a", workspace.join("b")).unwrap();
    assert!(world.said("reads", json!({})).await.is_err());
    assert!(world.said("loops", json!({})).await.is_err());
}

#[tokio::test]
async fn adv_020_the_hosts_process_files_are_not_there() {
    for path in ["/proc/self/root/etc/passwd", "/proc/self/environ", "/dev/fd/0", "/proc/self/cwd"] {
        let world = WasmFixture::new(INSIDE, &[("reads", reader("read-file", path))]).await;
        assert!(world.said("reads", json!({})).await.is_err(), "{path}");
    }
}

/// A component in its own words: `run` asks WASI for something and says how much there is.
fn asks_wasi(interface: &str, items: &str, function: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
  (import "{interface}" (instance $wasi {items}))
  (core module $libc
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 2048))
  (core instance $libc (instantiate $libc))
  (core func $asked (canon lower (func $wasi "{function}") (memory $libc "memory") (realloc (func $libc "realloc"))))
  (core module $guest
    (import "libc" "memory" (memory 1))
    (import "wasi" "asked" (func $asked (param i32)))
    (data (i32.const 64) "0123456789")
    (func (export "run") (param i32 i32) (result i32)
      (call $asked (i32.const 1024))
      (i32.store (i32.const 16) (i32.const 0))
      (i32.store (i32.const 20) (i32.add (i32.const 64) (i32.load (i32.const 1028))))
      (i32.store (i32.const 24) (i32.const 1))
      (i32.const 16)))
  (core instance $guest (instantiate $guest
    (with "libc" (instance $libc))
    (with "wasi" (instance (export "asked" (func $asked))))))
  (func (export "run") (param "input" string) (result (result string (error string)))
    (canon lift (core func $guest "run") (memory $libc "memory") (realloc (func $libc "realloc")))))"#
    );
    wat::parse_str(text).unwrap()
}

#[tokio::test]
async fn adv_031_nothing_of_our_environment_arguments_or_folders_is_there() {
    let strings = r#"(export "get-arguments" (func (result (list string))))"#;
    let pairs = r#"(export "get-environment" (func (result (list (tuple string string)))))"#;
    let folders = r#"
        (export "descriptor" (type $descriptor (sub resource)))
        (export "get-directories" (func (result (list (tuple (own $descriptor) string)))))"#;
    let guests = [
        ("arguments", asks_wasi("wasi:cli/environment@0.2.6", strings, "get-arguments")),
        ("environment", asks_wasi("wasi:cli/environment@0.2.0", pairs, "get-environment")),
        ("folders", asks_wasi("wasi:filesystem/preopens@0.2.3", folders, "get-directories")),
    ];
    let world = WasmFixture::new(ALLOW_ALL, &guests).await;
    for (name, _) in &guests {
        assert_eq!(world.said(name, json!({})).await, Ok("0".to_owned()), "{name}");
    }
}

#[tokio::test]
async fn adv_042_an_infinite_loop_runs_out_of_fuel() {
    let world = WasmFixture::new(SMALL, &[("spins", endless("", "", "")), ("same", echo())]).await;
    let outcome = world.outcome("spins", json!({})).await;
    let Status::Failed(failure) = &outcome.status else { panic!("{:?}", outcome.status) };
    assert_eq!(failure.code, "wasm.fuel");
    let ended = outcome.obtained.unwrap()["ended"].clone();
    assert_eq!((&ended["fuel_used"], &ended["status"]), (&json!(300_000_000), &json!("trapped")));
    assert_eq!(world.said("same", json!({})).await, Ok("{}".to_owned()));
}

#[tokio::test]
async fn adv_042_an_infinite_loop_with_much_fuel_meets_the_wall_clock() {
    let policy = "version: 1\nlimits: { wall: 300ms }\nrules:\n  - { id: everything, effect: allow }\n";
    let world = WasmFixture::new(policy, &[("spins", endless("", "", ""))]).await;
    let outcome = world.outcome("spins", json!({})).await;
    assert_eq!(outcome.status, Status::TimedOut);
    // Its end is in the receipt as well.
    assert_eq!(outcome.obtained.unwrap()["ended"]["status"], "stopped");
}

#[tokio::test]
async fn adv_042_memory_grows_up_to_the_limit_and_no_further() {
    let hog = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable";
    let patient = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
        (call $say (i32.const 0) (i32.const 8192) (memory.size))";
    let at_once =
        "(if (i32.eq (memory.grow (i32.const 60000)) (i32.const -1)) (then unreachable)) unreachable";
    let guests =
        [("hog", tool("", "", hog)), ("patient", tool("", "", patient)), ("at-once", tool("", "", at_once))];
    let world = WasmFixture::new(SMALL, &guests).await;
    for name in ["hog", "at-once"] {
        let said = world.said(name, json!({})).await.unwrap_err();
        assert!(said.starts_with("wasm.memory: "), "{name}: {said}");
    }
    // 8 MiB are 128 pages, and a program that takes no for an answer continues.
    let outcome = world.outcome("patient", json!({})).await;
    assert_eq!((outcome.status, outcome.output.bytes().len()), (Status::Ok, 128));
    assert_eq!(outcome.obtained.unwrap()["ended"]["memory_bytes_peak"], 8 << 20);
}

#[tokio::test]
async fn adv_042_a_guest_that_starts_too_large_does_not_start() {
    let large = wat::parse_str(
        r#"(module (memory (export "memory") 1000) (func (export "alloc") (param i32) (result i32) i32.const 0)
            (func (export "run") (param i32 i32) (result i64) i64.const 0))"#,
    );
    let world = WasmFixture::new(SMALL, &[("large", large.unwrap())]).await;
    let said = world.said("large", json!({})).await.unwrap_err();
    assert!(said.starts_with("wasm.memory: "), "{said}");
}

#[tokio::test]
async fn adv_042_recursion_ends_at_the_stack() {
    let deep = r#"(module (memory (export "memory") 1)
        (func $down (param i32) (result i32) (i32.add (call $down (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))
        (func (export "alloc") (param i32) (result i32) i32.const 0)
        (func (export "run") (param i32 i32) (result i64) (i64.extend_i32_u (call $down (i32.const 0)))))"#;
    let world =
        WasmFixture::new(ALLOW_ALL, &[("deep", wat::parse_str(deep).unwrap()), ("same", echo())]).await;
    let said = world.said("deep", json!({})).await.unwrap_err();
    assert!(said.starts_with("wasm.stack: "), "{said}");
    assert_eq!(world.said("same", json!({})).await, Ok("{}".to_owned()));
}

#[tokio::test]
async fn adv_042_tables_stay_small() {
    let grows = r#"(module (memory (export "memory") 1) (table $t 1 funcref)
        (func (export "alloc") (param i32) (result i32) i32.const 0)
        (func (export "run") (param i32 i32) (result i64)
          (if (i32.eq (table.grow $t (ref.null func) (i32.const 100000000)) (i32.const -1)) (then unreachable))
          i64.const 0))"#;
    let world = WasmFixture::new(ALLOW_ALL, &[("grows", wat::parse_str(grows).unwrap())]).await;
    let said = world.said("grows", json!({})).await.unwrap_err();
    assert!(said.starts_with("wasm.table: "), "{said}");
}

#[tokio::test]
async fn adv_042_a_storm_of_host_calls_runs_out_of_fuel_and_all_are_recorded() {
    let body = "(global.set $free (i32.const 8192))
        (call $call (i32.const 64) (i32.const 4) (i32.const 68) (i32.const 2) (i32.const 4096))";
    let log = r#"(import "regent:host/logging@0.1.0" "log" (func $log (param i32 i32 i32)))"#;
    let clock = r#"(import "regent:host/clock@0.1.0" "now-ms" (func $now (result i64)))"#;
    let guests = [
        ("storm", endless(CALL, "ping{}", body)),
        ("chatter", endless(log, "", "(call $log (i32.const 0) (i32.const 0) (i32.const 60000))")),
        ("watch", endless(clock, "", "(drop (call $now))")),
    ];
    let policy = "version: 1\nlimits: { cpu: 1ms }\nrules:\n  - { id: everything, effect: allow }\n";
    let world = WasmFixture::new(policy, &[&guests[..], &[("ping", echo())]].concat()).await;
    for (name, _) in &guests {
        let outcome = world.outcome(name, json!({})).await;
        let Status::Failed(failure) = &outcome.status else { panic!("{name}: {:?}", outcome.status) };
        assert_eq!(failure.code, "wasm.fuel", "{name}");
        let calls = outcome.obtained.unwrap()["ended"]["host_calls"].as_u64().unwrap();
        assert!((1..=1_000).contains(&calls), "{name} made {calls}");
    }
    // Each call of the storm is in the ledger, under the call that it came from: one more was paid for than could be made.
    let nested =
        world.intents().iter().filter(|body| body["tool"]["name"] == "ping" && body["depth"] == 1).count();
    assert!(nested > 100, "{nested}");
}

/// What a guest hands over is copied into our own memory: a little at a time.
#[tokio::test]
async fn adv_042_a_guest_hands_over_only_so_much_at_once() {
    let grow = "(if (i32.eq (memory.grow (i32.const 4096)) (i32.const -1)) (then unreachable))";
    let log = r#"(import "regent:host/logging@0.1.0" "log" (func $log (param i32 i32 i32)))"#;
    let shout = format!(
        "{grow} (call $log (i32.const 0) (i32.const 0) (i32.const 200000000))
        (call $say (i32.const 0) (i32.const 0) (i32.const 0))"
    );
    let large = format!("{grow} (call $say (i32.const 0) (i32.const 8192) (i32.const 200000000))");
    let read = r#"(import "regent:host/filesystem@0.1.0" "read-file" (func $read (param i32 i32 i32)))"#;
    let path = format!(
        "{grow} (call $read (i32.const 8192) (i32.const 200000000) (i32.const 4096)) (call $pass_on)"
    );
    let guests =
        [("shout", tool(log, "", &shout)), ("large", tool("", "", &large)), ("path", tool(read, "", &path))];
    let world = WasmFixture::new(ALLOW_ALL, &guests).await;
    for (name, _) in &guests {
        let said = world.said(name, json!({})).await.unwrap_err();
        assert!(said.starts_with("wasm.trap: too much "), "{name}: {said}");
    }
}

#[tokio::test]
async fn adv_042_handles_are_counted() {
    let text = r#"(component
  (import "wasi:io/streams@0.2.0" (instance $streams (export "output-stream" (type (sub resource)))))
  (alias export $streams "output-stream" (type $stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $stream (type $stream))
    (export "output-stream" (type $named (eq $stream)))
    (export "get-stdout" (func (result (own $named))))))
  (core func $get (canon lower (func $stdout "get-stdout")))
  (core module $guest
    (import "stdout" "get" (func $get (result i32)))
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 2048)
    (func (export "run") (param i32 i32) (result i32) (loop $again (drop (call $get)) (br $again)) unreachable))
  (core instance $guest (instantiate $guest (with "stdout" (instance (export "get" (func $get))))))
  (func (export "run") (param "input" string) (result (result string (error string)))
    (canon lift (core func $guest "run") (memory $guest "memory") (realloc (func $guest "realloc")))))"#;
    let world = WasmFixture::new(ALLOW_ALL, &[("hoards", wat::parse_str(text).unwrap())]).await;
    let said = world.said("hoards", json!({})).await.unwrap_err();
    assert!(said.starts_with("wasm.trap: "), "{said}");
}

#[tokio::test]
async fn adv_046_there_are_no_sockets() {
    let items = r#"
        (export "network" (type $network (sub resource)))
        (export "instance-network" (func (result (own $network))))"#;
    // Returns a handle instead of writing one, so the guest is a little different.
    let text = format!(
        r#"(component
  (import "wasi:sockets/instance-network@0.2.6" (instance $wasi {items}))
  (core func $asked (canon lower (func $wasi "instance-network")))
  (core module $guest
    (import "wasi" "asked" (func $asked (result i32)))
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 2048)
    (func (export "run") (param i32 i32) (result i32) (drop (call $asked)) (i32.const 16)))
  (core instance $guest (instantiate $guest (with "wasi" (instance (export "asked" (func $asked))))))
  (func (export "run") (param "input" string) (result (result string (error string)))
    (canon lift (core func $guest "run") (memory $guest "memory") (realloc (func $guest "realloc")))))"#
    );
    let world = WasmFixture::new(ALLOW_ALL, &[("network", wat::parse_str(text).unwrap())]).await;
    let said = world.said("network", json!({})).await.unwrap_err();
    assert!(said.starts_with("wasm.import: ") && said.contains("instance-network"), "{said}");
}

#[tokio::test]
async fn adv_048_private_addresses_are_refused_to_guests_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let world = WasmFixture::new(ALLOW_ALL, &[("fetch", courier("http.fetch"))]).await;
    for host in ["127.0.0.1", "localhost", "0x7f000001", "127.1", "[::ffff:127.0.0.1]", "169.254.169.254"] {
        let said = world.said("fetch", json!({"url": format!("http://{host}:{port}/")})).await;
        assert!(said.as_ref().is_err_and(|why| why.starts_with("tool.failed: ")), "{host}: {said:?}");
    }
    assert!(listener.accept().is_err(), "a guest reached the host");
}

/// A guest that names a secret is a caller that uses one: a rule that doesn't speak of secrets doesn't allow it.
#[tokio::test]
async fn adv_052_a_guest_can_not_use_a_secret_that_policy_does_not_give() {
    let args = r#"{\"url\":\"http://127.0.0.1:1/\",\"headers\":{\"authorization\":\"secret://api\"}}"#;
    let length = args.replace('\\', "").len();
    let body = format!(
        "(call $call (i32.const 64) (i32.const 10) (i32.const 74) (i32.const {length}) (i32.const 4096)) (call $pass_on)"
    );
    let world =
        WasmFixture::new(ALLOW_ALL, &[("leaks", tool(CALL, &format!("http.fetch{args}"), &body))]).await;
    let said = world.said("leaks", json!({})).await.unwrap_err();
    assert!(said.starts_with("tool.failed: policy."), "{said}");
}

#[tokio::test]
async fn stop_pauses_a_guest_and_cont_lets_it_go_on() {
    let policy = "version: 1\nlimits: { wall: 5m, cpu: 1s }\nrules:\n  - { id: everything, effect: allow }\n";
    let world = WasmFixture::new(policy, &[("spins", endless("", "", ""))]).await;
    let kernel = world.kernel.kernel.clone();
    let agent = spawn(&kernel, "paused").await.unwrap();
    let signal = |signal| Op::Signal { agent: agent.agent_id().unwrap().clone(), signal, group: false };
    let before = world.intents().len();
    let paused = {
        let (kernel, agent) = (kernel.clone(), agent.clone());
        tokio::spawn(async move { kernel.syscall(&agent, run("spins", json!({}))).await })
    };
    while world.intents().len() == before {
        tokio::task::yield_now().await;
    }
    kernel.syscall(&kernel.operator(), signal(Signal::Stop)).await.unwrap();
    // As much work of others comes to its end meanwhile.
    for _ in 0..2 {
        assert_eq!(
            world.said("spins", json!({})).await,
            Err("wasm.fuel: it reached its CPU limit".to_owned())
        );
    }
    assert!(!paused.is_finished(), "it went on although its agent is suspended");
    kernel.syscall(&kernel.operator(), signal(Signal::Cont)).await.unwrap();
    let Reply::Done(outcome) = paused.await.unwrap().unwrap() else { panic!("not done") };
    let Status::Failed(failure) = outcome.status else { panic!("{:?}", outcome.status) };
    assert_eq!(failure.code, "wasm.fuel", "it went on, and used up the rest");
}

/// A guest that is cancelled in the middle of a nested call ends, and the nested call still ends in an outcome.
#[tokio::test]
async fn a_killed_guest_is_gone_and_its_call_is_recorded() {
    let policy = "version: 1\nlimits: { wall: 60s }\nrules:\n  - { id: everything, effect: allow }\n";
    let guests = [("spins", endless("", "", "")), ("same", echo())];
    let world = WasmFixture::new(policy, &guests).await;
    let kernel = &world.kernel.kernel;
    for round in 0..3_u64 {
        let agent = spawn(kernel, &format!("doomed-{round}")).await.unwrap();
        let kill =
            Op::Signal { agent: agent.agent_id().unwrap().clone(), signal: Signal::Kill, group: false };
        let told = async {
            tokio::time::sleep(Duration::from_millis(100 << round)).await;
            kernel.syscall(&kernel.operator(), kill).await
        };
        let (reply, told) = tokio::join!(kernel.syscall(&agent, run("spins", json!({}))), told);
        told.unwrap();
        match reply.unwrap() {
            Reply::Done(outcome) => {
                assert_eq!(outcome.status, Status::Cancelled);
                assert_eq!(world.said("same", json!({})).await, Ok("{}".to_owned()));
                return;
            }
            // The machine is slow: the signal came first.
            Reply::Denied(_) | Reply::Pending(_) => {}
        }
    }
    panic!("the call never began");
}
