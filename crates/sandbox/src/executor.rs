//! The process tier: one permitted call becomes one box.
//!
//! What comes back is what the program wrote: standard output, then standard error, byte for byte. How it ended is in the
//! receipt (`obtained.ended`), with `stdout_bytes` to tell the two apart, and in the failure if it did not end well.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use regent_kernel::{
    BoxFuture, Class, Confidentiality, ExecuteError, Executor, Integrity, Label, Limits as Permitted, Op,
    Permit, Principal, RawOutput, Spent, ToolSpec, tier,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;

use crate::ended::{Ended, EndedBy, Exit};
use crate::error::{SandboxError, Step};
use crate::outlet::Outlet;
use crate::run::run;
use crate::spec::{DEFAULT_PATH, Floor, HOME, Limits, MemoryFloor, Spec, Stdin, WorkspaceMount};
use crate::terminal::Terminal;

/// Files of a workspace that steer Regent, git, editors, shells and package tools: whoever writes them runs code later,
/// outside. Guarded at the top of the workspace; policy guards them everywhere against the file tools.
pub const CONTROL_PATHS: &[&str] = &[
    ".regent",
    ".agentzero",
    ".agents/security.md",
    ".mcp.json",
    ".vscode",
    ".idea",
    ".cursor",
    ".claude",
    ".zed",
    ".envrc",
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".gitconfig",
    ".npmrc",
    ".yarnrc",
    ".pypirc",
    ".netrc",
    ".cargo/config",
    ".cargo/config.toml",
];

/// The same inside a repository: what names programs to run, and what would make git look elsewhere for it.
const GIT_CONTROL_PATHS: &[&str] =
    &[".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/modules"];

/// Not shown inside: the ledger with everyone's payloads, and where projects keep their secrets.
pub const HIDDEN_PATHS: &[&str] = &[
    ".regent",
    ".env",
    ".env.local",
    ".env.development",
    ".env.production",
    ".env.staging",
    ".env.test",
    ".netrc",
    ".pypirc",
];

/// The kernel's own deadline comes first, so that it is the kernel that says "timed out".
pub(crate) const AFTER_KERNEL_MS: u64 = 1_000;
/// Nobody vouches for it; how secret it is, nobody knows.
const FROM_THE_WEB: Label = Label { integrity: Integrity::Web, ..ToolSpec::UNKNOWN_OUTPUT };
/// Larger than any machine, small enough not to wrap in the kernel's arithmetic.
const BYTES_MAX: u64 = 1 << 40;

/// Runs programs (`process.exec`, `shell.exec`) in boxes.
#[derive(Debug, Clone)]
pub struct ProcessTier {
    floor: Floor,
    memory: MemoryFloor,
    outlet: Option<Arc<dyn Outlet>>,
}

impl ProcessTier {
    /// An executor that accepts nothing below `floor`.
    pub fn new(floor: Floor) -> Self {
        Self { floor, memory: MemoryFloor::Any, outlet: None }
    }

    /// The same; a program is refused where less than this holds its memory limit.
    #[must_use]
    pub fn with_memory(self, memory: MemoryFloor) -> Self {
        Self { memory, ..self }
    }

    /// The same; programs that ask for the network get a way out to `outlet`.
    #[must_use]
    pub fn with_outlet(self, outlet: Arc<dyn Outlet>) -> Self {
        Self { outlet: Some(outlet), ..self }
    }

    /// What any program would be given in this workspace, before the call's own arguments and limits.
    pub fn spec(&self, workspace: &Path) -> Spec {
        let git: &[&str] = if workspace.join(".git").is_dir() { GIT_CONTROL_PATHS } else { &[".git"] };
        let mount = WorkspaceMount {
            host: workspace.to_path_buf(),
            writable: true,
            read_only_below: CONTROL_PATHS.iter().chain(git).map(PathBuf::from).collect(),
            hidden: HIDDEN_PATHS.iter().map(PathBuf::from).collect(),
        };
        let set = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let env = vec![
            set("PATH", DEFAULT_PATH),
            set("HOME", HOME),
            set("USER", "agent"),
            set("LOGNAME", "agent"),
            set("SHELL", "/bin/sh"),
            set("LANG", "C.UTF-8"),
            set("TMPDIR", "/tmp"),
        ];
        let (cwd, floor, memory) = (workspace.to_path_buf(), self.floor, self.memory);
        Spec { env, cwd, floor, memory, workspace: Some(mount), ..Spec::new(Vec::<OsString>::new()) }
    }
}

