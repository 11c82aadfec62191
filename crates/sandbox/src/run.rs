//! One run from start to end: output collected, time and output capped, and the truth about how it ended.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::net::unix::pipe::Receiver;

use crate::ended::{Confinement, Ended, EndedBy, Exit, Obtained};
use crate::error::{SandboxError, Step};
use crate::launch::Running;
use crate::plan::{self, Means};
use crate::planted::Watch;
use crate::probe;
use crate::probes::Builtin;
use crate::spec::Spec;
use crate::sys;
use crate::wire::{RECORD_BYTES, Record, got};

/// How long the fallback's first process gets to kill what is below it.
const SWEEP_MS_MAX: u64 = 2_000;
/// Tries, a millisecond apart, to remove a cgroup whose last member is still leaving.
const REMOVE_TRIES_MAX: u32 = 50;
const CHUNK_BYTES: usize = 64 * 1024;

/// Runs a program in a box and waits for the end of everything it started.
///
/// `cancel` ends the run early. If the returned future is dropped, the box is killed.
///
/// # Errors
/// When nothing was run: the host gives less than `spec.floor`, the specification is not usable, or a step of the
/// confinement failed.
pub async fn run(spec: Spec, cancel: impl Future<Output = ()>) -> Result<Ended, SandboxError> {
    run_payload(&spec, cancel, None).await
}

