//! Seccomp user notification: the kernel holds a system call and asks us, and we answer it or perform it.

use core::ffi::{c_int, c_uint, c_ulong};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use super::{SECCOMP_SET_MODE_FILTER, SysResult, check};

/// Pages are at least this large; memory is readable or not page by page.
const PAGE_BYTES: u64 = 4096;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the caller and we take turns, so the kernel may keep both on one processor.
const SYNC_WAKE_UP: u64 = 1;

/// A system call that waits for our answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notice {
    pub id: u64,
    /// The calling thread, as we number it.
    pub thread: u32,
    pub call: c_int,
    pub arguments: [u64; 6],
}

/// Installs a filter whose notifications go to the returned descriptor, which is closed on exec. Needs `no_new_privs`.
pub(crate) fn listen(program: &[libc::sock_filter]) -> SysResult<OwnedFd> {
    // Once we have a call, only a deadly signal ends its wait: a call that is interrupted and made again would be performed twice.
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let raw = match install(program, flags | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        // Linux 5.18 and older have no such flag.
        Err(Errno::INVAL) => install(program, flags),
        result => result,
    }?;
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn install(program: &[libc::sock_filter], flags: c_ulong) -> SysResult<RawFd> {
    let Ok(len) = u16::try_from(program.len()) else { return Err(Errno::INVAL) };
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` describes a live slice, which the kernel copies and never writes.
    let raw = unsafe {
        libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags as c_uint, &raw const program)
    };
    check(raw).map(|fd| fd as RawFd)
}

/// Waits for the next call.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> SysResult<Notice> {
    // SAFETY: all zeroes is a valid `seccomp_notif`, and the kernel wants it so.
    let mut notice: libc::seccomp_notif = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one `seccomp_notif`, for which there is room.
    let raw = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notice) };
    check(raw.into())?;
    let libc::seccomp_data { nr, args, .. } = notice.data;
    Ok(Notice { id: notice.id, thread: notice.pid, call: nr, arguments: args })
}

/// Whether the call still waits: if so, its thread is still the one that made it, and so is whatever we opened by its number.
pub(crate) fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one `u64`.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Ends a call with a value or an error.
pub(crate) fn answer(listener: BorrowedFd<'_>, id: u64, result: SysResult<i64>) -> SysResult<()> {
    let (val, error) = match result {
        Ok(value) => (value, 0),
        Err(errno) => (0, -errno.raw_os_error()),
    };
    let response = libc::seccomp_notif_resp { id, val, error, flags: 0 };
    // SAFETY: the kernel reads one `seccomp_notif_resp`.
    let raw =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) };
    check(raw.into()).map(drop)
}

/// Ends a call with a descriptor of ours, which the caller gets as its own.
pub(crate) fn answer_descriptor(
    listener: BorrowedFd<'_>,
    id: u64,
    fd: BorrowedFd<'_>,
    cloexec: bool,
) -> SysResult<()> {
    let addition = libc::seccomp_notif_addfd {
        id,
        flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
        srcfd: fd.as_raw_fd().cast_unsigned(),
        newfd: 0,
        newfd_flags: if cloexec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
    };
    // SAFETY: the kernel reads one `seccomp_notif_addfd`.
    let raw =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const addition) };
    check(raw.into()).map(drop)
}

/// Makes taking turns cheaper where the kernel can (Linux 6.6).
pub(crate) fn take_turns(listener: BorrowedFd<'_>) {
    // SAFETY: the argument is a number, not a pointer. A kernel that doesn't know the request refuses it.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
}

/// Copies memory of another thread's process, up to the first page that can't be read.
pub(crate) fn read_memory(thread: u32, from: u64, buffer: &mut [u8]) -> SysResult<usize> {
    let room = PAGE_BYTES - from % PAGE_BYTES;
    let first = usize::try_from(room).unwrap_or(usize::MAX).min(buffer.len());
    let piece = |at: u64, bytes: usize| libc::iovec { iov_base: at as *mut _, iov_len: bytes };
    // Two pieces, because a piece is copied whole or not at all.
    let remote = [piece(from, first), piece(from.wrapping_add(room), buffer.len() - first)];
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the kernel writes at most `buffer.len()` bytes to a live buffer; the other side's addresses are only ever looked up in
    // the other process.
    let raw =
        unsafe { libc::process_vm_readv(thread.cast_signed(), &raw const local, 1, remote.as_ptr(), 2, 0) };
    check(raw as core::ffi::c_long).map(|bytes| bytes as usize)
}

/// Gives this thread a working directory and `umask` of its own, apart from the process's.
pub(crate) fn own_umask() -> SysResult<()> {
    // SAFETY: the flag does not touch descriptor tables, which is what makes the call unsafe.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }
}
