//! Control paths that did not exist when a run began.
//!
//! A mount needs something to cover, and making a placeholder would leave it behind if we were killed. So for a
//! control path that isn't there (or is a link, which a mount can't cover either) we look again when everything in
//! the box is dead. If it has appeared or changed, it is moved aside, under a name that nothing acts on: a person may
//! have made it in the meantime, so it is never deleted. While the run lasts, such a file can be seen on the host.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use crate::ended::Planted;
use crate::spec::Spec;
use crate::view::{ancestors, pinnable};

/// What to look at again after a run.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    workspace: PathBuf,
    root: Option<OwnedFd>,
    paths: Vec<(PathBuf, Option<OsString>)>,
}

impl Watch {
    /// Notes which control paths are absent, or links, now.
    pub(crate) fn before(spec: &Spec) -> Self {
        let Some(workspace) = spec.workspace.as_ref().filter(|workspace| workspace.writable) else {
            return Self::default();
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, &workspace.host, flags, Mode::empty()).ok();
        let mut paths: Vec<(PathBuf, Option<OsString>)> = Vec::new();
        for control in &workspace.read_only_below {
            // The outermost step on the way that a mount could not cover is where something can be planted.
            let Some(open) =
                ancestors(control).chain([control.as_path()]).find(|path| !pinnable(&workspace.host, path))
            else {
                continue;
            };
            let link = std::fs::read_link(workspace.host.join(open)).ok();
            let watched = if link.is_some() { open } else { control.as_path() };
            let entry = (watched.to_path_buf(), link.map(PathBuf::into_os_string));
            if !paths.contains(&entry) {
                paths.push(entry);
            }
        }
        Self { workspace: workspace.host.clone(), root, paths }
    }

    /// Moves aside what has appeared.
    pub(crate) fn after(self) -> Vec<Planted> {
        let Self { workspace, root, paths } = self;
        let Some(root) = root else { return Vec::new() };
        let found = paths.iter().filter_map(|(path, link)| appeared(&root, path, link.as_deref()));
        found
            .map(|path| {
                let moved = move_aside(&root, &path).ok();
                Planted { path: workspace.join(&path), moved_to: moved.map(|moved| workspace.join(moved)) }
            })
            .collect()
    }
}

/// The path, or the link on the way to it, that was not there before.
fn appeared(root: &OwnedFd, path: &Path, link: Option<&OsStr>) -> Option<PathBuf> {
    for step in ancestors(path).chain([path]) {
        let (folder, name) = folder_of(root, step).ok()?;
        let found = rustix::fs::statat(&folder, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
            let target = rustix::fs::readlinkat(&folder, name.as_os_str(), Vec::new()).ok()?;
            let unchanged = link.is_some_and(|link| link.as_bytes() == target.as_bytes());
            return (!unchanged).then(|| step.to_path_buf());
        }
    }
    Some(path.to_path_buf())
}

fn move_aside(root: &OwnedFd, path: &Path) -> Result<PathBuf, Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (folder, name) = folder_of(root, path)?;
    loop {
        let mut aside = name.clone().into_vec();
        let suffix = format!(".planted-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        aside.extend_from_slice(suffix.as_bytes());
        let aside = OsString::from_vec(aside);
        let (from, to) = (name.as_os_str(), aside.as_os_str());
        match rustix::fs::renameat_with(&folder, from, &folder, to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(path.with_file_name(aside)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Opens the folder of a path without following a link: other runs may be at work in this workspace.
fn folder_of(root: &OwnedFd, path: &Path) -> Result<(OwnedFd, OsString), Errno> {
    let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((rustix::fs::openat2(root, folder, flags, Mode::empty(), resolve)?, name))
}
