//! One look at the whole workspace before a program starts: what has to be pinned, what has to be blanked, what is where.
//!
//! Only "does not exist" means absent. A folder that can't be looked at could hold anything, so it refuses the run, unless it is
//! somebody else's: then the program, which is the caller's, can't look into it either, and it is blanked as a whole.

mod links;
mod walk;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use regent_guard::{Kinds, kinds_of};

use crate::error::SandboxError;
use crate::spec::WorkspaceMount;
use crate::supervise;
use crate::view;
pub(crate) use walk::{Listed, list};

/// Pins and blanks together: each is a few system calls of a launch.
const MOUNTS_MAX: usize = 8192;

/// What was found in a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Guarded files and folders, made mount points of their own: outer ones first.
    pub(crate) pins: Vec<Pin>,
    /// What is not shown.
    pub(crate) blanks: Vec<Blank>,
    /// Where guarded links lead.
    pub(crate) aliases: Vec<Alias>,
    /// Every folder that a program can make names in.
    pub(crate) folders: Vec<Folder>,
    /// Guarded names that were there.
    pub(crate) guarded: HashSet<PathBuf>,
}

/// A path that can't be renamed or removed, and if `read_only` not be written either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    pub path: PathBuf,
    pub read_only: bool,
}

/// A path whose content is not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blank {
    pub path: PathBuf,
    pub folder: bool,
}

/// A path that counts as another, because a guarded link leads to it: writing it is writing what the link stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alias {
    pub target: PathBuf,
    pub link: PathBuf,
}

/// A folder as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    pub path: PathBuf,
    /// When its entries last changed: seconds, nanoseconds.
    pub changed: (i64, u64),
    pub is_repository: bool,
}

impl Survey {
    /// Looks at a workspace. `may_read` says of a file, by its path in the workspace, whether the program may have it.
    ///
    /// # Errors
    /// When a folder can't be looked at, or more has to be mounted than can be.
    pub fn take(
        mount: &WorkspaceMount,
        may_read: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Self, SandboxError> {
        view::mountable(&mount.host)?;
        // No program of ours moves a folder meanwhile from where we look later to where we have looked already.
        let _order = supervise::order();
        let mut survey = walk::walk(mount, may_read)?;
        survey.blanks.extend(links::named(mount)?);
        survey.tidy();
        survey.check_count(&mount.host)?;
        Ok(survey)
    }

    /// Refuses more pins and blanks than can be mounted.
    pub(crate) fn check_count(&self, host: &Path) -> Result<(), SandboxError> {
        let count = self.pins.len() + self.blanks.len();
        if count > MOUNTS_MAX {
            return Err(SandboxError::Spec(format!(
                "`{}` has {count} guarded or hidden files, and {MOUNTS_MAX} can be covered: move some out of the workspace",
                host.display()
            )));
        }
        Ok(())
    }

    /// The same where no policy says what may be read: secrets by the list of guarded places are hidden.
    pub(crate) fn by_list(mount: &WorkspaceMount) -> Result<Self, SandboxError> {
        Self::take(mount, &mut |path| !kinds_of(path).intersects(Kinds::UNREADABLE))
    }

    /// Every path once, outer paths before inner ones, and nothing below what is blank as a whole.
    fn tidy(&mut self) {
        let depth = |path: &Path| path.components().count();
        self.pins.sort_by(|one, other| (depth(&one.path), &one.path).cmp(&(depth(&other.path), &other.path)));
        // Of two pins for one path the stricter one stays.
        self.pins.sort_by_key(|pin| depth(&pin.path));
        self.pins.dedup_by(|later, first| {
            let same = later.path == first.path;
            if same {
                first.read_only |= later.read_only;
            }
            same
        });
        self.blanks
            .sort_by(|one, other| (depth(&one.path), &one.path).cmp(&(depth(&other.path), &other.path)));
        self.blanks.dedup();
        let dark: HashSet<PathBuf> =
            self.blanks.iter().filter(|blank| blank.folder).map(|blank| blank.path.clone()).collect();
        if !dark.is_empty() {
            let is_below = |path: &Path| path.ancestors().skip(1).any(|above| dark.contains(above));
            self.blanks.retain(|blank| !is_below(&blank.path));
            self.pins.retain(|pin| !is_below(&pin.path));
        }
    }
}

/// A folder of the workspace that can't be looked at.
pub(crate) fn unreadable(host: &Path, path: &Path, cause: impl Into<std::io::Error>) -> SandboxError {
    SandboxError::Unreadable { path: host.join(path), cause: cause.into() }
}

/// The last name of a path as text.
fn text(name: &OsStr) -> std::borrow::Cow<'_, str> {
    name.to_string_lossy()
}
