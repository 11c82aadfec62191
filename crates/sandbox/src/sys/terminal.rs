//! Pseudo-terminals and the modes of terminals.

use core::ffi::{c_int, c_long};
use core::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use super::{SysResult, block_signals, check, restore_signals};

/// A new pseudo-terminal: our end, which doesn't block, and the program's. Neither becomes anybody's controlling terminal by this.
pub(crate) fn open_pair() -> SysResult<(OwnedFd, OwnedFd)> {
    const TIOCGPTPEER: libc::Ioctl = 0x5441;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: no pointers; the result is checked.
    let ours = check(c_long::from(unsafe { libc::posix_openpt(flags | libc::O_NONBLOCK) }))?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let ours = unsafe { OwnedFd::from_raw_fd(ours as RawFd) };
    // SAFETY: a live descriptor of a pseudo-terminal.
    check(c_long::from(unsafe { libc::unlockpt(ours.as_raw_fd()) }))?;
    // SAFETY: the call takes flags, not a pointer.
    let theirs = check(c_long::from(unsafe { libc::ioctl(ours.as_raw_fd(), TIOCGPTPEER, flags) }))?;
    // SAFETY: as above.
    Ok((ours, unsafe { OwnedFd::from_raw_fd(theirs as RawFd) }))
}

/// Where a pseudo-terminal is in the file tree; nothing, if something else is there.
pub(crate) fn path_of(terminal: BorrowedFd<'_>) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", terminal.as_raw_fd())).ok()?;
    let (there, ours) = (rustix::fs::stat(&path).ok()?, rustix::fs::fstat(terminal).ok()?);
    (there.st_rdev == ours.st_rdev && there.st_ino == ours.st_ino).then_some(path)
}

/// Makes the terminal on standard input the controlling one of this session, which has none.
pub(crate) fn control_stdin() -> SysResult<()> {
    // SAFETY: the argument is a number.
    check(c_long::from(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })).map(drop)
}

/// Makes the terminal on standard input listen to this process's group. All signals are blocked: a process in the background would be
/// stopped for it.
pub(crate) fn take_stdin() -> SysResult<()> {
    // SAFETY: no pointers.
    let group: libc::pid_t = unsafe { libc::getpgrp() };
    // SAFETY: the value is only read.
    check(c_long::from(unsafe { libc::ioctl(0, libc::TIOCSPGRP, &raw const group) })).map(drop)
}

/// The modes of a terminal.
#[derive(Clone, Copy)]
pub(crate) struct Modes(libc::termios);

impl core::fmt::Debug for Modes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Modes").field("local", &self.0.c_lflag).finish_non_exhaustive()
    }
}

impl Modes {
    pub(crate) fn read(terminal: BorrowedFd<'_>) -> SysResult<Self> {
        let mut modes = MaybeUninit::<libc::termios>::zeroed();
        // SAFETY: the buffer is valid for writing, and zeroed is a valid value of its type.
        unsafe {
            check(c_long::from(libc::tcgetattr(terminal.as_raw_fd(), modes.as_mut_ptr())))?;
            Ok(Self(modes.assume_init()))
        }
    }

    /// The same without any processing of its own: every byte passes as it is.
    pub(crate) fn raw(mut self) -> Self {
        // SAFETY: changes fields of a valid value.
        unsafe { libc::cfmakeraw(&raw mut self.0) };
        self
    }

    /// The same for input alone: what is written still begins its lines at the left.
    pub(crate) fn keys(self) -> Self {
        let output = self.0.c_oflag;
        let mut raw = self.raw();
        raw.0.c_oflag = output;
        raw
    }

    /// Gives them to a terminal. `flush` throws away what was typed and not read. Never waits for output (`TCSAFLUSH` does): another
    /// thread may be in a write that the terminal doesn't take.
    pub(crate) fn set(&self, terminal: BorrowedFd<'_>, flush: bool) -> SysResult<()> {
        // A process in the background would be stopped for it.
        let mask = block_signals();
        // SAFETY: a valid value, which is only read.
        let raw = unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &raw const self.0) };
        let mut result = check(c_long::from(raw)).map(drop);
        if flush {
            // SAFETY: no pointers.
            let raw = unsafe { libc::tcflush(terminal.as_raw_fd(), libc::TCIFLUSH) };
            result = result.and(check(c_long::from(raw)).map(drop));
        }
        restore_signals(&mask);
        result
    }

    /// The key that is a signal to the program in the foreground, if there is one.
    pub(crate) fn interrupt_key(&self) -> Option<u8> {
        let key = self.0.c_cc.get(libc::VINTR).copied().filter(|key| *key != libc::_POSIX_VDISABLE);
        key.filter(|_| self.0.c_lflag & libc::ISIG != 0)
    }

    /// Whether it echoes and waits for whole lines.
    #[cfg(test)]
    pub(crate) fn is_cooked(&self) -> bool {
        self.0.c_lflag & (libc::ECHO | libc::ICANON) == libc::ECHO | libc::ICANON
    }
}

/// Rows and columns, and both in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TerminalSize(pub(crate) [u16; 4]);

impl TerminalSize {
    pub(crate) fn read(terminal: BorrowedFd<'_>) -> SysResult<Self> {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the buffer is valid for writing.
        check(c_long::from(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) }))?;
        Ok(Self([size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel]))
    }

    /// Gives a terminal this size. The kernel tells its programs (`SIGWINCH`) if it is another than before.
    pub(crate) fn set(self, terminal: BorrowedFd<'_>) -> SysResult<()> {
        let Self([ws_row, ws_col, ws_xpixel, ws_ypixel]) = self;
        let size = libc::winsize { ws_row, ws_col, ws_xpixel, ws_ypixel };
        // SAFETY: a valid value, which is only read.
        check(c_long::from(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }))
            .map(drop)
    }
}

/// Whether a terminal listens to another job of its session than ours.
pub(crate) fn is_anothers(terminal: BorrowedFd<'_>) -> bool {
    // SAFETY: no pointers.
    let (group, ours): (c_int, c_int) = unsafe { (libc::tcgetpgrp(terminal.as_raw_fd()), libc::getpgrp()) };
    // It is not our controlling terminal at all: then it has no jobs of ours.
    group != -1 && group != ours
}
