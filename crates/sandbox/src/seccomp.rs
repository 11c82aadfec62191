//! The system call filter: an allow-list, compiled to a classic BPF binary search.
//!
//! What isn't on a list answers `ENOSYS`, so that libraries fall back to older calls; what is known to be
//! dangerous answers `EPERM`; calls through a foreign ABI (32-bit, x32) kill the process. The kernel evaluates a
//! new filter once for every call number when it is installed, so a balanced tree of ranges instead of a linear
//! list is what keeps a launch cheap.

mod lists;
pub(crate) mod supervised;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use libc::{c_long, sock_filter};

use lists::{ALLOWED, ALLOWED_LEGACY, REFUSED, REFUSED_BARE, REFUSED_BARE_LEGACY, REFUSED_LEGACY};

const EPERM: u32 = libc::EPERM as u32;
const ENOSYS: u32 = libc::ENOSYS as u32;

/// `AUDIT_ARCH_*` of the one ABI that is spoken.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// Call numbers from here up belong to x32 (and are never valid elsewhere).
const X32_BIT: u32 = 0x4000_0000;

/// What differs between the two kinds of confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The sandbox has namespaces and a root of its own: what can be reached is harmless.
    Full,
    /// The same without a cgroup: memory that no process has mapped would be counted by nobody, so there is little of it.
    Watched,
    /// It shares the host's files, network, IPC and processes, so that what Landlock does not see has to be refused here.
    Bare {
        /// What Landlock sees depends on its ABI.
        landlock_abi: u32,
        /// Whether the program owns the host's own files.
        root: bool,
        /// Whether a supervisor judges what changes an open file.
        supervised: bool,
    },
}

/// The filter for the full confinement, built once; others are built when asked for.
pub(crate) fn cached(profile: Profile) -> Vec<sock_filter> {
    static FULL: OnceLock<Vec<sock_filter>> = OnceLock::new();
    static WATCHED: OnceLock<Vec<sock_filter>> = OnceLock::new();
    match profile {
        Profile::Full => FULL.get_or_init(|| program(profile)).clone(),
        Profile::Watched => WATCHED.get_or_init(|| program(profile)).clone(),
        Profile::Bare { .. } => program(profile),
    }
}

/// How many calls a profile allows, some only with certain arguments.
pub(crate) fn allowed(profile: Profile) -> usize {
    table(profile).iter().filter(|answer| !matches!(answer, SyscallRule::Errno(_))).count()
}

/// The filter for a thread that runs a guest and does nothing else: it may run that one virtual processor, ring that one bell, and
/// keep its own memory. Everything else answers `EPERM`.
pub(crate) fn guest_thread(vcpu_fd: u32, bell_fd: u32) -> Vec<sock_filter> {
    const KVM_RUN: u32 = 0xae80;
    let is = |argument, value| ArgumentCheck::Is { argument, value };
    let no_code = SyscallRule::Checked(vec![ArgumentCheck::NoBits {
        argument: 2,
        mask: libc::PROT_EXEC.cast_unsigned(),
    }]);
    let mut table = Vec::new();
    put(&mut table, lists::GUEST_THREAD.iter().map(|&call| (call, SyscallRule::Allow)), EPERM);
    let checked = [
        (libc::SYS_ioctl, SyscallRule::Checked(vec![is(0, vcpu_fd), is(1, KVM_RUN)])),
        (libc::SYS_write, SyscallRule::Checked(vec![is(0, bell_fd)])),
        (libc::SYS_mmap, no_code.clone()),
        (libc::SYS_mprotect, no_code),
    ];
    put(&mut table, checked, EPERM);
    compile(&table, EPERM)
}

/// Builds the filter for a profile.
fn program(profile: Profile) -> Vec<sock_filter> {
    compile(&table(profile), ENOSYS)
}

