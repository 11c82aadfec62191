//! The file tools: what they do, and what they refuse.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use regent_kernel::{AgentId, Confidentiality, Op, Reply, ToolCall};
use regent_ledger::EntryKind;
use rustix::fs::{CWD, RenameFlags};
use serde_json::{Value, json};

use crate::world::{ALLOW_ALL, ALLOW_INSIDE, ToolsFixture};

#[tokio::test]
async fn a_file_is_written_read_edited_and_described() {
    let world = ToolsFixture::new(ALLOW_INSIDE).await;
    let written = world.json("fs.write", json!({"path": "a/b.txt", "content": "one\ntwo\n"})).await;
    assert_eq!(written, json!({"path": "a/b.txt", "created": true, "bytes": 8}));
    let heard = world.call("fs.write", json!({"path": "a/b.txt", "content": "x", "mode": "create"})).await;
    assert_eq!(heard.how, "failed fs.exists");
    world.json("fs.write", json!({"path": "./a/../a/b.txt", "content": "three\n", "mode": "append"})).await;
    let edited = world.json("fs.edit", json!({"path": "a/b.txt", "old": "two", "new": "2"})).await;
    assert_eq!(
        edited,
        json!({"path": "a/b.txt", "replaced": 1, "lines": [2], "diff": "@@ line 2 @@\n-two\n+2\n"})
    );
    let heard = world.call("fs.read", json!({"path": "a/b.txt"})).await;
    assert_eq!((heard.how.as_str(), heard.output), ("ok", b"one\n2\nthree\n".to_vec()));
    let stat = world.json("fs.stat", json!({"path": "a/b.txt"})).await;
    assert_eq!((&stat["kind"], &stat["bytes"]), (&json!("file"), &json!(12)));
    let failures = [
        ("fs.read", json!({"path": "none"}), "failed fs.not_found"),
        ("fs.read", json!({"path": "a"}), "failed fs.is_folder"),
        ("fs.list", json!({"path": "a/b.txt"}), "failed fs.not_folder"),
        ("fs.stat", json!({"path": "none"}), "failed fs.not_found"),
        ("fs.edit", json!({"path": "a/b.txt", "old": "e", "new": ""}), "failed fs.ambiguous"),
        ("fs.edit", json!({"path": "a/b.txt", "old": "two", "new": ""}), "failed fs.no_match"),
        ("fs.search", json!({"path": ".", "pattern": "("}), "failed search.pattern"),
        ("fs.search", json!({"path": ".", "pattern": r"(a)\1"}), "failed search.pattern"),
        ("fs.search", json!({"path": ".", "pattern": "(((a{100}){100}){100})"}), "failed search.pattern"),
        ("fs.search", json!({"path": ".", "pattern": "a", "glob": "[" }), "failed search.glob"),
    ];
    for (tool, args, how) in failures {
        assert_eq!(world.call(tool, args.clone()).await.how, how, "{tool} {args}");
    }
}

#[tokio::test]
async fn a_long_file_is_read_in_parts_and_says_so() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    world.put("long", "é".repeat(1000));
    let mut text = String::new();
    let mut offset = 0;
    loop {
        let heard = world.call("fs.read", json!({"path": "long", "offset": offset, "bytes_max": 333})).await;
        let part = String::from_utf8(heard.output).unwrap();
        let Some((content, mark)) = part.split_once("\n[cut at byte ") else {
            text.push_str(&part);
            break;
        };
        text.push_str(content);
        let next = mark.split(' ').next().unwrap().parse().unwrap();
        assert!(next > offset && mark.contains("of 2000"), "{mark}");
        offset = next;
    }
    assert_eq!(text, "é".repeat(1000));
    world.put("binary", [0xff, 0, 1]);
    let binary = world.json("fs.read", json!({"path": "binary"})).await;
    assert_eq!(binary, json!({"base64": "/wAB", "offset": 0, "bytes": 3, "next_offset": null}));
}

