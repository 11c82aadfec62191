//! What confinement costs: `/bin/true` plain, in our process tier with its guards, and in bubblewrap, in turns; then a program
//! that makes many files, and guests of the microVM and WASM tiers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use regent_kernel::{ArgumentKind, Op, Reply, Status, Tier, ToolCall, ToolSpec};
use regent_policy::DEFAULT_POLICY;
use regent_sandbox::{Exit, Floor, Listings, ProcessTier, Spec, WorkspaceMount};
use regent_testkit::TestKernel;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::measure::{median, once};
use crate::report::Report;
use crate::{churn, repository};

const ROUNDS: usize = 200;
const ALONE_ROUNDS: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);
const PROGRAM: &str = "/bin/true";
/// Confinement of the same kind, as far as bubblewrap gives it.
pub const BWRAP: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
];

/// `sandbox.*`, `microvm.*` and `wasm.*`.
pub fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let bare: Vec<String> = BWRAP.iter().chain(&[PROGRAM]).map(|word| (*word).to_owned()).collect();
    let has_bwrap = bwrap(&bare).is_ok();
    if !has_bwrap {
        report.skip("sandbox.bwrap", "bubblewrap is not installed, or doesn't work here");
    }
    spawns(report, &runtime, has_bwrap)?;
    churn::measure(report, &runtime, has_bwrap)?;
    tiers(report, &runtime)
}

#[cfg(feature = "tiers")]
fn tiers(report: &mut Report, runtime: &Runtime) -> Result<()> {
    crate::microvm::measure(report, runtime)?;
    crate::wasm::measure(report)
}

#[cfg(not(feature = "tiers"))]
fn tiers(report: &mut Report, _runtime: &Runtime) -> Result<()> {
    report.skip("microvm, wasm", "this program was built without the feature `tiers`");
    Ok(())
}

/// Where programs are started: an empty workspace, and one with a repository in it.
struct Places {
    empty: tempfile::TempDir,
    /// Holds the kernel's folder, whose workspace has the repository.
    kernel: TestKernel,
    repository: PathBuf,
}

impl Places {
    fn new(runtime: &Runtime) -> Result<Self> {
        // The policy that `regent init` writes decides what the program may read, file by file.
        let builder = TestKernel::builder().policy(&format!("{DEFAULT_POLICY}{SPAWNS}"));
        let tier = Arc::new(ProcessTier::new(Floor::Full));
        let kernel = runtime.block_on(builder.declared(exec()).process(tier).boot());
        let kernel = kernel.map_err(|error| anyhow!(error))?;
        let repository = kernel.workspace().canonicalize()?;
        repository::write(&repository)?;
        Ok(Self { empty: tempfile::tempdir()?, kernel, repository })
    }
}

/// The test kernel starts an agent, about which the default policy asks.
const SPAWNS: &str = "\n  - { id: bench-spawns, effect: allow, match: { class: operator } }\n";

fn exec() -> ToolSpec {
    ToolSpec {
        arguments: [("/argv".to_owned(), ArgumentKind::Argv)].into(),
        capabilities: vec!["process.exec".to_owned()],
        tiers: vec![Tier::Process],
        ..regent_testkit::spec("process.exec")
    }
}

/// Starts a program that does nothing. Each of ours has a writable workspace, so that the survey, the supervisor and the blanks of
/// secrets are part of it.
fn spawns(report: &mut Report, runtime: &Runtime, has_bwrap: bool) -> Result<()> {
    let places = Places::new(runtime)?;
    let listings = Arc::default();
    let empty = places.empty.path().canonicalize()?;
    let bare: Vec<String> = BWRAP.iter().chain(&[PROGRAM]).map(|word| (*word).to_owned()).collect();
    let like_ours = with_repository(&places.repository)?;
    row(report, "true", || run(runtime, &empty, &listings), has_bwrap.then_some(|| bwrap(&bare)))?;
    let guarded = || run(runtime, &places.repository, &listings);
    row(report, "repository.true", guarded, has_bwrap.then_some(|| bwrap(&like_ours)))?;
    let called = || runtime.block_on(call(&places.kernel));
    row(report, "repository.call", called, None::<fn() -> Result<()>>)?;
    // To join a cgroup the kernel waits for all processors, unless somebody joined one a moment ago: a launch by itself takes longer.
    let mut alone = Vec::new();
    for _ in 0..ALONE_ROUNDS {
        std::thread::sleep(PAUSE);
        alone.push(timed(|| run(runtime, &empty, &listings))?);
    }
    report.figure("sandbox.process.true.alone", median(alone), "ms");
    Ok(())
}

