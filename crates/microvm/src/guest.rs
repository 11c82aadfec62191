//! One guest from its first instruction to its last, on a thread of its own.
#![expect(unsafe_code, reason = "waking the thread by a signal, and asking for its processor time")]

use std::io;
use std::os::unix::thread::JoinHandleExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use regent_kernel::Digest;
use regent_sandbox::{block_signals, forget_signal, restore_signals};
use rustix::io::Errno;
use rustix::time::ClockId;

use super::calls::{GuestEnding, GuestProcess, GuestProgramStart, Next};
use super::confine::{Confined, confine};
use super::files::{FileLimits, GuestFiles, GuestStreams};
use super::link::{Link, Outside as _};
use super::machine::{GuestFault, PAGE_FAULT, VcpuStop, Vm};
use super::memory::GuestRam;
use super::programs::{self, NotRun};
use super::space::{OutOfMemory, Space};
use super::start::{StartWords, lay_stack};
use super::template::{Template, Templates};
use super::tree::FixedTree;

/// The same page may fault so often in a row: the hypervisor may have to look twice.
const REPEATS_MAX: u32 = 64;

/// What is to run, and within what.
#[derive(Debug)]
pub(super) struct GuestJob {
    pub(super) load: Load,
    pub(super) words: StartWords,
    /// The workspace's path, and the folder to begin in.
    pub(super) workspace: String,
    pub(super) cwd: String,
    pub(super) input: Vec<u8>,
    pub(super) memory_bytes: u64,
    pub(super) files: FileLimits,
    /// What the wall clock shows now.
    pub(super) now_ms: u64,
}

/// Where the program comes from.
#[derive(Debug)]
pub(super) enum Load {
    /// One of the host's own.
    Host(PathBuf),
    /// A static shell of the host's.
    Shell,
    /// This file.
    Content(Vec<u8>),
}

/// Why nothing was run.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// Because of the program.
    Program(NotRun),
    /// Because of this host, or of us.
    Broke(String),
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) end: GuestEnding,
    /// What was run.
    pub(super) digest: Digest,
    pub(super) output: GuestStreams,
    pub(super) notes: Vec<String>,
    /// Something was not saved, although the program may not have noticed.
    pub(super) unsaved: bool,
    pub(super) confined: Confined,
    pub(super) memory_bytes_used: u64,
    pub(super) calls: u64,
    pub(super) faults: u64,
    pub(super) cpu: Duration,
    /// From its first instruction to its last.
    pub(super) ran: Duration,
    // The receiver closes it: the thread itself may not close anything any more.
    _template: Arc<Template>,
    _machine: Vm,
    _space: Space,
}

/// A machine and its memory, made before there is a program for it. Used for one guest and never again.
#[derive(Debug)]
pub(super) struct Shell {
    machine: Vm,
    memory: GuestRam,
}

impl Shell {
    pub(super) fn new(bytes: u64) -> io::Result<Self> {
        let memory = GuestRam::reserve(bytes)?;
        let machine = Vm::new(&memory)?;
        Ok(Self { machine, memory })
    }

    /// The size of its memory.
    pub(super) fn bytes(&self) -> u64 {
        self.machine.bytes()
    }
}

/// A guest that runs.
#[derive(Debug)]
pub(super) struct GuestThread {
    thread: Option<JoinHandle<Result<Finished, NotStarted>>>,
    link: Arc<Link>,
}

impl GuestThread {
    /// Starts the thread.
    pub(super) fn start(
        job: GuestJob,
        shell: Option<Shell>,
        templates: &Arc<Templates>,
        link: &Arc<Link>,
    ) -> io::Result<Self> {
        let (own, templates) = (Arc::clone(link), Arc::clone(templates));
        // The thread is born with every signal blocked: the one that ends it must never find it unprepared.
        let mask = block_signals();
        let thread = std::thread::Builder::new().name("regent-guest".to_owned()).spawn(move || {
            let _ended = EndGuard(&own);
            run(job, shell, &templates, &own)
        });
        restore_signals(&mask);
        Ok(Self { thread: Some(thread?), link: Arc::clone(link) })
    }