#[tokio::test]
async fn bytes_go_in_and_out_exactly_as_they_are() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    let write = json!({"path": "blob", "content": "/wAB", "encoding": "base64"});
    assert_eq!(world.json("fs.write", write).await["bytes"], 3);
    // Text that looks like the tool's own words is still only content.
    for (name, content) in [("blob", vec![0xff, 0, 1]), ("text", b"[cut at byte 1 of 2]".to_vec())] {
        world.put(name, &content);
        let read = world.json("fs.read", json!({"path": name, "encoding": "base64"})).await;
        let (base64, bytes) = (read["base64"].as_str().unwrap(), read["bytes"].as_u64().unwrap());
        assert_eq!(bytes, content.len() as u64);
        let again = json!({"path": "copy", "content": base64, "encoding": "base64"});
        assert_eq!(world.call("fs.write", again).await.how, "ok");
        assert_eq!(std::fs::read(world.path("copy")).unwrap(), content, "{name}");
    }
    let wrong = json!({"path": "blob", "content": "no base64!", "encoding": "base64"});
    assert_eq!(world.call("fs.write", wrong).await.how, "failed args.invalid");
}

#[tokio::test]
async fn output_stays_within_what_policy_allows() {
    let small = "
version: 1
limits: { output: 4KiB }
rules:
  - { id: all, effect: allow, match: { op: tool.run } }
";
    let world = ToolsFixture::new(small).await;
    for i in 0..200 {
        world.put(&format!("many/file-with-a-long-name-{i}"), "needle\n".repeat(20));
    }
    world.put("text", "x".repeat(100_000));
    world.put("bytes", vec![0xff; 100_000]);
    let calls = [
        ("fs.read", json!({"path": "text"})),
        ("fs.read", json!({"path": "bytes"})),
        ("fs.list", json!({"path": "many"})),
        ("fs.search", json!({"path": "many", "pattern": "needle"})),
        ("process.list", json!({})),
    ];
    for (tool, args) in calls {
        let heard = world.call(tool, args.clone()).await;
        assert_eq!(heard.how, "ok", "{tool}: {}", heard.message);
        assert!(heard.output.len() <= 4096, "{tool} {args} gave {} bytes", heard.output.len());
    }
    let listed = world.json("fs.list", json!({"path": "many"})).await;
    assert_eq!(listed["more"], true);
}

#[tokio::test]
async fn lists_and_searches_go_down_but_leave_out_what_policy_denies() {
    let world = ToolsFixture::new(ALLOW_INSIDE).await;
    world.put("src/a.rs", "fn needle() {}\nfn other() {}\n");
    world.put("src/deep/b.rs", "// needle\r\n");
    world.put("src/c.txt", "needle");
    world.put("private/key", "needle");
    world.put(".env", "needle=1");
    world.put(".git/config", "needle");
    world.put("binary", b"needle\0needle");
    symlink(world.path("private"), world.path("src/way")).unwrap();
    let paths = |listed: &Value| -> Vec<String> {
        listed.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
    };
    let listed = world.json("fs.list", json!({"path": ".", "recursive": true})).await;
    let expected = [
        ".env",
        ".git",
        "binary",
        "private",
        "src",
        "src/a.rs",
        "src/c.txt",
        "src/deep",
        "src/way",
        "src/deep/b.rs",
    ];
    assert_eq!(paths(&listed["entries"]), expected);
    assert_eq!(listed["left_out"], 1);
    let found = world.json("fs.search", json!({"path": ".", "pattern": r"\bneedle\b"})).await;
    assert_eq!(paths(&found["matches"]), ["src/a.rs", "src/c.txt", "src/deep/b.rs"]);
    assert_eq!(found["matches"][0], json!({"path": "src/a.rs", "line": 1, "text": "fn needle() {}"}));
    assert_eq!(found["matches"][2]["text"], "// needle");
    // The folder `private`, and the file `.env`, which needs an approval.
    assert_eq!((&found["left_out"], &found["skipped"]), (&json!(2), &json!(1)));
    let found = world
        .json("fs.search", json!({"path": ".", "pattern": "needle", "glob": "*.rs", "matches_max": 1}))
        .await;
    assert_eq!((paths(&found["matches"]).len(), &found["more"]), (1, &json!(true)));
    assert_eq!(world.call("fs.list", json!({"path": "src/way"})).await.how, "denied policy.denied");
    assert_eq!(world.call("fs.search", json!({"path": ".env", "pattern": "x"})).await.how, "pending");
}

