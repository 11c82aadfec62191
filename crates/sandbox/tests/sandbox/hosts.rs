//! Other users, other hosts, and our own death.
#![expect(clippy::disallowed_methods, reason = "these tests run themselves again, as somebody else")]

use std::future::pending;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use regent_sandbox::{Confinement, Floor, Hierarchy, LimitedBy, SandboxError, Spec, probe, probes, run};

use crate::kit::{Work, failed, host_has_process, ok};

const NOBODY: u32 = 65_534;

/// A copy of this test program that anyone may run.
pub(crate) struct Copy {
    folder: tempfile::TempDir,
}

impl Copy {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let anyone = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), anyone.clone()).unwrap();
        let copy = Self { folder };
        std::fs::copy(std::env::current_exe().unwrap(), copy.path()).unwrap();
        std::fs::set_permissions(copy.path(), anyone).unwrap();
        copy
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("tests")
    }
}

/// Some tests are parts in the plays of others, which start this program again with the name of the part.
pub(crate) const PART: &str = "REGENT_TEST_PART";

pub(crate) fn playing(part: &str) -> bool {
    let ours = std::env::var(PART).is_ok_and(|asked| asked == part);
    if ours {
        println!("playing {part}");
    }
    ours
}

#[track_caller]
fn played(output: &Output, part: &str) {
    passed(output, 1);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("playing {part}")), "{text}");
}

#[track_caller]
fn passed(output: &Output, at_least: usize) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    let count: usize = text
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<usize>().ok())
        .sum();
    assert!(count >= at_least, "only {count} tests ran:\n{text}");
}

#[test]
fn an_ordinary_user_gets_the_same() {
    if !rustix::process::geteuid().is_root() {
        // Then every other test has just proved this.
        return;
    }
    let copy = Copy::new();
    let output = Command::new(copy.path())
        .args(["--skip", "an_ordinary_user_gets_the_same"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_clear()
        .output()
        .unwrap();
    passed(&output, 30);
}

#[test]
fn adv_043_closed_user_namespaces_are_refused_or_fallen_back_from_loudly() {
    let copy = Copy::new();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" --nocapture --exact hosts::where_user_namespaces_are_closed";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "/bin/sh", "-c", script])
        .arg(copy.path())
        .env(PART, "closed")
        .output()
        .unwrap();
    played(&output, "closed");
}

#[tokio::test]
async fn where_user_namespaces_are_closed() {
    if !playing("closed") {
        return;
    }
    // Full is requested: refused, with the reason and the fix.
    let refused = run(Spec::new(["true"]), pending()).await;
    let Err(SandboxError::Unavailable { needed: Floor::Full, reason, fix: Some(fix) }) = refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("clone"), "{reason}");
    assert!(fix.contains("user.max_user_namespaces"), "{fix}");
    assert!(probe().full.is_some() && probe().fallback.is_none());
    assert!(probe().findings.iter().any(|finding| !finding.ok && finding.fix.is_some()));

    // A lower floor is requested: the sandbox starts, and the receipt reports it.
    let mut spec =
        Spec { floor: Floor::LandlockSeccomp, cwd: "/".into(), ..Spec::new(["/bin/sh", "-c", "echo hello"]) };
    let ended = run(spec.clone(), pending()).await.unwrap();
    assert_eq!(ok(&ended), "hello\n");
    assert_eq!(ended.obtained.confinement, Confinement::LandlockSeccomp);
    assert!(!ended.obtained.pid_ns && !ended.obtained.net_ns && !ended.obtained.pivot_root);
    assert_eq!(ended.obtained.tmp_bytes_max, None);

    // Network access is asked for: here it couldn't be guarded, so nothing runs.
    let (sender, _listeners) = tokio::sync::mpsc::channel(1);
    let refused = run(Spec { listener: Some(sender), ..spec.clone() }, pending()).await;
    assert!(matches!(refused, Err(SandboxError::NoEgressProxy { fix: Some(_) })), "{refused:?}");

    for tried in probes::try_all(Floor::LandlockSeccomp).await.unwrap() {
        assert!(tried.held, "{tried:?}");
    }
    let mark = format!("8{:06}.25", std::process::id());
    let script = format!("(setsid sh -c 'setsid sleep {mark} & sleep {mark}' &); sleep 0.01; exit 3");
    spec.argv = vec!["/bin/sh".into(), "-c".into(), script.into()];
    run(spec, pending()).await.unwrap();
    assert!(!host_has_process(&mark), "nothing outlives the fallback either");
    fallback_workspace().await;
}

