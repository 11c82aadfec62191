//! The children of a process, found without allocating: the fallback's first process kills them when the program has ended.
//!
//! `/proc/thread-self/children` names them at once, where the kernel has it (`CONFIG_PROC_CHILDREN`). Elsewhere every process's
//! `stat` is asked for its parent.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::process::Pid;

const LIST: &CStr = c"/proc/thread-self/children";
const PROCESSES: &CStr = c"/proc";
/// Of a `stat`: the parent comes after a name of at most 64 bytes.
const STAT_BYTES: usize = 256;

/// How children are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// The kernel lists them.
    List,
    /// By looking at every process.
    Scan,
}

impl Sweep {
    /// What works on this host; `None`: nothing does, so that what a program leaves behind could not be found.
    pub(crate) fn available() -> Option<Self> {
        if open(LIST).is_some() {
            return Some(Self::List);
        }
        let own = stat_of(c"self").and_then(|stat| parent_in(&stat))?;
        let is_ours = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()) == own;
        is_ours.then_some(Self::Scan)
    }
}

/// Calls `act` with each child of this process, which has one thread, and counts them. A child that is born meanwhile may be missed,
/// and so may all of them where `/proc` can't be read at the moment: the caller repeats until the kernel says that there is none.
pub(crate) fn each(sweep: Sweep, mut act: impl FnMut(Pid)) -> usize {
    let found = match sweep {
        Sweep::List => listed(&mut act),
        Sweep::Scan => 0,
    };
    match found {
        0 => scanned(rustix::process::getpid().as_raw_nonzero().get(), act),
        found => found,
    }
}

/// As many as fit one read.
fn listed(mut act: impl FnMut(Pid)) -> usize {
    let mut buffer = [0u8; 4096];
    let Some(file) = open(LIST) else { return 0 };
    let Ok(bytes) = rustix::io::read(file, &mut buffer) else { return 0 };
    let words = buffer.get(..bytes).unwrap_or_default().split(|byte| *byte == b' ');
    words.filter_map(|word| number(word).and_then(Pid::from_raw)).map(&mut act).count()
}

fn scanned(parent: i32, mut act: impl FnMut(Pid)) -> usize {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(PROCESSES, flags, Mode::empty()) else { return 0 };
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(folder, &mut buffer);
    let mut found = 0;
    while let Some(Ok(entry)) = entries.next() {
        let Some(pid) = number(entry.file_name().to_bytes()) else { continue };
        let above = stat_of(entry.file_name()).and_then(|stat| parent_in(&stat));
        if above == Some(parent)
            && let Some(pid) = Pid::from_raw(pid)
        {
            act(pid);
            found += 1;
        }
    }
    found
}

fn open(path: &CStr) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn stat_of(process: &CStr) -> Option<[u8; STAT_BYTES]> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(PROCESSES, flags, Mode::empty()).ok()?;
    let folder = rustix::fs::openat(folder, process, flags, Mode::empty()).ok()?;
    let file = rustix::fs::openat(folder, c"stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut stat = [0; STAT_BYTES];
    rustix::io::read(file, &mut stat).ok()?;
    Some(stat)
}

/// The fourth field. The second, a name in brackets, may hold spaces and brackets itself: the last bracket ends it.
pub(crate) fn parent_in(stat: &[u8]) -> Option<i32> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    number(stat.get(end + 1..)?.split(|byte| *byte == b' ').nth(2)?)
}

fn number(word: &[u8]) -> Option<i32> {
    if word.is_empty() || word.len() > 9 || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(word.iter().fold(0, |number, digit| number * 10 + i32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child to find")]
    fn s5_8_children_are_found_without_the_kernels_list() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let mut found = Vec::new();
        scanned(std::process::id().cast_signed(), |pid| found.push(pid.as_raw_nonzero().get()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id().cast_signed()), "{found:?}");
        assert!(!found.contains(&std::process::id().cast_signed()));
    }

    #[test]
    fn s5_8_a_name_can_not_pretend_to_be_a_parent() {
        assert_eq!(parent_in(b"12 (sh) S 7 12 12"), Some(7));
        assert_eq!(parent_in(b"12 (a) S 1 (b) S 7 12"), Some(7));
        assert_eq!(parent_in(b"12 () ) S 1) S 7 12"), Some(7));
        for nonsense in [b"".as_slice(), b")", b"12 (sh) S", b"12 (sh) S x 1", b"12 (sh) S 99999999999 1"] {
            assert_eq!(parent_in(nonsense), None);
        }
    }
}
