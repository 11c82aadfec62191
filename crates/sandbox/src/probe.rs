//! What this host really gives, found by trying.
#![expect(unsafe_code, reason = "forks that find out which namespaces can be made")]

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use serde::Serialize;

use crate::cgroup::{self, Hierarchy};
use crate::children::Sweep;
use crate::ended::{Confinement, EndedBy};
use crate::error::{SandboxError, SetupStep};
use crate::launch::SandboxProcess;
use crate::memory;
use crate::plan::Means;
use crate::probes::{self, Builtin, Supervised};
use crate::run::{self, ChildReport};
use crate::spec::{Floor, Spec};
use crate::sys::{self, ForkSide};
use crate::wire::got;

/// The findings.
#[derive(Debug, Clone, Serialize)]
pub struct Probe {
    /// The full confinement: `None` if it works, else why not.
    pub full: Option<Closed>,
    /// Landlock and seccomp alone: `None` if it works, else why not.
    pub fallback: Option<Closed>,
    /// Landlock ABI; zero means none.
    pub landlock_abi: u32,
    /// Where cgroups can be made.
    pub cgroups: Hierarchy,
    /// Each finding in words.
    pub findings: Vec<Finding>,
}

/// Why something doesn't work, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Closed {
    /// What the kernel refused.
    pub reason: String,
    /// What would open it, when we know.
    pub fix: Option<String>,
}

/// One finding, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A short name, the same on every host.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// A sentence.
    pub says: String,
    /// What would make it so.
    pub fix: Option<String>,
}

/// Tries everything, once per process.
pub fn probe() -> &'static Probe {
    static FOUND: OnceLock<Probe> = OnceLock::new();
    FOUND.get_or_init(|| {
        let landlock_abi = sys::landlock_abi();
        let (full, got) = full().clone();
        let (fallback, _) = trial(Confinement::LandlockSeccomp, landlock_abi);
        let cgroups = cgroup::hierarchy().clone();
        let mut findings = namespaces();
        findings.push(landlock(landlock_abi));
        findings.push(confinement("full confinement", full.as_ref()));
        findings.push(confinement("fallback confinement", fallback.as_ref()));
        findings.push(process_file_system(full.is_none(), got));
        findings.push(descendants());
        findings.push(supervision(full.is_none(), landlock_abi));
        findings.push(socket_files(full.is_none(), landlock_abi));
        findings.push(limits(&cgroups));
        findings.push(memory(&cgroups));
        Probe { full, fallback, landlock_abi, cgroups, findings }
    })
}

/// Why the full confinement doesn't work, and what it gives where it does.
static FULL: OnceLock<(Option<Closed>, u32)> = OnceLock::new();

/// Tries the full confinement, once per process.
fn full() -> &'static (Option<Closed>, u32) {
    FULL.get_or_init(|| trial(Confinement::Full, sys::landlock_abi()))
}

/// Why the full confinement doesn't work; `None` if it does. This is one launch, where [`probe`] is a dozen.
pub fn full_closed() -> Option<&'static Closed> {
    full().0.as_ref()
}

/// Whether the full confinement is closed. Tries it, so it is asked only after a failure.
pub(crate) fn is_closed() -> bool {
    full_closed().is_some()
}

/// What would open the full confinement, when we know.
pub(crate) fn fix_of_full() -> Option<String> {
    full_closed().and_then(|closed| closed.fix.clone())
}

