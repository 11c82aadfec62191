//! The workspace against real files, links and races.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use regent_ledger::Digest;
use rustix::fs::{CWD, RenameFlags};

use super::*;

mod trees;
mod turns;

/// A workspace at `<tmp>/ws` beside `<tmp>/outside/secret`, both real.
struct WorkspaceFixture {
    tmp: tempfile::TempDir,
    workspace: Workspace,
}

impl WorkspaceFixture {
    fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        fs::create_dir_all(tmp.path().join("ws/sub/deep")).unwrap();
        fs::create_dir_all(tmp.path().join("ws/.git/hooks")).unwrap();
        fs::create_dir_all(tmp.path().join("outside")).unwrap();
        fs::write(tmp.path().join("ws/file"), "inside").unwrap();
        fs::write(tmp.path().join("ws/sub/deep/file"), "deep").unwrap();
        fs::write(tmp.path().join("outside/secret"), "secret").unwrap();
        let workspace = Workspace::open(&tmp.path().join("ws")).unwrap();
        Self { tmp, workspace }
    }

    /// The canonical path of something beside the workspace.
    fn beside(&self, name: &str) -> String {
        let root = self.workspace.root().parent().unwrap();
        root.join(name).to_str().unwrap().to_owned()
    }

    fn link(&self, target: impl AsRef<Path>, name: &str) {
        symlink(target, self.workspace.root().join(name)).unwrap();
    }

    /// How a path resolves, with the outer folder's random name replaced by `TMP`.
    fn resolve(&self, text: &str) -> String {
        let outer = self.beside("");
        let outer = outer.trim_end_matches('/');
        match self.workspace.resolve(&text.replace("TMP", outer)) {
            Ok(spelling) => spelling.replace(outer, "TMP"),
            Err(error) => format!("! {}", error.code()),
        }
    }

    fn read(&self, text: &str) -> Result<String, PathError> {
        let mut content = String::new();
        self.workspace.open_read(text)?.read_to_string(&mut content).unwrap();
        Ok(content)
    }

    fn names_in(&self, folder: &str) -> Vec<String> {
        let listing = self.workspace.list(folder, 1000).unwrap();
        listing.items.iter().map(|item| escape_name(&item.name)).collect()
    }
}

#[test]
fn adv_016_every_spelling_resolves_to_one() {
    let place = WorkspaceFixture::new();
    let cases = [
        (".", "."),
        ("./", "."),
        ("file", "file"),
        ("./file", "file"),
        (".//sub///deep/./file", "sub/deep/file"),
        ("sub/../file", "file"),
        ("sub/deep/../../file", "file"),
        ("sub/", "sub"),
        ("new", "new"),
        ("new/er/est", "new/er/est"),
        ("TMP/ws/file", "file"),
        ("TMP/ws", "."),
        ("TMP/ws/../ws/file", "file"),
        ("../ws/file", "file"),
        ("../outside/secret", "TMP/outside/secret"),
        ("sub/../../outside/secret", "TMP/outside/secret"),
        ("TMP/outside/secret", "TMP/outside/secret"),
        ("//etc//passwd", "/etc/passwd"),
        ("/etc/./passwd", "/etc/passwd"),
        ("/../../etc/passwd", "/etc/passwd"),
        ("../../../../../../../../../../etc/passwd", "/etc/passwd"),
        ("TMP/ws-not/x", "TMP/ws-not/x"),
        ("%2e%2e/outside/secret", "%2e%2e/outside/secret"),
        ("..%2f..", "..%2f.."),
        ("file.", "file."),
        ("...", "..."),
        ("~/.ssh/id_rsa", "~/.ssh/id_rsa"),
        // What a sloppy decoder makes of the overlong form of `..` is not two dots.
        ("\u{fffd}\u{fffd}/x", "\u{fffd}\u{fffd}/x"),
        ("new/../file", "! fs.not_found"),
        ("file/x", "! fs.not_folder"),
        ("file/../file", "! fs.not_folder"),
        ("", "! path.invalid"),
    ];
    for (text, expected) in cases {
        assert_eq!(place.resolve(text), expected, "for {text:?}");
    }
    assert_eq!(place.workspace.open_read("%2e%2e/outside/secret").unwrap_err(), PathError::NotFound);
}

