//! The calls themselves, each relative to the folder that was judged.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::judge::NewEntryKind;
use super::locate::{LINKS_MAX, NamedEntry, Spot, real_path};
use super::request::{self, Named, SupervisedCall};
use super::{Desk, SupervisedEnd};
use crate::ended::Confinement;
use crate::sys::notify::Notice;
use crate::view::OWN_TERMINAL;

/// Flags that `fcntl` can set after the opening.
const SETTABLE: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;
/// The part of `O_TMPFILE` that isn't `O_DIRECTORY`: a file without a name.
const UNNAMED: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// The major number of `null`, `zero`, `random` and `urandom`.
const MEMORY_DEVICES: u32 = 1;

/// An opening as the caller wants it.
#[derive(Debug, Clone, Copy)]
struct Opening {
    flags: i32,
    mode: u32,
}

impl Opening {
    fn has(self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn writes(self) -> bool {
        self.has(libc::O_ACCMODE | libc::O_TRUNC)
    }

    fn is_unnamed(self) -> bool {
        self.has(UNNAMED)
    }

    fn follows(self) -> bool {
        !(self.has(libc::O_NOFOLLOW) || self.has(libc::O_CREAT) && self.has(libc::O_EXCL))
    }
}

impl Desk {
    pub(super) fn perform(&mut self, notice: &Notice) -> Result<SupervisedEnd, Errno> {
        let request = request::read(notice)?;
        // Only now is it sure that the memory was the caller's.
        self.still_waits(notice)?;
        match request {
            SupervisedCall::Open { at, flags, mode } => self.open(notice, &at, Opening { flags, mode }),
            SupervisedCall::Folder { at, mode } => {
                let place = self.entry(notice, &at)?;
                self.may_make(&place, NewEntryKind::Entry)?;
                self.take_umask(notice)?;
                done(rustix::fs::mkdirat(&place.folder, &*place.name, Mode::from_raw_mode(mode)))
            }
            SupervisedCall::Node { at, mode, device } => self.node(notice, &at, mode, device),
            SupervisedCall::Symlink { to, at } => {
                let place = self.entry(notice, &at)?;
                self.may_make(&place, NewEntryKind::Link)?;
                done(rustix::fs::symlinkat(to.as_slice(), &place.folder, &*place.name))
            }
            SupervisedCall::Link { from, at, flags } => self.link(notice, &from, &at, flags),
            SupervisedCall::Rename { from, at, flags } => self.rename(notice, &from, &at, flags),
            SupervisedCall::Change { descriptor, to } => self.change(notice, descriptor, &to),
        }
    }

    fn entry(&mut self, notice: &Notice, named: &Named) -> Result<NamedEntry, Errno> {
        match self.locate(notice, named)? {
            Spot::Entry(place) => Ok(place),
            Spot::Descriptor(_) => Err(Errno::EXIST),
        }
    }

    /// Lets a name be made, or notes that it was refused.
    fn may_make(&self, place: &NamedEntry, made: NewEntryKind<'_>) -> Result<(), Errno> {
        if let Some(refusal) = self.refusal(place, made) {
            return Err(self.note(refusal));
        }
        // What Landlock would say in the fallback.
        if self.rights(&place.path).1 { Ok(()) } else { Err(Errno::ACCESS) }
    }

    fn node(&mut self, notice: &Notice, at: &Named, mode: u32, device: u64) -> Result<SupervisedEnd, Errno> {
        let kind = FileType::from_raw_mode(mode);
        if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
            return Err(Errno::PERM);
        }
        let place = self.entry(notice, at)?;
        let is_file = matches!(kind, FileType::RegularFile) || mode & libc::S_IFMT == 0;
        self.may_make(&place, if is_file { NewEntryKind::Entry } else { NewEntryKind::Link })?;
        self.take_umask(notice)?;
        // No type means a plain file.
        let kind = if mode & libc::S_IFMT == 0 { FileType::RegularFile } else { kind };
        let mode = Mode::from_raw_mode(mode & !libc::S_IFMT);
        done(rustix::fs::mknodat(&place.folder, &*place.name, kind, mode, device))
    }

    fn rename(
        &mut self,
        notice: &Notice,
        from: &Named,
        at: &Named,
        flags: u32,
    ) -> Result<SupervisedEnd, Errno> {
        let flags = RenameFlags::from_bits_retain(flags);
        if flags.contains(RenameFlags::WHITEOUT) {
            return Err(Errno::PERM);
        }
        let (old, new) = (self.entry(notice, from)?, self.entry(notice, at)?);
        self.may_make(&new, NewEntryKind::Moved(&old))?;
        // What is guarded stays where it is, and in an exchange both names are made.
        let exchanges = flags.contains(RenameFlags::EXCHANGE);
        self.may_make(&old, if exchanges { NewEntryKind::Moved(&new) } else { NewEntryKind::Entry })?;
        for (from, to) in [(&old, &new), (&new, &old)].into_iter().take(if exchanges { 2 } else { 1 }) {
            if let Some(refusal) = self.must_stay(from, to) {
                self.note(refusal);
                return Err(Errno::PERM);
            }
        }
        if old.is_mount_point()? || new.is_mount_point()? {
            return Err(Errno::BUSY);
        }
        done(rustix::fs::renameat_with(&old.folder, &*old.name, &new.folder, &*new.name, flags))
    }