/// The arguments of both tools.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    pub(crate) argv: Option<Vec<String>>,
    pub(crate) command: Option<String>,
    pub(crate) cwd: Option<PathBuf>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) stdin: Option<String>,
    pub(crate) timeout_ms: Option<u64>,
    #[serde(default)]
    pub(crate) terminal: bool,
    #[serde(default)]
    pub(crate) network: bool,
}

impl Executor<tier::Process> for ProcessTier {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Process>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let Op::RunTool(call) = permit.call().op() else {
                return Err(ExecuteError::NoDriver(permit.call().op().name().to_owned()));
            };
            let arguments = match Arguments::deserialize(permit.args()) {
                Ok(arguments) => arguments,
                Err(error) => return Ok(RawOutput::failed("args.invalid", error.to_string())),
            };
            let argv = match (call.tool.as_str(), arguments.argv.as_ref(), arguments.command.as_ref()) {
                ("process.exec", Some(argv), None) => argv.clone(),
                ("shell.exec", None, Some(line)) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
                (tool, ..) => return Err(ExecuteError::NoDriver(tool.to_owned())),
            };
            if arguments.terminal && !(is_lent_by_a_person(permit.call().principal()) && at_terminal()) {
                let why = "only a person at a terminal can lend it to a program";
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
            if arguments.terminal {
                spec.terminal = match Terminal::of_this_process() {
                    Ok(terminal) => Some(terminal),
                    Err(error) => return Ok(RawOutput::failed("process.terminal", error.to_string())),
                };
            }
            arguments.apply(&mut spec, &permit.limits());
            self.finish(spec, network, &permit).await
        })
    }
}

impl ProcessTier {
    /// Runs a program for a call that another executor was given: what any program is given here, changed by `prepare`, within the
    /// limits of the permit, and with a way out if `network`.
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
        spec: Spec,
        network: bool,
        permit: &Permit<'_, tier::Process>,
    ) -> Result<RawOutput, ExecuteError> {
        let ended = match network {
            true => self.run_with_way_out(spec, permit).await,
            false => Ok(run(spec, permit.cancelled()).await),
        };
        let mut ended = match ended {
            Ok(ended) => ended,
            Err(why) => return Ok(RawOutput::failed("process.no_network", why)),
        };
        let masked = ended.as_mut().is_ok_and(|ended| scrub(permit, ended));
        let output = reply(ended)?;
        // What a program with a way out says may be what the network told it.
        let label = [(masked, MASKED), (network, FROM_THE_WEB)]
            .into_iter()
            .filter_map(|(holds, label)| holds.then_some(label))
            .reduce(Label::join);
        Ok(match label {
            Some(label) => output.with_label(label),
            None => output,
        })
    }

    /// Runs a program that may ask for connections. They are served as long as it runs, with its own permit.
    async fn run_with_way_out(
        &self,
        mut spec: Spec,
        permit: &Permit<'_, tier::Process>,
    ) -> Result<Result<Ended, SandboxError>, String> {
        let outlet = self.outlet.as_ref().ok_or("there is no broker here that could be reached")?;
        let outfit = outlet.outfit()?;
        spec.env.retain(|(name, _)| outfit.env.iter().all(|(other, _)| other != name));
        spec.env.extend(outfit.env);
        spec.binds.extend(outfit.binds);
        let (sender, mut listeners) = mpsc::channel(1);
        spec.listener = Some(sender);
        let running = run(spec, permit.cancelled());
        let serving = async {
            if let Some(listener) = listeners.recv().await {
                outlet.serve(listener, permit).await;
            }
        };
        tokio::pin!(running, serving);
        Ok(tokio::select! {
            biased;
            ended = &mut running => ended,
            // Without a broker the program goes on, and nothing leaves any more.
            () = &mut serving => running.await,
        })
    }
}

impl Arguments {
    fn apply(self, spec: &mut Spec, permitted: &Permitted) {
        spec.limits = limits(permitted, self.timeout_ms);
        if let Some(cwd) = self.cwd {
            // Resolved before policy judged it: relative is inside the workspace.
            spec.cwd.push(cwd);
        }
        for (name, value) in self.env {
            spec.env.retain(|(present, _)| present.as_os_str() != name.as_str());
            spec.env.push((name.into(), value.into()));
        }
        if self.terminal {
            spec.env.extend(std::env::var_os("TERM").map(|term| (OsString::from("TERM"), term)));
        }
    }
}

