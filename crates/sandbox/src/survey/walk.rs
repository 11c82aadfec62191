//! The walk through the workspace: linear in its entries, one listing a folder, no link followed.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use regent_guard::{Creation, GuardKind, Kinds, creation};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::links::{Landing, landing, not_the_workspace};
use super::{Alias, Blank, Folder, Pin, Survey, text, unreadable};
use crate::error::SandboxError;
use crate::spec::WorkspaceMount;

const LISTING_BYTES: usize = 32 * 1024;
/// The longest guarded place has so many names; behind a link to a folder on the way, no more have to be looked at.
const PLACE_NAMES_MAX: usize = 4;
/// From so many hidden files on, a folder that holds nothing else is blanked as a whole.
const DARK_FILES_MIN: u32 = 64;
/// In a folder that has a repository's layout: what steers it. What git writes in ordinary work stays writable.
const LAYOUT_CONTROL: &[&str] =
    &["config", "config.worktree", "hooks", "info", "modules", "worktrees", "gitdir", "commondir"];

/// What the folders above mean for what is in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    /// Nothing: names alone decide.
    Plain,
    /// A `.git` folder, or a folder on the way to a guarded place: the whole path decides.
    Special,
    /// A guarded folder, which is read-only as a whole.
    Pinned,
}

struct Step {
    path: PathBuf,
    within: Within,
    /// Which folder it lies in.
    above: usize,
}

/// How much of a folder is hidden.
#[derive(Debug, Default)]
struct Shade {
    path: PathBuf,
    above: usize,
    files: u32,
    hidden: u32,
    /// Something in it, or below, is shown.
    lit: bool,
}

struct Walk<'a> {
    host: &'a Path,
    root: OwnedFd,
    writable: bool,
    may_read: &'a mut dyn FnMut(&str) -> bool,
    survey: Survey,
    left: Vec<Step>,
    shades: Vec<Shade>,
    /// What the list says to a name by itself.
    known: HashMap<OsString, Creation>,
}

pub(super) fn walk(
    mount: &WorkspaceMount,
    may_read: &mut dyn FnMut(&str) -> bool,
) -> Result<Survey, SandboxError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match rustix::fs::openat(CWD, &mount.host, flags, Mode::empty()) {
        Ok(root) => root,
        // A file can be shown too; there is nothing in it.
        Err(Errno::NOTDIR) => return Ok(Survey::default()),
        Err(errno) => return Err(SandboxError::Spec(format!("`{}`: {errno}", mount.host.display()))),
    };
    let mut walk = Walk {
        host: &mount.host,
        root,
        writable: mount.writable,
        may_read,
        survey: Survey::default(),
        left: vec![Step { path: PathBuf::new(), within: Within::Plain, above: usize::MAX }],
        shades: Vec::new(),
        known: HashMap::new(),
    };
    while let Some(step) = walk.left.pop() {
        walk.folder(step)?;
    }
    walk.darken();
    Ok(walk.survey)
}

