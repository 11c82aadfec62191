//! The executor of the microVM tier: one permitted call becomes one machine.
//!
//! What comes back is what the program wrote: standard output, then standard error, byte for byte, labelled with everything it has
//! read. How it ended and what was refused to it is in the receipt.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use regent_kernel::{BoxFuture, ExecuteError, Executor, FileKind, Limits, Permit, RawOutput, Spent, tier};
use regent_sandbox::{AFTER_KERNEL_MS, DEFAULT_PATH, MASKED_OUTPUT, ProgramArguments, watch_readable};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::time::Sleep;

use super::areas::page_down;
use super::calls::GuestEnding;
use super::files::FileLimits;
use super::guest::{Finished, GuestJob, GuestThread, Load, NotStarted, Shell};
use super::link::{GuestMessage, GuestReply, GuestRequest, Link};
use super::nested::Nested;
use super::programs::{self, NotRun, ProgramLocation};
use super::self_test;
use super::start::StartWords;
use super::template::Templates;

/// What a guest gets where policy allows as much or more.
const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// Less is not worth starting with.
const MEMORY_BYTES_MIN: u64 = 8 << 20;
/// Content that is kept for a guest, where policy allows as much or more.
const HELD_BYTES_MAX: u64 = 128 << 20;
const OPEN_MAX: u32 = 1024;
/// Guests that run at the same time; others wait.
const GUESTS_MAX: usize = 32;

/// Runs programs as guests. It drives the same tools as the process tier.
#[derive(Debug)]
pub struct MicrovmTier {
    pub(super) templates: Arc<Templates>,
    /// A machine that is made already, for the next guest.
    pub(super) spare: Arc<Mutex<Option<Shell>>>,
    /// Places for guests.
    places: Semaphore,
}

impl Default for MicrovmTier {
    fn default() -> Self {
        Self { templates: Arc::default(), spare: Arc::default(), places: Semaphore::new(GUESTS_MAX) }
    }
}

impl MicrovmTier {
    /// An executor. Whether this host can run guests is tried with the first one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets every program and machine that is kept ready: the next guest starts from nothing.
    pub fn cool(&self) {
        self.templates.clear();
        drop(self.spare.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// A program that is handed over as it is, rather than named in the call.
#[derive(Debug)]
pub struct ProvidedProgram {
    /// The program's own bytes.
    pub content: Vec<u8>,
    /// What it is called by, then its arguments.
    pub argv: Vec<String>,
    /// Its standard input.
    pub input: Vec<u8>,
}

impl Executor<tier::Microvm> for MicrovmTier {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Microvm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        self.perform(permit, None)
    }
}

impl MicrovmTier {
    /// Runs a program that the caller found for the permitted call.
    pub fn execute_given<'s>(
        &'s self,
        permit: Permit<'s, tier::Microvm>,
        given: ProvidedProgram,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        self.perform(permit, Some(given))
    }

    fn perform<'s>(
        &'s self,
        permit: Permit<'s, tier::Microvm>,
        given: Option<ProvidedProgram>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            if let Err(closed) = self_test::probe() {
                return Err(ExecuteError::Unavailable(closed.reason.clone()));
            }
            let _place = tokio::select! {
                biased;
                place = self.places.acquire() => place.map_err(|error| ExecuteError::Broken(error.to_string()))?,
                () = permit.cancelled() => return Ok(RawOutput::failed("process.killed", "it was never started")),
            };
            let mut nested = Nested::new(&permit);
            let wanted = match given {
                Some(given) => Ok(GuestProgram::from_given(given)),
                None => wanted(&permit, &mut nested).await?,
            };
            let job = match wanted.and_then(|wanted| wanted.job(&permit)) {
                Ok(job) => job,
                Err(NotRun { code, message }) => {
                    return Ok(labelled(RawOutput::failed(code, message), &nested));
                }
            };
            let began = Instant::now();
            let memory_bytes = job.0.memory_bytes;
            let (why, finished) = self.run(job.0, job.1, &permit, &mut nested).await?;
            let mut finished = match finished {
                Ok(finished) => finished,
                Err(NotStarted::Program(NotRun { code, message })) => {
                    return Ok(labelled(RawOutput::failed(code, message), &nested));
                }
                Err(NotStarted::Broke(why)) => return Err(ExecuteError::Broken(why)),
            };
            let wall_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            // Secrets are taken out of both streams before they are put together: the receipt counts what is left.
            if permit.scrub(&mut finished.output.stdout) | permit.scrub(&mut finished.output.stderr) {
                nested.label = Some(nested.label.map_or(MASKED_OUTPUT, |label| label.join(MASKED_OUTPUT)));
            }
            let output = reply(&finished, why, &nested, (wall_ms, memory_bytes));
            self.clear_away(finished, memory_bytes);
            Ok(output)
        })
    }
}

