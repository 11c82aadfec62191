//! A program of the operator's own, run as the operator and without a sandbox: for what `regent` does at a user's command and with that user's
//! tools, such as fetching a package. No call of an agent leads here; what an agent runs goes through [`run`](crate::run()).

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::memory;

/// How much of what it says about itself is kept: the end.
const SAID_BYTES_MAX: usize = 4 << 10;
/// How long the end of what it says is waited for when it has ended.
const SAID_MAX: Duration = Duration::from_secs(2);
/// How often it is looked whether it is over.
const LOOK_MS: u64 = 20;

/// How a plain program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainEnd {
    /// With success.
    pub is_good: bool,
    /// The end of what it wrote to its standard error.
    pub said: String,
}

/// Runs a program of the operator's own with these arguments, no input, and its output thrown away. It is killed when its time is over or
/// its caller is gone. Its children are killed with it, also when it ends by itself, except for a daemon: a process that
/// has left the program's group and outlived its parents.
pub async fn run_plain(program: &str, args: &[OsString], wall_ms_max: u64) -> io::Result<PlainEnd> {
    let child = start(program, args)?;
    let unwanted = Unwanted(Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&unwanted.0);
    let ended =
        tokio::task::spawn_blocking(move || follow(child, &flag, Duration::from_millis(wall_ms_max))).await;
    drop(unwanted);
    ended.map_err(io::Error::other)?
}

/// Says so when it is dropped.
struct Unwanted(Arc<AtomicBool>);

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that starts a program without a sandbox"
)]
fn start(program: &str, args: &[OsString]) -> io::Result<Child> {
    let mut command = Command::new(program);
    // A group of its own, so that what it starts can be killed with it.
    command
        .args(args)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

/// Kills a program that has not been waited for: its group, and what has left the group but not the tree.
fn kill_tree(child: &mut Child) -> io::Result<ExitStatus> {
    let first = child.id().cast_signed();
    let left = memory::below(first).unwrap_or_default();
    if let Some(group) = Pid::from_raw(first) {
        // The program itself is its leader, so that the number is this group's until it is waited for.
        rustix::process::kill_process_group(group, Signal::KILL).ok();
    }
    for pid in left.into_iter().filter_map(Pid::from_raw) {
        rustix::process::kill_process(pid, Signal::KILL).ok();
    }
    child.kill()?;
    child.wait()
}

/// Whether a program has ended. It isn't waited for, so that its number stays its own.
fn has_ended(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::waitid(WaitId::Pid(pid), options)?.is_some())
}

/// Whether a program ends well within this time; it is killed otherwise.
pub(crate) fn succeeds_within(program: &str, args: &[OsString], wall_max: Duration) -> bool {
    let Ok(child) = start(program, args) else { return false };
    follow(child, &AtomicBool::new(false), wall_max).is_ok_and(|end| end.is_good)
}

fn follow(mut child: Child, unwanted: &AtomicBool, wall_max: Duration) -> io::Result<PlainEnd> {
    let said = Arc::new(Mutex::new(Vec::new()));
    let (done, is_done) = mpsc::channel::<()>();
    if let Some(from) = child.stderr.take() {
        let kept = Arc::clone(&said);
        // Ends when the last process that holds the pipe does, which may be a daemon.
        std::thread::spawn(move || {
            tail(from, &kept);
            drop(done);
        });
    }
    let began = Instant::now();
    while !has_ended(&child)? {
        if unwanted.load(Ordering::Acquire) || began.elapsed() > wall_max {
            kill_tree(&mut child)?;
            return Ok(PlainEnd {
                is_good: false,
                said: "it took too long, or its caller is gone".to_owned(),
            });
        }
        std::thread::sleep(Duration::from_millis(LOOK_MS));
    }
    let status = kill_tree(&mut child)?;
    let rest = wall_max.saturating_sub(began.elapsed()).min(SAID_MAX);
    is_done.recv_timeout(rest).ok();
    let said = said.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(PlainEnd { is_good: status.success(), said: String::from_utf8_lossy(&said).into_owned() })
}

fn tail(mut from: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1_024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let over = kept.len().saturating_sub(SAID_BYTES_MAX);
        kept.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(args: &[&str]) -> Vec<OsString> {
        args.iter().map(OsString::from).collect()
    }

    #[tokio::test]
    async fn it_ends_well_or_badly_and_is_not_waited_for_for_ever() {
        let good = run_plain("true", &[], 60_000).await.unwrap();
        assert_eq!(good, PlainEnd { is_good: true, said: String::new() });
        let bad = run_plain("sh", &args(&["-c", "echo no >&2; exit 3"]), 60_000).await.unwrap();
        assert_eq!(bad, PlainEnd { is_good: false, said: "no\n".to_owned() });
        assert!(!run_plain("sleep", &args(&["600"]), 50).await.unwrap().is_good);
        assert!(run_plain("/no/such/program", &[], 1).await.is_err());
    }

    #[tokio::test]
    async fn k8_a_daemon_that_holds_standard_error_is_not_waited_for() {
        let began = Instant::now();
        let mark = format!("8{:06}.125", std::process::id());
        let script = format!("echo no >&2; (setsid sleep {mark} &); sleep {mark} & exit 3");
        let end = run_plain("sh", &args(&["-c", &script]), 600_000).await.unwrap();
        assert_eq!(end, PlainEnd { is_good: false, said: "no\n".to_owned() });
        assert!(began.elapsed() < Duration::from_secs(60));
        end_marked(&mark);
    }

    /// Ends the daemons of a test.
    fn end_marked(mark: &str) {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
                && let Some(pid) = pid.and_then(Pid::from_raw)
            {
                rustix::process::kill_process(pid, Signal::KILL).ok();
            }
        }
    }

    fn is_running(mark: &str) -> bool {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()))
        })
    }

    #[tokio::test]
    async fn k8_what_a_program_started_is_killed_with_it() {
        let mark = format!("7{:06}.125", std::process::id());
        // In its group, in a session of its own, and as an orphan. The file says that all are there.
        let folder = tempfile::tempdir().unwrap();
        let begun = folder.path().join("begun");
        let script =
            format!("sleep {mark} & setsid sleep {mark} & (sleep {mark} &); : > '{}'; wait", begun.display());
        let child = start("sh", &args(&["-c", &script])).unwrap();
        let unwanted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&unwanted);
        let following = std::thread::spawn(move || follow(child, &flag, Duration::from_secs(600)));
        while !(begun.exists() && is_running(&mark)) {
            std::thread::yield_now();
        }
        unwanted.store(true, Ordering::Release);
        assert!(!following.join().unwrap().unwrap().is_good);
        for _ in 0..1_000_000 {
            if !is_running(&mark) {
                return;
            }
            std::thread::yield_now();
        }
        panic!("something outlived it");
    }
}
