//! `fs.mkdir`, `fs.copy`, `fs.move`, `fs.delete`.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use regent_kernel::Confidentiality;
use serde_json::{Value, json};

use super::world::{ALLOW_ALL, ALLOW_INSIDE, ToolsFixture};

const OPEN: &str = "version: 1\nmode: permissive\n";

/// Every path in the workspace with what it is: the content of a file, where a link leads.
fn everything(world: &ToolsFixture) -> Vec<String> {
    fn add(folder: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if kind.is_dir() {
                found.push(format!("{name}/"));
                add(&path, root, found);
            } else if kind.is_symlink() {
                found.push(format!("{name} -> {}", std::fs::read_link(&path).unwrap().display()));
            } else {
                found.push(format!("{name}={}", std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let root = world.path("");
    let mut found = Vec::new();
    add(&root, &root, &mut found);
    found.sort();
    found
}

/// `a` holds files, a folder and a link in itself; `b` is a file.
async fn planted(policy: &str) -> ToolsFixture {
    let world = ToolsFixture::new(policy).await;
    world.put("a/one", "1");
    world.put("a/deep/two", "2");
    world.put("b", "B");
    symlink("../one", world.path("a/deep/link")).unwrap();
    world
}

#[tokio::test]
async fn each_does_what_it_says() {
    let a = ["a/", "a/deep/", "a/deep/link -> ../one", "a/deep/two=2", "a/one=1"];
    let under = |root: &str| a.map(|line| line.replacen('a', root, 1)).to_vec();
    let with = |mut lines: Vec<String>, more: &[&str]| {
        lines.extend(more.iter().map(|&line| line.to_owned()));
        lines.sort();
        lines
    };
    let cases: [(&str, Value, Vec<String>); 12] = [
        ("fs.mkdir", json!({"path": "new"}), with(under("a"), &["b=B", "new/"])),
        ("fs.mkdir", json!({"path": "a"}), with(under("a"), &["b=B"])),
        ("fs.mkdir", json!({"path": "x/y", "parents": true}), with(under("a"), &["b=B", "x/", "x/y/"])),
        ("fs.copy", json!({"from": "b", "to": "n/c"}), with(under("a"), &["b=B", "n/", "n/c=B"])),
        ("fs.copy", json!({"from": "b", "to": "a/one", "overwrite": true}), vec![]),
        (
            "fs.copy",
            json!({"from": "a", "to": "c", "recursive": true}),
            with([under("a"), under("c")].concat(), &["b=B"]),
        ),
        ("fs.move", json!({"from": "b", "to": "n/c"}), with(under("a"), &["n/", "n/c=B"])),
        ("fs.move", json!({"from": "a", "to": "c", "recursive": true}), with(under("c"), &["b=B"])),
        (
            "fs.move",
            json!({"from": "b", "to": "a/one", "overwrite": true}),
            with(a[..4].iter().map(|&line| line.to_owned()).collect(), &["a/one=B"]),
        ),
        ("fs.delete", json!({"path": "b"}), under("a")),
        ("fs.delete", json!({"path": "a", "recursive": true}), vec!["b=B".to_owned()]),
        ("fs.delete", json!({"path": "a/deep/link"}), vec![]),
    ];
    for (tool, args, expected) in cases {
        let world = planted(ALLOW_INSIDE).await;
        let heard = world.call(tool, args.clone()).await;
        assert_eq!(heard.how, "ok", "{tool} {args}: {}", heard.message);
        if !expected.is_empty() {
            let mut expected = expected;
            expected.sort();
            assert_eq!(everything(&world), expected, "{tool} {args}");
        }
    }
    let world = planted(ALLOW_INSIDE).await;
    world.json("fs.delete", json!({"path": "a/deep/link"})).await;
    assert!(world.path("a/one").exists(), "the link went, not where it leads");
    std::fs::set_permissions(world.path("b"), std::fs::Permissions::from_mode(0o751)).unwrap();
    world.json("fs.copy", json!({"from": "b", "to": "a/one", "overwrite": true})).await;
    assert_eq!(std::fs::read_to_string(world.path("a/one")).unwrap(), "B");
    assert_eq!(std::fs::metadata(world.path("a/one")).unwrap().permissions().mode() & 0o777, 0o751);
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let world = planted(ALLOW_ALL).await;
    world.put("held/.regent/policy.yml", "x");
    world.put("twice", "x");
    std::fs::hard_link(world.path("twice"), world.path("again")).unwrap();
    std::fs::create_dir(world.path("links")).unwrap();
    symlink(world.beside("outside/secret"), world.path("links/out")).unwrap();
    symlink("../../outside", world.path("links/up")).unwrap();
    std::fs::create_dir(world.path("climbs")).unwrap();
    symlink("../b", world.path("climbs/b")).unwrap();
    world.put("repo/HEAD", "x");
    world.put("repo/objects/x", "x");
    symlink("b", world.path("name")).unwrap();
    let tree = |from: &str, to: &str| json!({"from": from, "to": to, "recursive": true});
    let before = everything(&world);
    let cases = [
        ("fs.delete", json!({"path": "a"}), "failed fs.not_empty"),
        ("fs.delete", json!({"path": "."}), "failed fs.workspace"),
        ("fs.delete", json!({"path": "none"}), "failed fs.not_found"),
        ("fs.delete", json!({"path": "held", "recursive": true}), "failed path.reserved"),
        ("fs.delete", json!({"path": "held/.regent", "recursive": true}), "denied path.reserved"),
        ("fs.delete", json!({"path": "twice"}), "failed path.hard_link"),
        ("fs.copy", json!({"from": "a", "to": "c"}), "failed fs.not_empty"),
        ("fs.copy", json!({"from": "b", "to": "a/one"}), "failed fs.exists"),
        ("fs.copy", json!({"from": "b", "to": "a", "overwrite": true}), "failed fs.is_folder"),
        ("fs.copy", tree("a", "a/deep/a"), "failed fs.into_itself"),
        ("fs.copy", tree("a", "b"), "failed fs.refused_below"),
        ("fs.copy", tree("held", "c"), "failed path.reserved"),
        ("fs.copy", tree("links", "c"), "failed path.links"),
        ("fs.copy", json!({"from": "b", "to": ".regent/x"}), "denied path.reserved"),
        ("fs.move", json!({"from": "b", "to": "b"}), "failed fs.into_itself"),
        ("fs.move", json!({"from": "b", "to": "a/one"}), "failed fs.exists"),
        ("fs.move", json!({"from": "b", "to": "name"}), "failed fs.into_itself"),
        ("fs.move", tree("a", "a/deep/a"), "failed fs.into_itself"),
        ("fs.move", tree("a", "b"), "failed fs.refused_below"),
        ("fs.move", tree("held", "c"), "failed path.reserved"),
        ("fs.move", tree("links", "c"), "failed path.links"),
        ("fs.move", tree("climbs", "c/d/e"), "ok"),
        ("fs.mkdir", json!({"path": "x/y"}), "failed fs.not_found"),
        ("fs.mkdir", json!({"path": "b"}), "failed fs.exists"),
        ("fs.mkdir", json!({"path": "repo/refs"}), "denied path.repository"),
        ("fs.move", tree("a", "repo/refs"), "denied path.repository"),
    ];
    for (tool, args, expected) in cases {
        let heard = world.call(tool, args.clone()).await;
        if expected == "ok" {
            // `../b` still leads to something in the workspace from there: nothing, which is no harm.
            assert_eq!(heard.how, "ok", "{tool} {args}: {}", heard.message);
            world.json("fs.move", tree("c/d/e", "climbs")).await;
            world.json("fs.delete", json!({"path": "c", "recursive": true})).await;
        } else {
            assert_eq!(heard.how, expected, "{tool} {args}: {}", heard.message);
        }
        // Folders on the way to a place may have been made.
        let now: Vec<_> = everything(&world).into_iter().filter(|line| before.contains(line)).collect();
        assert_eq!(now, before, "{tool} {args}");
    }
}

#[tokio::test]
async fn everything_below_is_judged_as_if_it_were_named_by_itself() {
    let world = planted(ALLOW_INSIDE).await;
    world.put("p/private/x", "x");
    world.put("private/x", "x");
    world.put("e/.env", "KEY=1");
    let tree = |from: &str, to: &str| json!({"from": from, "to": to, "recursive": true});
    let before = everything(&world);
    let cases = [
        ("fs.delete", json!({"path": "e", "recursive": true}), "failed fs.refused_below"),
        ("fs.copy", tree("e", "c"), "failed fs.refused_below"),
        ("fs.move", tree("e", "c"), "failed fs.refused_below"),
        ("fs.move", tree("p/private", "private2"), "ok"),
        ("fs.move", tree("a", "private/a"), "denied policy.denied"),
        ("fs.copy", json!({"from": "private/x", "to": "x"}), "denied policy.denied"),
        ("fs.move", json!({"from": "private/x", "to": "x"}), "denied policy.denied"),
        ("fs.copy", json!({"from": world.beside("outside/secret"), "to": "x"}), "denied policy.no_rule"),
        ("fs.move", json!({"from": "b", "to": world.beside("outside/b")}), "denied policy.no_rule"),
    ];
    for (tool, args, expected) in cases {
        let heard = world.call(tool, args.clone()).await;
        assert_eq!(heard.how, expected, "{tool} {args}: {}", heard.message);
        if expected == "ok" {
            world.json("fs.move", tree("private2", "p/private")).await;
        }
        assert_eq!(everything(&world), before, "{tool} {args}");
    }
    // What may not be read doesn't become readable by another name.
    let unread = "version: 1\nrules:\n  - { id: all, effect: allow, match: { tool: 'fs.*', path: '**' } }\n  - { id: no, effect: deny, match: { path: 'a/**', access: read } }\n";
    let world = planted(unread).await;
    for args in [json!({"from": "a/one", "to": "c"}), tree("a", "c")] {
        let heard = world.call("fs.move", args.clone()).await;
        assert!(
            heard.how == "denied policy.denied" || heard.how == "failed fs.refused_below",
            "{args}: {heard:?}"
        );
        assert!(world.path("a/one").exists());
    }
}

#[tokio::test]
async fn only_a_copy_depends_on_how_large_files_are() {
    let small = format!("{ALLOW_INSIDE}limits: {{ file: 10B }}\n");
    let cases = [(&*small, 11, "big"), (&*small, 11, "folder"), (ALLOW_INSIDE, 600 << 20, "folder")];
    for (policy, bytes, from) in cases {
        let world = ToolsFixture::new(policy).await;
        for path in ["big", "folder/one", "folder/two"] {
            world.put(path, "");
            // A hole takes no room on the disk.
            std::fs::File::create(world.path(path)).unwrap().set_len(bytes).unwrap();
        }
        let copied = world.call("fs.copy", json!({"from": from, "to": "b", "recursive": true})).await;
        assert_eq!(copied.how, "failed fs.too_large", "{from} with {bytes}: {}", copied.message);
        world.json("fs.move", json!({"from": from, "to": "c", "recursive": true})).await;
        world.json("fs.delete", json!({"path": "c", "recursive": true})).await;
        assert!(!world.path("c").exists() && !world.path(from).exists(), "{from} with {bytes}");
    }
}

#[tokio::test]
async fn adv_068_a_copy_and_a_move_launder_nothing() {
    let world = ToolsFixture::new(OPEN).await;
    for name in [".env", "keys/.env", "moved/.env"] {
        world.put(name, format!("KEY of {name}"));
    }
    world.put("plain", "what anybody may know");
    let person = world.kernel.operator();
    let (clean, misled) = (world.agent(&person, "clean").await, world.agent(&person, "misled").await);
    let read = world.call_as(&misled, "fs.read", json!({"path": ".env"})).await;
    assert_eq!(read.confidentiality, Some(Confidentiality::Credential));
    for (path, content) in [("scratch", "what the file said"), ("tree/deep/scratch", "and more")] {
        let wrote = world.call_as(&misled, "fs.write", json!({"path": path, "content": content})).await;
        assert_eq!(wrote.how, "ok", "{}", wrote.message);
    }
    let calls = [
        ("fs.copy", json!({"from": ".env", "to": "env-copy"})),
        ("fs.copy", json!({"from": "keys", "to": "keys-copy", "recursive": true})),
        ("fs.move", json!({"from": "keys-copy/.env", "to": "env-second"})),
        ("fs.move", json!({"from": "moved/.env", "to": "env-moved"})),
        ("fs.copy", json!({"from": "scratch", "to": "scratch-copy"})),
        ("fs.move", json!({"from": "scratch", "to": "scratch-moved"})),
        ("fs.move", json!({"from": "tree", "to": "other", "recursive": true})),
        ("fs.copy", json!({"from": "plain", "to": "plain-copy"})),
    ];
    for (tool, args) in calls {
        // Another one each time, so that nothing is labelled for who did it.
        let mover = world.agent(&person, "mover").await;
        let heard = world.call_as(&mover, tool, args.clone()).await;
        assert_eq!(heard.how, "ok", "{tool} {args}: {}", heard.message);
    }
    let expected = [
        ("plain-copy", Confidentiality::Internal),
        ("env-copy", Confidentiality::Credential),
        ("env-second", Confidentiality::Credential),
        ("env-moved", Confidentiality::Credential),
        ("scratch-copy", Confidentiality::Credential),
        ("scratch-moved", Confidentiality::Credential),
        ("other/deep/scratch", Confidentiality::Credential),
    ];
    for (path, confidentiality) in expected {
        let read = world.call_as(&clean, "fs.read", json!({"path": path})).await;
        assert_eq!(read.confidentiality, Some(confidentiality), "{path}: {}", read.message);
    }
}

#[tokio::test]
async fn adv_068_an_edit_an_append_and_a_search_launder_nothing() {
    let world = ToolsFixture::new(OPEN).await;
    world.put(".env", "KEY=1");
    let person = world.kernel.operator();
    let misled = world.agent(&person, "misled").await;
    world.call_as(&misled, "fs.read", json!({"path": ".env"})).await;
    let content = "what the file said\n";
    for path in ["edited", "added", "deep/searched"] {
        let wrote = world.call_as(&misled, "fs.write", json!({"path": path, "content": content})).await;
        assert_eq!(wrote.how, "ok", "{}", wrote.message);
    }
    let calls = [
        ("fs.edit", json!({"path": "edited", "old": "said", "new": "says"}), Confidentiality::Credential),
        ("fs.write", json!({"path": "added", "content": "!", "mode": "append"}), Confidentiality::Internal),
        ("fs.read", json!({"path": "edited"}), Confidentiality::Credential),
        ("fs.read", json!({"path": "added"}), Confidentiality::Credential),
        ("fs.search", json!({"path": "deep", "pattern": "file"}), Confidentiality::Credential),
        ("fs.search", json!({"path": "deep", "pattern": "nowhere"}), Confidentiality::Internal),
        ("fs.write", json!({"path": "edited", "content": "anew"}), Confidentiality::Internal),
        ("fs.read", json!({"path": "edited"}), Confidentiality::Internal),
    ];
    for (tool, args, expected) in calls {
        // Another one each time, so that nothing is labelled for who did it.
        let clean = world.agent(&person, "clean").await;
        let heard = world.call_as(&clean, tool, args.clone()).await;
        assert_eq!((&*heard.how, heard.confidentiality), ("ok", Some(expected)), "{tool} {args}");
    }
}
