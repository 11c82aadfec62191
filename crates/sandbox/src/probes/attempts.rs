//! The attempts themselves. They run after a fork: no allocation, no locks, system calls only.
#![expect(unsafe_code, reason = "some attempts fork")]

use core::ffi::CStr;
use core::num::NonZeroU32;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Pid};
use rustix::thread::{CapabilitySet, CpuSet};

use super::{AttemptEnd, EscapeAttempt, MEMORY_BYTES_MAX, PIDS_MAX, ProbeHost};
use crate::sys;
use crate::sys::attempted::{self, SetOwner, Zeroed};

pub(super) const HELD: i32 = 0;
const GOT_THROUGH: i32 = 1;

macro_rules! attempts {
    ($($name:literal, $case:literal, $must:literal, $ends:ident, $run:expr;)*) => {
        /// Every attempt.
        pub const ATTEMPTS: &[EscapeAttempt] = &[
            $(EscapeAttempt { name: $name, case: $case, must: $must, run: $run, ends: AttemptEnd::$ends },)*
        ];
    };
}

attempts! {
    "read-shadow", 21, "the host's password hashes can't be read", Refused, |_| cannot_open(c"/etc/shadow");
    "read-home", 21, "the home folder doesn't exist", Refused, |host| cannot_open(&host.home);
    "read-root-home", 21, "root's home folder is not there", Refused, |_| cannot_open(c"/root");
    "read-docker-socket", 39, "the container daemon can't be reached", Refused, |_| cannot_open(c"/var/run/docker.sock");
    "read-host-logs", 21, "the host's logs don't exist", Refused, |_| cannot_open(c"/var/log");
    "write-usr", 16, "system folders can't be written", Refused, |_| cannot_create(c"/usr/regent-probe");
    "write-etc", 16, "configuration can't be written", Refused, |_| cannot_create(c"/etc/regent-probe");
    "write-root", 16, "nothing can be created in the root", Refused, |_| cannot_create(c"/regent-probe");
    "write-core-pattern", 20, "kernel settings can't be written", Refused, |_| cannot_write(c"/proc/sys/kernel/core_pattern");
    "read-memory-device", 20, "no memory device", Refused, |_| cannot_open(c"/dev/mem");
    "read-slabs", 20, "kernel memory statistics can't be read", Refused, |_| cannot_open(c"/proc/slabinfo");
    "read-page-counts", 20, "page statistics can't be read", Refused, |_| cannot_open(c"/proc/kpagecount");
    "read-kernel-mappings", 20, "the kernel's mappings can't be read", Refused, |_| cannot_open(c"/proc/vmallocinfo");
    "read-kernel-memory", 20, "no kernel memory", Refused, |_| cannot_open(c"/proc/kcore");
    "mode-of-home", 20, "the home folder's mode can't be changed", Refused, |host| cannot_chmod(&host.home, host.home_mode);
    "mode-of-device", 20, "the host's devices can't be changed", Refused, |_| cannot_chmod(c"/dev/null", 0o666);
    "mode-of-program", 20, "the host's programs can't be changed", Refused, |_| cannot_chmod(c"/usr/bin/env", 0o755);
    "make-device", 20, "no device node can be created", Refused, make_device;
    "read-init-environment", 31, "the first process's environment can't be read", Refused, |_| cannot_open(c"/proc/1/environ");
    "read-init-memory", 31, "the first process's memory can't be read", Refused, |_| cannot_open(c"/proc/1/mem");
    "read-parent-environment", 31, "the parent's environment can't be read", Refused, read_parent;
    "inherited-descriptors", 32, "only 0, 1 and 2 are open", Refused, inherited;
    "mount", 35, "mounting is refused", Refused, |_| not_permitted(Zeroed::MOUNT);
    "unmount", 35, "unmounting is refused", Refused, |_| not_permitted(Zeroed::UMOUNT2);
    "pivot-root", 35, "changing the root is refused", Refused, |_| not_permitted(Zeroed::PIVOT_ROOT);
    "chroot", 35, "changing the root is refused", Refused, |_| not_permitted(Zeroed::CHROOT);
    "unshare", 35, "new namespaces are refused", Refused, |_| refused(attempted::unshare_user());
    "setns", 35, "entering namespaces is refused", Refused, |_| not_permitted(Zeroed::SETNS);
    "nested-user-namespace", 35, "cloning into namespaces is refused", Refused, nested_namespace;
    "clone3", 35, "the call whose flags can't be checked does not exist", Refused, |_| when(Zeroed::CLONE3.call() == Err(Errno::NOSYS));
    "io-uring", 36, "io_uring is refused", Refused, |_| not_permitted(Zeroed::IO_URING_SETUP);
    "bpf", 36, "bpf is refused", Refused, |_| not_permitted(Zeroed::BPF);
    "perf", 36, "perf events are refused", Refused, |_| not_permitted(Zeroed::PERF_EVENT_OPEN);
    "userfaultfd", 36, "userfaultfd is refused", Refused, |_| not_permitted(Zeroed::USERFAULTFD);
    "keyctl", 36, "the keyring is refused", Refused, |_| not_permitted(Zeroed::KEYCTL);
    "add-key", 36, "the keyring is refused", Refused, |_| not_permitted(Zeroed::ADD_KEY);
    "ptrace", 36, "tracing is refused", Refused, |_| not_permitted(Zeroed::PTRACE);
    "process-memory", 36, "reading other processes' memory is refused", Refused, |_| not_permitted(Zeroed::PROCESS_VM_READV);
    "kexec", 36, "loading a kernel is refused", Refused, |_| not_permitted(Zeroed::KEXEC_LOAD);
    "load-module", 36, "loading a kernel module is refused", Refused, |_| not_permitted(Zeroed::FINIT_MODULE);
    "open-by-handle", 36, "files can't be opened without a path", Refused, |_| not_permitted(Zeroed::OPEN_BY_HANDLE_AT);
    "executable-memory-file", 36, "a memory file that could be executed is refused", Refused, |_| not_permitted(Zeroed::MEMFD_CREATE);
    "x32-abi", 36, "a call through the x32 ABI kills", Killed, |_| through(Zeroed::GETPID_X32);
    "i386-abi", 36, "a call through the 32-bit ABI kills", Killed, |_| { attempted::call_32_bit(); GOT_THROUGH };
    "terminal-injection", 37, "injecting terminal input is refused", Refused, |_| refused(attempted::type_into_terminal());
    "signal-parent", 38, "Regent can't be signalled", Refused, |host| cannot_signal(host.pid);
    "signal-by-descriptor", 38, "no descriptor can signal Regent", Refused, signal_by_descriptor;
    "affinity-of-parent", 38, "Regent can't be moved to other processors", Refused, move_parent;
    "signal-first", 38, "the first process can't be signalled", Refused, |_| cannot_signal(1);
    "abstract-socket", 39, "the host's abstract sockets can't be reached", Refused, abstract_socket;
    "datagram-socket", 39, "the host's datagram sockets can't be reached", Refused, datagram_socket;
    "outlive", 40, "a daemon does not outlive the run", Refused, outlive;
    "fork-bomb", 41, "the number of processes is limited", Refused, fork_bomb;
    "shared-memory", 41, "memory that processes share counts towards the limit", OutOfMemory, shared_memory;
    "many-descriptors", 41, "the number of descriptors is limited", Refused, many_descriptors;
    "become-another", 28, "the user can't be changed", Refused, |_| when(rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(54_321)).is_err());
    "make-setuid", 28, "no file can get the setuid bit", Refused, |_| refused(rustix::fs::chmodat(CWD, c"/tmp/x", Mode::from_raw_mode(0o4755), rustix::fs::AtFlags::empty()));
    "open-setuid", 28, "no file can be created with the setuid bit", Refused, |_| refused(rustix::fs::open(c"/tmp/x", OFlags::CREATE, Mode::from_raw_mode(0o2755)));
    "capabilities", 28, "there is no capability", Refused, capabilities;
    "no-new-privs", 28, "a program can't gain privileges", Refused, |_| when(gains_nothing());
    "inspect-copy", 31, "the process that sets up the sandbox can't be inspected", Refused, |_| when(rustix::process::dumpable_behavior() == Ok(DumpableBehavior::NotDumpable));
    "core-dump", 45, "no core is dumped", Refused, |_| when(rustix::process::getrlimit(rustix::process::Resource::Core).current == Some(0));
    "loopback", 46, "the host's loopback can't be reached", Refused, loopback;
    "raw-socket", 46, "raw sockets are refused", Refused, |_| no_socket(libc::AF_INET, libc::SOCK_RAW, 0);
    "netlink", 46, "netlink is refused", Refused, |_| no_socket(libc::AF_NETLINK, libc::SOCK_RAW, 0);
    "packet-socket", 46, "packet sockets are refused", Refused, |_| no_socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0);
    "vsock", 46, "sockets to the hypervisor are refused", Refused, |_| no_socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0);
    "sctp", 46, "protocols that load kernel modules are refused", Refused, |_| no_socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP);
    "l2tp", 46, "protocols that load kernel modules are refused", Refused, |_| no_socket(libc::AF_INET, libc::SOCK_DGRAM, 115);
    "ping-socket", 46, "ping sockets are refused", Refused, |_| no_socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP);
}