/// Turns a table into a filter; numbers past its end answer `rest`.
fn compile(table: &[SyscallRule], rest: u32) -> Vec<sock_filter> {
    let ranges = ranges(table, rest);
    let mut code = vec![
        load(4), // seccomp_data.arch
        jump_if_equal(ARCH, 1, 0),
        ret(libc::SECCOMP_RET_KILL_PROCESS),
        load(0), // seccomp_data.nr
        jump_if_at_least(X32_BIT, 0, 1),
        ret(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    code.extend(search(&ranges));
    code
}

/// What a call gets.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SyscallRule {
    Allow,
    Errno(u32),
    /// Allowed if every check holds, else `EPERM`.
    Checked(Vec<ArgumentCheck>),
}

/// A condition on the low 32 bits of one argument. Every argument checked here is 32 bits wide in the kernel,
/// which ignores the upper half: comparing all 64 would let a caller slip past by setting a high bit.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ArgumentCheck {
    NoBits {
        argument: u32,
        mask: u32,
    },
    SomeBit {
        argument: u32,
        mask: u32,
    },
    OneOf {
        argument: u32,
        mask: u32,
        values: &'static [u32],
    },
    NoneOf {
        argument: u32,
        values: &'static [u32],
    },
    /// No more than this; both halves count.
    AtMost {
        argument: u32,
        value: u32,
    },
    /// Exactly this number.
    Is {
        argument: u32,
        value: u32,
    },
    /// A null pointer: here both halves count.
    Null {
        argument: u32,
    },
}

const ALL_BITS: u32 = u32::MAX;
const CLONE_NEW: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
const MFD_NOEXEC_SEAL: u32 = 8;
/// Set-user-id and set-group-id: on the host's own mount of the workspace such a file would lend its owner's power.
const SET_ID_BITS: u32 = libc::S_ISUID | libc::S_ISGID;
/// Calls that give a file its mode, and which argument that is. `openat2` has it in memory, so it is on no list.
const MODE_ARGUMENTS: &[(c_long, u32)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_mknodat, 2),
    (libc::SYS_openat, 3),
];
#[cfg(target_arch = "x86_64")]
const MODE_ARGUMENTS_LEGACY: &[(c_long, u32)] =
    &[(libc::SYS_chmod, 1), (libc::SYS_mknod, 1), (libc::SYS_open, 2), (libc::SYS_creat, 1)];
#[cfg(not(target_arch = "x86_64"))]
const MODE_ARGUMENTS_LEGACY: &[(c_long, u32)] = &[];
/// Ways to put words into a terminal's mouth: TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD.
const TERMINAL_INJECTION: &[u32] = &[0x5412, 0x541C, 0x541D, 0x5423];
const FAMILIES: &[u32] = &[libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32];
const SOCKET_TYPE_MASK: u32 = 0xF;
const SOCKET_TYPES: &[u32] =
    &[libc::SOCK_STREAM as u32, libc::SOCK_DGRAM as u32, libc::SOCK_SEQPACKET as u32];
/// Types whose pairs stay pairs: a datagram socket may send to any address at any time, also to a host's socket file.
const PAIRED_TYPES: &[u32] = &[libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32];
/// The type's own protocol, TCP and UDP. Any other number may load a kernel module (SCTP, L2TP) or open a ping socket.
const PROTOCOLS: &[u32] = &[0, libc::IPPROTO_TCP as u32, libc::IPPROTO_UDP as u32];
/// Of one System V segment in a watched run, which may have 4,096 of them and map none.
const SEGMENT_BYTES_MAX: u32 = 64 << 10;
/// `fcntl` commands with which a descriptor signals, watches or delays other processes of the host: `F_SETOWN`, `F_SETSIG`,
/// `F_SETOWN_EX`, `F_SETLEASE`, `F_NOTIFY`.
const REACHES_OTHERS: &[u32] = &[8, 10, 15, 1024, 1026];
/// Of these, the ones that work across namespaces: `F_SETLEASE` and `F_NOTIFY`. With a lease on a file of the workspace a program delays
/// every process that opens it, the user's editor and Regent included, by up to 45 s each time.
const DELAYS_OTHERS: &[u32] = &[1024, 1026];
/// As [`TERMINAL_INJECTION`]; `FIOSETOWN` and `SIOCSPGRP`, which do what `F_SETOWN` does; and `FS_IOC_SETFLAGS` (64-bit and 32-bit),
/// `FS_IOC_FSSETXATTR` and `FS_IOC_SETVERSION`, which change a file's attributes by a descriptor that is open for reading.
const REFUSED_REQUESTS_BARE: &[u32] =
    &[0x5412, 0x541C, 0x541D, 0x5423, 0x8901, 0x8902, 0x4008_6602, 0x4004_6602, 0x401C_5820, 0x4008_7602];
