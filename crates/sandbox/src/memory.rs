//! The memory of a whole run, added up from `/proc` where no cgroup holds it.
//!
//! A look costs a few reads for each process. Resident sizes are an upper bound, since shared pages count in each process; only when
//! their sum is over the limit are the exact shares (`smaps_rollup`) asked for. The time until the next look is what the rest of the
//! limit takes to fill at a rate that no program exceeds, and never less than ten times what a look took.
//!
//! Memory that nobody has mapped is not seen here. The filter refuses memory files and large System V segments to a watched run;
//! temporary files have a limit of their own. Kernel buffers (pipes, sockets) are not counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::children::Sweep;

/// Before the first look, and the shortest and longest time between two.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Faster than any program fills memory, in bytes a millisecond: 8 GB/s.
const RATE: u64 = 8_000_000;
/// Processes of one run that are looked at.
const PROCESSES_MAX: usize = 65_536;

/// Whether `/proc` shows what a watch needs. Looked at once.
pub(crate) fn can_watch() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let own = std::process::id().cast_signed();
        Sweep::available().is_some() && upper_bound(own).is_some() && share(own).is_some()
    })
}

/// Waits until the processes below `first` use more than `bytes_max` together. `first` itself is a copy of ours, and not counted.
pub(crate) async fn exceeded(first: i32, bytes_max: u64) {
    let mut pause = FIRST_LOOK;
    loop {
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        let Ok(used) = tokio::task::spawn_blocking(move || used(first, bytes_max)).await else {
            // The runtime is going away, and the run with it.
            return std::future::pending().await;
        };
        if used > bytes_max {
            return;
        }
        let rest = Duration::from_millis((bytes_max - used) / RATE);
        pause = rest.clamp(PAUSE_MIN, PAUSE_MAX).max(began.elapsed().saturating_mul(10));
    }
}

/// Bytes in use, exactly if it is more than `bytes_max`.
fn used(first: i32, bytes_max: u64) -> u64 {
    let tree = below(first);
    let bounds: Vec<u64> = tree.iter().map(|pid| upper_bound(*pid).unwrap_or(0)).collect();
    let bound = sum(bounds.iter().copied());
    if bound <= bytes_max {
        return bound;
    }
    // A process whose share can't be read counts as a whole; one that is gone counts no more.
    sum(tree.iter().zip(bounds).map(|(pid, bound)| share(*pid).unwrap_or(bound)))
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// Resident, swapped and huge pages of a process.
fn upper_bound(pid: i32) -> Option<u64> {
    added(&folder(pid).join("status"), &["VmRSS:", "VmSwap:", "HugetlbPages:"])
}

/// A process's share of its pages: what it shares with others counts in parts.
fn share(pid: i32) -> Option<u64> {
    added(&folder(pid).join("smaps_rollup"), &["Pss:", "SwapPss:", "Shared_Hugetlb:", "Private_Hugetlb:"])
}

/// The sum of these lines of a file, which are in kB. A process without memory (one that has ended) has none of them.
fn added(file: &Path, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let lines = text.lines().filter_map(|line| {
        let value = names.iter().find_map(|name| line.strip_prefix(name))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    Some(sum(lines).saturating_mul(1024))
}

fn folder(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// Every process below this one. Orphans of a run become children of its first process, so nobody leaves the tree.
pub(crate) fn below(first: i32) -> Vec<i32> {
    static BY_LIST: OnceLock<bool> = OnceLock::new();
    let by_list = *BY_LIST.get_or_init(|| Sweep::available() == Some(Sweep::List));
    let parents = if by_list { Vec::new() } else { parents() };
    let mut found = vec![first];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied().filter(|_| found.len() < PROCESSES_MAX) {
        if by_list {
            listed(pid, &mut found);
        } else {
            found.extend(parents.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child));
        }
        next += 1;
    }
    found.remove(0);
    found
}

/// The children of all of a process's threads, as the kernel lists them.
fn listed(pid: i32, found: &mut Vec<i32>) {
    let threads = fs::read_dir(folder(pid).join("task")).into_iter().flatten().flatten();
    for thread in threads {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
}

/// Every process of the host with its parent, for kernels without that list.
fn parents() -> Vec<(i32, i32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent = |pid: i32| {
        let stat = fs::read(folder(pid).join("stat")).ok()?;
        Some((pid, crate::children::parent_in(&stat)?))
    };
    entries.filter_map(|entry| parent(entry.file_name().to_str()?.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child to measure")]
    fn f8_the_memory_of_children_is_added_up_by_either_way() {
        // `tail` keeps all of what it reads, since there is no newline in it; the shell keeps `tail`.
        let script = "head -c 50000000 /dev/zero | tail -n 1 | { sleep 600; cat >/dev/null; }";
        let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = child.id().cast_signed();
        let own = std::process::id().cast_signed();
        loop {
            let used = used(pid, u64::MAX);
            if used > 50_000_000 {
                break;
            }
            assert!(child.try_wait().unwrap().is_none(), "it ended: {used}");
            std::thread::yield_now();
        }
        let tree = below(own);
        let by_parent = parents();
        assert!(tree.contains(&pid) && by_parent.contains(&(pid, own)), "{tree:?}");
        // The exact figure is asked for when the bound is over the limit; it is no more than the bound.
        let (exact, bound) = (used(pid, 1), used(pid, u64::MAX));
        assert!(exact <= bound && exact > 40_000_000, "{exact} of {bound}");
        for pid in below(pid) {
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid).unwrap(),
                rustix::process::Signal::KILL,
            )
            .ok();
        }
        child.wait().unwrap();
        assert_eq!(upper_bound(i32::MAX), None);
    }
}