fn when(held: bool) -> i32 {
    if held { HELD } else { GOT_THROUGH }
}

/// For a call that must not return at all.
fn through(call: Zeroed) -> i32 {
    call.call().ok();
    GOT_THROUGH
}

/// Refused by the filter, and not for another reason.
fn refused<T>(result: Result<T, Errno>) -> i32 {
    when(result.err() == Some(Errno::PERM))
}

fn not_permitted(call: Zeroed) -> i32 {
    refused(call.call())
}

fn nested_namespace(_: &ProbeHost) -> i32 {
    // SAFETY: an attempt is a process with one thread, and the far side exits at once.
    match unsafe { attempted::fork(true) } {
        // The far side of a fork that should have been refused must not continue as if it were us.
        Ok(0) => sys::exit(GOT_THROUGH),
        result => refused(result),
    }
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
    let mode = Mode::from_raw_mode(mode);
    when(rustix::fs::chmodat(CWD, path, mode, rustix::fs::AtFlags::empty()).is_err())
}

fn make_device(_: &ProbeHost) -> i32 {
    let (path, mode) = (c"/tmp/regent-probe", Mode::from_raw_mode(0o600));
    when(rustix::fs::mknodat(CWD, path, FileType::BlockDevice, mode, libc::makedev(7, 0)).is_err())
}

