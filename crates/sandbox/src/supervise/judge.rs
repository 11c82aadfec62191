//! Whether a name may be made, by the list of guarded places.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use regent_guard::{Creation, Kinds, completes_repository, creation};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::Desk;
use super::locate::Place;

/// Entries of a folder that are looked at before it is moved to where its content may be guarded.
const SEARCHED_MAX: usize = 100_000;
const LISTING_BYTES: usize = 16 * 1024;

/// What is to be made.
#[derive(Debug, Clone, Copy)]
pub(super) enum Made<'a> {
    /// A file, or an empty folder.
    Entry,
    /// A symbolic link, which may stand for a folder with anything in it.
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
        self.spellings(inside, name).iter().any(|path| match (judged(path), made) {
            (Creation::Guarded(_), _) | (Creation::OnTheWay(_), Made::Link) => true,
            (Creation::OnTheWay(_), Made::Moved(from)) => brings_guarded(from, path),
            (Creation::Free, Made::Moved(from)) if has_git_folder(path) => brings_guarded(from, path),
            (Creation::OnTheWay(_), Made::Entry) | (Creation::Free, _) => false,
        })
    }

    /// A path of the workspace, and every path by which a guarded link leads there.
    fn spellings(&self, inside: &Path, name: &OsStr) -> Vec<PathBuf> {
        let path = inside.join(name);
        let by_link = self.ground.aliases.iter().filter_map(|alias| {
            let rest = path.strip_prefix(&alias.target).ok()?;
            Some(if rest.as_os_str().is_empty() { alias.link.clone() } else { alias.link.join(rest) })
        });
        let mut all: Vec<PathBuf> = by_link.collect();
        all.push(path);
        all
    }
}

/// What the list says to a path of the workspace.
pub(crate) fn judged(path: &Path) -> Creation {
    let parent = path.parent().map(Path::to_string_lossy).unwrap_or_default();
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    creation(&parent, &name, Kinds::UNWRITABLE)
}

fn has_git_folder(path: &Path) -> bool {
    path.components().any(|part| {
        matches!(creation("", &part.as_os_str().to_string_lossy(), Kinds::UNWRITABLE),
            Creation::Guarded(place) if place.pattern == "**/.git/**")
    })
}

/// Whether the name makes a repository out of the folder, or steers one that it is.
fn would_complete_repository(folder: BorrowedFd<'_>, name: &OsStr) -> bool {
    // Who can't look has to say that it is there.
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

/// Whether something in the folder `from` would be guarded below `to` that isn't where it is now. What can't be searched would.
fn brings_guarded(from: &Place, to: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let here = from.inside.as_ref().map(|inside| inside.join(from.plain_name()));
    let mut left = SEARCHED_MAX;
    let found = rustix::fs::statat(&from.folder, from.plain_name(), AtFlags::SYMLINK_NOFOLLOW);
    match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
        Ok(FileType::Directory) => {}
        // A link may stand for a folder with anything in it. Anything else brings nothing but itself.
        Ok(FileType::Symlink) => return matches!(judged(to), Creation::OnTheWay(_)),
        Ok(_) | Err(Errno::NOENT) => return false,
        Err(_) => return true,
    }
    match rustix::fs::openat(&from.folder, from.plain_name(), flags, Mode::empty()) {
        Ok(folder) => search(folder.as_fd(), here.as_deref(), to, &mut left),
        Err(_) => true,
    }
}

fn search(folder: BorrowedFd<'_>, here: Option<&Path>, to: &Path, left: &mut usize) -> bool {
    let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else { return true };
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        *left = left.saturating_sub(1);
        let (new, old) = (to.join(name), here.map(|here| here.join(name)));
        let guarded = |path: &Path| matches!(judged(path), Creation::Guarded(_));
        if *left == 0 || guarded(&new) && !old.as_deref().is_some_and(guarded) {
            return true;
        }
        let may_be_link = matches!(entry.file_type(), FileType::Symlink | FileType::Unknown);
        if may_be_link && matches!(judged(&new), Creation::OnTheWay(_)) {
            return true;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let is_folder = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        match is_folder.then(|| rustix::fs::openat(folder, name, flags, Mode::empty())) {
            Some(Ok(below)) => {
                if search(below.as_fd(), old.as_deref(), &new, left) {
                    return true;
                }
            }
            None | Some(Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT)) => {}
            Some(Err(_)) => return true,
        }
    }
    false
}
