//! Starting a sandbox and controlling it: pipes, the fork, and a reliable kill.
#![expect(unsafe_code, reason = "the fork")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};

use crate::cgroup::RunCgroup;
use crate::child;
use crate::ended::{Confinement, LimitedBy};
use crate::error::{SandboxError, SetupStep};
use crate::handover;
use crate::hold;
use crate::plan::{ChildEnds, LaunchPlan, Means, above_stdio};
use crate::probe::DELEGATE;
use crate::probes::Builtin;
use crate::spec::{MemoryFloor, Spec, Stdin, WorkspaceMount};
use crate::supervise::{Ground, Supervisor};
use crate::survey::Survey;
use crate::sys::{self, ForkSide};
use crate::view::{LandlockRule, SandboxView};

/// How long the fallback's first process gets to kill what is below it, on a machine that is busy with other things.
pub(crate) const SWEEP_S_MAX: i64 = 10;
/// Looks for what is below a first process that has to be killed itself.
const LOOKS_MAX: u32 = 1_000;

/// A started sandbox. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct SandboxProcess {
    pub confinement: Confinement,
    /// Records of [`crate::wire`].
    pub status: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
    /// Our end of the program's terminal, if it is lent one.
    pub terminal: Option<OwnedFd>,
    /// Where the listener of the egress proxy comes from, if there is one.
    pub egress_proxy: Option<UnixStream>,
    /// Performs the calls that make names, where there is something to guard.
    pub supervisor: Option<Supervisor>,
    pub group: RunCgroup,
    pidfd: OwnedFd,
    /// Of the first process, until it is reaped.
    pub pid: i32,
    /// The first process ends everything when this closes, also when we die.
    lifeline: Option<OwnedFd>,
    reaped: bool,
    /// What a failed step was about, for messages.
    view: SandboxView,
}

impl SandboxProcess {
    /// Prepares everything, then forks.
    pub(crate) fn start(
        spec: &Spec,
        survey: &Survey,
        means: Means,
        builtin: Option<Builtin>,
    ) -> Result<Self, SandboxError> {
        let (group, cgroups) = RunCgroup::new(&spec.limits);
        if !spec.memory.is_met_by(group.memory) {
            return Err(too_little(spec.memory, group.memory));
        }
        let means = Means { memory: group.memory, ..means };
        let (status, status_in) = pipe()?;
        let (lifeline_out, lifeline) = pipe()?;
        let ChildStreams { stdio, stdout, stderr, terminal } = connect(spec)?;
        let (egress_proxy, egress_proxy_in) = match &spec.listener {
            Some(_) => handover::channel().map(|(ours, theirs)| (Some(ours), Some(theirs)))?,
            None => (None, None),
        };
        let lent = spec.terminal.as_ref().map(|_| handle(&stdio)).transpose()?;
        let guarded = spec.workspace.as_ref().filter(|workspace| workspace.writable);
        let (channel, supervisor) = match guarded {
            Some(_) => handover::channel().map(|(ours, theirs)| (Some(ours), Some(theirs)))?,
            None => (None, None),
        };
        let (lifeline_in, status_end) = (lifeline_out, status_in);
        let ends = ChildEnds {
            stdio,
            status: status_end,
            lifeline: lifeline_in,
            egress_proxy: egress_proxy_in,
            supervisor,
            cgroups,
        };
        let plan = LaunchPlan::new(spec, survey, means, ends, builtin)?;
        let (pidfd, pid) = fork(&plan, means.confinement, &group)?;
        // The child's ends close here with the rest of the plan.
        let LaunchPlan { view, .. } = plan;
        let ground = guarded.map(|workspace| Ground {
            terminal: lent,
            ..ground(spec, workspace, survey, means.confinement, &view)
        });
        let supervisor = channel.zip(ground).map(|(ours, ground)| Supervisor::start(ours, ground));
        let (confinement, lifeline) = (means.confinement, Some(lifeline));
        let status = Some(status);
        let mut running = Self {
            confinement,
            status,
            stdout,
            stderr,
            terminal,
            egress_proxy,
            supervisor: None,
            group,
            pidfd,
            pid,
            lifeline,
            reaped: false,
            view,
        };
        // If there is none the sandbox is killed with what was just made.
        running.supervisor = supervisor.transpose()?;
        Ok(running)
    }

    /// Readable when the first process, and with it the sandbox, has ended.
    pub(crate) fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// Ends everything in the sandbox. With a pid namespace this is immediate; without one the first process does it.
    pub(crate) fn kill(&mut self) {
        self.lifeline = None;
        match self.confinement {
            Confinement::Full => self.kill_first(),
            Confinement::LandlockSeccomp => {}
        }
        self.group.kill();
    }

    /// Kills the first process itself.
    pub(crate) fn kill_first(&self) {
        if self.reaped {
            return;
        }
        if self.confinement == Confinement::LandlockSeccomp {
            // It didn't kill what is below it in time. Nobody could find those once it is gone.
            for _ in 0..LOOKS_MAX {
                if hold::kill_below(self.pid) == 0 {
                    break;
                }
            }
        }
        // Already gone is fine.
        pidfd_send_signal(&self.pidfd, Signal::KILL).ok();
    }

    /// Reaps the first process, which has ended or is about to.
    pub(crate) fn reap(&mut self) -> Result<(), SandboxError> {
        if !self.reaped {
            sys::wait(self.pidfd.as_fd(), true).map_err(SandboxError::host("waiting"))?;
            self.reaped = true;
        }
        Ok(())
    }

    /// What a failed step was about.
    pub(crate) fn place(&self, step: SetupStep, part: u16) -> Option<String> {
        self.view.place(step, usize::from(part))
    }
}

