//! A secret is used and seen nowhere: not in the ledger, the payloads, the state, what is printed, an error, a child or `/proc`.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::world::{CliFixture, CliOutput, ended, request};

/// With letters that every encoding treats its own way.
pub(crate) const VALUE: &str = "s3cr3t/Value+with\"quotes\\and&more=42";

/// A policy that lets the tools have what they need; secrets are named, as they must be.
const POLICY: &str = "
version: 1
rules:
  - { id: fetch, effect: allow, match: { tool: http.fetch, host: 127.0.0.1, secret: 'api/*' } }
  - { id: programs, effect: allow, match: { tool: [process.exec, shell.exec], secret: 'api/*' } }
  - { id: plain, effect: allow, match: { tool: [process.exec, shell.exec, 'fs.*', http.fetch] } }
  - { id: agents, effect: allow, match: { op: [agent.spawn, agent.exit, agent.wait] } }
";

/// Every form of the value that must not be found, and none so short that chance would have it.
fn forms() -> Vec<String> {
    let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    let core = |before: &str| {
        let text = STANDARD_NO_PAD.encode(format!("{before}{VALUE}"));
        text[before.len().div_ceil(3) * 4..text.len() - 2].to_owned()
    };
    vec![
        VALUE.to_owned(),
        VALUE[..20].to_owned(),
        STANDARD_NO_PAD.encode(VALUE),
        URL_SAFE_NO_PAD.encode(VALUE),
        core("x"),
        core("user:"),
        core("ab"),
        hex.clone(),
        hex.to_uppercase(),
        VALUE.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        VALUE.bytes().map(|byte| format!("%{byte:02x}")).collect(),
        "s3cr3t%2FValue%2Bwith%22quotes".to_owned(),
        "s3cr3t%2fValue%2bwith%22quotes".to_owned(),
        serde_json::to_string(VALUE).unwrap().trim_matches('"').to_owned(),
    ]
}

fn clean(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for form in forms() {
        assert!(!text.contains(&form), "{what} has the secret as `{form}`");
    }
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            files_below(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// Everything on disk below the home: ledger, payloads, state, policy, the vault itself.
fn disk_is_clean(world: &CliFixture) {
    let mut files = Vec::new();
    files_below(&world.home(""), &mut files);
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        clean(&file.display().to_string(), &std::fs::read(&file).unwrap());
    }
}

/// A server that gives back what it was sent, in every form, and reports its requests.
fn echo() -> (u16, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let mut heard = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (head, body) = request(&stream);
            let all = format!("{head}{}", String::from_utf8(body).unwrap());
            if all.starts_with("GET /stop ") {
                return heard;
            }
            let path = all.split(' ').nth(1).unwrap().to_owned();
            let answer = match path.as_str() {
                "/plain" => all.clone(),
                "/base64" => STANDARD.encode(&all),
                "/hex" => all.bytes().map(|byte| format!("{byte:02x}")).collect(),
                "/url" => all.bytes().map(|byte| format!("%{byte:02X}")).collect(),
                "/json" => json!({"echo": json!({"heard": all}).to_string()}).to_string(),
                _other => "nothing".to_owned(),
            };
            heard.push(all);
            // The value in a header as well, and in the reason that an error gives.
            let status = if path == "/error" {
                format!("500 {}", VALUE.replace('\\', ""))
            } else {
                "200 OK".to_owned()
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nx-echo: {VALUE}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                answer.len()
            );
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(answer.as_bytes())).unwrap();
        }
        heard
    });
    (port, serving)
}

#[expect(clippy::disallowed_methods, reason = "a test talks to its server")]
fn stop(port: u16) {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /stop HTTP/1.1\r\n\r\n").unwrap();
}

/// A world with the policy above and the secret in its vault.
pub(crate) fn with_secret(scope: &[&str]) -> CliFixture {
    let world = CliFixture::ready();
    for policy in [world.home(".config/regent/policy.yml"), world.project(".regent/policy.yml")] {
        std::fs::write(policy, POLICY).unwrap();
    }
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    let added = world.run_with(&[&["vault", "add", "api/token"], scope].concat(), &[], VALUE.as_bytes());
    assert_eq!(added.code, 0, "{added:?}");
    assert_no_secret("vault add", &added);
    world
}

