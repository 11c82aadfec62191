//! The other side of the fork: the first process of the sandbox, and the process that becomes the program.
//!
//! Nothing here allocates or locks: the memory is a copy of a multi-threaded process. The first process builds the
//! view, gives up every privilege, starts the program, reaps whatever is left to it, and ends when the program does
//! or when the parent is gone; with it ends everything in its pid namespace. It can't be looked into or signalled
//! from inside: it is not dumpable, invisible in `/proc`, and outside the program's Landlock domain.
#![expect(
    unsafe_code,
    reason = "both processes close descriptors by number, and share memory until one execs"
)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::children;
use crate::egress_proxy;
use crate::ended::Confinement;
use crate::error::SetupStep;
use crate::handover;
use crate::mounts;
use crate::plan::{LaunchPayload, LaunchPlan};
use crate::sys;
use crate::view::HOSTNAME;
use crate::wire::{ChildRecord, NO_PART, SetupFailure, part_failure, setup_failure};

/// What the program's process exits with when it could not become the program. The record says why.
const NOT_STARTED: i32 = 127;
/// What the first process exits with when the parent is gone.
const ORPHANED: i32 = 125;

/// What the program's process is started with.
struct ProgramStart<'a> {
    plan: &'a LaunchPlan,
    /// The first process writes here when the view stands: read end, write end.
    go: (OwnedFd, OwnedFd),
    /// Closes when the program's process has become the program: read end, write end.
    begun: (OwnedFd, OwnedFd),
}

/// The first process. `stack` is for the program's process until it execs.
///
/// The two work at the same time: while this one builds the view, the other makes the empty network and gives up its
/// privileges. Then it waits for the view, and this one for it to begin.
///
/// # Safety
/// Only for a child of [`sys::fork`]: it closes descriptors that objects of the caller's own process would own.
pub(crate) unsafe fn first(plan: &LaunchPlan, stack: &mut [u8]) -> ! {
    let start = match enter(plan) {
        Ok(start) => start,
        Err(failure) => give_up(plan, failure),
    };
    let share_memory = matches!(plan.payload, LaunchPayload::Exec { .. });
    // SAFETY: the caller vouches that this is a child of `fork`. The second process execs or exits, a built-in shares no memory,
    // and both sides only read `start` and `plan`.
    unsafe { sys::spawn(stack, share_memory, start, become_program, oversee) }
}

/// What the first process does once there is a second one.
fn oversee(start: &ProgramStart<'_>, program: sys::SysResult<i32>) -> ! {
    let handed =
        program.map_err(setup_failure(SetupStep::Spawn)).and_then(|program| Ok((program, hand_over(start)?)));
    match handed {
        Ok((program, events)) => supervise(start.plan, program, events.as_fd()),
        Err(failure) => give_up(start.plan, failure),
    }
}

/// Says what failed, and ends this process.
fn give_up(plan: &LaunchPlan, failure: SetupFailure) -> ! {
    send(plan, ChildRecord::failed(failure));
    sys::exit(NOT_STARTED)
}

/// What has to be done before there is a second process.
fn enter(plan: &LaunchPlan) -> Result<ProgramStart<'_>, SetupFailure> {
    close_others(plan).map_err(setup_failure(SetupStep::Descriptors))?;
    sys::default_signals();
    for tasks in &plan.cgroups {
        // "0" stands for the calling thread, and there is only one.
        rustix::io::write(tasks, b"0").map_err(setup_failure(SetupStep::Cgroup))?;
    }
    match plan.confinement {
        Confinement::Full => identity(plan).map_err(setup_failure(SetupStep::Identity))?,
        Confinement::LandlockSeccomp => {
            rustix::process::set_child_subreaper(Some(Pid::INIT))
                .map_err(setup_failure(SetupStep::Session))?;
        }
    }
    // Before there is a second process: whatever has memory of ours is closed to debuggers until it execs.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(setup_failure(SetupStep::Session))?;
    let [stdin, stdout, stderr] = &plan.stdio;
    rustix::stdio::dup2_stdin(stdin).map_err(setup_failure(SetupStep::Stdio))?;
    rustix::stdio::dup2_stdout(stdout).map_err(setup_failure(SetupStep::Stdio))?;
    rustix::stdio::dup2_stderr(stderr).map_err(setup_failure(SetupStep::Stdio))?;
    if plan.terminal {
        // The terminal's session is this process's. A program that led the session itself would be an orphaned process group, which
        // the kernel doesn't let Ctrl-Z stop.
        rustix::process::setsid().map_err(setup_failure(SetupStep::Session))?;
        sys::terminal::control_stdin().map_err(setup_failure(SetupStep::Stdio))?;
    }
    // Only now: these would have been given the numbers 0 to 2.
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(setup_failure(SetupStep::Descriptors));
    Ok(ProgramStart { plan, go: pipe()?, begun: pipe()? })
}