/// Why we ended a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    WallClock,
    Cpu,
    Cancelled,
}

type Ran = (Option<EndReason>, Result<Finished, NotStarted>);

impl MicrovmTier {
    /// Runs a guest and answers what it asks for, until it has ended.
    async fn run(
        &self,
        job: GuestJob,
        wall: Duration,
        permit: &Permit<'_, tier::Microvm>,
        nested: &mut Nested<'_, '_>,
    ) -> Result<Ran, ExecuteError> {
        let broken =
            |error: std::io::Error| ExecuteError::Broken(format!("a guest can't be started: {error}"));
        let link = Arc::new(Link::new().map_err(broken)?);
        let bell = link.bell().and_then(watch_readable).map_err(broken)?;
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let running = GuestThread::start(job, spare, &self.templates, &link).map_err(broken)?;
        let cpu_max = Duration::from_millis(permit.limits().cpu_ms_max);
        let mut watch = Watch {
            cancelled: Box::pin(permit.cancelled()),
            deadline: Box::pin(tokio::time::sleep(wall)),
            cpu: Box::pin(tokio::time::sleep(cpu_max)),
            cpu_max,
        };
        let (mut why, mut suspension) = (None, permit.suspension());
        loop {
            let heard = tokio::select! {
                biased;
                held = suspension.changed() => {
                    running.hold(held);
                    continue;
                }
                heard = receive(&bell, &link) => heard.map_err(broken)?,
                reason = watch.over(&running), if why.is_none() => {
                    why = Some(reason);
                    running.kill();
                    continue;
                }
            };
            let ask = match heard {
                GuestMessage::Ended => return Ok((why, running.join())),
                GuestMessage::Ask(_) if why.is_some() => continue,
                GuestMessage::Ask(ask) => ask,
                GuestMessage::Nothing => continue,
            };
            let reply: Option<Result<GuestReply, rustix::io::Errno>> = tokio::select! {
                biased;
                reply = answer(nested, ask) => Some(reply),
                reason = watch.over(&running) => {
                    why = Some(reason);
                    None
                }
            };
            match reply {
                Some(reply) => link.reply(reply),
                None => running.kill(),
            }
        }
    }

    /// Takes a dead guest's machine apart and makes the next one, where nobody waits for it.
    pub(super) fn clear_away(&self, finished: Finished, bytes: u64) {
        let spare = Arc::clone(&self.spare);
        // Without a thread it happens here and now, and there is no spare.
        drop(std::thread::Builder::new().name("regent-spare".to_owned()).spawn(move || {
            let next = Shell::new(bytes).ok();
            *spare.lock().unwrap_or_else(PoisonError::into_inner) = next;
            drop(finished);
        }));
    }
}

async fn answer(nested: &mut Nested<'_, '_>, ask: GuestRequest) -> Result<GuestReply, rustix::io::Errno> {
    nested.answer(ask).await
}

/// Waits for a message of the guest's thread.
async fn receive(bell: &AsyncFd<OwnedFd>, link: &Link) -> std::io::Result<GuestMessage> {
    let mut ready = bell.readable().await?;
    let mut count = [0; 8];
    // Its value doesn't matter; reading makes it silent again.
    rustix::io::read(bell.as_fd(), &mut count).ok();
    ready.clear_ready();
    Ok(link.take_message())
}