#[tokio::test]
async fn adv_009_odd_names_are_listed_escaped_and_can_not_be_asked_for() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    let name = std::ffi::OsStr::from_bytes(b"a\nb\xff\x1b[2J");
    std::fs::write(world.path("").join(name), "needle").unwrap();
    let listed = world.json("fs.list", json!({"path": "."})).await;
    assert_eq!(
        listed["entries"],
        json!([{"path": "a\\u{a}b\\xff\\u{1b}[2J", "kind": "file", "bytes": 6, "escaped": true}])
    );
    let found = world.json("fs.search", json!({"path": ".", "pattern": "needle"})).await;
    assert_eq!(found["matches"], json!([]));
    for path in ["a\nb", "a\0b", &"x".repeat(4096), &"d".repeat(256)] {
        let heard = world.call("fs.read", json!({"path": path})).await;
        assert!(heard.how.starts_with("denied "), "{path:?}: {}", heard.how);
        assert!(!heard.message.contains(['\n', '\0']), "{:?}", heard.message);
    }
}

#[tokio::test]
async fn adv_016_outside_is_denied_however_it_is_spelt() {
    let world = ToolsFixture::new(ALLOW_INSIDE).await;
    let secret = world.beside("outside/secret");
    let root = world.kernel.workspace().root().to_str().unwrap().to_owned();
    let spellings = [
        "../outside/secret".to_owned(),
        "./../outside/secret".to_owned(),
        "a/../../outside/secret".to_owned(),
        secret.clone(),
        format!("/{secret}"),
        format!("{root}/../outside/secret"),
        format!("{root}/./.././outside//secret"),
        "../../../../../../../../../../../../etc/passwd".to_owned(),
        "/etc/passwd".to_owned(),
        "//etc/passwd".to_owned(),
        "/./etc/passwd".to_owned(),
    ];
    std::fs::create_dir(world.path("a")).unwrap();
    for path in spellings {
        for (tool, args) in [
            ("fs.read", json!({"path": path})),
            ("fs.write", json!({"path": path, "content": "x"})),
            ("fs.edit", json!({"path": path, "old": "secret", "new": "x"})),
            ("fs.list", json!({"path": path})),
            ("fs.stat", json!({"path": path})),
            ("fs.search", json!({"path": path, "pattern": "."})),
        ] {
            let heard = world.call(tool, args).await;
            assert_eq!(heard.how, "denied policy.no_rule", "{tool} {path}: {}", heard.message);
        }
    }
    // These are names like any other; nothing of that name is here.
    for path in [
        "%2e%2e/outside/secret",
        "..%2foutside%2fsecret",
        "..\\outside\\secret",
        "\u{ff0e}\u{ff0e}/outside/secret",
    ] {
        assert_eq!(world.call("fs.read", json!({"path": path})).await.how, "failed fs.not_found", "{path}");
    }
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "the secret");
}

#[tokio::test]
async fn adv_017_links_are_judged_by_where_they_lead() {
    let world = ToolsFixture::new(ALLOW_INSIDE).await;
    world.put("private/key", "x");
    world.put("real", "fine");
    symlink("/etc/passwd", world.path("passwd")).unwrap();
    symlink("../outside", world.path("out")).unwrap();
    symlink("private", world.path("public")).unwrap();
    symlink("real", world.path("alias")).unwrap();
    symlink("round", world.path("round")).unwrap();
    for i in 0..45 {
        symlink(format!("chain-{}", i + 1), world.path(&format!("chain-{i}"))).unwrap();
    }
    let cases = [
        ("passwd", "denied policy.no_rule"),
        ("out/secret", "denied policy.no_rule"),
        ("public/key", "denied policy.denied"),
        ("alias", "ok"),
        ("round", "denied path.refused"),
        ("chain-0", "denied path.refused"),
    ];
    for (path, how) in cases {
        let heard = world.call("fs.read", json!({"path": path})).await;
        assert_eq!(heard.how, how, "{path}: {}", heard.message);
    }
    let written = world.json("fs.write", json!({"path": "alias", "content": "new"})).await;
    assert_eq!(written["path"], "real");
    assert!(world.path("alias").symlink_metadata().unwrap().is_symlink());
}

