//! Looking at one folder or file of the workspace, without following a link.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::unreadable;
use crate::error::SandboxError;
use crate::view::FileIdentity;

const LISTING_BYTES: usize = 32 * 1024;

/// Below the workspace, through no link.
pub(crate) const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A folder as it was.
#[derive(Debug)]
pub(crate) struct FolderListing {
    /// Each entry with what it is.
    pub entries: Vec<(OsString, FileType)>,
    /// When the entries last changed: seconds, nanoseconds.
    pub changed: (i64, u64),
    /// From before it was looked at.
    pub listed_at: SystemTime,
    pub identity: FileIdentity,
}

impl FolderListing {
    /// Whether there is an entry of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(found, _)| found == name)
    }
}

/// Lists a folder.
pub(crate) fn list(root: &OwnedFd, path: &Path) -> Result<FolderListing, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    #[expect(
        clippy::disallowed_methods,
        reason = "compared with times of the file system, and never recorded"
    )]
    let listed_at = SystemTime::now();
    let folder = rustix::fs::openat2(root, name_or_dot(path), flags, Mode::empty(), BENEATH)?;
    // By name, which also needs the right to look names up: without it the names alone could be read.
    let found = rustix::fs::statat(&folder, c".", AtFlags::empty())?;
    let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
    let mut listing = RawDir::new(&folder, &mut buffer);
    let mut entries = Vec::new();
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            match rustix::fs::statat(&folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => kind = FileType::from_raw_mode(found.st_mode),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            }
        }
        entries.push((OsString::from_vec(name.to_vec()), kind));
    }
    let identity = FileIdentity { dev: found.st_dev, ino: found.st_ino };
    Ok(FolderListing { entries, changed: (found.st_ctime, found.st_ctime_nsec), listed_at, identity })
}

/// The same; nothing, if it is gone or something else by now.
pub(crate) fn list_or_none(
    root: &OwnedFd,
    (host, path): (&Path, &Path),
) -> Result<Option<FolderListing>, SandboxError> {
    match list(root, path) {
        Ok(listed) => Ok(Some(listed)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(unreadable(host, path, errno)),
    }
}

/// Which file a path is.
pub(crate) fn identity(root: &OwnedFd, path: &Path) -> Result<FileIdentity, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat2(root, name_or_dot(path), flags, Mode::empty(), BENEATH)?;
    let found = rustix::fs::fstat(&file)?;
    Ok(FileIdentity { dev: found.st_dev, ino: found.st_ino })
}

/// The workspace itself has no name of its own.
pub(crate) fn name_or_dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