/// The confinement to use for a floor, or the loud refusal.
pub(crate) fn means(floor: Floor) -> Result<Means, SandboxError> {
    static ABI: OnceLock<u32> = OnceLock::new();
    let landlock_abi = *ABI.get_or_init(sys::landlock_abi);
    let means = |confinement| Means::new(confinement, landlock_abi);
    let refuse = |closed: &Closed| SandboxError::Unavailable {
        needed: floor,
        reason: closed.reason.clone(),
        fix: closed.fix.clone(),
    };
    if landlock_abi == 0 {
        return Err(refuse(&no_landlock()));
    }
    // What nobody has tried yet is taken to work: a run that fails tries it.
    let Some((Some(closed), _)) = FULL.get() else { return Ok(means(Confinement::Full)) };
    match (floor, &probe().fallback) {
        (Floor::Full, _) => Err(refuse(closed)),
        (Floor::LandlockSeccomp, None) => Ok(means(Confinement::LandlockSeccomp)),
        (Floor::LandlockSeccomp, Some(closed)) => Err(refuse(closed)),
    }
}

/// A whole launch with nothing in it.
fn trial(confinement: Confinement, landlock_abi: u32) -> (Option<Closed>, u32) {
    if landlock_abi == 0 {
        return (Some(no_landlock()), 0);
    }
    if confinement == Confinement::LandlockSeccomp && Sweep::available().is_none() {
        return (Some(no_children()), 0);
    }
    let spec = Spec { cwd: "/".into(), ..Spec::new(["true"]) };
    match run_blocking(&spec, Means::new(confinement, landlock_abi), Some(Builtin::nothing())) {
        Ok(report) => (None, report.got),
        Err(error) => (Some(closed(&error)), 0),
    }
}

/// Runs a program or a built-in to its end, without a runtime.
pub(crate) fn run_blocking(
    spec: &Spec,
    means: Means,
    builtin: Option<Builtin>,
) -> Result<ChildReport, SandboxError> {
    let survey = run::survey(spec)?;
    let mut running = SandboxProcess::start(spec, &survey, means, builtin)?;
    running.reap()?;
    // Everyone who could write is dead, and what they wrote fits the pipe.
    let mut bytes = Vec::new();
    if let Some(status) = running.status.take() {
        File::from(status)
            .read_to_end(&mut bytes)
            .map_err(|cause| SandboxError::Host { doing: "probing", cause })?;
    }
    ChildReport::read(&bytes, &running, spec, EndedBy::Itself)
}

fn closed(error: &SandboxError) -> Closed {
    let fix = match error {
        SandboxError::Setup {
            step:
                SetupStep::Clone | SetupStep::Network | SetupStep::Identity | SetupStep::Root | SetupStep::Pivot,
            ..
        } => Some(open_namespaces()),
        SandboxError::Setup { .. }
        | SandboxError::Unavailable { .. }
        | SandboxError::Spec(_)
        | SandboxError::Program { .. }
        | SandboxError::Memory { .. }
        | SandboxError::Unreadable { .. }
        | SandboxError::NoEgressProxy { .. }
        | SandboxError::Host { .. } => None,
    };
    Closed { reason: error.to_string(), fix }
}

fn no_children() -> Closed {
    Closed {
        reason: "`/proc` doesn't list this process's children, so leftover processes of a program couldn't be killed"
            .to_owned(),
        fix: Some("mount `/proc`, or enable user namespaces".to_owned()),
    }
}

fn no_landlock() -> Closed {
    Closed {
        reason: "the kernel has no Landlock, or it is not enabled".to_owned(),
        fix: Some("use Linux 5.13 or later with `landlock` in the `lsm=` boot parameter".to_owned()),
    }
}

/// What commonly closes user namespaces, and how each is opened.
fn open_namespaces() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        return "`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or an AppArmor profile for this program \
                that allows `userns`"
            .to_owned();
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        return "`sysctl -w kernel.unprivileged_userns_clone=1`".to_owned();
    }
    if read("/proc/sys/user/max_user_namespaces") == "0" {
        return "`sysctl -w user.max_user_namespaces=15000`".to_owned();
    }
    "in a container: allow user namespaces and mounts (its seccomp profile refuses them), or run Regent on the host"
        .to_owned()
}