/// Builds the view, lets the program's process continue, and waits until it is the program. Returns the descriptor that
/// tells of ended children.
fn hand_over(start: &ProgramStart<'_>) -> Result<OwnedFd, SetupFailure> {
    let plan = start.plan;
    // Ends that only the other process may hold, or nobody would ever see them close.
    // SAFETY: this process has no objects for its standard descriptors.
    unsafe { sys::close_range(0, 2) }.map_err(setup_failure(SetupStep::Stdio))?;
    for fd in plan.stdio.iter().chain(&plan.egress_proxy).chain(&plan.supervisor).chain([&start.begun.1]) {
        // SAFETY: nothing below uses these ends again, and their owners are never dropped: this process ends in `exit`.
        unsafe { sys::close(fd.as_raw_fd()) }.map_err(setup_failure(SetupStep::Stdio))?;
    }
    let events = sys::child_events().map_err(setup_failure(SetupStep::Spawn))?;
    let bits = confine(plan)?;
    // If it failed, it has ended and reported why.
    rustix::io::write(&start.go.1, b"!").ok();
    while rustix::io::read(&start.begun.0, &mut [0u8; 1]) == Err(Errno::INTR) {}
    // Not before: until it is the program its memory is a copy of the parent's, which the parent must not count.
    send(plan, ChildRecord::Ready(bits));
    Ok(events)
}

fn confine(plan: &LaunchPlan) -> Result<u32, SetupFailure> {
    let mut bits = 0;
    if plan.confinement == Confinement::Full {
        rustix::system::sethostname(HOSTNAME).map_err(setup_failure(SetupStep::Hostname))?;
        bits = mounts::root(plan)?;
    }
    for (index, grant) in plan.grants.iter().enumerate() {
        let path = rustix::fs::open(grant.path.as_c_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        match path {
            Err(_) if grant.optional => continue,
            path => path
                .and_then(|path| sys::landlock_allow(plan.ruleset.as_fd(), path.as_fd(), grant.bits))
                .map_err(part_failure(SetupStep::Landlock, index))?,
        }
    }
    // This process never becomes a program, so that what one could get back does not matter.
    drop_own_capabilities().map_err(setup_failure(SetupStep::Capabilities))?;
    rustix::thread::set_no_new_privs(true).map_err(setup_failure(SetupStep::Session))?;
    Ok(bits)
}

fn give_up_privileges() -> Result<(), SetupFailure> {
    drop_capabilities().map_err(setup_failure(SetupStep::Capabilities))?;
    rustix::thread::set_no_new_privs(true).map_err(setup_failure(SetupStep::Session))
}

fn close_others(plan: &LaunchPlan) -> Result<(), Errno> {
    let mut next = 0;
    for fd in &plan.keep {
        let fd = fd.cast_unsigned();
        if fd > next {
            // SAFETY: what owned these descriptors are copies of the parent's objects, which are never used or dropped here: this
            // process ends in `exit`.
            unsafe { sys::close_range(next, fd - 1)? };
        }
        next = fd.saturating_add(1);
    }
    // SAFETY: as above.
    unsafe { sys::close_range(next, u32::MAX) }
}

fn identity(plan: &LaunchPlan) -> Result<(), Errno> {
    // Files of a process that isn't dumpable belong to root, these too; Regent itself isn't dumpable. So an ordinary user's process
    // has to be dumpable for these three writes; root's need not be.
    if !plan.by_root {
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    }
    for (path, content) in [
        (c"/proc/self/setgroups", b"deny".as_slice()),
        (c"/proc/self/uid_map", &plan.uid_map),
        (c"/proc/self/gid_map", &plan.gid_map),
    ] {
        let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(file, content)?;
    }
    Ok(())
}

fn drop_capabilities() -> Result<(), Errno> {
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Past the last capability, or without the right to drop: then there is none to drop.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(errno) => return Err(errno),
        }
    }
    drop_own_capabilities()
}

