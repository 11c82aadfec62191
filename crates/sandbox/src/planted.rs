//! The second wall: guarded names that appeared while a program ran.
//!
//! The supervisor lets no program make one, so one that appears was made by a user outside the sandbox, or shows a hole. Everything in the sandbox is dead
//! by now. The name is moved aside, to one that nothing acts on, and never deleted. What was guarded before and only lies elsewhere now,
//! because a folder above it was moved, is known by its inode. Folders whose entries haven't changed since the survey are not listed
//! again.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use regent_guard::Creation;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::ended::Planted;
use crate::spec::WorkspaceMount;
use crate::survey::{
    BENEATH, FolderListing, Survey, SurveyedFolder, alternates, identity, list, name_or_dot,
};
use crate::view::FileIdentity;

/// What is looked at after a run, beside the folders that were there before it.
const NEW_FOLDERS_MAX: usize = 1_000_000;

/// Whether every folder is as it was. In doubt it is not.
pub(crate) fn is_untouched(workspace: &WorkspaceMount, survey: &Survey) -> bool {
    let is_as_it_was = |folder: &SurveyedFolder| {
        rustix::fs::lstat(workspace.host.join(&folder.path)).is_ok_and(|found| {
            (found.st_ctime, found.st_ctime_nsec) == folder.changed
                && (found.st_dev, found.st_ino) == (folder.identity.dev, folder.identity.ino)
        })
    };
    survey.opaque.is_empty() && survey.folders.iter().all(is_as_it_was)
}

/// Looks for what has appeared, and moves it aside.
pub(crate) fn after(workspace: &WorkspaceMount, survey: &Survey) -> Vec<Planted> {
    if !workspace.writable || survey.folders.is_empty() {
        return Vec::new();
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match rustix::fs::openat(CWD, &workspace.host, flags, Mode::empty()) {
        Ok(root) => root,
        // The folder is gone, and with it whatever was in it.
        Err(Errno::NOENT) => return Vec::new(),
        Err(errno) => return vec![left(workspace.host.clone(), errno)],
    };
    let folders = survey.folders.iter();
    let known = folders.map(|folder| &folder.path).chain(&survey.opaque).map(PathBuf::as_path).collect();
    let pins = survey.pins.iter().filter_map(|pin| pin.identity);
    let repositories = survey.folders.iter().filter(|folder| folder.is_repository);
    let mut look = PlantedSearch {
        host: &workspace.host,
        root,
        survey,
        known,
        files: pins.chain(repositories.map(|folder| folder.identity)).collect(),
        new: Vec::new(),
        found: Vec::new(),
    };
    for folder in &survey.folders {
        look.again(folder);
    }
    for store in survey.opaque.iter().filter(|folder| folder.ends_with("objects")) {
        look.store(store);
    }
    let mut count = 0;
    while let Some(path) = look.new.pop() {
        count += 1;
        if count > NEW_FOLDERS_MAX {
            look.found.push(left(workspace.host.join(path), Errno::TOOBIG));
            break;
        }
        look.search(&path, false);
    }
    look.found
}

struct PlantedSearch<'a> {
    host: &'a Path,
    root: OwnedFd,
    survey: &'a Survey,
    known: HashSet<&'a Path>,
    /// What was guarded, wherever it is now.
    files: HashSet<FileIdentity>,
    new: Vec<PathBuf>,
    found: Vec<Planted>,
}

impl PlantedSearch<'_> {
    fn again(&mut self, folder: &SurveyedFolder) {
        let path = name_or_dot(&folder.path);
        match rustix::fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if (found.st_ctime, found.st_ctime_nsec) == folder.changed => {}
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Ok(_) | Err(_) => self.search(&folder.path, folder.is_repository),
        }
    }

    /// Object stores aren't listed. What steers one has a fixed name.
    fn store(&mut self, store: &Path) {
        for control in alternates(store) {
            if !self.survey.guarded.contains(&control) {
                match identity(&self.root, &control) {
                    Ok(_) | Err(Errno::LOOP) => self.move_aside(&control),
                    // Absent, or in a store that isn't ours.
                    Err(_) => {}
                }
            }
        }
    }

    fn search(&mut self, path: &Path, was_repository: bool) {
        let listed = match list(&self.root, path).or_else(|errno| self.open_up(path, errno)) {
            Ok(listed) => listed,
            // The supervisor lets no name be made below a path that is too long to be judged.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => return,
            Err(errno) => {
                self.found.push(left(self.host.join(path), errno));
                return;
            }
        };
        let git_dirs = &self.survey.guards.git_dirs;
        let is_new = !was_repository && !self.files.contains(&listed.identity);
        let completed = is_new && regent_guard::git::is_repository(|name| listed.has(name));
        for (name, kind) in listed.entries {
            let entry = path.join(&name);
            let is_link = kind == FileType::Symlink && git_dirs.is_written_by_git(&entry);
            let is_guarded =
                matches!(git_dirs.judged(&entry), Creation::Guarded(_)) || completed && name == "HEAD";
            // What was there is pinned: if it is another file now, its owner has replaced it from outside.
            let is_known =
                self.survey.guarded.contains(&entry) || is_link && self.survey.git_links.contains(&entry);
            if (is_guarded || is_link) && !is_known && !self.is_moved(&entry) {
                self.move_aside(&entry);
            } else if kind == FileType::Directory && !is_guarded && !self.known.contains(entry.as_path()) {
                self.new.push(entry);
            }
        }
    }

    /// Whether it was guarded at another place before.
    fn is_moved(&self, path: &Path) -> bool {
        identity(&self.root, path).is_ok_and(|file| self.files.contains(&file))
    }

    /// A folder that a program has closed is opened again: it could be listed before. Nobody can close somebody else's, and what is in
    /// there can't be of the program's making.
    fn open_up(&self, path: &Path, errno: Errno) -> Result<FolderListing, Errno> {
        if errno != Errno::ACCESS {
            return Err(errno);
        }
        let folder = rustix::fs::openat2(&self.root, name_or_dot(path), PATH, Mode::empty(), BENEATH)?;
        if rustix::fs::fstat(&folder)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::NOENT);
        }
        add_mode(&folder)?;
        list(&self.root, path)
    }

    fn move_aside(&mut self, path: &Path) {
        let at = self.host.join(path);
        self.found.push(match aside(&self.root, path) {
            Ok(moved) => Planted { path: at, moved_to: Some(self.host.join(moved)), left_because: None },
            Err(Errno::NOENT) => return,
            Err(errno) => left(at, errno),
        });
    }
}

