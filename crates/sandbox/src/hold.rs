//! Stopping everything in a sandbox for a while, and letting it go on: what the signals STOP and CONT do to a running program.
//!
//! Each process below the first gets SIGSTOP, again until a look finds none that still runs: a process that is stopped can't fork, so that
//! comes to an end. This needs no cgroup. The first process is ours and stays awake: it ends the sandbox when we die, which a frozen cgroup
//! would prevent. A process is signalled through a descriptor, and only after a second look at its parent, so that a number that was
//! given to another process meanwhile is not mistaken for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Looks, a millisecond apart, until everything has stopped.
const LOOKS_MAX: u32 = 200;

/// Stops everything below the first process, or lets it go on.
pub(crate) async fn hold(first: &OwnedFd, held: bool) {
    let Some(first) = pid_of(first) else { return };
    for _ in 0..LOOKS_MAX {
        let running = signal_all(first, held);
        if !held || running == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// One look: signals whoever is not as it should be. Gives back how many these were.
fn signal_all(first: i32, held: bool) -> usize {
    let below = below(first);
    let wrong: Vec<i32> =
        below.iter().filter(|(_, process)| process.is_stopped() != held).map(|(pid, _)| *pid).collect();
    for pid in &wrong {
        let Some(handle) = Pid::from_raw(*pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            continue;
        };
        let is_still_ours =
            Process::of(*pid).is_some_and(|now| now.parent == first || below.contains_key(&now.parent));
        if is_still_ours {
            // Gone meanwhile is fine.
            pidfd_send_signal(&handle, if held { Signal::STOP } else { Signal::CONT }).ok();
        }
    }
    wrong.len()
}

/// All living processes that descend from one, without itself.
fn below(first: i32) -> BTreeMap<i32, Process> {
    let Ok(folders) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = folders.flatten().filter_map(|folder| folder.file_name().to_str()?.parse().ok());
    let all: BTreeMap<i32, Process> = pids.filter_map(|pid| Some((pid, Process::of(pid)?))).collect();
    let mut found = BTreeSet::from([first]);
    // A parent can have a larger number than its child, so one pass is not enough.
    loop {
        let before = found.len();
        let more: Vec<i32> =
            all.iter().filter(|(_, process)| found.contains(&process.parent)).map(|(pid, _)| *pid).collect();
        found.extend(more);
        if found.len() == before {
            break;
        }
    }
    found.remove(&first);
    all.into_iter().filter(|(pid, process)| found.contains(pid) && process.lives()).collect()
}

/// A process, as `/proc/PID/stat` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    state: char,
    parent: i32,
}

impl Process {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name is in brackets and can hold anything, brackets too; the state and the parent follow the last one.
    fn parse(stat: &str) -> Option<Self> {
        let (_, after) = stat.rsplit_once(')')?;
        let mut fields = after.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        Some(Self { state, parent: fields.next()?.parse().ok()? })
    }

    fn is_stopped(self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    fn lives(self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

fn pid_of(pidfd: &OwnedFd) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())?;
    (pid > 0).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_neither_state_nor_parent() {
        let parsed = Process::parse("17 (a) R 1 (b) T 42 17 17 0").unwrap();
        assert_eq!(parsed, Process { state: 'T', parent: 42 });
        assert_eq!(Process::parse("17 (cut"), None);
    }
}
