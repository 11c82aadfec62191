//! Hostile programs, by their numbers.

use std::time::Duration;

use regent_kernel::Status;
use serde_json::json;

use crate::kit::{
    MicrovmFixture, RAISED, call, elf, ended, exit_with_answer, failed_with, has_busybox, has_kvm,
};

const EPERM: i64 = 1;
const ENOMEM: i64 = 12;
const EFAULT: i64 = 14;
const EMFILE: i64 = 24;
const ENOSYS: i64 = 38;
const SIGILL: i64 = -4;
const SIGSEGV: i64 = -11;
/// The machine's own descriptor tables, and the gate of system calls.
const TABLES: u64 = 0xffff_8000_0000_0000;
const GATE: u64 = 0x7fff_ffff_0000;

/// What a call answers in a guest: zero, or the error's number.
async fn answer(world: &MicrovmFixture, number: i64, arguments: &[u64]) -> i64 {
    let mut code = call(number, arguments);
    code.extend(exit_with_answer());
    ended(&world.code(&code).await)
}

#[tokio::test]
async fn adv_020_adv_021_adv_031_nothing_of_the_host_is_there() {
    if !has_busybox() {
        return;
    }
    let world = MicrovmFixture::new(RAISED).await;
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "hunter2").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", world.path().join("link")).unwrap();
    std::os::unix::fs::symlink(&secret, world.path().join("link2")).unwrap();
    std::os::unix::fs::symlink("loop", world.path().join("loop")).unwrap();
    std::fs::write(world.path().join("held"), "hunter2").unwrap();
    std::fs::hard_link(world.path().join("held"), outside.path().join("other")).unwrap();
    let secret = secret.display().to_string();
    let up = format!("../../../../../../..{secret}");
    for path in [
        "/etc/passwd",
        "/etc/shadow",
        "/root/.ssh/id_rsa",
        "/proc/1/environ",
        "/proc/self/environ",
        "/proc/self/maps",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd",
        "/proc/self/fd/0",
        "/dev/fd/0",
        "/dev/mem",
        "/dev/kvm",
        "/dev/shm/x",
        "/var/tmp/x",
        "/sys/kernel",
        "/run/docker.sock",
        "loop",
        "held",
        &secret,
        &up,
    ] {
        let outcome = world.exec(["busybox", "cat", path]).await;
        assert_eq!(ended(&outcome), 1, "{path}: {outcome:?}");
        assert!(!outcome.output.text().contains("hunter2"), "{path}");
    }
    // A link of the workspace is where it leads, and policy judges that: here it allows everything, and the guest gets what the
    // tool gives. A policy that keeps to the workspace keeps the guest in it.
    let inside = MicrovmFixture::new(
        "version: 1\nrules:\n  - { id: all, effect: allow }\n  - { id: out, effect: deny, match: { path: '/**' }, reason: outside }\n",
    )
    .await;
    std::os::unix::fs::symlink("/etc/passwd", inside.path().join("link")).unwrap();
    let outcome = inside.exec(["busybox", "cat", "link"]).await;
    assert!(ended(&outcome) == 1 && !outcome.output.text().contains("root:"), "adv_017: {outcome:?}");
}

#[tokio::test]
async fn adv_025_adv_026_temporary_files_are_private_and_bounded() {
    if !has_busybox() {
        return;
    }
    let world = MicrovmFixture::new(
        "version: 1\nlimits: { wall: 20s, tmp: 1MiB, file: 512kB, memory: 96MiB }\nrules:\n  - { id: all, effect: allow }\n",
    )
    .await;
    let name = format!("/tmp/regent-guest-{}", std::process::id());
    let made = world.sh(&format!("echo x > {name}; read y < {name}; echo $y")).await;
    assert_eq!(made.output.text(), "x\n");
    assert!(!std::path::Path::new(&name).exists());
    for words in [
        ["dd", "if=/dev/zero", "of=/tmp/big", "bs=64k", "count=100"],
        ["dd", "if=/dev/zero", "of=big", "bs=64k", "count=100"],
        ["truncate", "-s", "1T", "/tmp/sparse", "/tmp/x"],
        ["truncate", "-s", "1T", "sparse", "x"],
    ] {
        let mut argv = vec!["busybox"];
        argv.extend(words);
        let outcome = world.outcome("process.exec", json!({"argv": argv})).await;
        assert_eq!(ended(&outcome), 1, "{words:?}: {outcome:?}");
    }
    let many =
        "BEGIN { for (i = 0; i < 20000; i++) { f = \"/tmp/f\" i; printf \"\" > f; close(f) } print \"all\" }";
    let outcome = world.exec(["busybox", "awk", many]).await;
    assert!(!outcome.output.text().contains("all"), "{outcome:?}");
}

