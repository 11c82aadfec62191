//! The walk through the workspace: linear in its entries, one listing a folder, no link followed.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use regent_guard::{Creation, GuardKind, Kinds, creation, is_git_folder};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::guards::Alias;
use super::links::{Landing, LinkTarget, landing, not_the_workspace};
use super::list::{BENEATH, list_or_none, name_or_dot};
use super::listings::FolderCache;
use super::{Blank, FileUse, Pin, Survey, SurveyedFolder, text, unreadable};
use crate::error::SandboxError;
use crate::spec::WorkspaceMount;
use crate::writes::{JudgedFiles, is_in_git};

/// The longest guarded place has so many names; behind a link to a folder on the way, no more have to be looked at.
const PLACE_NAMES_MAX: usize = 4;
/// From so many hidden files on, a folder that holds nothing else is blanked as a whole.
const DARK_FILES_MIN: u32 = 64;
/// Below a longer path, files could not be mounted on any more: such a folder is blanked as a whole. A program can make one by moving
/// folders into each other.
const PATH_BYTES_MAX: usize = 3_500;
/// Names that are remembered with what the list says to them.
const KNOWN_MAX: usize = 65_536;

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

struct SurveyFolder {
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
    /// Something in it, or below, is visible.
    lit: bool,
}

pub(super) struct SurveyWalk<'a> {
    pub(super) host: &'a Path,
    pub(super) root: OwnedFd,
    listings: FolderCache,
    writable: bool,
    judge: &'a mut dyn FnMut(&str) -> FileUse,
    /// What policy says to writing each file.
    judged: JudgedFiles,
    pub(super) survey: Survey,
    left: Vec<SurveyFolder>,
    /// Folders that guarded links lead to, each with the path that it stands for: links in them are guarded too.
    linked: Vec<(PathBuf, PathBuf)>,
    seen: HashSet<PathBuf>,
    shades: Vec<Shade>,
    /// What the list says to a name by itself.
    known: HashMap<OsString, Creation>,
}

/// Looks at every folder. `None`: the mount is a file.
pub(super) fn walk(
    mount: &WorkspaceMount,
    judge: &mut dyn FnMut(&str) -> FileUse,
) -> Result<Option<(OwnedFd, Survey, JudgedFiles)>, SandboxError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match rustix::fs::openat(CWD, &mount.host, flags, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(SandboxError::Spec(format!("`{}`: {errno}", mount.host.display()))),
    };
    let mut walk = SurveyWalk {
        host: &mount.host,
        listings: mount.listings.begin(&mount.host, &root),
        root,
        writable: mount.writable,
        judge,
        judged: JudgedFiles::default(),
        survey: Survey::default(),
        left: vec![SurveyFolder { path: PathBuf::new(), within: Within::Plain, above: usize::MAX }],
        linked: Vec::new(),
        seen: HashSet::new(),
        shades: Vec::new(),
        known: HashMap::new(),
    };
    while let Some(step) = walk.left.pop() {
        walk.folder(step)?;
    }
    walk.repositories_around()?;
    while let Some((folder, link)) = walk.linked.pop() {
        walk.links_in(&folder, &link)?;
    }
    walk.darken();
    mount.listings.end(&mount.host, walk.listings);
    Ok(Some((walk.root, walk.survey, walk.judged)))
}

