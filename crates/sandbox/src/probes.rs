//! Live escape attempts: each asks, from inside a real sandbox, for something that must not be had.
//!
//! They need no program inside: the process that would become the program calls one of these functions instead, after
//! every step of the confinement. `regent doctor` runs them, and the tests do.

mod attempts;

use std::ffi::{CStr, CString, OsString};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::ended::{EndedBy, Exit, FinishedRun};
use crate::error::SandboxError;
use crate::plan::Means;
use crate::probe;
use crate::run::{run_payload, run_with};
use crate::spec::{Floor, Limits, Spec, WorkspaceMount};
use crate::view::c;

pub use attempts::ATTEMPTS;

/// One escape attempt.
#[derive(Debug)]
pub struct EscapeAttempt {
    /// A short name, the same on every host.
    pub name: &'static str,
    /// The case of the adversarial catalogue that it belongs to.
    pub case: u16,
    /// What must happen.
    pub must: &'static str,
    run: fn(&ProbeHost) -> i32,
    ends: AttemptEnd,
}

/// How a held attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptEnd {
    /// The function saw that it was refused, and says so with zero.
    Refused,
    /// The kernel kills it for trying.
    Killed,
    /// It is killed for its memory, or gets none.
    OutOfMemory,
}

/// The result of an attempt.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    /// As in [`EscapeAttempt`].
    pub name: &'static str,
    /// As in [`EscapeAttempt`].
    pub case: u16,
    /// As in [`EscapeAttempt`].
    pub must: &'static str,
    /// Whether the sandbox held.
    pub held: bool,
    /// What was seen.
    pub says: String,
}

/// Tries every attempt, each in its own sandbox.
///
/// # Errors
/// When a sandbox can't be made at all.
pub async fn try_all(floor: Floor) -> Result<Vec<Tried>, SandboxError> {
    try_with(floor, None).await
}

/// The same; tests choose the confinement as well.
async fn try_with(floor: Floor, means: Option<Means>) -> Result<Vec<Tried>, SandboxError> {
    try_some(floor, means, |_| true).await
}

async fn try_some(
    floor: Floor,
    means: Option<Means>,
    wanted: impl Fn(&EscapeAttempt) -> bool,
) -> Result<Vec<Tried>, SandboxError> {
    let mut results = Vec::with_capacity(ATTEMPTS.len());
    let stage = ProbeStage::set()?;
    for attempt in ATTEMPTS.iter().filter(|attempt| wanted(attempt)) {
        let builtin = Some(Builtin { run: attempt.run, host: Arc::clone(&stage.host) });
        let (spec, never) = (spec(floor), std::future::pending());
        let ended = match means {
            Some(means) => run_with(&spec, never, means, builtin).await?,
            None => run_payload(&spec, never, builtin).await?,
        };
        results.push(judge(attempt, &ended, &stage.host.daemon));
    }
    Ok(results)
}

/// Processes that the fork bomb may start; it tries more.
const PIDS_MAX: u32 = 24;
/// Memory that an attempt may use: a copy of us, and some more.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

fn spec(floor: Floor) -> Spec {
    let limits = Limits {
        wall_ms_max: 10_000,
        pids_max: PIDS_MAX,
        memory_bytes_max: MEMORY_BYTES_MAX,
        ..Limits::default()
    };
    Spec { cwd: "/".into(), floor, limits, ..Spec::new(["probe"]) }
}

fn judge(attempt: &EscapeAttempt, ended: &FinishedRun, daemon: &CStr) -> Tried {
    let left = attempts::survivors(daemon);
    let (held, says) = match (attempt.ends, ended.status) {
        _ if left > 0 => (false, format!("{left} of its processes outlived it")),
        (AttemptEnd::Refused | AttemptEnd::OutOfMemory, Exit::Code(0)) => (true, "refused".to_owned()),
        (AttemptEnd::OutOfMemory, Exit::Signal(_)) if ended.why == EndedBy::Memory => {
            (true, "killed at its memory limit".to_owned())
        }
        // Without 32-bit support the entry does not exist, which is a fault.
        (AttemptEnd::Killed, Exit::Signal(libc::SIGSYS | libc::SIGSEGV)) => {
            (true, "killed for the attempt".to_owned())
        }
        (_, Exit::Code(code)) => (false, format!("the attempt succeeded (code {code})")),
        (_, Exit::Signal(signal)) => (false, format!("it ended by signal {signal}")),
    };
    Tried { name: attempt.name, case: attempt.case, must: attempt.must, held, says }
}

/// A function to run in the program's place, and the facts about the host that it gets.
#[derive(Debug, Clone)]
pub(crate) struct Builtin {
    run: fn(&ProbeHost) -> i32,
    host: Arc<ProbeHost>,
}

