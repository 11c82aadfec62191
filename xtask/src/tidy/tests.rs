//! The house is in order, and the rules notice when it is not.

use std::fs;

use super::{architecture, banned_word, code_lines, declared, findings, packages};

#[test]
fn the_house_is_in_order() {
    let root = crate::root();
    let (found, _) = findings(&root);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// A tree with one file that breaks one rule, beside the few that must be there.
fn findings_in(file: &str, text: &str) -> Vec<String> {
    let root = tempfile::tempdir().expect("a folder");
    let place = |name: &str, text: &str| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
        fs::write(path, text).expect("a file");
    };
    place(
        "Cargo.toml",
        concat!(
            "too_many_lines\nunsafe",
            "_code = \"deny\"\nundocumented_unsafe",
            "_blocks = \"deny\"\ndisallowed_methods = \"deny\"\noverflow-checks = true\n"
        ),
    );
    place(
        "clippy.toml",
        "too-many-lines-threshold = 70\nstd::process::Command::new\nstd::time::SystemTime::now\n",
    );
    place("docs/adr/README.md", "- 0001-one.md\n");
    place(file, text);
    findings(root.path()).0
}

#[test]
fn each_rule_finds_its_breach_and_says_where() {
    let long = format!("//! Long.\n{}", "fn f() {}\n".repeat(501));
    let packages: String = (0..615).map(|number| format!("name = \"p{number}\"\n")).collect();
    let cases: &[(&str, &str, &str)] = &[
        ("crates/kernel/src/a.rs", "fn f() {}\n", "crates/kernel/src/a.rs:1: a file opens"),
        ("crates/kernel/src/a.rs", "//! A.\nstruct ToolManager;\n", "a.rs:2: `Manager` says nothing"),
        (
            "crates/kernel/src/a.rs",
            "//! A.\nstd::fs::write(path, text);\n",
            "a.rs:2: `fs::write(…)` in a crate that writes no files",
        ),
        ("crates/kernel/src/file_utils.rs", "//! A.\n", "file_utils.rs:1: `utils` says nothing"),
        ("crates/kernel/src/types/a.rs", "//! A.\n", "a.rs:1: no folder is called `types`"),
        ("crates/kernel/src/a.rs", &long, "a.rs:1: 501 lines of code"),
        ("crates/kernel/src/a.rs", concat!("//! A.\n// TO", "DO\n"), "a.rs:2:"),
        (
            "crates/kernel/tests/a.rs",
            concat!("//! A.\n#[ign", "ore = \"slow\"]\n"),
            "a.rs:2: a test runs, or",
        ),
        ("crates/kernel/tests/a.rs", concat!("//! A.\n#[ign", "ore]\n"), "a.rs:2: a test runs, or"),
        (
            "crates/kernel/src/a.rs",
            concat!("//! A.\n#[expect(unsafe", "_code, reason = \"x\")]\n"),
            "a.rs:2: only crates/{sandbox,microvm}",
        ),
        (
            "crates/policy/Cargo.toml",
            "[lints]\nworkspace = true\n[dependencies]\nregent-kernel.workspace = true\n",
            "crates/policy/Cargo.toml:4: `policy` may not depend on `kernel`",
        ),
        ("crates/policy/Cargo.toml", "[dependencies]\n", "Cargo.toml:1: the workspace's lints"),
        ("crates/misc/Cargo.toml", "[lints]\nworkspace = true\n", "`misc` is not in MAY_DEPEND_ON"),
        ("docs/adr/0002-two.md", "# Two\n\n**Enforced by:** a test\n", "`0002-two.md` is not in the index"),
        ("docs/adr/0001-one.md", "# One\n\nStatus: accepted\n", "0001-one.md:3: the last line"),
        ("docs/a.md", concat!("A model that is price", "less\n"), "docs/a.md:1: `price"),
        ("crates/policy/src/a.rs", "//! A.\nuse std::fs;\n", "a.rs:2: `std::fs` in a pure crate"),
        (
            "crates/provenance/src/a.rs",
            "//! A.\nlet now = Instant::now();\n",
            "a.rs:2: `Instant::now` in a pure",
        ),
        (
            "crates/kernel/src/a.rs",
            "//! A.\nlet socket = TcpStream::connect(address);\n",
            "a.rs:2: `TcpStream::connect` is called only in [crates/egress/src/reach.rs,",
        ),
        (
            "crates/kernel/src/a.rs",
            "//! A.\nimpl Kernel {\n    pub async fn call(&self) {}\n}\n",
            "a.rs:3: a public `async fn` is compiled in each crate that awaits it",
        ),
        ("Cargo.lock", &packages, "Cargo.lock:1: 615 packages; 614 are allowed"),
        (
            "Cargo.lock",
            &"name = \"twice\"\n".repeat(62),
            "Cargo.lock:1: 61 packages are there in a second version",
        ),
        (
            "crates/kernel/src/lib.rs",
            "//! A.\n",
            concat!("lib.rs:1: a crate says `#![forbid(unsafe", "_code)]`"),
        ),
    ];
    check(cases);
}