/// Ends the other thread also when an assertion fails; a scope would wait for it for ever.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adv_018_a_link_swapped_while_calls_run_lets_nothing_out() {
    const ATTEMPTS: u32 = 3000;
    let world = ToolsFixture::new(ALLOW_INSIDE).await;
    world.put("swap/secret", "harmless");
    symlink(world.beside("outside"), world.path("evil")).unwrap();
    let stop = AtomicBool::new(false);
    let (a, b) = (world.path("swap"), world.path("evil"));
    let (mut done, mut refused) = (0, 0);
    let swap = || {
        while !stop.load(Ordering::Relaxed) {
            rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
            std::thread::yield_now();
        }
    };
    // The calls run on this thread's runtime while the other thread swaps; the scope joins it.
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            scope.spawn(swap);
            let _ending = Ending(&stop);
            for attempt in 0..ATTEMPTS {
                let (tool, args) = match attempt % 8 {
                    0 => ("fs.write", json!({"path": "swap/new", "content": "x"})),
                    1 => ("fs.edit", json!({"path": "swap/secret", "old": "secret", "new": "x"})),
                    2 => ("fs.search", json!({"path": "swap", "pattern": "the secret"})),
                    _read => ("fs.read", json!({"path": "swap/secret"})),
                };
                let heard = runtime.block_on(world.call(tool, args));
                let text = String::from_utf8_lossy(&heard.output).into_owned();
                assert!(!text.contains("the secret"), "attempt {attempt} got out: {text}");
                if heard.how == "ok" { done += 1 } else { refused += 1 }
            }
        });
    });
    assert!(done > 0 && refused > 0, "the race was never on: {done} done, {refused} refused");
    assert_eq!(std::fs::read_to_string(world.beside("outside/secret")).unwrap(), "the secret");
    assert_eq!(
        std::fs::read_dir(world.beside("outside")).unwrap().count(),
        1,
        "something was written outside"
    );
}

#[tokio::test]
async fn adv_019_a_planted_link_does_not_move_a_write_of_ours() {
    let world = ToolsFixture::new(ALLOW_INSIDE).await;
    symlink(world.beside("outside/planted"), world.path("report")).unwrap();
    symlink(world.beside("outside"), world.path("reports")).unwrap();
    for path in ["report", "reports/new", "reports/deep/new"] {
        for mode in ["create", "replace", "append"] {
            let heard = world.call("fs.write", json!({"path": path, "content": "x", "mode": mode})).await;
            assert_eq!(heard.how, "denied policy.no_rule", "{path} {mode}");
        }
    }
    assert_eq!(std::fs::read_dir(world.beside("outside")).unwrap().count(), 1);
}

#[tokio::test]
async fn adv_020_doors_out_of_the_workspace_are_refused() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    std::fs::hard_link(world.beside("outside/secret"), world.path("twin")).unwrap();
    for (tool, args) in [
        ("fs.read", json!({"path": "twin"})),
        ("fs.write", json!({"path": "twin", "content": "x"})),
        ("fs.write", json!({"path": "twin", "content": "x", "mode": "append"})),
        ("fs.edit", json!({"path": "twin", "old": "secret", "new": "x"})),
    ] {
        assert_eq!(world.call(tool, args.clone()).await.how, "failed path.hard_link", "{tool} {args}");
    }
    let found = world.json("fs.search", json!({"path": ".", "pattern": "secret"})).await;
    assert_eq!((&found["matches"], &found["skipped"]), (&json!([]), &json!(1)));
    let pid = std::process::id();
    for path in [
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/x",
        "/dev/fd/0",
        "/dev/stdin",
        &format!("/proc/{pid}/fd/0"),
    ] {
        let heard = world.call("fs.read", json!({"path": path})).await;
        assert_eq!(heard.how, "denied path.refused", "{path}: {}", heard.message);
    }
    for path in ["/dev/null", "/dev/zero"] {
        assert_eq!(world.call("fs.read", json!({"path": path})).await.how, "failed path.special", "{path}");
    }
}

#[tokio::test]
async fn adv_021_files_that_open_doors_are_outside_or_labelled() {
    let world = ToolsFixture::new(ALLOW_INSIDE).await;
    for path in [
        "/root/.ssh/id_rsa",
        "/home/someone/.aws/credentials",
        "/home/someone/.bash_history",
        "/etc/shadow",
        "/home/someone/.mozilla/firefox/x/logins.json",
        "/var/lib/cloud/instance/user-data.txt",
        "/proc/1/environ",
    ] {
        let heard = world.call("fs.read", json!({"path": path})).await;
        assert!(heard.how.starts_with("denied "), "{path}: {}", heard.how);
    }
    // A tilde is no home: it is a name in the workspace.
    assert_eq!(world.call("fs.read", json!({"path": "~/.ssh/id_rsa"})).await.how, "failed fs.not_found");
    assert_eq!(world.call("fs.read", json!({"path": ".env"})).await.how, "pending");
    let world = ToolsFixture::new(ALLOW_ALL).await;
    world.put(".env", "KEY=1");
    world.put("plain", "KEY");
    let label = async |tool, args| world.call(tool, args).await.confidentiality.unwrap();
    assert_eq!(label("fs.read", json!({"path": ".env"})).await, Confidentiality::Credential);
    assert_eq!(label("fs.read", json!({"path": "plain"})).await, Confidentiality::Internal);
    assert_eq!(
        label("fs.search", json!({"path": ".", "pattern": "KEY="})).await,
        Confidentiality::Credential
    );
    assert_eq!(label("fs.search", json!({"path": ".", "pattern": "KEY$"})).await, Confidentiality::Internal);
    assert_eq!(
        label("fs.read", json!({"path": world.beside("outside/secret")})).await,
        Confidentiality::Private
    );
}

