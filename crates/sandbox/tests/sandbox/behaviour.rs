//! What callers rely on.

use std::future::{pending, ready};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::task::Poll;

use regent_sandbox::{
    Bind, Confinement, EndedBy, Exit, Floor, Limits, SandboxError, SetupStep, Spec, Stdin, WorkspaceMount,
    run,
};

use crate::kit::{Work, host_has_process, ok, out, sh, sh_in};

#[tokio::test]
async fn streams_status_and_usage_come_back() {
    let ended = sh("echo out; echo err >&2; exit 42").await;
    assert_eq!(ended.status, Exit::Code(42));
    assert_eq!((out(&ended).as_str(), ended.stderr.as_slice()), ("out\n", b"err\n".as_slice()));
    assert_eq!((ended.why, ended.truncated), (EndedBy::Itself, false));
    assert!(ended.rss_bytes_peak > 0);
    let ended = sh("kill -SEGV $$").await;
    assert_eq!(ended.status, Exit::Signal(libc::SIGSEGV));
}

#[tokio::test]
async fn standard_input_is_what_was_given() {
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let spec = Spec { stdin: Stdin::Bytes(bytes.clone()), ..Spec::new(["cat"]) };
    let ended = run(spec, pending()).await.unwrap();
    assert_eq!(ended.stdout, bytes);
    assert_eq!(ok(&sh("cat | wc -c").await).trim(), "0");
}

#[tokio::test]
async fn the_workspace_is_at_its_own_path_and_its_files_are_ours() {
    let work = Work::new();
    let place = ok(&sh_in(&work, "pwd && mkdir -p a/b && echo x > a/b/c && mv a d").await);
    assert_eq!(place.trim(), work.path().to_str().unwrap());
    let made = std::fs::metadata(work.path().join("d/b/c")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), rustix::process::geteuid().as_raw());
}

#[tokio::test]
async fn a_read_only_workspace_is_read_only() {
    let work = Work::new();
    std::fs::write(work.path().join("file"), "x").unwrap();
    for script in ["echo y > file", "echo y > new", "rm file", "mkdir d", "chmod 777 file"] {
        let mut spec = work.spec(["/bin/sh", "-c", script]);
        spec.workspace.as_mut().unwrap().writable = false;
        assert_ne!(run(spec, pending()).await.unwrap().status, Exit::Code(0), "`{script}`");
    }
}

#[tokio::test]
async fn mounts_further_places_read_only() {
    let work = Work::new();
    let tool = work.outside("tool", "#!/bin/sh\necho tool\n");
    let mut spec = work.spec(["/bin/sh", "-c", "sh /opt/tool && echo x > /opt/tool"]);
    spec.binds = vec![Bind { host: tool, at: "/opt/tool".into() }];
    let ended = run(spec, pending()).await.unwrap();
    assert_eq!(out(&ended), "tool\n");
    assert_ne!(ended.status, Exit::Code(0));
}

#[tokio::test]
async fn the_workspace_may_lie_below_any_private_folder() {
    for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
        let folder = tempfile::tempdir_in(folder).unwrap();
        let host = folder.path().canonicalize().unwrap();
        let workspace = WorkspaceMount::new(&host, true);
        let mut spec = Spec::new(["/bin/sh", "-c", "echo x > made"]);
        (spec.cwd, spec.workspace) = (host.clone(), Some(workspace));
        let result = run(spec, pending()).await;
        if host.starts_with("/dev") {
            assert!(
                matches!(result, Err(SandboxError::Spec(_))),
                "devices are not to be worked in: {result:?}"
            );
            continue;
        }
        ok(&result.unwrap());
        assert_eq!(std::fs::read_to_string(host.join("made")).unwrap(), "x\n");
    }
}

#[tokio::test]
async fn a_link_in_a_mounted_folder_cannot_redirect_the_view() {
    let work = Work::new();
    let target = work.outside("target", "x");
    let (shown, elsewhere) = (target.with_file_name("shown"), target.with_file_name("elsewhere"));
    std::fs::create_dir(&shown).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, shown.join("link")).unwrap();
    let mut spec = Spec::new(["true"]);
    let astray = Bind { host: target, at: shown.join("link/planted") };
    spec.binds = vec![Bind::same(&shown), astray];
    let result = run(spec, pending()).await;
    assert!(matches!(result, Err(SandboxError::Setup { .. })), "{result:?}");
    assert!(std::fs::read_dir(&elsewhere).unwrap().next().is_none(), "the host was written to");
}

#[tokio::test]
async fn time_is_up_when_it_is_up() {
    let mark = format!("5{:06}.25", std::process::id());
    let limits = Limits { wall_ms_max: 50, ..Limits::default() };
    let spec = Spec { limits, ..Spec::new(["sleep", mark.as_str()]) };
    let ended = run(spec, pending()).await.unwrap();
    assert_eq!((ended.why, ended.status), (EndedBy::WallClock, Exit::Signal(libc::SIGKILL)));
    assert!(!host_has_process(&mark));
}

