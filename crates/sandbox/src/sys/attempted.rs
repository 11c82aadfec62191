//! The system calls that the live probes try and that no safe crate offers. Each is behind a type that lists what may be tried, so
//! that nothing else can be called through it.

use core::ffi::{c_int, c_long, c_ulong};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::{SysResult, check};

/// A system call that leaves the caller's memory and descriptors alone when every argument is zero: it is refused, or fails on a
/// null pointer, or on descriptor 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zeroed(c_long);

impl Zeroed {
    pub(crate) const ADD_KEY: Self = Self(libc::SYS_add_key);
    pub(crate) const BPF: Self = Self(libc::SYS_bpf);
    pub(crate) const CHROOT: Self = Self(libc::SYS_chroot);
    pub(crate) const CLONE3: Self = Self(libc::SYS_clone3);
    pub(crate) const FINIT_MODULE: Self = Self(libc::SYS_finit_module);
    /// Through the x32 table.
    pub(crate) const GETPID_X32: Self = Self(0x4000_0000 | libc::SYS_getpid);
    pub(crate) const IO_URING_SETUP: Self = Self(libc::SYS_io_uring_setup);
    pub(crate) const KEXEC_LOAD: Self = Self(libc::SYS_kexec_load);
    pub(crate) const KEYCTL: Self = Self(libc::SYS_keyctl);
    pub(crate) const MEMFD_CREATE: Self = Self(libc::SYS_memfd_create);
    pub(crate) const MOUNT: Self = Self(libc::SYS_mount);
    pub(crate) const OPEN_BY_HANDLE_AT: Self = Self(libc::SYS_open_by_handle_at);
    pub(crate) const PERF_EVENT_OPEN: Self = Self(libc::SYS_perf_event_open);
    pub(crate) const PIVOT_ROOT: Self = Self(libc::SYS_pivot_root);
    pub(crate) const PROCESS_VM_READV: Self = Self(libc::SYS_process_vm_readv);
    pub(crate) const PTRACE: Self = Self(libc::SYS_ptrace);
    pub(crate) const SETNS: Self = Self(libc::SYS_setns);
    pub(crate) const UMOUNT2: Self = Self(libc::SYS_umount2);
    pub(crate) const USERFAULTFD: Self = Self(libc::SYS_userfaultfd);

    /// Makes the call.
    pub(crate) fn call(self) -> SysResult<c_long> {
        const ZERO: c_ulong = 0;
        // SAFETY: only the constants above exist, and none of them touches memory of ours when every argument is zero.
        check(unsafe { libc::syscall(self.0, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO) })
    }
}

/// The ways to name the process that a descriptor sends its signals to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SetOwner {
    Fcntl,
    FcntlExtended,
    Ioctl,
    SocketIoctl,
}

impl SetOwner {
    pub(crate) const ALL: [Self; 4] = [Self::Fcntl, Self::FcntlExtended, Self::Ioctl, Self::SocketIoctl];

    /// Names `pid` as the owner of `fd`.
    pub(crate) fn call(self, fd: BorrowedFd<'_>, pid: i32) -> SysResult<()> {
        const F_SETOWN_EX: c_int = 15;
        const F_OWNER_PID: c_int = 1;
        const FIOSETOWN: libc::Ioctl = 0x8901;
        const SIOCSPGRP: libc::Ioctl = 0x8902;
        let (fd, owner) = (fd.as_raw_fd(), [F_OWNER_PID, pid]);
        // SAFETY: each call reads at most a live `int` or `f_owner_ex` (two of them), and writes no memory.
        let raw = unsafe {
            match self {
                Self::Fcntl => libc::fcntl(fd, libc::F_SETOWN, pid),
                Self::FcntlExtended => libc::fcntl(fd, F_SETOWN_EX, owner.as_ptr()),
                Self::Ioctl => libc::ioctl(fd, FIOSETOWN, &raw const pid),
                Self::SocketIoctl => libc::ioctl(fd, SIOCSPGRP, &raw const pid),
            }
        };
        check(c_long::from(raw)).map(drop)
    }
}

/// Types a character into the terminal on descriptor 0: refused, or a fault, since the pointer to the character is null.
pub(crate) fn type_into_terminal() -> SysResult<()> {
    // SAFETY: the call reads one byte through its pointer; null makes it fail.
    let raw = unsafe { libc::ioctl(0, libc::TIOCSTI, core::ptr::null::<u8>()) };
    check(c_long::from(raw)).map(drop)
}

/// Leaves for a new user namespace.
pub(crate) fn unshare_user() -> SysResult<()> {
    // SAFETY: the flag does not touch descriptor tables, which is what makes the call unsafe.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }
}

/// Whether a descriptor of this number is open and would stay open across an `execve`.
pub(crate) fn stays_open(fd: RawFd) -> bool {
    // SAFETY: reads a flag of a descriptor, by number; any number will do.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// Copies this process, perhaps into a new user namespace; zero on the far side.
///
/// # Safety
/// Only for a process with one thread. The far side must end by [`super::exit`] or a signal: it may not return into code that owns
/// the near side's objects.
pub(crate) unsafe fn fork(new_user: bool) -> SysResult<c_long> {
    let flags = libc::SIGCHLD | if new_user { libc::CLONE_NEWUSER } else { 0 };
    const ZERO: c_ulong = 0;
    // SAFETY: without `CLONE_VM` the far side has memory of its own; no pointer is passed. The caller vouches for the rest.
    check(unsafe { libc::syscall(libc::SYS_clone, flags as c_ulong, ZERO, ZERO, ZERO, ZERO) })
}

/// Fills so many bytes of shared memory, and keeps them; false if there are none.
pub(crate) fn fill_shared(bytes: usize) -> bool {
    const PAGE: usize = 4096;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice.
    let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return false;
    }
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: within the mapping, which nobody else knows and nobody unmaps.
        unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
    }
    true
}

/// One call through the 32-bit entry of the kernel. Does not return from inside a sandbox.
pub(crate) fn call_32_bit() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `getpid` (20) of the 32-bit table takes no arguments and touches no memory; the entry may change the
    // registers named as clobbered.
    unsafe {
        core::arch::asm!("int 0x80", inout("eax") 20 => _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    #[cfg(not(target_arch = "x86_64"))]
    // There is no such entry: end as its caller would.
    kill_by_filter();
}

#[cfg(not(target_arch = "x86_64"))]
fn kill_by_filter() {
    // SAFETY: ends this process only.
    unsafe { libc::raise(libc::SIGSYS) };
}
