//! The raw system calls that no safe crate offers: safe functions where any caller may call them, unsafe ones with their
//! contract where not.
//!
//! Everything here may run between `clone` and `execve` in a copy of a multi-threaded process, so nothing
//! allocates, locks or touches thread-local state other than `errno`.
#![expect(unsafe_code, reason = "the one place where this crate makes raw system calls")]

pub(crate) mod attempted;
pub(crate) mod notify;
pub(crate) mod terminal;

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Result of a raw call.
pub(crate) type SysResult<T> = Result<T, Errno>;

/// The namespaces that a full sandbox is born into. The network namespace, which costs as much as all the others together, is
/// made by the program's own process while the view is being built.
pub(crate) const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64;

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLOSE_RANGE_CLOEXEC: c_uint = 4;
const LANDLOCK_CREATE_RULESET_VERSION: c_uint = 1;
const LANDLOCK_RULE_PATH_BENEATH: c_uint = 1;
const SECCOMP_SET_MODE_FILTER: c_uint = 1;

fn check(raw: c_long) -> SysResult<c_long> {
    if raw == -1 {
        // SAFETY: `__errno_location` always returns a valid pointer to the calling thread's `errno`.
        return Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }));
    }
    Ok(raw)
}

/// Which side of [`fork`] we are on.
pub(crate) enum ForkSide {
    /// The caller: holds the child's pidfd, and its pid, which is the child's until it is reaped.
    Parent(OwnedFd, i32),
    /// The copy.
    Child,
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Copies this process (memory copy-on-write) straight into the namespaces named by `flags`, and, given a
/// cgroup v2 directory, straight into that cgroup.
///
/// The child sends no signal when it ends: nobody else's `SIGCHLD` handler may reap it.
///
/// # Safety
/// The child is a copy of one thread of a process that may have had more. It may not allocate, lock or run destructors of the
/// caller's objects, and must end in `execve` or [`exit`].
pub(crate) unsafe fn fork(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> SysResult<ForkSide> {
    let mut pidfd: c_int = -1;
    let mut args = CloneArgs {
        flags: flags | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        ..CloneArgs::default()
    };
    if let Some(dir) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = dir.as_raw_fd() as u64;
    }
    // SAFETY: `args` is a live, correctly sized `clone_args`; without `CLONE_VM` the child gets its own copy of
    // this stack, so both sides return here independently. The caller vouches for what the child does.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) })?;
    if pid == 0 {
        return Ok(ForkSide::Child);
    }
    // SAFETY: `CLONE_PIDFD` made the kernel store a fresh descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(ForkSide::Parent(pidfd, i32::try_from(pid).unwrap_or(i32::MAX)))
}

/// Bytes of stack for the process that becomes the program, until it does.
pub(crate) const STACK_BYTES: usize = 128 * 1024;

/// What the other side of [`spawn`] is started with.
struct SpawnArgument<'a, T> {
    run: fn(&T) -> !,
    argument: &'a T,
}

/// Leaves the network for an empty one.
pub(crate) fn unshare_network() -> SysResult<()> {
    // SAFETY: the flag does not touch descriptor tables, which is what makes the call unsafe.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
}

/// Brings loopback up in this process's network namespace.
pub(crate) fn loopback_up() -> SysResult<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all zeroes is a valid `ifreq`: an empty name and no flags.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = *byte as c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: the call reads a live `ifreq` with a terminated name, and writes nothing.
    let raw = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    check(c_long::from(raw)).map(drop)
}

extern "C" fn trampoline<T>(entry: *mut c_void) -> c_int {
    // SAFETY: the pointer leads to an `SpawnArgument<T>` on the frame of `spawn`, which never returns.
    let entry = unsafe { &*entry.cast::<SpawnArgument<'_, T>>() };
    (entry.run)(entry.argument)
}

/// Starts a second process, which runs `run` on `stack`, and continues as `then` with that process's pid. `share_memory` lends it our
/// memory until it execs (no page tables to copy).
///
/// Both run at the same time. They share `errno` as well, so that the number of an error may be the other's; which call
/// failed is never in doubt. This function never returns, so that `argument`, which both read, is never dropped or overwritten
/// while the second process lives.
///
/// # Safety
/// Only for a child of [`fork`]. With `share_memory`, `run` must end in `execve` or [`exit`], neither side may unwind, and
/// neither may write memory that the other uses.
pub(crate) unsafe fn spawn<T>(
    stack: &mut [u8],
    share_memory: bool,
    argument: T,
    run: fn(&T) -> !,
    then: fn(&T, SysResult<i32>) -> !,
) -> ! {
    let mut flags = libc::SIGCHLD;
    if share_memory {
        flags |= libc::CLONE_VM;
    }
    let top = stack.as_mut_ptr_range().end;
    // The ABI wants the stack 16-byte aligned.
    let top = top.wrapping_sub(top as usize % 16);
    let entry = SpawnArgument { run, argument: &argument };
    // SAFETY: `top` is the aligned end of a live buffer used by nobody else. Buffer, entry and argument live as long as this
    // process, since this function doesn't return; when the process ends before the new one has exec'd, its memory stays until
    // the last user is gone.
    let pid =
        unsafe { libc::clone(trampoline::<T>, top.cast(), flags, (&raw const entry).cast_mut().cast()) };
    then(&argument, check(c_long::from(pid)).map(|pid| pid as i32))
}

/// Leaves at once: no destructors, no `atexit`, which would act on the parent's state.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: `_exit` takes any code and does not return.
    unsafe { libc::_exit(code) }
}

