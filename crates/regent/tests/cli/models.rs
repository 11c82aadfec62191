//! Models as people set them up and try them.

use std::io::Write;
use std::net::TcpListener;

use serde_json::json;

use crate::world::{CliFixture, request};

fn set_up(world: &CliFixture, more: &str) {
    let script = world.home("turns.json");
    std::fs::write(&script, r#"{"turns":[{"text":"ready"}]}"#).unwrap();
    let text = format!(
        "[models.play]\nkind = 'scripted'\nfile = '{}'\nmodels = ['m']\n\n[models.far]\nkind = 'anthropic'\nkey = 'secret://a'\nmodels = ['claude-sonnet-5-5', 'x']\n{more}",
        script.display()
    );
    std::fs::write(world.home(".config/regent/config.toml"), text).unwrap();
}

#[test]
fn models_are_listed_chosen_and_tested_under_policy_and_ledger() {
    let world = CliFixture::ready();
    assert!(world.run(&["model", "list"]).stdout.contains("No models are set up"));
    assert_eq!(world.run(&["--json", "model", "test"]).error_code(), "model.none");
    set_up(&world, "");
    let listed = world.run(&["--json", "model", "list"]).json();
    let models: Vec<(&str, bool, bool)> = listed["data"]["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (one["model"].as_str().unwrap(), one["remote"].is_string(), one["priced"].as_bool().unwrap())
        })
        .collect();
    assert_eq!(
        models,
        [("far/claude-sonnet-5-5", true, true), ("far/x", true, false), ("play/m", false, true)]
    );
    let tested = world.run(&["model", "test", "auto"]);
    assert_eq!(tested.code, 0, "{tested:?}");
    assert!(tested.stdout.starts_with("play/m answered \"ready\""), "{tested:?}");
    let unknown = world.run(&["--json", "model", "why", "zz"]);
    assert_eq!((unknown.code, unknown.error_code().as_str()), (5, "model.class"), "{unknown:?}");
    let why = world.run(&["model", "why"]);
    assert!(why.stdout.starts_with("play/m") && why.stdout.contains("on this machine"), "{why:?}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    let tail = world.run(&["audit", "tail"]);
    assert!(tail.stdout.contains("model.infer"), "{tail:?}");
}

#[test]
fn limits_are_listed_and_a_file_beside_the_settings_updates_them() {
    let world = CliFixture::ready();
    set_up(&world, "capabilities.x = { window_tokens = 50000 }\n");
    let limits = |name: &str| {
        let listed = world.run(&["--json", "model", "list"]).json();
        let models = listed["data"]["models"].as_array().unwrap().clone();
        let one = models.into_iter().find(|one| one["model"] == name).unwrap();
        let capability = &one["capability"];
        (
            capability["window_tokens"].clone(),
            capability["answer_tokens"].clone(),
            capability["source"].clone(),
        )
    };
    assert_eq!(limits("far/claude-sonnet-5-5"), (json!(1_000_000), json!(128_000), json!("table")));
    assert_eq!(limits("far/x"), (json!(50_000), json!(4_096), json!("settings")));
    assert_eq!(limits("play/m"), (json!(32_768), json!(4_096), json!("default")));
    let shown = world.run(&["model", "list"]).stdout;
    assert!(shown.contains("1000k window, 128k answers, thinks"), "{shown}");
    assert!(shown.contains("32k window, 4096 answers (assumed)"), "{shown}");
    let file = world.home(".config/regent/capabilities.toml");
    let table = "date = \"2999-01-01\"\nnote = \"mine\"\n\n[model.\"anthropic/claude-sonnet-5-5\"]\nwindow_tokens = 64000\n";
    std::fs::write(&file, table).unwrap();
    assert_eq!(limits("far/claude-sonnet-5-5").0, json!(64_000));
    std::fs::write(&file, table.replace("window_tokens", "window")).unwrap();
    let ended = world.run(&["--json", "model", "list"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (3, "config.invalid"), "{ended:?}");
    assert!(ended.stdout.contains("capabilities.toml`, line 5"), "{ended:?}");
}

#[test]
fn mistakes_are_named_with_their_line_and_a_project_has_no_say() {
    let world = CliFixture::ready();
    set_up(&world, "colour = 'red'\n");
    let ended = world.run(&["--json", "model", "list"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (3, "config.invalid"), "{ended:?}");
    assert!(ended.stdout.contains("colour"), "{ended:?}");
    set_up(&world, "");
    let unknown = world.run(&["--json", "model", "test", "nobody/m"]);
    assert_eq!((unknown.code, unknown.error_code().as_str()), (5, "model.unknown"), "{unknown:?}");
    let denied = world.run(&["--json", "model", "test", "far"]);
    assert_eq!(denied.error_code(), "secret.not_found", "{denied:?}");
    world.write(".regent/config.toml", "[models.mine]\nkind = 'ollama'\nurl = 'http://evil.example'\n");
    let ended = world.run(&["--json", "trust", "--yes"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (3, "config.invalid"), "{ended:?}");
    assert!(ended.stdout.contains("can't be set by a project"), "{ended:?}");
}

/// A model server on this machine that answers requests with the right key, and the requests that it received.
fn server(key: &'static str) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let mut heads = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (head, _) = request(&stream);
            if head.starts_with("GET /stop ") {
                return heads;
            }
            let call = json!({"index": 0, "id": "c1", "type": "function",
                "function": {"name": "task_finish", "arguments": json!({"answer": "known here"}).to_string()}});
            let choice = json!({"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": null});
            let last = json!({"index": 0, "delta": {}, "finish_reason": "tool_calls"});
            let mut body = String::new();
            for choice in [choice, last] {
                body.push_str(&format!(
                    "data: {}\n\n",
                    json!({"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})
                ));
            }
            body.push_str("data: [DONE]\n\n");
            let is_known = head
                .to_ascii_lowercase()
                .contains(&format!("authorization: bearer {}", key.to_ascii_lowercase()));
            let status = if is_known { "200 OK" } else { "401 Unauthorized" };
            heads.push(head);
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).unwrap();
        }
        heads
    });
    (url, serving)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test stops its server")]
fn a_providers_key_comes_from_the_vault_and_is_seen_nowhere_else() {
    const KEY: &str = "sk-Test-0123456789abcdef";
    let world = CliFixture::ready();
    let (url, serving) = server(KEY);
    let settings = format!(
        "[models.lab]\nkind = 'compatible'\nurl = '{url}'\nkey = 'secret://lab/key'\nmodels = ['m']\n"
    );
    std::fs::write(world.home(".config/regent/config.toml"), settings).unwrap();
    let without = world.run(&["--json", "task", "run", "say it", "--tools", "fs.read"]);
    assert_ne!(without.code, 0, "{without:?}");
    assert_eq!(world.run_with(&["vault", "add", "lab/key"], &[], KEY.as_bytes()).code, 0);
    let ran = world.run(&["task", "run", "say it", "--tools", "fs.read"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "known here\n"), "{ran:?}");
    let address = url.trim_start_matches("http://").trim_end_matches("/v1");
    std::net::TcpStream::connect(address).unwrap().write_all(b"GET /stop HTTP/1.1\r\n\r\n").unwrap();
    let heads = serving.join().unwrap();
    assert!(heads.iter().any(|head| head.contains(&format!("Bearer {KEY}"))), "{heads:?}");
    for entry in world.entries() {
        assert!(!entry.to_string().contains(KEY), "{entry}");
    }
    assert!(!ran.stderr.contains(KEY));
}

/// A server that refuses forced calls and any temperature, as the newest models do, and keeps what it was asked.
fn strict_server() -> (String, std::thread::JoinHandle<Vec<serde_json::Value>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let mut bodies = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (head, body) = request(&stream);
            if head.starts_with("GET /stop ") {
                return bodies;
            }
            let asked: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let is_refused = asked.get("temperature").is_some() || asked.get("tool_choice").is_some();
            let error =
                json!({"error": {"message": "the parameters temperature and tool_choice are not supported"}});
            let call = json!({"index": 0, "id": "c1", "type": "function",
                "function": {"name": "task_finish", "arguments": json!({"answer": "ready"}).to_string()}});
            let choice = json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"});
            let (status, body) = match is_refused {
                true => ("400 Bad Request", error.to_string()),
                false => ("200 OK", format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [choice]}))),
            };
            bodies.push(asked);
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
        bodies
    });
    (url, serving)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test stops its server")]
