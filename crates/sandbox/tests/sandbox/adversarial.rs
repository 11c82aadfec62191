//! The cases of the adversarial catalogue that concern the process sandbox, against the real thing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use crate::kit::{Work, failed, host_has_process, ok, out, probes_hold, sh, sh_in};
use regent_sandbox::{EndedBy, Exit, FileUse, Limits, Spec, Survey, TMP_FILES_MAX, run};

#[tokio::test]
async fn adv_016_paths_lead_nowhere_outside() {
    let work = Work::new();
    let secret = work.outside("secret", "hunter2");
    let depth = "../".repeat(24);
    let attempts = [
        format!("cat '{}'", secret.display()),
        format!("cat '{depth}{}'", secret.display()),
        format!("cat '/.//{}'", secret.display()),
        format!("cat '{}.'", secret.display()),
        format!("cat '..%2f..%2f{}'", secret.display()),
        format!("cat $(printf '..\\300\\257..\\300\\257{}')", secret.display()),
        "echo x > /usr/bin/planted".to_owned(),
        "mkdir /planted".to_owned(),
    ];
    for attempt in &attempts {
        let ended = sh_in(&work, attempt).await;
        assert!(failed(&ended), "`{attempt}` worked: {ended:?}");
        assert!(!out(&ended).contains("hunter2"), "`{attempt}`");
    }
    // The folder above the workspace is a private one, so writing there may work, but is seen by nobody.
    sh_in(&work, &format!("echo x > '{}'; echo x > ../planted; echo x > /tmp/planted", secret.display()))
        .await;
    assert_eq!(fs::read_to_string(&secret).unwrap(), "hunter2");
    assert!(!secret.with_file_name("planted").exists());
}

#[tokio::test]
async fn adv_017_links_out_of_the_workspace_lead_nowhere() {
    let work = Work::new();
    let secret = work.outside("secret", "hunter2");
    symlink(&secret, work.path().join("direct")).unwrap();
    symlink("/etc/shadow", work.path().join("shadow")).unwrap();
    let mut target = secret;
    for link in 0..40 {
        let name = work.path().join(format!("chain{link}"));
        symlink(&target, &name).unwrap();
        target = name;
    }
    symlink("loop", work.path().join("loop")).unwrap();
    for name in ["direct", "shadow", "chain0", "chain39", "loop"] {
        let ended = sh_in(&work, &format!("cat {name}")).await;
        assert!(failed(&ended), "`{name}`: {ended:?}");
    }
    // A link to a name that both worlds have shows the inner one.
    symlink("/etc/passwd", work.path().join("passwd")).unwrap();
    let users = ok(&sh_in(&work, "cat passwd").await);
    assert!(users.starts_with("agent:x:1000:") && !users.contains("root:"), "{users}");
}

#[tokio::test]
async fn adv_020_no_way_round_by_hard_links_or_proc() {
    probes_hold(20);
    let work = Work::new();
    let secret = work.outside("secret", "hunter2");
    let secret = secret.display();
    for attempt in [
        format!("ln '{secret}' here"),
        "ln /usr/bin/env here".to_owned(),
        format!("cat /proc/self/root{secret}"),
        format!("cat /proc/self/cwd/../../../../../..{secret}"),
        format!("cat /proc/1/root{secret}"),
        "ls /proc/1/fd".to_owned(),
        "cat /dev/fd/9".to_owned(),
        "ls /proc/1/cwd/".to_owned(),
        // What it is already: if this worked, nothing would be harmed.
        "chmod 666 /dev/null".to_owned(),
        "chmod 755 /usr/bin/env".to_owned(),
    ] {
        let ended = sh_in(&work, &attempt).await;
        assert!(failed(&ended), "`{attempt}`: {ended:?}");
        assert!(!out(&ended).contains("hunter2"), "`{attempt}`");
    }
}