impl Drop for SandboxProcess {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            if self.confinement == Confinement::LandlockSeccomp {
                // The first process has to kill the others before it is killed itself.
                let grace = Timespec { tv_sec: SWEEP_S_MAX, tv_nsec: 0 };
                poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&grace)).ok();
            }
            self.kill_first();
            // Killed, so this is short; an unreaped child would stay a zombie as long as we live.
            sys::wait(self.pidfd.as_fd(), true).ok();
        }
    }
}

/// What the supervisor has to know.
fn ground(
    spec: &Spec,
    workspace: &WorkspaceMount,
    survey: &Survey,
    confinement: Confinement,
    view: &SandboxView,
) -> Ground {
    let rule = |rule: &LandlockRule| (PathBuf::from(OsStr::from_bytes(rule.path.to_bytes())), rule.access);
    Ground {
        confinement,
        workspace: workspace.host.clone(),
        guards: survey.guards.clone(),
        rules: match confinement {
            Confinement::Full => Vec::new(),
            Confinement::LandlockSeccomp => view.rules.iter().map(rule).collect(),
        },
        writes: spec.writes.clone(),
        terminal: None,
    }
}

fn fork(
    plan: &LaunchPlan,
    confinement: Confinement,
    group: &RunCgroup,
) -> Result<(OwnedFd, i32), SandboxError> {
    let flags = match confinement {
        Confinement::Full => sys::NAMESPACES,
        Confinement::LandlockSeccomp => 0,
    };
    let mut stack = vec![0; sys::STACK_BYTES];
    // No handler of ours may run in the child.
    let mask = sys::block_signals();
    // SAFETY: the child goes to `child::first`, which neither allocates nor locks and never returns.
    let side = unsafe { sys::fork(flags, group.birthplace()) };
    if matches!(side, Ok(ForkSide::Child)) {
        // SAFETY: this is the child.
        unsafe { child::first(plan, &mut stack) };
    }
    sys::restore_signals(&mask);
    match side {
        Ok(ForkSide::Parent(pidfd, pid)) => Ok((pidfd, pid)),
        Ok(ForkSide::Child) => sys::exit(0),
        Err(errno) => Err(SandboxError::Setup { step: SetupStep::Clone, at: None, cause: errno.into() }),
    }
}

fn too_little(needed: MemoryFloor, memory: LimitedBy) -> SandboxError {
    SandboxError::Memory {
        needed: match needed {
            MemoryFloor::Cgroup => "a cgroup",
            MemoryFloor::Watch | MemoryFloor::Any => "monitoring of the whole run",
        },
        got: match memory {
            LimitedBy::Watch => "monitoring of the whole run",
            LimitedBy::CgroupV2
            | LimitedBy::CgroupV1
            | LimitedBy::Scope
            | LimitedBy::Rlimit
            | LimitedBy::Nothing => "a limit per process",
        },
        fix: format!("{DELEGATE}, or lower `sandbox.memory`"),
    }
}

/// Both ends above standard input, output and error, and closed on exec.
fn pipe() -> Result<(OwnedFd, OwnedFd), SandboxError> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(SandboxError::host("making a pipe"))?;
    Ok((above_stdio(read)?, above_stdio(write)?))
}

/// The program's standard descriptors, and our ends of them.
struct ChildStreams {
    stdio: [OwnedFd; 3],
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
}

fn connect(spec: &Spec) -> Result<ChildStreams, SandboxError> {
    if let Some(terminal) = &spec.terminal {
        let (ours, theirs) = terminal.pair()?;
        let stdio = [duplicate(theirs.as_fd())?, duplicate(theirs.as_fd())?, above_stdio(theirs)?];
        return Ok(ChildStreams { stdio, stdout: None, stderr: None, terminal: Some(ours) });
    }
    let (stdout, stdout_in) = pipe()?;
    let (stderr, stderr_in) = match spec.merges_stderr {
        true => (None, duplicate(stdout_in.as_fd())?),
        false => pipe().map(|(ours, theirs)| (Some(ours), theirs))?,
    };
    let stdio = [stdin(&spec.stdin)?, stdout_in, stderr_in];
    Ok(ChildStreams { stdio, stdout: Some(stdout), stderr, terminal: None })
}

fn stdin(stdin: &Stdin) -> Result<OwnedFd, SandboxError> {
    match stdin {
        Stdin::Null => {
            let null = rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            above_stdio(null.map_err(SandboxError::host("opening `/dev/null`"))?)
        }
        // A sealed memory file rather than a pipe: nothing to feed, and no signal when the reader goes away.
        Stdin::Bytes(bytes) => {
            let fail = |cause| SandboxError::Host { doing: "preparing standard input", cause };
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            // Kernels before 6.3 don't know how to make it unexecutable.
            let file = rustix::fs::memfd_create(c"stdin", flags | MemfdFlags::NOEXEC_SEAL)
                .or_else(|_| rustix::fs::memfd_create(c"stdin", flags))
                .map_err(|errno| fail(errno.into()))?;
            let mut file = File::from(file);
            file.write_all(bytes).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(fail)?;
            let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
            rustix::fs::fcntl_add_seals(&file, seals).map_err(|errno| fail(errno.into()))?;
            above_stdio(file.into())
        }
    }
}

/// The program's terminal, not open but only to say which it is: an open one would keep it from hanging up.
fn handle([stdin, ..]: &[OwnedFd; 3]) -> Result<OwnedFd, SandboxError> {
    let path = format!("/proc/self/fd/{}", stdin.as_raw_fd());
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    above_stdio(handle.map_err(SandboxError::host("opening a pseudo-terminal"))?)
}

fn duplicate(fd: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, SandboxError> {
    fcntl_dupfd_cloexec(fd, 3).map_err(SandboxError::host("duplicating a standard descriptor"))
}