#[tokio::test]
async fn adv_035_adv_036_adv_040_adv_046_calls_that_nobody_answers() {
    if !has_kvm() {
        return;
    }
    let world = MicrovmFixture::new(RAISED).await;
    let refused: &[(&str, i64)] = &[
        ("clone", 56),
        ("fork", 57),
        ("vfork", 58),
        ("execve", 59),
        ("ptrace", 101),
        ("mount", 165),
        ("pivot_root", 155),
        ("kexec_load", 246),
        ("add_key", 248),
        ("keyctl", 250),
        ("unshare", 272),
        ("perf_event_open", 298),
        ("name_to_handle_at", 303),
        ("open_by_handle_at", 304),
        ("setns", 308),
        ("process_vm_readv", 310),
        ("bpf", 321),
        ("execveat", 322),
        ("userfaultfd", 323),
        ("memfd_create", 319),
        ("io_uring_setup", 425),
        ("pidfd_open", 434),
        ("clone3", 435),
        ("iopl", 172),
        ("ioperm", 173),
        ("init_module", 175),
        ("modify_ldt", 154),
        ("x32 read", 0x4000_0000),
        ("negative", -1),
        ("far", i64::MAX),
    ];
    for (name, number) in refused {
        let found = answer(&world, *number, &[0, 0, 0, 0, 0, 0]).await;
        assert!([EPERM, ENOSYS].contains(&found), "{name}: {found}");
    }
    // Internet, raw, netlink, local and VM sockets.
    for family in [1_u64, 2, 10, 16, 17, 40] {
        let found = answer(&world, 41, &[family, 1, 0]).await;
        assert_eq!(found, EPERM, "family {family}");
    }
}

#[tokio::test]
async fn adv_036_what_only_a_kernel_may_do_ends_the_guest() {
    if !has_kvm() {
        return;
    }
    let world = MicrovmFixture::new(RAISED).await;
    let load = |address: u64| {
        let mut code = vec![0x48, 0xa1];
        code.extend(address.to_le_bytes());
        code
    };
    let store = |address: u64| {
        let mut code = vec![0x48, 0xa3];
        code.extend(address.to_le_bytes());
        code
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("cli", vec![0xfa]),
        ("hlt", vec![0xf4]),
        ("out", vec![0xe6, 0x40]),
        ("in", vec![0xe4, 0x40]),
        ("rdmsr", vec![0x0f, 0x32]),
        ("wrmsr", vec![0x0f, 0x30]),
        ("mov rax, cr3", vec![0x0f, 0x20, 0xd8]),
        ("mov cr3, rax", vec![0x0f, 0x22, 0xd8]),
        ("mov dr7, rax", vec![0x0f, 0x23, 0xf8]),
        ("lgdt", vec![0x0f, 0x01, 0x14, 0x25, 0x78, 0, 0x40, 0]),
        ("invlpg", vec![0x0f, 0x01, 0x3c, 0x25, 0, 0, 0x40, 0]),
        ("swapgs", vec![0x0f, 0x01, 0xf8]),
        ("int 0x80", vec![0xcd, 0x80]),
        ("sysenter", vec![0x0f, 0x34]),
        ("sysret", vec![0x48, 0x0f, 0x07]),
        ("ud2", vec![0x0f, 0x0b]),
        ("read the tables", load(TABLES)),
        ("read the stack of exceptions", load(TABLES + 0x3ff8)),
        ("write the tables", store(TABLES)),
        ("write the gate", store(GATE)),
        ("read null", load(0)),
        ("read a wild place", load(0x1234_5678_9000)),
        ("jump to the tables", vec![0x48, 0xb8, 0, 0, 0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xe0]),
    ];
    for (name, mut code) in cases {
        code.extend(call(231, &[0]));
        let found = ended(&world.code(&code).await);
        assert!([SIGSEGV, SIGILL].contains(&found), "{name}: {found}");
    }
    // The gate can be read and run, as it must be; a guest that jumps there has made a system call.
    let mut direct = call(231, &[0]);
    direct.truncate(direct.len() - 2);
    direct.extend([0x49, 0xbb]);
    direct.extend(GATE.to_le_bytes());
    direct.extend([0x41, 0xff, 0xe3]);
    assert_eq!(ended(&world.code(&direct).await), 0);
}