#[tokio::test]
async fn adv_021_home_is_empty_and_hidden_paths_are_blank() {
    probes_hold(21);
    let work = Work::new();
    fs::write(work.path().join(".env"), "TOKEN=hunter2").unwrap();
    fs::create_dir(work.path().join("secrets")).unwrap();
    fs::write(work.path().join("secrets/key"), "hunter2").unwrap();
    symlink("secrets/key", work.path().join("alias")).unwrap();
    let mut spec = work.spec(["/bin/sh", "-c", "ls -A ~; cat .env; cat secrets/key; cat alias; exit 0"]);
    let mount = spec.workspace.as_mut().unwrap();
    let survey = Survey::take(mount, &mut |path| FileUse {
        read: path != ".env" && !path.starts_with("secrets/"),
        write: true,
    });
    let survey = survey.unwrap();
    mount.survey = Some(Arc::new(survey));
    let ended = run(spec, std::future::pending()).await.unwrap();
    assert_eq!(ok(&ended), "", "nothing was read, and home is empty");
    let gone = sh_in(&work, "test -e /root || test -e /home/user").await;
    assert!(failed(&gone));
}

#[tokio::test]
async fn adv_022_git_internals_are_read_only() {
    let work = Work::with_git();
    for attempt in [
        "echo evil > .git/hooks/pre-commit",
        "echo evil >> .git/config",
        "rm .git/config",
        "mv .git/hooks .git/old",
        "rm -r .git/hooks",
        "ln -sf /tmp/x .git/config",
        "chmod 777 .git/config",
    ] {
        let ended = sh_in(&work, attempt).await;
        assert!(failed(&ended), "`{attempt}`: {ended:?}");
    }
    assert_eq!(ok(&sh_in(&work, "cat .git/config").await), "[core]\n");
    // The rest of the repository is still to be worked in.
    ok(&sh_in(&work, "echo x > .git/index && echo y > file && mkdir sub && mv file sub/").await);
    assert_eq!(fs::read_to_string(work.path().join(".git/config")).unwrap(), "[core]\n");
}

#[tokio::test]
async fn adv_023_absent_control_paths_cannot_be_made_and_are_reported() {
    let work = Work::with_git();
    let ended =
        sh_in(&work, "echo evil > .mcp.json; mkdir .vscode; echo evil > .vscode/tasks.json; echo fine > a")
            .await;
    ok(&ended);
    assert_eq!(ended.refused, [work.path().join(".mcp.json"), work.path().join(".vscode")]);
    for path in &ended.refused {
        assert!(fs::symlink_metadata(path).is_err(), "{path:?}");
    }
    assert!(ended.planted.is_empty());
    assert_eq!(fs::read_to_string(work.path().join("a")).unwrap(), "fine\n");
    assert!(sh_in(&work, "true").await.refused.is_empty());
}

#[tokio::test]
async fn adv_023_a_link_in_place_of_a_control_folder_cannot_be_made_or_changed() {
    let work = Work::with_git();
    let ended = sh_in(&work, "mkdir x; echo evil > x/tasks.json; ln -s x .vscode").await;
    assert!(failed(&ended));
    assert!(fs::symlink_metadata(work.path().join(".vscode")).is_err());
    // A link that was there before is left alone.
    symlink("notes", work.path().join(".mcp.json")).unwrap();
    assert!(sh_in(&work, "echo fine > b").await.planted.is_empty());
    assert!(failed(&sh_in(&work, "ln -sfn x .mcp.json").await));
    assert_eq!(fs::read_link(work.path().join(".mcp.json")).unwrap(), PathBuf::from("notes"));
}

#[tokio::test]
async fn adv_025_temporary_files_are_private_and_gone() {
    let name = format!("regent-adv-025-{}", std::process::id());
    let make = format!("for d in /tmp /var/tmp /dev/shm ~; do echo x > $d/{name} || exit 1; done");
    ok(&sh(&make).await);
    for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
        assert!(!PathBuf::from(folder).join(&name).exists());
    }
    let look = format!("for d in /tmp /var/tmp /dev/shm ~; do test ! -e $d/{name} || exit 1; done");
    ok(&sh(&look).await);
}

#[tokio::test]
async fn adv_026_neither_large_files_nor_many_get_far() {
    let work = Work::new();
    let limits = Limits { file_bytes_max: 1 << 20, tmp_bytes_max: 4 << 20, ..Limits::default() };
    let sized = |script: &str| Spec { limits, ..work.spec(["/bin/sh", "-c", script]) };
    for script in [
        "truncate -s 1T sparse",
        "truncate -s 1T /tmp/sparse",
        "head -c 2M /dev/zero > big",
        "for i in 1 2 3 4 5 6 7 8; do head -c 1M /dev/zero > /tmp/$i || exit 1; done",
    ] {
        let ended = run(sized(script), std::future::pending()).await.unwrap();
        assert!(failed(&ended) && ended.why == EndedBy::Itself, "`{script}`: {ended:?}");
    }
    assert!(fs::metadata(work.path().join("big")).unwrap().len() <= 1 << 20);
    let many = format!("cd /tmp && seq 1 {} | xargs touch", TMP_FILES_MAX + 1);
    assert!(failed(&sh(&many).await), "more files than the temporary file system may hold");
}

