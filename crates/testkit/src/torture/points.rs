//! Every point of the journal: strace kills the child at each of its system calls in turn, or makes that call fail.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::check::{Moment, judge};
use super::{Broken, Tally, acknowledged, finish, program};

/// The system calls that write to a disk.
const JOURNAL_CALLS: &str = "write,pwrite64,writev,pwritev,pwritev2,fdatasync,fsync,sync_file_range,rename,renameat,renameat2,\
    openat,openat2,ftruncate,fallocate,mkdir,mkdirat,unlink,unlinkat,link,linkat,flock";
const WORKERS: usize = 2;
/// One in this many blows may miss.
const MISSED_PART: u64 = 10;
/// Threads divide the calls differently in each run, so a thread may not reach a listed point.
const TRIES_MAX: u32 = 5;

/// What happens to the child at a point.
#[derive(Debug, Clone, Copy)]
pub enum Blow {
    /// It is killed at entry of the call.
    Kill,
    /// The call fails with this error.
    Error(&'static str),
}

impl Blow {
    fn inject(self) -> String {
        match self {
            Self::Kill => "signal=KILL".to_owned(),
            Self::Error(name) => format!("error={name}"),
        }
    }

    /// The trace that strace writes when the blow happens.
    pub(super) fn trace(self) -> &'static str {
        match self {
            Self::Kill => "killed by SIGKILL",
            Self::Error(_) => "(INJECTED)",
        }
    }
}

/// One system call of one run: the `at`th time that a thread makes it.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) call: String,
    pub(super) at: u64,
}

/// Strikes at every point of a child that makes `effects` marks.
pub fn strike(child: &Path, effects: u64, blow: Blow) -> Result<Tally, Broken> {
    let points = enumerate(child, effects)?;
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let tally = strike_at(child, effects, blow, point).unwrap_or_else(|broken| Tally {
                        cases: 1,
                        breaches: vec![format!(
                            "{} at {} #{}: {broken}",
                            blow.inject(),
                            point.call,
                            point.at
                        )],
                        ..Tally::default()
                    });
                    total.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(tally);
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if total.missed * MISSED_PART > total.cases {
        total
            .breaches
            .push(format!("{} of {} blows did not fall: this proves nothing", total.missed, total.cases));
    }
    Ok(total)
}

/// Lists the points of an undisturbed run.
fn enumerate(child: &Path, effects: u64) -> Result<Vec<Point>, Broken> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("strace.log");
    let output = finish(
        program("strace")
            .args(["-f", "-qq", "-e", &format!("trace={JOURNAL_CALLS}"), "-o"])
            .arg(&log)
            .arg(child)
            .arg(folder.path())
            .args(["0", &effects.to_string(), "1"]),
    )?;
    let acks = acknowledged(output.stdout.as_slice());
    if !output.status.success() || acks.len() as u64 != effects {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("an undisturbed child made {} of {effects} marks: {said}", acks.len()).into());
    }
    judge(folder.path(), 0..effects, &acks, Moment::Settled)?;
    Ok(enumerate_calls(&fs::read_to_string(log)?))
}

/// strace counts calls per thread and name. For each name, the points are the calls of the busiest thread. If two threads make the same
/// call, the blow hits the first one.
pub(super) fn enumerate_calls(log: &str) -> Vec<Point> {
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for line in log.lines().filter(|line| !line.contains(" resumed>")) {
        let mut words = line.split_whitespace();
        let (Some(thread), Some(rest)) = (words.next(), words.next()) else { continue };
        if let Some((call, _)) = rest.split_once('(') {
            *counts.entry((call.to_owned(), thread.to_owned())).or_default() += 1;
        }
    }
    let mut most: BTreeMap<String, u64> = BTreeMap::new();
    for ((call, _), count) in counts {
        let so_far = most.entry(call).or_default();
        *so_far = count.max(*so_far);
    }
    most.into_iter()
        .flat_map(|(call, most)| (1..=most).map(move |at| Point { call: call.clone(), at }))
        .collect()
}

/// One blow at the point. A missed blow is repeated, and counts as missed only after the last try.
fn strike_at(child: &Path, effects: u64, blow: Blow, point: &Point) -> Result<Tally, Broken> {
    let mut tally = strike_once(child, effects, blow, point)?;
    for _ in 1..TRIES_MAX {
        if tally.missed == 0 {
            break;
        }
        tally = strike_once(child, effects, blow, point)?;
    }
    Ok(tally)
}

/// One blow, then a second child that continues, then a check of both.
fn strike_once(child: &Path, effects: u64, blow: Blow, point: &Point) -> Result<Tally, Broken> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("strace.log");
    let inject = format!("inject={}:{}:when={}", point.call, blow.inject(), point.at);
    let traced = format!("trace={}", point.call);
    let struck = finish(
        program("strace")
            .args(["-f", "-qq", "-e", &traced, "-e", &inject, "-o"])
            .arg(&log)
            .arg(child)
            .arg(folder.path())
            .args(["0", &effects.to_string(), "1"]),
    )?;
    let fell = fs::read_to_string(&log)?.lines().any(|line| line.contains(blow.trace()));
    let mut acks = acknowledged(struck.stdout.as_slice());
    judge(folder.path(), 0..effects, &acks, Moment::Crashed)?;
    let resumed = finish(program(child).arg(folder.path()).args(["0", &effects.to_string(), "1"]))?;
    acks.extend(acknowledged(resumed.stdout.as_slice()));
    if !resumed.status.success() {
        let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
        return Err(format!("the child that resumed ended with {}: {said}", resumed.status).into());
    }
    let journal = judge(folder.path(), 0..effects, &acks, Moment::Settled)?;
    let in_doubt = journal.in_doubt().len() as u64;
    if journal.done.len() as u64 + in_doubt < effects {
        return Err(format!("only {} of {effects} were done after resuming", journal.done.len()).into());
    }
    Ok(Tally {
        cases: 1,
        missed: u64::from(!fell),
        acknowledged: acks.len() as u64,
        in_doubt,
        ..Tally::default()
    })
}

/// Whether strace works here.
pub fn can_trace() -> Result<(), Broken> {
    let tried = program("strace").args(["-qq", "-o", "/dev/null", "true"]).output();
    let output = tried.map_err(|error| format!("strace can't be started: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().into()) }
}

#[cfg(test)]
mod tests {
    use super::enumerate_calls;

    #[test]
    fn points_are_the_calls_of_the_busiest_thread() {
        let log = "10 openat(AT_FDCWD, \"x\") = 3\n11 write(4, \"a\", 1) = 1\n11 write(4, \"b\", 1 <unfinished ...>\n\
                   10 write(1, \"ack\", 3) = 3\n11 <... write resumed>) = 1\n";
        let points: Vec<String> =
            enumerate_calls(log).iter().map(|point| format!("{} {}", point.call, point.at)).collect();
        assert_eq!(points, ["openat 1", "write 1", "write 2"]);
    }
}