/// The same, perhaps with a built-in in the program's place.
pub(crate) async fn run_payload(
    spec: &Spec,
    cancel: impl Future<Output = ()>,
    builtin: Option<Builtin>,
) -> Result<Ended, SandboxError> {
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
) -> Result<Ended, SandboxError> {
    plan::check(spec)?;
    let began = Instant::now();
    let watch = Watch::before(spec);
    let mut running = Running::start(spec, means, builtin)?;
    let mut output = Collected::new(&mut running, spec.limits.output_bytes_max)?;
    let why = until_ended(&mut running, &mut output, cancel, spec.limits.wall_ms_max).await?;
    output.drain();
    let Some(ending) = running.reap()? else {
        return Err(SandboxError::Host {
            doing: "waiting",
            cause: std::io::Error::other("the box ended without a status"),
        });
    };
    let (bits, status) = verdict(&running, spec)?;
    let out_of_memory = why == EndedBy::Itself && running.group.ran_out_of_memory();
    let obtained = obtained(spec, means, &running, bits);
    for _ in 0..REMOVE_TRIES_MAX {
        if running.group.remove() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(Ended {
        status,
        stdout: output.stdout.bytes,
        stderr: output.stderr.bytes,
        truncated: output.truncated,
        why: if out_of_memory { EndedBy::Memory } else { why },
        obtained,
        planted: watch.after(),
        cpu_ms: ending.cpu_ms,
        rss_bytes_peak: ending.rss_bytes_peak,
        wall_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// Collects output until the first process is gone; kills it when time, output or patience is over.
async fn until_ended(
    running: &mut Running,
    output: &mut Collected,
    cancel: impl Future<Output = ()>,
    wall_ms_max: u64,
) -> Result<EndedBy, SandboxError> {
    let gone = running.pidfd().try_clone().and_then(sys::watch);
    let gone = gone.map_err(|cause| SandboxError::Host { doing: "watching the box", cause })?;
    let deadline = tokio::time::sleep(Duration::from_millis(wall_ms_max));
    tokio::pin!(cancel, deadline);
    let (mut why, mut forced) = (EndedBy::Itself, false);
    loop {
        let cause = tokio::select! {
            biased;
            ended = gone.readable() => {
                // Readiness needs no clearing: an ended process stays ended.
                return ended.map(|_| why).map_err(|cause| SandboxError::Host { doing: "watching the box", cause });
            }
            () = &mut cancel, if why == EndedBy::Itself => EndedBy::Killed,
            () = &mut deadline, if !forced => EndedBy::WallClock,
            () = output.readable() => {
                output.pull();
                if !output.truncated || why != EndedBy::Itself { continue }
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
        deadline.as_mut().reset(tokio::time::Instant::now() + Duration::from_millis(SWEEP_MS_MAX));
    }
}

/// Reads what the child reported.
pub(crate) fn verdict(running: &Running, spec: &Spec) -> Result<(u32, Exit), SandboxError> {
    // Everyone who could write is dead: this ends.
    let mut bytes = Vec::new();
    let mut buffer = [0; 4 * RECORD_BYTES];
    while let Ok(count) = rustix::io::read(&running.status, &mut buffer) {
        if count == 0 {
            break;
        }
        bytes.extend(buffer.iter().take(count));
    }
    let (mut bits, mut status) = (None, None);
    for record in bytes.as_chunks::<RECORD_BYTES>().0 {
        match Record::decode(*record) {
            Some(Record::Ready(got)) => bits = Some(got),
            Some(Record::Failed { step, part, errno }) => {
                return Err(failed(running, spec, step, part, errno));
            }
            Some(Record::Exited(code)) => status = Some(Exit::Code(code)),
            Some(Record::Signalled(signal)) => status = Some(Exit::Signal(signal)),
            None => {}
        }
    }
    match bits {
        Some(bits) => Ok((bits, status.unwrap_or(Exit::Signal(libc::SIGKILL)))),
        // Killed, or out of memory, before it was confined: the program never started.
        None => Err(SandboxError::Setup {
            step: Step::Spawn,
            at: None,
            cause: std::io::Error::other("the box ended before it was ready"),
        }),
    }
}

fn failed(running: &Running, spec: &Spec, step: Step, part: u16, errno: i32) -> SandboxError {
    let cause = std::io::Error::from_raw_os_error(errno);
    if step == Step::Exec {
        let program = spec.argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        return SandboxError::Program { program, cause };
    }
    SandboxError::Setup { step, at: running.place(step, part), cause }
}

fn obtained(spec: &Spec, means: Means, running: &Running, bits: u32) -> Obtained {
    let full = running.confinement == Confinement::Full;
    Obtained {
        confinement: running.confinement,
        user_ns: full,
        mount_ns: full,
        pid_ns: full,
        net_ns: full,
        ipc_ns: full,
        uts_ns: full,
        cgroup_ns: bits & got::CGROUP_NS != 0,
        pivot_root: full,
        fresh_proc: bits & got::FRESH_PROC != 0,
        landlock_abi: means.landlock_abi,
        // Ready or not started: these steps are not optional.
        seccomp: true,
        no_new_privs: true,
        capabilities_dropped: true,
        memory: running.group.memory,
        pids: running.group.pids,
        tmp_bytes_max: full.then_some(spec.limits.tmp_bytes_max),
    }
}

/// Captured output.
#[derive(Debug)]
struct Collected {
    stdout: Stream,
    stderr: Stream,
    left_bytes: u64,
    truncated: bool,
}

#[derive(Debug)]
struct Stream {
    pipe: Option<Receiver>,
    bytes: Vec<u8>,
}

impl Collected {
    fn new(running: &mut Running, bytes_max: u64) -> Result<Self, SandboxError> {
        let stream = |fd: Option<std::os::fd::OwnedFd>| {
            let pipe = fd.map(Receiver::from_owned_fd).transpose();
            let pipe = pipe.map_err(|cause| SandboxError::Host { doing: "watching output", cause })?;
            Ok::<_, SandboxError>(Stream { pipe, bytes: Vec::new() })
        };
        Ok(Self {
            stdout: stream(running.stdout.take())?,
            stderr: stream(running.stderr.take())?,
            left_bytes: bytes_max,
            truncated: false,
        })
    }

    /// Waits for either stream.
    async fn readable(&self) {
        tokio::select! {
            () = self.stdout.readable() => {}
            () = self.stderr.readable() => {}
        }
    }

    /// Takes what is there now.
    fn pull(&mut self) {
        for stream in [&mut self.stdout, &mut self.stderr] {
            let cut = stream.pull(&mut self.left_bytes);
            self.truncated |= cut;
        }
    }

    /// Takes what is left when everyone who could write is dead.
    fn drain(&mut self) {
        while self.stdout.pipe.is_some() || self.stderr.pipe.is_some() {
            let before = (self.stdout.bytes.len(), self.stderr.bytes.len());
            self.pull();
            if self.truncated || before == (self.stdout.bytes.len(), self.stderr.bytes.len()) {
                return;
            }
        }
    }
}

impl Stream {
    async fn readable(&self) {
        match &self.pipe {
            // An error shows again when reading.
            Some(pipe) => drop(pipe.readable().await),
            None => std::future::pending().await,
        }
    }

    /// Returns true if there was more than may be kept.
    fn pull(&mut self, left_bytes: &mut u64) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut buffer = [0; CHUNK_BYTES];
        match pipe.try_read(&mut buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                let keep = usize::try_from(*left_bytes).unwrap_or(usize::MAX).min(count);
                self.bytes.extend(buffer.iter().take(keep));
                *left_bytes = left_bytes.saturating_sub(keep as u64);
                return keep < count;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.pipe = None,
        }
        false
    }
}
