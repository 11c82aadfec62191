//! The attempts themselves. They run after a fork: no allocation, no locks, raw calls only.

use core::ffi::{CStr, c_long, c_ulong};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Attempt, Ends, Host, PIDS_MAX};
use crate::sys::{self, SysResult, raw};

const HELD: i32 = 0;
const GOT_THROUGH: i32 = 1;

macro_rules! attempts {
    ($($name:literal, $case:literal, $must:literal, $ends:ident, $run:expr;)*) => {
        /// Every attempt.
        pub const ATTEMPTS: &[Attempt] = &[
            $(Attempt { name: $name, case: $case, must: $must, run: $run, ends: Ends::$ends },)*
        ];
    };
}

attempts! {
    "read-shadow", 21, "the host's password hashes can't be read", Refused, |_| cannot_open(c"/etc/shadow");
    "read-home", 21, "the home folder is not there", Refused, |host| cannot_open(&host.home);
    "read-root-home", 21, "root's home folder is not there", Refused, |_| cannot_open(c"/root");
    "read-docker-socket", 39, "the container daemon can't be reached", Refused, |_| cannot_open(c"/var/run/docker.sock");
    "read-host-logs", 21, "the host's logs are not there", Refused, |_| cannot_open(c"/var/log");
    "write-usr", 16, "system folders can't be written", Refused, |_| cannot_create(c"/usr/regent-probe");
    "write-etc", 16, "configuration can't be written", Refused, |_| cannot_create(c"/etc/regent-probe");
    "write-root", 16, "nothing can be made in the root", Refused, |_| cannot_create(c"/regent-probe");
    "write-core-pattern", 20, "kernel settings can't be written", Refused, |_| cannot_write(c"/proc/sys/kernel/core_pattern");
    "read-memory-device", 20, "no memory device", Refused, |_| cannot_open(c"/dev/mem");
    "read-kernel-memory", 20, "no kernel memory", Refused, |_| cannot_open(c"/proc/kcore");
    "mode-of-home", 20, "the home folder's mode can't be changed", Refused, |host| cannot_chmod(&host.home, host.home_mode);
    "mode-of-device", 20, "the host's devices can't be changed", Refused, |_| cannot_chmod(c"/dev/null", 0o666);
    "mode-of-program", 20, "the host's programs can't be changed", Refused, |_| cannot_chmod(c"/usr/bin/env", 0o755);
    "make-device", 20, "no device node can be made", Refused, make_device;
    "read-init-environment", 31, "the first process's environment can't be read", Refused, |_| cannot_open(c"/proc/1/environ");
    "read-init-memory", 31, "the first process's memory can't be read", Refused, |_| cannot_open(c"/proc/1/mem");
    "read-parent-environment", 31, "the parent's environment can't be read", Refused, read_parent;
    "inherited-descriptors", 32, "only 0, 1 and 2 are open", Refused, inherited;
    "mount", 35, "mounting is refused", Refused, |_| not_permitted(libc::SYS_mount);
    "unmount", 35, "unmounting is refused", Refused, |_| not_permitted(libc::SYS_umount2);
    "pivot-root", 35, "changing the root is refused", Refused, |_| not_permitted(libc::SYS_pivot_root);
    "chroot", 35, "changing the root is refused", Refused, |_| not_permitted(libc::SYS_chroot);
    "unshare", 35, "new namespaces are refused", Refused, |_| refused_with(libc::SYS_unshare, [libc::CLONE_NEWUSER as c_ulong, 0, 0, 0, 0, 0], Errno::PERM);
    "setns", 35, "entering namespaces is refused", Refused, |_| not_permitted(libc::SYS_setns);
    "nested-user-namespace", 35, "cloning into namespaces is refused", Refused, |_| refused_with(libc::SYS_clone, [(libc::CLONE_NEWUSER | libc::SIGCHLD) as c_ulong, 0, 0, 0, 0, 0], Errno::PERM);
    "clone3", 35, "the call whose flags can't be checked does not exist", Refused, |_| refused_with(libc::SYS_clone3, [0; 6], Errno::NOSYS);
    "io-uring", 36, "io_uring is refused", Refused, |_| not_permitted(libc::SYS_io_uring_setup);
    "bpf", 36, "bpf is refused", Refused, |_| not_permitted(libc::SYS_bpf);
    "perf", 36, "perf events are refused", Refused, |_| not_permitted(libc::SYS_perf_event_open);
    "userfaultfd", 36, "userfaultfd is refused", Refused, |_| not_permitted(libc::SYS_userfaultfd);
    "keyctl", 36, "the keyring is refused", Refused, |_| not_permitted(libc::SYS_keyctl);
    "add-key", 36, "the keyring is refused", Refused, |_| not_permitted(libc::SYS_add_key);
    "ptrace", 36, "tracing is refused", Refused, |_| not_permitted(libc::SYS_ptrace);
    "process-memory", 36, "reading other processes' memory is refused", Refused, |_| not_permitted(libc::SYS_process_vm_readv);
    "kexec", 36, "loading a kernel is refused", Refused, |_| not_permitted(libc::SYS_kexec_load);
    "load-module", 36, "loading a kernel module is refused", Refused, |_| not_permitted(libc::SYS_finit_module);
    "open-by-handle", 36, "files can't be opened without a path", Refused, |_| not_permitted(libc::SYS_open_by_handle_at);
    "executable-memory-file", 36, "a memory file that could be executed is refused", Refused, |_| not_permitted(libc::SYS_memfd_create);
    "x32-abi", 36, "a call through the x32 ABI kills", Killed, |_| through(raw(0x4000_0000 | libc::SYS_getpid, [0; 6]));
    "i386-abi", 36, "a call through the 32-bit ABI kills", Killed, |_| { sys::call_32_bit(); GOT_THROUGH };
    "terminal-injection", 37, "typing into the terminal is refused", Refused, |_| refused_with(libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0], Errno::PERM);
    "signal-parent", 38, "we can't be signalled", Refused, |host| cannot_signal(host.pid);
    "signal-first", 38, "the first process can't be signalled", Refused, |_| cannot_signal(1);
    "abstract-socket", 39, "the host's abstract sockets can't be reached", Refused, abstract_socket;
    "outlive", 40, "a daemon does not outlive the run", Refused, outlive;
    "fork-bomb", 41, "the number of processes is limited", Refused, fork_bomb;
    "many-descriptors", 41, "the number of descriptors is limited", Refused, many_descriptors;
    "become-another", 28, "no other user can be become", Refused, |_| when(raw(libc::SYS_setuid, [54_321, 0, 0, 0, 0, 0]).is_err());
    "make-setuid", 28, "no file can be made to lend its owner's power", Refused, |_| refused_with(libc::SYS_fchmodat, [libc::AT_FDCWD as c_ulong, c"/tmp/x".as_ptr() as c_ulong, 0o4755, 0, 0, 0], Errno::PERM);
    "open-setuid", 28, "no file can be born with its owner's power", Refused, |_| refused_with(libc::SYS_openat, [libc::AT_FDCWD as c_ulong, c"/tmp/x".as_ptr() as c_ulong, libc::O_CREAT as c_ulong, 0o2755, 0, 0], Errno::PERM);
    "capabilities", 28, "there is no capability", Refused, capabilities;
    "no-new-privs", 28, "a program can't gain privileges", Refused, |_| when(gains_nothing());
    "core-dump", 45, "no core is dumped", Refused, |_| when(rustix::process::getrlimit(rustix::process::Resource::Core).current == Some(0));
    "loopback", 46, "the host's loopback can't be reached", Refused, loopback;
    "raw-socket", 46, "raw sockets are refused", Refused, |_| no_socket(libc::AF_INET, libc::SOCK_RAW);
    "netlink", 46, "netlink is refused", Refused, |_| no_socket(libc::AF_NETLINK, libc::SOCK_RAW);
    "packet-socket", 46, "packet sockets are refused", Refused, |_| no_socket(libc::AF_PACKET, libc::SOCK_DGRAM);
    "vsock", 46, "sockets to the hypervisor are refused", Refused, |_| no_socket(libc::AF_VSOCK, libc::SOCK_STREAM);
}