/// A null-terminated array of C strings, ready for `execve`.
pub(crate) struct CStrings {
    pointers: Vec<*const c_char>,
    _owners: Vec<std::ffi::CString>,
}

impl core::fmt::Debug for CStrings {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("CStrings").field(&self.pointers.len().saturating_sub(1)).finish()
    }
}

// SAFETY: the pointers lead into heap buffers that `_owners` keeps alive and nobody changes.
unsafe impl Send for CStrings {}
// SAFETY: as above; the type has no interior mutability.
unsafe impl Sync for CStrings {}

impl CStrings {
    pub(crate) fn new(owners: Vec<std::ffi::CString>) -> Self {
        let pointers =
            owners.iter().map(|owner| owner.as_ptr()).chain(core::iter::once(core::ptr::null())).collect();
        Self { pointers, _owners: owners }
    }
}

/// Becomes another program. Returns only if that failed.
pub(crate) fn execve(path: &CStr, argv: &CStrings, envp: &CStrings) -> Errno {
    // SAFETY: `path` and both arrays are null-terminated and live (see `CStrings`).
    let raw = unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), envp.pointers.as_ptr()) };
    check(c_long::from(raw)).err().unwrap_or(Errno::NOEXEC)
}

/// Closes every descriptor from `first` to `last`.
///
/// # Safety
/// No object of this process that owns one of these descriptors may be used or dropped afterwards.
pub(crate) unsafe fn close_range(first: u32, last: u32) -> SysResult<()> {
    // SAFETY: no pointers; the caller vouches for the descriptors.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Closes one descriptor by its number.
///
/// # Safety
/// As [`close_range`].
pub(crate) unsafe fn close(fd: RawFd) -> SysResult<()> {
    // SAFETY: the caller vouches for the descriptor.
    unsafe { close_range(fd.cast_unsigned(), fd.cast_unsigned()) }
}

/// Marks every descriptor from `first` up close-on-exec.
pub(crate) fn cloexec_from(first: u32) -> SysResult<()> {
    // SAFETY: changes only a flag of descriptors.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, CLOSE_RANGE_CLOEXEC) }).map(drop)
}

/// Blocks every signal on this thread; returns the mask there was.
pub fn block_signals() -> libc::sigset_t {
    let mut old = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets are valid for writing; zeroed is a valid `sigset_t`.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
        old.assume_init()
    }
}

/// Restores a mask that [`block_signals`] returned.
pub fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: `mask` is a valid set; a null old set is allowed.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, core::ptr::null_mut()) };
}

/// Takes a signal that waits for this thread, which has it blocked; without one it does nothing.
pub fn forget_signal(signal: c_int) {
    let mut set = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set is valid for writing and initialised before it is read; no information about the signal is asked for.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigtimedwait(set.as_ptr(), core::ptr::null_mut(), &raw const at_once);
    }
}

/// Gives every signal its default action (an ignored signal would stay ignored across `execve`). Real-time signals
/// are not ignored by anyone, and handlers are reset by `execve` itself.
pub(crate) fn default_signals() {
    for signal in 1..=libc::SIGSYS {
        // SAFETY: `SIG_DFL` is valid for every signal; the kernel refuses KILL and STOP, which changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Unblocks every signal.
pub(crate) fn unblock_signals() {
    let mut none = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: as in `block_signals`.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), core::ptr::null_mut());
    }
}

