//! Guarded files: what a program must not make, write or read, at any depth, not for a moment, and not after our death.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests run themselves again, inside and outside the sandbox"
)]

use std::fs;
use std::future::pending;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use regent_sandbox::{Bind, FinishedRun, SandboxError, Spec, WorkspaceMount, run};

use crate::hosts::{Copy, PART};
use crate::kit::{Work, failed, ok, out, sh_in};

/// Names that nobody has made yet, of every kind: Regent's, git's, an editor's, a shell's, a package manager's; and repositories.
const ABSENT: &[&str] = &[
    ".envrc",
    ".mcp.json",
    ".npmrc",
    ".gitmodules",
    ".gitattributes",
    ".bash_login",
    ".zprofile",
    ".inputrc",
    ".vimrc",
    ".exrc",
    "sub/.envrc",
    "sub/deep/.npmrc",
    ".git/commondir",
    ".git/config.worktree",
    ".git/modules",
    "sub/.git",
    "sub/deep/.git",
    ".vscode",
    "sub/.vscode",
    ".regent",
    ".ENVRC",
    ".Git/x",
    "inner/.git/commondir",
    "bare/hooks",
    "bare/commondir",
];

/// A repository at the top, one below it, a bare one, a worktree's pointer, and a folder on the way to a guarded file.
fn populated() -> Work {
    let work = Work::with_git();
    let root = work.path();
    for folder in [
        "sub/deep",
        ".cargo",
        "inner/.git/hooks",
        "inner/.git/objects/info",
        "bare/objects",
        "bare/refs",
        "tree",
        "half/objects",
        "half/refs",
    ] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (file, text) in [
        ("inner/.git/config", "[core]\n"),
        ("inner/.git/HEAD", "ref: refs/heads/main\n"),
        ("bare/HEAD", "ref: refs/heads/main\n"),
        ("bare/config", "[core]\n"),
        ("tree/.git", "gitdir: ../.git/worktrees/tree\n"),
        ("sub/.yarnrc", "mine\n"),
        ("plain", "plain\n"),
    ] {
        fs::write(root.join(file), text).unwrap();
    }
    work
}

/// Every path below a folder, with links not followed.
fn everything(root: &Path) -> Vec<PathBuf> {
    let mut list = Vec::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(folder) = left.pop() {
        // The program may be at work, and take away what was just listed.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
            list.push(entry.path());
        }
    }
    list.sort();
    list
}

#[track_caller]
fn nothing_guarded(work: &Work, before: &[PathBuf]) {
    let root = work.path();
    for path in everything(&root).into_iter().filter(|path| !before.contains(path)) {
        let below = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        assert!(!ABSENT.iter().any(|absent| below == *absent), "`{below}` is there");
    }
}

/// The script of H4: tries every absent name in every way that a shell has.
fn attack() -> String {
    let mut script = String::new();
    for name in ABSENT {
        for how in [
            format!("echo evil > '{name}'"),
            format!("mkdir -p '{name}'"),
            format!("ln -s plain '{name}'"),
            format!("ln plain '{name}'"),
            format!("cp plain '{name}'"),
            format!("cp plain aside; mv aside '{name}'"),
            format!("mkdir asides; mv asides '{name}'; rmdir asides"),
            format!("mkfifo '{name}'"),
            format!("ln -s '{name}' via; echo evil > via; rm -f via"),
            format!("echo evil > \"$PWD/sub/../{name}\""),
            format!("echo evil > \"/proc/self/cwd/{name}\""),
        ] {
            script.push_str(&format!("({how}) 2>/dev/null\n"));
        }
    }
    script.push_str("rm -f aside\n");
    script
}