fn when(held: bool) -> i32 {
    if held { HELD } else { GOT_THROUGH }
}

/// For a call that must not return at all.
fn through(_: SysResult<c_long>) -> i32 {
    GOT_THROUGH
}

fn refused_with(call: c_long, arguments: [c_ulong; 6], errno: Errno) -> i32 {
    match raw(call, arguments) {
        // The far side of a fork that should have been refused must not go on as if it were us.
        Ok(0) if call == libc::SYS_clone => sys::exit(GOT_THROUGH),
        result => when(result == Err(errno)),
    }
}

fn not_permitted(call: c_long) -> i32 {
    refused_with(call, [0; 6], Errno::PERM)
}

fn cannot_open(path: &CStr) -> i32 {
    when(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).is_err())
}

fn cannot_write(path: &CStr) -> i32 {
    when(rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).is_err())
}

fn cannot_create(path: &CStr) -> i32 {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let made = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).is_ok();
    if made {
        rustix::fs::unlink(path).ok();
    }
    when(!made)
}

/// Sets the mode that it has anyway.
fn cannot_chmod(path: &CStr, mode: u32) -> i32 {
    let at = [libc::AT_FDCWD as c_ulong, path.as_ptr() as c_ulong, c_ulong::from(mode), 0, 0, 0];
    when(raw(libc::SYS_fchmodat, at).is_err())
}

fn make_device(_: &Host) -> i32 {
    let node = libc::S_IFBLK | 0o600;
    let path = c"/tmp/regent-probe";
    let device = libc::makedev(7, 0);
    when(
        raw(
            libc::SYS_mknodat,
            [libc::AT_FDCWD as c_ulong, path.as_ptr() as c_ulong, node.into(), device, 0, 0],
        )
        .is_err(),
    )
}