#[tokio::test]
async fn adv_028_no_privilege_can_be_gained() {
    probes_hold(28);
    let status = ok(&sh("cat /proc/self/status").await);
    for line in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(status.contains(&format!("{line}:\t0000000000000000")), "{status}");
    }
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    let mounts = ok(&sh("cat /proc/self/mountinfo").await);
    for mount in mounts.lines() {
        assert!(mount.contains("nosuid"), "{mount}");
    }
    assert!(failed(&sh("su -c id; test $(id -u) = 0").await));
    let work = Work::new();
    for attempt in ["chmod u+s f", "chmod 2755 f", "install -m 4755 f g", "cp /bin/sh g && chmod 6755 g"] {
        assert!(failed(&sh_in(&work, &format!("echo > f; {attempt}")).await), "`{attempt}`");
        for entry in fs::read_dir(work.path()).unwrap().flatten() {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o6000, 0, "`{attempt}`: {entry:?}");
        }
    }
    ok(&sh_in(&work, "chmod 755 f && ./f && mkdir d && chmod 700 d").await);
}

#[tokio::test]
async fn adv_029_a_protected_folder_cannot_be_replaced() {
    let work = Work::with_git();
    for attempt in
        ["mv .git x", "mv .git x; mkdir .git", "rm -rf .git", "rmdir .git/hooks", "mv .git/hooks h"]
    {
        sh_in(&work, attempt).await;
        assert!(work.path().join(".git/hooks/keep").exists(), "`{attempt}`");
        assert!(work.path().join(".git/config").exists(), "`{attempt}`");
        assert!(!work.path().join("x").exists(), "`{attempt}`");
    }
}

#[tokio::test]
async fn adv_030_tools_cannot_be_replaced_or_shadowed() {
    let work = Work::new();
    for attempt in ["echo x > /usr/bin/env", "rm /bin/sh", "ln -sf /tmp/x /bin/true", "mv /usr/bin /usr/old"]
    {
        assert!(failed(&sh_in(&work, attempt).await), "`{attempt}`");
    }
    // The search path is the specification's, and its relative entries count for nothing.
    fs::write(work.path().join("env"), "#!/bin/sh\necho shadowed\n").unwrap();
    let mut spec = work.spec(["env"]);
    spec.env = vec![("PATH".into(), ".::/usr/bin".into())];
    let ended = run(spec, std::future::pending()).await.unwrap();
    assert_eq!(ok(&ended), "PATH=.::/usr/bin\n");
}

#[tokio::test]
async fn adv_031_nobody_elses_environment_can_be_read() {
    probes_hold(31);
    let ended = sh("cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ls -d /proc/[0-9]*").await;
    let text = out(&ended);
    assert!(!text.contains("CARGO") && !text.contains("adversarial"), "{text}");
    assert!(!text.lines().any(|line| line == "/proc/1"), "the first process is invisible: {text}");
}

#[tokio::test]
async fn adv_032_no_descriptor_is_inherited() {
    probes_hold(32);
    // One of ours that would survive an exec.
    let open = rustix::io::dup(rustix::stdio::stderr()).unwrap();
    let listed = ok(&sh("ls /proc/$$/fd").await);
    drop(open);
    let mut listed: Vec<&str> = listed.split_whitespace().collect();
    listed.sort_unstable();
    assert_eq!(listed, ["0", "1", "2"]);
}

#[tokio::test]
async fn adv_033_every_run_starts_from_the_environment_of_its_specification() {
    let work = Work::new();
    let leave = "export LD_PRELOAD=/tmp/x BASH_ENV=/tmp/x PYTHONSTARTUP=/tmp/x; echo 'export EVIL=1' > ~/.profile; \
                 echo 'export EVIL=1' > ~/.bashrc; echo 'export EVIL=1' > /tmp/x";
    ok(&sh_in(&work, leave).await);
    let mut spec = work.spec(["/usr/bin/env"]);
    spec.env = vec![("ONLY".into(), "this".into())];
    let ended = run(spec, std::future::pending()).await.unwrap();
    assert_eq!(ok(&ended), "ONLY=this\n");
}

