//! Cases as data, and properties of folding and of the table.

use proptest::prelude::*;

use super::*;
use crate::git::{GitEntry, git_entry};
use crate::invisible::is_invisible;

/// A path that the pattern matches.
fn example(pattern: &str) -> String {
    pattern.trim_start_matches("**/").replace("/**", "/x").replace('*', "x")
}

#[test]
fn every_pattern_classifies_its_own_example() {
    for place in PLACES {
        let path = example(place.pattern);
        for path in [path.clone(), format!("a/b/{path}"), path.to_uppercase(), format!("{path}. ")] {
            assert!(
                is_kind(&path, place.kind),
                "{path} is {:?}, {:?} is missing",
                kinds_of(&path),
                place.kind
            );
        }
        assert!(!place.why.is_empty(), "{}", place.pattern);
        if let Some(folder) = place.pattern.trim_start_matches("**/").strip_suffix("/**") {
            assert!(is_kind(folder, place.kind), "the folder itself: {folder}");
            assert!(is_kind(&format!("{folder}/a/b/c"), place.kind), "deep in {folder}");
        }
    }
}

#[test]
fn patterns_use_the_dialect_and_are_unique() {
    for (at, place) in PLACES.iter().enumerate() {
        let name = place.pattern.strip_prefix("**/").expect("at any depth");
        assert!(place.pattern.is_ascii(), "folding relies on it: {}", place.pattern);
        assert!(
            !name.trim_end_matches("/**").contains("**") && !name.contains(['{', '[', '?', '\\']),
            "{name}"
        );
        assert!(
            !name.contains('/') || !name.trim_end_matches("/**").contains('*'),
            "a star only in single names: {name}"
        );
        let same = |other: &GuardedPlace| other.pattern == place.pattern && other.kind == place.kind;
        assert_eq!(PLACES.iter().position(same), Some(at), "{} twice", place.pattern);
    }
}

#[test]
fn l11_names_are_compared_folded() {
    use GuardKind::{Control, PersonalSecret, Regent, Secret};
    let cases = [
        (".GIT/hooks/x", Control),
        ("sub/.Git/HOOKS/pre-commit", Control),
        (".ENVRC", Control),
        (".envrc ", Control),
        (".envrc...", Control),
        (".REGENT/policy.yml", Regent),
        (".regent./audit", Regent),
        (".g\u{200c}it/config", Control),
        (".\u{feff}git/config", Control),
        (".\u{0131}dea/workspace.xml", Control),
        (".v\u{017f}code/tasks.json", Control),
        (".\u{ff47}it/config", Control),
        (".git::$INDEX_ALLOCATION/config", Control),
        ("GIT~1/hooks/x", Control),
        ("REGENT~1/policy.yml", Regent),
        ("MCP~1.JSO", Control),
        (".cargo/con\u{fb01}g", Control),
        ("\u{212a}eys/x.\u{212a}ey", Secret),
        ("notes/Bob.token", Secret),
        (".SSH/id_rsa", PersonalSecret),
    ];
    for (path, kind) in cases {
        assert!(is_kind(path, kind), "{path:?} is {kind:?}");
    }
}

#[test]
fn unguarded_names_are_free() {
    let free = [
        "",
        ".",
        "src/main.rs",
        ".gitignore",
        ".github/ISSUE_TEMPLATE/bug.md",
        "docs/ssh.md",
        "src/env.rs",
        "env",
        "git",
        "git~x",
        "environment.key.rs",
        "config",
        ".cargo/registry/x",
        "notes/regent",
        ".regent-abc.tmp",
        "g\u{ed}t",
        ".gi\u{301}t/config",
        ".docker/Dockerfile.d/notes",
        "vendor/certifi/cacert.pem",
        ".env.example",
        "a/.ENV.Sample",
        "...",
        ". .",
        ":git",
    ];
    for path in free {
        assert_eq!(kinds_of(path), Kinds::NONE, "{path:?}");
    }
}

#[test]
fn m10_files_that_run_by_themselves_or_on_build() {
    use GuardKind::{RunsByItself, RunsOnBuild};
    let cases = [
        (
            RunsByItself,
            ".yarnrc.yml rust-toolchain.toml .Rprofile .pdbrc .dir-locals.el .nvim.lua .devcontainer/x mise.toml .husky/x",
        ),
        (
            RunsByItself,
            ".githooks/x .pre-commit-config.yaml .github/workflows/ci.yml .gitlab-ci.yml AGENTS.md CLAUDE.md .cursorrules",
        ),
        (
            RunsByItself,
            ".codex/config.toml .gemini/settings.json .kiro/settings/mcp.json sub/AGENTS.md .agents/skills/x",
        ),
        (
            RunsOnBuild,
            "Makefile makefile package.json build.rs conftest.py sitecustomize.py x.pth a/b/Makefile",
        ),
    ];
    for (kind, paths) in cases {
        for path in paths.split(' ') {
            assert!(is_kind(path, kind), "{path} is {:?}", kinds_of(path));
        }
    }
}