fn assert_no_secret(what: &str, ended: &CliOutput) {
    clean(&format!("{what} on stdout"), ended.stdout.as_bytes());
    clean(&format!("{what} on stderr"), ended.stderr.as_bytes());
}

fn call(world: &CliFixture, tool: &str, args: &Value, env: &[(&str, &str)]) -> CliOutput {
    let ended = world.run_with(&["--json", "tool", "call", tool, &args.to_string()], env, b"");
    assert_no_secret(tool, &ended);
    ended
}

#[test]
fn adv_052_a_secret_that_a_server_gives_back_is_seen_nowhere() {
    let world = with_secret(&["--tool", "http.fetch", "--host", "127.0.0.1"]);
    let (port, serving) = echo();
    let private = format!("127.0.0.1:{port}");
    let env = [("REGENT_NETWORK_ALLOW_PRIVATE", private.as_str()), ("RUST_BACKTRACE", "1")];
    for path in ["plain", "base64", "hex", "url", "json", "error"] {
        let args = json!({
            "url": format!("http://127.0.0.1:{port}/{path}"), "method": "POST",
            "headers": {"Authorization": "Bearer secret://api/token"}, "body": "token=secret://api/token&x=1",
        });
        let ended = call(&world, "http.fetch", &args, &env);
        assert_eq!(ended.code, 0, "{path}: {ended:?}");
        assert!(ended.stdout.contains("[secret:api/token]"), "{path}: nothing was masked: {ended:?}");
        assert_eq!(
            ended.json().pointer("/data/label/confidentiality"),
            Some(&json!("secret")),
            "{path}: {ended:?}"
        );
        // Without --json, and as an agent.
        let shown = world.run_with(
            &["tool", "call", "http.fetch", &args.to_string(), "--agent", "worker"],
            &env,
            b"",
        );
        assert_eq!(shown.code, 0, "{shown:?}");
        assert_no_secret(path, &shown);
    }
    stop(port);
    let heard = serving.join().unwrap();
    assert_eq!(heard.len(), 12);
    for request in heard {
        let body = format!("token={VALUE}&x=1");
        assert!(request.contains(&format!("Bearer {VALUE}\r\n")) && request.ends_with(&body), "{request}");
    }
    disk_is_clean(&world);
    // The entries say which secret was used, and by whom.
    let uses: Vec<_> = world
        .entries()
        .into_iter()
        .filter(|entry| entry["body"]["targets"].to_string().contains("api/token"))
        .collect();
    assert_eq!(uses.len(), 12);
    let shown = world.run(&[
        "--json",
        "audit",
        "show",
        &format!("{}/{}", uses[0]["lane"].as_str().unwrap_or("1"), uses[0]["seq"]),
    ]);
    assert_no_secret("audit show", &shown);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn adv_031_a_program_gets_a_secret_on_stdin_and_nowhere_else() {
    let world = with_secret(&[]);
    // What the program can see of itself and its parents, written where we can look, then the value in several forms.
    let line = "cat > /tmp/in; { tr '\\0' '\\n' < /proc/self/environ; tr '\\0' ' ' < /proc/self/cmdline; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; } > seen; \
        cat /tmp/in; cat /tmp/in >&2; base64 /tmp/in; od -An -tx1 -v /tmp/in | tr -d ' \\n'; echo; wc -c < /tmp/in; exit 3";
    let ended = call(&world, "shell.exec", &json!({"command": line, "stdin": "secret://api/token"}), &[]);
    assert!(ended.stdout.contains("[secret:api/token]"), "{ended:?}");
    assert!(ended.stdout.contains(&format!("{}\\n", VALUE.len())), "the program didn't get it: {ended:?}");
    clean("what the program sees", &std::fs::read(world.project("seen")).unwrap());
    disk_is_clean(&world);
    let outcome = world
        .entries()
        .into_iter()
        .find(|entry| entry["kind"] == "outcome" && entry["body"]["op"] == "tool.run")
        .unwrap();
    assert_eq!(outcome["body"]["label"]["confidentiality"], "secret", "{outcome}");
}

#[test]
fn adv_031_our_own_process_shows_nothing_in_proc() {
    let world = with_secret(&[]);
    let line = "cat > /tmp/in; echo up > up; sleep 60";
    let args = json!({"command": line, "stdin": "secret://api/token"}).to_string();
    let mut child = world.start(&["tool", "call", "shell.exec", &args]);
    for _ in 0..600 {
        if world.project("up").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(world.project("up").exists());
    for name in ["environ", "cmdline", "status", "maps"] {
        // Who isn't root can't even look: the process is closed to others.
        if let Ok(bytes) = std::fs::read(format!("/proc/{}/{name}", child.id())) {
            clean(name, &bytes);
        }
    }
    let status = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap_or_default();
    if let Some(core) = status.lines().find(|line| line.starts_with("Max core file size")) {
        assert!(core.split_whitespace().nth(4) == Some("0"), "adv_045: {core}");
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    drop(child.stdin.take());
    assert_no_secret("an interrupted call", &ended(&child.wait_with_output().unwrap()));
    disk_is_clean(&world);
}

#[test]
fn what_fails_says_nothing_either() {
    let world = with_secret(&["--host", "api.example.com"]);
    let url = "http://127.0.0.1:9/";
    let header = |text: &str| json!({"url": url, "headers": {"authorization": text}});
    let cases = [
        (header("secret://api/token"), "secret.out_of_scope"),
        (header("secret://api/missing"), "secret.not_found"),
        (header("secret://other"), "policy.no_rule"),
        (json!({"url": url, "headers": {"x-bad": "secret://api/token"}}), "http.header_refused"),
    ];
    for (args, code) in cases {
        let ended = call(&world, "http.fetch", &args, &[]);
        assert_eq!(ended.error_code(), code, "{ended:?}");
    }
    // A program has no host that could be checked.
    let ended = call(&world, "shell.exec", &json!({"command": "cat", "stdin": "secret://api/token"}), &[]);
    assert_eq!(ended.error_code(), "secret.out_of_scope", "{ended:?}");
    disk_is_clean(&world);
}

#[test]
fn the_vault_on_the_command_line() {
    let world = with_secret(&["--agent", "billing*"]);
    let listed = world.run(&["--json", "vault", "list"]);
    assert_no_secret("vault list", &listed);
    assert_eq!(
        listed.json().pointer("/data/secrets/0/scope/agents/0"),
        Some(&json!("billing*")),
        "{listed:?}"
    );
    assert!(world.run(&["vault", "list"]).stdout.contains("secret://api/token  agents: billing*"));
    let data = world.home(".local/share/regent");
    for name in ["vault.age", "vault.key"] {
        let mode = std::fs::metadata(data.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let cases: [(&[&str], &[u8], &str, i32); 7] = [
        (&["vault", "add", "api/token"], VALUE.as_bytes(), "vault.exists", 6),
        (&["vault", "add", "Bad Name"], VALUE.as_bytes(), "vault.value", 2),
        (&["vault", "add", "pin"], b"1234", "vault.value", 2),
        (&["vault", "add", "x", "--host", "http://a/"], VALUE.as_bytes(), "vault.value", 2),
        (&["vault", "remove", "none"], b"", "vault.none", 5),
        (&["vault", "rotate", "none"], VALUE.as_bytes(), "vault.none", 5),
        (&["vault", "import", "nothing.env"], b"", "io", 1),
    ];
    for (args, stdin, code, exit) in cases {
        let ended = world.run_with(&[&["--json"], args].concat(), &[], stdin);
        assert_eq!((ended.error_code().as_str(), ended.code), (code, exit), "{args:?}: {ended:?}");
        assert_no_secret("a refusal", &ended);
    }
    assert_eq!(world.run_with(&["vault", "add", "pin", "--force"], &[], b"1234").code, 0);
    world.write("some.env", format!("TOKEN='{VALUE}'\nSHORT=1\n"));
    let imported = world.run(&["--json", "vault", "import", "some.env", "--prefix", "app/"]);
    assert_eq!(imported.json().pointer("/data/added"), Some(&json!(["app/token"])), "{imported:?}");
    std::fs::remove_file(world.project("some.env")).unwrap();
    assert_eq!(world.run_with(&["vault", "rotate", "api/token"], &[], b"another value\n").code, 0);
    assert_eq!(world.run(&["vault", "remove", "app/token"]).code, 0);
    assert_eq!(
        world.run(&["--json", "vault", "list"]).json()["data"]["secrets"].as_array().unwrap().len(),
        2
    );
    disk_is_clean(&world);
    // What is open to others is found, and fixed.
    std::fs::set_permissions(data.join("vault.key"), PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(world.run(&["--json", "vault", "list"]).error_code(), "vault.unusable");
    world.run(&["doctor", "--fix"]);
    assert_eq!(world.run(&["vault", "list"]).code, 0);
}

#[test]
fn a_passphrase_comes_from_a_descriptor_or_the_terminal() {
    let world = with_secret(&[]);
    let locked = world.run_with(&["vault", "passphrase"], &[], b"correct horse battery\n");
    assert_eq!(locked.code, 0, "{locked:?}");
    let refused = world.run(&["--json", "vault", "list"]);
    assert_eq!((refused.error_code().as_str(), refused.code), ("vault.locked", 4), "{refused:?}");
    // Descriptor 0 is the one that a test can give without more ado.
    let opened = world.run_with(&["--passphrase-fd", "0", "vault", "list"], &[], b"correct horse battery\n");
    assert_eq!(opened.code, 0, "{opened:?}");
    let wrong =
        world.run_with(&["--json", "--passphrase-fd", "0", "vault", "list"], &[], b"wrong horse battery\n");
    assert_eq!(wrong.error_code(), "vault.locked", "{wrong:?}");
    let (code, shown) = world.at_terminal(&["vault", "list"], "correct horse battery\n");
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("secret://api/token"), "{shown}");
    let failed = call(&world, "shell.exec", &json!({"command": "cat", "stdin": "secret://api/token"}), &[]);
    assert_eq!(failed.error_code(), "secret.locked", "{failed:?}");
}

#[test]
fn payloads_are_encrypted_when_the_settings_say_so() {
    let world = CliFixture::ready();
    world.write("note.txt", "a very particular sentence");
    assert_eq!(world.run(&["config", "set", "ledger.encrypt", "true"]).code, 0);
    let read = world.run(&["tool", "call", "fs.read", "{\"path\":\"note.txt\"}"]);
    assert_eq!(read.code, 0, "{read:?}");
    let mut files = Vec::new();
    files_below(&world.project(".regent/audit"), &mut files);
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("very particular"), "{}", file.display());
    }
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    let outcome = world.entries().into_iter().find(|entry| entry["kind"] == "outcome").unwrap();
    let place = format!("{}/{}", outcome["lane"].as_str().unwrap_or_default(), outcome["seq"]);
    let shown = world.run(&["audit", "show", &place]);
    assert!(shown.stdout.contains("very particular"), "{shown:?}");
}

#[test]
fn a_value_is_masked_from_the_moment_it_is_in_the_vault() {
    let world = CliFixture::ready();
    let say = |value: &str| world.run(&["run", "--", "echo", "a", value, "b"]).stdout;
    let (first, second, third) = ("first-Value-31", "second-Value-32", "third-Value-33");
    assert_eq!(world.run_with(&["vault", "add", "api/a"], &[], first.as_bytes()).code, 0);
    assert_eq!(say(first), "a [secret:api/a] b\n");
    assert_eq!(world.run_with(&["vault", "rotate", "api/a"], &[], second.as_bytes()).code, 0);
    assert_eq!(say(second), "a [secret:api/a] b\n");
    assert_eq!(say(first), "a [secret:api/a] b\n");
    world.write("some.env", format!("TOKEN={third}\n"));
    let imported = world.run(&["--json", "vault", "import", "some.env", "--prefix", "env/"]).json();
    let name = imported["data"]["added"][0].as_str().unwrap().to_owned();
    assert_eq!(say(third), format!("a [secret:{name}] b\n"));
    assert!(!world.run(&["tool", "call", "fs.read", r#"{"path":"some.env"}"#]).stdout.contains(third));
}

#[test]
fn h2_a_file_that_holds_a_revealed_secret_is_masked_in_a_later_process() {
    let world = with_secret(&[]);
    // A program that was given the secret leaves it in a file, as login tools do.
    let args = json!({"command": "cat > stolen.txt", "stdin": "secret://api/token"});
    assert_eq!(call(&world, "shell.exec", &args, &[]).code, 0);
    assert_eq!(std::fs::read_to_string(world.project("stolen.txt")).unwrap(), VALUE);

    let read = |what: &str| {
        let args = json!({"path": "stolen.txt"}).to_string();
        let ended = world.run(&["--json", "tool", "call", "--agent", "worker", "fs.read", &args]);
        assert_eq!(ended.code, 0, "{what}: {ended:?}");
        assert_no_secret(what, &ended);
        assert!(ended.stdout.contains("[secret:api/token]"), "{what}: {ended:?}");
        assert_eq!(ended.json().pointer("/data/label/confidentiality"), Some(&json!("secret")), "{what}");
    };
    read("a later process");
    let copied = call(&world, "shell.exec", &json!({"command": "cat stolen.txt; base64 stolen.txt"}), &[]);
    assert!(copied.stdout.contains("[secret:api/token]"), "{copied:?}");
    // Also while nobody can open the vault.
    let locked = world.run_with(&["vault", "passphrase"], &[], b"a passphrase of mine");
    assert_eq!(locked.code, 0, "{locked:?}");
    read("with a locked vault");
    std::fs::remove_file(world.project("stolen.txt")).unwrap();
    disk_is_clean(&world);
}

#[test]
fn command_lines_are_not_in_clear_where_payloads_are_encrypted() {
    let world = CliFixture::ready();
    assert_eq!(world.run(&["config", "set", "ledger.encrypt", "true"]).code, 0);
    let run = world.run(&["run", "--", "sh", "-c", "echo PATIENT-4711 > /dev/null"]);
    assert_eq!(run.code, 0, "{run:?}");
    let called = world.run(&["tool", "call", "shell.exec", r#"{"command": "true PATIENT-4711"}"#]);
    assert_eq!(called.code, 0, "{called:?}");
    let mut files = Vec::new();
    files_below(&world.project(".regent/audit"), &mut files);
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("PATIENT-4711"), "{}", file.display());
    }
    // The program is named, and the payload has the rest.
    let intents: Vec<Value> = world.entries().into_iter().filter(|entry| entry["kind"] == "intent").collect();
    let intent =
        intents.iter().find(|entry| entry["body"]["targets"].to_string().contains("[encrypted]")).unwrap();
    let place = format!("{}/{}", intent["lane"].as_str().unwrap_or_default(), intent["seq"]);
    let shown = world.run(&["audit", "show", &place]);
    assert!(shown.stdout.contains("PATIENT-4711"), "{shown:?}");
}

#[test]
fn questions_are_not_in_clear_where_payloads_are_encrypted() {
    let world = CliFixture::ready();
    world.write(".env", "KEY=1\n");
    assert_eq!(world.run(&["config", "set", "ledger.encrypt", "true"]).code, 0);
    let asked = world.run(&["tool", "call", "http.fetch", r#"{"url": "https://example.test/PATIENT-4711"}"#]);
    assert_eq!(asked.code, 11, "{asked:?}");
    let mut files = Vec::new();
    files_below(&world.home(".local/state/regent"), &mut files);
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("PATIENT-4711"), "{}", file.display());
    }
    let listed = world.run(&["approve", "list"]);
    assert!(listed.stdout.contains("PATIENT-4711"), "{listed:?}");
}
