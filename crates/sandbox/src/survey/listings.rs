//! Folders as they were when they were last listed, so that a launch lists only what has changed since.
//!
//! A folder's change time moves with every name that is made, removed or renamed in it, and no program can set it. A listing is used
//! again if the folder is the same one with the same change time, on a file system that keeps such times, and if the folder had been
//! at rest when it was listed: of two changes within one tick of the clock the second leaves no trace.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::list::{FolderListing, list, name_or_dot};

/// The coarsest tick that a file system here can have is far shorter.
const REST_S: i64 = 2;
/// Workspaces whose folders are remembered.
const WORKSPACES_MAX: usize = 8;
/// Names that are remembered, in all folders of a workspace.
const NAMES_MAX: usize = 2_000_000;
/// Local file systems that keep change times: ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, ZFS, overlayfs.
const KEEPING_TIMES: &[u64] =
    &[0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0xF2F5_2010, 0x2FC1_2FC1, 0x794C_7630];

type Folders = HashMap<PathBuf, Arc<FolderListing>>;

/// A cache of folder listings, by path on the host.
#[derive(Debug, Default)]
pub struct Listings(Mutex<HashMap<PathBuf, Folders>>);

/// What is remembered says nothing about a workspace that looking at it would not.
impl PartialEq for Listings {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Listings {}

impl Listings {
    /// For one walk through a workspace.
    pub(super) fn begin(&self, host: &Path, root: &OwnedFd) -> FolderCache {
        let keeps =
            rustix::fs::fstatfs(root).is_ok_and(|found| KEEPING_TIMES.contains(&(found.f_type as u64)));
        let device = rustix::fs::fstat(root).ok().filter(|_| keeps).map(|found| found.st_dev);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.remove(host).unwrap_or_default();
        FolderCache { before, now: Folders::new(), names: 0, device }
    }

    /// Keeps what the walk saw, and nothing else.
    pub(super) fn end(&self, host: &Path, walked: FolderCache) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < WORKSPACES_MAX && !walked.now.is_empty() {
            all.insert(host.to_path_buf(), walked.now);
        }
    }
}

/// The folders of one workspace: as the last walk left them, and as this one finds them.
#[derive(Debug, Default)]
pub(super) struct FolderCache {
    before: Folders,
    now: Folders,
    names: usize,
    /// The workspace's own. What is mounted in it from elsewhere is always listed; `None`: so is everything.
    device: Option<u64>,
}

impl FolderCache {
    /// A folder as it is.
    pub(super) fn list(&mut self, root: &OwnedFd, path: &Path) -> Result<Arc<FolderListing>, Errno> {
        if let Some((path, listed)) = self.before.remove_entry(path)
            && is_as_it_was(root, &path, &listed)
        {
            self.keep(path, &listed);
            return Ok(listed);
        }
        let listed = Arc::new(list(root, path)?);
        if self.device == Some(listed.identity.dev) && listed.is_at_rest(REST_S) {
            self.keep(path.to_path_buf(), &listed);
        }
        Ok(listed)
    }

    fn keep(&mut self, path: PathBuf, listed: &Arc<FolderListing>) {
        self.names = self.names.saturating_add(listed.entries.len());
        if self.names <= NAMES_MAX {
            self.now.insert(path, Arc::clone(listed));
        }
    }
}

/// A path that leads elsewhere by now leads to another folder, or to one with another time.
fn is_as_it_was(root: &OwnedFd, path: &Path, listed: &FolderListing) -> bool {
    rustix::fs::statat(root, name_or_dot(path), AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
        (found.st_dev, found.st_ino) == (listed.identity.dev, listed.identity.ino)
            && (found.st_ctime, found.st_ctime_nsec) == listed.changed
    })
}

impl FolderListing {
    /// Whether nothing changed in the folder for some seconds before it was listed.
    fn is_at_rest(&self, seconds: i64) -> bool {
        let since =
            |at: SystemTime| at.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs().cast_signed());
        since(self.listed_at).is_some_and(|at| self.changed.0 <= at.saturating_sub(seconds))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, Mode, OFlags};

    use super::*;

    fn walk(listings: &Listings, root: &Path, paths: &[&str]) -> (Vec<usize>, usize) {
        let fd = rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut walked = listings.begin(root, &fd);
        let list = |path: &&str| walked.list(&fd, Path::new(path)).map_or(0, |listed| listed.entries.len());
        let found = paths.iter().map(list).collect();
        let kept = walked.now.len();
        listings.end(root, walked);
        (found, kept)
    }

    fn rested(path: &Path) {
        let seconds = |path: &Path| fs::metadata(path).unwrap().modified().unwrap().elapsed().unwrap();
        while seconds(path).as_secs() <= REST_S.cast_unsigned() {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    #[test]
    fn a_folder_that_was_just_changed_is_not_remembered_and_one_at_rest_is_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("a")).unwrap();
        let listings = Listings::default();
        assert_eq!(walk(&listings, root, &["", "a"]), (vec![1, 0], 0));
        rested(root);
        assert_eq!(walk(&listings, root, &["", "a"]), (vec![1, 0], 2));
        assert_eq!(walk(&listings, root, &["", "a"]), (vec![1, 0], 2));
        fs::write(root.join("a/.env"), "").unwrap();
        assert_eq!(walk(&listings, root, &["", "a"]), (vec![1, 1], 1));
        // Another folder of the same name, and a name that is gone.
        fs::rename(root.join("a"), root.join("b")).unwrap();
        fs::create_dir(root.join("a")).unwrap();
        assert_eq!(walk(&listings, root, &["", "a", "b", "c"]), (vec![2, 0, 1, 0], 0));
    }
}