    fn link(
        &mut self,
        notice: &Notice,
        from: &Named,
        at: &Named,
        flags: i32,
    ) -> Result<SupervisedEnd, Errno> {
        if flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0 {
            return Err(Errno::INVAL);
        }
        let new = self.entry(notice, at)?;
        let follows = flags & libc::AT_SYMLINK_FOLLOW != 0;
        let source = self.linked(notice, from, follows)?;
        let Spot::Entry(old) = self.locate_path(notice, &real_path(source.as_fd())?)? else {
            return Err(Errno::XDEV);
        };
        // Another name for a guarded file would be a way to write it.
        self.may_make(&old, NewEntryKind::Entry)?;
        let is_link = FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode) == FileType::Symlink;
        self.may_make(&new, if is_link { NewEntryKind::Link } else { NewEntryKind::Entry })?;
        let itself = format!("/proc/self/fd/{}", source.as_raw_fd());
        done(rustix::fs::linkat(CWD, itself, &new.folder, &*new.name, AtFlags::SYMLINK_FOLLOW))
    }

    /// The file that is to get another name, opened only to say which it is.
    fn linked(&mut self, notice: &Notice, from: &Named, follows: bool) -> Result<OwnedFd, Errno> {
        let mut spot = self.locate(notice, from)?;
        for _ in 0..LINKS_MAX {
            let place = match spot {
                Spot::Descriptor(number) => {
                    return self.open_of(notice, &format!("fd/{number}"), OFlags::empty());
                }
                Spot::Entry(place) => place,
            };
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&place.folder, &*place.name, flags, Mode::empty())?;
            let found = rustix::fs::fstat(&file)?;
            if !follows || FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
                return Ok(file);
            }
            spot = self.follow(notice, &place)?;
        }
        Err(Errno::LOOP)
    }

    fn open(&mut self, notice: &Notice, at: &Named, wanted: Opening) -> Result<SupervisedEnd, Errno> {
        if wanted.has(libc::O_PATH) || wanted.has(libc::O_CREAT) && wanted.has(libc::O_DIRECTORY) {
            return Err(Errno::INVAL);
        }
        let mut spot = self.locate(notice, at)?;
        for _ in 0..LINKS_MAX {
            let place = match spot {
                Spot::Entry(place) => place,
                Spot::Descriptor(number) => match self.reopen(notice, number, wanted)? {
                    Reopened::Done(done) => return Ok(done),
                    Reopened::At(place) => place,
                },
            };
            if let Some(terminal) =
                self.ground.terminal.as_ref().filter(|_| place.full() == Path::new(OWN_TERMINAL))
            {
                return reopened(terminal, wanted);
            }
            match self.open_at(notice, &place, wanted) {
                Err(Errno::LOOP) if wanted.follows() => spot = self.follow(notice, &place)?,
                Ok(fd) => {
                    self.is_harmless(&fd, &place)?;
                    return finished(fd, wanted);
                }
                // A pipe that nobody reads, or a lease that somebody has to give up: the caller would wait, so it does.
                Err(Errno::NXIO) if !wanted.has(libc::O_NONBLOCK) && is_pipe(&place) => {
                    return Ok(SupervisedEnd::Later);
                }
                Err(Errno::AGAIN) if !wanted.has(libc::O_NONBLOCK) => return Ok(SupervisedEnd::Later),
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::LOOP)
    }

    /// Opens a name without following a link there.
    fn open_at(&mut self, notice: &Notice, place: &NamedEntry, wanted: Opening) -> Result<OwnedFd, Errno> {
        if wanted.has(libc::O_CREAT) && place.has_slash() {
            return Err(Errno::ISDIR);
        }
        let (mut creates, mut refused) = (wanted.has(libc::O_CREAT), None);
        if !wanted.is_unnamed()
            && let Some(refusal) = self.refusal(place, NewEntryKind::Entry)
        {
            if wanted.writes() {
                return Err(self.note(refusal));
            }
            (creates, refused) = (false, Some(refusal));
        }
        creates &= self.check_rights(place, wanted)?;
        let open = |creates: bool| {
            // On a file without a name it means that it gets none.
            let excl = if creates || wanted.is_unnamed() { 0 } else { libc::O_EXCL };
            let kept = wanted.flags & !(libc::O_CREAT | excl);
            let ours = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
            let flags = kept | ours | if creates { libc::O_CREAT } else { 0 };
            let flags = OFlags::from_bits_retain(flags.cast_unsigned());
            rustix::fs::openat(&place.folder, &*place.name, flags, Mode::from_raw_mode(wanted.mode & 0o7777))
        };
        // Most files that are opened for writing are there, and need no `umask`.
        if creates && !wanted.has(libc::O_EXCL) && wanted.has(libc::O_ACCMODE) {
            match open(false) {
                Err(Errno::NOENT) => {}
                result => return result,
            }
        }
        if creates || wanted.is_unnamed() {
            self.take_umask(notice)?;
        }
        match (open(creates), refused) {
            (Err(Errno::NOENT), Some(refusal)) => Err(self.note(refusal)),
            (Err(Errno::NOENT), None) if wanted.has(libc::O_CREAT) && !creates => Err(Errno::ACCESS),
            (result, _) => result,
        }
    }

    /// What Landlock would say in the fallback; whether a name may be made.
    fn check_rights(&self, place: &NamedEntry, wanted: Opening) -> Result<bool, Errno> {
        if self.ground.confinement == Confinement::Full {
            return Ok(true);
        }
        let (reads, writes) = self.rights(&place.full());
        let needs_read = !wanted.has(libc::O_WRONLY);
        if needs_read && !reads || wanted.writes() && !writes {
            return Err(Errno::ACCESS);
        }
        Ok(self.rights(&place.path).1)
    }

    /// Opens again what a descriptor of the caller's own leads to: a pipe, or a file that was removed, as it is, anything else by its path.
    fn reopen(&mut self, notice: &Notice, number: i32, wanted: Opening) -> Result<Reopened, Errno> {
        let file = self.open_of(notice, &format!("fd/{number}"), OFlags::empty())?;
        let found = rustix::fs::fstat(&file)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_removed = kind == FileType::RegularFile && found.st_nlink == 0;
        if is_removed {
            // Its path ends in ` (deleted)`, which would be made as a new name.
            let (reads, writes) = self.rights(&real_path(file.as_fd())?);
            if !reads || wanted.writes() && !writes {
                return Err(Errno::ACCESS);
            }
        }
        if is_removed || kind == FileType::Fifo {
            return reopened(&file, wanted).map(Reopened::Done);
        }
        match self.locate_path(notice, &real_path(file.as_fd())?)? {
            Spot::Entry(place) => Ok(Reopened::At(place)),
            Spot::Descriptor(_) => Err(Errno::LOOP),
        }
    }

    /// Some devices mean the process that opens them: `/dev/tty` would be our terminal, not the program's.
    fn is_harmless(&self, fd: &OwnedFd, place: &NamedEntry) -> Result<(), Errno> {
        // There are no devices in the workspace.
        if place.inside.is_some() {
            return Ok(());
        }
        let found = rustix::fs::fstat(fd)?;
        let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
        if !is_device || rustix::fs::major(found.st_rdev) == MEMORY_DEVICES {
            return Ok(());
        }
        match &self.ground.terminal {
            Some(lent) if rustix::fs::fstat(lent)?.st_rdev == found.st_rdev => Ok(()),
            Some(_) | None => Err(Errno::ACCESS),
        }
    }

    /// Makes the caller's `umask` this thread's, which has one of its own.
    fn take_umask(&self, notice: &Notice) -> Result<(), Errno> {
        let status = std::fs::read(format!("/proc/{}/status", notice.thread));
        self.still_waits(notice)?;
        let status = status.map_err(|_| Errno::ACCESS)?;
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:\t"));
        let mask = line.and_then(|digits| std::str::from_utf8(digits).ok());
        let mask = mask.and_then(|digits| u32::from_str_radix(digits, 8).ok()).ok_or(Errno::ACCESS)?;
        rustix::process::umask(Mode::from_raw_mode(mask));
        Ok(())
    }
}

/// What a descriptor was opened again as.
enum Reopened {
    Done(SupervisedEnd),
    At(NamedEntry),
}

/// Whether a name is that of a pipe.
fn is_pipe(place: &NamedEntry) -> bool {
    rustix::fs::statat(&place.folder, place.plain_name(), AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo)
}

/// Opens again what a descriptor of ours leads to.
fn reopened(file: &OwnedFd, wanted: Opening) -> Result<SupervisedEnd, Errno> {
    let kept = wanted.flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW);
    let flags = kept | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    let again = rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty())?;
    finished(again, wanted)
}

/// The flags that we opened with and the caller didn't ask for are taken back.
fn finished(fd: OwnedFd, wanted: Opening) -> Result<SupervisedEnd, Errno> {
    if !wanted.has(libc::O_NONBLOCK) {
        let kept = OFlags::from_bits_retain((wanted.flags & SETTABLE).cast_unsigned());
        rustix::fs::fcntl_setfl(&fd, kept)?;
    }
    Ok(SupervisedEnd::File { fd, cloexec: wanted.has(libc::O_CLOEXEC) })
}

fn done(result: Result<(), Errno>) -> Result<SupervisedEnd, Errno> {
    result.map(|()| SupervisedEnd::Value(0))
}
