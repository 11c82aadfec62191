//! The process tier: one permitted call becomes one sandbox.
//!
//! What comes back is what the program wrote: standard output, then standard error, byte for byte. How it ended is in the
//! receipt (`obtained.ended`), with `stdout_bytes` to tell the two apart, and in the failure if it did not end well.

mod looking;
mod passing;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use regent_kernel::{
    BoxFuture, Class, Confidentiality, ExecuteError, Executor, Integrity, Label, Limits as Permitted, Permit,
    Principal, RawOutput, Spent, Suspension, tier,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, watch};

use crate::egress_proxy::EgressProxy;
use crate::ended::{EndedBy, Exit, FinishedRun, ProgramEnded};
use crate::error::{SandboxError, SetupStep};
use crate::run::run_payload;
use crate::spec::{
    DEFAULT_PATH, Floor, HOME, Limits, MemoryFloor, Spec, Stdin, WorkspaceMount, git_environment,
};
use crate::supervise::{SEARCH_TIME_MAX, SEARCHED_MAX};
use crate::survey::Listings;
use crate::terminal::Terminal;

/// How often a launch is begun again when the workspace changes while it is looked at.
const LAUNCHES_MAX: u32 = 3;

/// How long after the kernel's deadline a tier ends a program itself, so that it is the kernel that says "timed out".
pub const AFTER_KERNEL_MS: u64 = 1_000;
/// Nobody vouches for it; it is as secret as what a program without a network prints.
const FROM_THE_WEB: Label = Label { integrity: Integrity::Web, confidentiality: Confidentiality::Private };
/// Larger than any machine, small enough not to wrap in the kernel's arithmetic.
const BYTES_MAX: u64 = 1 << 40;

/// Runs programs in sandboxes. It is the driver of every tool whose arguments are a list (`argv`) or a line for the shell (`command`).
#[derive(Debug, Clone)]
pub struct ProcessTier {
    floor: Floor,
    memory: MemoryFloor,
    egress_proxy: Option<Arc<dyn EgressProxy>>,
    listings: Arc<Listings>,
}

impl ProcessTier {
    /// An executor that accepts nothing below `floor`.
    pub fn new(floor: Floor) -> Self {
        Self { floor, memory: MemoryFloor::Any, egress_proxy: None, listings: Arc::default() }
    }

    /// The same; refuses a program if its memory limit is enforced by less than this.
    #[must_use]
    pub fn with_memory(self, memory: MemoryFloor) -> Self {
        Self { memory, ..self }
    }

    /// The same; programs that ask for the network get an egress proxy at `egress_proxy`.
    #[must_use]
    pub fn with_egress_proxy(self, egress_proxy: Arc<dyn EgressProxy>) -> Self {
        Self { egress_proxy: Some(egress_proxy), ..self }
    }

    /// The specification of any program in this workspace, before the call's own arguments and limits.
    pub fn spec(&self, workspace: &Path) -> Spec {
        let listings = Arc::clone(&self.listings);
        let mount = WorkspaceMount { listings, ..WorkspaceMount::new(workspace, true) };
        let set = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let mut env = vec![
            set("PATH", DEFAULT_PATH),
            set("HOME", HOME),
            set("USER", "agent"),
            set("LOGNAME", "agent"),
            set("SHELL", "/bin/sh"),
            set("LANG", "C.UTF-8"),
            set("TMPDIR", "/tmp"),
        ];
        env.extend(git_environment());
        let (cwd, floor, memory) = (workspace.to_path_buf(), self.floor, self.memory);
        Spec { env, cwd, floor, memory, workspace: Some(mount), ..Spec::new(Vec::<OsString>::new()) }
    }
}

/// The arguments of a tool that runs programs, in every tier that can drive it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramArguments {
    /// The program and its arguments; either this or `command`.
    pub argv: Option<Vec<String>>,
    /// A line for the shell.
    pub command: Option<String>,
    /// The working folder, relative to the workspace.
    pub cwd: Option<PathBuf>,
    /// Variables besides those that every program gets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Standard input, in which the permit fills in secrets.
    pub stdin: Option<String>,
    /// The call's own time limit; the kernel's applies as well.
    pub timeout_ms: Option<u64>,
    /// Whether the program gets the terminal.
    #[serde(default)]
    pub terminal: bool,
    /// Whether the program gets an egress proxy.
    #[serde(default)]
    pub network: bool,
    /// Whether standard error goes to standard output. A guest of a virtual machine has one stream for each: there this changes nothing.
    #[serde(default)]
    pub merge_stderr: bool,
}