#[test]
fn h5_creation_in_a_folder() {
    let guarded = |parent, name| match creation(parent, name, Kinds::UNWRITABLE) {
        Creation::Guarded(_) => "guarded",
        Creation::OnTheWay(_) => "on the way",
        Creation::Free => "free",
    };
    let cases = [
        ("", ".git", "guarded"),
        (".", ".envrc", "guarded"),
        ("sub", ".git", "guarded"),
        ("sub/deep", ".mcp.json", "guarded"),
        ("sub/.vscode", "tasks.json", "guarded"),
        ("sub", ".cargo", "on the way"),
        ("sub/.cargo", "config.toml", "guarded"),
        ("sub/.cargo", "registry", "free"),
        ("", ".config", "on the way"),
        ("", "Makefile", "free"),
        ("", ".gitignore", "free"),
        (".git", "hooks", "guarded"),
        (".git", "HEAD", "free"),
        (".git", "head", "guarded"),
        (".git", "index.lock", "free"),
        (".git", "config.lock", "guarded"),
        (".git/objects/ab", "cdef", "free"),
        (".git/objects/info", "alternates", "guarded"),
        (".git/refs/heads", "main", "free"),
        ("sub/.GIT", "commondir", "guarded"),
        (".git/modules/a", "config", "guarded"),
        (".git/worktrees", "b", "guarded"),
        (".git/worktrees/a", "HEAD", "free"),
        (".git/worktrees/a", "gitdir", "guarded"),
        (".git/refs/.vscode", "tasks.json", "guarded"),
        (".vscode/.git", "HEAD", "guarded"),
        (".regent", "x", "guarded"),
        ("GIT~1", "config", "guarded"),
    ];
    for (parent, name, expected) in cases {
        assert_eq!(guarded(parent, name), expected, "{name} in {parent:?}");
    }
    assert!(matches!(creation("", ".env", Kinds::UNREADABLE), Creation::Guarded(_)));
    assert_eq!(creation("", ".env", Kinds::UNWRITABLE), Creation::Free);
}

#[test]
fn git_entries() {
    let writable = "HEAD ORIG_HEAD FETCH_HEAD MERGE_HEAD MERGE_MSG index index.lock index.stash.7 packed-refs packed-refs.lock objects \
        objects/info/packs objects/pack/x.idx refs refs/heads/config logs/HEAD COMMIT_EDITMSG \
        BISECT_LOG shallow.lock worktrees/a/index worktrees/a/logs/HEAD lfs/objects/ab info/refs";
    let control = "config config.worktree config.lock CONFIG hooks hooks/pre-commit commondir gitdir info info/attributes info/exclude \
        info/grafts modules modules/a/config worktrees worktrees/a worktrees/a/commondir worktrees/a/gitdir worktrees/a/config.worktree \
        objects/info/alternates objects/INFO/Alternates objects/info/http-alternates remotes/origin branches/x lfs lfs/config \
        something-new rebase-merge rebase-merge/git-rebase-todo rebase-apply/patch sequencer/todo worktrees/a/rebase-merge/done";
    for below in writable.split_whitespace() {
        assert_eq!(git_entry(below), GitEntry::Writable, "{below}");
    }
    for below in control.split_whitespace().chain([""]) {
        assert_eq!(git_entry(below), GitEntry::Control, "{below}");
    }
}

#[test]
fn h5_the_last_entry_completes_a_bare_layout() {
    let cases: [(&str, &[&str], bool); 15] = [
        ("HEAD", &["objects", "refs"], true),
        ("objects", &["HEAD", "refs"], true),
        ("refs", &["HEAD", "objects"], true),
        ("head", &["objects", "refs"], true),
        ("HEAD", &["objects"], false),
        ("refs", &["HEAD"], false),
        ("config", &["HEAD", "objects"], false),
        ("config", &["HEAD", "objects", "refs"], true),
        ("hooks", &["HEAD", "objects", "refs"], true),
        ("CONFIG", &["HEAD", "objects", "refs"], true),
        ("commondir", &["HEAD"], true),
        ("HEAD", &["commondir"], true),
        ("config", &["HEAD", "commondir"], true),
        ("README.md", &["HEAD", "objects", "refs"], false),
        ("rebase-merge", &["HEAD", "commondir"], true),
    ];
    for (name, siblings, expected) in cases {
        assert_eq!(
            completes_repository(name, |one| siblings.contains(&one)),
            expected,
            "{name} beside {siblings:?}"
        );
    }
}