impl Builtin {
    /// Does nothing, successfully.
    pub(crate) fn nothing() -> Self {
        Self { run: |_| 0, host: Arc::new(ProbeHost::default()) }
    }

    pub(crate) fn call(&self) -> i32 {
        (self.run)(&self.host)
    }
}

/// What there is on the host to be reached for. Prepared before the fork.
#[derive(Debug, Default)]
pub(crate) struct ProbeHost {
    /// Us.
    pid: i32,
    /// A TCP port of ours on the loopback interface.
    port: u16,
    /// The name of an abstract socket of ours.
    abstract_name: Vec<u8>,
    /// The file of a datagram socket of ours, which the sandbox hides.
    datagrams: CString,
    /// The file of a stream socket of ours, which one probe makes visible inside.
    stream: CString,
    /// The home folder of the current user.
    home: CString,
    /// Its mode, so that setting it again changes nothing.
    home_mode: u32,
    /// What a process that tries to stay calls itself; other runs of the probes use other names.
    daemon: CString,
}

/// Keeps the host's side of the attempts alive.
struct ProbeStage {
    host: Arc<ProbeHost>,
    _tcp: TcpListener,
    _local: UnixListener,
    _datagrams: UnixDatagram,
    _stream: UnixListener,
    folder: Scratch,
}

/// Names that are tried for a scratch folder.
const FOLDERS_MAX: u32 = 100;

