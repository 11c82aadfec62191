//! Stopping everything in a sandbox for a while, and letting it continue: what the signals STOP and CONT do to a running program.
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

/// Stops everything below the first process, or lets it continue.
pub(crate) async fn hold(first: i32, held: bool) {
    for _ in 0..LOOKS_MAX {
        // Every process of the host may have to be looked at: not on a thread that drives other calls.
        let look =
            tokio::task::spawn_blocking(move || if held { stop_below(first) } else { continue_below(first) });
        // The runtime is going away, and the run with it.
        let Ok(is_done) = look.await else { return };
        if is_done {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Whether everything had stopped already. What can't be looked at may be running.
fn stop_below(first: i32) -> bool {
    signal_below(first, Signal::STOP, |process| !process.is_stopped()) == Some(0)
}

/// Whether every process got SIGCONT. Processes that have not stopped get it too: a process that waits in `vfork` for a child that we
/// stopped will stop as soon as the child continues, unless a CONT takes the waiting STOP away.
fn continue_below(first: i32) -> bool {
    signal_below(first, Signal::CONT, |_| true).is_some()
}

/// Kills everything below the first process, as far as one look finds it.
pub(crate) fn kill_below(first: i32) -> usize {
    // What can't be looked at may be running: the caller looks again.
    signal_below(first, Signal::KILL, |_| true).unwrap_or(1)
}

/// Signals the living processes below the first one that are `wanted`, and counts them. `None`: they can't be listed.
fn signal_below(first: i32, signal: Signal, wanted: impl Fn(ProcessStat) -> bool) -> Option<usize> {
    let below = memory::below(first).ok()?;
    let is_wanted =
        |pid: &i32| ProcessStat::read(*pid).is_some_and(|process| process.lives() && wanted(process));
    let found: Vec<i32> = below.iter().copied().filter(is_wanted).collect();
    for pid in &found {
        let Some(handle) = Pid::from_raw(*pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            continue;
        };
        let is_still_ours =
            ProcessStat::read(*pid).is_some_and(|now| now.parent == first || below.contains(&now.parent));
        if is_still_ours {
            // Gone meanwhile is fine.
            pidfd_send_signal(&handle, signal).ok();
        }
    }
    Some(found.len())
}

/// A process, as `/proc/PID/stat` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessStat {
    state: char,
    parent: i32,
}

impl ProcessStat {
    fn read(pid: i32) -> Option<Self> {
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

    /// Writes to disk that it got SIGCONT.
    const TOLD: &str =
        r#"sh -c 'trap "echo told > told" CONT; echo up > up; while :; do sleep 0.01; done' & wait"#;

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a process to signal, without a sandbox around it")]
    async fn continues_a_process_that_has_not_stopped_yet() {
        let folder = tempfile::tempdir().unwrap();
        let mut first =
            std::process::Command::new("sh").args(["-c", TOLD]).current_dir(&folder).spawn().unwrap();
        let pid = first.id().cast_signed();
        for name in ["up", "told"] {
            let mut looks = 0;
            while !folder.path().join(name).exists() {
                looks += 1;
                assert!(looks < 2000, "never: {name}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            hold(pid, false).await;
        }
        kill_below(pid);
        first.kill().unwrap();
        first.wait().unwrap();
    }

    #[test]
    fn a_name_with_brackets_hides_neither_state_nor_parent() {
        let parsed = ProcessStat::parse("17 (a) R 1 (b) T 42 17 17 0").unwrap();
        assert_eq!(parsed, ProcessStat { state: 'T', parent: 42 });
        assert_eq!(ProcessStat::parse("17 (cut"), None);
    }
}
