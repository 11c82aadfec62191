//! A delegated cgroup from the user's service manager, for an ordinary user whose session has none (a login by SSH or on a console).
//!
//! The manager moves this process into a scope of its own. There it moves on into a leaf, since a cgroup with members can't give
//! controllers to its children, and hands `memory` and `pids` down. Runs are siblings of that leaf. The manager removes the scope when
//! its last process is gone.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Hierarchy, own_folder};
use crate::plain;

const BUSCTL: &str = "/usr/bin/busctl";
/// For the manager's answer, and then for the move.
const WAIT_MAX: Duration = Duration::from_millis(1_000);
const LOOK: Duration = Duration::from_millis(5);
/// Where this process itself goes.
const LEAF: &str = "regent";

/// Asks for a scope where there is somebody to ask; `None` where not, or where it can't be used.
pub(super) fn of_our_own() -> Option<Hierarchy> {
    // Root makes its own; if it can't, neither can its manager.
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)?;
    if rustix::process::geteuid().is_root() || !runtime.join("systemd/private").exists() {
        return None;
    }
    let before = own()?;
    ask(Path::new(BUSCTL))?;
    let began = Instant::now();
    let scope = loop {
        match own()? {
            now if now != before => break now,
            _same if began.elapsed() > WAIT_MAX => return None,
            _same => std::thread::sleep(LOOK),
        }
    };
    divide(&scope).ok()?;
    Some(Hierarchy::Scope(scope))
}

/// The folder of the cgroup that this process is in.
fn own() -> Option<PathBuf> {
    let read = |path: &str| fs::read_to_string(path).ok();
    own_folder(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?, None)
}

/// Moves this process to a leaf of the scope, and hands the controllers down.
fn divide(scope: &Path) -> std::io::Result<()> {
    let leaf = scope.join(LEAF);
    fs::create_dir(&leaf)?;
    fs::write(leaf.join("cgroup.procs"), "0")?;
    fs::write(scope.join("cgroup.subtree_control"), "+memory +pids")
}

/// Has the user's manager make a delegated scope with this process in it.
fn ask(busctl: &Path) -> Option<()> {
    let pid = std::process::id().to_string();
    let unit = format!("regent-{pid}.scope");
    let words = [
        "--user",
        "--quiet",
        "call",
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        &unit,
        "fail",
        "2",
        "PIDs",
        "au",
        "1",
        &pid,
        "Delegate",
        "b",
        "true",
        "0",
    ];
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    plain::succeeds_within(busctl.to_str()?, &words, WAIT_MAX).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn m8_a_scope_is_asked_for_this_process_and_delegated() {
        let folder = tempfile::tempdir().unwrap();
        let fake = folder.path().join("busctl");
        let said = folder.path().join("said");
        fs::write(&fake, format!("#!/bin/sh\necho \"$@\" > '{}'\n", said.display())).unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        ask(&fake).unwrap();
        let said = fs::read_to_string(said).unwrap();
        let pid = std::process::id();
        assert!(
            said.contains(&format!("StartTransientUnit ssa(sv)a(sa(sv)) regent-{pid}.scope fail 2 ")),
            "{said}"
        );
        assert!(said.ends_with(&format!("PIDs au 1 {pid} Delegate b true 0\n")), "{said}");
        assert_eq!(ask(&folder.path().join("absent")), None);
        fs::write(&fake, "#!/bin/sh\nexit 1\n").unwrap();
        assert_eq!(ask(&fake), None);
    }

    #[test]
    fn m8_the_scope_is_divided_before_runs_are_put_into_it() {
        let scope = tempfile::tempdir().unwrap();
        divide(scope.path()).unwrap();
        assert_eq!(fs::read_to_string(scope.path().join("regent/cgroup.procs")).unwrap(), "0");
        assert_eq!(fs::read_to_string(scope.path().join("cgroup.subtree_control")).unwrap(), "+memory +pids");
    }
}