#[test]
fn adv_009_odd_names_are_refused_or_shown_escaped() {
    let place = WorkspaceFixture::new();
    for name in ["a\0b", "a\nb", "a\u{1b}[31mb", "a\u{85}b", &"x".repeat(256), &"x/".repeat(2048)] {
        assert_eq!(place.resolve(name), "! path.invalid", "for {name:?}");
    }
    assert_eq!(place.resolve(&"é".repeat(127)), "é".repeat(127));
    for name in [&b"bad\xff\xfe"[..], b"two\nlines", b"\x1b]0;title\x07", "\u{202e}txt.exe".as_bytes()] {
        fs::write(place.workspace.root().join(OsStr::from_bytes(name)), "").unwrap();
    }
    let expected = [
        "\\u{1b}]0;title\\u{7}",
        ".git",
        "bad\\xff\\xfe",
        "file",
        "sub",
        "two\\u{a}lines",
        "\\u{202e}txt.exe",
    ];
    assert_eq!(place.names_in("."), expected);
    place.link(OsStr::from_bytes(b"bad\xff\xfe"), "to-bad");
    assert_eq!(place.workspace.resolve("to-bad"), Err(PathError::NotText));
}

#[test]
fn adv_017_links_resolve_to_where_they_lead() {
    let place = WorkspaceFixture::new();
    place.link("/etc/passwd", "passwd");
    place.link("../outside", "out");
    place.link(place.beside("outside"), "out-absolute");
    place.link(".git/hooks", "innocent");
    place.link(place.beside("ws/sub"), "in-absolute");
    place.link("sub/deep", "twice");
    place.link("nowhere/yet", "dangling");
    place.link("loop-b", "loop-a");
    place.link("loop-a", "loop-b");
    place.link("chain-0", "chain-start");
    for i in 0..41 {
        place.link(format!("chain-{}", i + 1), &format!("chain-{i}"));
    }
    place.link("file", "chain-41");
    let cases = [
        ("passwd", "/etc/passwd"),
        ("out/secret", "TMP/outside/secret"),
        ("out-absolute/secret", "TMP/outside/secret"),
        ("innocent/pre-commit", ".git/hooks/pre-commit"),
        ("in-absolute/deep/file", "sub/deep/file"),
        ("twice/../../file", "file"),
        ("twice/file", "sub/deep/file"),
        ("out/../ws/file", "file"),
        ("dangling/x", "nowhere/yet/x"),
        ("loop-a", "! path.links"),
        ("loop-a/x", "! path.links"),
        ("chain-start", "! path.links"),
        ("chain-3", "file"),
    ];
    for (text, expected) in cases {
        assert_eq!(place.resolve(text), expected, "for {text:?}");
    }
    // What was not resolved is not opened, whatever it is.
    for text in ["passwd", "out/secret", "innocent/x", "loop-a", "chain-3"] {
        assert_eq!(place.workspace.open_read(text).unwrap_err(), PathError::Swapped, "for {text:?}");
    }
    for text in ["../outside/secret", "sub/../file", "./file", "sub//deep", "/etc/../etc/passwd"] {
        assert_eq!(place.workspace.open_read(text).unwrap_err(), PathError::NotResolved, "for {text:?}");
    }
}

/// Ends the other thread also when an assertion fails; a scope would wait for it for ever.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn adv_018_a_link_swapped_in_after_judging_is_never_followed() {
    const ATTEMPTS: u32 = 100_000;
    let place = WorkspaceFixture::new();
    let root = place.workspace.root().to_owned();
    fs::create_dir(root.join("swap")).unwrap();
    fs::write(root.join("swap/secret"), "harmless").unwrap();
    symlink(place.beside("outside"), root.join("evil")).unwrap();
    let stop = AtomicBool::new(false);
    let (mut reads, mut refusals) = (0_u32, 0_u32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let (a, b) = (root.join("swap"), root.join("evil"));
                rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let _ending = Ending(&stop);
        let mut content = String::new();
        for attempt in 0..ATTEMPTS {
            content.clear();
            // Judged as `swap/secret` inside; used at once, again and again.
            match place.workspace.open_read("swap/secret") {
                Ok(mut file) => {
                    file.read_to_string(&mut content).unwrap();
                    assert_eq!(content, "harmless", "attempt {attempt} got out");
                    reads += 1;
                }
                Err(PathError::Swapped | PathError::NotFound) => refusals += 1,
                Err(error) => panic!("attempt {attempt}: {error}"),
            }
            if attempt % 50 == 0 {
                // Writing goes by the same rule; only ever the harmless folder gets the file.
                place.workspace.place("swap/note", b"x", Placement::Replace).ok();
            }
        }
    });
    assert_eq!(reads + refusals, ATTEMPTS);
    assert!(reads > 0 && refusals > 0, "the race was never on: {reads} reads, {refusals} refusals");
    let outside: Vec<_> = fs::read_dir(place.beside("outside")).unwrap().collect();
    assert_eq!(outside.len(), 1, "something was written outside");
}

