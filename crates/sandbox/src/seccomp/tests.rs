//! The compiled filter, interpreted, answers exactly what the lists say.

use super::*;

/// A machine for the few instructions that the generator emits.
fn interpret(program: &[sock_filter], arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let word = |offset: u32| match offset {
        0 => number,
        4 => arch,
        _ => {
            let index = (offset - 16) / 8;
            let shift = (offset - 16) % 8 * 8;
            (arguments[index as usize] >> shift) as u32
        }
    };
    let (mut at, mut accumulator) = (0usize, 0u32);
    loop {
        let op = program[at];
        let (code, taken) = (u32::from(op.code), |yes: bool| usize::from(if yes { op.jt } else { op.jf }));
        at += 1;
        match code & 0x07 {
            libc::BPF_LD => accumulator = word(op.k),
            libc::BPF_ALU => accumulator &= op.k,
            libc::BPF_RET => return op.k,
            libc::BPF_JMP => match code & 0xf0 {
                libc::BPF_JA => at += op.k as usize,
                libc::BPF_JEQ => at += taken(accumulator == op.k),
                libc::BPF_JGE => at += taken(accumulator >= op.k),
                libc::BPF_JSET => at += taken(accumulator & op.k != 0),
                other => panic!("unexpected jump {other:#x}"),
            },
            other => panic!("unexpected class {other:#x}"),
        }
    }
}

const FULL: Profile = Profile::Full;
const WATCHED: Profile = Profile::Watched;
const BARE: Profile = Profile::Bare { landlock_abi: 1, root: true, supervised: false };

fn ask(profile: Profile, call: c_long, arguments: [u64; 6]) -> u32 {
    interpret(&program(profile), ARCH, u32::try_from(call).unwrap(), arguments)
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOT_PERMITTED: u32 = libc::SECCOMP_RET_ERRNO | EPERM;
const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | ENOSYS;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

#[test]
fn every_number_gets_the_answer_of_the_table() {
    for profile in [FULL, WATCHED, BARE] {
        let (program, table) = (program(profile), table(profile));
        assert!(program.len() <= 4096, "the kernel's limit");
        for number in 0..4096u32 {
            let expected = match table.get(number as usize) {
                Some(SyscallRule::Allow) => ALLOW,
                Some(SyscallRule::Errno(errno)) => libc::SECCOMP_RET_ERRNO | errno,
                Some(SyscallRule::Checked(_)) => continue,
                None => NO_SUCH_CALL,
            };
            assert_eq!(interpret(&program, ARCH, number, [u64::MAX; 6]), expected, "call {number}");
        }
    }
}

#[test]
fn no_call_is_both_allowed_and_refused() {
    for call in REFUSED.iter().chain(REFUSED_LEGACY) {
        assert!(!ALLOWED.contains(call) && !ALLOWED_LEGACY.contains(call), "call {call}");
    }
}

#[test]
fn adv_036_foreign_abis_are_killed() {
    for arch in [0x4000_0003, 0x4000_0028, 0x8000_0015, 0] {
        assert_eq!(interpret(&program(FULL), arch, 0, [0; 6]), KILL);
    }
    for number in [X32_BIT, X32_BIT + 1, X32_BIT + 520, u32::MAX] {
        assert_eq!(interpret(&program(FULL), ARCH, number, [0; 6]), KILL);
    }
}

#[test]
fn adv_035_clone_cannot_make_namespaces() {
    assert_eq!(ask(FULL, libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]), ALLOW);
    let threads =
        libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
    assert_eq!(ask(FULL, libc::SYS_clone, [threads as u64, 0, 0, 0, 0, 0]), ALLOW);
    for bit in 0..32 {
        let flag = 1u32 << bit;
        if CLONE_NEW & flag != 0 {
            assert_eq!(ask(FULL, libc::SYS_clone, [u64::from(flag), 0, 0, 0, 0, 0]), NOT_PERMITTED);
        }
    }
    assert_eq!(ask(FULL, libc::SYS_clone3, [0; 6]), NO_SUCH_CALL);
}