/// A folder that is removed afterwards.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> std::io::Result<Self> {
        // Short and resolved: a socket's address has room for 107 bytes.
        let above = std::env::temp_dir().canonicalize()?;
        let mut taken = std::io::ErrorKind::AlreadyExists.into();
        // A killed process with the same number may have left its own behind, and anybody can put one there.
        for attempt in 0..FOLDERS_MAX {
            let folder = above.join(format!("{name}-{attempt}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(Self(folder)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left of it is empty sockets.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Whether a program in a sandbox of these means can connect to a socket file that we listen on in its workspace.
pub(crate) fn reaches_socket_file(means: Means) -> Result<bool, SandboxError> {
    let stage = ProbeStage::set()?;
    let workspace = WorkspaceMount::new(&stage.folder.0, true);
    let spec = Spec { cwd: "/".into(), workspace: Some(workspace), ..Spec::new(["probe"]) };
    let builtin = Builtin { run: attempts::workspace_socket, host: Arc::clone(&stage.host) };
    Ok(probe::run_blocking(&spec, means, Some(builtin))?.status != Exit::Code(attempts::HELD))
}

/// What the supervisor did in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Supervised {
    /// It made an ordinary file and refused a guarded one.
    Holds,
    /// It made neither.
    RefusesAll,
    /// The guarded file was made.
    AllowsGuarded,
}

/// Whether a supervisor works in a sandbox of these means. A real program, since the supervisor reads its memory, which that of a
/// built-in is closed to: a copy of ours.
pub(crate) fn supervised(means: Means) -> Result<Supervised, SandboxError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let fail = |cause| SandboxError::Host { doing: "preparing the probes", cause };
    let name = format!("regent-supervised-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = Scratch::new(&name).map_err(fail)?;
    let host = folder.0.canonicalize().map_err(fail)?;
    let script = "echo x > .envrc; echo x > made";
    let workspace = Some(WorkspaceMount::new(&host, true));
    let spec = Spec { cwd: host.clone(), workspace, ..Spec::new(["/bin/sh", "-c", script]) };
    probe::run_blocking(&spec, means, None)?;
    let exists = |name: &str| host.join(name).try_exists().map_err(fail);
    Ok(match (exists(".envrc")?, exists("made")?) {
        (true, _) => Supervised::AllowsGuarded,
        (false, true) => Supervised::Holds,
        (false, false) => Supervised::RefusesAll,
    })
}

impl ProbeStage {
    #[expect(clippy::disallowed_methods, reason = "a listener of the host, which the sandbox must not reach")]
    fn set() -> Result<Self, SandboxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let fail = |cause| SandboxError::Host { doing: "preparing the probes", cause };
        let tcp = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).map_err(fail)?;
        let port = tcp.local_addr().map_err(fail)?.port();
        let pid = std::process::id();
        let count = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("regent-probe-{pid}-{count}");
        // The kernel keeps fifteen characters.
        let daemon = c(format!("rd{pid}-{}", count % 1000))?;
        let local =
            SocketAddr::from_abstract_name(&name).and_then(|address| UnixListener::bind_addr(&address));
        let folder = Scratch::new(&name).map_err(fail)?;
        let (datagrams, stream) = (folder.0.join("datagrams"), folder.0.join("stream"));
        let home = std::env::var_os("HOME").unwrap_or_else(|| OsString::from_vec(b"/root".to_vec()));
        let home_mode = std::fs::metadata(&home).map_or(0o700, |metadata| metadata.mode() & 0o7777);
        let host = ProbeHost {
            pid: i32::try_from(pid).unwrap_or(i32::MAX),
            port,
            abstract_name: name.into_bytes(),
            datagrams: c(&datagrams)?,
            stream: c(&stream)?,
            home: c(home)?,
            home_mode,
            daemon,
        };
        Ok(Self {
            host: Arc::new(host),
            _tcp: tcp,
            _local: local.map_err(fail)?,
            _datagrams: UnixDatagram::bind(datagrams).map_err(fail)?,
            _stream: UnixListener::bind(stream).map_err(fail)?,
            folder,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::Sweep;
    use crate::ended::Confinement;
    use crate::grants::SCOPES_SOCKET_FILES;
    use crate::sys;

    async fn check(means: Means) {
        let tried = try_with(Floor::Full, Some(means)).await.unwrap();
        let broken: Vec<_> = tried.iter().filter(|tried| !tried.held).collect();
        assert!(broken.is_empty(), "{broken:#?}");
        assert!(tried.len() >= 40);
    }

    #[tokio::test]
    async fn every_attempt_is_held_in_the_full_box() {
        check(Means::new(Confinement::Full, sys::landlock_abi())).await;
    }

    #[tokio::test]
    async fn every_attempt_is_held_by_landlock_and_seccomp_alone() {
        check(Means::new(Confinement::LandlockSeccomp, sys::landlock_abi())).await;
    }

    /// With the filter of an older kernel, and without the kernel's list of children.
    #[tokio::test]
    async fn s5_8_every_attempt_is_held_by_the_fallback_of_an_older_kernel() {
        check(Means { sweep: Sweep::Scan, ..Means::new(Confinement::LandlockSeccomp, 4) }).await;
    }

    #[test]
    fn a_folder_that_is_there_already_does_not_stop_the_probes() {
        let name = format!("regent-taken-{}", std::process::id());
        let (first, second) = (Scratch::new(&name).unwrap(), Scratch::new(&name).unwrap());
        assert_ne!(first.0, second.0);
    }

    #[test]
    fn the_supervisor_is_tried_in_both_confinements() {
        for confinement in [Confinement::Full, Confinement::LandlockSeccomp] {
            let means = Means::new(confinement, sys::landlock_abi());
            assert_eq!(supervised(means).unwrap(), Supervised::Holds, "{confinement:?}");
        }
    }

    /// One attempt, in a sandbox of these means.
    async fn tried(name: &str, means: Means) -> Tried {
        let tried = try_some(Floor::Full, Some(means), |attempt| attempt.name == name).await.unwrap();
        tried.into_iter().next().unwrap()
    }

    #[tokio::test]
    async fn m7_the_fallback_sends_no_datagram_to_a_socket_of_the_host() {
        let tried =
            tried("datagram-socket", Means::new(Confinement::LandlockSeccomp, sys::landlock_abi())).await;
        assert!(tried.held, "{tried:?}");
    }

    #[tokio::test]
    async fn s5_7_the_copy_of_us_is_closed_before_there_is_a_second_process() {
        for confinement in [Confinement::Full, Confinement::LandlockSeccomp] {
            let tried = tried("inspect-copy", Means::new(confinement, sys::landlock_abi())).await;
            assert!(tried.held, "{tried:?}");
        }
    }

    #[test]
    fn s5_6_l3_socket_files_in_the_workspace_are_reached_only_where_the_receipt_says_so() {
        let abi = sys::landlock_abi();
        let reached = reaches_socket_file(Means::new(Confinement::Full, abi)).unwrap();
        assert_eq!(reached, abi < SCOPES_SOCKET_FILES);
        assert!(!reaches_socket_file(Means::new(Confinement::LandlockSeccomp, abi)).unwrap());
        let finding = crate::probe().findings.iter().find(|one| one.name == "workspace sockets").unwrap();
        assert_eq!(finding.ok, !reached);
    }

    fn passed_at_least(said: &str, count: usize) -> bool {
        let passed =
            said.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        passed.is_some_and(|passed: usize| passed >= count)
    }

    /// Runs those above again as somebody who has nothing to give up.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "it runs itself again, as somebody else")]
    fn every_attempt_of_an_ordinary_user_is_held() {
        use std::os::unix::fs::PermissionsExt as _;
        use std::os::unix::process::CommandExt as _;

        const NOBODY: u32 = 65_534;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("tests");
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        for path in [folder.path(), &copy] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut again = std::process::Command::new(&copy);
        again.args(["every_attempt_is_held", "s5_"]).uid(NOBODY).gid(NOBODY).current_dir("/").env_clear();
        let output = again.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && passed_at_least(&said, 5), "{said}");
    }
}
