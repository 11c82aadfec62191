//! The memory of a run as a whole, and what of the kernel a program can see.

use std::future::pending;

use regent_sandbox::{EndedBy, LimitedBy, Limits, MemoryFloor, SandboxError, Spec, run};

use crate::kit::{Work, ok, sh, sh_in};

/// Each `tail` keeps what it reads, since there is no newline in it and no end. Where the kernel kills one of them for memory, it ends
/// the rest.
const THREE_HOGS: &str = "for n in 1 2 3; do
    (head -c 100000000 /dev/zero; sleep 600) | { tail -n 1; kill -9 0; } &
done
wait";

fn limited(bytes: u64, script: &str) -> Spec {
    let limits = Limits { memory_bytes_max: bytes, ..Limits::default() };
    Spec { limits, ..Spec::new(["/bin/sh", "-c", script]) }
}

#[tokio::test]
async fn f8_the_memory_of_all_processes_together_is_limited() {
    // No process is over the limit by itself.
    let ended = run(limited(200 << 20, THREE_HOGS), pending()).await.unwrap();
    assert_eq!(ended.why, EndedBy::Memory, "{ended:?}");
}

#[tokio::test]
async fn m8_a_run_below_its_limit_is_left_alone() {
    let script = "head -c 60000000 /dev/zero | tail -n 1 | wc -c";
    let ended = run(limited(300 << 20, script), pending()).await.unwrap();
    assert_eq!(ok(&ended).trim(), "60000000");
    assert_eq!(ended.why, EndedBy::Itself);
}

#[tokio::test]
async fn m8_less_than_is_required_is_refused() {
    let given = sh("true").await.obtained.memory;
    let is_cgroup = matches!(given, LimitedBy::CgroupV1 | LimitedBy::CgroupV2 | LimitedBy::Scope);
    assert!(is_cgroup || given == LimitedBy::Watch, "{given:?}");
    for (memory, is_met) in
        [(MemoryFloor::Any, true), (MemoryFloor::Watch, true), (MemoryFloor::Cgroup, is_cgroup)]
    {
        match run(Spec { memory, ..Spec::new(["true"]) }, pending()).await {
            Ok(ended) => assert!(is_met, "{ended:?}"),
            Err(SandboxError::Memory { fix, .. }) => assert!(!is_met && fix.contains("systemd-run"), "{fix}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn l11_files_of_proc_that_tell_about_the_kernel_are_blank() {
    let names = "cmdline kallsyms kcore keys kmsg kpagecgroup kpagecount kpageflags pagetypeinfo slabinfo timer_list vmallocinfo";
    let script =
        format!("for name in {names}; do head -c 1 /proc/$name 2>/dev/null && echo \"read $name\"; done; :");
    let seen = ok(&sh(&script).await);
    // The kernel shows ordinary users its symbols without their addresses.
    let addresses = ok(&sh("head -n 1 /proc/kallsyms 2>/dev/null || :").await);
    let told: Vec<&str> = seen
        .lines()
        .filter(|line| !line.contains("kallsyms"))
        .filter(|line| line.contains("read "))
        .collect();
    assert!(told.is_empty(), "{seen}");
    assert!(addresses.is_empty() || addresses.starts_with("0000000000000000"), "{addresses}");
    // Whatever only its owner may read, on whichever kernel.
    let script = "for f in $(find /proc -maxdepth 1 -type f ! -perm -004); do head -c 1 $f >/dev/null 2>&1 && echo $f; done; :";
    let private = ok(&sh(script).await);
    assert_eq!(private, "");
}

#[tokio::test]
async fn l3_the_receipt_says_which_socket_files_are_reached() {
    use regent_sandbox::UnixSockets;
    let work = Work::new();
    let ended = sh_in(&work, "true").await;
    let scoped = ended.obtained.landlock_abi >= 9;
    assert_eq!(ended.obtained.unix_sockets, if scoped { UnixSockets::Own } else { UnixSockets::Workspace });
}