impl Walk<'_> {
    fn folder(&mut self, step: Step) -> Result<(), SandboxError> {
        let Step { path, within, above } = step;
        let listed = list(&self.root, &path);
        let (entries, changed) = match listed {
            Ok(listed) => listed,
            // Gone, or something else by now: it has no content that could be guarded.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if above != usize::MAX => return Ok(()),
            Err(errno) => return self.closed(path, errno),
        };
        let has = |name: &str| entries.iter().any(|(found, _)| found == name);
        let is_repository = has("HEAD") && (has("commondir") || has("objects") && has("refs"));
        let at = self.shades.len();
        self.shades.push(Shade { path: path.clone(), above, ..Shade::default() });
        if within != Within::Pinned {
            self.survey.folders.push(Folder { path: path.clone(), changed, is_repository });
        }
        for (name, kind) in entries {
            let entry = path.join(&name);
            self.entry(&name, entry, kind, (within, is_repository, at))?;
        }
        Ok(())
    }

    /// A folder that can't be listed: ours refuses the run, somebody else's is blank.
    fn closed(&mut self, path: PathBuf, errno: Errno) -> Result<(), SandboxError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let owner = rustix::fs::openat2(&self.root, name_or_dot(&path), flags, Mode::empty(), BENEATH)
            .and_then(|folder| rustix::fs::fstat(&folder))
            .map(|found| found.st_uid);
        let is_ours = owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw());
        if errno != Errno::ACCESS || is_ours || owner.is_err() || path.as_os_str().is_empty() {
            return Err(unreadable(self.host, &path, errno));
        }
        self.survey.blanks.push(Blank { path, folder: true });
        Ok(())
    }

    fn entry(
        &mut self,
        name: &OsStr,
        path: PathBuf,
        kind: FileType,
        (within, is_repository, at): (Within, bool, usize),
    ) -> Result<(), SandboxError> {
        let said = match within {
            Within::Plain => self.of_name(name),
            Within::Special | Within::Pinned => of_path(&path),
        };
        let mut below = match within {
            Within::Pinned => Within::Pinned,
            Within::Plain | Within::Special => Within::Plain,
        };
        match said {
            Creation::Guarded(place) if place.kind == GuardKind::Regent => {
                self.survey.guarded.insert(path.clone());
                if kind == FileType::Symlink {
                    return self.guarded_link(&path);
                }
                self.survey.blanks.push(Blank { path, folder: kind == FileType::Directory });
                return Ok(());
            }
            Creation::Guarded(place) => {
                self.survey.guarded.insert(path.clone());
                if within != Within::Pinned {
                    below = self.guarded(&path, kind, place.pattern)?;
                }
            }
            Creation::OnTheWay(_) if kind == FileType::Symlink => self.link_on_the_way(&path)?,
            Creation::OnTheWay(_) if below == Within::Plain => below = Within::Special,
            Creation::Free if within == Within::Special && is_in_git(&path) => below = Within::Special,
            Creation::OnTheWay(_) | Creation::Free => {}
        }
        let steers = is_repository && LAYOUT_CONTROL.iter().any(|control| name == *control);
        if steers && within == Within::Plain && below != Within::Pinned {
            self.survey.guarded.insert(path.clone());
            below = self.guarded(&path, kind, "")?;
        }
        match kind {
            FileType::Directory => self.descend(path, below, at),
            FileType::Symlink => self.hidden_link(&path),
            FileType::RegularFile => {
                let hidden = !(self.may_read)(&path.to_string_lossy());
                self.shade(at, hidden);
                if hidden {
                    self.survey.blanks.push(Blank { path, folder: false });
                }
                Ok(())
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {
                self.shade(at, false);
                Ok(())
            }
        }
    }

    /// Pins a guarded entry; what that means for what is in it.
    fn guarded(&mut self, path: &Path, kind: FileType, pattern: &str) -> Result<Within, SandboxError> {
        let is_folder = kind == FileType::Directory;
        if kind == FileType::Symlink {
            self.guarded_link(path)?;
            return Ok(Within::Plain);
        }
        // Git works in its folder; only what steers it is read-only in there.
        let is_git = pattern == GIT_PATTERN && is_folder;
        if is_git && (is_git_folder(path) || holds_writable(path)) {
            if self.writable && is_git_folder(path) {
                self.survey.pins.push(Pin { path: path.to_path_buf(), read_only: false });
            }
            return Ok(Within::Special);
        }
        if self.writable {
            self.survey.pins.push(Pin { path: path.to_path_buf(), read_only: true });
        }
        Ok(Within::Pinned)
    }

    /// A guarded link stays as it is because its name can't be made again; where it leads is guarded like it.
    fn guarded_link(&mut self, path: &Path) -> Result<(), SandboxError> {
        let Some(Landing { path: target, folder }) = landing(self.host, path)? else { return Ok(()) };
        not_the_workspace(&target)?;
        if folder.is_some() && self.writable {
            self.survey.pins.push(Pin { path: target.clone(), read_only: true });
        }
        self.survey.aliases.push(Alias { target, link: path.to_path_buf() });
        Ok(())
    }

    fn link_on_the_way(&mut self, path: &Path) -> Result<(), SandboxError> {
        let Some(Landing { path: target, folder }) = landing(self.host, path)? else { return Ok(()) };
        not_the_workspace(&target)?;
        if folder == Some(true) && self.writable {
            self.pin_as(&target, path, PLACE_NAMES_MAX)?;
        }
        self.survey.aliases.push(Alias { target, link: path.to_path_buf() });
        Ok(())
    }

    /// Pins what would be guarded if the folder were where a link says that it is.
    fn pin_as(&mut self, folder: &Path, link: &Path, depth: usize) -> Result<(), SandboxError> {
        let entries = match list(&self.root, folder) {
            Ok((entries, _)) => entries,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(unreadable(self.host, folder, errno)),
        };
        for (name, kind) in entries {
            let (real, named) = (folder.join(&name), link.join(&name));
            match of_path(&named) {
                Creation::Guarded(_) if kind != FileType::Symlink => {
                    self.survey.pins.push(Pin { path: real, read_only: true });
                }
                Creation::OnTheWay(_) if depth > 0 && kind == FileType::Directory => {
                    self.pin_as(&real, &named, depth - 1)?;
                }
                Creation::Guarded(_) | Creation::OnTheWay(_) | Creation::Free => {}
            }
        }
        Ok(())
    }

    fn hidden_link(&mut self, path: &Path) -> Result<(), SandboxError> {
        if (self.may_read)(&path.to_string_lossy()) {
            return Ok(());
        }
        if let Some(Landing { path, folder: Some(folder) }) = landing(self.host, path)? {
            not_the_workspace(&path)?;
            self.survey.blanks.push(Blank { path, folder });
        }
        Ok(())
    }

    fn descend(&mut self, path: PathBuf, within: Within, above: usize) -> Result<(), SandboxError> {
        // Objects are many, named by their hashes, and all alike: one answer holds for all of them.
        if within == Within::Special && is_in_git(&path) && path.ends_with("objects") {
            self.shade(above, false);
            for name in ["info/alternates", "info/http-alternates"] {
                let control = path.join(name);
                let there = std::fs::symlink_metadata(self.host.join(&control));
                match there {
                    Ok(_) if self.writable => {
                        self.survey.pins.push(Pin { path: control, read_only: true });
                    }
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(unreadable(self.host, &control, error));
                    }
                    Ok(_) | Err(_) => {}
                }
            }
            if !(self.may_read)(&format!("{}/00/0", path.to_string_lossy())) {
                self.survey.blanks.push(Blank { path, folder: true });
            }
            return Ok(());
        }
        self.left.push(Step { path, within, above });
        Ok(())
    }

    fn of_name(&mut self, name: &OsStr) -> Creation {
        if let Some(said) = self.known.get(name) {
            return *said;
        }
        let said = creation("", &text(name), Kinds::UNWRITABLE);
        self.known.insert(name.to_owned(), said);
        said
    }

    fn shade(&mut self, at: usize, hidden: bool) {
        if let Some(shade) = self.shades.get_mut(at) {
            shade.files += 1;
            shade.hidden += u32::from(hidden);
            shade.lit |= !hidden;
        }
    }

    /// Blanks folders as a whole that hold many hidden files and nothing else.
    fn darken(&mut self) {
        // A folder comes after the one that it lies in.
        for at in (0..self.shades.len()).rev() {
            let Some(Shade { above, lit, hidden, .. }) = self.shades.get(at) else { continue };
            let (above, lit, hidden) = (*above, *lit || *hidden == 0, *hidden);
            if let Some(parent) = self.shades.get_mut(above) {
                parent.lit |= lit;
                parent.hidden += if lit { 0 } else { hidden };
            }
        }
        let dark = self.shades.iter().filter(|shade| {
            !shade.lit && shade.hidden >= DARK_FILES_MIN && !shade.path.as_os_str().is_empty()
        });
        self.survey.blanks.extend(dark.map(|shade| Blank { path: shade.path.clone(), folder: true }));
    }
}

