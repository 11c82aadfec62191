//! One run from start to end: output collected, time and output capped, and the truth about how it ended.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::egress_proxy;
use crate::ended::{Confinement, EndedBy, Exit, FinishedRun, LimitedBy, Obtained, Planted, UnixSockets};
use crate::error::{SandboxError, SetupStep};
use crate::grants::SCOPES_SOCKET_FILES;
use crate::hold::hold;
use crate::launch::{SWEEP_S_MAX, SandboxProcess};
use crate::memory;
use crate::plan::{self, Means};
use crate::planted;
use crate::probe;
use crate::probes::Builtin;
use crate::spec::{Spec, WorkspaceMount};
use crate::streams::Streams;
use crate::supervise::Supervisor;
use crate::survey::Survey;
use crate::sys;
use crate::terminal::Relay;
use crate::wire::{ChildRecord, RECORD_BYTES, got};

/// Tries, a millisecond apart, to remove a cgroup whose last member is still leaving.
const REMOVE_TRIES_MAX: u32 = 50;
/// How long a terminal is waited for that takes a program's last output slowly.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// The same when the program was killed or stopped. With the time that a relay may take to end, well within the kernel's grace of 2 s.
const SHOWN_AFTER_LIMIT_WITHIN: Duration = Duration::from_millis(500);
/// A terminal whose programs are dead says so within this time.
const CLOSED_WITHIN: Duration = Duration::from_millis(200);
/// What a program wrote before it was stopped is there within this time.
const QUIET: Duration = Duration::from_millis(5);
/// Folders that are looked at again without a thread for it.
const FEW_FOLDERS: usize = 8;

/// Runs a program in a sandbox and waits for the end of everything it started.
///
/// `cancel` ends the run early. If the returned future is dropped, the sandbox is killed.
///
/// # Errors
/// When nothing was run: the host gives less than `spec.floor`, the specification is not usable, or a step of the
/// confinement failed.
pub async fn run(spec: Spec, cancel: impl Future<Output = ()>) -> Result<FinishedRun, SandboxError> {
    run_payload(&spec, cancel, None).await
}

/// The same, perhaps with a built-in in the program's place.
pub(crate) async fn run_payload(
    spec: &Spec,
    cancel: impl Future<Output = ()>,
    builtin: Option<Builtin>,
) -> Result<FinishedRun, SandboxError> {
    tokio::pin!(cancel);
    let means = probe::means(spec.floor)?;
    // The first run on a host tries the full confinement without asking first whether it is open: asking costs as
    // much as a run. Nothing was run if a step failed.
    match run_with(spec, cancel.as_mut(), means, builtin.clone()).await {
        Err(SandboxError::Setup { step, .. })
            if means.confinement == Confinement::Full && step.needs_namespaces() && probe::is_closed() =>
        {
            run_with(spec, cancel.as_mut(), probe::means(spec.floor)?, builtin).await
        }
        result => result,
    }
}