impl Executor<tier::Process> for ProcessTier {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Process>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let arguments = match ProgramArguments::deserialize(permit.args()) {
                Ok(arguments) => arguments,
                Err(error) => return Ok(RawOutput::failed("args.invalid", error.to_string())),
            };
            // The manifest says which of the two a tool takes.
            let argv = match (arguments.argv.as_ref(), arguments.command.as_ref()) {
                (Some(argv), None) => argv.clone(),
                (None, Some(line)) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
                (Some(_), Some(_)) | (None, None) => {
                    return Ok(RawOutput::failed("args.invalid", "give either `argv` or `command`"));
                }
            };
            if arguments.terminal && !(is_lent_by_a_user(permit.call().principal()) && at_terminal()) {
                let why = "only a user at a terminal can give it to a program";
                return Ok(RawOutput::failed("process.terminal", why));
            }
            let mut spec = self.spec(permit.workspace().root());
            spec.argv = argv.into_iter().map(OsString::from).collect();
            // The one way for a secret into a program: not the arguments or the environment, which others can read.
            let stdin = match arguments.stdin.as_deref().map(|text| permit.filled(text)).transpose() {
                Ok(stdin) => stdin,
                Err(error) => return Ok(RawOutput::failed(error.code(), error.to_string())),
            };
            if let Some(stdin) = stdin {
                spec.stdin = Stdin::Bytes(stdin.expose().to_vec());
            }
            let network = arguments.network;
            // Without a reader that shows it at once, the program runs without a terminal.
            if arguments.terminal && permit.lend_terminal() {
                spec.terminal = match Terminal::of_this_process() {
                    Ok(terminal) => Some(terminal),
                    Err(error) => return Ok(RawOutput::failed("process.terminal", error.to_string())),
                };
                spec.job_control = permit.job_control();
            }
            arguments.apply(&mut spec, &permit.limits());
            self.finish(spec, network, &permit).await
        })
    }
}

impl ProcessTier {
    /// Runs a program for a call of another executor: with the usual specification, changed by `prepare`, within the
    /// limits of the permit, and with an egress proxy if `network`.
    pub async fn run(
        &self,
        permit: Permit<'_, tier::Process>,
        network: bool,
        prepare: impl FnOnce(&mut Spec),
    ) -> Result<RawOutput, ExecuteError> {
        let mut spec = self.spec(permit.workspace().root());
        spec.limits = limits(&permit.limits(), None);
        prepare(&mut spec);
        self.finish(spec, network, &permit).await
    }

    async fn finish(
        &self,
        mut spec: Spec,
        network: bool,
        permit: &Permit<'_, tier::Process>,
    ) -> Result<RawOutput, ExecuteError> {
        if network {
            // The output of a program with network access may come from the network.
            permit.raise_label(FROM_THE_WEB);
        }
        let (ended, sizes) = match permit.is_read() {
            true => passing::launched(self, &mut spec, network, permit).await,
            false => {
                let ended = self.launched(&mut spec, network, permit, &Notify::new()).await;
                ended.map_or_else(|unrun| (Err(unrun), None), |ended| (Ok(ended), None))
            }
        };
        let mut ended = match ended {
            Ok(ended) => ended,
            Err(Unrun::Sandbox(error)) => return refusal(&error),
            Err(Unrun::NoNetwork(why)) => return Ok(RawOutput::failed("process.no_network", why)),
        };
        let masked = scrub(permit, &mut ended);
        let output = reply(ended, sizes);
        let label = [(masked, MASKED_OUTPUT), (network, FROM_THE_WEB)]
            .into_iter()
            .filter_map(|(holds, label)| holds.then_some(label))
            .reduce(Label::join);
        Ok(match label {
            Some(label) => output.with_label(label),
            None => output,
        })
    }

