//! How a run ended, and what confinement it really had.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A run that took place.
#[derive(Debug, Clone)]
pub struct FinishedRun {
    /// How the program itself ended.
    pub status: Exit,
    /// What it wrote to standard output, if captured.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error, if captured.
    pub stderr: Vec<u8>,
    /// Whether output beyond the cap was thrown away.
    pub truncated: bool,
    /// Who ended it.
    pub why: EndedBy,
    /// The confinement it had.
    pub obtained: Obtained,
    /// Guarded names that appeared in the workspace while it ran, although it could not make them: where each was moved to.
    pub planted: Vec<Planted>,
    /// Guarded names that it tried to make or write, and was refused: the first few.
    pub refused: Vec<PathBuf>,
    /// Names that policy asks about or denies to `fs.write`, which it tried to make or write: relative to the workspace, the first few.
    pub refused_by_policy: Vec<PathBuf>,
    /// Folders that it could not move in one piece because they could not be searched: the first few.
    pub refused_unsearched: Vec<PathBuf>,
    /// How many more there were.
    pub refused_more: u64,
    /// How long its calls waited for other sandboxes of this user, in whole seconds of each wait.
    pub waited_ms: u64,
    /// Processor time of the whole run.
    pub cpu_ms: u64,
    /// Largest resident size of any one of its processes.
    pub rss_bytes_peak: u64,
    /// Real time.
    pub wall_ms: u64,
}

/// How a run ended, in its receipt under `ended`. Names that aren't UTF-8 are shown as far as they can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramEnded {
    /// How the program itself ended.
    pub status: Exit,
    /// Who ended it.
    pub why: EndedBy,
    /// Bytes on standard output.
    pub stdout_bytes: u64,
    /// Bytes on standard error.
    pub stderr_bytes: u64,
    /// Whether output beyond the cap was thrown away.
    pub truncated: bool,
    /// Guarded names that appeared although the program could not make them.
    pub planted: Vec<PlantedName>,
    /// Guarded names that it was refused.
    pub refused: Vec<String>,
    /// Names that policy asks about or denies.
    pub refused_by_policy: Vec<String>,
    /// Folders that could not be searched.
    pub refused_unsearched: Vec<String>,
    /// How many more there were.
    pub refused_more: u64,
    /// How long its calls waited for other sandboxes of this user.
    pub waited_ms: u64,
    /// Processor time of the whole run.
    pub cpu_ms: u64,
    /// Largest resident size of any one of its processes.
    pub rss_bytes_peak: u64,
    /// Real time.
    pub wall_ms: u64,
}

/// A guarded name that appeared, as a receipt has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlantedName {
    /// Where it appeared.
    pub path: String,
    /// Where it is now; `None` if it could not be moved and is still there.
    pub moved_to: Option<String>,
    /// Why it could not be moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_because: Option<String>,
}

impl ProgramEnded {
    pub(crate) fn new(run: &FinishedRun, (stdout_bytes, stderr_bytes): (u64, u64)) -> Self {
        let name = |path: &PathBuf| path.to_string_lossy().into_owned();
        let names = |paths: &[PathBuf]| paths.iter().map(name).collect();
        let planted = |one: &Planted| PlantedName {
            path: name(&one.path),
            moved_to: one.moved_to.as_ref().map(name),
            left_because: one.left_because.clone(),
        };
        Self {
            status: run.status,
            why: run.why,
            stdout_bytes,
            stderr_bytes,
            truncated: run.truncated,
            planted: run.planted.iter().map(planted).collect(),
            refused: names(&run.refused),
            refused_by_policy: names(&run.refused_by_policy),
            refused_unsearched: names(&run.refused_unsearched),
            refused_more: run.refused_more,
            waited_ms: run.waited_ms,
            cpu_ms: run.cpu_ms,
            rss_bytes_peak: run.rss_bytes_peak,
            wall_ms: run.wall_ms,
        }
    }

    /// Reads it from the receipt of a program that was started.
    pub fn read(receipt: &Value) -> Option<Self> {
        Self::deserialize(receipt.get("ended")?).ok()
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// What ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// The program, by itself.
    Itself,
    /// Us: its time was over.
    WallClock,
    /// Us: it wrote too much.
    OutputCap,
    /// Us: the caller cancelled it.
    Killed,
    /// The kernel: its memory limit was reached.
    Memory,
}

/// A guarded name that appeared during a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planted {
    /// Where it appeared.
    pub path: PathBuf,
    /// Where it is now; `None` if it could not be moved and is still there.
    pub moved_to: Option<PathBuf>,
    /// Why it could not be moved.
    pub left_because: Option<String>,
}

/// The confinement obtained, as opposed to requested. Goes into the receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Obtained {
    /// The kind of confinement.
    pub confinement: Confinement,
    /// User namespace: no privilege inside is one outside.
    pub user_ns: bool,
    /// Mount namespace.
    pub mount_ns: bool,
    /// Process namespace: nothing outlives its first process.
    pub pid_ns: bool,
    /// Network namespace, empty.
    pub net_ns: bool,
    /// Its egress proxy.
    pub egress_proxy: bool,
    /// System V and POSIX message queue namespace.
    pub ipc_ns: bool,
    /// Host name namespace.
    pub uts_ns: bool,
    /// Cgroup namespace.
    pub cgroup_ns: bool,
    /// A root file system of its own.
    pub pivot_root: bool,
    /// A process file system of its own, read-only.
    pub fresh_proc: bool,
    /// Landlock ABI in force; zero means none.
    pub landlock_abi: u32,
    /// Which socket files it could connect to.
    pub unix_sockets: UnixSockets,
    /// The system call filter.
    pub seccomp: bool,
    /// `no_new_privs`.
    pub no_new_privs: bool,
    /// Every capability dropped, the bounding set included.
    pub capabilities_dropped: bool,
    /// What holds the memory limit.
    pub memory: LimitedBy,
    /// What holds the limit on processes.
    pub pids: LimitedBy,
    /// Size of the private temporary file system; `None`: there is none.
    pub tmp_bytes_max: Option<u64>,
}

/// The kind of confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confinement {
    /// Namespaces, own root, Landlock, seccomp.
    Full,
    /// Landlock and seccomp on the host's own file tree.
    LandlockSeccomp,
}

/// Which Unix sockets with a path a program can connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnixSockets {
    /// None: the fallback has no sockets.
    None,
    /// Those that it listens on itself.
    Own,
    /// Those too that others listen on in its workspace: Landlock scopes them from ABI 9 only.
    Workspace,
}

/// What enforces a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// Cgroup v2: the whole run together.
    CgroupV2,
    /// Cgroup v1: the whole run together.
    CgroupV1,
    /// Cgroup v2, in a scope that the user's service manager made for us: the whole run together.
    Scope,
    /// We add up the memory of its processes, and kill the whole run when it is too much.
    Watch,
    /// A resource limit: memory is per process; processes are counted per run in a user namespace.
    Rlimit,
    /// Nothing holds it (the kernel exempts root from the process limit, and there is no cgroup).
    Nothing,
}
