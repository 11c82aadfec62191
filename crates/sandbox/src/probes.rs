//! Live escape attempts: each asks, from inside a real box, for something that must not be had.
//!
//! They need no program inside: the process that would become the program calls one of these functions instead, after
//! every step of the confinement. `regent doctor` runs them, and the tests do.

mod attempts;

use std::ffi::{CStr, CString, OsString};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::ended::{Ended, Exit};
use crate::error::SandboxError;
use crate::plan::Means;
use crate::run::{run_payload, run_with};
use crate::spec::{Floor, Limits, Spec};
use crate::view::c;

pub use attempts::ATTEMPTS;

/// One escape attempt.
#[derive(Debug)]
pub struct Attempt {
    /// A short name, the same on every host.
    pub name: &'static str,
    /// The case of the adversarial catalogue that it belongs to.
    pub case: u16,
    /// What must happen.
    pub must: &'static str,
    run: fn(&Host) -> i32,
    ends: Ends,
}

/// How a held attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// The function saw that it was refused, and says so with zero.
    Refused,
    /// The kernel kills it for trying.
    Killed,
}

/// What became of an attempt.
#[derive(Debug, Clone, Serialize)]
pub struct Tried {
    /// As in [`Attempt`].
    pub name: &'static str,
    /// As in [`Attempt`].
    pub case: u16,
    /// As in [`Attempt`].
    pub must: &'static str,
    /// Whether the box held.
    pub held: bool,
    /// What was seen.
    pub says: String,
}

/// Tries every attempt, each in a box of its own.
///
/// # Errors
/// When a box can't be made at all.
pub async fn try_all(floor: Floor) -> Result<Vec<Tried>, SandboxError> {
    try_with(floor, None).await
}

/// The same; tests choose the confinement as well.
async fn try_with(floor: Floor, means: Option<Means>) -> Result<Vec<Tried>, SandboxError> {
    let mut results = Vec::with_capacity(ATTEMPTS.len());
    let stage = Stage::set()?;
    for attempt in ATTEMPTS {
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

fn spec(floor: Floor) -> Spec {
    let limits = Limits { wall_ms_max: 10_000, pids_max: PIDS_MAX, ..Limits::default() };
    Spec { cwd: "/".into(), floor, limits, ..Spec::new(["probe"]) }
}

fn judge(attempt: &Attempt, ended: &Ended, daemon: &CStr) -> Tried {
    let left = attempts::survivors(daemon);
    let (held, says) = match (attempt.ends, ended.status) {
        _ if left > 0 => (false, format!("{left} of its processes outlived it")),
        (Ends::Refused, Exit::Code(0)) => (true, "refused".to_owned()),
        // Without 32-bit support the entry does not exist, which is a fault.
        (Ends::Killed, Exit::Signal(libc::SIGSYS | libc::SIGSEGV)) => (true, "killed for trying".to_owned()),
        (_, Exit::Code(code)) => (false, format!("it got through (code {code})")),
        (_, Exit::Signal(signal)) => (false, format!("it ended by signal {signal}")),
    };
    Tried { name: attempt.name, case: attempt.case, must: attempt.must, held, says }
}

/// A function to run in the program's place, and what it is told about the host.
#[derive(Debug, Clone)]
pub(crate) struct Builtin {
    run: fn(&Host) -> i32,
    host: Arc<Host>,
}

impl Builtin {
    /// Does nothing, successfully.
    pub(crate) fn nothing() -> Self {
        Self { run: |_| 0, host: Arc::new(Host::default()) }
    }

    pub(crate) fn call(&self) -> i32 {
        (self.run)(&self.host)
    }
}

/// What there is on the host to be reached for. Prepared before the fork.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Us.
    pid: i32,
    /// A TCP port of ours on the loopback interface.
    port: u16,
    /// An abstract socket of ours, as a `sockaddr_un`.
    socket: Vec<u8>,
    /// The home folder of whoever runs this.
    home: CString,
    /// Its mode, so that setting it again changes nothing.
    home_mode: u32,
    /// What a process that tries to stay calls itself; other runs of the probes use other names.
    daemon: CString,
}

/// Keeps the host's side of the attempts alive.
struct Stage {
    host: Arc<Host>,
    _tcp: TcpListener,
    _local: UnixListener,
}

impl Stage {
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
        let mut socket = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
        socket.push(0);
        socket.extend_from_slice(name.as_bytes());
        let home = std::env::var_os("HOME").unwrap_or_else(|| OsString::from_vec(b"/root".to_vec()));
        let home_mode = std::fs::metadata(&home).map_or(0o700, |metadata| metadata.mode() & 0o7777);
        let host = Host {
            pid: i32::try_from(pid).unwrap_or(i32::MAX),
            port,
            socket,
            home: c(home)?,
            home_mode,
            daemon,
        };
        Ok(Self { host: Arc::new(host), _tcp: tcp, _local: local.map_err(fail)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ended::{Confinement, LimitedBy};
    use crate::sys;

    async fn check(confinement: Confinement) {
        let means = Means { confinement, landlock_abi: sys::landlock_abi(), memory: LimitedBy::Rlimit };
        let tried = try_with(Floor::Full, Some(means)).await.unwrap();
        let broken: Vec<_> = tried.iter().filter(|tried| !tried.held).collect();
        assert!(broken.is_empty(), "{broken:#?}");
        assert!(tried.len() >= 40);
    }

    #[tokio::test]
    async fn every_attempt_is_held_in_the_full_box() {
        check(Confinement::Full).await;
    }

    #[tokio::test]
    async fn every_attempt_is_held_by_landlock_and_seccomp_alone() {
        check(Confinement::LandlockSeccomp).await;
    }

    /// Runs the two above again as somebody who has nothing to give up.
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
        again.arg("every_attempt_is_held").uid(NOBODY).gid(NOBODY).current_dir("/").env_clear();
        let output = again.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("2 passed"), "{said}");
    }
}
