//! Repositories: what git, run by the user, would take from what a program left behind; and git at work inside.
#![expect(clippy::disallowed_methods, reason = "repositories are made, and used, outside the sandbox")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use regent_sandbox::{FinishedRun, run};

use crate::kit::{Work, failed, ok, sh_in};

/// Git as the user has it, outside.
#[track_caller]
pub(crate) fn git(folder: &Path, line: &str) -> String {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"];
    let output = Command::new("git")
        .args(identity)
        .args(line.split(' '))
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "git {line}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// A repository with one commit.
fn repository(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    git(folder, "init -q -b main");
    fs::write(folder.join("a"), "one\n").unwrap();
    git(folder, "add a");
    git(folder, "commit -q -m one");
}

/// Git inside, as `git`.
async fn inside(work: &Work, script: &str) -> FinishedRun {
    let git = "git() { command git -c user.name=a -c user.email=a@b -c gc.auto=0 \"$@\"; }";
    sh_in(work, &format!("set -e\n{git}\n{script}")).await
}

#[tokio::test]
async fn a_socket_completes_no_bare_repository() {
    let work = Work::new();
    let script = "mkdir -p d/objects; echo 'ref: refs/heads/main' > d/HEAD; printf '[core]\\n\\tfsmonitor = ./x\\n' > d/config
        python3 -c \"
import socket, sys
try:
    socket.socket(socket.AF_UNIX).bind('d/refs')
except PermissionError:
    sys.exit(3)
\"; echo $?; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/var/tmp/s')\" && echo fine";
    assert_eq!(ok(&sh_in(&work, script).await), "3\nfine\n");
    assert!(fs::symlink_metadata(work.path().join("d/refs")).is_err());
}

#[tokio::test]
async fn where_links_in_guarded_folders_lead_is_guarded() {
    let work = Work::with_git();
    let root = work.path();
    for folder in ["scripts", "cfg/vscode", "real", "bare/objects", "bare/refs", "bare/hooks"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["scripts/pre-commit", "real/tasks.json", "scripts/update", "bare/HEAD"] {
        fs::write(root.join(file), "mine").unwrap();
    }
    symlink("../../scripts/pre-commit", root.join(".git/hooks/pre-commit")).unwrap();
    symlink("../../scripts/absent", root.join(".git/hooks/pre-push")).unwrap();
    symlink("../../scripts/update", root.join("bare/hooks/update")).unwrap();
    symlink("cfg/vscode", root.join(".vscode")).unwrap();
    symlink("../../real/tasks.json", root.join("cfg/vscode/tasks.json")).unwrap();
    symlink("..", root.join("cfg/vscode/up")).unwrap();
    for attempt in [
        "echo evil > scripts/pre-commit",
        "echo evil > x; mv x scripts/pre-commit",
        "echo evil > scripts/absent",
        "echo evil > scripts/update",
        "echo evil > real/tasks.json",
        "mv scripts old",
        "mkdir n; mv scripts old && mv n scripts",
        "mv real old",
        "mkdir cfg/n; mv cfg/vscode cfg/old",
        "rm cfg/vscode/tasks.json; echo evil > cfg/vscode/tasks.json",
    ] {
        assert!(failed(&sh_in(&work, attempt).await), "`{attempt}`");
    }
    ok(&sh_in(&work, "echo fine > scripts/other; echo fine > real/other; rmdir n cfg/n").await);
}

#[tokio::test]
async fn the_way_to_what_a_guarded_link_stands_for_stays_as_it_is() {
    let work = Work::new();
    let root = work.path();
    for folder in ["config/deep", "elsewhere"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("config/deep/envrc"), "mine").unwrap();
    symlink("by/envrc", root.join(".envrc")).unwrap();
    symlink("config/deep", root.join("by")).unwrap();
    // It leads out of the workspace, but through it.
    symlink("out/vimrc", root.join(".vimrc")).unwrap();
    symlink("/etc", root.join("out")).unwrap();
    for attempt in [
        "mkdir -p n/deep; echo evil > n/deep/envrc; mv config old && mv n config",
        "mv config/deep config/old",
        "python3 -c \"import ctypes; l=ctypes.CDLL(None); import sys; sys.exit(l.renameat2(-100,b'config',-100,b'elsewhere',2) != 0)\"",
        "rm by; mkdir by",
        "rm by; ln -s elsewhere by",
        "mv by old && ln -s elsewhere by",
        "rm out; ln -s elsewhere out",
        "ln -s elsewhere n2; mv -T n2 by",
    ] {
        fs::remove_file(root.join("by")).ok();
        fs::remove_file(root.join("out")).ok();
        symlink("config/deep", root.join("by")).unwrap();
        symlink("/etc", root.join("out")).unwrap();
        assert!(failed(&sh_in(&work, attempt).await), "`{attempt}`");
        assert_eq!(fs::read_to_string(root.join("config/deep/envrc")).unwrap(), "mine", "`{attempt}`");
        let led = fs::read_to_string(root.join(".envrc"));
        assert!(led.is_err() || led.unwrap() == "mine", "`{attempt}`");
    }
}

#[tokio::test]
async fn what_a_repositorys_configuration_names_is_guarded() {
    let work = Work::new();
    let root = work.path();
    repository(&root);
    for folder in ["tools/hooks", "conf"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in
        ["tools/hooks/pre-commit", "tools/monitor.sh", "tools/st.sh", "conf/more", "conf/driver.sh", "src"]
    {
        fs::write(root.join(file), "mine").unwrap();
    }
    fs::write(
        root.join("conf/more"),
        "[diff \"x\"]\n\ttextconv = sh conf/driver.sh\n[core]\n\tattributesFile = conf/absent\n",
    )
    .unwrap();
    for setting in [
        "core.hooksPath tools/hooks",
        "core.fsmonitor ./tools/monitor.sh",
        "include.path ../conf/more",
        "user.nick src",
    ] {
        git(&root, &format!("config {setting}"));
    }
    git(&root, "config alias.st !tools/st.sh");
    for attempt in [
        "echo evil > tools/hooks/pre-commit",
        "echo evil > tools/hooks/new",
        "mv tools old",
        "mv tools/hooks old",
        "echo evil > tools/monitor.sh",
        "echo evil > tools/st.sh",
        "rm tools/st.sh",
        "echo evil > conf/more",
        "echo evil > conf/driver.sh",
        "echo evil > conf/absent",
        "ln -s x conf/absent",
    ] {
        assert!(failed(&sh_in(&work, attempt).await), "`{attempt}`");
    }
    ok(&sh_in(&work, "echo fine > src; echo fine > tools/other; echo fine > conf/other; git status").await);
}

#[tokio::test]
async fn what_the_configuration_of_a_repository_around_the_workspace_names_is_guarded() {
    let work = Work::new();
    let root = work.path();
    let main = root.parent().unwrap().join("main");
    repository(&main);
    git(&main, "config core.hooksPath tools/hooks");
    fs::remove_dir(&root).unwrap();
    git(&main, &format!("worktree add -q {} -b linked", root.display()));
    fs::create_dir_all(root.join("tools/hooks")).unwrap();
    assert!(failed(&sh_in(&work, "echo evil > tools/hooks/pre-commit").await), "a linked worktree");
    ok(&sh_in(&work, "echo fine > tools/other").await);

    let work = Work::new();
    let (root, above) = (work.path(), work.path().parent().unwrap().to_path_buf());
    git(&above, "init -q");
    git(&above, "config core.hooksPath work/hooks");
    fs::create_dir_all(root.join("hooks")).unwrap();
    assert!(failed(&sh_in(&work, "echo evil > hooks/pre-commit").await), "a folder of a repository");
    ok(&sh_in(&work, "echo fine > other").await);
}

#[tokio::test]
async fn settings_that_a_shell_or_git_expands_are_guarded() {
    let work = Work::new();
    let root = work.path();
    repository(&root);
    // Up to the root from any home folder: an ordinary user's run has no `HOME`.
    let up = "../".repeat(16);
    let here = format!("{up}{}", root.strip_prefix("/").unwrap().display());
    for folder in ["tools/hooks", "scripts", "my tools"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["scripts/fsm.sh", "scripts/st.sh", "scripts/x.sh", "my tools/y.sh", "inc", "scripts/in.sh"] {
        fs::write(root.join(file), "mine").unwrap();
    }
    fs::write(root.join("inc"), "[core]\n\teditor = scripts/in.sh\n").unwrap();
    let config = format!(
        "[core]\n\thooksPath = ~/{here}/tools/hooks\n\tfsmonitor = \"$HOME/{here}/scripts/fsm.sh\"\n[include]\n\tpath = ~/{here}/inc\n\
         [alias]\n\tst = !$(git rev-parse --show-toplevel)/scripts/st.sh\n\ta = !cd scripts && ./x.sh\n\tb = !'my tools/y.sh'\n"
    );
    fs::write(root.join(".git/config"), config).unwrap();
    for file in [
        "tools/hooks/new",
        "scripts/fsm.sh",
        "inc",
        "scripts/in.sh",
        "scripts/st.sh",
        "scripts/x.sh",
        "my tools/y.sh",
    ] {
        assert!(failed(&sh_in(&work, &format!("echo evil > '{file}'")).await), "`{file}`");
    }
    ok(&sh_in(&work, "echo fine > scripts/other; echo fine > tools/other").await);
}

#[tokio::test]
async fn no_link_is_made_where_git_writes() {
    let work = Work::new();
    let root = work.path();
    repository(&root);
    let outside = work.outside("bashrc", "mine");
    git(&root, "clone -q --bare . bare");
    let to = outside.display();
    for attempt in [
        format!("rm -f .git/logs/HEAD; ln -s {to} .git/logs/HEAD"),
        format!("rm -f .git/COMMIT_EDITMSG; ln -s {to} .git/COMMIT_EDITMSG"),
        format!("rm -f .git/index; ln -s {to} .git/index"),
        format!("ln -s {to} x; mv x .git/ORIG_HEAD"),
        format!("ln -s {to} y; ln -P y .git/ORIG_HEAD"),
        format!("mkdir -p t/refs/heads; ln -s {to} t/refs/heads/z; rm -r .git/logs; mv t .git/logs"),
        format!("mkdir -p bare/logs; ln -s {to} bare/logs/HEAD"),
        format!("ln -s {to} bare/refs/heads/x"),
        "mkfifo .git/FETCH_HEAD".to_owned(),
        "mv bare naked".to_owned(),
    ] {
        assert!(failed(&sh_in(&work, &attempt).await), "`{attempt}`");
    }
    for name in ["logs/HEAD", "COMMIT_EDITMSG", "index", "ORIG_HEAD"] {
        assert!(!root.join(".git").join(name).is_symlink(), "{name}");
    }
    fs::write(root.join(".git/MERGE_MSG"), "evil").unwrap();
    git(&root, "reset -q");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
}

#[tokio::test]
async fn a_rebase_is_refused_and_leaves_everything_as_it_was() {
    let work = Work::new();
    let root = work.path();
    repository(&root);
    git(&root, "checkout -q -b side");
    git(&root, "commit -q --allow-empty -m side");
    git(&root, "checkout -q main");
    git(&root, "commit -q --allow-empty -m main");
    let before = git(&root, "rev-parse HEAD");
    let ended = inside(&work, "git rebase -q side").await;
    assert!(failed(&ended), "its to-do list could run commands outside");
    assert_eq!(ended.refused, [root.join(".git/rebase-merge")], "the receipt says why");
    assert_eq!((git(&root, "rev-parse HEAD"), git(&root, "status --short")), (before, String::new()));
    for folder in ["rebase-merge", "rebase-apply", "sequencer"] {
        assert!(failed(&sh_in(&work, &format!("mkdir .git/{folder}")).await), "{folder}");
    }
    // In a copy of its own it works.
    let script =
        "git clone -q . /tmp/copy && cd /tmp/copy && git rebase -q origin/side && git log --oneline | wc -l";
    assert_eq!(ok(&inside(&work, script).await).trim(), "3");
    // What the user has begun is not the program's to change.
    fs::create_dir(root.join(".git/rebase-merge")).unwrap();
    fs::write(root.join(".git/rebase-merge/git-rebase-todo"), "pick\n").unwrap();
    assert!(failed(&sh_in(&work, "echo 'exec evil' >> .git/rebase-merge/git-rebase-todo").await));
    assert!(failed(&sh_in(&work, "echo x > .git/rebase-merge/new").await));
}

#[tokio::test]
async fn a_repository_with_a_second_object_store_stays_whole() {
    let work = Work::new();
    let root = work.path();
    repository(&root.join("first"));
    git(&root, "clone -q --shared first second");
    let ended =
        inside(&work, "cd second; echo x > b; git add b; git commit -q -m two; git log --oneline | wc -l")
            .await;
    assert_eq!(ok(&ended).trim(), "2");
    assert!(ended.planted.is_empty(), "{:?}", ended.planted);
    assert_eq!(git(&root.join("second"), "log --format=%s"), "two\none\n");
    assert!(failed(&sh_in(&work, "echo /x > first/.git/objects/info/alternates").await));
    assert!(failed(&sh_in(&work, "echo /x > second/.git/objects/info/alternates").await));
}

#[tokio::test]
async fn submodules_and_linked_worktrees_can_be_worked_in() {
    let work = Work::new();
    let root = work.path();
    let elsewhere = root.parent().unwrap().join("library");
    repository(&elsewhere);
    repository(&root);
    git(&root, &format!("submodule -q add {} libs/one", elsewhere.display()));
    git(&root, "commit -q -m sub");
    git(&root, "worktree add -q linked -b linked");
    git(&root, "clone -q --bare . .bare");
    git(&root.join(".bare"), "worktree add -q ../tree -b tree");
    for folder in ["libs/one", "linked", "tree"] {
        let script = format!(
            "cd {folder}; echo two > b; git add b; git commit -q -m two; git log --format=%s | head -1; git checkout -q -b other"
        );
        let ended = inside(&work, &script).await;
        assert_eq!(ok(&ended), "two\n", "{folder}");
        assert!(ended.planted.is_empty(), "{folder}: {:?}", ended.planted);
    }
    for attempt in [
        "echo evil >> .git/modules/libs/one/config",
        "echo evil > .git/modules/libs/one/hooks/pre-commit",
        "mkdir -p .git/modules/two",
        "rm .git/modules/libs/one/config",
        "mv .git/modules/libs .git/modules/other",
        "echo evil >> .bare/config",
        "echo evil > .bare/hooks/pre-commit",
        "echo ../x > .bare/worktrees/tree/commondir",
        "mkdir .bare/worktrees/tree/rebase-merge",
        "echo evil > .git/worktrees/linked/config.worktree",
        "ln -s x .git/modules/libs/one/logs/x",
    ] {
        assert!(failed(&sh_in(&work, attempt).await), "`{attempt}`");
    }
}

#[tokio::test]
async fn branches_that_follow_a_remote_can_be_checked_out() {
    let work = Work::new();
    let root = work.path();
    let elsewhere = root.parent().unwrap().join("upstream");
    repository(&elsewhere);
    git(&elsewhere, "branch feature");
    git(root.parent().unwrap(), "clone -q upstream work");
    let mut spec = work.spec([
        "/bin/sh",
        "-c",
        "git checkout -q feature && git branch --show-current && git branch -q -D main",
    ]);
    spec.env.extend(regent_sandbox::git_environment());
    let ended = run(spec, std::future::pending()).await.unwrap();
    assert_eq!(ok(&ended), "feature\n");
}

#[tokio::test]
async fn ordinary_work_with_git_and_packages_goes_on() {
    let work = Work::new();
    let root = work.path();
    repository(&root);
    let script = "
        git init -q /tmp/new; git branch side; git checkout -q side; echo two > b; git add b; git commit -q -m two
        git checkout -q main; echo three > c; git add .; git commit -q -m three; git merge -q -m merged side; git tag v1
        git stash list; git cherry-pick side 2>/dev/null || git reset -q --hard; git revert --no-edit HEAD~1 -m 1 >/dev/null 2>&1 || git reset -q --hard
        mkdir -p p/a p/b/lib; echo x > p/a/i.js; ln -s ../a/i.js p/b/l; ln -s lib p/b/m; tar cf t.tar p; mkdir o; tar xf t.tar -C o; mv o/p q; mv q/b q/c
        mkdir -p node_modules/.bin node_modules/.t-1/bin; echo x > node_modules/.t-1/bin/x; mv node_modules/.t-1 node_modules/t; ln -s ../t/bin/x node_modules/.bin/x
        rm -r q node_modules; git status --short | wc -l";
    let ended = inside(&work, script).await;
    ok(&ended);
    assert!(ended.refused.is_empty() && ended.planted.is_empty(), "{:?} {:?}", ended.refused, ended.planted);
    let mode = fs::metadata(root.join(".git/config")).unwrap().permissions().mode();
    assert_eq!(mode & 0o222, 0o200, "{mode:o}");
}
