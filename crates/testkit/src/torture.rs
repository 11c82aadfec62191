//! Crash tests: a child process makes effects under a durable kernel, and a harness kills it, breaks its disk, and checks the result.
//!
//! After every case: no acknowledged call is lost, every effect has an intent, no effect happened twice, and the chain verifies. See
//! [`check`] for the checks.

pub mod check;
pub mod child;
pub mod flips;
pub mod full;
pub mod load;
pub mod points;
pub mod tasks;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// A child takes a fraction of a second; on a busy machine a few seconds.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Any error; the harness prints it and continues with the next case.
pub type Broken = Box<dyn std::error::Error + Send + Sync>;

/// The counts of a part.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Number of cases.
    pub cases: u64,
    /// Cases in which the blow didn't happen, because the child took another path. They prove nothing.
    pub missed: u64,
    /// Calls acknowledged in them.
    pub acknowledged: u64,
    /// Calls left in doubt, for an operator to settle.
    pub in_doubt: u64,
    /// The broken invariants, each with how to reproduce it.
    pub breaches: Vec<String>,
}

impl Tally {
    /// Adds the counts of another part.
    pub fn add(&mut self, other: Tally) {
        self.cases += other.cases;
        self.missed += other.missed;
        self.acknowledged += other.acknowledged;
        self.in_doubt += other.in_doubt;
        self.breaches.extend(other.breaches);
    }
}

/// Starts programs: the child under test, strace, mount.
#[expect(clippy::disallowed_methods, reason = "the harness starts the program that it tortures")]
pub(crate) fn program(path: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(path)
}

/// Runs a program to its end and returns its output. A program that hangs is killed with all its children.
pub(crate) fn finish(command: &mut Command) -> Result<Output, Broken> {
    let mut process = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let drain = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // On an error, the output read so far is kept.
            drop(stream.map(|mut stream| stream.read_to_end(&mut bytes)));
            bytes
        })
    };
    let stdout = drain(stdout.map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let stderr = drain(stderr.map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait()? {
            break status;
        }
        if started.elapsed() > HANGS_AFTER {
            let group = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                kill_process_group(group, Signal::KILL)?;
            }
            process.wait()?;
            return Err("it hangs".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let said = |reader: JoinHandle<Vec<u8>>| reader.join().map_err(|_| "the reader broke");
    Ok(Output { status, stdout: said(stdout)?, stderr: said(stderr)? })
}

/// The child's program, beside the harness.
pub fn child_program() -> Result<PathBuf, Broken> {
    let own = std::env::current_exe()?;
    let folder = own.parent().ok_or("the harness has no folder")?;
    let child = folder.join("torture-child");
    if child.is_file() { Ok(child) } else { Err(format!("`{}` is not built", child.display()).into()) }
}

/// The ids that a child acknowledged on its standard output. A torn last line doesn't count.
pub(crate) fn acknowledged(output: impl Read) -> BTreeSet<u64> {
    acknowledged_with(output, || {})
}

/// [`acknowledged`] with a callback for each acknowledgement.
pub(crate) fn acknowledged_with(output: impl Read, mut heard: impl FnMut()) -> BTreeSet<u64> {
    let mut acks = BTreeSet::new();
    let mut reader = BufReader::new(output);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let id = line.strip_suffix('\n').and_then(|whole| whole.strip_prefix("ack "));
        if let Some(id) = id.and_then(|id| id.parse::<u64>().ok()) {
            acks.insert(id);
            heard();
        }
        line.clear();
    }
    acks
}

/// The folder of a child's ledger.
pub(crate) fn audit(folder: &Path) -> PathBuf {
    folder.join("audit")
}

/// The witness file of a child's ledger.
pub(crate) fn witness(folder: &Path) -> PathBuf {
    folder.join("witness")
}

/// The file of a child's marks.
pub(crate) fn effects(folder: &Path) -> PathBuf {
    folder.join("effects")
}
