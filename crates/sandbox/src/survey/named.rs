//! Files of the workspace that a repository's own configuration names: hooks, programs, further settings.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::git_config::{ConfigWord, Setting, Use, settings, words};
use super::links::{LinkTarget, landing};
use super::list::{BENEATH, FolderListing, list_or_none};
use super::walk::SurveyWalk;
use crate::error::SandboxError;

const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Configuration files of one repository, included ones among them.
const CONFIGS_MAX: usize = 64;
/// Words of one repository's configuration that are looked up.
const WORDS_MAX: usize = 8_192;

impl SurveyWalk<'_> {
    /// Guards what the configuration of a git directory names.
    pub(super) fn configuration(&mut self, dir: &Path, listed: &FolderListing) -> Result<(), SandboxError> {
        let present = ["config", "config.worktree"].into_iter().filter(|name| listed.has(name));
        let files: Vec<PathBuf> = present.map(|name| dir.join(name)).collect();
        if files.is_empty() {
            return Ok(());
        }
        let roots = self.worktrees(dir, listed)?;
        self.configured(dir, dir, files, roots)
    }

    /// Guards what a repository names whose own folder lies outside: the workspace is a linked worktree, or lies in one.
    pub(super) fn repositories_around(&mut self) -> Result<(), SandboxError> {
        for above in self.host.ancestors().skip(1) {
            let git = above.join(".git");
            match std::fs::symlink_metadata(&git) {
                Ok(found) if found.is_file() => self.pointer(&git)?,
                Ok(_) => self.repository_outside(git, above)?,
                Err(error) if is_out_of_reach(&error) => {}
                Err(cause) => return Err(SandboxError::Unreadable { path: git, cause }),
            }
        }
        Ok(())
    }

    /// Follows a `.git` file, which names the git directory.
    pub(super) fn pointer(&mut self, file: &Path) -> Result<(), SandboxError> {
        let root = self.host.join(file).parent().unwrap_or(self.host).to_path_buf();
        let Some(text) = self.small_text(file)? else { return Ok(()) };
        let Some(dir) = text.strip_prefix("gitdir:") else { return Ok(()) };
        let dir = root.join(dir.trim());
        // In the workspace it is found by its layout.
        if landing(self.host, &dir)?.end.is_some() { Ok(()) } else { self.repository_outside(dir, &root) }
    }

    fn repository_outside(&mut self, dir: PathBuf, root: &Path) -> Result<(), SandboxError> {
        let common = self.small_text(&dir.join("commondir"))?.map(|text| dir.join(text.trim()));
        let dirs: Vec<PathBuf> = common.into_iter().chain([dir.clone()]).collect();
        let files = dirs.iter().flat_map(|dir| ["config", "config.worktree"].map(|name| dir.join(name)));
        let roots = dirs.iter().cloned().chain([root.to_path_buf()]).collect();
        // What it names counts as what a repository's folder in the workspace would name.
        self.configured(Path::new(".git"), &dir, files.collect(), roots)
    }

    /// Guards what configuration files name: for the git directory `dir`, as if they were the `config` of `owner`.
    fn configured(
        &mut self,
        owner: &Path,
        dir: &Path,
        mut files: Vec<PathBuf>,
        mut roots: Vec<PathBuf>,
    ) -> Result<(), SandboxError> {
        let (mut seen, mut looked_up) = (HashSet::new(), 0);
        while let Some(file) = files.pop() {
            if !seen.insert(file.clone()) {
                continue;
            }
            let Some(text) = self.small_text(&file)? else { continue };
            let settings = settings(&text);
            roots.extend(settings.iter().filter(|one| one.is_root).map(|one| dir.join(&one.value)));
            for setting in settings.iter().filter(|one| !one.is_root) {
                for word in words(setting) {
                    looked_up += 1;
                    if looked_up > WORDS_MAX || seen.len() > CONFIGS_MAX {
                        return Err(SandboxError::Spec(format!(
                            "the git configuration `{}` is too large to guard: more than {WORDS_MAX} words or {CONFIGS_MAX} included files",
                            self.host.join(dir).join("config").display()
                        )));
                    }
                    let beside = file.parent().unwrap_or(dir).to_path_buf();
                    for root in roots.iter().chain([&beside]) {
                        files.extend(self.named_file(owner, root, setting, &word)?);
                    }
                }
            }
        }
        Ok(())
    }

    /// Guards the files that a word of a setting names, seen from `root`. Returns those that have further settings.
    fn named_file(
        &mut self,
        owner: &Path,
        root: &Path,
        setting: &Setting,
        word: &ConfigWord,
    ) -> Result<Vec<PathBuf>, SandboxError> {
        let mut included = Vec::new();
        for path in expanded(root, &word.text)? {
            let found = landing(self.host, &path)?;
            let is_include = setting.used_as == Use::Include;
            let Some(LinkTarget { path: end, folder }) = &found.end else {
                included.extend(is_include.then_some(path));
                continue;
            };
            let is_nothing = match folder {
                Some(true) => setting.used_as != Use::Path,
                Some(false) => false,
                // A bare word that is no file is a program's name or an option.
                None => word.is_guess || setting.used_as == Use::Command && !word.text.contains('/'),
            };
            if is_nothing || end == owner {
                continue;
            }
            if owner.starts_with(end) {
                return Err(SandboxError::Spec(format!(
                    "the git configuration `{}` takes programs from `{}`, which can't be guarded because it contains the repository: name another folder",
                    self.host.join(owner).join("config").display(),
                    self.host.join(end).display()
                )));
            }
            included.extend((is_include && *folder == Some(false)).then(|| end.clone()));
            self.guard_landing(found, &owner.join("config"));
        }
        Ok(included)
    }

    /// The folders that a repository's relative paths may start at.
    fn worktrees(&self, dir: &Path, listed: &FolderListing) -> Result<Vec<PathBuf>, SandboxError> {
        let mut roots = vec![dir.to_path_buf()];
        roots.extend(dir.parent().map(Path::to_path_buf));
        let mut pointers = vec![dir.join("gitdir")];
        if listed.has("worktrees") {
            let folder = dir.join("worktrees");
            let listed = list_or_none(&self.root, (self.host, &folder))?;
            let entries = listed.iter().flat_map(|listed| &listed.entries);
            pointers.extend(entries.map(|(name, _)| folder.join(name).join("gitdir")));
        }
        for pointer in pointers {
            // It holds the path of the worktree's `.git` file.
            let Some(text) = self.small_text(&pointer)? else { continue };
            let beside = pointer.parent().unwrap_or(dir);
            roots.extend(beside.join(text.trim_end()).parent().map(Path::to_path_buf));
        }
        Ok(roots)
    }

    /// The text of a file that has to be small. `None`: it isn't there, or git can't read it either.
    fn small_text(&self, path: &Path) -> Result<Option<String>, SandboxError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let (path, opened) = match landing(self.host, path)?.end {
            Some(LinkTarget { path, folder: Some(false) }) => {
                let flags = flags | OFlags::NOFOLLOW;
                let opened = rustix::fs::openat2(&self.root, &path, flags, Mode::empty(), BENEATH);
                (self.host.join(path), opened)
            }
            Some(_) => return Ok(None),
            None => {
                let path = self.host.join(path);
                let opened = rustix::fs::open(&path, flags, Mode::empty());
                (path, opened)
            }
        };
        let fail = |cause: std::io::Error| SandboxError::Unreadable { path: path.clone(), cause };
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG) if !path.starts_with(self.host) => {
                return Ok(None);
            }
            Err(errno) => return Err(fail(errno.into())),
        };
        let found = rustix::fs::fstat(&file).map_err(|errno| fail(errno.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        std::fs::File::from(file).take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fail)?;
        if bytes.len() as u64 > CONFIG_BYTES_MAX {
            let why = format!(
                "`{}` is larger than {CONFIG_BYTES_MAX} bytes, so the files that it names can't be guarded",
                path.display()
            );
            return Err(SandboxError::Spec(why));
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// Not there, or where the user can't go, and so git can't either.
fn is_out_of_reach(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}

/// The paths that a word may mean, seen from a folder: `~` is the home folder, `~name` that of a user.
fn expanded(root: &Path, word: &str) -> Result<Vec<PathBuf>, SandboxError> {
    // Git's own folder is no part of a workspace.
    if word.is_empty() || word.starts_with('%') {
        return Ok(Vec::new());
    }
    let Some(rest) = word.strip_prefix('~') else { return Ok(vec![root.join(word)]) };
    let (user, below) = rest.split_once('/').unwrap_or((rest, ""));
    Ok(homes(user)?.into_iter().map(|home| home.join(below)).collect())
}

/// The home folders of a user; of this one if there is no name.
fn homes(user: &str) -> Result<Vec<PathBuf>, SandboxError> {
    let list = Path::new("/etc/passwd");
    let text = match std::fs::read(list) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(cause) => return Err(SandboxError::Unreadable { path: list.to_path_buf(), cause }),
    };
    let uid = rustix::process::geteuid().as_raw().to_string();
    let of_user = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, _, _, home, ..] = fields.as_slice() else { return None };
        let is_meant = if user.is_empty() { *number == uid } else { *name == user };
        is_meant.then(|| PathBuf::from(home))
    });
    let ours = std::env::var_os("HOME").map(PathBuf::from).filter(|_| user.is_empty());
    Ok(ours.into_iter().chain(of_user).filter(|home| home.is_absolute()).collect())
}