#[test]
fn m3_lists_every_hidden_character() {
    let hidden = "\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{17b4}\u{180b}\u{180e}\u{180f}\u{200b}\u{200d}\u{200f}\u{2028}\u{202e}\u{2060}\
        \u{2066}\u{206f}\u{2800}\u{3164}\u{fe00}\u{fe0f}\u{feff}\u{ffa0}\u{fff9}\u{1d173}\u{e0001}\u{e0041}\u{e0100}\u{e01ef}";
    assert_eq!(hidden.chars().find(|c| !is_invisible(*c)), None);
    assert_eq!(invisible::first_invisible("grüße, 世界 — ok é ñ हिन्दी עברית"), None);
    assert_eq!(invisible::first_invisible("a\u{200b}b"), Some('\u{200b}'));
}

#[test]
fn folding_a_folded_character_changes_nothing() {
    for c in (0..=0x10_FFFF).filter_map(char::from_u32).filter(|c| *c != '/') {
        let name = format!("a{c}b");
        let once = fold_name(&name).into_owned();
        assert_eq!(fold_name(&once), once, "U+{:04X}", u32::from(c));
        let (upper, lower) = (name.to_uppercase(), name.to_lowercase());
        // A capital letter that some file system maps to a small letter must fold with it.
        assert_eq!(fold_name(&upper), fold_name(&once.to_uppercase()), "U+{:04X}", u32::from(c));
        if lower.is_ascii() {
            assert_eq!(fold_name(&lower), once, "U+{:04X}", u32::from(c));
        }
    }
}

#[test]
fn classifies_names_with_a_tilde_at_any_depth() {
    let deep = |name: &str| format!("{name}/").repeat(120) + "file";
    // Repeated 200 times: a scan of every pattern at every depth would take minutes.
    (0..200).for_each(|_| assert!(kinds_of(&deep("abcde~1")).is_empty()));
    assert!(is_kind(&(deep("a~1") + "/GIT~1/hooks/x"), GuardKind::Control));
}

#[test]
fn kinds_are_sets_with_names() {
    for kind in GuardKind::ALL {
        assert_eq!(GuardKind::from_name(kind.name()), Some(kind));
        assert!(Kinds::from(kind).contains(kind) && Kinds::from(kind).iter().eq([kind]));
    }
    assert_eq!(GuardKind::from_name("control"), None);
    assert!(
        Kinds::UNWRITABLE.intersects(GuardKind::Regent.into())
            && !Kinds::UNWRITABLE.contains(GuardKind::Secret)
    );
}

proptest! {
    #[test]
    fn folding_is_idempotent(name in "[^/]{0,24}|[.: a-gGIT~1\\u{200b}\\u{fb01}\\u{212a}]{0,12}") {
        let once = fold_name(&name).into_owned();
        prop_assert_eq!(fold_name(&once).into_owned(), once.clone());
        let path = format!("a/{name}/B");
        prop_assert_eq!(fold_path(&path).into_owned(), format!("a/{once}/b"));
    }

    #[test]
    fn guards_everything_in_a_guarded_folder(above in "([a-z]{1,4}/){0,3}", below in "(/[^/]{1,6}){0,3}", at in 0..PLACES.len()) {
        let place = &PLACES[at];
        if let Some(folder) = place.pattern.trim_start_matches("**/").strip_suffix("/**") {
            let path = format!("{above}{folder}{below}");
            // Only the secret kinds have exceptions, and none of their patterns is a folder of that kind.
            prop_assert!(is_kind(&path, place.kind), "{}", path);
        }
    }

    #[test]
    fn programs_cannot_create_control_files_outside_git(path in "([.a-z]{1,6}/){0,2}(\\.envrc|\\.mcp\\.json|\\.vscode/x|\\.regent/x)") {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
        prop_assert!(matches!(creation(parent, name, Kinds::UNWRITABLE), Creation::Guarded(_)), "{}", path);
    }

    #[test]
    fn nothing_panics(parent in "\\PC{0,30}", name in "\\PC{0,20}") {
        creation(&parent, &name, Kinds::UNWRITABLE);
        git_entry(&parent);
        completes_repository(&name, |_| true);
    }
}
