//! Whether a name may be made, by the list of guarded places and by what the survey found.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regent_guard::{Creation, completes_repository};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::Desk;
use super::locate::Place;
use crate::survey::Guards;

/// Entries of a folder that are looked at before it is moved to where its content may be guarded.
const SEARCHED_MAX: usize = 100_000;
/// Folders within each other that are looked at for the same reason. What lies deeper is not searched, so it isn't moved.
const DEPTH_MAX: usize = 128;
/// How long it may take: every other call waits meanwhile.
const SEARCH_TIME_MAX: Duration = Duration::from_millis(500);
const LISTING_BYTES: usize = 16 * 1024;

/// What is to be made.
#[derive(Debug, Clone, Copy)]
pub(super) enum Made<'a> {
    /// A file, or an empty folder.
    Entry,
    /// A symbolic link, which may stand for a folder with anything in it; or a pipe or socket, which git would hang at.
    Link,
    /// What is at another place, with all that is in it.
    Moved(&'a Place),
}

impl Desk {
    /// Whether a name must not be made in the workspace. Outside of it there is nothing to guard.
    pub(super) fn is_guarded(&self, place: &Place, made: Made<'_>) -> bool {
        let Some(inside) = &place.inside else { return false };
        if place.is_dots() {
            return false;
        }
        let name = place.plain_name();
        if would_complete_repository(place.folder.as_fd(), name) {
            return true;
        }
        let (guards, path) = (&self.ground.guards, inside.join(name));
        let replaces = !matches!(made, Made::Entry);
        if guards.is_link(&path) || replaces && guards.is_held(&path) {
            return true;
        }
        guards.spellings(path).iter().any(|path| {
            // Git would write through a link, to wherever it leads.
            let is_gits = guards.git_dirs.is_written_by_git(path);
            match (guards.git_dirs.judged(path), made) {
                (Creation::Guarded(_), _) | (Creation::OnTheWay(_), Made::Link) => true,
                (Creation::Free, Made::Link) => is_gits,
                (Creation::OnTheWay(_), Made::Moved(from)) => brings_guarded(guards, from, path, is_gits),
                (Creation::Free, Made::Moved(from)) => is_gits && brings_guarded(guards, from, path, is_gits),
                (Creation::OnTheWay(_) | Creation::Free, Made::Entry) => false,
            }
        })
    }

    /// Whether what is at a place has to stay there: something guarded or hidden depends on the path, or would be free at the other one.
    pub(super) fn must_stay(&self, from: &Place, to: &Place) -> bool {
        let whole = |place: &Place| place.inside.as_ref().map(|inside| inside.join(place.plain_name()));
        // Nothing is moved out of the workspace: it is a mount of its own, or all that can be written.
        let (Some(old), Some(new)) = (whole(from), whole(to)) else { return false };
        let guards = &self.ground.guards;
        guards.is_link(&old) || guards.is_held(&old) || guards.unguards(&old, &new)
    }
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

/// Whether what is at `from` would be guarded at `to`, or something in it, that isn't guarded where it is now. What can't be searched
/// would. In a git directory the same holds for links and pipes.
fn brings_guarded(guards: &Guards, from: &Place, to: &Path, is_gits: bool) -> bool {
    let found = rustix::fs::statat(&from.folder, from.plain_name(), AtFlags::SYMLINK_NOFOLLOW);
    match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
        Ok(FileType::Directory) => {}
        // A link may stand for a folder with anything in it. A file brings nothing but itself.
        Ok(FileType::Symlink) => {
            return is_gits || matches!(guards.git_dirs.judged(to), Creation::OnTheWay(_));
        }
        Ok(FileType::RegularFile) | Err(Errno::NOENT) => return false,
        Ok(_) => return is_gits,
        Err(_) => return true,
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(root) = rustix::fs::openat(&from.folder, from.plain_name(), flags, Mode::empty()) else {
        return true;
    };
    let here = from.inside.as_ref().map(|inside| inside.join(from.plain_name()));
    let search = Search { guards, root: root.as_fd(), here: here.as_deref(), to, is_gits };
    search.finds().unwrap_or(true)
}

/// A search of a folder that is to be moved. One folder is open at a time, whatever the depth.
struct Search<'a> {
    guards: &'a Guards,
    root: BorrowedFd<'a>,
    /// Where it is now, if that is in the workspace.
    here: Option<&'a Path>,
    to: &'a Path,
    is_gits: bool,
}

impl Search<'_> {
    fn finds(&self) -> Result<bool, Errno> {
        let mut left = vec![(PathBuf::new(), 0)];
        let (mut searched, began) = (0, Instant::now());
        while let Some((folder, depth)) = left.pop() {
            if depth > DEPTH_MAX || began.elapsed() > SEARCH_TIME_MAX {
                return Ok(true);
            }
            for (name, kind) in self.list(&folder, SEARCHED_MAX - searched)? {
                searched += 1;
                let below = folder.join(&name);
                if self.is_brought(&below, kind) {
                    return Ok(true);
                }
                if kind == FileType::Directory {
                    left.push((below, depth + 1));
                }
            }
        }
        Ok(false)
    }

    fn is_brought(&self, below: &Path, kind: FileType) -> bool {
        let judged = |path: &Path| self.guards.git_dirs.judged(path);
        let (new, old) = (self.to.join(below), self.here.map(|here| here.join(below)));
        let said = judged(&new);
        let was_guarded = || old.as_deref().is_some_and(|old| matches!(judged(old), Creation::Guarded(_)));
        let is_plain = matches!(kind, FileType::Directory | FileType::RegularFile);
        let leads_there = kind == FileType::Symlink && matches!(said, Creation::OnTheWay(_));
        if leads_there || self.is_gits && !is_plain {
            return true;
        }
        matches!(said, Creation::Guarded(_)) && !was_guarded()
    }

    /// The entries of a folder, if there are no more than `max`.
    fn list(&self, below: &Path, max: usize) -> Result<Vec<(std::ffi::OsString, FileType)>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let path = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let folder = rustix::fs::openat2(self.root, path, flags, Mode::empty(), resolve)?;
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
        let mut listing = RawDir::new(&folder, &mut buffer);
        let mut entries = Vec::new();
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if entries.len() >= max {
                return Err(Errno::TOOBIG);
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let found = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                kind = FileType::from_raw_mode(found.st_mode);
            }
            entries.push((name.to_owned(), kind));
        }
        Ok(entries)
    }
}