    /// Starts the program and waits for its end. `stop` ends it early, as the permit does.
    async fn launched(
        &self,
        spec: &mut Spec,
        network: bool,
        permit: &Permit<'_, tier::Process>,
        stop: &Notify,
    ) -> Result<FinishedRun, Unrun> {
        // STOP and CONT reach the program too.
        let (hold, held) = watch::channel(false);
        spec.held = Some(held);
        let mut launches = 0;
        loop {
            launches += 1;
            let _rule = looking::survey(spec, permit).await.map_err(Unrun::Sandbox)?;
            let stopped = async {
                tokio::select! { () = permit.cancelled() => {}, () = stop.notified() => {} }
            };
            let running = async {
                match network {
                    true => self.run_with_proxy(spec, permit, stopped).await,
                    false => run_payload(spec, stopped, None).await.map_err(Unrun::Sandbox),
                }
            };
            let follow = follow(permit.suspension(), &hold);
            tokio::pin!(running, follow);
            let ended = tokio::select! {
                biased;
                ended = &mut running => ended,
                () = &mut follow => running.await,
            };
            match ended {
                // A file was moved between the look and the mount. It is looked for again: skipping it could show it.
                Err(Unrun::Sandbox(error)) if has_moved(&error) && launches < LAUNCHES_MAX => {}
                ended => return ended,
            }
        }
    }

    /// Runs a program that may ask for connections. They are served as long as it runs, with its own permit.
    async fn run_with_proxy(
        &self,
        spec: &mut Spec,
        permit: &Permit<'_, tier::Process>,
        stopped: impl Future<Output = ()>,
    ) -> Result<FinishedRun, Unrun> {
        let nobody = || Unrun::NoNetwork("no egress proxy is available here".to_owned());
        let egress_proxy = self.egress_proxy.as_ref().ok_or_else(nobody)?;
        let outfit = egress_proxy.outfit().map_err(Unrun::NoNetwork)?;
        spec.env.retain(|(name, _)| outfit.env.iter().all(|(other, _)| other != name));
        spec.env.extend(outfit.env);
        spec.binds.retain(|bind| !outfit.binds.contains(bind));
        spec.binds.extend(outfit.binds);
        let (sender, mut listeners) = mpsc::channel(1);
        spec.listener = Some(sender);
        let running = run_payload(spec, stopped, None);
        let serving = async {
            if let Some(listener) = listeners.recv().await {
                egress_proxy.serve(listener, permit).await;
            }
        };
        tokio::pin!(running, serving);
        let ended = tokio::select! {
            biased;
            ended = &mut running => ended,
            // Without a broker the program continues, and nothing leaves any more.
            () = &mut serving => running.await,
        };
        ended.map_err(Unrun::Sandbox)
    }
}

/// Why nothing was run.
#[derive(Debug)]
enum Unrun {
    Sandbox(SandboxError),
    NoNetwork(String),
}

/// Whether a file that was to be covered was gone when its turn came.
fn has_moved(error: &SandboxError) -> bool {
    matches!(error, SandboxError::Setup { step: SetupStep::Guard, cause, .. }
        if cause.kind() == std::io::ErrorKind::NotFound)
}

/// Passes on to a running program that its agent is suspended or resumed.
async fn follow(mut suspension: Suspension, hold: &watch::Sender<bool>) {
    while !hold.is_closed() {
        let held = suspension.changed().await;
        hold.send_if_modified(|before| std::mem::replace(before, held) != held);
    }
}

impl ProgramArguments {
    fn apply(self, spec: &mut Spec, permitted: &Permitted) {
        spec.limits = limits(permitted, self.timeout_ms);
        spec.merges_stderr = self.merge_stderr;
        if let Some(cwd) = self.cwd {
            // Resolved before policy judged it: relative is inside the workspace.
            spec.cwd.push(cwd);
        }
        for (name, value) in self.env {
            spec.env.retain(|(present, _)| present.as_os_str() != name.as_str());
            spec.env.push((name.into(), value.into()));
        }
        if spec.terminal.is_some() {
            // A person may look at it for days; the kernel bounds what is kept.
            spec.limits.output_bytes_max = u64::MAX;
            spec.env.extend(std::env::var_os("TERM").map(|term| (OsString::from("TERM"), term)));
        }
    }
}