/// The same with the means given.
pub(crate) async fn run_with(
    spec: &Spec,
    cancel: impl Future<Output = ()>,
    means: Means,
    builtin: Option<Builtin>,
) -> Result<FinishedRun, SandboxError> {
    plan::check(spec)?;
    if spec.listener.is_some() && means.confinement != Confinement::Full {
        return Err(SandboxError::NoEgressProxy { fix: probe::fix_of_full() });
    }
    let began = Instant::now();
    let survey = looked_at(spec).await?;
    let mut running = SandboxProcess::start(spec, &survey, means, builtin)?;
    let gone = running.pidfd().try_clone().and_then(sys::watch_readable).map_err(watching)?;
    if let (Some(channel), Some(listener)) = (running.egress_proxy.take(), &spec.listener) {
        tokio::spawn(egress_proxy::hand_over(channel, listener.clone()));
    }
    let relay = match (&spec.terminal, &running.terminal) {
        (Some(terminal), Some(ours)) => {
            let typed_into = rustix::io::fcntl_dupfd_cloexec(ours, 3);
            let typed_into = typed_into.map_err(SandboxError::host("duplicating a pseudo-terminal"))?;
            Some(Relay::start(terminal.clone(), typed_into, spec.job_control.clone())?)
        }
        (Some(_), None) | (None, _) => None,
    };
    let mut streams = Streams::new(&mut running, spec, relay.as_ref().map(Relay::screen))?;
    tokio::pin!(cancel);
    let why = until_ended(&mut running, &gone, &mut streams, cancel.as_mut(), (spec, relay.as_ref())).await?;
    streams.drain_status();
    let report = ChildReport::read(&streams.status.bytes, &running, spec, why)?;
    let out_of_memory = why == EndedBy::Itself && running.group.ran_out_of_memory();
    let obtained = obtained(spec, means, &running, report.got);
    let refused = running.supervisor.as_ref().map(Supervisor::refused).unwrap_or_default();
    tokio::spawn(clear_away(running, gone));
    // At once: what was planted must be reported within the kernel's grace, also where the terminal uses it up.
    let settled = settle(relay, &mut streams, cancel, why);
    let (planted, ()) = tokio::join!(planted_in(spec, survey), settled);
    let planted = planted?;
    streams.drain();
    let stopped_ms = spec.job_control.stopped_ms().unwrap_or(0);
    Ok(FinishedRun {
        status: report.status,
        stdout: streams.stdout.bytes,
        stderr: streams.stderr.bytes,
        truncated: streams.truncated,
        why: if out_of_memory { EndedBy::Memory } else { why },
        obtained,
        planted,
        refused: refused.paths,
        refused_by_policy: refused.by_policy,
        refused_unsearched: refused.unsearched,
        refused_more: refused.more,
        waited_ms: u64::try_from(refused.waited.as_millis()).unwrap_or(u64::MAX),
        cpu_ms: u64::from(report.cpu_ms),
        rss_bytes_peak: u64::from(report.peak_kib).saturating_mul(1024),
        wall_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_sub(stopped_ms),
    })
}

/// Everyone who could write is dead: prints what they wrote, then restores the terminal.
async fn settle(
    relay: Option<Relay>,
    streams: &mut Streams,
    cancel: Pin<&mut impl Future<Output = ()>>,
    why: EndedBy,
) {
    let Some(relay) = relay else { return };
    let within = if why == EndedBy::Itself { SHOWN_WITHIN } else { SHOWN_AFTER_LIMIT_WITHIN };
    tokio::select! {
        () = streams.settle(CLOSED_WITHIN) => {}
        // A caller that stops the program doesn't wait for its last output either. One that has stopped it already can't again.
        () = cancel, if why != EndedBy::Killed => {}
        () = relay.stopped() => {}
        () = tokio::time::sleep(within) => {}
    }
    relay.close().await;
}

/// What has appeared in the workspace.
async fn planted_in(spec: &Spec, survey: Arc<Survey>) -> Result<Vec<Planted>, SandboxError> {
    match spec.workspace.clone() {
        // Of a few folders it is known sooner that nothing has changed than a thread wakes up.
        Some(workspace)
            if survey.folders.len() <= FEW_FOLDERS && planted::is_untouched(&workspace, &survey) =>
        {
            Ok(Vec::new())
        }
        Some(workspace) => blocking(move || planted::after(&workspace, &survey)).await,
        None => Ok(Vec::new()),
    }
}

/// What is in the workspace: as it was found for this run, or as it is.
pub(crate) fn survey(spec: &Spec) -> Result<Arc<Survey>, SandboxError> {
    match &spec.workspace {
        None => Ok(Arc::default()),
        Some(WorkspaceMount { survey: Some(survey), .. }) => Ok(Arc::clone(survey)),
        Some(workspace) => Survey::by_list(workspace).map(Arc::new),
    }
}

/// The same on a thread for it, if there is something to look at.
async fn looked_at(spec: &Spec) -> Result<Arc<Survey>, SandboxError> {
    match &spec.workspace {
        Some(workspace @ WorkspaceMount { survey: None, .. }) => {
            let workspace = workspace.clone();
            blocking(move || Survey::by_list(&workspace).map(Arc::new)).await?
        }
        Some(_) | None => survey(spec),
    }
}

