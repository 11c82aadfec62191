//! What is to be run, what it may see, and what it may use.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use regent_kernel::JobControl;
use serde::Serialize;
use tokio::sync::{mpsc, watch};

use crate::ended::LimitedBy;
use crate::sink::Sink;
use crate::survey::{Listings, Survey};
use crate::terminal::Terminal;
use crate::writes::WriteRule;

/// Everything about one run. There are no other inputs: nothing is inherited that is not named here.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program and its arguments. A bare name is looked up along `PATH` of `env`, inside the view.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory, as seen inside.
    pub cwd: PathBuf,
    /// Where standard input comes from.
    pub stdin: Stdin,
    /// The folder that is worked in, if any.
    pub workspace: Option<WorkspaceMount>,
    /// Further host paths to show, read-only.
    pub binds: Vec<Bind>,
    /// What is hidden of those.
    pub covers: Vec<Cover>,
    /// What it may write of the workspace. `None`: everything that isn't guarded.
    pub writes: Option<WriteRule>,
    /// What it may use.
    pub limits: Limits,
    /// The least confinement that will do.
    pub floor: Floor,
    /// The least that has to hold the memory limit.
    pub memory: MemoryFloor,
    /// The terminal that the program is lent: its standard input, output and error are then a pseudo-terminal of ours, whose output goes
    /// where all output goes. `None`: `stdin` holds, and output is collected into [`crate::FinishedRun`], up to `output_bytes_max`.
    pub terminal: Option<Terminal>,
    /// Output is passed on here as it comes. `None`: it is collected.
    pub sink: Option<Sink>,
    /// Standard error is the same pipe as standard output: what was written first comes first.
    pub merges_stderr: bool,
    /// The egress proxy gets the listener of [`crate::EGRESS_PROXY`] here. `None`: there is no network.
    pub listener: Option<mpsc::Sender<TcpListener>>,
    /// Everything in the sandbox is stopped while this says so. Its wall clock runs on.
    pub held: Option<watch::Receiver<bool>>,
    /// Where it is noted that the user stopped the program with the shell's job. That time doesn't count.
    pub job_control: JobControl,
}

impl Spec {
    /// A run of `argv` with an empty environment but for `PATH`, `HOME` and `LANG`, and no workspace.
    pub fn new<I, S>(argv: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<OsString>,
    {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: vec![
                ("PATH".into(), DEFAULT_PATH.into()),
                ("HOME".into(), HOME.into()),
                ("LANG".into(), "C.UTF-8".into()),
            ],
            cwd: PathBuf::from("/tmp"),
            stdin: Stdin::Null,
            workspace: None,
            binds: Vec::new(),
            covers: Vec::new(),
            writes: None,
            limits: Limits::default(),
            floor: Floor::Full,
            memory: MemoryFloor::Any,
            terminal: None,
            sink: None,
            merges_stderr: false,
            listener: None,
            held: None,
            job_control: JobControl::default(),
        }
    }
}

/// Where programs are looked for when the environment has no `PATH`.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The home directory inside: empty, private, gone afterwards.
pub const HOME: &str = "/home/agent";

/// Git's settings for programs inside. `.git/config` can't be written there, and git would fail where it only wants to note which remote
/// branch a new branch follows.
pub fn git_environment() -> impl Iterator<Item = (OsString, OsString)> {
    [
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "branch.autoSetupMerge"),
        ("GIT_CONFIG_VALUE_0", "false"),
    ]
    .into_iter()
    .map(|(name, value)| (name.into(), value.into()))
}

/// Standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    /// Empty.
    Null,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
}

/// The folder that is worked in. It appears inside at its own real path, so that messages of compilers make sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceMount {
    /// Where it is on the host.
    pub host: PathBuf,
    /// Whether the program may change it.
    pub writable: bool,
    /// What a survey found in it. `None`: it is looked at when the program starts, and what
    /// the list of guarded places calls secret is hidden.
    pub survey: Option<Arc<Survey>>,
    /// What is remembered of its folders from one launch to the next.
    pub listings: Arc<Listings>,
}

impl WorkspaceMount {
    /// A folder in which the guarded places ([`regent_guard`]) can't be written or made, and secrets are hidden.
    pub fn new(host: impl Into<PathBuf>, writable: bool) -> Self {
        Self { host: host.into(), writable, survey: None, listings: Arc::default() }
    }
}

/// A host path to show inside, read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Where it is on the host.
    pub host: PathBuf,
    /// Where it appears inside.
    pub at: PathBuf,
}

impl Bind {
    /// Shows a path where it is.
    pub fn same(path: impl Into<PathBuf>) -> Self {
        let host = path.into();
        Self { at: host.clone(), host }
    }
}

/// A part of a bind whose content is hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    /// Where the bind appears inside.
    pub at: PathBuf,
    /// The part, relative to that.
    pub below: PathBuf,
    /// Whether it is a folder.
    pub folder: bool,
}

/// The limits of a run. Every limit is enforced; [`crate::Obtained`] says by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Real time before everything is killed.
    pub wall_ms_max: u64,
    /// Standard output and error together.
    pub output_bytes_max: u64,
    /// Memory of the whole run. Where neither a cgroup nor a watch holds it, of each process.
    pub memory_bytes_max: u64,
    /// Processes and threads at once.
    pub pids_max: u32,
    /// Open descriptors of each process.
    pub open_files_max: u32,
    /// Size of any one file written.
    pub file_bytes_max: u64,
    /// All private temporary files together (`/tmp`, `/var/tmp`, `/dev/shm`, home).
    pub tmp_bytes_max: u64,
    /// Processor time of each process.
    pub cpu_s_max: u64,
}

/// Files and directories that the private temporary file system can hold, whatever their size.
pub const TMP_FILES_MAX: u32 = 65_536;

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall_ms_max: 120_000,
            output_bytes_max: 16 << 20,
            memory_bytes_max: 2 << 30,
            pids_max: 512,
            open_files_max: 1024,
            file_bytes_max: 1 << 30,
            tmp_bytes_max: 512 << 20,
            cpu_s_max: 600,
        }
    }
}

/// The least confinement that will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Floor {
    /// Namespaces, a root file system of its own, Landlock and seccomp: all of them.
    Full,
    /// Landlock and seccomp on the host's own file tree will do where user namespaces are closed.
    LandlockSeccomp,
}

/// The least that has to hold the limit on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryFloor {
    /// Whatever there is: a limit for each process at least.
    Any,
    /// The run as a whole, by a cgroup or by a watch.
    Watch,
    /// A cgroup: the kernel holds it, buffers of its own included.
    Cgroup,
}

impl MemoryFloor {
    /// Whether this is enough.
    pub(crate) fn is_met_by(self, memory: LimitedBy) -> bool {
        let given = match memory {
            LimitedBy::CgroupV2 | LimitedBy::CgroupV1 | LimitedBy::Scope => Self::Cgroup,
            LimitedBy::Watch => Self::Watch,
            LimitedBy::Rlimit | LimitedBy::Nothing => Self::Any,
        };
        given >= self
    }
}

impl core::fmt::Display for Floor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Full => "namespaces, Landlock and seccomp",
            Self::LandlockSeccomp => "Landlock and seccomp",
        })
    }
}