fn d1_model_test_sends_what_a_task_sends() {
    let world = CliFixture::ready();
    let (url, serving) = strict_server();
    let settings = format!("[models.lab]\nkind = 'compatible'\nurl = '{url}'\nmodels = ['m']\n");
    std::fs::write(world.home(".config/regent/config.toml"), settings).unwrap();
    let tested = world.run(&["model", "test", "lab"]);
    assert!(tested.code == 0 && tested.stdout.starts_with("lab/m answered \"ready\""), "{tested:?}");
    let ran = world.run(&["task", "run", "be ready", "--model", "lab"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "ready\n"), "{ran:?}");
    let address = url.trim_start_matches("http://").trim_end_matches("/v1");
    std::net::TcpStream::connect(address).unwrap().write_all(b"GET /stop HTTP/1.1\r\n\r\n").unwrap();
    let asked = serving.join().unwrap();
    assert_eq!(asked.len(), 2, "neither was refused");
    let without_messages = |body: &serde_json::Value| {
        let mut body = body.clone();
        body.as_object_mut().unwrap().remove("messages");
        body
    };
    assert_eq!(without_messages(&asked[0]), without_messages(&asked[1]), "the same tools and parameters");
    assert!(asked[0]["tools"].as_array().unwrap().len() > 5);
    assert_eq!(asked[0]["messages"][0], asked[1]["messages"][0], "the same rules");
}