fn namespaces() -> Vec<Finding> {
    let kinds = [
        ("user namespace", 0),
        ("mount namespace", libc::CLONE_NEWNS),
        ("pid namespace", libc::CLONE_NEWPID),
        ("network namespace", libc::CLONE_NEWNET),
        ("ipc namespace", libc::CLONE_NEWIPC),
        ("uts namespace", libc::CLONE_NEWUTS),
        ("cgroup namespace", libc::CLONE_NEWCGROUP),
    ];
    kinds
        .into_iter()
        .map(|(name, flag)| {
            let flags = (libc::CLONE_NEWUSER | flag).cast_unsigned();
            match born_in(u64::from(flags)) {
                Ok(()) => Finding { name, ok: true, says: format!("{name}: available"), fix: None },
                Err(errno) => {
                    let says = format!("{name}: not available: {errno}");
                    Finding { name, ok: false, says, fix: Some(open_namespaces()) }
                }
            }
        })
        .collect()
}

/// Whether a child can be born into these namespaces.
fn born_in(flags: u64) -> Result<(), rustix::io::Errno> {
    let mask = sys::block_signals();
    // SAFETY: the child exits at once.
    let side = unsafe { sys::fork(flags, None) };
    if matches!(side, Ok(ForkSide::Child)) {
        sys::exit(0);
    }
    sys::restore_signals(&mask);
    match side? {
        ForkSide::Parent(pidfd, _) => sys::wait(pidfd.as_fd(), true).map(drop),
        ForkSide::Child => sys::exit(0),
    }
}

fn landlock(abi: u32) -> Finding {
    let name = "landlock";
    match abi {
        0 => Finding { name, ok: false, says: no_landlock().reason, fix: no_landlock().fix },
        1..6 => Finding {
            name,
            ok: true,
            says: format!("Landlock ABI {abi}: files, but signals are not scoped before ABI 6"),
            fix: Some("Linux 6.12 or later scopes signals and abstract sockets".to_owned()),
        },
        _ => Finding { name, ok: true, says: format!("Landlock ABI {abi}"), fix: None },
    }
}

fn confinement(name: &'static str, closed: Option<&Closed>) -> Finding {
    match closed {
        None => Finding { name, ok: true, says: format!("{name} works (tested)"), fix: None },
        Some(closed) => Finding {
            name,
            ok: false,
            says: format!("{name} does not work: {}", closed.reason),
            fix: closed.fix.clone(),
        },
    }
}

fn process_file_system(full: bool, bits: u32) -> Finding {
    let name = "process file system";
    let ok = full && bits & got::FRESH_PROC != 0;
    let says = match (full, ok) {
        (true, true) => "a sandbox gets its own `/proc`",
        (true, false) => {
            "a sandbox gets no `/proc`: the host's is partly masked, so the kernel refuses a new one"
        }
        (false, _) => "a sandbox gets a few files of the host's `/proc`",
    };
    Finding { name, ok, says: says.to_owned(), fix: None }
}

/// How the fallback finds what a program leaves behind.
fn descendants() -> Finding {
    let name = "descendants";
    let (ok, says) = match Sweep::available() {
        Some(Sweep::List) => (true, "the kernel lists the children of a process"),
        Some(Sweep::Scan) => (true, "the kernel has no list of children: the fallback checks every process"),
        None => (false, "children of a process can't be found: the fallback is refused"),
    };
    Finding { name, ok, says: says.to_owned(), fix: (!ok).then(|| "mount `/proc`".to_owned()) }
}

/// Whether a program in a writable workspace can make an ordinary file and no guarded one: tried.
fn supervision(full: bool, landlock_abi: u32) -> Finding {
    let name = "supervisor";
    let confinement = if full { Confinement::Full } else { Confinement::LandlockSeccomp };
    let (ok, says) = match probes::supervised(Means::new(confinement, landlock_abi)) {
        Ok(Supervised::Holds) => (
            true,
            "a program can create ordinary files in its workspace, but no guarded ones (tested)".to_owned(),
        ),
        Ok(Supervised::RefusesAll) => (
            false,
            "programs can't create or write files: the kernel doesn't let Regent read their system calls"
                .to_owned(),
        ),
        Ok(Supervised::AllowsGuarded) => (false, "a program can create a guarded file".to_owned()),
        Err(error) => (false, format!("programs can't be supervised: {error}")),
    };
    Finding { name, ok, says, fix: (!ok).then(open_supervision) }
}