#[tokio::test]
async fn pointers_that_are_not_the_guests_own_are_refused() {
    if !has_kvm() {
        return;
    }
    let world = MicrovmFixture::new(RAISED).await;
    let own = 0x40_0078_u64;
    for (name, number, arguments) in [
        ("write from the tables", 1, vec![1, TABLES, 16]),
        ("write from null", 1, vec![1, 0, 16]),
        ("write past the end", 1, vec![1, own, 1 << 40]),
        ("write around the end", 1, vec![1, u64::MAX - 4, 16]),
        ("write from the gate", 1, vec![1, GATE, 2]),
        ("read into the gate", 0, vec![0, GATE, 16]),
        ("open at the tables", 2, vec![TABLES, 0, 0]),
        ("stat into null", 5, vec![1, 0]),
        ("getrandom past the end", 318, vec![own, 1 << 40, 0]),
        ("uname into the tables", 63, vec![TABLES]),
        ("clock into a wild place", 228, vec![0, 0x7000_0000_0000]),
        ("readv with wild parts", 19, vec![0, 0x7000_0000_0000, 4]),
        ("poll with wild entries", 7, vec![0x7000_0000_0000, 4, 0]),
        ("nanosleep at null", 35, vec![0, 0]),
        ("pipe into null", 22, vec![0]),
    ] {
        assert_eq!(answer(&world, number, &arguments).await, EFAULT, "{name}");
    }
    assert_eq!(
        answer(&world, 9, &[TABLES, 4096, 3, 0x32, u64::MAX, 0]).await,
        ENOMEM,
        "mmap over the tables"
    );
    assert_eq!(answer(&world, 9, &[GATE, 4096, 3, 0x32, u64::MAX, 0]).await, ENOMEM, "mmap over the gate");
    assert_eq!(answer(&world, 9, &[0, 4096, 3, 0x32, u64::MAX, 0]).await, EPERM, "mmap at null");
    assert_eq!(answer(&world, 158, &[0x1002, TABLES]).await, EPERM, "thread storage in the tables");
    assert_eq!(answer(&world, 11, &[GATE, 4096]).await, ENOMEM, "munmap of the gate");
    assert_eq!(answer(&world, 10, &[GATE, 4096, 3]).await, ENOMEM, "mprotect of the gate");
}

/// The hypervisor may keep translations of its own; what was taken away must be gone there too.
#[tokio::test]
async fn rights_that_were_taken_away_are_gone() {
    if !has_kvm() {
        return;
    }
    const AT: u64 = 0x1000_0000;
    const ELSEWHERE: u64 = 0x2000_0000;
    let world = MicrovmFixture::new(RAISED).await;
    let map = || call(9, &[AT, 4096, 3, 0x32, u64::MAX, 0]);
    let at = |opcode: u8, address: u64| {
        let mut code = vec![0x48, opcode];
        code.extend(address.to_le_bytes());
        code
    };
    let (load, store) = (|address| at(0xa1, address), |address| at(0xa3, address));
    let mark = || [vec![0xb8, 0x5a, 0, 0, 0], store(AT)].concat();
    let moved = || call(25, &[AT, 4096, 4096, 3, ELSEWHERE]);
    let cases = [
        ("written", vec![map(), mark(), load(AT), exit_with_answer()], 0x100 - 0x5a),
        ("made read-only", vec![map(), mark(), call(10, &[AT, 4096, 1]), mark()], SIGSEGV),
        ("made unreadable", vec![map(), mark(), call(10, &[AT, 4096, 0]), load(AT)], SIGSEGV),
        (
            "opened again",
            vec![
                map(),
                mark(),
                call(10, &[AT, 4096, 0]),
                call(10, &[AT, 4096, 3]),
                load(AT),
                exit_with_answer(),
            ],
            0x100 - 0x5a,
        ),
        ("taken away", vec![map(), mark(), call(11, &[AT, 4096]), load(AT)], SIGSEGV),
        (
            "taken away and mapped again",
            vec![map(), mark(), call(11, &[AT, 4096]), map(), load(AT), exit_with_answer()],
            0,
        ),
        ("given back", vec![map(), mark(), call(28, &[AT, 4096, 4]), load(AT), exit_with_answer()], 0),
        ("moved away", vec![map(), mark(), moved(), load(AT)], SIGSEGV),
        ("moved here", vec![map(), mark(), moved(), load(ELSEWHERE), exit_with_answer()], 0x100 - 0x5a),
        (
            "not to be run",
            vec![map(), [vec![0xb8], (AT as u32).to_le_bytes().to_vec(), vec![0xff, 0xe0]].concat()],
            SIGSEGV,
        ),
    ];
    for (name, parts, expected) in cases {
        assert_eq!(ended(&world.code(&parts.concat()).await), expected, "{name}");
    }
}