fn read_parent(host: &ProbeHost) -> i32 {
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

fn inherited(_: &ProbeHost) -> i32 {
    // Our own plumbing is closed by the exec that a program would have had.
    when(!(3..4096).any(attempted::stays_open))
}

fn cannot_signal(pid: i32) -> i32 {
    // Only asks.
    when(Pid::from_raw(pid).is_none_or(|pid| rustix::process::test_kill_process(pid).is_err()))
}

/// By each of the ways to name the process that a descriptor signals.
fn signal_by_descriptor(host: &ProbeHost) -> i32 {
    // In a pid namespace the number may be this very process's.
    if rustix::process::getpid().as_raw_nonzero().get() == host.pid {
        return HELD;
    }
    let Ok((read, _write)) = rustix::pipe::pipe() else { return GOT_THROUGH };
    let Ok(pair) = pair(SocketType::STREAM) else { return GOT_THROUGH };
    let tried = |fd: &OwnedFd| SetOwner::ALL.iter().all(|way| way.call(fd.as_fd(), host.pid).is_err());
    when(tried(&read) && tried(&pair))
}

fn move_parent(host: &ProbeHost) -> i32 {
    let mut everywhere = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| everywhere.set(cpu));
    let pid = Pid::from_raw(host.pid).filter(|pid| *pid != rustix::process::getpid());
    when(pid.is_none_or(|pid| rustix::thread::sched_setaffinity(Some(pid), &everywhere).is_err()))
}

fn socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, Errno> {
    let family = AddressFamily::from_raw(family as u16);
    let protocol = NonZeroU32::new(protocol.cast_unsigned()).map(Protocol::from_raw);
    let kind = SocketType::from_raw(kind.cast_unsigned());
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)
}

fn no_socket(family: i32, kind: i32, protocol: i32) -> i32 {
    refused(socket(family, kind, protocol))
}

/// One end of a pair of local sockets.
fn pair(kind: SocketType) -> Result<OwnedFd, Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map(|(one, _)| one)
}

#[expect(clippy::disallowed_methods, reason = "a probe tries what the sandbox must refuse")]
fn abstract_socket(host: &ProbeHost) -> i32 {
    let Ok(address) = SocketAddrUnix::new_abstract_name(&host.abstract_name) else { return GOT_THROUGH };
    let connected = socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)
        .and_then(|socket| rustix::net::connect(&socket, &address));
    when(connected.is_err())
}