    /// Ends the guest, wherever it is. It stops within microseconds; nothing of it runs afterwards.
    pub(super) fn kill(&self) {
        self.link.stop();
        self.kick();
    }

    /// Pauses the guest, or lets it continue. It pauses within microseconds; its clocks run on.
    pub(super) fn hold(&self, held: bool) {
        self.link.hold(held);
        if held {
            self.kick();
        }
    }

    /// Ends the current run of the virtual processor.
    fn kick(&self) {
        if let Some(thread) = &self.thread {
            // SAFETY: the thread has not been joined, so that its id is valid. It has this signal blocked except while the guest
            // runs, where it only ends the run.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), kick_signal()) };
        }
    }

    /// The processor time that the thread has used.
    pub(super) fn cpu(&self) -> Duration {
        let Some(thread) = &self.thread else { return Duration::ZERO };
        let mut clock: libc::clockid_t = 0;
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the thread has not been joined; both places are valid for writing.
        let known = unsafe {
            libc::pthread_getcpuclockid(thread.as_pthread_t(), &raw mut clock) == 0
                && libc::clock_gettime(clock, &raw mut now) == 0
        };
        if !known {
            return Duration::ZERO;
        }
        Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    /// Waits for its end, which must have come or been asked for.
    pub(super) fn join(mut self) -> Result<Finished, NotStarted> {
        let broke = |why: &str| Err(NotStarted::Broke(why.to_owned()));
        let Some(thread) = self.thread.take() else { return broke("the guest was already waited for") };
        thread.join().unwrap_or_else(|_| broke("the guest's thread panicked"))
    }
}

impl Drop for GuestThread {
    /// Nobody waits for it any more: it ends, and what it held is given back elsewhere.
    fn drop(&mut self) {
        self.kill();
        if let Some(thread) = self.thread.take() {
            // If no thread can be had, its resources stay until the process ends; the guest is dead all the same.
            drop(std::thread::Builder::new().spawn(move || drop(thread.join())));
        }
    }
}

/// Says that the thread is done, also when it panics.
struct EndGuard<'a>(&'a Link);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The signal that ends a run of the guest. No handler is ever run for it.
fn kick_signal() -> i32 {
    libc::SIGRTMIN()
}

#[expect(clippy::disallowed_methods, reason = "processor time of this thread, not the time of day")]
fn run(
    job: GuestJob,
    shell: Option<Shell>,
    templates: &Templates,
    link: &Link,
) -> Result<Finished, NotStarted> {
    let broke = |doing: &'static str| move |error: io::Error| NotStarted::Broke(format!("{doing}: {error}"));
    let template = match &job.load {
        Load::Host(path) => programs::host(path, templates),
        Load::Shell => programs::shell(templates),
        Load::Content(content) => programs::content(content, templates),
    };
    let template = template.map_err(NotStarted::Program)?;
    let shell = match shell {
        Some(shell) if shell.bytes() == job.memory_bytes => shell,
        _ => Shell::new(job.memory_bytes).map_err(broke("can't create a virtual machine"))?,
    };
    let Shell { mut machine, mut memory } = shell;
    memory.overlay(&template.image).map_err(broke("can't load the program"))?;
    let mut space = Space::from_layout(memory, &template.layout);
    let stack = lay_stack(&mut space, &template, &job.words)
        .map_err(|errno| broke("can't create the program's stack")(errno.into()))?;
    machine
        .prepare(&template.foundation, template.entry, stack.pointer)
        .and_then(|()| machine.listen_for(kick_signal()))
        .map_err(broke("the virtual processor can't be set up"))?;
    let confined = confine(&machine, link).map_err(broke("the guest's thread can't be confined"))?;
    let mut program = GuestProcess::new(GuestProgramStart {
        space,
        files: GuestFiles::new(FixedTree::new(&job.workspace), job.input, job.files),
        cwd: job.cwd,
        path: job.words.path,
        heap_start: template.end,
        mappings_top: stack.mappings_top,
        stack_bytes: stack.bytes,
        open_max: job.files.open_max as u64,
        began_ms: job.now_ms,
    });
    let began = Instant::now();
    let (end, calls, faults) = drive(&mut machine, &mut program, link);
    let ran = began.elapsed();
    // What the program wrote and didn't close is saved if it ended by itself. A program that we end has no say any more.
    match end {
        GuestEnding::Exit(_) | GuestEnding::Signal(_) => program.files.save_all(link),
        GuestEnding::Output
        | GuestEnding::Stuck
        | GuestEnding::Memory
        | GuestEnding::Killed
        | GuestEnding::Dead(_) => {}
    }
    let now = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let cpu = Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0));
    let GuestProcess { space, files, .. } = program;
    Ok(Finished {
        end,
        digest: template.digest,
        output: files.output,
        notes: files.notes,
        unsaved: files.unsaved,
        confined,
        memory_bytes_used: space.used_bytes(),
        calls,
        faults,
        cpu,
        ran,
        _template: template,
        _machine: machine,
        _space: space,
    })
}

