//! The memory of a whole run, added up from `/proc` where no cgroup holds it.
//!
//! A look costs a few reads for each process. Resident sizes are an upper bound, since shared pages count in each process; only when
//! their sum is over the limit are the exact shares (`smaps_rollup`) asked for. The time until the next look is what the rest of the
//! limit takes to fill at a rate that no program exceeds. It is ten times what a look took, if that is more, but never so long that a
//! program gains by making looks slow.
//!
//! Memory that nobody has mapped is not seen here. The filter refuses memory files and large System V segments to a watched run;
//! temporary files have a limit of their own. Page tables are counted; other memory of the kernel (pipes, sockets) isn't.

use std::fs;
use std::io;
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

/// Looks in a row that may fail, because this process has no descriptor left or a process can't be looked into. A run that can't be
/// looked at any longer counts as over its limit.
const FAILED_LOOKS_MAX: u32 = 20;

/// Whether `/proc` shows what a watch needs. Looked at once.
pub(crate) fn can_watch() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let own = std::process::id().cast_signed();
        let shows = |found: io::Result<Option<u64>>| found.is_ok_and(|bytes| bytes.is_some());
        Sweep::available().is_some() && shows(resident(own)) && shows(share(own))
    })
}

/// Waits until the processes below `first` use more than `bytes_max` together. `first` itself is a copy of ours, and not counted.
pub(crate) async fn exceeded(first: i32, bytes_max: u64) {
    let (mut pause, mut failed) = (FIRST_LOOK, 0);
    loop {
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        let Ok(used) = tokio::task::spawn_blocking(move || used(first, bytes_max)).await else {
            // The runtime is going away, and the run with it.
            return std::future::pending().await;
        };
        let used = match used {
            Ok(used) => {
                failed = 0;
                used
            }
            Err(_) => {
                failed += 1;
                if failed >= FAILED_LOOKS_MAX {
                    return;
                }
                bytes_max
            }
        };
        if used > bytes_max {
            return;
        }
        let rest = Duration::from_millis((bytes_max - used) / RATE);
        pause = pause_after(rest, began.elapsed());
    }
}