/// What ends a guest from outside.
struct Watch<'a> {
    cancelled: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    deadline: Pin<Box<Sleep>>,
    cpu: Pin<Box<Sleep>>,
    cpu_max: Duration,
}

impl Watch<'_> {
    async fn over(&mut self, running: &GuestThread) -> EndReason {
        loop {
            tokio::select! {
                biased;
                () = &mut self.cancelled => return EndReason::Cancelled,
                () = &mut self.deadline => return EndReason::WallClock,
                () = &mut self.cpu => {
                    // One thread can't use more processor time than passes: what is left is how long it takes at least.
                    let left = self.cpu_max.saturating_sub(running.cpu());
                    if left.is_zero() {
                        return EndReason::Cpu;
                    }
                    self.cpu.as_mut().reset(tokio::time::Instant::now() + left);
                }
            }
        }
    }
}

/// What is to be run.
struct GuestProgram {
    load: Load,
    argv: Vec<String>,
    path: String,
    /// Inside the workspace; `None` for the workspace itself.
    cwd: Option<String>,
    input: Vec<u8>,
    environment: Vec<Vec<u8>>,
    timeout_ms: Option<u64>,
}

impl GuestProgram {
    fn from_given(given: ProvidedProgram) -> Self {
        let ProvidedProgram { content, argv, input } = given;
        let path = format!("/tmp/{}", argv.first().map_or("program", String::as_str));
        let environment = environment(&BTreeMap::new());
        Self { load: Load::Content(content), argv, path, cwd: None, input, environment, timeout_ms: None }
    }

    fn job(self, permit: &Permit<'_, tier::Microvm>) -> Result<(GuestJob, Duration), NotRun> {
        let limits = permit.limits();
        let memory_bytes = page_down(limits.memory_bytes_max.min(MEMORY_BYTES_MAX));
        if memory_bytes < MEMORY_BYTES_MIN {
            let message = format!("{memory_bytes} bytes of memory are not enough for a microVM");
            return Err(NotRun { code: "microvm.memory", message });
        }
        let workspace = workspace_of(permit)?;
        // The kernel's own deadline comes first, so that it is the kernel that says "timed out".
        let kernels = limits.wall_ms_max.saturating_add(AFTER_KERNEL_MS);
        let wall = Duration::from_millis(self.timeout_ms.unwrap_or(u64::MAX).min(kernels));
        let arguments = self.argv.into_iter().map(String::into_bytes).collect();
        let job = GuestJob {
            load: self.load,
            words: StartWords { arguments, environment: self.environment, path: self.path },
            workspace: workspace.to_owned(),
            cwd: self.cwd.unwrap_or_else(|| workspace.to_owned()),
            input: self.input,
            memory_bytes,
            files: file_limits(&limits),
            now_ms: u64::try_from(permit.clock().now_ms()).unwrap_or(0),
        };
        Ok((job, wall))
    }
}

fn workspace_of<'s>(permit: &Permit<'s, tier::Microvm>) -> Result<&'s str, NotRun> {
    let message = || "the workspace's path is not text".to_owned();
    permit.workspace().root().to_str().ok_or_else(|| NotRun { code: "process.cwd", message: message() })
}