#[test]
fn adv_035_namespaces_and_mounts_are_refused() {
    probes_hold(35);
}

#[test]
fn adv_036_dangerous_calls_are_refused_and_foreign_abis_killed() {
    probes_hold(36);
}

#[test]
fn adv_037_the_terminal_cannot_be_typed_into() {
    probes_hold(37);
}

#[tokio::test]
async fn adv_037_a_session_of_its_own() {
    let ids = ok(&sh("cut -d' ' -f1,6,7 /proc/$$/stat").await);
    let fields: Vec<&str> = ids.split_whitespace().collect();
    assert_eq!(fields[0], fields[1], "leads its session: {ids}");
    assert_eq!(fields[2], "0", "has no terminal: {ids}");
}

#[test]
fn adv_038_nobody_outside_can_be_signalled() {
    probes_hold(38);
}

#[tokio::test]
async fn adv_039_no_socket_of_the_host_can_be_reached() {
    probes_hold(39);
    let work = Work::new();
    let path = work.outside("control.sock", "").with_extension("s");
    let _listener = UnixListener::bind(&path).unwrap();
    let seen = sh_in(&work, &format!("test -e '{}'", path.display())).await;
    assert!(failed(&seen));
    for path in ["/run/dbus", "/var/run/docker.sock", "/tmp/.X11-unix", "/run/user", "/run/systemd"] {
        assert!(failed(&sh(&format!("test -e {path}")).await), "{path}");
    }
}

#[tokio::test]
async fn adv_040_nothing_outlives_the_run() {
    probes_hold(40);
    let mark = format!("4{:06}.125", std::process::id());
    let script = format!(
        "(setsid sh -c 'trap \"\" TERM HUP; setsid sleep {mark} & sleep {mark}' &) ; sleep 0.01; exit 3"
    );
    let ended = sh(&script).await;
    assert_eq!((ended.status, ended.why), (Exit::Code(3), EndedBy::Itself));
    assert!(!host_has_process(&mark));
}

#[tokio::test]
async fn adv_041_memory_is_limited() {
    let limits = Limits { memory_bytes_max: 64 << 20, ..Limits::default() };
    // `tail` holds a line without end in memory.
    let spec =
        Spec { limits, ..Spec::new(["/bin/sh", "-c", "head -c 4G /dev/zero | tail -n 1 | wc -c; exit 0"]) };
    let ended = run(spec, std::future::pending()).await.unwrap();
    assert_ne!(out(&ended).trim(), "4294967296", "{ended:?}");
    assert!(ended.rss_bytes_peak < 128 << 20, "{ended:?}");
}

#[tokio::test]
async fn adv_041_forks_descriptors_and_processor_time_are_limited() {
    probes_hold(41);
    let bomb = "f() { f | f & f | f & wait; }; f 2>/dev/null";
    let limits = Limits { wall_ms_max: 1_500, pids_max: 64, ..Limits::default() };
    let spec = Spec { limits, ..Spec::new(["/bin/sh", "-c", bomb]) };
    run(spec, std::future::pending()).await.unwrap();
    let limits = Limits { cpu_s_max: 1, wall_ms_max: 60_000, ..Limits::default() };
    let spec = Spec { limits, ..Spec::new(["/bin/sh", "-c", "while :; do :; done"]) };
    let ended = run(spec, std::future::pending()).await.unwrap();
    assert_eq!(ended.why, EndedBy::Itself, "the kernel ended it: {ended:?}");
    assert!(matches!(ended.status, Exit::Signal(libc::SIGXCPU | libc::SIGKILL)), "{ended:?}");
}

#[test]
fn adv_045_no_core_is_dumped() {
    probes_hold(45);
}

#[test]
fn adv_046_there_is_no_network() {
    probes_hold(46);
}

#[tokio::test]
async fn adv_004_output_is_cut_at_the_cap_and_the_program_killed() {
    let limits = Limits { output_bytes_max: 1 << 20, ..Limits::default() };
    let spec = Spec { limits, ..Spec::new(["/bin/sh", "-c", "cat /dev/zero"]) };
    let ended = run(spec, std::future::pending()).await.unwrap();
    assert_eq!((ended.why, ended.truncated), (EndedBy::OutputCap, true));
    assert_eq!(ended.stdout.len() + ended.stderr.len(), 1 << 20);
}