/// What a secret had to be masked in.
pub(crate) const MASKED: Label =
    Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Secret };

/// Takes secrets out of both streams before they are put together: the receipt counts what is left.
fn scrub(permit: &Permit<'_, tier::Process>, ended: &mut Ended) -> bool {
    permit.scrub(&mut ended.stdout) | permit.scrub(&mut ended.stderr)
}

/// A person's own call, or that of an agent which a person started: an agent's child has no say over the terminal.
fn is_lent_by_a_person(who: &Principal) -> bool {
    match who.class() {
        Class::Operator => true,
        Class::Agent => who.lineage().len() == 1,
        Class::Kernel => false,
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

fn reply(result: Result<Ended, SandboxError>) -> Result<RawOutput, ExecuteError> {
    let ended = match result {
        Ok(ended) => ended,
        Err(error) => return refusal(&error),
    };
    let receipt = receipt(&ended);
    let failure = failure(&ended);
    let spent = Spent { wall_ms: ended.wall_ms, ..Spent::default() };
    let mut bytes = ended.stdout;
    bytes.extend_from_slice(&ended.stderr);
    let output = RawOutput::new(bytes).with_obtained(receipt).with_spent(spent);
    Ok(match failure {
        Some((code, message)) => output.with_failure(code, message),
        None => output,
    })
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
        SandboxError::NoOutlet { fix } => {
            let fix = fix.as_ref().map(|fix| format!("; to open one: {fix}")).unwrap_or_default();
            Ok(RawOutput::failed("process.no_network", format!("{message}{fix}")))
        }
        SandboxError::Program { .. } => Ok(RawOutput::failed("process.not_started", message)),
        SandboxError::Spec(_) => Ok(RawOutput::failed("process.refused", message)),
        SandboxError::Setup { step: Step::WorkingDirectory, .. } => {
            Ok(RawOutput::failed("process.cwd", "the working folder is not there inside the sandbox"))
        }
        SandboxError::Setup { .. } | SandboxError::Host { .. } => Err(ExecuteError::Broken(message)),
    }
}

fn receipt(ended: &Ended) -> Value {
    let mut receipt = json!(ended.obtained);
    if let Value::Object(fields) = &mut receipt {
        let how = json!({
            "status": ended.status,
            "why": ended.why,
            "stdout_bytes": ended.stdout.len(),
            "stderr_bytes": ended.stderr.len(),
            "truncated": ended.truncated,
            "planted": ended.planted,
            "cpu_ms": ended.cpu_ms,
            "rss_bytes_peak": ended.rss_bytes_peak,
            "wall_ms": ended.wall_ms,
        });
        fields.insert("ended".to_owned(), how);
        fields.insert("tier".to_owned(), json!("process"));
    }
    receipt
}

fn failure(ended: &Ended) -> Option<(&'static str, String)> {
    match (ended.why, ended.status) {
        (EndedBy::WallClock, _) => Some(("process.timeout", "it was killed: its time was over".to_owned())),
        (EndedBy::OutputCap, _) => Some(("process.output", "it was killed: it wrote too much".to_owned())),
        (EndedBy::Killed, _) => Some(("process.killed", "it was killed: the call was cancelled".to_owned())),
        (EndedBy::Memory, _) => Some(("process.memory", "it ran out of memory".to_owned())),
        (EndedBy::Itself, Exit::Code(0)) => planted(ended),
        (EndedBy::Itself, Exit::Code(code)) => Some(("process.exit", format!("it exited with code {code}"))),
        (EndedBy::Itself, Exit::Signal(signal)) => {
            Some(("process.signal", format!("signal {signal} ended it")))
        }
    }
}

fn planted(ended: &Ended) -> Option<(&'static str, String)> {
    if ended.planted.is_empty() {
        return None;
    }
    let names: Vec<String> =
        ended.planted.iter().map(|planted| format!("`{}`", planted.path.display())).collect();
    let names = names.join(", ");
    Some(("process.planted", format!("it made control files, which were moved aside: {names}")))
}