/// Native, ADDR_NO_RANDOMIZE (debuggers, sanitizers), and the query.
const PERSONALITIES: &[u32] = &[0, 0x0004_0000, u32::MAX];

fn checked(profile: Profile) -> Vec<(c_long, SyscallRule)> {
    let mut rules = vec![
        (libc::SYS_clone, SyscallRule::Checked(vec![ArgumentCheck::NoBits { argument: 0, mask: CLONE_NEW }])),
        (
            libc::SYS_ioctl,
            SyscallRule::Checked(vec![ArgumentCheck::NoneOf { argument: 1, values: TERMINAL_INJECTION }]),
        ),
        (libc::SYS_socketpair, pair(SOCKET_TYPES)),
        // Only memory files that can never be executed.
        (
            libc::SYS_memfd_create,
            SyscallRule::Checked(vec![ArgumentCheck::SomeBit { argument: 1, mask: MFD_NOEXEC_SEAL }]),
        ),
        (
            libc::SYS_personality,
            SyscallRule::Checked(vec![ArgumentCheck::OneOf {
                argument: 0,
                mask: ALL_BITS,
                values: PERSONALITIES,
            }]),
        ),
    ];
    for &(call, argument) in MODE_ARGUMENTS.iter().chain(MODE_ARGUMENTS_LEGACY) {
        rules.push((call, SyscallRule::Checked(vec![ArgumentCheck::NoBits { argument, mask: SET_ID_BITS }])));
    }
    let socket = SyscallRule::Checked(vec![
        ArgumentCheck::OneOf { argument: 0, mask: ALL_BITS, values: FAMILIES },
        ArgumentCheck::OneOf { argument: 1, mask: SOCKET_TYPE_MASK, values: SOCKET_TYPES },
        ArgumentCheck::OneOf { argument: 2, mask: ALL_BITS, values: PROTOCOLS },
    ]);
    let fcntl = SyscallRule::Checked(vec![ArgumentCheck::NoneOf { argument: 1, values: DELAYS_OTHERS }]);
    match profile {
        Profile::Full => rules.extend([(libc::SYS_socket, socket), (libc::SYS_fcntl, fcntl)]),
        Profile::Watched => rules.extend([
            (libc::SYS_socket, socket),
            (libc::SYS_fcntl, fcntl),
            (libc::SYS_memfd_create, SyscallRule::Errno(EPERM)),
            (
                libc::SYS_shmget,
                SyscallRule::Checked(vec![ArgumentCheck::AtMost { argument: 1, value: SEGMENT_BYTES_MAX }]),
            ),
        ]),
        Profile::Bare { landlock_abi, root, supervised } => {
            rules.extend(bare(landlock_abi, root, supervised));
        }
    }
    rules
}

/// A pair of local sockets of one of these types.
fn pair(types: &'static [u32]) -> SyscallRule {
    SyscallRule::Checked(vec![
        ArgumentCheck::OneOf { argument: 0, mask: ALL_BITS, values: &[libc::AF_UNIX as u32] },
        ArgumentCheck::OneOf { argument: 1, mask: SOCKET_TYPE_MASK, values: types },
        ArgumentCheck::OneOf { argument: 2, mask: ALL_BITS, values: PROTOCOLS },
    ])
}

