//! Why a name is refused: the list of guarded places has it, or policy asks about or denies writing it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use regent_guard::{Creation, GuardKind, Kinds, creation, kinds_of};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::Desk;
use super::judge::Made;
use super::locate::Place;
use crate::writes::{WriteRule, is_in_git};

/// Entries of a folder that are looked at before it is moved.
const SEARCHED_MAX: usize = 100_000;
const LISTING_BYTES: usize = 16 * 1024;
/// Levels of a folder that is moved. What lies deeper could not be judged, so the move is refused.
const DEPTH_MAX: usize = 128;

/// A name that the program may not make or write.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The list of guarded places has it.
    Guarded(PathBuf),
    /// `fs.write` would be asked about or denied it. The path is relative to the workspace.
    Policy(PathBuf),
}

impl Desk {
    /// Why a name must not be made or written, if it must not.
    pub(super) fn refusal(&self, place: &Place, made: Made<'_>) -> Option<Refusal> {
        if self.is_guarded(place, made) {
            return Some(Refusal::Guarded(place.full()));
        }
        let (rule, inside) = (self.ground.writes.as_ref()?, place.inside.as_ref()?);
        if place.is_dots() {
            return None;
        }
        let path = inside.join(place.plain_name());
        let refused = refuses(rule, &path)
            || match made {
                Made::Entry => false,
                Made::Link => stands_for_refused(rule, &path),
                Made::Moved(from) => brings_refused(rule, from, &path),
            };
        refused.then_some(Refusal::Policy(path))
    }
}

/// What is in a `.git` folder git writes in ordinary work; the list knows which of it steers git.
fn refuses(rule: &WriteRule, path: &Path) -> bool {
    !is_in_git(path) && !rule.allows(path)
}

/// Whether a link at this path would stand for a folder in which the table has a place that policy refuses.
fn stands_for_refused(rule: &WriteRule, path: &Path) -> bool {
    let parent = path.parent().map(Path::to_string_lossy).unwrap_or_default();
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    GuardKind::ALL.into_iter().any(|kind| {
        let Creation::OnTheWay(place) = creation(&parent, &name, Kinds::from(kind)) else { return false };
        let pattern = place.pattern.trim_start_matches("**/").replace("**", "x").replace('*', "x");
        let names: Vec<&str> = pattern.split('/').collect();
        (1..names.len()).any(|at| {
            let example = path.join(names.get(at..).unwrap_or_default().join("/"));
            kinds_of(&example.to_string_lossy()).contains(kind) && refuses(rule, &example)
        })
    })
}

/// Whether something that is moved would be refused at its new place and isn't where it is now. What can't be searched would.
fn brings_refused(rule: &WriteRule, from: &Place, to: &Path) -> bool {
    let found = rustix::fs::statat(&from.folder, from.plain_name(), AtFlags::SYMLINK_NOFOLLOW);
    match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
        Ok(FileType::Directory) => {}
        Ok(FileType::Symlink) => return stands_for_refused(rule, to),
        Ok(_) | Err(Errno::NOENT) => return false,
        Err(_) => return true,
    }
    let here = from.inside.as_ref().map(|inside| inside.join(from.plain_name()));
    let is_new = |below: &Path| {
        refuses(rule, &to.join(below)) && here.as_ref().is_none_or(|here| !refuses(rule, &here.join(below)))
    };
    search(from, |below, kind| {
        let may_be_link = matches!(kind, FileType::Symlink | FileType::Unknown);
        is_new(below) || may_be_link && stands_for_refused(rule, &to.join(below))
    })
    .unwrap_or(true)
}

/// Whether `finds` says so of anything in a folder. Folders are opened one after the other, so that a deep tree takes neither stack
/// nor descriptors.
fn search(from: &Place, finds: impl Fn(&Path, FileType) -> bool) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::openat(&from.folder, from.plain_name(), flags, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut left = VecDeque::from([(PathBuf::from("."), 0)]);
    let mut seen = 0;
    while let Some((path, depth)) = left.pop_front() {
        let folder = match rustix::fs::openat2(&root, &path, flags, Mode::empty(), resolve) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            folder => folder?,
        };
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
        let mut entries = RawDir::new(folder, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            seen += 1;
            let below = if depth == 0 { PathBuf::from(name) } else { path.join(name) };
            if seen > SEARCHED_MAX || depth >= DEPTH_MAX || finds(&below, entry.file_type()) {
                return Ok(true);
            }
            if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                left.push_back((below, depth + 1));
            }
        }
    }
    Ok(false)
}