fn read_parent(host: &Host) -> i32 {
    // "/proc/<pid>/environ" without formatting: digits from the right.
    let mut path = *b"/proc/0000000000/environ\0";
    let mut digits = [0u8; 10];
    let (mut rest, mut count) = (host.pid.unsigned_abs(), 0);
    for digit in &mut digits {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    let name = digits.iter().take(count).rev().chain(b"/environ\0");
    for (slot, byte) in path.iter_mut().skip(6).zip(name) {
        *slot = *byte;
    }
    CStr::from_bytes_until_nul(&path).map_or(GOT_THROUGH, cannot_open)
}

fn inherited(_: &Host) -> i32 {
    // Our own plumbing is closed by the exec that a program would have had.
    for fd in 3..4096 {
        match raw(libc::SYS_fcntl, [fd, libc::F_GETFD as c_ulong, 0, 0, 0, 0]) {
            Ok(flags) if flags & c_long::from(libc::FD_CLOEXEC) == 0 => return GOT_THROUGH,
            Ok(_) | Err(_) => {}
        }
    }
    HELD
}

fn cannot_signal(pid: i32) -> i32 {
    // Signal 0 only asks.
    when(raw(libc::SYS_kill, [pid as c_ulong, 0, 0, 0, 0, 0]).is_err())
}

fn no_socket(family: i32, kind: i32) -> i32 {
    refused_with(libc::SYS_socket, [family as c_ulong, kind as c_ulong, 0, 0, 0, 0], Errno::PERM)
}

fn connects(family: i32, address: &[u8]) -> bool {
    let Ok(socket) = raw(libc::SYS_socket, [family as c_ulong, libc::SOCK_STREAM as c_ulong, 0, 0, 0, 0])
    else {
        return false;
    };
    let address = [socket as c_ulong, address.as_ptr() as c_ulong, address.len() as c_ulong, 0, 0, 0];
    raw(libc::SYS_connect, address).is_ok()
}

fn abstract_socket(host: &Host) -> i32 {
    when(!connects(libc::AF_UNIX, &host.socket))
}

fn loopback(host: &Host) -> i32 {
    let [family, zero] = (libc::AF_INET as u16).to_ne_bytes();
    let [high, low] = host.port.to_be_bytes();
    let address = [family, zero, high, low, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    when(!connects(libc::AF_INET, &address))
}

fn fork() -> SysResult<c_long> {
    raw(libc::SYS_clone, [libc::SIGCHLD as c_ulong, 0, 0, 0, 0, 0])
}

/// Sleeps until killed.
fn linger() -> ! {
    loop {
        raw(libc::SYS_ppoll, [0; 6]).ok();
    }
}

fn outlive(host: &Host) -> i32 {
    match fork() {
        Ok(0) => {
            rustix::process::setsid().ok();
            if matches!(fork(), Ok(0)) {
                rustix::thread::set_name(&host.daemon).ok();
                linger();
            }
            sys::exit(0)
        }
        // Whether it is still there afterwards is for the outside to see.
        Ok(_) => HELD,
        Err(_) => GOT_THROUGH,
    }
}

/// Processes of that name, seen from the host.
pub(super) fn survivors(daemon: &CStr) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let named = |path: std::path::PathBuf| {
        std::fs::read(path.join("comm")).is_ok_and(|name| name.trim_ascii() == daemon.to_bytes())
    };
    entries.flatten().filter(|entry| named(entry.path())).count()
}

fn fork_bomb(_: &Host) -> i32 {
    for _ in 0..=PIDS_MAX {
        match fork() {
            Ok(0) => linger(),
            Ok(_) => {}
            Err(_) => return HELD,
        }
    }
    GOT_THROUGH
}

fn many_descriptors(_: &Host) -> i32 {
    for _ in 0..100_000 {
        if raw(libc::SYS_dup, [0; 6]).is_err() {
            return HELD;
        }
    }
    GOT_THROUGH
}

fn capabilities(_: &Host) -> i32 {
    let none = rustix::thread::capabilities(None).is_ok_and(|sets| {
        sets.effective.is_empty() && sets.permitted.is_empty() && sets.inheritable.is_empty()
    });
    let bounding = (0..41)
        .any(|number| raw(libc::SYS_prctl, [libc::PR_CAPBSET_READ as c_ulong, number, 0, 0, 0, 0]) == Ok(1));
    // An ordinary user without a namespace of its own can't empty the bounding set. What it bounds is what a program could gain, which is
    // nothing where nobody gains any.
    when(none && (!bounding || gains_nothing()))
}

fn gains_nothing() -> bool {
    raw(libc::SYS_prctl, [libc::PR_GET_NO_NEW_PRIVS as c_ulong, 0, 0, 0, 0, 0]) == Ok(1)
}