fn drop_own_capabilities() -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )
}

fn become_program(start: &ProgramStart<'_>) -> ! {
    match program(start) {
        Ok(code) => sys::exit(code),
        Err(failure) => {
            send(start.plan, ChildRecord::failed(failure));
            sys::exit(NOT_STARTED)
        }
    }
}

/// The steps to the program, each of which only takes away; returns only for a built-in.
fn program(start: &ProgramStart<'_>) -> Result<i32, SetupFailure> {
    let plan = start.plan;
    for fd in [&start.go.1, &start.begun.0] {
        // SAFETY: this process has a descriptor table of its own, doesn't use these ends again, and runs no destructors.
        unsafe { sys::close(fd.as_raw_fd()) }.map_err(setup_failure(SetupStep::Descriptors))?;
    }
    if plan.confinement == Confinement::Full {
        sys::unshare_network().map_err(setup_failure(SetupStep::Network))?;
        // For servers that the program starts and connects to. Without it there is no network at all, which is no less safe.
        sys::loopback_up().ok();
        if let Some(channel) = &plan.egress_proxy {
            egress_proxy::open(channel.as_fd()).map_err(setup_failure(SetupStep::EgressProxy))?;
        }
    }
    give_up_privileges()?;
    if plan.terminal {
        rustix::process::setpgid(None, None).map_err(setup_failure(SetupStep::Session))?;
        sys::terminal::take_stdin().map_err(setup_failure(SetupStep::Stdio))?;
    } else {
        rustix::process::setsid().map_err(setup_failure(SetupStep::Session))?;
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    sys::cloexec_from(3).map_err(setup_failure(SetupStep::Descriptors))?;
    for (resource, limit) in &plan.rlimits {
        rustix::process::setrlimit(*resource, *limit).map_err(setup_failure(SetupStep::Limits))?;
    }
    sys::ignore_file_size_signal();
    // Both filters are installed while the view is being built, which takes as long. What is called below passes them.
    if let Some(channel) = &plan.supervisor {
        hand_to_supervisor(plan, channel).map_err(setup_failure(SetupStep::Supervision))?;
    }
    sys::seccomp(&plan.filter).map_err(setup_failure(SetupStep::Seccomp))?;
    wait_for_view(start);
    sys::landlock_restrict(plan.ruleset.as_fd()).map_err(setup_failure(SetupStep::Landlock))?;
    // The root is the new one since the first process left the old one; the working directory is not, until now.
    rustix::process::chdir(plan.cwd.as_c_str()).map_err(setup_failure(SetupStep::WorkingDirectory))?;
    sys::unblock_signals();
    if matches!(plan.payload, LaunchPayload::Builtin(_)) {
        // There will be no exec to close it.
        // SAFETY: as above.
        unsafe { sys::close(start.begun.1.as_raw_fd()) }.map_err(setup_failure(SetupStep::Descriptors))?;
    }
    match &plan.payload {
        LaunchPayload::Builtin(builtin) => Ok(builtin.call()),
        LaunchPayload::Exec { paths, argv, envp } => {
            let mut last = Errno::NOENT;
            for path in paths {
                match sys::execve(path, argv, envp) {
                    Errno::NOENT | Errno::NOTDIR => {}
                    // Keep looking, but remember that there was something.
                    Errno::ACCESS => last = Errno::ACCESS,
                    errno => {
                        last = errno;
                        break;
                    }
                }
            }
            Err(SetupFailure { step: SetupStep::Exec, part: NO_PART, errno: last })
        }
    }
}

/// From here on the supervisor performs the calls that make names. Its end of it closes before the program is there.
fn hand_to_supervisor(plan: &LaunchPlan, channel: &OwnedFd) -> Result<(), Errno> {
    let listener = sys::notify::listen(&plan.supervised)?;
    handover::send(channel.as_fd(), listener.as_fd())
}

/// Reaps until the program has ended or the parent is gone, and leaves nothing behind.
fn supervise(plan: &LaunchPlan, program: i32, events: BorrowedFd<'_>) -> ! {
    let end = loop {
        let mut ready =
            [PollFd::new(&plan.lifeline, PollFlags::IN), PollFd::from_borrowed_fd(events, PollFlags::IN)];
        match rustix::event::poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break None,
        }
        let [lifeline, _] = &ready;
        if !lifeline.revents().is_empty() {
            break None;
        }
        drain(events);
        if let Some(record) = reap(plan, program) {
            break Some(record);
        }
    };
    kill_the_rest(plan, program, events);
    let Some(end) = end else { sys::exit(ORPHANED) };
    let (cpu_ms, peak_kib) = sys::used_by_children();
    // The parent need not wait for the kernel to take our namespaces apart: nobody is left in them.
    let records = [ChildRecord::CpuMs(cpu_ms), ChildRecord::PeakKib(peak_kib), end].map(ChildRecord::encode);
    // In one go, so that the parent wakes once.
    rustix::io::write(&plan.status, records.as_flattened()).ok();
    sys::exit(0)
}