/// Runs the guest and answers it until it ends.
fn drive(machine: &mut Vm, program: &mut GuestProcess, link: &Link) -> (GuestEnding, u64, u64) {
    let (mut calls, mut faults): (u64, u64) = (0, 0);
    let mut last = (0, 0, 0);
    let end = loop {
        if link.is_stopped() {
            break GuestEnding::Killed;
        }
        match machine.run(&program.space) {
            VcpuStop::Call { number, arguments } => {
                (calls, last) = (calls.saturating_add(1), (0, 0, 0));
                let next = if number == libc::SYS_arch_prctl as u64 {
                    Next::Answer(arch_prctl(machine, program, arguments))
                } else {
                    program.call(number, arguments, link)
                };
                match next {
                    Next::Answer(Ok(value)) => machine.answer(value),
                    Next::Answer(Err(errno)) => {
                        machine.answer(i64::from(-errno.raw_os_error()).cast_unsigned())
                    }
                    Next::End(end) => break end,
                }
            }
            VcpuStop::Fault(fault) => {
                faults = faults.saturating_add(1);
                let repeats = if (last.0, last.1) == (fault.at, fault.address) { last.2 + 1 } else { 0 };
                last = (fault.at, fault.address, repeats);
                match settle(program, &fault) {
                    Ok(true) if repeats < REPEATS_MAX => machine.retry(&fault),
                    Ok(_) => break GuestEnding::Signal(signal_of(fault.vector)),
                    Err(OutOfMemory) => break GuestEnding::Memory,
                }
            }
            VcpuStop::Interrupted => {
                // The signal stays pending, and would end every further run at once.
                forget_signal(kick_signal());
                link.wait_while_held();
            }
            VcpuStop::Dead(why) => break GuestEnding::Dead(why),
        }
    };
    (end, calls, faults)
}

/// Whether a fault was only a page that had not been brought in.
fn settle(program: &mut GuestProcess, fault: &GuestFault) -> Result<bool, OutOfMemory> {
    if fault.vector != PAGE_FAULT {
        return Ok(false);
    }
    let (write, execute) = (fault.error & 2 != 0, fault.error & 16 != 0);
    program.space.fault(fault.address, write, execute)
}

/// The signal that Linux would send for an exception.
fn signal_of(vector: u8) -> i32 {
    match vector {
        0 | 16 | 19 => libc::SIGFPE,
        1 | 3 => libc::SIGTRAP,
        6 => libc::SIGILL,
        17 => libc::SIGBUS,
        _ => libc::SIGSEGV,
    }
}

/// The one call that is about the processor rather than the program.
fn arch_prctl(
    machine: &mut Vm,
    program: &mut GuestProcess,
    [what, value, ..]: [u64; 6],
) -> Result<u64, Errno> {
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    match what {
        SET_FS if value < super::areas::USER_END => {
            machine.set_thread_base(value);
            Ok(0)
        }
        SET_FS => Err(Errno::PERM),
        GET_FS => {
            let base = machine.thread_base();
            program.space.write(value, &base.to_le_bytes()).map(|()| 0)
        }
        _ => Err(Errno::INVAL),
    }
}
