//! One look at the whole workspace before a program starts: what has to be pinned, what has to be blanked, what is where.
//!
//! Only "does not exist" means absent. A folder that can't be looked at could hold anything, so it refuses the run, unless it is
//! somebody else's: then the program, which is the caller's, can't look into it either, and it is blanked as a whole.

mod git_config;
mod git_dirs;
mod guards;
mod links;
mod list;
mod listings;
mod named;
mod walk;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regent_guard::{Kinds, kinds_of};
use rustix::io::Errno;

use crate::error::SandboxError;
use crate::spec::WorkspaceMount;
use crate::supervise;
use crate::view::{self, FileIdentity};
pub(crate) use guards::Guards;
pub(crate) use list::{BENEATH, FolderListing, identity, list, name_or_dot};
pub use listings::Listings;
pub(crate) use walk::alternates;

/// Pins and blanks together: each is a few system calls of a launch.
const MOUNTS_MAX: usize = 8192;
/// How long files are judged while every other sandbox of this user waits.
const JUDGED_LOCKED_MAX: Duration = Duration::from_millis(200);
/// Looks at a workspace whose files keep changing. In the last one everything is judged under the lock.
const ROUNDS_MAX: u32 = 5;
/// As long as another process may take to list a very large workspace.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(120);

/// The files to guard and to hide in a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Guarded files and folders, made mount points of their own: outer ones first.
    pub(crate) pins: Vec<Pin>,
    /// What is hidden.
    pub(crate) blanks: Vec<Blank>,
    /// What judges names during the run.
    pub(crate) guards: Guards,
    /// Every folder that a program can make names in.
    pub(crate) folders: Vec<SurveyedFolder>,
    /// Guarded names that were there.
    pub(crate) guarded: HashSet<PathBuf>,
    /// Folders that weren't looked into: objects of git, which are all alike, and what is blank as a whole.
    pub(crate) opaque: HashSet<PathBuf>,
    /// Links in git directories, which git would write through.
    pub(crate) git_links: HashSet<PathBuf>,
    /// Policy lets nothing in it be written.
    pub(crate) is_read_only: bool,
}

/// What a program may do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileUse {
    /// Whether it may be read.
    pub read: bool,
    /// Whether it may be written.
    pub write: bool,
}

impl FileUse {
    /// Both.
    pub const ALL: Self = Self { read: true, write: true };
}

/// A path that can't be renamed or removed, and if `read_only` not be written either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    pub path: PathBuf,
    pub read_only: bool,
    /// Which file it was. `None` if it was gone again.
    pub identity: Option<FileIdentity>,
}

/// A path whose content is hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blank {
    pub path: PathBuf,
    pub folder: bool,
    pub identity: Option<FileIdentity>,
}

impl Pin {
    pub(crate) fn new(path: impl Into<PathBuf>, read_only: bool) -> Self {
        Self { path: path.into(), read_only, identity: None }
    }
}

impl Blank {
    pub(crate) fn new(path: impl Into<PathBuf>, folder: bool) -> Self {
        Self { path: path.into(), folder, identity: None }
    }
}

/// A folder as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SurveyedFolder {
    pub path: PathBuf,
    /// When its entries last changed: seconds, nanoseconds.
    pub changed: (i64, u64),
    pub identity: FileIdentity,
    pub is_repository: bool,
}

impl Survey {
    /// Scans a workspace. `judge` decides for each file, by its path in the workspace, what the program may do with it.
    ///
    /// # Errors
    /// When a folder can't be looked at, or more has to be mounted than can be.
    pub fn take(
        mount: &WorkspaceMount,
        judge: &mut dyn FnMut(&str) -> FileUse,
    ) -> Result<Self, SandboxError> {
        view::mountable(&mount.host)?;
        let mut known = HashMap::new();
        for round in 1.. {
            // No program moves a folder meanwhile from where we look later to where we have looked already.
            let order = supervise::order(LOCK_WAIT_MAX).map_err(SandboxError::host(
                "waiting 2 min for another Regent process that scans a workspace",
            ))?;
            let began = Instant::now();
            let mut unknown = Vec::new();
            let survey = Self::take_once(mount, &mut |path| {
                if let Some(said) = known.get(path) {
                    return *said;
                }
                // Everybody waits for the lock. What can't be judged at once is judged without it, and then everything is listed again.
                if round < ROUNDS_MAX && began.elapsed() > JUDGED_LOCKED_MAX {
                    unknown.push(path.to_owned());
                    return FileUse::ALL;
                }
                let said = judge(path);
                known.insert(path.to_owned(), said);
                said
            })?;
            drop(order);
            if unknown.is_empty() {
                return Ok(survey);
            }
            for path in unknown {
                let said = judge(&path);
                known.insert(path, said);
            }
        }
        Err(SandboxError::Spec("the workspace can't be scanned".to_owned()))
    }

