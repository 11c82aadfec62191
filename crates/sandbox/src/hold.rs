//! Stopping everything in a sandbox for a while, and letting it go on: what the signals STOP and CONT do to a running program.
//!
//! Each process below the first gets SIGSTOP, again until a look finds none that still runs: a process that is stopped can't fork, so that
//! comes to an end. This needs no cgroup. The first process is ours and stays awake: it ends the sandbox when we die, which a frozen cgroup
//! would prevent. A process is signalled through a descriptor, and only after a second look at its parent, so that a number that was
//! given to another process meanwhile is not mistaken for it.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::memory;

/// Looks, a millisecond apart, until everything has stopped.
const LOOKS_MAX: u32 = 200;

/// Stops everything below the first process, or lets it go on.
pub(crate) async fn hold(first: i32, held: bool) {
    let signal = if held { Signal::STOP } else { Signal::CONT };
    for _ in 0..LOOKS_MAX {
        // Every process of the host may have to be looked at: not on a thread that drives other calls.
        let look = tokio::task::spawn_blocking(move || {
            signal_below(first, signal, |process| process.is_stopped() != held)
        });
        // The runtime is going away, and the run with it.
        let Ok(running) = look.await else { return };
        if !held || running == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Kills everything below the first process, as far as one look finds it.
pub(crate) fn kill_below(first: i32) -> usize {
    signal_below(first, Signal::KILL, |_| true)
}

/// Signals the living processes below the first one that are `wanted`, and counts them.
fn signal_below(first: i32, signal: Signal, wanted: impl Fn(Process) -> bool) -> usize {
    // What can't be looked at may be running: look again.
    let Ok(below) = memory::below(first) else { return 1 };
    let is_wanted = |pid: &i32| Process::of(*pid).is_some_and(|process| process.lives() && wanted(process));
    let found: Vec<i32> = below.iter().copied().filter(is_wanted).collect();
    for pid in &found {
        let Some(handle) = Pid::from_raw(*pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            continue;
        };
        let is_still_ours =
            Process::of(*pid).is_some_and(|now| now.parent == first || below.contains(&now.parent));
        if is_still_ours {
            // Gone meanwhile is fine.
            pidfd_send_signal(&handle, signal).ok();
        }
    }
    found.len()
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