#[test]
fn adv_019_a_planted_link_does_not_move_a_write() {
    let place = WorkspaceFixture::new();
    let workspace = &place.workspace;
    let judged = [workspace.resolve("sub/report").unwrap(), workspace.resolve("plain").unwrap()];
    assert_eq!(judged, ["sub/report", "plain"]);
    fs::rename(workspace.root().join("sub"), workspace.root().join("moved")).unwrap();
    place.link(place.beside("outside"), "sub");
    place.link(place.beside("outside/planted"), "plain");
    for path in &judged {
        for how in [Placement::Create, Placement::Replace] {
            assert_eq!(workspace.place(path, b"x", how), Err(PathError::Swapped), "{path}");
        }
        assert_eq!(workspace.append(path, b"x", None, u64::MAX), Err(PathError::Swapped), "{path}");
        assert_eq!(workspace.remove(path), Err(PathError::Swapped), "{path}");
    }
    assert_eq!(fs::read_dir(place.beside("outside")).unwrap().count(), 1);
}

#[test]
fn adv_020_hard_links_magic_links_and_special_files_are_refused() {
    let place = WorkspaceFixture::new();
    let (workspace, root) = (&place.workspace, place.workspace.root().to_owned());
    fs::hard_link(place.beside("outside/secret"), root.join("twin")).unwrap();
    assert_eq!(place.read("twin"), Err(PathError::HardLink));
    assert_eq!(workspace.append("twin", b"x", None, u64::MAX), Err(PathError::HardLink));
    assert_eq!(workspace.place("twin", b"x", Placement::Replace), Err(PathError::HardLink));
    assert_eq!(fs::read_to_string(place.beside("outside/secret")).unwrap(), "secret");

    let own = std::process::id();
    for text in ["/proc/self/root/etc/passwd", "/proc/self/cwd", "/proc/self/fd/0", "/dev/fd/0", "/dev/stdin"]
    {
        assert_eq!(place.resolve(text), "! path.magic_link", "for {text}");
        place.link(text, "door");
        assert_eq!(place.resolve("door"), "! path.magic_link", "for {text}");
        fs::remove_file(root.join("door")).unwrap();
    }
    assert_eq!(place.resolve("/proc/self/status"), format!("/proc/{own}/status"));
    assert_eq!(workspace.open_read("/proc/self/status").unwrap_err(), PathError::Swapped);
    assert_eq!(workspace.open_read("/dev/null").unwrap_err(), PathError::Special);

    rustix::fs::mkfifoat(CWD, root.join("fifo"), Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(place.read("fifo"), Err(PathError::Special));
    assert_eq!(workspace.append("fifo", b"x", None, u64::MAX), Err(PathError::Special));
    let _listener = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    assert_eq!(place.read("socket"), Err(PathError::Special));
    assert_eq!(place.read("sub"), Err(PathError::IsFolder));
}

#[test]
fn adv_020_another_mount_inside_is_refused() {
    // `/proc` is a mount of its own on every Linux, and `/` a workspace that has it inside.
    let workspace = Workspace::open(Path::new("/")).unwrap();
    assert_eq!(workspace.resolve("/proc/version").unwrap(), "proc/version");
    assert_eq!(workspace.open_read("proc/version").unwrap_err(), PathError::OtherMount);
    assert_eq!(workspace.resolve("..").unwrap(), ".");
    assert_eq!(workspace.resolve("/").unwrap(), ".");
}

#[test]
fn a_workspace_that_was_moved_is_still_the_same_folder() {
    let place = WorkspaceFixture::new();
    let outer = place.tmp.path();
    fs::rename(outer.join("ws"), outer.join("elsewhere")).unwrap();
    fs::create_dir(outer.join("ws")).unwrap();
    fs::write(outer.join("ws/file"), "another").unwrap();
    assert_eq!(place.resolve("file"), "file");
    assert_eq!(place.read("file").unwrap(), "inside");
    // What has taken its old place is outside.
    assert_eq!(place.resolve("TMP/ws/file"), "TMP/ws/file");
}

#[test]
fn a_write_is_whole_keeps_the_mode_and_leaves_no_litter() {
    let place = WorkspaceFixture::new();
    let workspace = &place.workspace;
    let path = workspace.root().join("file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4750)).unwrap();
    let written = workspace.place("file", b"new", Placement::Replace).unwrap();
    assert_eq!(written, Written { created: false, bytes: 3 });
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(workspace.place("file", b"x", Placement::Create), Err(PathError::Exists));
    assert_eq!(workspace.place("sub", b"x", Placement::Replace), Err(PathError::IsFolder));
    assert_eq!(workspace.place(".", b"x", Placement::Replace), Err(PathError::IsFolder));
    assert_eq!(workspace.place("file/x", b"x", Placement::Create), Err(PathError::NotFolder));
    assert!(workspace.place("a/b/c", b"made", Placement::Create).unwrap().created);
    assert_eq!(place.read("a/b/c").unwrap(), "made");
    let seen = |content: &[u8]| Some(Digest::compute(content));
    let append = |seen: Option<Digest>| workspace.append("a/b/c", b" more", seen.as_ref(), u64::MAX);
    assert_eq!(append(seen(b"other")), Err(PathError::Changed));
    assert_eq!(append(seen(b"made")), Ok(Written { created: false, bytes: 5 }));
    assert_eq!(place.read("a/b/c").unwrap(), "made more");
    workspace.remove("a/b/c").unwrap();
    assert_eq!(workspace.remove("a/b/c"), Err(PathError::NotFound));
    assert_eq!(place.names_in("."), [".git", "a", "file", "sub"]);
    assert_eq!(place.names_in("a/b"), Vec::<String>::new());
}

#[test]
fn a_listing_stops_where_it_is_told_to_and_says_so() {
    let place = WorkspaceFixture::new();
    let listing = place.workspace.list(".", 2).unwrap();
    assert_eq!((listing.items.len(), listing.more), (2, true));
    assert!(!place.workspace.list(".", 3).unwrap().more);
    assert_eq!(place.workspace.list("file", 3), Err(PathError::NotFolder));
}

fn digest(workspace: &Workspace, name: &str) -> Option<Digest> {
    workspace.content(name).unwrap().map(|content| content.digest)
}

fn entry(workspace: &Workspace, name: &str) -> Result<NamedEntry, PathError> {
    workspace.named_entry(name.as_bytes(), &mut 100_000)
}

/// The file that a name leads to, and what it holds.
fn file(workspace: &Workspace, name: &str) -> (Vec<u8>, Digest) {
    match entry(workspace, name) {
        Ok(NamedEntry::File(file)) => (file.spelling.clone(), workspace.file_digest(&file).unwrap()),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn h3_names_and_links_of_any_bytes_lead_to_their_files() {
    use std::os::unix::ffi::OsStrExt;

    let place = WorkspaceFixture::new();
    let root = place.workspace.root();
    let odd = std::ffi::OsStr::from_bytes(b"d\xff");
    fs::create_dir(root.join(odd)).unwrap();
    fs::write(root.join(odd).join("real.sh"), "odd").unwrap();
    fs::write(root.join("a\tb.sh"), "tab").unwrap();
    std::os::unix::fs::symlink(std::path::Path::new(odd).join("real.sh"), root.join("deploy.sh")).unwrap();
    assert_eq!(file(&place.workspace, "a\tb.sh"), (b"a\tb.sh".to_vec(), Digest::compute(b"tab")));
    assert_eq!(file(&place.workspace, "deploy.sh"), (b"d\xff/real.sh".to_vec(), Digest::compute(b"odd")));
    assert_eq!(entry(&place.workspace, "a\nb.sh"), Ok(NamedEntry::Absent));
    assert_eq!(place.workspace.resolve("a\tb.sh"), Err(PathError::Control));
    assert_eq!(place.workspace.resolve("deploy.sh"), Err(PathError::NotText));
}

#[test]
fn a_large_file_is_the_same_under_another_name_and_mode() {
    let place = WorkspaceFixture::new();
    let root = place.workspace.root();
    fs::write(root.join("large"), vec![b'x'; (8 << 20) + 10]).unwrap();
    let before = digest(&place.workspace, "large");
    fs::set_permissions(root.join("large"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(root.join("large"), root.join("moved")).unwrap();
    fs::copy(root.join("moved"), root.join("copied")).unwrap();
    assert_eq!((digest(&place.workspace, "moved"), digest(&place.workspace, "copied")), (before, before));
    fs::write(root.join("copied"), vec![b'x'; (8 << 20) + 11]).unwrap();
    assert_ne!(digest(&place.workspace, "copied"), before);
}

#[test]
fn h3_a_chain_of_links_with_many_dots_leads_to_its_file() {
    let place = WorkspaceFixture::new();
    fs::create_dir(place.workspace.root().join("real")).unwrap();
    fs::write(place.workspace.root().join("real/deploy.sh"), "real").unwrap();
    let dots = "/.".repeat(2_030);
    place.link("real", "c");
    place.link(format!("c{dots}"), "b");
    place.link(format!("b{dots}"), "a");
    place.link(format!("a{dots}/deploy.sh"), "x");
    assert_eq!(fs::read(place.workspace.root().join("x")).unwrap(), b"real", "Linux follows it");
    assert_eq!(file(&place.workspace, "x"), (b"real/deploy.sh".to_vec(), Digest::compute(b"real")));
    // More names than are followed is no reason to call the file absent.
    let back = "/../real".repeat(500);
    for (name, first) in [("p", "real"), ("q", "p"), ("r", "q"), ("s", "r"), ("t", "s")] {
        place.link(format!("{first}{back}"), name);
    }
    fs::write(place.workspace.root().join("t/made"), "there").unwrap();
    assert_eq!(entry(&place.workspace, "t/made"), Err(PathError::TooManyNames));
    assert_eq!(place.workspace.named_entry(b"sub/../file", &mut 2), Err(PathError::TooManyNames));
    assert_eq!(place.workspace.resolve("real/deploy.sh/."), Err(PathError::NotFolder));
}

#[test]
fn h3_what_cannot_be_bound_is_an_error() {
    let place = WorkspaceFixture::new();
    let root = place.workspace.root();
    rustix::fs::mknodat(CWD, root.join("fifo"), rustix::fs::FileType::Fifo, Mode::from(0o600), 0).unwrap();
    place.link("loop", "loop");
    let _socket = std::os::unix::net::UnixListener::bind(root.join("sock")).unwrap();
    let entry = |name: &str| entry(&place.workspace, name);
    assert_eq!(entry("fifo"), Err(PathError::Special));
    assert_eq!(entry("loop"), Err(PathError::Links));
    for name in ["/proc/self/cwd/file", "/proc/self/cwd", "/proc/self", "/proc/99999999/root/x", "/dev/fd/9"]
    {
        assert_eq!(entry(name), Err(PathError::MagicLink), "{name}");
    }
    for name in ["/dev/stdin", "/dev/fd/2", "sock", "file/x", &"x".repeat(300), "nul\0"] {
        assert_eq!(entry(name), Ok(NamedEntry::Absent), "{name}");
    }
    for name in ["/dev/null", "/proc/meminfo", "/etc/passwd"] {
        assert_eq!(entry(name), Ok(NamedEntry::Outside(name.as_bytes().to_vec())), "{name}");
    }
    assert_eq!(
        entry(".."),
        Ok(NamedEntry::Folder(root.parent().unwrap().as_os_str().as_encoded_bytes().to_vec()))
    );
    let error = place.workspace.tree_digest().unwrap_err();
    assert_eq!((error.name.as_str(), error.why), ("fifo", PathError::Special));
}

#[test]
fn h3_a_descriptor_that_is_closed_meanwhile_is_still_a_magic_link() {
    let place = WorkspaceFixture::new();
    let (done, file) = (std::sync::atomic::AtomicBool::new(false), fs::File::open("/dev/null").unwrap());
    // Far above what other tests open.
    let fd = rustix::io::fcntl_dupfd_cloexec(&file, 700).unwrap();
    let name = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    drop(fd);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                drop(rustix::io::fcntl_dupfd_cloexec(&file, 700).unwrap());
            }
        });
        let found = (0..20_000).find_map(|_| {
            Some(entry(&place.workspace, &name)).filter(|found| *found != Err(PathError::MagicLink))
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(found, None);
    });
}

#[test]
fn h3_any_change_in_the_workspace_changes_the_digest_of_its_tree() {
    let place = WorkspaceFixture::new();
    let (workspace, root) = (&place.workspace, place.workspace.root());
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::write(root.join("deep/er/x.sh"), "one").unwrap();
    fs::create_dir_all(root.join(".regent/audit")).unwrap();
    let mut before = workspace.tree_digest().unwrap();
    fs::write(root.join(".regent/audit/lane"), "an entry").unwrap();
    assert_eq!(workspace.tree_digest().unwrap(), before, "Regent's own files don't count");
    let mut changed = |what: &str| {
        let now = workspace.tree_digest().unwrap();
        assert_ne!(now, before, "{what}");
        before = now;
    };
    fs::write(root.join("deep/er/x.sh"), "longer").unwrap();
    changed("content");
    fs::rename(root.join("deep/er/x.sh"), root.join("deep/x.sh")).unwrap();
    changed("a rename");
    fs::write(root.join("deep/new"), "").unwrap();
    changed("a new file");
    fs::set_permissions(root.join("deep/new"), fs::Permissions::from_mode(0o755)).unwrap();
    changed("a mode");
    fs::remove_file(root.join("deep/new")).unwrap();
    changed("a removal");
}

#[test]
fn the_digest_follows_the_content_and_never_leaves_the_workspace() {
    let place = WorkspaceFixture::new();
    let workspace = &place.workspace;
    place.link(place.beside("outside/secret"), "out");
    place.link(place.beside("ws/file"), "in");
    let before = digest(workspace, "file");
    assert_eq!(before, Some(Digest::compute(b"inside")));
    assert_eq!(digest(workspace, "./in"), before);
    assert_eq!(digest(workspace, &place.beside("ws/file")), before);
    for word in ["", "-c", "nothing", "sub", "out", "/etc/passwd", "../outside/secret", "a\nb", "echo hi > x"]
    {
        assert_eq!(digest(workspace, word), None, "for {word:?}");
    }
    workspace.place("file", b"other", Placement::Replace).unwrap();
    assert_ne!(digest(workspace, "file"), before);
    let big = fs::File::create(workspace.root().join("big")).unwrap();
    big.set_len(crate::content::DIGEST_BYTES_MAX + 1).unwrap();
    let before = digest(workspace, "big");
    big.set_len(crate::content::DIGEST_BYTES_MAX + 2).unwrap();
    assert!(before.is_some() && digest(workspace, "big") != before);
}

/// Names that collide often, so that random paths hit random links.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("..".to_owned()),
        Just(".".to_owned()),
        Just(String::new()),
        Just("a".to_owned()),
        Just("b".to_owned()),
        Just("l0".to_owned()),
        Just("l1".to_owned()),
        Just("l2".to_owned()),
        Just("outside".to_owned()),
        Just("secret".to_owned()),
        Just("ws".to_owned()),
        "\\PC{1,8}",
    ]
}

fn path() -> impl Strategy<Value = String> {
    (any::<bool>(), prop::collection::vec(name(), 1..8))
        .prop_map(|(absolute, names)| format!("{}{}", if absolute { "/" } else { "" }, names.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn resolving_and_opening_agree_and_stay_inside(links in prop::collection::vec(path(), 3), asked in prop::collection::vec(path(), 8)) {
        let place = WorkspaceFixture::new();
        let root = place.workspace.root().to_owned();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/secret"), "inside").unwrap();
        for (i, target) in links.iter().enumerate() {
            // Targets that Linux itself refuses make no link; the names then are missing, which is a case too.
            symlink(target.replace("/ws", root.to_str().unwrap()), root.join(format!("l{i}"))).ok();
            symlink(target, root.join(format!("a/l{i}"))).ok();
        }
        for text in &asked {
            let Ok(spelling) = place.workspace.resolve(text) else { continue };
            // The spelling is a fixed point, and the same as Linux's own where the thing exists.
            prop_assert_eq!(place.workspace.resolve(&spelling), Ok(spelling.clone()));
            if let Ok(real) = fs::canonicalize(root.join(text)) {
                let expected = match real.strip_prefix(&root) {
                    Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
                    Ok(below) => below.to_str().unwrap().to_owned(),
                    Err(_) => real.to_str().unwrap().to_owned(),
                };
                prop_assert_eq!(&spelling, &expected);
            }
            prop_assert!(spelling.starts_with('/') || spelling.split('/').all(|name| name != ".." && !name.is_empty()));
            if !spelling.starts_with('/') && let Ok(mut file) = place.workspace.open_read(&spelling) {
                let mut content = String::new();
                file.read_to_string(&mut content).unwrap();
                prop_assert!(content == "inside" || content == "deep", "{} led to {:?}", text, content);
            }
        }
    }
}

#[test]
fn h1_regents_own_folder_is_out_of_reach() {
    let place = WorkspaceFixture::new();
    let root = place.workspace.root();
    fs::create_dir_all(root.join(".regent/audit")).unwrap();
    fs::create_dir_all(root.join("sub/.regent")).unwrap();
    fs::write(root.join(".regent/audit/x"), "ledger").unwrap();
    place.link(".regent/audit/x", "innocent");
    for text in [
        ".regent/audit/x",
        ".regent",
        "sub/.regent/y",
        ".REGENT/audit/x",
        "innocent",
        "./sub/../.regent/audit/x",
    ] {
        let spelling = place.workspace.resolve(text).unwrap();
        assert!(place.workspace.is_reserved(&spelling), "{text} is {spelling}");
        let workspace = &place.workspace;
        let refused = [
            workspace.open_read(&spelling).err(),
            workspace.stat(&spelling).err(),
            workspace.list(&spelling, 10).err(),
            workspace.place(&spelling, b"x", Placement::Replace).err(),
            workspace.append(&spelling, b"x", None, u64::MAX).err(),
            workspace.remove(&spelling).err(),
        ];
        assert_eq!(refused, [const { Some(PathError::Reserved) }; 6], "{text}");
        assert!(!matches!(workspace.content(&spelling), Ok(Some(_))), "{text}");
    }
    for folder in [".", "sub"] {
        let listed = place.workspace.list(folder, 100).unwrap();
        assert!(
            !listed.items.is_empty() && !listed.items.iter().any(|item| item.name == b".regent"),
            "{listed:?}"
        );
    }
    assert_eq!(fs::read_to_string(root.join(".regent/audit/x")).unwrap(), "ledger");
}

#[test]
fn c3_folders_of_regents_own_are_out_of_reach() {
    let place = WorkspaceFixture::new();
    let outside = PathBuf::from(place.beside("outside"));
    let own = OwnFolders::resolve([outside.clone(), outside.join("not/there/yet")], None).unwrap();
    let workspace = Workspace::with_own(place.workspace.root(), own).unwrap();
    assert_eq!(workspace.own_folders(), [outside.clone(), outside.join("not/there/yet")]);
    let secret = workspace.resolve(&place.beside("outside/secret")).unwrap();
    assert_eq!(workspace.open_read(&secret).unwrap_err(), PathError::Reserved);
    assert_eq!(workspace.list(&place.beside("outside"), 9).unwrap_err(), PathError::Reserved);
    assert!(workspace.is_reserved(&place.beside("OUTSIDE/secret")), "on a file system that folds case");
    assert!(!workspace.is_reserved(&place.beside("outsider")));
    assert!(workspace.open_read("file").is_ok());
}

#[test]
fn c3_a_workspace_lies_apart_from_home_and_from_regents_own() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().canonicalize().unwrap();
    let at = |name: &str| root.join(name);
    for folder in ["home/.config/regent", "home/project/sub", "home/.local", "other"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    symlink(at("home"), at("link-to-home")).unwrap();
    symlink(at("home/.config/regent"), at("link-to-own")).unwrap();
    fs::create_dir_all(at("home/.config/regent/inner")).unwrap();
    let own = [at("home/.config/regent"), at("home/.local/state/regent")];
    let own = OwnFolders::resolve(own, Some(at("link-to-home"))).unwrap();
    let word = |name: &str| match own.check(&at(name)) {
        Ok(()) => "fine",
        Err(Overlap::Root) => "root",
        Err(Overlap::AroundHome(_)) => "around home",
        Err(Overlap::AroundOwn(_)) => "around own",
        Err(Overlap::InOwn(_)) => "in own",
        Err(Overlap::Unknown { .. }) => "unknown",
    };
    let cases = [
        ("home/project", "fine"),
        ("home/project/sub", "fine"),
        ("link-to-home/project", "fine"),
        ("other", "fine"),
        ("home", "around own"),
        ("link-to-home", "around own"),
        ("", "around own"),
        ("home/.config", "around own"),
        ("home/.config/regent", "around own"),
        ("home/.config/regent/inner", "in own"),
        ("link-to-own", "around own"),
        ("link-to-own/inner", "in own"),
        // It doesn't exist yet, and would be made inside.
        ("home/.local", "around own"),
    ];
    for (name, expected) in cases {
        assert_eq!(word(name), expected, "{name:?}");
    }
    assert!(matches!(own.check(Path::new("/")), Err(Overlap::Root)));
    let home_alone = OwnFolders::resolve([], Some(at("home"))).unwrap();
    assert!(matches!(home_alone.check(&root), Err(Overlap::AroundHome(_))));
    assert!(matches!(home_alone.check(&at("home")), Err(Overlap::AroundHome(_))));
    assert!(home_alone.check(&at("home/.config")).is_ok());
}

#[test]
fn c3_only_absent_means_absent() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().canonicalize().unwrap();
    fs::write(root.join("file"), "").unwrap();
    symlink(root.join("nowhere"), root.join("dangling")).unwrap();
    symlink(root.join("circle"), root.join("circle")).unwrap();
    for odd in ["file/regent", "dangling/regent", "dangling", "circle/regent"] {
        let found = OwnFolders::resolve([root.join(odd)], None);
        assert!(matches!(found, Err(Overlap::Unknown { .. })), "{odd}: {found:?}");
    }
    assert!(OwnFolders::resolve([root.join("a/b/c")], None).is_ok());
    let own = OwnFolders::resolve([root.join("a/b/c")], None).unwrap();
    assert!(own.check(&root.join("absent")).is_err(), "a workspace that isn't there");
}

#[test]
fn h5_writes_that_complete_a_bare_repository_are_seen() {
    let place = WorkspaceFixture::new();
    let (workspace, root) = (&place.workspace, place.workspace.root());
    for path in [
        "HEAD",
        "objects/.keep",
        "refs/heads/.keep",
        "config",
        "sub/HEAD",
        "sub/deep/file",
        "a/objects/b/refs/c",
    ] {
        assert!(!workspace.completes_repository(path), "{path} alone");
    }
    fs::create_dir_all(root.join("objects")).unwrap();
    fs::write(root.join("HEAD"), "ref: refs/heads/x").unwrap();
    for (path, completes) in [
        ("refs/heads/.keep", true),
        ("refs", true),
        ("REFS/x", true),
        ("config", false),
        ("notes", false),
        ("sub/refs/x", false),
        ("commondir", true),
    ] {
        assert_eq!(workspace.completes_repository(path), completes, "{path}");
    }
    fs::create_dir_all(root.join("refs")).unwrap();
    for (path, completes) in [
        ("config", true),
        ("hooks/pre-commit", true),
        ("HEAD", true),
        ("README.md", false),
        ("sub/config", false),
    ] {
        assert_eq!(workspace.completes_repository(path), completes, "{path}");
    }
    // A link can be turned to anything later.
    symlink("/nowhere", root.join("sub/objects")).unwrap();
    symlink("/nowhere", root.join("sub/refs")).unwrap();
    assert!(workspace.completes_repository("sub/HEAD"));
    let outside = place.beside("outside");
    fs::create_dir_all(format!("{outside}/objects")).unwrap();
    fs::create_dir_all(format!("{outside}/refs")).unwrap();
    assert!(workspace.completes_repository(&format!("{outside}/HEAD")));
    assert!(!workspace.completes_repository(&format!("{outside}/secret")));
}

#[test]
fn a_call_that_was_told_to_stop_changes_nothing_more() {
    let place = WorkspaceFixture::new();
    let (root, limits) = (place.workspace.root(), TreeLimits { entries_max: 100, bytes_max: 1 << 20 });
    let stop = StopFlag::default();
    let stopped = place.workspace.stopped_by(&stop);
    let (file, folder) = (stopped.survey("file", limits).unwrap(), stopped.survey("sub", limits).unwrap());
    stop.pull();
    let why = |error: TreeError| error.why;
    let ends = [
        stopped.place("new", b"x", Placement::Create).err(),
        stopped.place("made/new", b"x", Placement::Create).err(),
        stopped.place("file", b"x", Placement::Replace).err(),
        stopped.append("file", b"x", None, u64::MAX).err(),
        stopped.make_folder("made", Missing::Refuse).err(),
        stopped.remove("file").err(),
        stopped.remove_tree(&folder).err().map(|error| why(error.cause)),
        stopped.rename_to(&file, "moved", Placement::Create).err().map(why),
        stopped.copy_tree(&file, "copied", Placement::Create, limits).err().map(why),
        stopped.copy_tree(&folder, "copied", Placement::Create, limits).err().map(why),
    ];
    assert!(ends.iter().all(|end| *end == Some(PathError::Stopped)), "{ends:?}");
    let mut names: Vec<String> =
        fs::read_dir(root).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [".git", "file", "sub"]);
    assert_eq!(place.read("file").unwrap(), "inside");
    place.workspace.place("file", b"others go on", Placement::Replace).unwrap();
}

#[test]
fn an_append_keeps_to_the_size_that_a_file_may_have() {
    let place = WorkspaceFixture::new();
    let append = || place.workspace.append("file", b"123", None, 10);
    assert_eq!(append(), Ok(Written { created: false, bytes: 3 }));
    assert_eq!(append(), Err(PathError::TooLarge { bytes_max: 10 }));
    assert_eq!(place.read("file").unwrap(), "inside123");
}

#[test]
fn adv_017_calls_side_by_side_make_no_repository_either() {
    let place = WorkspaceFixture::new();
    for round in 0..200 {
        let folder = format!("bare{round}");
        place.workspace.place(&format!("{folder}/HEAD"), b"ref: refs/heads/main", Placement::Create).unwrap();
        let barrier = std::sync::Barrier::new(2);
        let (workspace, folder, barrier) = (&place.workspace, &folder, &barrier);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                barrier.wait();
                workspace.make_folder(&format!("{folder}/refs"), Missing::Refuse).is_ok()
            });
            scope.spawn(move || {
                barrier.wait();
                let inner = format!("{folder}/objects/pack");
                match round % 2 {
                    0 => workspace.make_folder(&format!("{folder}/objects"), Missing::Refuse).is_ok(),
                    _ => workspace.place(&inner, b"x", Placement::Create).is_ok(),
                }
            });
        });
        let has = |name: &str| workspace.root().join(folder).join(name).exists();
        assert!(has("refs") != has("objects"), "{round}: {} {}", has("refs"), has("objects"));
    }
}
