//! The search of a folder before it is moved: one walk for the list of guarded places and for policy, within one budget.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regent_guard::{Creation, Kinds, creation};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::locate::NamedEntry;
use super::policy::WritePolicy;
use crate::survey::{Guards, list};

/// Entries of a folder that are looked at before it is moved.
pub(crate) const SEARCHED_MAX: usize = 1_000_000;
/// Folders within each other that are looked at. What lies deeper is not searched, so the folder isn't moved.
const DEPTH_MAX: usize = 128;
/// How long it may take: every other call of this user's sandboxes waits meanwhile.
pub(crate) const SEARCH_TIME_MAX: Duration = Duration::from_secs(2);
/// Entries that are judged between two looks at the clock.
const CLOCK_EVERY: usize = 64;

/// What a move would bring to its new place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Brought {
    Nothing,
    /// Something that the list guards there.
    Guarded,
    /// Something that policy refuses there.
    Refused,
    /// Nobody knows: it can't be searched within the budget.
    Unknown,
}

/// What is to be moved, and the rules of the place that it is moved to.
pub(super) struct MoveSearch<'a> {
    guards: &'a Guards,
    /// `None`: no rule about writing can apply.
    writing: Option<WritePolicy<'a>>,
    from: &'a NamedEntry,
    /// Where it would be.
    to: &'a Path,
    /// The paths by which the new place is known and at which the list may guard content; whether git writes each in ordinary work.
    special: Vec<(PathBuf, bool)>,
}

impl<'a> MoveSearch<'a> {
    pub(super) fn new(
        guards: &'a Guards,
        writing: Option<WritePolicy<'a>>,
        from: &'a NamedEntry,
        to: &'a Path,
    ) -> Self {
        let judged = |path: PathBuf| {
            // Git would write through a link, to wherever it leads.
            let is_gits = guards.git_dirs.is_written_by_git(&path);
            let is_special = is_gits || matches!(guards.git_dirs.judged(&path), Creation::OnTheWay(_));
            is_special.then_some((path, is_gits))
        };
        let special = guards.spellings(to.to_path_buf()).into_iter().filter_map(judged).collect();
        let writing = writing.filter(|writing| writing.rule.may_refuse());
        Self { guards, writing, from, to, special }
    }

    /// What the move would bring.
    pub(super) fn brought(&self) -> Brought {
        let found = rustix::fs::statat(&self.from.folder, self.from.plain_name(), AtFlags::SYMLINK_NOFOLLOW);
        match found.map(|found| FileType::from_raw_mode(found.st_mode)) {
            Ok(FileType::Directory) if self.special.is_empty() && self.writing.is_none() => Brought::Nothing,
            Ok(FileType::Directory) => self.folder().unwrap_or(Brought::Unknown),
            // A link may stand for a folder with anything in it. A file brings nothing but itself.
            Ok(FileType::Symlink) if !self.special.is_empty() => Brought::Guarded,
            Ok(FileType::Symlink)
                if self.writing.is_some_and(|writing| writing.is_refused_below(self.to)) =>
            {
                Brought::Refused
            }
            Ok(FileType::RegularFile | FileType::Symlink) | Err(Errno::NOENT) => Brought::Nothing,
            // Git would hang at a pipe.
            Ok(_) if self.special.iter().any(|(_, is_gits)| *is_gits) => Brought::Guarded,
            Ok(_) => Brought::Nothing,
            Err(_) => Brought::Unknown,
        }
    }

    /// Looks at everything in the folder. One folder is open at a time, whatever the depth.
    fn folder(&self) -> Result<Brought, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::openat(&self.from.folder, self.from.plain_name(), flags, Mode::empty())?;
        let mut left = vec![(PathBuf::new(), 0)];
        let (mut searched, began) = (0, Instant::now());
        while let Some((folder, depth)) = left.pop() {
            if depth > DEPTH_MAX {
                return Ok(Brought::Unknown);
            }
            let entries = match list(&root, &folder) {
                Ok(listed) => listed.entries,
                // Removed meanwhile: nothing of it is brought.
                Err(Errno::NOENT | Errno::NOTDIR) if depth > 0 => continue,
                Err(errno) => return Err(errno),
            };
            for (name, kind) in entries {
                let is_late = searched % CLOCK_EVERY == 0 && began.elapsed() > SEARCH_TIME_MAX;
                if is_late || searched >= SEARCHED_MAX {
                    return Ok(Brought::Unknown);
                }
                searched += 1;
                let below = folder.join(&name);
                let brought = self.entry(&below, kind);
                if brought != Brought::Nothing {
                    return Ok(brought);
                }
                if kind == FileType::Directory {
                    left.push((below, depth + 1));
                }
            }
        }
        Ok(Brought::Nothing)
    }

    fn entry(&self, below: &Path, kind: FileType) -> Brought {
        if self.special.iter().any(|(to, is_gits)| self.is_guarded(&to.join(below), below, kind, *is_gits)) {
            return Brought::Guarded;
        }
        let Some(writing) = self.writing else { return Brought::Nothing };
        let new = self.to.join(below);
        if writing.refuses(&new) || kind == FileType::Symlink && writing.is_refused_below(&new) {
            return Brought::Refused;
        }
        Brought::Nothing
    }

    /// Whether the list guards an entry at its new path because of where the folder is moved to. What it guards under any folder (a
    /// `.gitattributes` deep inside) may come along from a place where it is guarded too.
    fn is_guarded(&self, new: &Path, below: &Path, kind: FileType, is_gits: bool) -> bool {
        let is_plain = matches!(kind, FileType::Directory | FileType::RegularFile);
        if is_gits && !is_plain {
            return true;
        }
        match self.guards.git_dirs.judged(new) {
            Creation::Guarded(_) => self.from.inside.is_none() || !is_guarded_anywhere(below),
            Creation::OnTheWay(_) => kind == FileType::Symlink,
            Creation::Free => false,
        }
    }
}

/// Whether the list guards a path whatever folder it lies in.
fn is_guarded_anywhere(path: &Path) -> bool {
    let parent = path.parent().map(Path::to_string_lossy).unwrap_or_default();
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    matches!(creation(&parent, &name, Kinds::UNWRITABLE), Creation::Guarded(_))
}