/// The time to the next look: `rest` is what the rest of the limit takes to fill, `look` what the last look took.
fn pause_after(rest: Duration, look: Duration) -> Duration {
    rest.max(look.saturating_mul(10)).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// Bytes in use, exactly if it is more than `bytes_max`.
fn used(first: i32, bytes_max: u64) -> io::Result<u64> {
    let mut tree = Vec::new();
    for pid in below(first)? {
        // One that is gone counts no more.
        if let (Some(resident), Some(tables)) = (resident(pid)?, tables(pid)?) {
            tree.push((pid, resident, tables));
        }
    }
    let bound = sum(tree.iter().map(|(_, resident, tables)| resident.saturating_add(*tables)));
    if bound <= bytes_max {
        return Ok(bound);
    }
    // A process whose share can't be read counts as a whole.
    let exact = |pid: i32, resident: u64| match share(pid) {
        Ok(share) => share.unwrap_or(0),
        Err(_) => resident,
    };
    Ok(sum(tree.iter().map(|(pid, resident, tables)| exact(*pid, *resident).saturating_add(*tables))))
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// Resident, swapped and huge pages of a process. `None`: it is gone.
fn resident(pid: i32) -> io::Result<Option<u64>> {
    added(&folder(pid).join("status"), &["VmRSS:", "VmSwap:", "HugetlbPages:"])
}

/// A process's page tables, which a program fills by touching one page in each region of a large reservation.
fn tables(pid: i32) -> io::Result<Option<u64>> {
    added(&folder(pid).join("status"), &["VmPTE:"])
}

/// A process's share of its pages: what it shares with others counts in parts.
fn share(pid: i32) -> io::Result<Option<u64>> {
    added(&folder(pid).join("smaps_rollup"), &["Pss:", "SwapPss:", "Shared_Hugetlb:", "Private_Hugetlb:"])
}

/// The sum of these lines of a file, which are in kB. A process without memory (one that has ended) has none of them.
fn added(file: &Path, names: &[&str]) -> io::Result<Option<u64>> {
    let Some(text) = unless_gone(fs::read_to_string(file))? else { return Ok(None) };
    let lines = text.lines().filter_map(|line| {
        let value = names.iter().find_map(|name| line.strip_prefix(name))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    Ok(Some(sum(lines).saturating_mul(1024)))
}

/// Only a process that has ended has nothing to read.
fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

fn folder(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// Every process below this one. Orphans of a run become children of its first process, so nobody leaves the tree.
pub(crate) fn below(first: i32) -> io::Result<Vec<i32>> {
    static BY_LIST: OnceLock<bool> = OnceLock::new();
    let by_list = *BY_LIST.get_or_init(|| Sweep::available() == Some(Sweep::List));
    let parents = if by_list { Vec::new() } else { parents()? };
    let mut found = vec![first];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        if found.len() > PROCESSES_MAX {
            return Err(io::Error::other("too many processes"));
        }
        if by_list {
            listed(pid, &mut found)?;
        } else {
            found.extend(parents.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child));
        }
        next += 1;
    }
    found.remove(0);
    Ok(found)
}

/// The children of all of a process's threads, as the kernel lists them.
fn listed(pid: i32, found: &mut Vec<i32>) -> io::Result<()> {
    let Some(threads) = unless_gone(fs::read_dir(folder(pid).join("task")))? else { return Ok(()) };
    for thread in threads {
        let Some(thread) = unless_gone(thread)? else { continue };
        let list = unless_gone(fs::read_to_string(thread.path().join("children")))?.unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(())
}

/// Every process of the host with its parent, for kernels without that list.
fn parents() -> io::Result<Vec<(i32, i32)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = unless_gone(fs::read(folder(pid).join("stat")))?;
        all.extend(stat.and_then(|stat| Some((pid, crate::children::parent_in(&stat)?))));
    }
    Ok(all)
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
            let used = used(pid, u64::MAX).unwrap();
            if used > 50_000_000 {
                break;
            }
            assert!(child.try_wait().unwrap().is_none(), "it ended: {used}");
            std::thread::yield_now();
        }
        let tree = below(own).unwrap();
        let by_parent = parents().unwrap();
        assert!(tree.contains(&pid) && by_parent.contains(&(pid, own)), "{tree:?}");
        // The exact figure is asked for when the bound is over the limit; it is no more than the bound.
        let (exact, bound) = (used(pid, 1).unwrap(), used(pid, u64::MAX).unwrap());
        assert!(exact <= bound && exact > 40_000_000, "{exact} of {bound}");
        for pid in below(pid).unwrap() {
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid).unwrap(),
                rustix::process::Signal::KILL,
            )
            .ok();
        }
        child.wait().unwrap();
        assert_eq!(resident(i32::MAX).unwrap(), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child to measure")]
    fn f8_page_tables_are_counted() {
        // One page in each 2 MiB: 64 MiB of page tables, and the zero page everywhere.
        let script = "
import mmap, sys, time
m = mmap.mmap(-1, 32 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
m.madvise(15)
for at in range(0, 32 << 30, 2 << 20): m[at]
print('touched', flush=True)
sys.stdin.read()";
        let mut shell = std::process::Command::new("sh");
        let piped = std::process::Stdio::piped;
        shell.args(["-c", "python3 -c \"$0\"; :", script]).stdin(piped()).stdout(piped());
        let mut child = shell.spawn().unwrap();
        let mut said = [0; 7];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        let pid = child.id().cast_signed();
        let (bound, exact) = (used(pid, u64::MAX).unwrap(), used(pid, 1).unwrap());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(bound > 64 << 20 && exact > 64 << 20, "{bound}, {exact}");
    }

    #[test]
    fn a_slow_look_does_not_put_off_the_next_one() {
        assert_eq!(pause_after(Duration::ZERO, Duration::from_secs(9)), PAUSE_MAX);
        assert_eq!(pause_after(Duration::ZERO, Duration::ZERO), PAUSE_MIN);
        assert_eq!(pause_after(Duration::from_secs(9), Duration::ZERO), PAUSE_MAX);
    }

    #[test]
    fn only_a_process_that_is_gone_uses_nothing() {
        let gone = |errno| unless_gone::<()>(Err(io::Error::from_raw_os_error(errno)));
        assert!(matches!(gone(libc::ENOENT), Ok(None)) && matches!(gone(libc::ESRCH), Ok(None)));
        for errno in [libc::EACCES, libc::EMFILE, libc::EPERM] {
            assert!(gone(errno).is_err());
        }
    }
}