#[test]
fn a_high_bit_does_not_slip_past_a_check() {
    let high = 1u64 << 32;
    assert_eq!(ask(FULL, libc::SYS_ioctl, [0, 0x5412 | high, 0, 0, 0, 0]), NOT_PERMITTED);
    assert_eq!(ask(FULL, libc::SYS_ioctl, [0, 0x5401, 0, 0, 0, 0]), ALLOW);
    assert_eq!(ask(FULL, libc::SYS_socket, [16 | high, 1, 0, 0, 0, 0]), NOT_PERMITTED);
    assert_eq!(ask(FULL, libc::SYS_clone, [high | libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0]), NOT_PERMITTED);
}

#[test]
fn adv_046_only_local_and_internet_sockets_and_no_raw_ones() {
    for family in 0..64u64 {
        for kind in 0..11u64 {
            let expected = [1, 2, 10].contains(&family) && [1, 2, 5].contains(&kind);
            let flags = libc::SOCK_CLOEXEC as u64 | libc::SOCK_NONBLOCK as u64;
            let got = ask(FULL, libc::SYS_socket, [family, kind | flags, 0, 0, 0, 0]);
            assert_eq!(got, if expected { ALLOW } else { NOT_PERMITTED }, "family {family} type {kind}");
            assert_eq!(ask(BARE, libc::SYS_socket, [family, kind, 0, 0, 0, 0]), NOT_PERMITTED);
        }
        let got = ask(FULL, libc::SYS_socketpair, [family, 1, 0, 0, 0, 0]);
        assert_eq!(got, if family == 1 { ALLOW } else { NOT_PERMITTED });
    }
}

#[test]
fn adv_036_memory_files_can_never_be_executed() {
    assert_eq!(ask(FULL, libc::SYS_memfd_create, [0, 0, 0, 0, 0, 0]), NOT_PERMITTED);
    assert_eq!(ask(FULL, libc::SYS_memfd_create, [0, 0x10, 0, 0, 0, 0]), NOT_PERMITTED);
    assert_eq!(ask(FULL, libc::SYS_memfd_create, [0, 8 | 1, 0, 0, 0, 0]), ALLOW);
}

#[test]
fn without_a_scope_only_the_own_group_can_be_signalled() {
    assert_eq!(ask(BARE, libc::SYS_kill, [0, 15, 0, 0, 0, 0]), ALLOW);
    for target in [1u64, 4242, u64::MAX] {
        assert_eq!(ask(BARE, libc::SYS_kill, [target, 9, 0, 0, 0, 0]), NOT_PERMITTED);
        assert_eq!(ask(FULL, libc::SYS_kill, [target, 9, 0, 0, 0, 0]), ALLOW);
    }
    assert_eq!(ask(BARE, libc::SYS_tgkill, [1, 1, 9, 0, 0, 0]), NOT_PERMITTED);
}

#[test]
fn adv_028_no_file_gets_a_set_id_bit() {
    let mode_of = MODE_ARGUMENTS.iter().chain(MODE_ARGUMENTS_LEGACY);
    for &(call, argument) in mode_of {
        let with = |mode: u64| {
            let mut arguments = [0; 6];
            arguments[argument as usize] = mode;
            ask(FULL, call, arguments)
        };
        assert_eq!(with(0o1777), ALLOW, "call {call}");
        for mode in [0o4755, 0o2755, 0o6000] {
            assert_eq!(with(mode), NOT_PERMITTED, "call {call}");
        }
    }
    assert_eq!(ask(FULL, libc::SYS_openat2, [0; 6]), NO_SUCH_CALL);
}

#[test]
fn what_landlock_does_not_see_is_refused_without_a_root_of_its_own() {
    let newest = |root| Profile::Bare { landlock_abi: 9, root, supervised: true };
    for call in
        [libc::SYS_fchmodat, libc::SYS_chmod, libc::SYS_chown, libc::SYS_shmget, libc::SYS_inotify_init1]
    {
        assert_eq!(ask(newest(false), call, [0; 6]), NOT_PERMITTED);
        assert_eq!(ask(FULL, call, [0; 6]), ALLOW);
    }
    assert_eq!(ask(newest(false), libc::SYS_fchmod, [0; 6]), ALLOW);
    assert_eq!(ask(newest(true), libc::SYS_fchmod, [0; 6]), NOT_PERMITTED);
    // A pointer whose lower half is zero is still a pointer.
    for (path, expected) in
        [(0, ALLOW), (1, NOT_PERMITTED), (1 << 32, NOT_PERMITTED), (u64::MAX, NOT_PERMITTED)]
    {
        assert_eq!(ask(newest(false), libc::SYS_utimensat, [3, path, 0, 0, 0, 0]), expected);
    }
    assert_eq!(ask(newest(false), libc::SYS_truncate, [0; 6]), ALLOW);
    assert_eq!(ask(BARE, libc::SYS_truncate, [0; 6]), NOT_PERMITTED);
}

