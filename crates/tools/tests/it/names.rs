//! Tools are called by their exact names, with arguments that fit.

use serde_json::json;

use crate::world::{ALLOW_ALL, ToolsFixture};

#[tokio::test]
async fn adv_007_arguments_that_do_not_fit_are_denied_before_the_tool() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    world.put("file", "x");
    let cases = [
        ("fs.read", json!({})),
        ("fs.read", json!(null)),
        ("fs.read", json!([])),
        ("fs.read", json!("file")),
        ("fs.read", json!({"path": 1})),
        ("fs.read", json!({"path": ["file"]})),
        ("fs.read", json!({"path": "file", "extra": 1})),
        ("fs.read", json!({"path": "file", "Path": "other"})),
        ("fs.read", json!({"path": "file", "offset": -1})),
        ("fs.read", json!({"path": "file", "offset": 9_007_199_254_740_993_u64})),
        ("fs.read", json!({"path": "file", "offset": 1.5})),
        ("fs.read", json!({"path": "file", "offset": 1e300})),
        ("fs.read", json!({"path": "file", "bytes_max": 0})),
        ("fs.write", json!({"path": "file", "content": "x", "mode": "truncate"})),
        ("fs.write", json!({"path": "file", "content": {"a": 1}})),
        ("fs.edit", json!({"path": "file", "old": "", "new": "x"})),
        ("fs.search", json!({"path": ".", "pattern": "x".repeat(2000)})),
        ("http.fetch", json!({"url": "http://a.test/", "method": "get"})),
        ("http.fetch", json!({"url": "http://a.test/", "method": "CONNECT"})),
        ("http.fetch", json!({"url": "http://a.test/", "redirects_max": 50})),
        ("process.exec", json!({"argv": []})),
        ("process.exec", json!({"argv": "rm -rf"})),
        ("process.exec", json!({"argv": ["true"], "env": {"LD_PRELOAD": "x.so"}})),
        ("process.exec", json!({"argv": ["true"], "env": {"https_proxy": "http://evil"}})),
        ("process.exec", json!({"argv": ["true"], "env": {"A=B": "x"}})),
        ("shell.exec", json!({"command": ""})),
        ("process.list", json!({"pid": 1})),
    ];
    for (tool, args) in cases {
        let heard = world.call(tool, args.clone()).await;
        assert_eq!(heard.how, "denied args.invalid", "{tool} {args}: {}", heard.message);
    }
    assert_eq!(std::fs::read_to_string(world.path("file")).unwrap(), "x");
}

#[tokio::test]
async fn adv_007_what_does_not_fit_is_not_repeated_in_the_ledger() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    let huge = "s3cret".repeat(1 << 19);
    for args in [
        json!({"path": "file", "content": {"a": huge}}),
        json!({"path": "file", "content": "x", huge.as_str(): 1}),
        json!({"path": huge, "content": "x"}),
        json!(huge),
    ] {
        let heard = world.call("fs.write", args).await;
        assert_eq!(heard.how, "denied args.invalid", "{}", heard.message);
        assert!(heard.message.len() < 1000, "{} bytes", heard.message.len());
    }
    for (_, intent) in world.recorded() {
        assert!(intent.to_string().len() < 4000, "{} bytes", intent.to_string().len());
    }
}

#[tokio::test]
async fn c1_a_rule_about_a_name_holds_for_a_link_of_that_name() {
    let world = ToolsFixture::new(regent_policy::DEFAULT_POLICY).await;
    for (link, target) in [
        (".envrc", "config/envrc"),
        (".env", "sec/real"),
        (".vscode", "cfg"),
        (".ssh", "keys"),
        ("CLAUDE.md", "docs/agents.md"),
        ("chain", ".env"),
        (".git/hooks/pre-commit", "../../scripts/pre-commit"),
    ] {
        if target.contains('/') && !target.starts_with("..") {
            world.put(target, "mine");
        }
        std::fs::create_dir_all(world.path(link).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, world.path(link)).unwrap();
    }
    world.put("scripts/pre-commit", "mine");
    world.put(".git/config", "[core]\n\thooksPath = hooks\n");
    world.put("hooks/post-commit", "mine");
    world.put("cfg/tasks.json", "mine");
    world.put("keys/k", "mine");
    let written = |path: &str| ("fs.write", json!({"path": path, "content": "evil"}));
    let read = |path: &str| ("fs.read", json!({"path": path}));
    for ((tool, args), how) in [
        (written(".envrc"), "denied policy.denied"),
        (written(".vscode/tasks.json"), "denied policy.denied"),
        (written("cfg/../.vscode/new.json"), "denied policy.denied"),
        (read(".ssh/k"), "denied policy.denied"),
        (read(".env"), "pending"),
        (read("chain"), "pending"),
        (written("CLAUDE.md"), "pending"),
        // By its own name it is the same file.
        (read("sec/real"), "pending"),
        (written("config/envrc"), "denied policy.denied"),
        (written("cfg/new.json"), "denied policy.denied"),
        (written("docs/agents.md"), "pending"),
        (written("scripts/pre-commit"), "denied policy.denied"),
        (written("hooks/post-commit"), "denied policy.denied"),
        (written("docs/other.md"), "ok"),
    ] {
        let heard = world.call(tool, args.clone()).await;
        assert_eq!(heard.how, how, "{tool} {args}: {}", heard.message);
    }
    let world = ToolsFixture::new(crate::world::ALLOW_INSIDE).await;
    world.put("data/x", "mine");
    std::os::unix::fs::symlink("data", world.path("private")).unwrap();
    let (tool, args) = read("private/x");
    assert_eq!(world.call(tool, args).await.how, "denied policy.denied");
}

#[tokio::test]
async fn adv_008_names_that_look_like_a_tool_are_denied() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    let names = [
        "fs.raed",
        "FS.READ",
        "fs.read ",
        " fs.read",
        "fs.read\0",
        "fs․read",
        "fs.rеad",
        "ｆs.read",
        "fs.re\u{200b}ad",
        "__proto__",
        "constructor",
        "",
        "fs.",
        "fs.read\nfs.write",
        "../fs.read",
        "fs/read",
    ];
    for name in names {
        let heard = world.call(name, json!({"path": "."})).await;
        assert_eq!(heard.how, "denied tool.unknown", "{name:?}");
        assert!(!heard.message.contains(['\n', '\0', '\u{200b}']), "{:?}", heard.message);
    }
    let recorded = world.recorded();
    assert_eq!(recorded.len(), names.len(), "attempts are recorded, and nothing came of them");
    for (_, intent) in recorded {
        assert_eq!(intent["verdict"]["code"], "tool.unknown");
    }
}

#[tokio::test]
async fn a_tool_without_a_driver_here_is_refused() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    let heard = world.call("shell.exec", json!({"command": "true"})).await;
    assert_eq!(heard.how, "denied tier.unavailable");
    let args =
        json!({"argv": ["true"], "env": {"LANG": "C", "MY_FLAG": "1"}, "cwd": ".", "timeout_ms": 1000});
    assert_eq!(world.call("process.exec", args).await.how, "denied tier.unavailable");
}

#[tokio::test]
async fn processes_are_listed() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    let listed = world.json("process.list", json!({})).await;
    let own = u64::from(std::process::id());
    assert!(listed["processes"].as_array().unwrap().iter().any(|process| process["pid"] == own));
}