impl SurveyWalk<'_> {
    fn folder(&mut self, step: SurveyFolder) -> Result<(), SandboxError> {
        let SurveyFolder { path, within, above } = step;
        let listed = match self.listings.list(&self.root, &path) {
            Ok(listed) => listed,
            // Gone, or something else by now: it has no content that could be guarded.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if above != usize::MAX => return Ok(()),
            Err(errno) => return self.closed(path, errno),
        };
        let is_repository = regent_guard::git::is_repository(|name| listed.has(name));
        let at = self.shades.len();
        self.shades.push(Shade { path: path.clone(), above, ..Shade::default() });
        if within != Within::Pinned {
            let (changed, identity) = (listed.changed, listed.identity);
            self.survey.folders.push(SurveyedFolder { path: path.clone(), changed, identity, is_repository });
            let is_dot_git = is_dot_git(&path);
            if is_repository && !is_dot_git {
                self.survey.guards.git_dirs.insert(path.clone());
                // It is known by its path.
                self.survey.guards.hold_above(&path.join("HEAD"));
            }
            if is_repository || is_dot_git {
                self.configuration(&path, &listed)?;
            }
        }
        // In a repository the whole path decides.
        let within = if is_repository && within == Within::Plain { Within::Special } else { within };
        for (name, kind) in &listed.entries {
            self.entry(name, path.join(name), *kind, within, at)?;
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
        self.blank_folder(path);
        Ok(())
    }

    fn blank_folder(&mut self, path: PathBuf) {
        self.survey.opaque.insert(path.clone());
        self.survey.blanks.push(Blank::new(path, true));
    }

    fn entry(
        &mut self,
        name: &OsStr,
        path: PathBuf,
        kind: FileType,
        within: Within,
        at: usize,
    ) -> Result<(), SandboxError> {
        let said = match within {
            Within::Plain => self.of_name(name),
            Within::Special | Within::Pinned => self.of_path(&path),
        };
        let is_gits = within != Within::Plain && self.survey.guards.git_dirs.is_written_by_git(&path);
        if is_gits && kind == FileType::Symlink {
            self.survey.git_links.insert(path.clone());
        }
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
                let is_folder = kind == FileType::Directory;
                self.survey.blanks.push(Blank::new(path, is_folder));
                return Ok(());
            }
            // Tools read through links in a guarded folder as well: a hook is often one.
            _ if within == Within::Pinned && kind == FileType::Symlink => self.inner_link(&path, &path)?,
            Creation::Guarded(_) => {
                self.survey.guarded.insert(path.clone());
                if within != Within::Pinned {
                    below = self.guarded(&path, kind)?;
                }
            }
            Creation::OnTheWay(_) if kind == FileType::Symlink => self.link_on_the_way(&path)?,
            Creation::OnTheWay(_) if below == Within::Plain => below = Within::Special,
            Creation::Free if within == Within::Special && is_gits => below = Within::Special,
            Creation::OnTheWay(_) | Creation::Free => {}
        }
        match kind {
            FileType::Directory => self.descend(path, below, at),
            FileType::Symlink => self.judged_link(&path),
            FileType::RegularFile => {
                let may = (self.judge)(&path.to_string_lossy());
                self.shade(at, !may.read);
                if !may.read {
                    self.survey.blanks.push(Blank::new(path, false));
                } else if self.writable {
                    self.judged.add(&path, may.write || is_in_git(&path));
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
    fn guarded(&mut self, path: &Path, kind: FileType) -> Result<Within, SandboxError> {
        if kind == FileType::Symlink {
            self.guarded_link(path)?;
            return Ok(Within::Plain);
        }
        // Git works in its folder; only what steers it is read-only in there.
        if kind == FileType::Directory && (is_dot_git(path) || self.holds_writable(path)) {
            if self.writable && is_dot_git(path) {
                self.survey.pins.push(Pin::new(path, false));
            }
            return Ok(Within::Special);
        }
        if self.writable {
            self.survey.pins.push(Pin::new(path, true));
        }
        if kind == FileType::RegularFile && is_dot_git(path) {
            self.pointer(path)?;
        }
        Ok(Within::Pinned)
    }

    /// A guarded link stays as it is because its name can't be made again; where it leads is guarded like it.
    fn guarded_link(&mut self, path: &Path) -> Result<(), SandboxError> {
        let landing = landing(self.host, path)?;
        if let Some(LinkTarget { path, .. }) = &landing.end {
            not_the_workspace(path)?;
        }
        self.guard_landing(landing, path);
        Ok(())
    }

    /// A link in a guarded folder. One that leads up to a folder around it stands for no place of its own.
    fn inner_link(&mut self, real: &Path, named: &Path) -> Result<(), SandboxError> {
        self.survey.guarded.insert(real.to_path_buf());
        let mut landing = landing(self.host, real)?;
        landing.end = landing.end.filter(|end| !real.starts_with(&end.path) && !named.starts_with(&end.path));
        self.guard_landing(landing, named);
        Ok(())
    }

    /// Guards where a path leads as if it were `link`, and every link and folder on the way there.
    pub(super) fn guard_landing(&mut self, landing: Landing, link: &Path) {
        let guards = &mut self.survey.guards;
        landing.links.iter().for_each(|link| guards.hold_link(link));
        guards.hold_above(link);
        let Some(LinkTarget { path: target, folder }) = landing.end else { return };
        guards.hold_above(&target);
        guards.aliases.push(Alias { target: target.clone(), link: link.to_path_buf() });
        if folder.is_some() && self.writable {
            self.survey.pins.push(Pin::new(&target, true));
        }
        if folder == Some(true) && self.seen.insert(target.clone()) {
            self.linked.push((target, link.to_path_buf()));
        }
    }

    /// Guards where links in a folder lead that stands for a guarded one.
    fn links_in(&mut self, folder: &Path, link: &Path) -> Result<(), SandboxError> {
        let Some(listed) = list_or_none(&self.root, (self.host, folder))? else { return Ok(()) };
        for (name, kind) in listed.entries {
            let (real, named) = (folder.join(&name), link.join(&name));
            if kind == FileType::Symlink {
                self.inner_link(&real, &named)?;
            } else if kind == FileType::Directory && self.seen.insert(real.clone()) {
                self.linked.push((real, named));
            }
        }
        Ok(())
    }

    fn link_on_the_way(&mut self, path: &Path) -> Result<(), SandboxError> {
        let Landing { end, links } = landing(self.host, path)?;
        let guards = &mut self.survey.guards;
        links.iter().for_each(|link| guards.hold_link(link));
        let Some(LinkTarget { path: target, folder }) = end else { return Ok(()) };
        not_the_workspace(&target)?;
        guards.hold_above(&target);
        guards.aliases.push(Alias { target: target.clone(), link: path.to_path_buf() });
        if folder == Some(true) && self.writable {
            self.pin_as(&target, path, PLACE_NAMES_MAX)?;
        }
        Ok(())
    }

    /// Pins what would be guarded if the folder were where a link says that it is.
    fn pin_as(&mut self, folder: &Path, link: &Path, depth: usize) -> Result<(), SandboxError> {
        let Some(listed) = list_or_none(&self.root, (self.host, folder))? else { return Ok(()) };
        for (name, kind) in listed.entries {
            let (real, named) = (folder.join(&name), link.join(&name));
            match self.of_path(&named) {
                Creation::Guarded(_) => self.inner_link(&real, &named)?,
                Creation::OnTheWay(_) if depth > 0 && kind == FileType::Directory => {
                    self.pin_as(&real, &named, depth - 1)?;
                }
                Creation::OnTheWay(_) | Creation::Free => {}
            }
        }
        Ok(())
    }

    /// A link by whose own name policy hides what it leads to, or refuses to write it.
    fn judged_link(&mut self, path: &Path) -> Result<(), SandboxError> {
        let may = (self.judge)(&path.to_string_lossy());
        if may.read && (may.write || !self.writable || is_in_git(path)) {
            return Ok(());
        }
        let mut found = landing(self.host, path)?;
        if may.read {
            // One that leads up to a folder around it stands for nothing of its own.
            found.end = found.end.filter(|end| !path.starts_with(&end.path));
            found.links.iter().for_each(|link| self.survey.guards.keep_for_policy(link));
            self.guard_landing(found, path);
            return Ok(());
        }
        found.links.iter().for_each(|link| self.survey.guards.hold_link(link));
        if let Some(LinkTarget { path, folder: Some(folder) }) = found.end {
            not_the_workspace(&path)?;
            self.survey.blanks.push(Blank::new(path, folder));
        }
        Ok(())
    }

    fn descend(&mut self, path: PathBuf, within: Within, above: usize) -> Result<(), SandboxError> {
        if self.host.as_os_str().len() + path.as_os_str().len() > PATH_BYTES_MAX {
            self.blank_folder(path);
            return Ok(());
        }
        // Objects are many, named by their hashes, and all alike: one answer holds for all of them.
        if within == Within::Special && self.is_object_store(&path) {
            return self.object_store(path, above);
        }
        self.left.push(SurveyFolder { path, within, above });
        Ok(())
    }

    fn is_object_store(&self, path: &Path) -> bool {
        let dir = path.parent();
        let is_dir = |dir: &Path| is_dot_git(dir) || self.survey.guards.git_dirs.contains(dir);
        path.file_name().is_some_and(|name| name == "objects") && dir.is_some_and(is_dir)
    }

    /// Where git keeps objects: of all that is in there, only the names of other stores steer it.
    fn object_store(&mut self, path: PathBuf, above: usize) -> Result<(), SandboxError> {
        self.shade(above, false);
        for control in alternates(&path) {
            match std::fs::symlink_metadata(self.host.join(&control)) {
                Ok(found) => {
                    self.survey.guarded.insert(control.clone());
                    if found.is_symlink() {
                        self.guarded_link(&control)?;
                    } else if self.writable {
                        self.survey.pins.push(Pin::new(control, true));
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(self.host, &control, error)),
            }
        }
        self.survey.opaque.insert(path.clone());
        if !(self.judge)(&format!("{}/00/0", path.to_string_lossy())).read {
            self.survey.blanks.push(Blank::new(path, true));
        }
        Ok(())
    }

    fn of_path(&self, path: &Path) -> Creation {
        self.survey.guards.git_dirs.judged(path)
    }

    /// Whether a folder of a git directory holds both: what steers it, and what it writes in ordinary work.
    fn holds_writable(&self, path: &Path) -> bool {
        let alike = self.survey.guards.git_dirs.as_dot_git(path);
        let names: Vec<_> = alike.as_deref().unwrap_or(path).iter().map(text).collect();
        let Some(git) = names.iter().position(|name| is_git_folder(name)) else { return false };
        match names.get(git + 1..).unwrap_or_default() {
            [one] => ["worktrees", "lfs", "info", "modules"].contains(&&**one),
            [one, _] if one == "worktrees" => true,
            // The name of a submodule may have slashes.
            [one, ..] => one == "modules",
            [] => false,
        }
    }

    fn of_name(&mut self, name: &OsStr) -> Creation {
        if let Some(said) = self.known.get(name) {
            return *said;
        }
        let said = creation("", &text(name), Kinds::UNWRITABLE);
        if self.known.len() < KNOWN_MAX {
            self.known.insert(name.to_owned(), said);
        }
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
        self.survey.blanks.extend(dark.map(|shade| Blank::new(&shade.path, true)));
    }
}

/// The files of an object store that name other stores.
pub(crate) fn alternates(store: &Path) -> [PathBuf; 2] {
    ["info/alternates", "info/http-alternates"].map(|name| store.join(name))
}

/// Whether the last name is that of a `.git` folder.
fn is_dot_git(path: &Path) -> bool {
    path.file_name().is_some_and(|name| is_git_folder(&text(name)))
}
