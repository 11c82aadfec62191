//! Modes and times of open files, in the fallback: a descriptor that is open for reading is enough to change them, and neither Landlock
//! nor a filter sees which file it leads to. Where mounts guard the files, the mounts refuse it.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::judge::NewEntryKind;
use super::locate::{Spot, real_path};
use super::{Desk, SupervisedEnd};
use crate::sys::notify::{self, Notice};

/// What is to be changed about an open file.
#[derive(Debug)]
pub(super) enum Attribute {
    Mode(u32),
    Times(Timestamps),
}

impl Desk {
    /// Changes a file that the program may write, by its path.
    pub(super) fn change(
        &mut self,
        notice: &Notice,
        number: i32,
        to: &Attribute,
    ) -> Result<SupervisedEnd, Errno> {
        let file = self.open_of(notice, &format!("fd/{number}"), OFlags::empty())?;
        let path = real_path(file.as_fd())?;
        if !path.is_absolute() {
            // A pipe or another file without a path.
            return Err(Errno::PERM);
        }
        let Spot::Entry(place) = self.locate_path(notice, &path)? else { return Err(Errno::PERM) };
        if let Some(refusal) = self.refusal(&place, NewEntryKind::Entry) {
            return Err(self.note(refusal));
        }
        if !self.rights(&place.full()).1 {
            return Err(Errno::PERM);
        }
        // The very file that was judged, whatever its path leads to by now.
        let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
        match to {
            Attribute::Mode(mode) => rustix::fs::chmod(itself, Mode::from_raw_mode(*mode))?,
            Attribute::Times(times) => rustix::fs::utimensat(CWD, itself, times, AtFlags::empty())?,
        }
        Ok(SupervisedEnd::Value(0))
    }
}

/// The two times at an address; none means now.
pub(super) fn times(thread: u32, address: u64) -> Result<Timestamps, Errno> {
    const WORD: usize = size_of::<i64>();
    let now = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
    if address == 0 {
        return Ok(Timestamps { last_access: now, last_modification: now });
    }
    let mut bytes = [0; 4 * WORD];
    match notify::read_memory(thread, address, &mut bytes) {
        Ok(read) if read == bytes.len() => {}
        Ok(_) => return Err(Errno::FAULT),
        // Its memory is closed to us.
        Err(Errno::PERM) => return Err(Errno::ACCESS),
        Err(errno) => return Err(errno),
    }
    let mut words = bytes.as_chunks::<WORD>().0.iter().map(|word| i64::from_ne_bytes(*word));
    let mut time = || Some(Timespec { tv_sec: words.next()?, tv_nsec: words.next()? });
    match (time(), time()) {
        (Some(last_access), Some(last_modification)) => Ok(Timestamps { last_access, last_modification }),
        _short => Err(Errno::FAULT),
    }
}
