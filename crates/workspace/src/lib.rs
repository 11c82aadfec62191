//! The workspace: the folder that agents work in, held by descriptor. Files are opened beneath it, never by path strings.
//!
//! There are two steps. [`Workspace::resolve`] finds the one spelling of a path, with every link followed, and policy judges that
//! spelling. Opening takes the judged spelling and follows no link (`openat2` beneath the held descriptor). If something was
//! swapped in between, the open fails.
//!
//! The workspace refuses a file with a second hard link (it may be a file from elsewhere
//! under a name in here), anything on another mount (the workspace's owner may not have created it), and FIFOs,
//! sockets and devices.
//!
//! Regent's own files are out of reach for every caller: `.regent/**` at any depth and in any spelling, and the folders that
//! [`Workspace::with_own`] names. Listings leave them out.
#![forbid(unsafe_code)]

mod content;
mod error;
mod files;
mod own;
mod spellings;
mod trees;
mod turn;
mod walk;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

pub use content::{Content, FileState, NamedEntry, NamedFile, TreeError};
pub use error::PathError;
pub use files::{FileKind, FileMetadata, FolderEntry, Listing, Missing, Placement, Written, escape_name};
pub use own::{Overlap, OwnFolders};
pub use spellings::Spellings;
pub use trees::{FolderState, RemoveError, TreeEntry, TreeLimits};

/// The spelling of the workspace's own root.
const ROOT: &str = ".";
/// Linux takes no longer path.
const PATH_BYTES_MAX: usize = 4096;
/// Linux has no longer name.
const NAME_BYTES_MAX: usize = 255;
/// How often an open that raced with a rename is tried again.
const RETRIES_MAX: u8 = 32;

/// The workspace. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Workspace(Arc<OpenWorkspace>, StopFlag);

/// Tells work on another thread to stop. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// From now on the work changes nothing more.
    pub fn pull(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether to stop.
    pub fn is_pulled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<(), PathError> {
        if self.is_pulled() { Err(PathError::Stopped) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct OpenWorkspace {
    /// Where it was when it was opened, without links.
    root: PathBuf,
    /// The names of `root` from `/` down.
    names: Vec<String>,
    /// The folder itself, wherever it has been moved since.
    dir: OwnedFd,
    /// The root of the file system, for what policy allows outside.
    slash: OwnedFd,
    /// Device and inode of `dir`.
    identity: (u64, u64),
    /// Folders that are out of reach.
    own: OwnFolders,
}

impl Workspace {
    /// Takes hold of a folder.
    pub fn open(root: &Path) -> Result<Self, PathError> {
        Self::with_own(root, OwnFolders::default())
    }

    /// The same, with folders of Regent's own that are out of reach. Whether the workspace may lie where it does is
    /// [`OwnFolders::check`]'s to say.
    pub fn with_own(root: &Path, own: OwnFolders) -> Result<Self, PathError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The person who starts Regent names this folder: links on the way to it are theirs.
        let root = std::fs::canonicalize(root).map_err(|error| PathError::of_io(&error))?;
        let dir = rustix::fs::openat(CWD, &root, flags, Mode::empty())?;
        let slash = rustix::fs::openat(CWD, "/", flags, Mode::empty())?;
        let text = root.to_str().ok_or(PathError::NotText)?;
        if text.chars().any(char::is_control) {
            return Err(PathError::Control);
        }
        let names = text.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let identity = identity_of(&rustix::fs::fstat(&dir)?);
        let open = OpenWorkspace { names, dir, slash, identity, root, own };
        Ok(Self(Arc::new(open), StopFlag::default()))
    }

    /// The same workspace for one call: once the flag is pulled, nothing is written, moved or removed through this handle any more.
    #[must_use]
    pub fn stopped_by(&self, stop: &StopFlag) -> Self {
        Self(Arc::clone(&self.0), stop.clone())
    }

    /// Its place when it was opened.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// The folders of Regent's own that no tool reaches and no program sees.
    pub fn own_folders(&self) -> &[PathBuf] {
        self.0.own.folders()
    }

    /// Whether a resolved spelling leads to Regent's own files.
    pub fn is_reserved(&self, spelling: &str) -> bool {
        regent_guard::is_kind(spelling, regent_guard::GuardKind::Regent)
            || (!is_inside(spelling) && self.0.own.holds(spelling))
    }

    /// Whether a tool may not write a resolved spelling because it would make a repository that git believes. In `.git` itself policy decides.
    pub fn makes_repository(&self, spelling: &str) -> bool {
        !regent_guard::is_kind(spelling, regent_guard::GuardKind::Control)
            && self.completes_repository(spelling)
    }

    /// The same once more under the lock of the folder: what two calls write side by side was judged before either wrote.
    fn check_layout(&self, spelling: &str) -> Result<(), PathError> {
        self.1.check()?;
        if self.makes_repository(spelling) { Err(PathError::Repository) } else { Ok(()) }
    }

    /// Whether writing a resolved spelling would make some folder on its way a git repository in bare layout, or change what such a
    /// repository runs. Git obeys the `config` of any folder with `HEAD`, `objects` and `refs`. What can't be read counts as existing.
    fn completes_repository(&self, spelling: &str) -> bool {
        let (mut above, below) = match spelling.strip_prefix('/') {
            Some(below) => ("/".to_owned(), below),
            None => (String::new(), spelling),
        };
        for name in below.split('/') {
            let sibling = |sibling: &str| {
                let found = self.reach(&format!("{above}{sibling}"), OFlags::PATH, Mode::empty());
                !matches!(found, Err(PathError::NotFound | PathError::NotFolder))
            };
            if regent_guard::completes_repository(name, sibling) {
                return true;
            }
            above.push_str(name);
            above.push('/');
        }
        false
    }

    /// The one spelling of a path that policy judges and the executor opens.
    ///
    /// What is inside: relative, `/` between names, no dots, no links (`.` is the root itself). What is outside: absolute, no dots, no
    /// links. Names that don't exist yet are kept as they are. `~` and `%2e` mean nothing special.
    pub fn resolve(&self, text: &str) -> Result<String, PathError> {
        self.resolved(text).map(|(spelling, _)| spelling)
    }

    /// The same, with the names that it had before each link on the way was followed.
    fn resolved(&self, text: &str) -> Result<(String, Vec<String>), PathError> {
        check_text(text)?;
        match self.without_links(text) {
            Some(spelling) => Ok((spelling, Vec::new())),
            None => walk::resolve(&self.0, text),
        }
    }

    /// The common case in one system call: a relative path without any link in it needs only its dots taken out.
    fn without_links(&self, text: &str) -> Option<String> {
        if text.starts_with('/') {
            return None;
        }
        // Not with NOFOLLOW: that would open a link at the end as itself instead of refusing it.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat2(self.0.dir.as_fd(), text, flags, Mode::empty(), INSIDE).ok()?;
        let mut names: Vec<&str> = Vec::new();
        for name in text.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    names.pop()?;
                }
                name => names.push(name),
            }
        }
        Some(if names.is_empty() { ROOT.to_owned() } else { names.join("/") })
    }

    fn check_reach(&self, spelling: &str) -> Result<(), PathError> {
        check_spelling(spelling)?;
        if self.is_reserved(spelling) { Err(PathError::Reserved) } else { Ok(()) }
    }

    /// Opens a resolved spelling, following nothing.
    fn reach(&self, spelling: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, PathError> {
        self.check_reach(spelling)?;
        let flags = flags | OFlags::CLOEXEC;
        match spelling.strip_prefix('/') {
            None => openat2(self.0.dir.as_fd(), spelling, flags, mode, INSIDE),
            Some("") => openat2(self.0.slash.as_fd(), ".", flags, mode, OUTSIDE),
            Some(below) => openat2(self.0.slash.as_fd(), below, flags, mode, OUTSIDE),
        }
    }
}