#[tokio::test]
async fn a_cancelled_run_is_dead_when_it_returns() {
    let mark = format!("6{:06}.25", std::process::id());
    let script = format!("trap '' TERM; setsid sleep {mark} & sleep {mark}");
    let spec = Spec::new(["/bin/sh", "-c", script.as_str()]);
    let cancel = async {
        while !host_has_process(&mark) {
            tokio::task::yield_now().await;
        }
    };
    let ended = run(spec, cancel).await.unwrap();
    assert_eq!(ended.why, EndedBy::Killed);
    assert!(!host_has_process(&mark));
    let before_it_began = run(Spec::new(["sleep", "1000"]), ready(())).await;
    assert!(before_it_began.is_err() || before_it_began.unwrap().why == EndedBy::Killed);
}

#[tokio::test]
async fn a_dropped_run_is_dead_too() {
    let mark = format!("7{:06}.25", std::process::id());
    {
        let mut running = Box::pin(run(Spec::new(["sleep", mark.as_str()]), pending()));
        std::future::poll_fn(|context| {
            assert!(running.as_mut().poll(context).is_pending());
            context.waker().wake_by_ref();
            if host_has_process(&mark) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    assert!(!host_has_process(&mark));
}

#[tokio::test]
async fn what_cannot_be_started_is_named() {
    let missing = run(Spec::new(["no-such-program"]), pending()).await;
    assert!(
        matches!(&missing, Err(SandboxError::Program { program, cause })
            if program == "no-such-program" && cause.kind() == std::io::ErrorKind::NotFound),
        "{missing:?}"
    );
    let denied = run(Spec::new(["/etc/passwd"]), pending()).await;
    assert!(
        matches!(&denied, Err(SandboxError::Program { cause, .. })
            if cause.kind() == std::io::ErrorKind::PermissionDenied),
        "{denied:?}"
    );
    let nowhere = run(Spec { cwd: "/no/such/folder".into(), ..Spec::new(["true"]) }, pending()).await;
    assert!(
        matches!(nowhere, Err(SandboxError::Setup { step: SetupStep::WorkingDirectory, .. })),
        "{nowhere:?}"
    );
}

#[tokio::test]
async fn unusable_specifications_are_refused() {
    let work = Work::new();
    symlink(work.path(), work.path().with_file_name("link")).unwrap();
    let at = |host: PathBuf| Spec { workspace: Some(WorkspaceMount::new(host, true)), ..Spec::new(["true"]) };
    let mut name = Spec::new(["true"]);
    name.env = vec![("A=B".into(), "c".into())];
    let zero = Limits { memory_bytes_max: 0, ..Limits::default() };
    let cases = [
        Spec::new(Vec::<String>::new()),
        Spec::new([""]),
        Spec::new(["a\0b"]),
        Spec { cwd: "relative".into(), ..Spec::new(["true"]) },
        Spec { limits: zero, ..Spec::new(["true"]) },
        name,
        at("/".into()),
        at("/usr".into()),
        at("/etc/ssl".into()),
        at("/tmp".into()),
        at("/proc/self".into()),
        at("relative".into()),
        at(work.path().join("../work")),
        at(work.path().with_file_name("link")),
        at(work.path().join("absent")),
    ];
    for spec in cases {
        let shown = format!("{spec:?}");
        let result = run(spec, pending()).await;
        assert!(matches!(result, Err(SandboxError::Spec(_))), "{shown}: {result:?}");
    }
}

#[tokio::test]
async fn many_at_once_do_not_disturb_each_other() {
    let mut runs = tokio::task::JoinSet::new();
    for number in 0..24 {
        runs.spawn(async move {
            let ended = sh(&format!("echo {number} > /tmp/x; cat /tmp/x; ls /tmp")).await;
            assert_eq!(ok(&ended), format!("{number}\nx\n"));
        });
    }
    while let Some(result) = runs.join_next().await {
        result.unwrap();
    }
}

#[tokio::test]
async fn the_receipt_says_what_was_obtained() {
    let ended = run(Spec { floor: Floor::LandlockSeccomp, ..Spec::new(["true"]) }, pending()).await.unwrap();
    let got = ended.obtained;
    assert_eq!(got.confinement, Confinement::Full, "more than the floor is given where it can be had");
    assert!(got.user_ns && got.mount_ns && got.pid_ns && got.net_ns && got.ipc_ns && got.uts_ns);
    assert!(got.pivot_root && got.fresh_proc && got.seccomp && got.no_new_privs && got.landlock_abi >= 1);
    assert_eq!(got.tmp_bytes_max, Some(Limits::default().tmp_bytes_max));
    let text = serde_json::to_value(&got).unwrap();
    assert_eq!(text["confinement"], "full");
}

#[tokio::test]
async fn a_server_on_the_sandboxs_own_loopback_can_be_reached_from_inside() {
    let script = "python3 -c \"
import socket
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()
client = socket.create_connection(server.getsockname())
server.accept()[0].send(b'served')
print(client.recv(9).decode())\"";
    assert_eq!(ok(&sh(script).await), "served\n");
}
