//! Everything the child needs, prepared before it exists: after the fork it may not allocate.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit};

use crate::children::Sweep;
use crate::ended::{Confinement, LimitedBy};
use crate::error::SandboxError;
use crate::grants::{self, Ports};
use crate::probes::Builtin;
use crate::seccomp::{self, Profile, supervised};
use crate::spec::{DEFAULT_PATH, Floor, Limits, Spec, Stdin, TMP_FILES_MAX};
use crate::survey::Survey;
use crate::sys::{self, CStrings};
use crate::view::{BOX_UID, LandlockRule, SandboxView, c};

const ARGUMENTS_MAX: usize = 65_536;
/// Larger than any memory; a size that wraps in the kernel's arithmetic would mean "no limit".
const TMP_BYTES_CEILING: u64 = 1 << 40;

/// The program to become, or one of our own probes to run in its place.
#[derive(Debug)]
pub(crate) enum LaunchPayload {
    /// Try each path in turn.
    Exec { paths: Vec<CString>, argv: CStrings, envp: CStrings },
    /// Call this function and exit with what it returns.
    Builtin(Builtin),
}

/// A Landlock rule, resolved to bits.
#[derive(Debug)]
pub(crate) struct LandlockGrant {
    pub path: CString,
    pub bits: u64,
    pub optional: bool,
}

/// The child's script.
#[derive(Debug)]
pub(crate) struct LaunchPlan {
    pub confinement: Confinement,
    /// Whether the caller is root, to whom its own process files belong whether or not it can be looked into.
    pub by_root: bool,
    pub sweep: Sweep,
    pub uid_map: Vec<u8>,
    pub gid_map: Vec<u8>,
    pub tmpfs_size: CString,
    pub tmpfs_files: CString,
    pub view: SandboxView,
    pub grants: Vec<LandlockGrant>,
    pub ruleset: OwnedFd,
    pub filter: Vec<libc::sock_filter>,
    pub rlimits: Vec<(Resource, Rlimit)>,
    pub cwd: CString,
    pub payload: LaunchPayload,
    /// `cgroup.procs` of each cgroup v1 hierarchy to join.
    pub cgroups: Vec<OwnedFd>,
    pub stdio: [OwnedFd; 3],
    /// Whether they are a terminal, to be the controlling one of the program's session.
    pub terminal: bool,
    pub status: OwnedFd,
    pub lifeline: OwnedFd,
    /// Where the listener of the egress proxy goes, if there is one.
    pub egress_proxy: Option<OwnedFd>,
    /// Where the listener for supervised calls goes, if there is a supervisor, and the filter that names those calls.
    pub supervisor: Option<OwnedFd>,
    pub supervised: Vec<libc::sock_filter>,
    /// Every descriptor above, ascending: all others are closed first.
    pub keep: Vec<RawFd>,
}

/// The child's ends of what connects the two sides, each above 2.
pub(crate) struct ChildEnds {
    pub stdio: [OwnedFd; 3],
    pub status: OwnedFd,
    pub lifeline: OwnedFd,
    pub egress_proxy: Option<OwnedFd>,
    pub supervisor: Option<OwnedFd>,
    pub cgroups: Vec<OwnedFd>,
}

/// What the host gives this run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Means {
    pub confinement: Confinement,
    pub landlock_abi: u32,
    pub memory: LimitedBy,
    /// How the fallback finds what a program leaves behind.
    pub sweep: Sweep,
}

impl Means {
    /// What there is before anybody has looked for a cgroup.
    pub(crate) fn new(confinement: Confinement, landlock_abi: u32) -> Self {
        static SWEEP: OnceLock<Sweep> = OnceLock::new();
        let sweep = *SWEEP.get_or_init(|| Sweep::available().unwrap_or(Sweep::Scan));
        Self { confinement, landlock_abi, memory: LimitedBy::Rlimit, sweep }
    }
}

impl LaunchPlan {
    pub(crate) fn new(
        spec: &Spec,
        survey: &Survey,
        means: Means,
        ends: ChildEnds,
        builtin: Option<Builtin>,
    ) -> Result<Self, SandboxError> {
        let [stdin, ..] = &ends.stdio;
        let terminal = spec.terminal.as_ref().and_then(|_| sys::terminal::path_of(stdin.as_fd()));
        let (view, ports) = match means.confinement {
            Confinement::Full => (SandboxView::lay_out(spec, survey, terminal.as_deref())?, Ports::Private),
            Confinement::LandlockSeccomp => {
                (SandboxView::bare(spec, survey, terminal.as_deref())?, Ports::Closed)
            }
        };
        let ruleset = above_stdio(grants::ruleset(ports)?)?;
        let payload = match builtin {
            Some(builtin) => LaunchPayload::Builtin(builtin),
            None => exec(spec)?,
        };
        let ChildEnds { stdio, status, lifeline, egress_proxy, supervisor, cgroups } = ends;
        let mut keep: Vec<RawFd> = stdio
            .iter()
            .chain(&cgroups)
            .chain(&egress_proxy)
            .chain(&supervisor)
            .chain([&ruleset, &status, &lifeline])
            .map(AsRawFd::as_raw_fd)
            .collect();
        keep.sort_unstable();
        Ok(Self {
            confinement: means.confinement,
            by_root: rustix::process::geteuid().is_root(),
            sweep: means.sweep,
            uid_map: id_map(rustix::process::geteuid().as_raw()),
            gid_map: id_map(rustix::process::getegid().as_raw()),
            tmpfs_size: number(spec.limits.tmp_bytes_max.min(TMP_BYTES_CEILING))?,
            tmpfs_files: number(u64::from(TMP_FILES_MAX))?,
            grants: view.rules.iter().map(|rule| grant(rule, means.landlock_abi)).collect(),
            view,
            ruleset,
            filter: seccomp::cached(profile(means, supervisor.is_some())),
            rlimits: rlimits(&spec.limits, means.memory),
            cwd: c(&spec.cwd)?,
            payload,
            cgroups,
            stdio,
            terminal: spec.terminal.is_some(),
            status,
            lifeline,
            egress_proxy,
            supervised: if supervisor.is_some() {
                supervised::program(means.confinement)
            } else {
                Vec::new()
            },
            supervisor,
            keep,
        })
    }
}