impl AsFd for Workspace {
    /// The folder itself, opened with `O_PATH`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.dir.as_fd()
    }
}

const NO_LINKS: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// How anything inside is reached.
const INSIDE: ResolveFlags = NO_LINKS.union(ResolveFlags::NO_XDEV);
/// How something outside that policy allowed is reached: the machine's own mounts are part of its path.
const OUTSIDE: ResolveFlags = NO_LINKS;

fn openat2(
    at: BorrowedFd<'_>,
    path: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd, PathError> {
    for _ in 0..RETRIES_MAX {
        match rustix::fs::openat2(at, path, flags, mode, resolve) {
            // A rename elsewhere raced with `..`; the kernel couldn't tell and wants to be asked again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(fd) => return Ok(fd),
            Err(errno) => return Err(PathError::from(errno)),
        }
    }
    Err(PathError::Swapped)
}

/// Whether a resolved spelling is inside the workspace.
fn is_inside(spelling: &str) -> bool {
    !spelling.starts_with('/')
}

fn identity_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// What no path may be, for any caller. Control characters would forge lines and slip past patterns, so names with them can be listed
/// (escaped) but not asked for.
fn check_text(text: &str) -> Result<(), PathError> {
    if text.is_empty() {
        return Err(PathError::Empty);
    }
    if text.len() >= PATH_BYTES_MAX || text.split('/').any(|name| name.len() > NAME_BYTES_MAX) {
        return Err(PathError::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(PathError::Control);
    }
    Ok(())
}

/// Openers take what `resolve` gave and nothing else: dots here mean that someone skipped it.
fn check_spelling(spelling: &str) -> Result<(), PathError> {
    check_text(spelling)?;
    let below = spelling.strip_prefix('/').unwrap_or(spelling);
    let odd = |name: &str| matches!(name, "" | "." | "..");
    if spelling != ROOT && spelling != "/" && below.split('/').any(odd) {
        return Err(PathError::NotResolved);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
