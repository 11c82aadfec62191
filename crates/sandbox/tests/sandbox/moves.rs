//! Moving folders, deep folders, many files, other people's folders, and runs beside each other.
#![expect(clippy::disallowed_methods, reason = "these tests run themselves again, outside the sandbox")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use regent_sandbox::{FileUse, SandboxError, SetupStep, Spec, Survey, WorkspaceMount, run};

use crate::hosts::PART;
use crate::kit::{Work, failed, ok, out, sh_in};

#[tokio::test]
async fn h6_a_folder_that_holds_hidden_files_stays_where_it_is() {
    let work = Work::new();
    let root = work.path();
    for folder in [".aws", "conf", "pub", "deep/er"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for secret in [".aws/credentials", "conf/real", "deep/er/tls.pem"] {
        fs::write(root.join(secret), "hunter2").unwrap();
    }
    symlink("conf/real", root.join(".env")).unwrap();
    for (script, refused) in [
        ("mv .aws x", ".aws"),
        ("mv conf x", "conf"),
        ("mv deep x", "deep"),
        ("mv deep/er x", "deep/er"),
        ("mv .env x", ".env"),
        (
            "python3 -c \"import ctypes,sys; l=ctypes.CDLL(None); sys.exit(l.renameat2(-100,b'pub',-100,b'conf',2) != 0)\"",
            "conf",
        ),
    ] {
        let ended = sh_in(&work, script).await;
        assert!(failed(&ended) && ended.refused == [root.join(refused)], "`{script}`: {:?}", ended.refused);
        let said = out(&sh_in(&work, "cat x/* x pub/* conf/* deep/er/* 2>/dev/null; true").await);
        assert!(!said.contains("hunter2"), "`{script}`");
    }
}

#[tokio::test]
async fn a_moved_folder_keeps_its_guarded_files() {
    let work = Work::new();
    let root = work.path();
    crate::repository::git(&root, "init -q packages/a/inner");
    fs::write(root.join("packages/a/.gitattributes"), "mine").unwrap();
    fs::create_dir(root.join(".cargo")).unwrap();
    fs::write(root.join(".cargo/config.toml"), "mine").unwrap();
    let ended = sh_in(&work, "mv packages/a packages/b; echo evil > packages/b/.gitattributes; echo evil > packages/b/inner/.git/config; true").await;
    ok(&ended);
    assert!(ended.planted.is_empty(), "{:?}", ended.planted);
    assert_eq!(fs::read_to_string(root.join("packages/b/.gitattributes")).unwrap(), "mine");
    crate::repository::git(&root.join("packages/b/inner"), "status");
    // Elsewhere it would be an ordinary file.
    assert!(failed(&sh_in(&work, "mv .cargo cargo").await));
}

/// Folders within each other, made without long paths.
fn nested(root: &Path, depth: usize, name: &str) {
    let script = format!(
        "import os\nos.chdir({:?})\nfor i in range({depth}):\n    os.mkdir({name:?}); os.chdir({name:?})\n",
        root.to_str().unwrap()
    );
    assert!(Command::new("python3").args(["-c", script.as_str()]).status().unwrap().success());
}

#[tokio::test]
async fn a_very_deep_folder_can_be_moved_or_is_refused_without_harm() {
    let work = Work::new();
    nested(&work.path(), 1_500, "d");
    let rename = "import os, sys; os.rename(sys.argv[1], sys.argv[2])";
    let script = format!("r() {{ python3 -c '{rename}' $1 $2; echo $?; }}; r d .cargo; r d e; ls");
    let ended = sh_in(&work, &script).await;
    assert_eq!(ok(&ended), "1\n0\ne\n");
    assert!(ended.planted.is_empty(), "{:?}", ended.planted);
}

#[tokio::test]
async fn paths_longer_than_a_path_can_be_lock_nobody_out() {
    let work = Work::new();
    let script = "import os
n = 'x' * 250
for top in ('a', 'b'):
    os.mkdir(top); os.chdir(top)
    for i in range(12):
        os.mkdir(n); os.chdir(n)
    for i in range(13): os.chdir('..')
p = os.getcwd()
os.chdir('a')
for i in range(11): os.chdir(n)
f = os.open('.', os.O_RDONLY)
os.rename(p + '/b', n + '/b')
";
    let spec = work.spec(["python3", "-c", script]);
    let ended = run(spec, std::future::pending()).await.unwrap();
    ok(&ended);
    assert!(ended.planted.is_empty(), "{:?}", ended.planted);
    let again = sh_in(&work, "echo fine > made; cat made").await;
    assert_eq!(ok(&again), "fine\n");
    assert!(again.planted.is_empty(), "{:?}", again.planted);
}

#[tokio::test]
async fn more_hidden_files_than_can_be_covered_lock_nobody_out() {
    let work = Work::new();
    let script = "import os
for d in ('one', 'two'):
    os.mkdir(d)
    open(d + '/shown', 'w').close()
    for i in range(4200): open(d + '/' + str(i) + '.pem', 'w').close()
for i in range(4200):
    os.makedirs('three/%d' % i)
    for n in ('a.pem', 'b'): open('three/%d/%s' % (i, n), 'w').close()
";
    let made = Command::new("python3").args(["-c", script]).current_dir(work.path()).status().unwrap();
    assert!(made.success());
    let ended = sh_in(&work, "cat one/1.pem two/1.pem 2>&1; echo fine > made; cat made").await;
    let said = ok(&ended);
    assert!(said.ends_with("fine\n") && said.lines().count() == 3, "{said}");
}

#[tokio::test]
async fn waiting_pipes_leave_room_for_other_calls() {
    let work = Work::new();
    let script = "import os, threading, time
os.mkfifo('p')
def wait():
    os.open('p', os.O_WRONLY)
try:
    for i in range(300): threading.Thread(target=wait, daemon=True).start()
except RuntimeError:
    pass  # as many as the host allows
time.sleep(0.5)
end = time.time() + 2; n = 0
while time.time() < end:
    open('f', 'w').close(); n += 1
print(n, flush=True)
os._exit(0)
";
    let ended = run(work.spec(["python3", "-c", script]), std::future::pending()).await.unwrap();
    let count: u32 = ok(&ended).trim().parse().unwrap();
    assert!(count > 200, "{count} calls in two seconds");
}

#[tokio::test]
async fn a_file_that_is_swapped_between_survey_and_mount_refuses_the_launch() {
    for (file, guard) in [("conf/.env", "SECRET"), ("conf/.envrc", "mine")] {
        let work = Work::new();
        let root = work.path();
        fs::create_dir(root.join("conf")).unwrap();
        fs::create_dir(root.join("pub")).unwrap();
        fs::write(root.join(file), guard).unwrap();
        let mut mount = WorkspaceMount::new(&root, true);
        let survey =
            Survey::take(&mount, &mut |path| FileUse { read: !path.ends_with(".env"), write: true }).unwrap();
        mount.survey = Some(Arc::new(survey));
        // Another run puts a decoy where the file was.
        fs::rename(root.join("conf"), root.join("pub2")).unwrap();
        fs::rename(root.join("pub"), root.join("conf")).unwrap();
        fs::write(root.join(file), "decoy").unwrap();
        let spec = Spec { workspace: Some(mount), ..work.spec(["/bin/sh", "-c", "cat pub2/.env*"]) };
        let Err(SandboxError::Setup { step, cause, .. }) = run(spec, std::future::pending()).await else {
            panic!("`{file}` was left uncovered");
        };
        assert_eq!((step, cause.kind()), (SetupStep::Guard, std::io::ErrorKind::NotFound));
    }
}

/// No test of its own: one of the two processes that `two_processes_in_one_workspace_do_not_overtake_each_other` starts. Run by itself
/// it passes without doing anything.
#[tokio::test]
async fn part_beside() {
    if !crate::hosts::playing("beside") {
        return;
    }
    let work = PathBuf::from(std::env::var("REGENT_TEST_WORK").unwrap());
    let script = std::env::var("REGENT_TEST_SCRIPT").unwrap();
    let mut spec = Spec::new(["python3", "-c", script.as_str()]);
    spec.workspace = Some(WorkspaceMount::new(&work, true));
    spec.cwd = work;
    let ended = run(spec, std::future::pending()).await.unwrap();
    print!("{}", out(&ended));
}

/// This program again, in a part of its own.
fn part(work: &Work, test: &str, name: &str, script: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--nocapture", "--exact", &format!("moves::{test}")])
        .env(PART, name)
        .env("REGENT_TEST_WORK", work.path())
        .env("REGENT_TEST_SCRIPT", script)
        .stdout(Stdio::piped());
    command
}

fn process(work: &Work, script: &str) -> std::process::Child {
    part(work, "part_beside", "beside", script).spawn().unwrap()
}

#[test]
fn two_processes_in_one_workspace_do_not_overtake_each_other() {
    let work = Work::new();
    let root = work.path();
    fs::create_dir(root.join("stage")).unwrap();
    for file in 0..3_000 {
        fs::write(root.join(format!("stage/{file}")), "").unwrap();
    }
    let mover = "import os, time
end = time.time() + 4
while time.time() < end:
    try: os.rename('stage', '.cargo'); os.rename('.cargo', 'stage')
    except OSError: pass
";
    let maker = "import os, time
end = time.time() + 4
while time.time() < end:
    try: os.close(os.open('stage/config.toml', os.O_CREAT | os.O_WRONLY)); os.unlink('stage/config.toml')
    except OSError: pass
";
    let mut children = [process(&work, mover), process(&work, maker)];
    let (mut seen, mut looked) = (false, 0_u64);
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        seen |= root.join(".cargo/config.toml").exists();
        looked += 1;
        std::thread::sleep(Duration::from_micros(50));
    }
    assert!(!seen && looked > 100);
}