#[test]
fn s5_1_no_descriptor_of_the_fallback_signals_other_processes() {
    let newest = Profile::Bare { landlock_abi: 9, root: false, supervised: true };
    for profile in [BARE, newest] {
        for command in [libc::F_SETOWN, 10, 15, libc::F_SETLEASE, libc::F_NOTIFY] {
            for high in [0, 1 << 32] {
                let arguments = [3, command as u64 | high, 4242, 0, 0, 0];
                assert_eq!(ask(profile, libc::SYS_fcntl, arguments), NOT_PERMITTED, "fcntl {command}");
            }
        }
        for request in [0x8901, 0x8902, 0x5412, 0x541C, 0x541D, 0x5423] {
            assert_eq!(ask(profile, libc::SYS_ioctl, [3, request, 0, 0, 0, 0]), NOT_PERMITTED);
        }
        for command in [
            libc::F_GETFD,
            libc::F_SETFD,
            libc::F_GETFL,
            libc::F_SETFL,
            libc::F_SETLKW,
            libc::F_DUPFD_CLOEXEC,
        ] {
            assert_eq!(
                ask(profile, libc::SYS_fcntl, [3, command as u64, 0, 0, 0, 0]),
                ALLOW,
                "fcntl {command}"
            );
        }
        assert_eq!(ask(profile, libc::SYS_sched_setaffinity, [4242, 0, 0, 0, 0, 0]), NOT_PERMITTED);
        assert_eq!(ask(profile, libc::SYS_sched_setaffinity, [0; 6]), ALLOW);
    }
    // With a pid namespace these reach nobody outside. A lease delays everyone who opens the file.
    for command in [libc::F_SETLEASE, libc::F_NOTIFY] {
        assert_eq!(ask(FULL, libc::SYS_fcntl, [3, command as u64, 1, 0, 0, 0]), NOT_PERMITTED);
    }
    assert_eq!(ask(FULL, libc::SYS_fcntl, [3, libc::F_SETOWN as u64, 1, 0, 0, 0]), ALLOW);
}

#[test]
fn s5_2_m7_the_fallback_has_no_pair_of_datagram_sockets() {
    let flags = libc::SOCK_CLOEXEC as u64 | libc::SOCK_NONBLOCK as u64;
    for kind in 0..11u64 {
        let ask = |profile| ask(profile, libc::SYS_socketpair, [1, kind | flags, 0, 0, 0, 0]);
        assert_eq!(ask(BARE), if [1, 5].contains(&kind) { ALLOW } else { NOT_PERMITTED }, "type {kind}");
        assert_eq!(ask(FULL), if [1, 2, 5].contains(&kind) { ALLOW } else { NOT_PERMITTED }, "type {kind}");
    }
}

#[test]
fn s5_5_sockets_speak_tcp_and_udp_only() {
    for protocol in 0..512u64 {
        for (family, kind) in [(2, 1), (2, 2), (10, 1), (10, 2), (1, 1)] {
            let got = ask(FULL, libc::SYS_socket, [family, kind, protocol, 0, 0, 0]);
            let expected = if [0, 6, 17].contains(&protocol) { ALLOW } else { NOT_PERMITTED };
            assert_eq!(got, expected, "family {family} type {kind} protocol {protocol}");
        }
    }
    assert_eq!(ask(FULL, libc::SYS_socketpair, [1, 1, 132, 0, 0, 0]), NOT_PERMITTED);
}

#[test]
fn m8_a_watched_run_has_no_memory_that_nobody_maps() {
    assert_eq!(ask(WATCHED, libc::SYS_memfd_create, [0, 8, 0, 0, 0, 0]), NOT_PERMITTED);
    assert_eq!(ask(FULL, libc::SYS_memfd_create, [0, 8, 0, 0, 0, 0]), ALLOW);
    let most = u64::from(SEGMENT_BYTES_MAX);
    for (bytes, expected) in [
        (0, ALLOW),
        (56, ALLOW),
        (most, ALLOW),
        (most + 1, NOT_PERMITTED),
        (1 << 32, NOT_PERMITTED),
        (u64::MAX, NOT_PERMITTED),
    ] {
        assert_eq!(ask(WATCHED, libc::SYS_shmget, [0, bytes, 0, 0, 0, 0]), expected, "{bytes}");
    }
    // Everything else is as in the full sandbox.
    let differ: Vec<_> = table(FULL)
        .iter()
        .zip(table(WATCHED))
        .enumerate()
        .filter(|(_, (a, b))| *a != b)
        .map(|(n, _)| n)
        .collect();
    assert_eq!(differ, [libc::SYS_shmget as usize, libc::SYS_memfd_create as usize]);
}