async fn fallback_workspace() {
    let work = Work::with_git();
    for folder in ["src", "conf", ".git/logs"] {
        std::fs::create_dir(work.path().join(folder)).unwrap();
    }
    std::fs::write(work.path().join(".env"), "TOKEN=hunter2").unwrap();
    std::fs::write(work.path().join("conf/envrc"), "mine").unwrap();
    std::os::unix::fs::symlink("conf/envrc", work.path().join(".envrc")).unwrap();
    let secret = work.outside("secret", "hunter2");
    let try_it = async |script: &str| {
        let mut spec = work.spec(["/bin/sh", "-c", script]);
        spec.floor = Floor::LandlockSeccomp;
        run(spec, pending()).await.unwrap()
    };
    ok(&try_it("echo x > src/a && mkdir src/d && mv src/a src/d/ && cat src/d/a .git/config && echo x > .git/logs/HEAD && ls").await);
    ok(&try_it(&python("os.utime(os.open('src/d/a', os.O_RDWR), (1, 1))")).await);
    ok(&try_it("test $(stat -c %Y src/d/a) = 1").await);
    if !rustix::process::geteuid().is_root() {
        ok(&try_it(&python("os.fchmod(os.open('src/d/a', os.O_RDWR), 0o600)")).await);
    }
    for script in [
        "cat .env".to_owned(),
        format!("cat '{}'", secret.display()),
        "echo x > .mcp.json".to_owned(),
        "mkdir .vscode".to_owned(),
        "echo x > .git/config".to_owned(),
        "echo x > .git/hooks/pre-commit".to_owned(),
        "mv .git x".to_owned(),
        "rm -r .git/hooks".to_owned(),
        "ln -s x .git/logs/x".to_owned(),
        "ln -s x src/l; mv src/l .git/logs/x".to_owned(),
        "echo x > conf/envrc".to_owned(),
        "mv conf src/old".to_owned(),
        "echo x > /tmp/x".to_owned(),
        "cat /proc/1/cmdline".to_owned(),
        // A descriptor that is open for reading is enough for a file's owner.
        python("os.fchmod(os.open('.git/config', 0), 0o777)"),
        python("os.fchmod(os.open('.git', 0), 0o500)"),
        python("os.setxattr(os.open('.git/config', 0), 'user.a', b'1')"),
        python("os.utime(os.open('.git/config', 0), (1, 1))"),
        python("fcntl.ioctl(os.open('.git/config', 0), 0x40086602, b'\\x40\\0\\0\\0\\0\\0\\0\\0')"),
    ] {
        let ended = try_it(&script).await;
        assert!(failed(&ended), "`{script}`: {ended:?}");
        assert!(ended.planted.is_empty());
    }
}

fn python(line: &str) -> String {
    format!("python3 -c \"import os, fcntl; {line}\"")
}

#[test]
fn a_box_dies_with_us() {
    let mark = format!("9{:06}.25", std::process::id());
    let mut us = Command::new(std::env::current_exe().unwrap())
        .args(["--nocapture", "--exact", "hosts::hold_a_box"])
        .env(PART, "holder")
        .env("REGENT_TEST_MARK", &mark)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(us.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).find(|line| line.contains("holding")).unwrap();
    assert!(host_has_process(&mark));
    us.kill().unwrap();
    us.wait().unwrap();
    // The first process hears of it through a pipe; nothing else has to happen.
    for _ in 0..10_000 {
        if !host_has_process(&mark) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("the sandbox outlived us");
}

#[tokio::test]
async fn hold_a_box() {
    if !playing("holder") {
        return;
    }
    let mark = std::env::var("REGENT_TEST_MARK").unwrap();
    let script = format!("setsid sleep {mark} & sleep {mark}");
    let told = async {
        while !host_has_process(&mark) {
            tokio::task::yield_now().await;
        }
        println!("holding");
        pending::<()>().await;
    };
    run(Spec::new(["/bin/sh", "-c", script.as_str()]), told).await.unwrap();
}

#[tokio::test]
async fn limits_are_held_by_what_the_probe_found_and_cgroups_are_swept() {
    let ended = run(Spec::new(["true"]), pending()).await.unwrap();
    let found = &probe().cgroups;
    let (memory, pids) = (ended.obtained.memory, ended.obtained.pids);
    let parents: Vec<&Path> = match found {
        Hierarchy::V2(parent) => {
            assert_eq!((memory, pids), (LimitedBy::CgroupV2, LimitedBy::CgroupV2));
            vec![parent]
        }
        Hierarchy::V1 { memory: for_memory, pids: for_pids } => {
            assert_eq!(memory == LimitedBy::CgroupV1, for_memory.is_some());
            assert_eq!(pids == LimitedBy::CgroupV1, for_pids.is_some());
            for_memory.iter().chain(for_pids).map(AsRef::as_ref).collect()
        }
        Hierarchy::Scope(parent) => {
            assert_eq!((memory, pids), (LimitedBy::Scope, LimitedBy::Scope));
            vec![parent]
        }
        Hierarchy::None => {
            assert_eq!(memory, LimitedBy::Watch);
            let root = rustix::process::geteuid().is_root();
            assert_eq!(pids, if root { LimitedBy::Nothing } else { LimitedBy::Rlimit });
            return;
        }
    };
    // Others of this program's tests are at work too, and a few cgroups are kept for them: none has a member for long.
    let ours = |parent: &Path| -> Vec<_> {
        let prefix = format!("regent-sandbox-{}-", std::process::id());
        let entries = std::fs::read_dir(parent).unwrap().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains(&prefix)).collect()
    };
    for folder in parents.iter().flat_map(|parent| ours(parent)) {
        while std::fs::read(folder.join("cgroup.procs")).is_ok_and(|members| !members.is_empty()) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

#[test]
fn one_run_leaves_no_cgroup_behind() {
    let once = Command::new(std::env::current_exe().unwrap())
        .args(["--nocapture", "--exact", "hosts::run_once"])
        .env(PART, "once")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let prefix = format!("regent-sandbox-{}-", once.id());
    played(&once.wait_with_output().unwrap(), "once");
    let parents: Vec<&Path> = match &probe().cgroups {
        Hierarchy::V2(parent) | Hierarchy::Scope(parent) => vec![parent],
        Hierarchy::V1 { memory, pids } => memory.iter().chain(pids).map(AsRef::as_ref).collect(),
        Hierarchy::None => Vec::new(),
    };
    for parent in parents {
        for entry in std::fs::read_dir(parent).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(!name.starts_with(&prefix), "{name} was left behind");
        }
    }
}

#[tokio::test]
async fn run_once() {
    if !playing("once") {
        return;
    }
    run(Spec::new(["true"]), pending()).await.unwrap();
}
