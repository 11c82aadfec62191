//! Programs that ask for connections: judged, answered, recorded.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::world::CliFixture;

/// A server that says hello to everyone. It lives as long as the test's process.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            if stream.read(&mut head).is_ok() {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").unwrap_or(());
            }
        }
    });
    port
}

#[test]
fn what_a_program_asks_for_is_asked_of_the_person_and_then_passes() {
    let world = CliFixture::ready();
    let port = server();
    let allowed = format!("127.0.0.1:{port}");
    let env = [("REGENT_NETWORK_ALLOW_PRIVATE", allowed.as_str())];
    let url = format!("http://{allowed}/");
    let args = ["run", "--", "curl", "-sS", url.as_str()];
    let asked = world.run_with(&args, &env, b"");
    assert!(asked.stdout.contains("needs your approval (rule `network`)"), "{asked:?}");
    let id = asked.stdout.split("regent approve ").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    let agreed = world.run(&["approve", id]);
    assert_eq!(agreed.code, 0, "{agreed:?}");
    let done = world.run_with(&args, &env, b"");
    assert_eq!((done.code, done.stdout.as_str()), (0, "hello"), "{done:?}");
    let tools: Vec<_> = world
        .entries()
        .iter()
        .filter_map(|entry| entry["body"]["tool"]["name"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(tools, ["process.exec", "net.request", "process.exec", "net.request"]);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn without_network_nothing_is_even_asked() {
    let world = CliFixture::ready();
    let url = format!("http://127.0.0.1:{}/", server());
    let ended = world.run(&["run", "--no-network", "--", "curl", "-sS", url.as_str()]);
    assert!(ended.code == 7 && ended.stderr.contains("curl: (7)"), "{ended:?}");
    assert!(world.entries().iter().all(|entry| entry["body"]["tool"]["name"] != "net.request"));
}

#[test]
fn without_namespaces_runs_without_network_and_warns() {
    let world = CliFixture::ready();
    let ended = world.run_without_namespaces(&["run", "--", "echo", "hello"], &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "hello\n"), "{ended:?}");
    assert!(ended.stderr.contains("no network for the program"), "{ended:?}");
    let asked = ["tool", "call", "shell.exec", r#"{"command": "true", "network": true}"#];
    let refused = world.run_without_namespaces(&asked, &[]);
    assert!(refused.code != 0 && refused.stderr.contains("no network namespace"), "{refused:?}");
}

#[test]
fn the_doctor_checks_the_egress_proxy() {
    let world = CliFixture::ready();
    let said = world.run(&["--json", "doctor"]).stdout;
    assert!(said.contains("\"egress\"") && said.contains("reach only the egress proxy"), "{said}");
}