#[tokio::test]
async fn h1_no_tool_reaches_regents_own_files_whatever_policy_says() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    world.put(".regent/audit/pack", "DB_PASSWORD=hunter2");
    world.put("sub/.regent/audit/pack", "DB_PASSWORD=hunter2");
    world.put("notes", "DB_PASSWORD is elsewhere");
    symlink(".regent/audit/pack", world.path("innocent")).unwrap();
    let calls = [
        ("fs.read", json!({"path": ".regent/audit/pack", "encoding": "base64"})),
        ("fs.read", json!({"path": ".REGENT/audit/pack"})),
        ("fs.read", json!({"path": "sub/.regent/audit/pack"})),
        ("fs.read", json!({"path": "innocent"})),
        ("fs.stat", json!({"path": ".regent/audit/pack"})),
        ("fs.list", json!({"path": ".regent"})),
        ("fs.search", json!({"path": ".regent", "pattern": "PASSWORD"})),
        ("fs.write", json!({"path": ".regent/policy.yml", "content": ""})),
        ("fs.write", json!({"path": ".Regent./policy.yml", "content": ""})),
        ("fs.edit", json!({"path": ".regent/audit/pack", "old": "hunter2", "new": ""})),
    ];
    for (tool, args) in calls {
        let heard = world.call(tool, args.clone()).await;
        assert_eq!(heard.how, "denied path.reserved", "{tool} {args}: {heard:?}");
    }
    let found = world.json("fs.search", json!({"path": ".", "pattern": "PASSWORD"})).await;
    assert_eq!(found["matches"].as_array().unwrap().len(), 1, "{found}");
    let listed = world.json("fs.list", json!({"path": ".", "recursive": true})).await.to_string();
    assert!(listed.contains("notes") && !listed.contains(".regent"), "{listed}");
}

#[tokio::test]
async fn h5_case_24_a_bare_repository_is_not_written_piece_by_piece() {
    let pieces = [
        ("HEAD", "ref: refs/heads/main\n"),
        ("config", "[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch /tmp/x\n"),
        ("objects/.keep", ""),
        ("refs/heads/.keep", ""),
    ];
    for folder in ["", "vendor/lib/"] {
        for last in 0..pieces.len() {
            let world = ToolsFixture::new(ALLOW_ALL).await;
            let order = pieces.iter().cycle().skip(last).take(pieces.len());
            let mut denied = 0;
            for (name, content) in order {
                let args = json!({"path": format!("{folder}{name}"), "content": content});
                let heard = world.call("fs.write", args).await;
                denied += usize::from(heard.how == "denied path.repository");
                assert!(heard.how == "ok" || heard.how == "denied path.repository", "{heard:?}");
            }
            let is_repository = ["HEAD", "objects", "refs"]
                .iter()
                .all(|name| world.path(&format!("{folder}{name}")).exists());
            assert!(denied > 0 && !is_repository, "in {folder:?}, beginning with {}", pieces[last].0);
        }
    }
}