/// What Landlock does not see: attributes of files, signals before ABI 6, truncating by path before ABI 3, and whatever
/// isn't a file.
fn bare(landlock_abi: u32, root: bool, supervised: bool) -> Vec<(c_long, SyscallRule)> {
    let refuse = |call: &c_long| (*call, SyscallRule::Errno(EPERM));
    let own = SyscallRule::Checked(vec![ArgumentCheck::OneOf { argument: 0, mask: ALL_BITS, values: &[0] }]);
    let mut rules: Vec<_> = REFUSED_BARE.iter().chain(REFUSED_BARE_LEGACY).map(refuse).collect();
    rules.push((libc::SYS_prlimit64, own.clone()));
    rules.push((libc::SYS_sched_setaffinity, own.clone()));
    rules.push((libc::SYS_socketpair, pair(PAIRED_TYPES)));
    rules.push((libc::SYS_memfd_create, SyscallRule::Errno(EPERM)));
    let none_of = |values| SyscallRule::Checked(vec![ArgumentCheck::NoneOf { argument: 1, values }]);
    rules.push((libc::SYS_fcntl, none_of(REACHES_OTHERS)));
    rules.push((libc::SYS_ioctl, none_of(REFUSED_REQUESTS_BARE)));
    // A file's owner needs no more than a descriptor that is open for reading, also of a guarded file.
    rules.extend([libc::SYS_fchown, libc::SYS_fsetxattr, libc::SYS_fremovexattr].iter().map(refuse));
    // Times of an open file, not of a path.
    rules.push((libc::SYS_utimensat, SyscallRule::Checked(vec![ArgumentCheck::Null { argument: 1 }])));
    if root || !supervised {
        rules.push(refuse(&libc::SYS_fchmod));
    }
    if !supervised {
        rules.push(refuse(&libc::SYS_utimensat));
    }
    if landlock_abi < 3 {
        rules.push(refuse(&libc::SYS_truncate));
    }
    if landlock_abi < 6 {
        rules.push((libc::SYS_kill, own));
        let others = [
            libc::SYS_tkill,
            libc::SYS_tgkill,
            libc::SYS_rt_sigqueueinfo,
            libc::SYS_rt_tgsigqueueinfo,
            libc::SYS_pidfd_send_signal,
        ];
        rules.extend(others.iter().map(refuse));
    }
    rules
}

/// The answer for every call number; the index is the number. Later lists override earlier ones.
fn table(profile: Profile) -> Vec<SyscallRule> {
    let allowed = ALLOWED.iter().chain(ALLOWED_LEGACY).map(|&call| (call, SyscallRule::Allow));
    let refused = REFUSED.iter().chain(REFUSED_LEGACY).map(|&call| (call, SyscallRule::Errno(EPERM)));
    let mut table = Vec::new();
    put(&mut table, allowed.chain(checked(profile)).chain(refused), ENOSYS);
    table
}

/// Puts answers into a table, which grows with `rest`.
fn put(table: &mut Vec<SyscallRule>, answers: impl IntoIterator<Item = (c_long, SyscallRule)>, rest: u32) {
    for (call, answer) in answers {
        let Ok(index) = usize::try_from(call) else { continue };
        if table.len() <= index {
            table.resize(index + 1, SyscallRule::Errno(rest));
        }
        if let Some(slot) = table.get_mut(index) {
            *slot = answer;
        }
    }
}

/// Neighbours with the same answer share a range, named by its first call number.
fn ranges(table: &[SyscallRule], rest: u32) -> Vec<(u32, SyscallRule)> {
    let mut ranges: Vec<(u32, SyscallRule)> = Vec::new();
    let rest = SyscallRule::Errno(rest);
    for (number, answer) in (0u32..).zip(table.iter().chain([&rest])) {
        if ranges.last().is_none_or(|(_, last)| last != answer) {
            ranges.push((number, answer.clone()));
        }
    }
    ranges
}