/// Looks at a workspace on a thread of its own: it may be large, and other calls share the runtime's threads.
pub(crate) async fn blocking<T: Send + 'static>(
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SandboxError> {
    let torn =
        |cause| SandboxError::Host { doing: "scanning the workspace", cause: std::io::Error::other(cause) };
    tokio::task::spawn_blocking(look).await.map_err(torn)
}

pub(crate) fn watching(cause: std::io::Error) -> SandboxError {
    SandboxError::Host { doing: "monitoring the sandbox", cause }
}

/// Collects output until nothing is left in the sandbox; kills it at its time or output limit.
async fn until_ended(
    running: &mut SandboxProcess,
    gone: &AsyncFd<OwnedFd>,
    streams: &mut Streams,
    mut cancel: Pin<&mut impl Future<Output = ()>>,
    (spec, relay): (&Spec, Option<&Relay>),
) -> Result<EndedBy, SandboxError> {
    let limits = &spec.limits;
    let deadline = spec.job_control.has_run(tokio::time::Instant::now(), || limits.wall_ms_max);
    let sweep = tokio::time::sleep(Duration::MAX);
    let over = memory::exceeded(running.pid, limits.memory_bytes_max);
    let watched = running.group.memory == LimitedBy::Watch;
    let mut held = spec.held.clone();
    let stopped = stopped(relay);
    tokio::pin!(stopped, deadline, sweep, over);
    let (mut why, mut forced, mut stops) = (EndedBy::Itself, false, 0);
    loop {
        let cause = tokio::select! {
            biased;
            // Readiness needs no clearing: an ended process stays ended.
            ended = gone.readable() => return ended.map(|_| why).map_err(watching),
            () = cancel.as_mut(), if why == EndedBy::Itself => EndedBy::Killed,
            () = &mut stopped, if why == EndedBy::Itself => EndedBy::Killed,
            () = &mut deadline, if why == EndedBy::Itself => EndedBy::WallClock,
            () = &mut sweep, if why != EndedBy::Itself && !forced => why,
            // Before it is the program, its memory is a copy of ours.
            () = &mut over, if watched && streams.begun && why == EndedBy::Itself => EndedBy::Memory,
            is_held = changed(&mut held), if why == EndedBy::Itself => {
                hold(running.pid, is_held).await;
                continue;
            }
            () = resumed(relay) => {
                // Unless its agent is suspended meanwhile.
                if !held.as_ref().is_some_and(|held| *held.borrow()) {
                    hold(running.pid, false).await;
                }
                continue;
            }
            () = streams.readable() => {
                streams.pull();
                let is_stopped = std::mem::replace(&mut stops, streams.stops) != streams.stops;
                if let Some(relay) = relay.filter(|_| is_stopped) {
                    // The terminal prints its earlier output while the program still has the terminal.
                    let _slow = tokio::time::timeout(SHOWN_AFTER_LIMIT_WITHIN, streams.settle(QUIET)).await;
                    relay.suspend();
                }
                // A killed sandbox is waited for to the end, a finished one need not be.
                if streams.finished && why == EndedBy::Itself { return Ok(why) }
                if !streams.truncated || why != EndedBy::Itself { continue }
                EndedBy::OutputCap
            }
        };
        if why != EndedBy::Itself {
            // The grace is over as well.
            running.kill_first();
            forced = true;
            continue;
        }
        why = cause;
        running.kill();
        sweep.as_mut().reset(tokio::time::Instant::now() + Duration::from_secs(SWEEP_S_MAX.unsigned_abs()));
    }
}

/// Waits until the user at the terminal insists on stopping the program.
async fn stopped(relay: Option<&Relay>) {
    match relay {
        Some(relay) => relay.stopped().await,
        None => std::future::pending().await,
    }
}

/// Waits until the user who suspended the program from the terminal lets it continue.
async fn resumed(relay: Option<&Relay>) {
    match relay {
        Some(relay) => relay.resumed().await,
        None => std::future::pending().await,
    }
}