/// The label of output in which a secret was masked.
pub const MASKED_OUTPUT: Label =
    Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Secret };

/// Takes secrets out of both streams before they are put together: the receipt counts what is left.
fn scrub(permit: &Permit<'_, tier::Process>, ended: &mut FinishedRun) -> bool {
    permit.scrub(&mut ended.stdout) | permit.scrub(&mut ended.stderr)
}

/// The user's own call, or that of an agent that the user started: an agent's child has no control over the terminal.
fn is_lent_by_a_user(who: &Principal) -> bool {
    match who.class() {
        Class::Operator => true,
        Class::Agent => who.lineage().len() == 1,
        Class::Kernel | Class::Peer | Class::Service => false,
    }
}

fn at_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

fn limits(permitted: &Permitted, timeout_ms: Option<u64>) -> Limits {
    let kernels = permitted.wall_ms_max.saturating_add(AFTER_KERNEL_MS);
    Limits {
        wall_ms_max: timeout_ms.map_or(kernels, |timeout_ms| timeout_ms.min(kernels)),
        output_bytes_max: permitted.output_bytes_max,
        memory_bytes_max: permitted.memory_bytes_max.min(BYTES_MAX),
        pids_max: permitted.pids_max,
        open_files_max: permitted.open_files_max,
        file_bytes_max: permitted.file_bytes_max,
        tmp_bytes_max: permitted.tmp_bytes_max.min(BYTES_MAX),
        cpu_s_max: permitted.cpu_ms_max.div_ceil(1000),
    }
}

/// How much of standard output and of standard error is in the outcome.
type Sizes = (u64, u64);

fn reply(ended: FinishedRun, passed_on: Option<Sizes>) -> RawOutput {
    let sizes = passed_on.unwrap_or((ended.stdout.len() as u64, ended.stderr.len() as u64));
    let (receipt, failure, breach) = (receipt(&ended, sizes), failure(&ended), breach(&ended));
    let spent = Spent { wall_ms: ended.wall_ms, ..Spent::default() };
    let mut bytes = ended.stdout;
    bytes.extend_from_slice(&ended.stderr);
    let mut output = RawOutput::new(bytes).with_obtained(receipt).with_spent(spent);
    if let Some((code, message)) = failure {
        output = output.with_failure(code, message);
    }
    match breach {
        Some(what) => output.with_breach(what),
        None => output,
    }
}

/// Nothing was run: because of what was asked for, because of this host, or because of us.
fn refusal(error: &SandboxError) -> Result<RawOutput, ExecuteError> {
    let message = error.to_string();
    match error {
        SandboxError::Unavailable { fix, .. } => Err(ExecuteError::Unavailable(match fix {
            Some(fix) => format!("{message}; to open it: {fix}"),
            None => message,
        })),
        SandboxError::Memory { fix, .. } => {
            Err(ExecuteError::Unavailable(format!("{message}; to change it: {fix}")))
        }
        SandboxError::NoEgressProxy { fix } => {
            let fix = fix.as_ref().map(|fix| format!("; to enable it: {fix}")).unwrap_or_default();
            Ok(RawOutput::failed("process.no_network", format!("{message}{fix}")))
        }
        SandboxError::Program { .. } => Ok(RawOutput::failed("process.not_started", message)),
        SandboxError::Spec(_) => Ok(RawOutput::failed("process.refused", message)),
        // An outer sandbox, or an old kernel, has no `openat2`: then nothing can be guarded here, whatever the modes are.
        SandboxError::Unreadable { cause, .. } if cause.raw_os_error() == Some(libc::ENOSYS) => {
            Err(ExecuteError::Unavailable(
                "the sandbox can't guard the workspace: an outer sandbox or an old kernel refuses openat2"
                    .to_owned(),
            ))
        }
        SandboxError::Unreadable { .. } => Ok(RawOutput::failed("process.unreadable", message)),
        SandboxError::Setup { step: SetupStep::WorkingDirectory, .. } => {
            Ok(RawOutput::failed("process.cwd", "the working folder doesn't exist inside the sandbox"))
        }
        SandboxError::Setup { .. } | SandboxError::Host { .. } => Err(ExecuteError::Broken(message)),
    }
}

