//! Whose turn it is to change names. A folder is opened long before something in it gets its name, and meanwhile it can be moved: what was
//! judged for one place would appear in another. So names change in turns, and each turn looks whether the folder is still at its place.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::files::split;
use crate::{INSIDE, PathError, ROOT, StopFlag, Workspace, identity_of, openat2};

/// A change waits this long for another one: this many times, this long each time.
const LOCK_TRIES_MAX: u32 = 1_000;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// What a turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    /// One name in one folder. Turns of other folders go on beside it.
    Name,
    /// A folder moves, and with it the place of everything in it: it goes on alone.
    Folder,
}

/// The turn to change names in a folder, of all Regent processes.
pub(crate) struct Turn<'f> {
    workspace: &'f Workspace,
    folder: &'f OwnedFd,
    /// The folder's resolved spelling.
    at: &'f str,
    _locks: (Option<OwnedFd>, Option<FolderLock<'f>>),
}

impl Workspace {
    /// Waits for the turn to change the name at the end of a resolved spelling, in the folder that was opened for it. Fails if that folder
    /// isn't the one at its place any more.
    pub(crate) fn turn<'f>(
        &'f self,
        folder: &'f OwnedFd,
        spelling: &'f str,
        moves: Moves,
    ) -> Result<Turn<'f>, PathError> {
        // First the root, then the folder, in every process: so nobody waits in a circle.
        let is_root = identity_of(&rustix::fs::fstat(folder)?) == self.0.identity;
        let operation = match moves {
            Moves::Name if !is_root => FlockOperation::NonBlockingLockShared,
            Moves::Name | Moves::Folder => FlockOperation::NonBlockingLockExclusive,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat2(self.0.dir.as_fd(), ROOT, flags, Mode::empty(), INSIDE)?;
        let root = lock(root.as_fd(), operation, &self.1)?.then_some(root);
        let own = if is_root { None } else { Some(FolderLock::take(folder, &self.1)?) };
        let turn = Turn { workspace: self, folder, at: split(spelling).0, _locks: (root, own) };
        turn.check()?;
        Ok(turn)
    }
}

impl Turn<'_> {
    /// Fails unless the folder is at its place.
    fn check(&self) -> Result<(), PathError> {
        let there = match self.workspace.reach(self.at, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
            Err(PathError::NotFound | PathError::NotFolder) => return Err(PathError::Changed),
            there => identity_of(&rustix::fs::fstat(there?)?),
        };
        if there == identity_of(&rustix::fs::fstat(self.folder)?) { Ok(()) } else { Err(PathError::Changed) }
    }

    /// The same after a name was given. A program can move folders at any time: what is new there has not been judged, and goes. What was
    /// replaced there was judged under its new name when the folder moved.
    pub(crate) fn still_here(&self, name: &str, is_new: bool) -> Result<(), PathError> {
        self.check().inspect_err(|_moved| {
            if is_new {
                rustix::fs::unlinkat(self.folder, name, AtFlags::empty()).unwrap_or(());
            }
        })
    }
}

/// The write lock of a folder: an advisory lock on the folder itself, so that it ends with the process and leaves no file behind.
struct FolderLock<'f>(Option<BorrowedFd<'f>>);

impl<'f> FolderLock<'f> {
    fn take(folder: &'f OwnedFd, stop: &StopFlag) -> Result<Self, PathError> {
        let is_locked = lock(folder.as_fd(), FlockOperation::NonBlockingLockExclusive, stop)?;
        Ok(Self(is_locked.then_some(folder.as_fd())))
    }
}

impl Drop for FolderLock<'_> {
    fn drop(&mut self) {
        if let Some(folder) = self.0 {
            // The descriptor is closed right after, which unlocks as well.
            rustix::fs::flock(folder, FlockOperation::Unlock).unwrap_or(());
        }
    }
}

/// Waits for a lock. False: the file system has none on folders (NFS), and the comparison right before the change remains.
fn lock(folder: BorrowedFd<'_>, operation: FlockOperation, stop: &StopFlag) -> Result<bool, PathError> {
    for _ in 0..LOCK_TRIES_MAX {
        stop.check()?;
        match rustix::fs::flock(folder, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::INTR) => {}
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::BADF | Errno::INVAL | Errno::NOSYS) => {
                return Ok(false);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(PathError::Busy)
}