#[tokio::test]
async fn adv_041_limits_hold() {
    if !has_kvm() {
        return;
    }
    let world = MicrovmFixture::new(
        "version: 1\nlimits: { wall: 20s, cpu: 200ms, output: 10kB, memory: 16MiB, open_files: 32 }\nrules:\n  - { id: all, effect: allow }\n",
    )
    .await;
    let spin = world.code(&[0xeb, 0xfe]).await;
    assert!(failed_with(&spin, "process.cpu"), "{spin:?}");
    // dup(1) until it fails, then exit with why: EMFILE.
    let mut dups = call(32, &[1]);
    let back = u8::try_from(dups.len() + 5).unwrap();
    // test rax, rax; jns back
    dups.extend([0x48, 0x85, 0xc0, 0x79, back.wrapping_neg()]);
    dups.extend(exit_with_answer());
    assert_eq!(ended(&world.code(&dups).await), EMFILE);
    // Maps a megabyte after the other and writes to each page of it until there is none left.
    let mut hog = call(9, &[0, 1 << 20, 3, 0x22, u64::MAX, 0]);
    // mov rcx, 256; loop: mov [rax], rcx; add rax, 4096; dec rcx; jnz loop
    hog.extend([
        0x48, 0xc7, 0xc1, 0, 1, 0, 0, 0x48, 0x89, 0x08, 0x48, 0x05, 0, 0x10, 0, 0, 0x48, 0xff, 0xc9, 0x75,
        0xf2,
    ]);
    let back = i32::try_from(hog.len() + 5).unwrap();
    hog.push(0xe9);
    hog.extend((-back).to_le_bytes());
    let hogged = world.code(&hog).await;
    assert!(failed_with(&hogged, "process.memory"), "{hogged:?}");
    // A futex that nobody can wake, a pipe that nobody writes to.
    let stuck = world.code(&call(202, &[0x40_0000, 0, 0x464c_457f, 0])).await;
    assert!(failed_with(&stuck, "microvm.stuck"), "{stuck:?}");
}

#[tokio::test]
async fn adv_040_a_cancelled_guest_is_gone() {
    if !has_kvm() {
        return;
    }
    let world = MicrovmFixture::new(RAISED).await;
    world.put("program", elf(&[0xeb, 0xfe]));
    let outcome = world.outcome("process.exec", json!({"argv": ["./program"], "timeout_ms": 100})).await;
    assert!(failed_with(&outcome, "process.timeout"), "{outcome:?}");
    // Guests of other tests come and go; this one would be busy for ever.
    let is_busy_guest = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.contains("(regent-guest) R ")
    };
    for _ in 0..3000 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        if !tasks.into_iter().any(is_busy_guest) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a guest runs on");
}

/// Whatever a program asks for, it ends and we live: random numbers, arguments and pointers, on the real machine.
#[tokio::test]
async fn random_calls_of_a_guest_end_it_or_are_answered() {
    if !has_kvm() {
        return;
    }
    let world = MicrovmFixture::new("version: 1\nlimits: { wall: 2s, output: 10kB, memory: 16MiB }\nrules:\n  - { id: all, effect: allow }\n").await;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let odd =
        [0, 1, 4096, 0x40_0000, 0x40_0078, 0x40_1000, TABLES, GATE, u64::MAX, 1 << 40, 0x7fff_efff_f000];
    for _ in 0..25 {
        let mut code = Vec::new();
        for _ in 0..60 {
            let number = i64::try_from(random() % 460).unwrap();
            // Not those that end or wait on purpose.
            if [34, 35, 60, 230, 231, 271].contains(&number) {
                continue;
            }
            let arguments: Vec<u64> = (0..6)
                .map(|_| {
                    if random() % 3 == 0 {
                        random() % 64
                    } else {
                        odd[usize::try_from(random() % 11).unwrap()]
                    }
                })
                .collect();
            code.extend(call(number, &arguments));
        }
        code.extend(call(231, &[0]));
        world.put("program", elf(&code));
        let outcome = world.exec(["./program"]).await;
        assert!(matches!(outcome.status, Status::Ok | Status::Failed(_) | Status::TimedOut), "{outcome:?}");
    }
}