const GIT_PATTERN: &str = "**/.git/**";
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

fn of_path(path: &Path) -> Creation {
    crate::supervise::judged(path)
}

/// Whether the last name is that of a `.git` folder.
fn is_git_folder(path: &Path) -> bool {
    let name = path.file_name().map(text).unwrap_or_default();
    matches!(creation("", &name, Kinds::UNWRITABLE), Creation::Guarded(place) if place.pattern == GIT_PATTERN)
}

fn is_in_git(path: &Path) -> bool {
    path.ancestors().skip(1).any(|above| above.file_name().is_some() && is_git_folder(above))
}

/// Folders of a git directory that hold both: what steers it, and what it writes in ordinary work.
fn holds_writable(path: &Path) -> bool {
    let above = |path: &Path| path.parent().is_some_and(is_git_folder);
    let named = |path: &Path, name: &str| path.file_name().is_some_and(|found| found == name);
    let worktree = path.parent().is_some_and(|folder| named(folder, "worktrees") && above(folder));
    above(path) && ["worktrees", "lfs", "info"].iter().any(|name| named(path, name)) || worktree
}

fn name_or_dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// The entries of a folder, each with what it is; and when they last changed.
pub(crate) type Listed = (Vec<(OsString, FileType)>, (i64, u64));

/// Lists a folder, without following a link.
pub(crate) fn list(root: &OwnedFd, path: &Path) -> Result<Listed, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
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
    Ok((entries, (found.st_ctime, found.st_ctime_nsec)))
}
