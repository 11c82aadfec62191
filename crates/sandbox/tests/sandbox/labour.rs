//! Ordinary work under the supervisor: what programs do with files every day continues as if nobody looked.
#![expect(clippy::disallowed_methods, reason = "a repository is made outside the sandbox")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use regent_sandbox::{Limits, Spec, run};

use crate::kit::{Work, failed, ok, out, sh_in};

/// Runs a script that stops at the first failure.
async fn works(work: &Work, script: &str) -> String {
    ok(&sh_in(work, &format!("set -e\n{script}")).await)
}

#[tokio::test]
async fn h4_git_works_in_a_repository_that_is_there() {
    let work = Work::new();
    let root = work.path();
    let made =
        std::process::Command::new("git").args(["init", "-q", "-b", "main"]).current_dir(&root).output();
    assert!(made.unwrap().status.success());
    let script = "
        git() { command git -c user.name=a -c user.email=a@b -c gc.auto=0 \"$@\"; }
        echo one > a; git add a; git commit -q -m one
        git branch side; git checkout -q side; echo two > b; git add b; git commit -q -m two
        git checkout -q main; echo three > c; git add .; git commit -q -m three
        git merge -q -m merged side; git tag v1
        echo four >> a; git stash -q; git stash pop -q; git commit -q -a -m four
        git checkout -q -B work HEAD~1; echo five > d; git add d; git commit -q -m five
        git reset -q --hard main; echo five > d; git add d; git commit -q -m five
        git cherry-pick main~0 2>/dev/null || git cherry-pick --skip 2>/dev/null || true
        git mv d e; git commit -q -m moved; git reset -q --hard HEAD~1; git gc -q; git status --short
        git log --oneline | wc -l";
    let said = works(&work, script).await;
    assert_eq!(said.lines().last(), Some("6"), "{said}");
    let ended =
        sh_in(&work, "git commit -q --allow-empty -m x --author 'a <a@b>' 2>&1; git config user.name x")
            .await;
    assert!(failed(&ended), "the configuration is the user's");
}

#[tokio::test]
async fn h4_archives_temporary_files_and_renames() {
    let work = Work::new();
    let script = "
        mkdir -p src/a/b; for i in 1 2 3; do echo $i > src/a/b/$i; done; chmod 600 src/a/b/1; ln -s b src/a/l; ln src/a/b/2 src/hard
        tar cf t.tar src; mkdir out; tar xf t.tar -C out; diff -r src out/src; test \"$(stat -c %a out/src/a/b/1)\" = 600
        t=$(mktemp); echo x > $t; cat $t; d=$(mktemp -d -p .); echo y > $d/f; mv $d/f .; rmdir $d
        mkdir -p node_modules/.pkg-x7/lib; echo z > node_modules/.pkg-x7/lib/i.js; mv node_modules/.pkg-x7 node_modules/pkg
        mv node_modules/pkg node_modules/.pkg-x8; mkdir node_modules/pkg; mv node_modules/.pkg-x8/lib node_modules/pkg/
        cp -r node_modules copy; rm -r node_modules; mkdir -p /tmp/deep/er; touch /tmp/deep/er/f; mv /tmp/deep /tmp/shallow
        git init -q /tmp/repo; mkdir ~/.vscode; echo x > ~/.bashrc
        echo hi > /dev/null; echo out > /dev/stdout; echo err > /dev/stderr; echo fd > /dev/fd/1
        echo long > f; echo l > f; echo m >> f; : > empty; cat f";
    let said = works(&work, script).await;
    assert_eq!(said, "x\nout\nfd\nl\nm\n");
    assert_eq!(fs::read_to_string(work.path().join("copy/pkg/lib/i.js")).unwrap(), "z\n");
}

#[tokio::test]
async fn a_removed_file_is_reopened_by_its_descriptor() {
    let work = Work::new();
    let script = "exec 3>f; echo longer >&3; rm f; echo x > /proc/self/fd/3; echo y >> /dev/fd/3
        python3 -c \"print(open('/proc/self/fd/3').read(), end='')\"; ls";
    assert_eq!(works(&work, script).await, "x\ny\n");
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0, "no file is called `f (deleted)`");
}

#[tokio::test]
async fn h4_pipes_wait_and_modes_follow_the_mask() {
    let work = Work::new();
    let said = works(
        &work,
        "mkfifo p; (sleep 0.05; cat p) & echo through > p; wait
         umask 077; echo x > private; mkdir own; umask 002; echo x > shared; mkdir ours; (umask 0; echo x > open)
         stat -c '%a' private own shared ours open | tr '\\n' ' '",
    )
    .await;
    assert_eq!(said, "through\n600 700 664 775 666 ");
}

#[tokio::test]
async fn h4_the_supervisor_lends_no_rights_and_no_room() {
    let work = Work::new();
    fs::create_dir(work.path().join("closed")).unwrap();
    fs::set_permissions(work.path().join("closed"), PermissionsExt::from_mode(0o555)).unwrap();
    for script in [
        "echo x > closed/f",
        "mkdir closed/d",
        "ln -s x closed/l",
        "echo x > f && mv f closed/",
        "echo x > /usr/f",
        "mkdir /etc/d",
        "mknod n c 1 3",
        "touch /f",
        "echo x > /proc/self/comm.x",
        "ulimit -n 8; exec 3>a 4>b 5>c 6>d 7>e 8>f 9>g",
    ] {
        assert!(failed(&sh_in(&work, script).await), "`{script}`");
    }
    assert_eq!(fs::read_dir(work.path().join("closed")).unwrap().count(), 0);
    let limits = Limits { file_bytes_max: 1 << 20, ..Limits::default() };
    let spec = Spec { limits, ..work.spec(["/bin/sh", "-c", "head -c 2M /dev/zero > big"]) };
    assert!(failed(&run(spec, std::future::pending()).await.unwrap()), "the size of a file is still limited");
}

#[tokio::test]
async fn h4_many_threads_and_processes_make_files_at_once() {
    let work = Work::new();
    let script = "for p in 1 2 3 4 5 6 7 8; do (mkdir d$p; for i in $(seq 40); do echo $i > d$p/t; mv d$p/t d$p/$i; done) & done
        wait; find . -type f | wc -l
        (sh -c 'while :; do echo x > killed; done' & sleep 0.05; kill -9 $!) 2>/dev/null; echo alive > after; cat after";
    assert_eq!(works(&work, script).await.split_whitespace().collect::<Vec<_>>(), ["320", "alive"]);
    let said = out(&crate::guards::inside(&work, "threads").await);
    assert!(said.contains("1600 files and a socket"), "{said}");
}