fn drain(events: BorrowedFd<'_>) {
    let mut buffer = [0u8; 512];
    while rustix::io::read(events, &mut buffer).is_ok_and(|bytes| bytes > 0) {}
}

/// Reaps every child that has ended; tells if the program was among them. Reports if the program was stopped from its terminal.
fn reap(plan: &LaunchPlan, program: i32) -> Option<ChildRecord> {
    let mut found = None;
    let stops = if plan.terminal { WaitOptions::UNTRACED } else { WaitOptions::empty() };
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG | stops) {
        if pid.as_raw_nonzero().get() == program {
            // SIGSTOP isn't a key: the kernel sends it when it suspends the agent, and SIGCONT when it resumes it.
            if matches!(status.stopping_signal(), Some(libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)) {
                send(plan, ChildRecord::Stopped);
            }
            found = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Some(ChildRecord::Exited(code)),
                (None, Some(signal)) => Some(ChildRecord::Signalled(signal)),
                (None, None) => found,
            };
        }
    }
    found
}

/// How long a sweep waits for a child to end before it looks again.
const SWEEP_NS: i64 = 10_000_000;

/// Kills everything that the program left behind, and waits until it is gone.
///
/// With a pid namespace "everyone" is everyone in it. Without one we are the subreaper and inherit every orphan of the
/// run, so killing our children until there are none gets all of them, whatever sessions they started.
///
/// Only the kernel's "no children" ends this, and no single wait is without a limit: a look that found nobody may have failed, and the
/// child that it missed would never end by itself. The parent that waits for this process has its own limit.
fn kill_the_rest(plan: &LaunchPlan, program: i32, events: BorrowedFd<'_>) {
    let pause = Timespec { tv_sec: 0, tv_nsec: SWEEP_NS };
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => continue,
            Ok(None) | Err(Errno::INTR) => {}
            // No children: nobody is left.
            Err(_) => return,
        }
        match plan.confinement {
            Confinement::Full => sys::kill_everyone_else(),
            Confinement::LandlockSeccomp => {
                if let Some(group) = Pid::from_raw(program) {
                    // Already gone is fine.
                    rustix::process::kill_process_group(group, Signal::KILL).ok();
                }
                children::each(plan.sweep, |pid| {
                    rustix::process::kill_process(pid, Signal::KILL).ok();
                });
            }
        }
        rustix::event::poll(&mut [PollFd::from_borrowed_fd(events, PollFlags::IN)], Some(&pause)).ok();
        drain(events);
    }
}

/// Ends this process if the first one does not get that far; it has reported why.
fn wait_for_view(start: &ProgramStart<'_>) {
    loop {
        match rustix::io::read(&start.go.0, &mut [0u8; 1]) {
            Ok(1) => return,
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => sys::exit(NOT_STARTED),
        }
    }
}

fn send(plan: &LaunchPlan, record: ChildRecord) {
    // If the parent is gone there is nobody to tell.
    rustix::io::write(&plan.status, &record.encode()).ok();
}