fn left(path: PathBuf, errno: Errno) -> Planted {
    Planted { path, moved_to: None, left_because: Some(errno.to_string()) }
}

/// Renames within the folder. Where its mode forbids that, the mode is changed first, by descriptor.
fn aside(root: &OwnedFd, path: &Path) -> Result<PathBuf, Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    // No link is followed: other runs may be at work in this workspace.
    let folder = rustix::fs::openat2(root, name_or_dot(folder), PATH, Mode::empty(), BENEATH)?;
    let mut opened = false;
    loop {
        let mut to = name.to_owned().into_vec();
        let suffix = format!(".planted-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        to.extend_from_slice(suffix.as_bytes());
        let to = OsString::from_vec(to);
        match rustix::fs::renameat_with(&folder, name, &folder, to.as_os_str(), RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(path.with_file_name(to)),
            Err(Errno::EXIST) => {}
            Err(Errno::ACCESS) if !opened => {
                add_mode(&folder)?;
                opened = true;
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Gives the owner every right to a folder.
fn add_mode(folder: &OwnedFd) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(folder)?.st_mode) | Mode::RWXU;
    // The descriptor is one for the path only, on which `fchmod` doesn't work.
    let itself = format!("/proc/self/fd/{}", folder.as_raw_fd());
    rustix::fs::chmodat(CWD, itself, mode, AtFlags::empty())
}

const PATH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(found: &[Planted], host: &Path) -> Vec<PathBuf> {
        found.iter().map(|one| one.path.strip_prefix(host).unwrap().to_path_buf()).collect()
    }

    /// Root can list every folder, so the thread that looks gives up what makes it root. Only root can make such a folder.
    #[test]
    fn somebody_elses_closed_folder_is_no_breach() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().canonicalize().unwrap();
        let theirs = host.join("pgdata");
        std::fs::create_dir(&theirs).unwrap();
        std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&theirs, Some(999), Some(999)).unwrap();
        let look = move || {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            assert!(std::fs::read_dir(host.join("pgdata")).is_err());
            let mount = WorkspaceMount::new(&host, true);
            let mut survey = Survey::by_list(&mount).unwrap();
            assert_eq!(survey.blanks.len(), 1, "it is blank as a whole");
            std::fs::write(host.join("made"), "").unwrap();
            assert!(after(&mount, &survey).is_empty());
            // As if it had been made during the run.
            survey.opaque.clear();
            assert!(after(&mount, &survey).is_empty());
        };
        std::thread::spawn(look).join().unwrap();
    }

    #[test]
    fn c1_what_appears_is_moved_aside_at_any_depth_also_out_of_closed_folders() {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(host.join("a/b")).unwrap();
        std::fs::write(host.join("a/.envrc"), "mine").unwrap();
        let mount = WorkspaceMount::new(&host, true);
        let survey = Survey::by_list(&mount).unwrap();
        assert!(after(&mount, &survey).is_empty());
        std::fs::write(host.join("a/b/.envrc"), "planted").unwrap();
        std::fs::create_dir_all(host.join("new/.git/hooks")).unwrap();
        std::fs::create_dir_all(host.join("bare/objects")).unwrap();
        std::fs::create_dir_all(host.join("bare/refs")).unwrap();
        std::fs::write(host.join("bare/HEAD"), "ref: refs/heads/x").unwrap();
        std::fs::set_permissions(host.join("a/b"), PermissionsExt::from_mode(0o000)).unwrap();
        std::fs::set_permissions(host.join("new"), PermissionsExt::from_mode(0o555)).unwrap();
        let found = after(&mount, &survey);
        let mut paths = names(&found, &host);
        paths.sort();
        assert_eq!(paths, [Path::new("a/b/.envrc"), Path::new("bare/HEAD"), Path::new("new/.git")]);
        for planted in &found {
            assert!(planted.moved_to.as_ref().unwrap().exists() && !planted.path.exists(), "{planted:?}");
        }
        assert_eq!(std::fs::read_to_string(host.join("a/.envrc")).unwrap(), "mine");
        std::fs::set_permissions(host.join("new"), PermissionsExt::from_mode(0o755)).unwrap();
    }
}