#[tokio::test]
async fn h4_no_guarded_name_is_there_while_a_program_runs() {
    let work = populated();
    let before = everything(&work.path());
    let script = format!("{}\ntouch ready; sleep 1000", attack());
    let told = async {
        while !work.path().join("ready").exists() {
            nothing_guarded(&work, &before);
            tokio::task::yield_now().await;
        }
        nothing_guarded(&work, &before);
    };
    let ended = run(work.spec(["/bin/sh", "-c", script.as_str()]), told).await.unwrap();
    nothing_guarded(&work, &before);
    assert!(ended.planted.is_empty(), "{:?}", ended.planted);
    assert!(ended.refused.contains(&work.path().join(".envrc")), "{:?}", ended.refused);
    assert!(ended.refused_more > 0 && ended.refused.len() == 16);
}

#[test]
fn h4_no_guarded_name_stays_after_kill_9() {
    let work = populated();
    let before = everything(&work.path());
    let mut us = Command::new(std::env::current_exe().unwrap())
        .args(["--nocapture", "--exact", "guards::attacked_forever"])
        .env(PART, "attacked")
        .env("REGENT_TEST_WORK", work.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(us.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).find(|line| line.contains("attacking")).unwrap();
    us.kill().unwrap();
    us.wait().unwrap();
    nothing_guarded(&work, &before);
}

#[tokio::test]
async fn attacked_forever() {
    if !crate::hosts::playing("attacked") {
        return;
    }
    let work = PathBuf::from(std::env::var("REGENT_TEST_WORK").unwrap());
    let script = format!("while :; do {}\ntouch ready; done", attack());
    let mut spec = Spec::new(["/bin/sh", "-c", script.as_str()]);
    spec.workspace = Some(WorkspaceMount::new(&work, true));
    spec.cwd = work.clone();
    let told = async {
        while !work.join("ready").exists() {
            tokio::task::yield_now().await;
        }
        println!("attacking");
        pending::<()>().await;
    };
    run(spec, told).await.unwrap();
}

/// Runs a test of this program inside the sandbox.
pub(crate) async fn inside(work: &Work, part: &str) -> FinishedRun {
    let copy = Copy::new();
    let name = format!("guards::inside_{part}");
    let mut spec = work.spec([copy.path().to_str().unwrap(), "--nocapture", "--exact", name.as_str()]);
    spec.binds = vec![Bind::same(copy.path())];
    spec.env.push((PART.into(), part.into()));
    run(spec, pending()).await.unwrap()
}

#[tokio::test]
async fn h4_every_call_that_makes_a_name_is_refused() {
    let work = populated();
    let before = everything(&work.path());
    let ended = inside(&work, "calls").await;
    ok(&ended);
    assert!(out(&ended).contains("playing calls"), "{}", out(&ended));
    nothing_guarded(&work, &before);
    assert!(ended.planted.is_empty(), "{:?}", ended.planted);
}

type Attempts = Vec<(&'static str, Result<(), Errno>)>;

const MAKE: OFlags = OFlags::CREATE.union(OFlags::WRONLY);

fn mode() -> Mode {
    Mode::from_raw_mode(0o755)
}

fn by_number(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn open(path: impl rustix::path::Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags, mode())
}

fn folder(path: &str) -> OwnedFd {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY).unwrap()
}

fn openings(here: &OwnedFd, git: &OwnedFd) -> Attempts {
    vec![
        ("open", open(".envrc", MAKE).map(drop)),
        ("open excl", open(".envrc", MAKE | OFlags::EXCL).map(drop)),
        ("open to read", open(".envrc", OFlags::CREATE | OFlags::RDONLY).map(drop)),
        ("open at", rustix::fs::openat(here, "sub/.envrc", MAKE, mode()).map(drop)),
        ("open through a link", open("to-envrc", MAKE).map(drop)),
        ("open through a folder link", open("to-git/commondir", MAKE).map(drop)),
        ("open in git", rustix::fs::openat(git, "commondir", MAKE, mode()).map(drop)),
        ("open by number", open(format!("{}/commondir", by_number(git)), MAKE).map(drop)),
        // `.cargo` is free, `.cargo/config.toml` is not.
        ("file below a free folder", open(".cargo/config.toml", MAKE).map(drop)),
        ("bare config", open("bare/config", OFlags::WRONLY).map(drop)),
        ("last part of a bare repository", open("half/HEAD", MAKE).map(drop)),
        ("existing control file", open("sub/.yarnrc", OFlags::WRONLY).map(drop)),
        ("truncated control file", open("sub/.yarnrc", OFlags::TRUNC | OFlags::RDONLY).map(drop)),
    ]
}

fn makings(here: &OwnedFd, git: &OwnedFd, unnamed: &OwnedFd) -> Attempts {
    use rustix::fs::{link, linkat, mkdir, mkdirat, mknodat, symlink, symlinkat};
    let (none, follow) = (AtFlags::empty(), AtFlags::SYMLINK_FOLLOW);
    vec![
        ("mkdir", mkdir("sub/.git", mode())),
        ("mkdir slash", mkdir("sub/.git//", mode())),
        ("mkdir dots", mkdir("sub/deep/../.git", mode())),
        ("mkdirat", mkdirat(here, "sub/.GIT", mode())),
        ("bare hooks", mkdir("bare/hooks", mode())),
        ("mknod", mknodat(CWD, ".envrc", FileType::RegularFile, mode(), 0)),
        ("mkfifo", mknodat(CWD, ".envrc", FileType::Fifo, mode(), 0)),
        ("symlink", symlink("own", ".vscode")),
        ("symlinkat", symlinkat("own", git, "commondir")),
        ("link to a folder", symlink("own", "sub/.cargo")),
        ("link", link("plain", ".envrc")),
        ("linkat", linkat(CWD, "to-own/config.toml", here, ".envrc", none)),
        ("link unnamed", linkat(CWD, by_number(unnamed), here, ".envrc", follow)),
        ("link a guarded file", link("sub/.yarnrc", "alias")),
    ]
}

fn renamings() -> Attempts {
    use rustix::fs::{rename, renameat_with};
    let (exchange, keep) = (RenameFlags::EXCHANGE, RenameFlags::NOREPLACE);
    vec![
        ("rename", rename("plain", ".envrc")),
        ("rename over", rename("plain", ".git/config")),
        ("rename a folder", rename("own/x", ".vscode")),
        ("rename away", rename(".git", "away")),
        ("rename a guarded file", rename("sub/.yarnrc", "yarnrc")),
        ("exchange", renameat_with(CWD, "sub/.yarnrc", CWD, "plain", exchange)),
        ("exchange back", renameat_with(CWD, "plain", CWD, "sub/.yarnrc", exchange)),
        ("folder with content", renameat_with(CWD, "own", CWD, "sub/.cargo", keep)),
        ("moved link to a folder", rename("on-the-way", "sub/.cargo")),
        ("last part of a bare repository", rename("plain", "half/HEAD")),
    ]
}

#[test]
fn inside_calls() {
    if !crate::hosts::playing("calls") {
        return;
    }
    fs::create_dir_all("own/x").unwrap();
    fs::write("own/config.toml", "evil").unwrap();
    fs::write("own/x/f", "evil").unwrap();
    for (to, link) in [("own", "to-own"), (".envrc", "to-envrc"), (".git", "to-git"), ("own", "on-the-way")] {
        symlink(to, link).unwrap();
    }
    let (here, git) = (folder("."), folder(".git"));
    let unnamed = open(".", OFlags::TMPFILE | OFlags::RDWR).unwrap();
    let attempts = [openings(&here, &git), makings(&here, &git, &unnamed), renamings()];
    for (what, result) in attempts.into_iter().flatten() {
        let errno = result.expect_err(what);
        let expected = [Errno::ACCESS, Errno::ROFS, Errno::BUSY, Errno::XDEV, Errno::PERM];
        assert!(expected.contains(&errno), "{what}: {errno}");
    }
    // The same calls on ordinary names do what they always do.
    open("made", MAKE | OFlags::EXCL).unwrap();
    rustix::fs::linkat(CWD, by_number(&unnamed), &here, "named", AtFlags::SYMLINK_FOLLOW).unwrap();
    rustix::fs::link("made", "twice").unwrap();
    rustix::fs::renameat_with(CWD, "made", CWD, "plain", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(rustix::fs::mkdir("own", mode()), Err(Errno::EXIST));
    for (path, flags, errno) in [
        ("made", MAKE | OFlags::EXCL, Errno::EXIST),
        ("own", MAKE, Errno::ISDIR),
        ("nowhere/x", MAKE, Errno::NOENT),
        ("x/", MAKE, Errno::ISDIR),
        ("/usr/planted", MAKE, Errno::ROFS),
        ("to-own", MAKE | OFlags::NOFOLLOW, Errno::LOOP),
    ] {
        assert_eq!(open(path, flags).unwrap_err(), errno, "{path}");
    }
    open("to-own/through", MAKE).unwrap();
    rustix::fs::rename("own/x", "sub/x").unwrap();
    rustix::fs::mkdir("sub/.cargo", mode()).unwrap();
}

#[tokio::test]
async fn h4_a_path_that_is_swapped_during_the_call_gains_nothing() {
    let work = Work::new();
    fs::create_dir(work.path().join("d")).unwrap();
    let ended = inside(&work, "race").await;
    ok(&ended);
    let said = out(&ended);
    assert!(said.contains("playing race") && said.contains("made xenvrc"), "{said}");
    for name in [".envrc", "d/.envrc", ".vscode"] {
        assert!(fs::symlink_metadata(work.path().join(name)).is_err(), "{name}");
    }
    assert!(ended.planted.is_empty(), "{:?}", ended.planted);
}

#[test]
#[expect(unsafe_code, reason = "a path that changes while the kernel reads it can't be written safely")]
fn inside_race() {
    use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
    if !crate::hosts::playing("race") {
        return;
    }
    const ROUNDS: usize = 4_000;
    static PATH: [AtomicU8; 7] = [const { AtomicU8::new(0) }; 7];
    static OVER: AtomicBool = AtomicBool::new(false);
    for (slot, byte) in PATH.iter().zip(b"xenvrc\0") {
        slot.store(*byte, Relaxed);
    }
    let swapper = std::thread::spawn(|| {
        while !OVER.load(Relaxed) {
            for first in [b'.', b'x'] {
                PATH[0].store(first, Relaxed);
            }
        }
    });
    // Meanwhile the folder of a second path is swapped for a link to another.
    let mover = std::thread::spawn(|| {
        while !OVER.load(Relaxed) {
            fs::rename("d", "e").ok();
            symlink(".", "d").ok();
            fs::remove_file("d").ok();
            fs::rename("e", "d").ok();
        }
    });
    for _ in 0..ROUNDS {
        // SAFETY: the buffer is static and its last byte is always zero.
        let fd = unsafe {
            libc::open(PATH.as_ptr().cast(), libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC, 0o600)
        };
        if fd >= 0 {
            // SAFETY: ours, and not used again.
            unsafe { libc::close(fd) };
        }
        fs::write("d/.envrc", "evil").unwrap_err();
        assert!(!Path::new(".envrc").exists() && !Path::new("d/.envrc").exists());
    }
    OVER.store(true, Relaxed);
    swapper.join().unwrap();
    mover.join().unwrap();
    assert!(Path::new("xenvrc").exists());
    println!("made xenvrc");
}

#[test]
fn inside_threads() {
    if !crate::hosts::playing("threads") {
        return;
    }
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            std::thread::spawn(move || {
                for file in 0..200 {
                    let name = format!("t{thread}-{file}");
                    fs::write(&name, name.as_bytes()).unwrap();
                    assert_eq!(fs::read_to_string(&name).unwrap(), name);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let socket = std::os::unix::net::UnixListener::bind("/var/tmp/s.sock").unwrap();
    std::os::unix::net::UnixStream::connect("/var/tmp/s.sock").unwrap();
    drop(socket);
    let files = fs::read_dir(".")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with('t'));
    println!("{} files and a socket", files.count());
}

#[tokio::test]
async fn h5_what_steers_is_read_only_at_every_depth() {
    let work = populated();
    for attempt in [
        "echo evil > sub/.yarnrc",
        "echo evil > inner/.git/hooks/pre-commit",
        "echo evil >> inner/.git/config",
        "rm inner/.git/config",
        "rm -r inner/.git/hooks",
        "mv inner/.git inner/git",
        "echo evil > tree/.git",
        "rm tree/.git",
        "echo evil >> bare/config",
        "mkdir bare/hooks",
        "mkdir bare/worktrees",
        "echo ../x > bare/commondir",
        "echo x > half/HEAD",
        "git init -q sub",
        "git init -q --bare sub/new",
        "git clone -q inner sub/clone",
        "git worktree add sub/tree",
    ] {
        let ended = sh_in(&work, attempt).await;
        assert!(failed(&ended), "`{attempt}`: {ended:?}");
    }
    let refused = sh_in(&work, "git init -q sub").await.refused;
    assert_eq!(refused, [work.path().join("sub/.git")], "the receipt says why");
    // Moving the folder that something guarded is in moves it along, and that's all.
    let moved = sh_in(&work, "mv sub moved && cat moved/.yarnrc && mkdir sub").await;
    ok(&moved);
    assert!(moved.planted.is_empty(), "{:?}", moved.planted);
    assert!(failed(&sh_in(&work, "echo evil > sub/.yarnrc").await));
    assert!(failed(&sh_in(&work, "echo evil > moved/.yarnrc").await));
}

#[tokio::test]
async fn h5_where_a_guarded_link_leads_is_guarded() {
    let work = Work::new();
    let root = work.path();
    fs::create_dir_all(root.join("conf/editor")).unwrap();
    fs::create_dir_all(root.join("conf/cargo")).unwrap();
    fs::write(root.join("conf/editor/tasks.json"), "mine").unwrap();
    fs::write(root.join("conf/cargo/config.toml"), "mine").unwrap();
    symlink("conf/editor", root.join(".vscode")).unwrap();
    symlink("conf/envrc", root.join(".envrc")).unwrap();
    symlink("conf/cargo", root.join(".cargo")).unwrap();
    for attempt in [
        "echo evil > conf/editor/tasks.json",
        "echo evil > conf/editor/new.json",
        "echo evil > conf/envrc",
        "echo evil > .envrc",
        "echo evil > conf/cargo/config.toml",
        "echo evil > conf/cargo/config",
        "rm .envrc && ln -s conf/x .envrc",
    ] {
        assert!(failed(&sh_in(&work, attempt).await), "`{attempt}`");
    }
    ok(&sh_in(&work, "echo fine > conf/cargo/other; echo fine > conf/other; cat .vscode/tasks.json").await);
}

#[tokio::test]
async fn c1_a_closed_folder_hides_no_planted_file() {
    // (a) of the finding: plant, then take the right to clean up away.
    for script in [
        "echo ../.e > .git/commondir; chmod 555 .git",
        "echo evil > .envrc; chmod 555 .",
        "mkdir -p deep/x; cd deep/x; echo evil > .envrc; chmod 000 .",
    ] {
        let work = Work::with_git();
        let ended = sh_in(&work, script).await;
        assert!(ended.planted.is_empty(), "`{script}`: {:?}", ended.planted);
        assert_eq!(ended.refused.len(), 1, "`{script}`: {:?}", ended.refused);
        fs::set_permissions(work.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for path in [".git/commondir", ".envrc", "deep/x/.envrc"] {
            assert!(!work.path().join(path).exists(), "`{script}`: {path}");
        }
    }
}

#[tokio::test]
async fn c1_b_a_closed_folder_opens_no_guarded_file_to_the_next_run() {
    let work = Work::with_git();
    sh_in(&work, "chmod 600 .git").await;
    let attack = "chmod 755 .git; echo evil >> .git/config; echo x > .git/hooks/pre-commit; chmod 555 .git";
    let second = run(work.spec(["/bin/sh", "-c", attack]), pending()).await;
    if let Ok(ended) = &second {
        assert!(ended.planted.is_empty(), "{ended:?}");
    }
    fs::set_permissions(work.path().join(".git"), PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(fs::read_to_string(work.path().join(".git/config")).unwrap(), "[core]\n");
    assert!(!work.path().join(".git/hooks/pre-commit").exists());
}

#[tokio::test]
async fn c1_c_a_closed_folder_shows_no_hidden_file_to_the_next_run() {
    let work = Work::new();
    fs::create_dir(work.path().join("conf")).unwrap();
    fs::write(work.path().join("conf/real.env"), "hunter2").unwrap();
    symlink("conf/real.env", work.path().join(".env")).unwrap();
    assert!(!out(&sh_in(&work, "cat .env conf/real.env; chmod 600 conf").await).contains("hunter2"));
    let second = run(work.spec(["/bin/sh", "-c", "chmod 755 conf; cat .env conf/real.env"]), pending()).await;
    assert!(!second.is_ok_and(|ended| out(&ended).contains("hunter2")));
}

#[tokio::test]
async fn c1_a_folder_that_cannot_be_looked_at_refuses_the_run() {
    let work = Work::with_git();
    let closed = work.path().join("sub/closed");
    fs::create_dir_all(&closed).unwrap();
    for mode in [0o000, 0o600, 0o300] {
        fs::set_permissions(&closed, PermissionsExt::from_mode(mode)).unwrap();
        let result = run(work.spec(["true"]), pending()).await;
        // Root can look anywhere, so nothing has to be refused.
        if rustix::process::geteuid().is_root() {
            assert!(result.is_ok(), "{result:?}");
            continue;
        }
        let Err(error @ SandboxError::Unreadable { .. }) = result else { panic!("{result:?}") };
        let said = error.to_string();
        assert!(said.contains(&format!("chmod u+rwx '{}'", closed.display())), "{said}");
    }
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o755)).unwrap();
    ok(&sh_in(&work, "true").await);
}

#[tokio::test]
async fn h6_hidden_files_are_blank_at_every_depth_and_through_links() {
    let work = Work::new();
    let root = work.path();
    for folder in ["packages/app", "deploy", ".aws", ".ssh", "vault", ".regent/audit"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let secrets = [
        ".env",
        ".env.prod",
        "packages/app/.env",
        "deploy/tls.pem",
        "id_rsa",
        "credentials.json",
        ".npmrc",
        ".pgpass",
        ".aws/credentials",
        ".ssh/id_ed25519",
        ".regent/audit/pack",
    ];
    for secret in secrets {
        fs::write(root.join(secret), "hunter2").unwrap();
    }
    fs::write(root.join("vault/real"), "hunter2").unwrap();
    symlink("vault/real", root.join(".env.link")).unwrap();
    symlink("deploy/tls.pem", root.join("innocent")).unwrap();
    fs::write(root.join(".env.example"), "shown").unwrap();
    // A link is followed to what it hides; without it, `vault/real` is a name that nobody has anything against.
    let said =
        out(&sh_in(&work, "cat .env.link vault/real innocent; mv .env.link x; cat x; mv x .env.link").await);
    assert!(!said.contains("hunter2"), "{said}");
    for name in secrets {
        for script in [
            format!("cat '{name}'"),
            format!("mv '{name}' x && cat x"),
            format!("ln '{name}' x && cat x"),
            format!("ln -s '{name}' x; cat x; rm x"),
            format!("cp '{name}' x; cat x"),
            format!("cat < '{name}'; tar c '{name}' | cat"),
            format!(
                "mv \"$(dirname '{name}')\" elsewhere && cat elsewhere/*; mv elsewhere \"$(dirname '{name}')\""
            ),
        ] {
            let ended = sh_in(&work, &script).await;
            assert!(!out(&ended).contains("hunter2"), "`{script}`");
        }
    }
    assert_eq!(ok(&sh_in(&work, "cat .env.example").await), "shown");
    for secret in secrets {
        assert_eq!(fs::read_to_string(root.join(secret)).unwrap(), "hunter2", "{secret} is untouched");
    }
}