/// Checks what can be checked without looking at the host.
pub(crate) fn check(spec: &Spec) -> Result<(), SandboxError> {
    let refuse = |why: &str| Err(SandboxError::Spec(why.to_owned()));
    if spec.argv.first().is_none_or(|program| program.is_empty()) {
        return refuse("there is no program to run");
    }
    if spec.argv.len() + spec.env.len() > ARGUMENTS_MAX {
        return refuse("too many arguments");
    }
    if !spec.cwd.is_absolute() {
        return refuse("the working directory is not an absolute path");
    }
    if spec.limits.tmp_bytes_max == 0 || spec.limits.memory_bytes_max == 0 || spec.limits.pids_max == 0 {
        // The kernel reads a size of zero as "no limit".
        return refuse("a limit is zero");
    }
    if let (Floor::LandlockSeccomp | Floor::Full, Stdin::Bytes(bytes)) = (spec.floor, &spec.stdin)
        && bytes.len() as u64 > spec.limits.file_bytes_max
    {
        return refuse("standard input is larger than `file_bytes_max`");
    }
    Ok(())
}

fn exec(spec: &Spec) -> Result<LaunchPayload, SandboxError> {
    let program = spec.argv.first().ok_or_else(|| SandboxError::Spec("there is no program".to_owned()))?;
    let paths = if program.as_bytes().contains(&b'/') {
        vec![c(program)?]
    } else {
        let given = spec.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        given
            .unwrap_or(OsStr::new(DEFAULT_PATH))
            .as_bytes()
            .split(|byte| *byte == b':')
            // A relative entry would look the program up in whatever folder we start in.
            .filter(|folder| folder.starts_with(b"/"))
            .map(|folder| c(OsStr::from_bytes(&[folder, b"/", program.as_bytes()].concat())))
            .collect::<Result<_, _>>()?
    };
    let mut environment = Vec::with_capacity(spec.env.len());
    for (name, value) in &spec.env {
        if name.is_empty() || name.as_bytes().contains(&b'=') {
            let name = name.to_string_lossy();
            return Err(SandboxError::Spec(format!("`{name}` is not the name of a variable")));
        }
        let mut pair = name.clone().into_vec();
        pair.push(b'=');
        pair.extend_from_slice(value.as_bytes());
        environment.push(c(OsStr::from_bytes(&pair))?);
    }
    let argv = spec.argv.iter().map(c).collect::<Result<_, _>>()?;
    Ok(LaunchPayload::Exec { paths, argv: CStrings::new(argv), envp: CStrings::new(environment) })
}

/// What may be called. `supervised`: there is a supervisor that some calls are handed to.
pub(crate) fn profile(means: Means, supervised: bool) -> Profile {
    match means.confinement {
        Confinement::Full if means.memory == LimitedBy::Watch => Profile::Watched,
        Confinement::Full => Profile::Full,
        Confinement::LandlockSeccomp => Profile::Bare {
            landlock_abi: means.landlock_abi,
            root: rustix::process::geteuid().is_root(),
            supervised,
        },
    }
}

fn grant(rule: &LandlockRule, abi: u32) -> LandlockGrant {
    LandlockGrant {
        path: rule.path.clone(),
        bits: rule.access.bits(rule.directory, abi),
        optional: rule.optional,
    }
}

/// Resource limits of the program. They hold for each process; what holds for the run as a whole is the cgroup's
/// and the temporary file system's.
fn rlimits(limits: &Limits, memory: LimitedBy) -> Vec<(Resource, Rlimit)> {
    let mut list = vec![
        (Resource::Core, 0),
        (Resource::Nofile, u64::from(limits.open_files_max)),
        (Resource::Fsize, limits.file_bytes_max),
        (Resource::Cpu, limits.cpu_s_max),
        // The first process of the sandbox counts too.
        (Resource::Nproc, u64::from(limits.pids_max).saturating_add(1)),
    ];
    if matches!(memory, LimitedBy::Rlimit | LimitedBy::Watch) {
        // Private writable memory, not address space: runtimes reserve far more addresses than they use.
        list.push((Resource::Data, limits.memory_bytes_max));
    }
    list.into_iter()
        .map(|(resource, wanted)| {
            let ceiling = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
            let value = Some(wanted.min(ceiling));
            (resource, Rlimit { current: value, maximum: value })
        })
        .collect()
}

/// One id inside for one outside.
fn id_map(host: u32) -> Vec<u8> {
    format!("{BOX_UID} {host} 1\n").into_bytes()
}

fn number(value: u64) -> Result<CString, SandboxError> {
    c(value.to_string())
}

/// Moves a descriptor out of the way of 0, 1 and 2, which the program's own will take.
pub(crate) fn above_stdio(fd: OwnedFd) -> Result<OwnedFd, SandboxError> {
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    rustix::io::fcntl_dupfd_cloexec(&fd, 3).map_err(SandboxError::host("duplicating a descriptor"))
}