/// A datagram socket needs no connection to send to any address.
fn datagram_socket(host: &ProbeHost) -> i32 {
    let Ok(address) = SocketAddrUnix::new(&*host.datagrams) else { return GOT_THROUGH };
    let sent = |socket: Result<OwnedFd, Errno>| {
        socket.is_ok_and(|socket| rustix::net::sendto(&socket, b"!", SendFlags::empty(), &address).is_ok())
    };
    when(!sent(pair(SocketType::DGRAM)) && !sent(socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)))
}

/// Not on the list: on most kernels it gets through, which is a finding of the probe and not an escape.
#[expect(clippy::disallowed_methods, reason = "a probe tries what the sandbox must refuse")]
pub(super) fn workspace_socket(host: &ProbeHost) -> i32 {
    let Ok(address) = SocketAddrUnix::new(&*host.stream) else { return HELD };
    let connected = socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)
        .and_then(|socket| rustix::net::connect(&socket, &address));
    when(connected.is_err())
}

#[expect(clippy::disallowed_methods, reason = "a probe tries what the sandbox must refuse")]
fn loopback(host: &ProbeHost) -> i32 {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, host.port);
    let connected = socket(libc::AF_INET, libc::SOCK_STREAM, 0)
        .and_then(|socket| rustix::net::connect(&socket, &address));
    when(connected.is_err())
}

/// Sleeps until killed.
fn linger() -> ! {
    loop {
        rustix::event::pause();
    }
}

/// Forks, and waits while the user has too many processes: without a sandbox of their own, processes are counted for
/// all of the user's programs together.
///
/// # Safety
/// As for [`attempted::fork`].
unsafe fn fork_patiently() -> sys::SysResult<core::ffi::c_long> {
    for _ in 0..200 {
        // SAFETY: the caller's promise.
        match unsafe { attempted::fork(false) } {
            Err(Errno::AGAIN) => std::thread::sleep(std::time::Duration::from_millis(10)),
            done => return done,
        }
    }
    Err(Errno::AGAIN)
}

fn outlive(host: &ProbeHost) -> i32 {
    // SAFETY: an attempt is a process with one thread, and the far side exits or lingers.
    match unsafe { fork_patiently() } {
        Ok(0) => {
            rustix::process::setsid().ok();
            // SAFETY: as above.
            if matches!(unsafe { fork_patiently() }, Ok(0)) {
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

fn fork_bomb(_: &ProbeHost) -> i32 {
    for _ in 0..=PIDS_MAX {
        // SAFETY: an attempt is a process with one thread, and the far side lingers.
        match unsafe { attempted::fork(false) } {
            Ok(0) => linger(),
            Ok(_) => {}
            Err(_) => return HELD,
        }
    }
    GOT_THROUGH
}

/// Twice the limit; then it waits to be killed for it.
fn shared_memory(_: &ProbeHost) -> i32 {
    if !attempted::fill_shared(2 * MEMORY_BYTES_MAX as usize) {
        return HELD;
    }
    let wait = rustix::event::Timespec { tv_sec: 3, tv_nsec: 0 };
    rustix::event::poll(&mut [], Some(&wait)).ok();
    GOT_THROUGH
}

fn many_descriptors(_: &ProbeHost) -> i32 {
    for _ in 0..100_000 {
        match rustix::io::dup(rustix::stdio::stdin()) {
            // Kept open.
            Ok(copy) => drop(copy.into_raw_fd()),
            Err(_) => return HELD,
        }
    }
    GOT_THROUGH
}

fn capabilities(_: &ProbeHost) -> i32 {
    let none = rustix::thread::capabilities(None).is_ok_and(|sets| {
        sets.effective.is_empty() && sets.permitted.is_empty() && sets.inheritable.is_empty()
    });
    let bounding = (0..41).any(|number| {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        rustix::thread::capability_is_in_bounding_set(capability) == Ok(true)
    });
    // An ordinary user without a namespace of its own can't empty the bounding set. What it bounds is what a program could gain, which is
    // nothing where nobody gains any.
    when(none && (!bounding || gains_nothing()))
}

fn gains_nothing() -> bool {
    rustix::thread::no_new_privs() == Ok(true)
}