#[tokio::test]
async fn m10_what_an_agent_writes_that_runs_later_is_marked() {
    let world =
        ToolsFixture::new("version: 1\nrules:\n  - { id: all, effect: allow, match: { op: '*' } }\n").await;
    let operator = world.kernel.operator();
    let spec = serde_json::from_value(json!({"name": "worker", "roles": []})).unwrap();
    let Reply::Done(outcome) = world.kernel.syscall(&operator, Op::Spawn(spec)).await.unwrap() else {
        panic!("no agent")
    };
    let said: Value = serde_json::from_slice(outcome.output.bytes()).unwrap();
    let agent = AgentId::from(said["agent"].as_str().unwrap());
    let agent = world.kernel.principal_of(&operator, &agent).unwrap();
    let cases = [
        ("Makefile", json!(["runs-on-build"])),
        ("sub/package.json", json!(["runs-on-build"])),
        (".github/workflows/ci.yml", json!(["runs-by-itself"])),
        (".envrc", json!(["control-files"])),
        ("notes.txt", Value::Null),
    ];
    for (path, marks) in cases {
        for (who, marks) in [(&agent, &marks), (&operator, &Value::Null)] {
            let args = json!({"path": path, "content": "x"});
            let op = Op::RunTool(ToolCall { tool: "fs.write".to_owned(), args });
            assert!(matches!(world.kernel.syscall(who, op).await, Ok(Reply::Done(_))), "{path}");
            let (_, body) =
                world.recorded().into_iter().rfind(|(kind, _)| *kind == EntryKind::Outcome).unwrap();
            assert_eq!(body.get("marks").unwrap_or(&Value::Null), marks, "{path}: {body}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_edits_of_one_file_at_once_are_all_kept_or_reported_as_failed() {
    let world = std::sync::Arc::new(ToolsFixture::new(ALLOW_ALL).await);
    for round in 0..20 {
        let words: Vec<String> = (0..8).map(|number| format!("word{number};")).collect();
        world.put("ed.txt", words.concat());
        let mut edits = tokio::task::JoinSet::new();
        for word in words.clone() {
            let world = std::sync::Arc::clone(&world);
            edits.spawn(async move {
                let args = json!({"path": "ed.txt", "old": word, "new": word.to_uppercase()});
                (word, world.call("fs.edit", args).await.how)
            });
        }
        let outcomes = edits.join_all().await;
        let after = std::fs::read_to_string(world.path("ed.txt")).unwrap();
        for (word, how) in outcomes {
            match how.as_str() {
                "ok" => {
                    assert!(after.contains(&word.to_uppercase()), "round {round}: `{word}` lost in {after}")
                }
                "failed fs.changed" => assert!(after.contains(&word), "round {round}: {word} {after}"),
                other => panic!("{other}"),
            }
        }
    }
}

#[tokio::test]
async fn d2_a_file_that_changed_since_it_was_read_is_not_replaced() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    let seen = |text: &str| regent_ledger::Digest::compute(text.as_bytes()).to_string();
    world.put("notes.txt", "mine");
    let write = |content: &str, seen: String| json!({"path": "notes.txt", "content": content, "seen": seen});
    let heard = world.call("fs.write", write("agent", seen("older"))).await;
    assert_eq!((heard.how.as_str(), heard.message.contains("read it again")), ("failed fs.changed", true));
    assert_eq!(std::fs::read_to_string(world.path("notes.txt")).unwrap(), "mine");
    assert_eq!(world.call("fs.write", write("agent", seen("mine"))).await.how, "ok");
    std::fs::remove_file(world.path("notes.txt")).unwrap();
    assert_eq!(world.call("fs.write", write("anew", seen("agent"))).await.how, "ok");
    assert_eq!(std::fs::read_to_string(world.path("notes.txt")).unwrap(), "anew");
    let folder = std::fs::read_dir(world.path(".")).unwrap();
    let names: Vec<_> = folder.map(|one| one.unwrap().file_name()).collect();
    assert_eq!(names, ["notes.txt"], "no draft is left behind");
}

#[tokio::test]
async fn d2_the_receipt_says_what_a_file_holds() {
    let world = ToolsFixture::new(ALLOW_ALL).await;
    let holds = |text: &str| json!(regent_ledger::Digest::compute(text.as_bytes()));
    world.json("fs.write", json!({"path": "a", "content": "one two"})).await;
    world.call("fs.edit", json!({"path": "a", "old": "two", "new": "2"})).await;
    world.call("fs.read", json!({"path": "a"})).await;
    world.call("fs.read", json!({"path": "a", "offset": 1})).await;
    world.call("fs.read", json!({"path": "a", "bytes_max": 2})).await;
    let recorded = world.recorded();
    let outcomes = recorded.iter().filter(|(kind, _)| *kind == regent_ledger::EntryKind::Outcome);
    let said: Vec<Value> = outcomes.map(|(_, body)| body["obtained"]["sha256"].clone()).collect();
    assert_eq!(said, [holds("one two"), holds("one 2"), holds("one 2"), Value::Null, Value::Null]);
}