/// Waits until a program is to be stopped or continued; forever, if the sender is gone.
async fn changed(held: &mut Option<watch::Receiver<bool>>) -> bool {
    if let Some(receiver) = held {
        if receiver.changed().await.is_ok() {
            return *receiver.borrow_and_update();
        }
        *held = None;
    }
    std::future::pending().await
}

/// Reaps the first process and gives the cgroups back, when the kernel has let go of them. Nobody waits for this.
async fn clear_away(mut running: SandboxProcess, gone: AsyncFd<OwnedFd>) {
    if gone.readable().await.is_err() || running.reap().is_err() {
        return;
    }
    for _ in 0..REMOVE_TRIES_MAX {
        if running.group.retire() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What the child reported.
#[derive(Debug)]
pub(crate) struct ChildReport {
    pub got: u32,
    pub status: Exit,
    cpu_ms: u32,
    peak_kib: u32,
}

impl ChildReport {
    pub(crate) fn read(
        bytes: &[u8],
        running: &SandboxProcess,
        spec: &Spec,
        why: EndedBy,
    ) -> Result<Self, SandboxError> {
        let (mut got, mut status, mut cpu_ms, mut peak_kib) = (None, None, 0, 0);
        for record in bytes.as_chunks::<RECORD_BYTES>().0 {
            match ChildRecord::decode(*record) {
                Some(ChildRecord::Ready(bits)) => got = Some(bits),
                Some(ChildRecord::Failed { step, part, errno }) => {
                    return Err(failed(running, spec, step, part, errno));
                }
                Some(ChildRecord::CpuMs(ms)) => cpu_ms = ms,
                Some(ChildRecord::PeakKib(kib)) => peak_kib = kib,
                Some(ChildRecord::Exited(code)) => status = Some(Exit::Code(code)),
                Some(ChildRecord::Signalled(signal)) => status = Some(Exit::Signal(signal)),
                Some(ChildRecord::Stopped) | None => {}
            }
        }
        // We may kill the sandbox before it reports that it is ready. What it obtained by then is unknown, so nothing is claimed.
        let got = got.or((why != EndedBy::Itself).then_some(0));
        // Killed by others, or out of memory, before it was confined: the program never started.
        let early = || std::io::Error::other("the sandbox ended before it was ready");
        let got =
            got.ok_or_else(|| SandboxError::Setup { step: SetupStep::Spawn, at: None, cause: early() })?;
        Ok(Self { got, status: status.unwrap_or(Exit::Signal(libc::SIGKILL)), cpu_ms, peak_kib })
    }
}

fn failed(running: &SandboxProcess, spec: &Spec, step: SetupStep, part: u16, errno: i32) -> SandboxError {
    let cause = std::io::Error::from_raw_os_error(errno);
    if step == SetupStep::Exec {
        let program = spec.argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        return SandboxError::Program { program, cause };
    }
    SandboxError::Setup { step, at: running.place(step, part), cause }
}

fn obtained(spec: &Spec, means: Means, running: &SandboxProcess, bits: u32) -> Obtained {
    let full = running.confinement == Confinement::Full;
    Obtained {
        confinement: running.confinement,
        user_ns: full,
        mount_ns: full,
        pid_ns: full,
        net_ns: full,
        egress_proxy: spec.listener.is_some(),
        ipc_ns: full,
        uts_ns: full,
        cgroup_ns: full,
        pivot_root: full,
        fresh_proc: bits & got::FRESH_PROC != 0,
        landlock_abi: means.landlock_abi,
        unix_sockets: match running.confinement {
            Confinement::LandlockSeccomp => UnixSockets::None,
            Confinement::Full if means.landlock_abi >= SCOPES_SOCKET_FILES => UnixSockets::Own,
            Confinement::Full => UnixSockets::Workspace,
        },
        // Ready or not started: these steps are not optional.
        seccomp: true,
        no_new_privs: true,
        capabilities_dropped: true,
        memory: running.group.memory,
        pids: running.group.pids,
        tmp_bytes_max: full.then_some(spec.limits.tmp_bytes_max),
    }
}