/// What lets the supervisor of a run read its system calls.
fn open_supervision() -> String {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "2" => "`sysctl -w kernel.yama.ptrace_scope=1`: 2 keeps Regent from reading the calls of its own programs",
        "3" => "boot with `kernel.yama.ptrace_scope` at 1 or less: 3 can't be changed while the system runs",
        _other => {
            "in a container or under another supervisor: allow a seccomp listener and `process_vm_readv`, or run Regent on the host"
        }
    }
    .to_owned()
}

/// Whether a program reaches a socket file that somebody else listens on in its workspace: tried.
fn socket_files(full: bool, landlock_abi: u32) -> Finding {
    let name = "workspace sockets";
    let confinement = if full { Confinement::Full } else { Confinement::LandlockSeccomp };
    let (ok, says) = match probes::reaches_socket_file(Means::new(confinement, landlock_abi)) {
        Ok(false) => {
            (true, "a program can't connect to other processes' sockets in its workspace (tested)".to_owned())
        }
        Ok(true) => (
            false,
            "a program can connect to other processes' sockets in its workspace, such as a database's (tested)"
                .to_owned(),
        ),
        Err(error) => {
            (false, format!("can't determine whether sockets in a workspace are reachable: {error}"))
        }
    };
    let fix = "keep server sockets out of the workspace; a kernel with Landlock ABI 9 refuses the connection";
    Finding { name, ok, says, fix: (!ok).then(|| fix.to_owned()) }
}

fn limits(cgroups: &Hierarchy) -> Finding {
    let name = "cgroups";
    let (ok, says) = match cgroups {
        Hierarchy::V2(parent) => (true, format!("cgroup v2 below `{}`", parent.display())),
        Hierarchy::V1 { memory, pids } => (
            memory.is_some() && pids.is_some(),
            format!(
                "cgroup v1: memory {}, processes {}",
                if memory.is_some() { "yes" } else { "no" },
                if pids.is_some() { "yes" } else { "no" }
            ),
        ),
        Hierarchy::Scope(parent) => {
            (true, format!("cgroup v2 in Regent's own scope, `{}`", parent.display()))
        }
        Hierarchy::None => (
            false,
            "no cgroup available: a run is monitored, and resource limits apply per process".to_owned(),
        ),
    };
    Finding { name, ok, says, fix: (!ok).then(|| DELEGATE.to_owned()) }
}

/// What gives a host's ordinary user cgroups.
pub(crate) const DELEGATE: &str =
    "run Regent in a delegated cgroup, e.g. `systemd-run --user --scope -p Delegate=yes regent …`";

/// What holds the memory limit of a run.
fn memory(cgroups: &Hierarchy) -> Finding {
    let name = "memory limit";
    let holds = match cgroups {
        Hierarchy::V2(_) | Hierarchy::Scope(_) | Hierarchy::V1 { memory: Some(_), .. } => "a cgroup",
        Hierarchy::V1 { memory: None, .. } | Hierarchy::None if memory::can_watch() => "a watch",
        Hierarchy::V1 { memory: None, .. } | Hierarchy::None => "a limit per process",
    };
    let says = match holds {
        "a cgroup" => "a cgroup limits the memory of a whole run",
        "a watch" => {
            "no cgroup: Regent monitors the memory of a run's processes and kills a run over its limit within milliseconds"
        }
        _each => "no cgroup and no readable `/proc`: memory is limited per process only",
    };
    Finding {
        name,
        ok: holds == "a cgroup",
        says: says.to_owned(),
        fix: (holds != "a cgroup").then(|| DELEGATE.to_owned()),
    }
}