/// What the call wants to be run.
async fn wanted(
    permit: &Permit<'_, tier::Microvm>,
    nested: &mut Nested<'_, '_>,
) -> Result<Result<GuestProgram, NotRun>, ExecuteError> {
    let refuse = |code, message: String| Ok(Err(NotRun { code, message }));
    let arguments = match ProgramArguments::deserialize(permit.args()) {
        Ok(arguments) => arguments,
        Err(error) => return refuse("args.invalid", error.to_string()),
    };
    if let Some((code, why)) = beyond_a_guest(&arguments) {
        return refuse(code, why.to_owned());
    }
    // The one way for a secret into a program, as in every tier.
    let input = match arguments.stdin.as_deref().map(|text| permit.filled(text)).transpose() {
        Ok(input) => input.map_or_else(Vec::new, |input| input.expose().to_vec()),
        Err(error) => return refuse(error.code(), error.to_string()),
    };
    let workspace = match workspace_of(permit) {
        Ok(workspace) => workspace,
        Err(not) => return Ok(Err(not)),
    };
    let Some(cwd) = folder(permit, &arguments, workspace) else {
        return refuse("process.cwd", "the working folder is not a folder of the workspace".to_owned());
    };
    let program = match (arguments.argv.as_ref(), arguments.command.as_ref()) {
        (Some(argv), None) => named(argv, (workspace, &cwd), nested).await,
        (None, Some(line)) => {
            let words = ["sh", "-c", line].map(str::to_owned).to_vec();
            Ok((Load::Shell, words, "/bin/sh".to_owned()))
        }
        (Some(_), Some(_)) | (None, None) => {
            return refuse("args.invalid", "give either `argv` or `command`".to_owned());
        }
    };
    let (environment, timeout_ms) = (environment(&arguments.env), arguments.timeout_ms);
    Ok(program.map(|(load, argv, path)| GuestProgram {
        load,
        argv,
        path,
        cwd: Some(cwd),
        input,
        environment,
        timeout_ms,
    }))
}

/// What a guest can't be given.
fn beyond_a_guest(arguments: &ProgramArguments) -> Option<(&'static str, &'static str)> {
    if arguments.terminal {
        return Some(("process.terminal", "a microVM has no terminal"));
    }
    let why = "a microVM has no network; run the program without it";
    arguments.network.then_some(("process.no_network", why))
}

/// The program that a list of arguments names: where it is, the arguments, and its path.
async fn named(
    argv: &[String],
    (workspace, cwd): (&str, &str),
    nested: &mut Nested<'_, '_>,
) -> Result<(Load, Vec<String>, String), NotRun> {
    let program = argv.first().map(String::as_str).unwrap_or_default();
    match programs::find(program, workspace, cwd)? {
        ProgramLocation::Host(path) => {
            let shown = path.display().to_string();
            Ok((Load::Host(path), argv.to_vec(), shown))
        }
        ProgramLocation::Inside(inside) => match nested.read(&inside).await {
            Ok(content) => Ok((Load::Content(content), argv.to_vec(), format!("{workspace}/{inside}"))),
            Err(errno) => {
                let message = format!("`{inside}` can't be read: {errno}");
                Err(NotRun { code: "microvm.not_found", message })
            }
        },
    }
}

fn file_limits(limits: &Limits) -> FileLimits {
    FileLimits {
        open_max: usize::try_from(limits.open_files_max.min(OPEN_MAX)).unwrap_or(0),
        file_bytes_max: limits.file_bytes_max,
        held_bytes_max: limits.tmp_bytes_max.min(HELD_BYTES_MAX),
        output_bytes_max: limits.output_bytes_max,
    }
}

/// The working folder: resolved before policy judged it, so that relative is inside.
fn folder(
    permit: &Permit<'_, tier::Microvm>,
    arguments: &ProgramArguments,
    workspace: &str,
) -> Option<String> {
    let Some(cwd) = &arguments.cwd else { return Some(workspace.to_owned()) };
    let cwd = cwd.to_str().filter(|cwd| !cwd.starts_with('/'))?;
    let is_folder = permit.workspace().stat(cwd).is_ok_and(|found| found.kind == FileKind::Folder);
    let path = if cwd == "." { workspace.to_owned() } else { format!("{workspace}/{cwd}") };
    is_folder.then_some(path)
}