/// One of our ways to start a program, a plain start of it and perhaps a rival's, in turns.
fn row(
    report: &mut Report,
    name: &str,
    ours: impl Fn() -> Result<()>,
    theirs: Option<impl Fn() -> Result<()>>,
) -> Result<()> {
    let (mut plain, mut confined, mut rival) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(timed(|| quiet(&mut Command::new(PROGRAM)))?);
        confined.push(timed(&ours)?);
        if let Some(theirs) = &theirs {
            rival.push(timed(theirs)?);
        }
    }
    let (plain, confined) = (median(plain), median(confined));
    report.figure(&format!("sandbox.plain.{name}"), plain, "ms");
    report.figure(&format!("sandbox.process.{name}"), confined, "ms");
    report.figure(&format!("sandbox.process.{name}.ratio"), confined / plain, "times");
    if !rival.is_empty() {
        let rival = median(rival);
        report.figure(&format!("sandbox.bwrap.{name}"), rival, "ms");
        report.figure(&format!("sandbox.bwrap.{name}.ratio"), rival / confined, "times");
    }
    Ok(())
}

fn timed(turn: impl FnOnce() -> Result<()>) -> Result<f64> {
    let (took_s, done) = once(turn);
    done.map(|()| took_s * 1e3)
}

fn run(runtime: &Runtime, workspace: &Path, listings: &Arc<Listings>) -> Result<()> {
    let listings = Arc::clone(listings);
    let mount = Some(WorkspaceMount { listings, ..WorkspaceMount::new(workspace, true) });
    let spec = Spec { workspace: mount, cwd: workspace.to_path_buf(), ..Spec::new([PROGRAM]) };
    let ended = runtime.block_on(regent_sandbox::run(spec, std::future::pending()))?;
    ensure!(matches!(ended.status, Exit::Code(0)), "{PROGRAM} failed in the sandbox");
    Ok(())
}

/// The same through the kernel, by an agent: judged, surveyed by policy, recorded in memory.
async fn call(kernel: &TestKernel) -> Result<()> {
    let op = Op::RunTool(ToolCall { tool: "process.exec".to_owned(), args: json!({"argv": [PROGRAM]}) });
    match kernel.call(op).await? {
        Reply::Done(outcome) if outcome.status == Status::Ok => Ok(()),
        other => Err(anyhow!("the call ended with {other:?}")),
    }
}

/// Bubblewrap with the repository writable, its control files read-only and its secrets empty.
fn with_repository(root: &Path) -> Result<Vec<String>> {
    let text = |path: PathBuf| path.into_os_string().into_string().ok().context("a path that isn't text");
    let whole = text(root.to_path_buf())?;
    let mut words: Vec<String> = BWRAP.iter().map(|word| (*word).to_owned()).collect();
    words.extend(["--bind".to_owned(), whole.clone(), whole.clone()]);
    for name in repository::GUARDED {
        let path = text(root.join(name))?;
        words.extend(["--ro-bind".to_owned(), path.clone(), path]);
    }
    for name in repository::SECRETS {
        words.extend(["--ro-bind".to_owned(), "/dev/null".to_owned(), text(root.join(name))?]);
    }
    words.extend(["--chdir".to_owned(), whole, PROGRAM.to_owned()]);
    Ok(words)
}

pub fn bwrap(words: &[String]) -> Result<()> {
    quiet(Command::new("bwrap").args(words))
}

pub fn quiet(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}