fn receipt(ended: &FinishedRun, sizes: Sizes) -> Value {
    let mut receipt = json!(ended.obtained);
    if let Value::Object(fields) = &mut receipt {
        fields.insert("ended".to_owned(), json!(ProgramEnded::new(ended, sizes)));
        fields.insert("tier".to_owned(), json!("process"));
    }
    receipt
}

fn failure(ended: &FinishedRun) -> Option<(&'static str, String)> {
    match (ended.why, ended.status) {
        (EndedBy::WallClock, _) => {
            Some(("process.timeout", format!("it was killed: time limit reached{}", waited(ended))))
        }
        (EndedBy::OutputCap, _) => Some(("process.output", "it was killed: output limit reached".to_owned())),
        (EndedBy::Killed, _) => Some(("process.killed", "it was killed: the call was cancelled".to_owned())),
        (EndedBy::Memory, _) => Some(("process.memory", "it was killed: memory limit reached".to_owned())),
        (EndedBy::Itself, Exit::Code(0)) => planted(ended),
        (EndedBy::Itself, Exit::Code(code)) => {
            Some(("process.exit", format!("it exited with code {code}{}", refused(ended))))
        }
        (EndedBy::Itself, Exit::Signal(signal)) => {
            Some(("process.signal", format!("signal {signal} ended it{}", refused(ended))))
        }
    }
}

/// What the sandbox refused, which may be why a program failed.
fn refused(ended: &FinishedRun) -> String {
    let list = |paths: &[PathBuf]| names(paths.iter().map(PathBuf::as_path));
    let mut text = String::new();
    if !ended.refused.is_empty() {
        text += &format!("; the sandbox refused access to guarded files: {}", list(&ended.refused));
    }
    if !ended.refused_by_policy.is_empty() {
        let files = list(&ended.refused_by_policy);
        text += &format!(
            "; policy asks about or denies writing {files}: programs can't write these, call `fs.write` for each"
        );
    }
    if !ended.refused_unsearched.is_empty() {
        let (files, time_s) = (list(&ended.refused_unsearched), SEARCH_TIME_MAX.as_secs());
        text += &format!(
            "; {files} could not be moved in one piece, because it could not be searched for guarded files within {SEARCHED_MAX} entries and {time_s} s: copy it and remove the original"
        );
    }
    if ended.refused_more > 0 {
        text += &format!("; and {} more", ended.refused_more);
    }
    text + &waited(ended)
}

/// That a program was slow because others were at work.
fn waited(ended: &FinishedRun) -> String {
    match ended.waited_ms / 1000 {
        0 => String::new(),
        waited_s => format!(
            "; it waited {waited_s} s for another Regent process that scans a large workspace or is stopped"
        ),
    }
}

fn names<'a>(paths: impl Iterator<Item = &'a Path>) -> String {
    paths.map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

fn planted(ended: &FinishedRun) -> Option<(&'static str, String)> {
    let list = |moved: bool| {
        let some = ended.planted.iter().filter(move |planted| planted.moved_to.is_some() == moved);
        names(some.map(|planted| planted.path.as_path()))
    };
    match (list(true), list(false)) {
        (moved, left) if moved.is_empty() && left.is_empty() => None,
        (moved, left) if left.is_empty() => Some((
            "process.planted",
            format!("guarded files appeared while it ran and were moved aside: {moved}"),
        )),
        (_, left) => Some((
            "process.planted",
            format!("guarded files appeared while it ran and are still there: {left}"),
        )),
    }
}

/// What could not be undone.
fn breach(ended: &FinishedRun) -> Option<String> {
    let left = ended.planted.iter().filter(|planted| planted.moved_to.is_none());
    let left: Vec<&Path> = left.map(|planted| planted.path.as_path()).collect();
    let names = names(left.iter().copied());
    (!left.is_empty()).then(|| {
        format!("guarded files appeared while a program ran and could not be moved aside: {names}. Remove them, then start again")
    })
}
