//! Whether a name may be made or moved, by the list of guarded places, by policy and by what the survey found.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use regent_guard::{Creation, completes_repository};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::Desk;
use super::locate::NamedEntry;
use super::policy::{Refusal, WritePolicy};
use super::search::{Brought, MoveSearch};

/// What is to be made.
#[derive(Debug, Clone, Copy)]
pub(super) enum NewEntryKind<'a> {
    /// A file, or an empty folder.
    Entry,
    /// A symbolic link, which may stand for a folder with anything in it; or a pipe or socket, which git would hang at.
    Link,
    /// What is at another place, with all that is in it.
    Moved(&'a NamedEntry),
}

impl Desk {
    /// Why a name must not be made or written, if it must not. Outside the workspace there is nothing to guard.
    pub(super) fn refusal(&self, place: &NamedEntry, made: NewEntryKind<'_>) -> Option<Refusal> {
        let path = inside(place)?;
        if place.is_dots() {
            return None;
        }
        if self.is_guarded(place, &path, made) {
            return Some(Refusal::Guarded(place.full()));
        }
        let writing = self.writing();
        if writing.is_some_and(|writing| writing.refuses(&path)) {
            return Some(Refusal::Policy(path));
        }
        match made {
            NewEntryKind::Entry => None,
            NewEntryKind::Link => writing
                .is_some_and(|writing| writing.is_refused_below(&path))
                .then_some(Refusal::Policy(path)),
            NewEntryKind::Moved(from) => {
                match MoveSearch::new(&self.ground.guards, writing, from, &path).brought() {
                    Brought::Nothing => None,
                    Brought::Guarded => Some(Refusal::Guarded(place.full())),
                    Brought::Refused => Some(Refusal::Policy(path)),
                    Brought::Unknown => Some(Refusal::Unsearched(from.full())),
                }
            }
        }
    }

    /// Why what is at a place has to stay there, if it has to: something guarded, hidden or refused depends on the path, or would be
    /// free at the other one.
    pub(super) fn must_stay(&self, from: &NamedEntry, to: &NamedEntry) -> Option<Refusal> {
        // Nothing is moved out of the workspace: it is a mount of its own, or all that can be written.
        let (old, new) = (inside(from)?, inside(to)?);
        let guards = &self.ground.guards;
        if guards.is_link(&old) || guards.is_held(&old) || guards.unguards(&old, &new) {
            return Some(Refusal::Guarded(from.full()));
        }
        guards.is_kept_by_policy(&old).then_some(Refusal::Policy(old))
    }

    fn writing(&self) -> Option<WritePolicy<'_>> {
        let guards = &self.ground.guards;
        self.ground.writes.as_ref().map(|rule| WritePolicy { rule, guards })
    }

    /// Whether the list refuses a name, apart from what a folder that is moved there would bring.
    fn is_guarded(&self, place: &NamedEntry, path: &Path, made: NewEntryKind<'_>) -> bool {
        if would_complete_repository(place.folder.as_fd(), place.plain_name()) {
            return true;
        }
        let guards = &self.ground.guards;
        let replaces = !matches!(made, NewEntryKind::Entry);
        if guards.is_link(path) || replaces && (guards.is_held(path) || guards.is_kept_by_policy(path)) {
            return true;
        }
        guards.spellings(path.to_path_buf()).iter().any(|path| match (guards.git_dirs.judged(path), made) {
            (Creation::Guarded(_), _) | (Creation::OnTheWay(_), NewEntryKind::Link) => true,
            // Git would write through a link, to wherever it leads.
            (Creation::Free, NewEntryKind::Link) => guards.git_dirs.is_written_by_git(path),
            (Creation::OnTheWay(_) | Creation::Free, NewEntryKind::Entry | NewEntryKind::Moved(_)) => false,
        })
    }
}

/// The path of a place relative to the workspace, if it lies in there.
fn inside(place: &NamedEntry) -> Option<PathBuf> {
    place.inside.as_ref().map(|inside| inside.join(place.plain_name()))
}

/// Whether the name makes a repository out of the folder, or steers one that it is.
fn would_complete_repository(folder: BorrowedFd<'_>, name: &OsStr) -> bool {
    // An entry that can't be looked at may be there.
    let has = |name: &OsStr| {
        !matches!(rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
    };
    if !completes_repository(&name.to_string_lossy(), |sibling| has(OsStr::new(sibling))) {
        return false;
    }
    // A repository that is one already renews these in ordinary work.
    let bytes = name.as_bytes();
    let plain = OsStr::from_bytes(bytes.strip_suffix(b".lock").unwrap_or(bytes));
    !(["HEAD", "objects", "refs"].iter().any(|part| plain == *part) && has(plain))
}
