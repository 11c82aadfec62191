//! Puts the user's terminal back if this process is killed (`kill -9`) while it is raw: a destructor doesn't run then. A small copy of this
//! process waits on a pipe, and notices when nobody holds the other end any more.
#![expect(unsafe_code, reason = "the fork, and closing what the copy doesn't need")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;

use super::Terminal;
use crate::sys::terminal::Modes;
use crate::sys::{self, ForkSide};

/// The terminal is raw from here on.
const RAW: u8 = b'r';
/// It is as it was.
const PUT_BACK: u8 = b'b';
/// A terminal that takes nothing goes without its reset.
const ROOM_WITHIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// The copy knows no mode that the program has set, so it resets those that make a shell unusable: the other screen, the mouse, marked
/// pastes, other key codes, a hidden cursor, and what a soft reset covers.
const RESET: &[u8] =
    b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[<99u\x1b[=0u\x1b[>4m\
    \x1b[?25h\x1b[0 q\x1b[!p\x1b7\x1b[r\x1b8\x1b[4l\x1b[20l\x1b[0m\x1b(B\x0f\x1b>";

/// The copy that waits. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Watchdog {
    pipe: Option<OwnedFd>,
    process: OwnedFd,
}

impl Watchdog {
    /// Starts it for a terminal with these modes; `None` if there can be none: then `reset` is the user's to type.
    pub(super) fn start(terminal: &Terminal, modes: &Modes) -> Option<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
        // No handler of ours may run in the copy, and no signal to this job may end it.
        let mask = sys::block_signals();
        // SAFETY: the child goes to `watch`, which neither allocates nor locks, drops nothing of ours and never returns.
        let side = unsafe { sys::fork(0, None) };
        if matches!(side, Ok(ForkSide::Child)) {
            watch(read.as_fd(), terminal.input.as_fd(), terminal.output.as_fd(), modes);
        }
        sys::restore_signals(&mask);
        match side {
            Ok(ForkSide::Parent(process, _)) => Some(Self { pipe: Some(write), process }),
            Ok(ForkSide::Child) | Err(_) => None,
        }
    }

    /// Before the modes are changed.
    pub(super) fn raw(&self) {
        self.say(RAW);
    }

    /// After they have been put back.
    pub(super) fn put_back(&self) {
        self.say(PUT_BACK);
    }

    fn say(&self, word: u8) {
        if let Some(pipe) = &self.pipe {
            // It reads at once. If it is gone, there is nobody to tell.
            rustix::io::write(pipe, &[word]).ok();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // It ends at once when its pipe does, and leaves a terminal alone that was put back.
        self.pipe = None;
        sys::wait(self.process.as_fd(), true).ok();
    }
}

/// The copy: waits for the end of the pipe, and puts a terminal back that is raw then.
fn watch(pipe: BorrowedFd<'_>, input: BorrowedFd<'_>, output: BorrowedFd<'_>, modes: &Modes) -> ! {
    // A session of its own: neither the shell's job control nor a hang-up reaches it, and it needs no leave to set the modes.
    rustix::process::setsid().ok();
    let mut kept = [pipe, input, output].map(|one| one.as_raw_fd().cast_unsigned());
    kept.sort_unstable();
    let mut from = 0;
    for one in kept {
        if from < one {
            // SAFETY: this is the child: it uses only the three descriptors that are kept, and drops no object.
            unsafe { sys::close_range(from, one.saturating_sub(1)) }.ok();
        }
        from = one.saturating_add(1);
    }
    // SAFETY: as above. The other end of the pipe is among these, or among those before.
    unsafe { sys::close_range(from, u32::MAX) }.ok();
    let (mut word, mut is_raw) = ([0], false);
    loop {
        match rustix::io::read(pipe, &mut word) {
            Ok(1) => is_raw = word == [RAW],
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => break,
        }
    }
    if is_raw {
        modes.set(input, true).ok();
        let mut ready = [PollFd::from_borrowed_fd(output, PollFlags::OUT)];
        if rustix::event::poll(&mut ready, Some(&ROOM_WITHIN)) == Ok(1) {
            rustix::io::write(output, RESET).ok();
        }
    }
    sys::exit(0)
}