#[test]
fn h4_what_makes_names_or_opens_for_writing_is_asked_about() {
    const ASK: u32 = libc::SECCOMP_RET_USER_NOTIF;
    let program = supervised::program(crate::ended::Confinement::Full);
    let ask = |call: c_long, arguments| interpret(&program, ARCH, u32::try_from(call).unwrap(), arguments);
    for call in
        [libc::SYS_mkdirat, libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_renameat2, libc::SYS_mknodat]
    {
        assert_eq!(ask(call, [0; 6]), ASK, "call {call}");
    }
    let flags_of = |call: c_long| usize::from(call == libc::SYS_openat) + 1;
    for call in [libc::SYS_openat, libc::SYS_open] {
        for (flags, expected) in [
            (libc::O_RDONLY, ALLOW),
            (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY | libc::O_NOFOLLOW, ALLOW),
            (libc::O_WRONLY, ASK),
            (libc::O_RDWR, ASK),
            (libc::O_CREAT, ASK),
            (libc::O_TRUNC, ASK),
            (libc::O_TMPFILE | libc::O_RDWR, ASK),
        ] {
            let mut arguments = [0; 6];
            // The upper half of the argument means nothing to the kernel.
            arguments[flags_of(call)] = flags as u64 | 1 << 40;
            assert_eq!(ask(call, arguments), expected, "call {call} flags {flags:o}");
        }
    }
    for call in [libc::SYS_read, libc::SYS_execve, libc::SYS_unlinkat, libc::SYS_openat2] {
        assert_eq!(ask(call, [u64::MAX; 6]), ALLOW, "call {call}");
    }
}

#[test]
fn a_guests_thread_runs_one_processor_rings_one_bell_and_opens_nothing() {
    const KVM_RUN: u64 = 0xae80;
    const KVM_CREATE_VCPU: u64 = 0xae41;
    let program = guest_thread(7, 9);
    let code = libc::PROT_EXEC as u64;
    for (call, arguments, expected) in [
        (libc::SYS_ioctl, [7, KVM_RUN, 0], ALLOW),
        (libc::SYS_ioctl, [8, KVM_RUN, 0], NOT_PERMITTED),
        (libc::SYS_ioctl, [7, KVM_CREATE_VCPU, 0], NOT_PERMITTED),
        (libc::SYS_write, [9, 0, 0], ALLOW),
        (libc::SYS_write, [1, 0, 0], NOT_PERMITTED),
        (libc::SYS_mmap, [0, 4096, 0], ALLOW),
        (libc::SYS_mmap, [0, 4096, code], NOT_PERMITTED),
        (libc::SYS_mprotect, [0, 4096, code], NOT_PERMITTED),
        (libc::SYS_futex, [0; 3], ALLOW),
        (libc::SYS_exit, [0; 3], ALLOW),
        (libc::SYS_openat, [0; 3], NOT_PERMITTED),
        (libc::SYS_close, [7, 0, 0], NOT_PERMITTED),
        (libc::SYS_clone, [0; 3], NOT_PERMITTED),
        (libc::SYS_execve, [0; 3], NOT_PERMITTED),
        (libc::SYS_exit_group, [0; 3], NOT_PERMITTED),
        (libc::SYS_openat2, [0; 3], NOT_PERMITTED),
        (4095, [0; 3], NOT_PERMITTED),
    ] {
        let [first, second, third] = arguments;
        let got = interpret(&program, ARCH, u32::try_from(call).unwrap(), [first, second, third, 0, 0, 0]);
        assert_eq!(got, expected, "call {call} {arguments:?}");
    }
    assert_eq!(interpret(&program, 0x4000_0003, 0, [0; 6]), KILL);
    assert_eq!(interpret(&program, ARCH, X32_BIT, [0; 6]), KILL);
}
