//! The system calls of Linux, answered for one guest. Each argument is the guest's word: pointers are checked against its own
//! mappings, lengths are cut to what we hold, and nothing is read or written but by copying.
//!
//! What isn't here answers `ENOSYS`. There is one thread and one process: `fork`, `clone`, `execve` and sockets are refused.

mod file;
mod memory;
mod rest;
mod wait;

use std::time::Instant;

use rustix::io::Errno;

use super::files::GuestFiles;
use super::link::Outside;
use super::space::Space;

/// The result of a guest's system call.
pub(super) type SyscallResult = Result<u64, Errno>;

/// How a program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuestEnding {
    /// By itself, with this code.
    Exit(i32),
    /// By a signal, its own or one that a fault stands for.
    Signal(i32),
    /// It wrote more output than it may.
    Output,
    /// It waits for something that can never come.
    Stuck,
    /// It touched more memory than it may have.
    Memory,
    /// We ended it.
    Killed,
    /// The machine can't continue.
    Dead(&'static str),
}

/// What follows a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The guest continues with this.
    Answer(SyscallResult),
    /// The guest is over.
    End(GuestEnding),
}

/// One guest program, as Linux would keep it.
#[derive(Debug)]
pub(super) struct GuestProcess {
    pub(super) space: Space,
    pub(super) files: GuestFiles,
    /// The working folder.
    pub(super) cwd: String,
    /// What `/proc/self/exe` leads to.
    pub(super) path: String,
    pub(super) heap: Heap,
    /// New mappings go below.
    pub(super) mappings_top: u64,
    pub(super) began: Instant,
    /// What the wall clock showed then.
    pub(super) began_ms: u64,
    pub(super) stack_bytes: u64,
    pub(super) open_max: u64,
    state: ProgramState,
}

/// The heap that `brk` moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heap {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What a program can set and ask for, and nobody else looks at.
#[derive(Debug)]
struct ProgramState {
    umask: u32,
    signal_mask: u64,
    actions: Vec<[u8; 32]>,
    alternate_stack: [u8; 24],
}

/// Numbers that a process knows itself by.
const PROCESS_ID: u64 = 1000;
const SIGNALS: usize = 64;

/// What a program begins with.
#[derive(Debug)]
pub(super) struct GuestProgramStart {
    pub(super) space: Space,
    pub(super) files: GuestFiles,
    pub(super) cwd: String,
    pub(super) path: String,
    pub(super) heap_start: u64,
    pub(super) mappings_top: u64,
    pub(super) stack_bytes: u64,
    pub(super) open_max: u64,
    pub(super) began_ms: u64,
}

impl GuestProcess {
    pub(super) fn new(beginning: GuestProgramStart) -> Self {
        let GuestProgramStart {
            space,
            files,
            cwd,
            path,
            heap_start,
            mappings_top,
            stack_bytes,
            open_max,
            began_ms,
        } = beginning;
        let heap = Heap { start: heap_start, end: heap_start };
        // SS_DISABLE: there is no alternate stack.
        let mut alternate_stack = [0; 24];
        if let Some(flags) = alternate_stack.get_mut(8) {
            *flags = 2;
        }
        let state =
            ProgramState { umask: 0o022, signal_mask: 0, actions: vec![[0; 32]; SIGNALS], alternate_stack };
        let began = Instant::now();
        Self { space, files, cwd, path, heap, mappings_top, began, began_ms, stack_bytes, open_max, state }
    }

    /// Answers one call.
    pub(super) fn call(&mut self, number: u64, arguments: [u64; 6], outside: &dyn Outside) -> Next {
        let number = i64::try_from(number).unwrap_or(-1);
        if let Some(end) = self.ending(number, arguments) {
            return Next::End(end);
        }
        let answer = self
            .memory_call(number, arguments)
            .or_else(|| self.transfer_call(number, arguments, outside))
            .or_else(|| self.name_call(number, arguments, outside))
            .or_else(|| self.rest_call(number, arguments))
            .or_else(|| self.wait_call(number, arguments, outside))
            .unwrap_or_else(|| Err(refused(number)));
        match answer {
            _ if outside.is_stopped() => Next::End(GuestEnding::Killed),
            _ if self.files.output.cut => Next::End(GuestEnding::Output),
            // No call of Linux that we answer says so: it is our own mark.
            Err(Errno::DEADLK) => Next::End(GuestEnding::Stuck),
            answer => Next::Answer(answer),
        }
    }

    /// Calls that end the program.
    fn ending(&self, number: i64, [first, second, third, ..]: [u64; 6]) -> Option<GuestEnding> {
        let signal = match number {
            libc::SYS_exit | libc::SYS_exit_group => return Some(GuestEnding::Exit(first as i32 & 0xff)),
            libc::SYS_kill if first == PROCESS_ID || first == 0 => second,
            libc::SYS_tkill if first == PROCESS_ID => second,
            libc::SYS_tgkill if first == PROCESS_ID && second == PROCESS_ID => third,
            _ => return None,
        };
        let signal = i32::try_from(signal).ok().filter(|signal| (1..=64).contains(signal))?;
        // Handlers are never run: a signal that a program sends itself ends it unless it is ignored, by request or by nature.
        let by_nature = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH].contains(&signal);
        let asked = self.state.actions.get(usize::try_from(signal).ok()?.checked_sub(1)?);
        let handler = asked.and_then(|action| action.first_chunk()).map(|bytes| u64::from_le_bytes(*bytes));
        match handler {
            Some(1) => None,
            Some(0) | None if by_nature => None,
            _ => Some(GuestEnding::Signal(signal)),
        }
    }

    /// A text argument.
    fn text(&mut self, at: u64) -> Result<Vec<u8>, Errno> {
        self.space.read_text(at, super::tree::PATH_BYTES_MAX)
    }

    /// A number argument behind a pointer.
    fn word(&mut self, at: u64) -> Result<u64, Errno> {
        let mut bytes = [0; 8];
        self.space.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn half(&mut self, at: u64) -> Result<u32, Errno> {
        let mut bytes = [0; 4];
        self.space.read(at, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Fills in a structure, where the guest wants one.
    fn fill(&mut self, at: u64, bytes: &[u8]) -> SyscallResult {
        if at != 0 {
            self.space.write(at, bytes)?;
        }
        Ok(0)
    }
}

/// What calls that we don't have answer.
fn refused(number: i64) -> Errno {
    match number {
        libc::SYS_socket
        | libc::SYS_socketpair
        | libc::SYS_connect
        | libc::SYS_bind
        | libc::SYS_mount
        | libc::SYS_ptrace
        | libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_chroot
        | libc::SYS_chown
        | libc::SYS_fchown
        | libc::SYS_fchownat
        | libc::SYS_link
        | libc::SYS_linkat
        | libc::SYS_symlink
        | libc::SYS_symlinkat => Errno::PERM,
        libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill => Errno::SRCH,
        libc::SYS_wait4 | libc::SYS_waitid => Errno::CHILD,
        _ => Errno::NOSYS,
    }
}