fn search(ranges: &[(u32, SyscallRule)]) -> Vec<sock_filter> {
    let (left, right) = ranges.split_at(ranges.len() / 2);
    match (left, right) {
        ([], [(_, answer)]) => leaf(answer),
        ([], _) => vec![ret(libc::SECCOMP_RET_ERRNO | ENOSYS)],
        (_, []) => search(left),
        (_, [(first, _), ..]) => {
            let (below, above) = (search(left), search(right));
            // Conditional jumps reach 255 instructions, unconditional ones any distance.
            let mut code = match u8::try_from(below.len()) {
                Ok(near) => vec![jump_if_at_least(*first, near, 0)],
                Err(_) => vec![jump_if_at_least(*first, 0, 1), jump(below.len() as u32)],
            };
            code.extend(below);
            code.extend(above);
            code
        }
    }
}

fn leaf(answer: &SyscallRule) -> Vec<sock_filter> {
    match answer {
        SyscallRule::Allow => vec![ret(libc::SECCOMP_RET_ALLOW)],
        SyscallRule::Errno(errno) => vec![ret(libc::SECCOMP_RET_ERRNO | errno)],
        SyscallRule::Checked(checks) => {
            let mut code: Vec<_> = checks.iter().flat_map(check).collect();
            code.push(ret(libc::SECCOMP_RET_ALLOW));
            code
        }
    }
}

/// Falls through if the check holds, else returns `EPERM`.
fn check(check: &ArgumentCheck) -> Vec<sock_filter> {
    let refuse = ret(libc::SECCOMP_RET_ERRNO | EPERM);
    match *check {
        ArgumentCheck::NoBits { argument, mask } => {
            vec![load_argument(argument), jump_if_any(mask, 0, 1), refuse]
        }
        ArgumentCheck::SomeBit { argument, mask } => {
            vec![load_argument(argument), jump_if_any(mask, 1, 0), refuse]
        }
        ArgumentCheck::Is { argument, value } => {
            vec![load_argument(argument), jump_if_equal(value, 1, 0), refuse]
        }
        ArgumentCheck::AtMost { argument, value } => vec![
            load(20 + 8 * argument),
            jump_if_equal(0, 1, 0),
            refuse,
            load_argument(argument),
            jump_if_at_least(value.saturating_add(1), 0, 1),
            refuse,
        ],
        ArgumentCheck::Null { argument } => vec![
            load_argument(argument),
            jump_if_equal(0, 1, 0),
            refuse,
            load(20 + 8 * argument),
            jump_if_equal(0, 1, 0),
            refuse,
        ],
        ArgumentCheck::OneOf { argument, mask, values } => {
            let mut code = vec![load_argument(argument), and(mask)];
            for (left, value) in (1..=values.len()).rev().zip(values) {
                // Past the remaining comparisons and the refusal.
                code.push(jump_if_equal(*value, left as u8, 0));
            }
            code.push(refuse);
            code
        }
        ArgumentCheck::NoneOf { argument, values } => {
            let mut code = vec![load_argument(argument)];
            for value in values {
                code.extend([jump_if_equal(*value, 0, 1), refuse]);
            }
            code
        }
    }
}

const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

const fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

/// The low half of an argument; both architectures are little-endian.
const fn load_argument(argument: u32) -> sock_filter {
    load(16 + 8 * argument)
}

const fn and(mask: u32) -> sock_filter {
    instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, mask)
}

const fn jump(by: u32) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JA, 0, 0, by)
}

const fn jump_if_equal(value: u32, yes: u8, no: u8) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value)
}

const fn jump_if_at_least(value: u32, yes: u8, no: u8) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, yes, no, value)
}

const fn jump_if_any(mask: u32, yes: u8, no: u8) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, yes, no, mask)
}

const fn ret(value: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, value)
}
