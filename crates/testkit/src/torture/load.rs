//! Random `kill -9` under load: four processes with two callers each, acknowledgements over a pipe, killed at any moment.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::check::{Moment, judge};
use super::{Broken, Tally, acknowledged_with, finish, program};
use crate::random::Random;

/// Processes that write to one ledger concurrently.
const WRITERS: u64 = 4;
const CALLERS: u64 = 2;
/// A start takes a fraction of a second, or some seconds on a busy machine. A start that waits for a dead process takes longer.
const START_MAX: Duration = Duration::from_secs(12);
/// A new folder after this many deaths, so that checks don't take longer than kills.
const DEATHS_PER_FOLDER: u64 = 25;
/// More marks than a child can make before it is killed.
const MARKS_PER_LIFE: u64 = 2_000;
const LIFE_MS_MAX: u64 = 30;
const BOOT_MAX: Duration = Duration::from_secs(20);

/// When a child is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// Some time after its first acknowledgement.
    AtWork,
    /// Some time after its start, most likely during recovery.
    Young,
}

/// Kills children until `deaths` have died.
pub fn kill(child: &Path, deaths: u64, seed: u64) -> Result<Tally, Broken> {
    let mut random = Random::new(seed);
    let mut total = Tally::default();
    while total.cases < deaths {
        let folder = tempfile::tempdir()?;
        let mut acks = BTreeSet::new();
        let mut end = 0;
        for _ in 0..DEATHS_PER_FOLDER.min(deaths - total.cases).div_ceil(WRITERS) {
            // Repeats some of the last life's range: missing marks are made, and completed ones must not be repeated.
            let first = end - (end.min(random.below(MARKS_PER_LIFE / 2)));
            let lives: Vec<(Range<u64>, Death, u64)> = (0..WRITERS)
                .map(|writer| {
                    let death = if random.once_in(4) { Death::Young } else { Death::AtWork };
                    let share = MARKS_PER_LIFE / WRITERS;
                    let own = first + writer * share;
                    (own..own + share, death, random.below(LIFE_MS_MAX))
                })
                .collect();
            let place = folder.path();
            let lived: Vec<Result<BTreeSet<u64>, Broken>> = std::thread::scope(|scope| {
                let started: Vec<_> = lives
                    .into_iter()
                    .map(|(ids, death, life_ms)| {
                        scope.spawn(move || one_life(child, place, ids, (death, life_ms)))
                    })
                    .collect();
                let join = |life: std::thread::ScopedJoinHandle<'_, _>| {
                    life.join().unwrap_or_else(|_| Err("a life's thread broke".into()))
                };
                started.into_iter().map(join).collect()
            });
            end = end.max(first + MARKS_PER_LIFE);
            for life in lived {
                total.cases += 1;
                match life {
                    Ok(own) => acks.extend(own),
                    Err(broken) => total.breaches.push(format!("kill -9, seed {seed}: {broken}")),
                }
            }
            if let Err(broken) = judge(folder.path(), 0..end, &acks, Moment::Crashed) {
                total.breaches.push(format!("kill -9, seed {seed}, death {}: {broken}", total.cases));
                break;
            }
        }
        match settle(child, folder.path(), end, &acks) {
            Ok(in_doubt) => total.in_doubt += in_doubt,
            Err(broken) => total.breaches.push(format!("kill -9, seed {seed}, settling: {broken}")),
        }
        total.acknowledged += acks.len() as u64;
    }
    Ok(total)
}

/// Starts a child, waits a little, and kills it by its id.
fn one_life(
    child: &Path,
    folder: &Path,
    ids: Range<u64>,
    (death, life_ms): (Death, u64),
) -> Result<BTreeSet<u64>, Broken> {
    let count = ids.end - ids.start;
    let mut process = program(child)
        .arg(folder)
        .args([ids.start.to_string(), count.to_string(), CALLERS.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = process.stdout.take().ok_or("the child has no output")?;
    let at_work = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let at_work = Arc::clone(&at_work);
        move || acknowledged_with(output, || at_work.store(true, Ordering::Relaxed))
    });
    let mut stalled = false;
    if death == Death::AtWork {
        let started = Instant::now();
        while !at_work.load(Ordering::Relaxed) && started.elapsed() < BOOT_MAX && !reader.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        stalled = started.elapsed() > START_MAX;
    }
    std::thread::sleep(Duration::from_millis(life_ms));
    process.kill()?;
    process.wait()?;
    let acks = reader.join().map_err(|_| "the reader of acknowledgements broke")?;
    if stalled {
        return Err(format!("a start took longer than {} s", START_MAX.as_secs()).into());
    }
    Ok(acks)
}

/// A last child that finds nothing to do and shuts down cleanly.
fn settle(child: &Path, folder: &Path, end: u64, acks: &BTreeSet<u64>) -> Result<u64, Broken> {
    let ended = finish(program(child).arg(folder).args(["0", "0", "1"]))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        return Err(format!("the last child ended with {}: {said}", ended.status).into());
    }
    Ok(judge(folder, 0..end, acks, Moment::Settled)?.in_doubt().len() as u64)
}