/// A descriptor that is readable when a child has ended. `SIGCHLD` must be blocked.
pub(crate) fn child_events() -> SysResult<OwnedFd> {
    let mut set = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` is valid for writing, and initialised before it is read.
    let raw = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    let raw = check(c_long::from(raw))?;
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw as RawFd) })
}

/// Waits for (and reaps) the child behind a pidfd; true when it has ended.
pub(crate) fn wait(pidfd: BorrowedFd<'_>, block: bool) -> SysResult<bool> {
    let mut siginfo = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::__WALL | if block { 0 } else { libc::WNOHANG };
    // SAFETY: the buffer is valid for writing and zeroed, which is a valid value of its type.
    let siginfo = unsafe {
        let id = pidfd.as_raw_fd().cast_unsigned();
        check(c_long::from(libc::waitid(libc::P_PIDFD, id, siginfo.as_mut_ptr(), options)))?;
        siginfo.assume_init()
    };
    Ok(siginfo.si_signo != 0)
}

/// Processor time in milliseconds and largest resident size in KiB of all children that were waited for.
pub(crate) fn used_by_children() -> (u32, u32) {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the buffer is valid for writing and zeroed, which is a valid value of its type.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let us = |time: libc::timeval| time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_usec);
    let ms = us(usage.ru_utime).saturating_add(us(usage.ru_stime)) / 1000;
    (u32::try_from(ms).unwrap_or(u32::MAX), u32::try_from(usage.ru_maxrss).unwrap_or(u32::MAX))
}

/// Watches a descriptor for becoming readable, from within a Tokio runtime.
///
/// # Errors
/// If the runtime can't watch it.
pub fn watch_readable(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open and the same for as long as the `AsyncFd` owns it.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(Into::into)
}

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Sets attributes (`MOUNT_ATTR_*`) on the mount that `mount` is the root of.
pub(crate) fn mount_setattr(mount: BorrowedFd<'_>, recursive: bool, attr_set: u64) -> SysResult<()> {
    let attr = MountAttr { attr_set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: an empty C string and a live, correctly sized `mount_attr`.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags as c_uint,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// The Landlock ABI of the running kernel; zero if there is none.
pub(crate) fn landlock_abi() -> u32 {
    // SAFETY: the documented query form: null attribute, zero size, version flag.
    let raw = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            core::ptr::null::<c_void>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(raw).unwrap_or(0)
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// Allows `access` at and beneath the file behind `path`.
pub(crate) fn landlock_allow(ruleset: BorrowedFd<'_>, path: BorrowedFd<'_>, access: u64) -> SysResult<()> {
    let rule = PathBeneath { allowed_access: access, parent_fd: path.as_raw_fd() };
    // SAFETY: `rule` is a live `landlock_path_beneath_attr` (packed, as the kernel defines it).
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            LANDLOCK_RULE_PATH_BENEATH,
            &raw const rule,
            0u32,
        )
    })
    .map(drop)
}

/// Enters the Landlock domain. Needs `no_new_privs`.
pub(crate) fn landlock_restrict(ruleset: BorrowedFd<'_>) -> SysResult<()> {
    // SAFETY: restricts only this process.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) }).map(drop)
}

/// Installs a seccomp filter. Needs `no_new_privs`.
pub(crate) fn seccomp(program: &[libc::sock_filter]) -> SysResult<()> {
    let Ok(len) = u16::try_from(program.len()) else { return Err(Errno::INVAL) };
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` describes a live slice, which the kernel copies and never writes.
    check(unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0u32, &raw const program) })
        .map(drop)
}

/// Kills every process that we can see, but ourselves. Only for the first process of a pid namespace.
pub(crate) fn kill_everyone_else() {
    if rustix::process::getpid() == rustix::process::Pid::INIT {
        // SAFETY: as pid 1 of a namespace of our own, "everyone" is everyone in it.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    }
}

/// Makes writing past the file size limit an error (`EFBIG`) instead of a deadly signal.
pub(crate) fn ignore_file_size_signal() {
    // SAFETY: `SIG_IGN` is valid for this signal; it stays ignored across `execve`.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    /// Writes a byte when it is dropped.
    struct Witness(OwnedFd);

    impl Drop for Witness {
        fn drop(&mut self) {
            rustix::io::write(&self.0, b"dropped").ok();
        }
    }

    fn second(_: &Witness) -> ! {
        exit(0)
    }

    /// The path of a failure after the second process was started: it ends without coming back.
    fn failed(_: &Witness, pid: SysResult<i32>) -> ! {
        exit(if pid.is_ok() { 7 } else { 8 })
    }

    #[test]
    fn s5_4_functions_with_a_contract_are_unsafe_and_no_safe_one_makes_any_call() {
        let text = include_str!("sys.rs");
        for name in ["fork", "spawn", "close_range", "close"] {
            let declared = |word: &str| {
                [format!("{word} {name}("), format!("{word} {name}<")]
                    .iter()
                    .any(|start| text.contains(start.as_str()))
            };
            assert!(declared("pub(crate) unsafe fn") && !declared("pub(crate) fn"), "{name}");
        }
        let any_call = concat!("fn ", "raw(");
        assert!(!text.contains(any_call) && !include_str!("sys/attempted.rs").contains(any_call));
    }

    #[test]
    fn s5_3_what_the_second_process_borrows_is_never_dropped() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut stack = vec![0; STACK_BYTES];
        let witness = Witness(write);
        let mask = block_signals();
        // SAFETY: the child calls `spawn` only, whose sides do nothing but `exit` and a `write`.
        let side = unsafe { fork(0, None) };
        if matches!(side, Ok(ForkSide::Child)) {
            // SAFETY: this is the child; neither side unwinds or writes memory that the other uses.
            unsafe { spawn(&mut stack, true, witness, second, failed) }
        }
        restore_signals(&mask);
        // Ours is not the child's: without this the pipe would stay open.
        let Witness(ours) = &*std::mem::ManuallyDrop::new(witness);
        // SAFETY: the owner of this descriptor is never dropped or used again.
        unsafe { close(ours.as_raw_fd()) }.unwrap();
        let Ok(ForkSide::Parent(pidfd, _)) = side else { panic!("no child") };
        wait(pidfd.as_fd(), true).unwrap();
        let mut said = Vec::new();
        std::fs::File::from(read).read_to_end(&mut said).unwrap();
        assert!(said.is_empty(), "{said:?}");
    }
}