#[test]
fn an_invariant_without_its_enforcer_is_found() {
    let cases: &[(&str, &str, &str)] = &[
        (
            "ARCHITECTURE.md",
            "## Invariants\n\n| a | b |\n|---|---|\n| It holds | `crates/kernel/src/gone.rs` |\n",
            "ARCHITECTURE.md:5: names `crates/kernel/src/gone.rs` as an enforcer",
        ),
        (
            "ARCHITECTURE.md",
            "## Invariants\n| It holds | test `adv_000` |\n",
            "ARCHITECTURE.md:2: names `adv_000`",
        ),
    ];
    check(cases);
}

#[test]
fn a_call_back_in_facts_and_ambient_authority_in_policy_are_found() {
    check(&[
        (
            "crates/policy/src/facts.rs",
            "//! A.\npub struct Facts<'a> {\n    pub rates: &'a dyn Rates,\n}\n",
            "facts.rs:3: a call-back in `Facts`",
        ),
        (
            "crates/policy/src/shadow.rs",
            "//! A.\nstruct Tally {\n    judged: AtomicU64,\n}\n",
            "shadow.rs:3: `Atomic` in a pure crate",
        ),
        (
            "crates/kernel/src/a.rs",
            "//! A.\npub(crate) static TALLY: Mutex<u64> = Mutex::new(0);\n",
            "a.rs:2: `TALLY` is shared by all kernels",
        ),
        ("crates/policy/src/a.rs", "//! A.\nseen: RefCell<u8>,\n", "a.rs:2: `RefCell` in a pure crate"),
        ("crates/policy/src/a.rs", "//! A.\nuse std::{fs, fmt};\n", "a.rs:2: `std::fs` in a pure crate"),
        (
            "crates/policy/src/a.rs",
            "//! A.\nuse std::{\n    fmt,\n    io::{self, Read},\n};\n",
            "a.rs:2: `std::io::self` in a pure crate",
        ),
        (
            "crates/provenance/src/a.rs",
            "//! A.\npub(crate) use std::time::{Duration, Instant};\n",
            "a.rs:2: `std::time::Instant` in a pure crate",
        ),
        (
            "crates/policy/src/a.rs",
            "//! A.\nuse std as library;\n",
            "a.rs:2: `std as library` in a pure crate",
        ),
        ("crates/policy/src/a.rs", "//! A.\nuse std::{fmt, *};\n", "a.rs:2: `std::*` in a pure crate"),
        (
            "crates/policy/src/a.rs",
            "//! A.\nextern crate std as library;\n",
            "a.rs:2: `std as library` in a pure",
        ),
        (
            "crates/policy/src/a.rs",
            "//! A.\nfn f(now: &dyn Clock) {}\n",
            "a.rs:2: `dyn Clock` in a pure crate",
        ),
        ("crates/policy/src/a.rs", "//! A.\nask: Box<dyn Fn(u8)>,\n", "a.rs:2: `dyn Fn` in a pure crate"),
        (
            "crates/policy/src/lint.rs",
            "//! A.\nvisit: &mut dyn FnMut(&Path),\n",
            "lint.rs:2: `dyn FnMut` in a pure crate",
        ),
        (
            "crates/sandbox/src/cgroup.rs",
            "//! A.\nstatic OTHER: Mutex<u64> = Mutex::new(0);\n",
            "cgroup.rs:2: `OTHER` is shared by all kernels",
        ),
        ("crates/policy/src/a.rs", "//! A.\nTcpStream::from(x);\n", "a.rs:2: `TcpStream` in a pure crate"),
    ]);
}

fn check(cases: &[(&str, &str, &str)]) {
    for (file, text, wanted) in cases {
        let found = findings_in(file, text);
        assert_eq!(found.len(), 1, "{file}: {found:?}");
        assert!(found[0].contains(wanted), "{file}: {found:?}");
    }
}