    fn take_once(
        mount: &WorkspaceMount,
        judge: &mut dyn FnMut(&str) -> FileUse,
    ) -> Result<Self, SandboxError> {
        let (root, mut survey, judged) = match walk::walk(mount, judge)? {
            Some(found) => found,
            // A file can be mounted too; it has no entries.
            None => return Ok(Self::default()),
        };
        survey.tidy();
        survey.darken_to(MOUNTS_MAX);
        survey.is_read_only = !judged.pin(&mut survey);
        survey.tidy();
        survey.check_count(&mount.host)?;
        survey.settle(&mount.host, &root)?;
        Ok(survey)
    }

    /// Refuses more pins and blanks than can be mounted.
    fn check_count(&self, host: &Path) -> Result<(), SandboxError> {
        let count = self.pins.len() + self.blanks.len();
        if count > MOUNTS_MAX {
            return Err(SandboxError::Spec(format!(
                "`{}` has {count} guarded or hidden files, and {MOUNTS_MAX} can be covered: move some out of the workspace",
                host.display()
            )));
        }
        Ok(())
    }

    /// Blanks folders as a whole, those with the most hidden files first and deep ones before shallow ones, until there are no more pins
    /// and blanks than can be mounted. Only the workspace itself can't be blank.
    fn darken_to(&mut self, mounts_max: usize) {
        while self.pins.len() + self.blanks.len() > mounts_max {
            let Some(depth) = self.blanks.iter().map(|blank| blank.path.components().count()).max() else {
                return;
            };
            if depth < 2 {
                return;
            }
            let mut folders: HashMap<PathBuf, usize> = HashMap::new();
            for blank in self.blanks.iter().filter(|blank| blank.path.components().count() == depth) {
                if let Some(folder) = blank.path.parent() {
                    *folders.entry(folder.to_path_buf()).or_default() += 1;
                }
            }
            let mut folders: Vec<(usize, PathBuf)> =
                folders.into_iter().map(|(folder, count)| (count, folder)).collect();
            folders.sort();
            let mut excess = (self.pins.len() + self.blanks.len()).saturating_sub(mounts_max);
            while let (true, Some((count, folder))) = (excess > 0, folders.pop()) {
                excess = excess.saturating_sub(count - 1);
                self.opaque.insert(folder.clone());
                self.blanks.push(Blank::new(folder, true));
            }
            self.tidy();
        }
    }

    /// Notes which file each pin and blank is about, so that the mount can't land on another one; and what has to stay in place.
    fn settle(&mut self, host: &Path, root: &OwnedFd) -> Result<(), SandboxError> {
        let look = |path: &Path| match identity(root, path) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(unreadable(host, path, errno)),
        };
        for pin in &mut self.pins {
            pin.identity = look(&pin.path)?;
            self.guards.add_pin(&pin.path);
        }
        for blank in &mut self.blanks {
            blank.identity = look(&blank.path)?;
            self.guards.hold_above(&blank.path);
        }
        Ok(())
    }

    /// The same where no policy says what may be read: secrets by the list of guarded places are hidden.
    pub(crate) fn by_list(mount: &WorkspaceMount) -> Result<Self, SandboxError> {
        Self::take(mount, &mut |path| FileUse {
            read: !kinds_of(path).intersects(Kinds::UNREADABLE),
            write: true,
        })
    }

    /// Every path once, outer paths before inner ones, and nothing below what is blank as a whole.
    pub(crate) fn tidy(&mut self) {
        let depth = |path: &Path| path.components().count();
        self.pins.sort_by(|one, other| (depth(&one.path), &one.path).cmp(&(depth(&other.path), &other.path)));
        // Of two pins for one path the stricter one stays.
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