fn environment(added: &BTreeMap<String, String>) -> Vec<Vec<u8>> {
    let own = [
        ("PATH", DEFAULT_PATH),
        ("HOME", "/tmp"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
    ];
    let own = own.iter().filter(|(name, _)| !added.contains_key(*name));
    let own = own.map(|(name, value)| format!("{name}={value}"));
    own.chain(added.iter().map(|(name, value)| format!("{name}={value}"))).map(String::into_bytes).collect()
}

fn labelled(output: RawOutput, nested: &Nested<'_, '_>) -> RawOutput {
    match nested.label {
        Some(label) => output.with_label(label),
        None => output,
    }
}

fn reply(
    finished: &Finished,
    why: Option<EndReason>,
    nested: &Nested<'_, '_>,
    (wall_ms, memory_bytes): (u64, u64),
) -> RawOutput {
    let mut bytes = finished.output.stdout.clone();
    bytes.extend_from_slice(&finished.output.stderr);
    let spent = Spent { wall_ms, ..Spent::default() };
    let notes: Vec<&String> = nested.notes.iter().chain(&finished.notes).collect();
    let receipt = json!({
        "tier": "microvm",
        "memory_bytes_max": memory_bytes,
        "program": finished.digest.to_string(),
        "thread": finished.confined,
        "refused": notes,
        "ended": {
            "status": status(finished.end),
            "why": ended_by(finished.end, why),
            "stdout_bytes": finished.output.stdout.len(),
            "stderr_bytes": finished.output.stderr.len(),
            "truncated": finished.output.cut,
            "system_calls": finished.calls,
            "page_faults": finished.faults,
            "governed_calls": nested.calls,
            "memory_bytes_used": finished.memory_bytes_used,
            "cpu_ms": u64::try_from(finished.cpu.as_millis()).unwrap_or(u64::MAX),
            "wall_ms": wall_ms,
        },
    });
    let output = labelled(RawOutput::new(bytes), nested).with_obtained(receipt).with_spent(spent);
    match failure(finished, why) {
        Some((code, message)) => output.with_failure(code, message),
        None => output,
    }
}

fn status(end: GuestEnding) -> Value {
    match end {
        GuestEnding::Exit(code) => json!({"code": code}),
        GuestEnding::Signal(signal) => json!({"signal": signal}),
        GuestEnding::Output
        | GuestEnding::Stuck
        | GuestEnding::Memory
        | GuestEnding::Killed
        | GuestEnding::Dead(_) => {
            json!({"signal": libc::SIGKILL})
        }
    }
}

fn ended_by(end: GuestEnding, why: Option<EndReason>) -> &'static str {
    match (end, why) {
        (GuestEnding::Killed, Some(EndReason::WallClock)) => "wall-clock",
        (GuestEnding::Killed, Some(EndReason::Cpu)) => "cpu",
        (GuestEnding::Killed, Some(EndReason::Cancelled) | None) => "killed",
        (GuestEnding::Exit(_) | GuestEnding::Signal(_), _) => "itself",
        (GuestEnding::Output, _) => "output-cap",
        (GuestEnding::Stuck, _) => "stuck",
        (GuestEnding::Memory, _) => "memory",
        (GuestEnding::Dead(_), _) => "machine",
    }
}

fn failure(finished: &Finished, why: Option<EndReason>) -> Option<(&'static str, String)> {
    let said = |code: &'static str, message: &str| Some((code, message.to_owned()));
    match (finished.end, why) {
        (GuestEnding::Exit(0), _) if finished.unsaved => {
            said("microvm.not_saved", "it succeeded, but not all of its writes could be saved")
        }
        (GuestEnding::Exit(0), _) => None,
        (GuestEnding::Exit(code), _) => Some(("process.exit", format!("it exited with code {code}"))),
        (GuestEnding::Signal(signal), _) => Some(("process.signal", format!("signal {signal} ended it"))),
        (GuestEnding::Output, _) => said("process.output", "it was killed: output limit reached"),
        (GuestEnding::Memory, _) => said("process.memory", "it was killed: memory limit reached"),
        (GuestEnding::Stuck, _) => said("microvm.stuck", "it was killed: deadlock"),
        (GuestEnding::Killed, Some(EndReason::WallClock)) => {
            said("process.timeout", "it was killed: time limit reached")
        }
        (GuestEnding::Killed, Some(EndReason::Cpu)) => {
            said("process.cpu", "it was killed: CPU time limit reached")
        }
        (GuestEnding::Killed, Some(EndReason::Cancelled) | None) => {
            said("process.killed", "it was killed: the call was cancelled")
        }
        (GuestEnding::Dead(why), _) => Some(("microvm.dead", format!("the virtual machine failed: {why}"))),
    }
}