#[test]
fn an_enforcer_is_something_that_is_declared() {
    let mut names = architecture::Names::default();
    names.add("Cargo.toml", "[workspace.lints.rust]\nunused_must_use = \"deny\"\n");
    let source = "//! Mentioned in a comment.\nenum Fault {\n    /// Why.\n    Unrecorded { why: String },\n}\n\
        fn adv_046_holds() { let local = Called::now(); }\nstruct Permit;\n// fn commented() {}\n";
    names.add("crates/kernel/src/a.rs", source);
    names.add("xtask/src/main.rs", "//! A.\nmatch command {\n    \"sim\" => sim(),\n}\n");
    let missing = |enforcer: &str| {
        let page = format!("## Invariants\n| It holds | `{enforcer}` |\n");
        !architecture::missing(std::path::Path::new("none"), &page, &names).is_empty()
    };
    let known =
        ["Permit", "kernel::Permit", "Fault::Unrecorded", "adv_046", "adv_0*", "unused_must_use", "a.rs"];
    for enforcer in known.into_iter().chain(["kernel/src/a.rs", "cargo xtask sim --crowd", "xtask sim"]) {
        assert!(!missing(enforcer), "{enforcer}");
    }
    for enforcer in [
        "Mentioned",
        "comment",
        "commented",
        "local",
        "Called",
        "Per",
        "adv_04",
        "b.rs",
        "cargo xtask simulate",
        "cargo xtask",
        "Permit::mint",
        "",
    ] {
        assert!(missing(enforcer), "{enforcer}");
    }
}

#[test]
fn cargo_deny_allows_and_bans_what_tidy_does() {
    let text = fs::read_to_string(crate::root().join("deny.toml")).expect("deny.toml");
    for name in packages::LICENCES.iter().chain(packages::BANNED) {
        assert!(text.contains(&format!("  \"{name}\",\n")), "{name} is not in deny.toml");
    }
    assert_eq!(text.matches("  \"").count(), packages::LICENCES.len() + packages::BANNED.len());
}

#[test]
fn a_place_of_this_machine_is_found() {
    let root = tempfile::tempdir().expect("a folder");
    let here = root.path().display().to_string();
    fs::write(root.path().join("note.md"), format!("built in {here}/x\n")).expect("a file");
    let (found, _) = findings(root.path());
    assert!(found.iter().any(|line| line.starts_with("note.md:1: names a place")), "{found:?}");
}

#[test]
fn what_is_in_order_is_not_found() {
    let cases: &[(&str, &str)] = &[
        ("crates/kernel/tests/a.rs", concat!("//! A.\n#[ign", "ore = \"run by adv_043, as its child\"]\n")),
        ("crates/kernel/src/a.rs", "//! A.\nstruct Database;\nstruct Baseline;\n"),
        ("crates/sandbox/src/a.rs", concat!("//! A.\n#![expect(unsafe", "_code, reason = \"x\")]\n")),
        ("crates/microvm/src/lib.rs", concat!("//! A.\n#![expect(unsafe", "_code, reason = \"x\")]\n")),
        (
            "crates/policy/Cargo.toml",
            "[lints]\nworkspace = true\n[dev-dependencies]\nregent-testkit.workspace = true\n",
        ),
        ("docs/adr/0001-one.md", "# One\n\n**Enforced by:** a test\n\n"),
        (
            "crates/kernel/src/a.rs",
            "//! A.\n#[cfg(test)]\nmod tests {\n    fn f() {\n        TcpStream::connect(a);\n    }\n}\n",
        ),
        ("crates/policy/src/body/rego.rs", "//! A.\nengine: Mutex<u8>,\n"),
        ("crates/egress/src/reach.rs", "//! A.\nTcpStream::connect(address);\n"),
        ("crates/vault/src/a.rs", "//! A.\nstd::fs::write(path, text);\n"),
        ("crates/policy/src/a.rs", "//! A.\nuse std::{collections::{BTreeMap, BTreeSet}, time::Duration};\n"),
        ("crates/policy/src/lint.rs", "//! A.\nvisit: &mut dyn FnMut(&Clause),\n"),
        (
            "crates/sandbox/src/cgroup.rs",
            "//! A.\nstatic IDLE: Mutex<Vec<Group>> = Mutex::new(Vec::new());\n",
        ),
    ];
    for (file, text) in cases {
        assert_eq!(findings_in(file, text), Vec::<String>::new(), "{file}");
    }
}

#[test]
fn lines_of_code_leave_out_blanks_comments_and_tests() {
    let text = "//! A.\n\nfn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {\n    }\n}\n\nfn h() {}\n";
    assert_eq!(code_lines(text), 2);
    assert_eq!(code_lines("#[cfg(test)]\nmod tests;\nfn f() {}\n"), 3);
}

#[test]
fn names_are_read_from_declarations() {
    assert_eq!(declared("pub(crate) struct SessionInfo<'a> {"), Some("SessionInfo"));
    assert_eq!(declared("let info = 3;"), None);
    assert_eq!(declared("type Data = u8;"), Some("Data"));
    assert_eq!(declared("    type Data = u8;"), None);
    assert_eq!(banned_word("SessionInfo").as_deref(), Some("Info"));
    assert_eq!(banned_word("Information"), None);
}
