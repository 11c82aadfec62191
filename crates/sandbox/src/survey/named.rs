//! Files of the workspace that a repository's own configuration names: hooks, programs, further settings.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::git_config::{Setting, Use, settings, words};
use super::links::{End, landing};
use super::list::{BENEATH, Listed, list};
use super::unreadable;
use super::walk::Walk;
use crate::error::SandboxError;

const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Configuration files of one repository, included ones among them.
const CONFIGS_MAX: usize = 64;
/// Words of one repository's configuration that are looked up.
const WORDS_MAX: usize = 8_192;

impl Walk<'_> {
    /// Guards what the configuration of a git directory names.
    pub(super) fn configuration(&mut self, dir: &Path, listed: &Listed) -> Result<(), SandboxError> {
        let present = ["config", "config.worktree"].into_iter().filter(|name| listed.has(name));
        let mut files: Vec<PathBuf> = present.map(|name| dir.join(name)).collect();
        if files.is_empty() {
            return Ok(());
        }
        let mut roots = self.worktrees(dir, listed)?;
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
                            "the git configuration `{}` is too large to be guarded: more than {WORDS_MAX} words or {CONFIGS_MAX} included files",
                            self.host.join(dir).join("config").display()
                        )));
                    }
                    let beside = file.parent().unwrap_or(dir).to_path_buf();
                    for root in roots.iter().chain([&beside]) {
                        files.extend(self.named_file(dir, root, setting, word)?);
                    }
                }
            }
        }
        Ok(())
    }

    /// Guards the file that a word of a setting names, seen from `root`. Returns it if it has further settings.
    fn named_file(
        &mut self,
        dir: &Path,
        root: &Path,
        setting: &Setting,
        word: &str,
    ) -> Result<Option<PathBuf>, SandboxError> {
        // The home folder, and git's own folder, are no part of a workspace.
        if word.is_empty() || word.starts_with('~') || word.starts_with('%') {
            return Ok(None);
        }
        let found = landing(self.host, &root.join(word))?;
        let Some(End { path, folder }) = &found.end else { return Ok(None) };
        let is_command = setting.used_as == Use::Command;
        let is_nothing = match folder {
            Some(true) => setting.used_as != Use::Path,
            Some(false) => false,
            // A bare word that is no file is a program's name or an option.
            None => is_command && !word.contains('/'),
        };
        if is_nothing || path == dir {
            return Ok(None);
        }
        if dir.starts_with(path) {
            return Err(SandboxError::Spec(format!(
                "the git configuration `{}` takes programs from `{}`, which can't be guarded because the repository lies in it: name another folder",
                self.host.join(dir).join("config").display(),
                self.host.join(path).display()
            )));
        }
        let included = (setting.used_as == Use::Include && *folder == Some(false)).then(|| path.clone());
        self.guard_landing(found, &dir.join("config"));
        Ok(included)
    }

    /// The folders that a repository's relative paths may start at.
    fn worktrees(&self, dir: &Path, listed: &Listed) -> Result<Vec<PathBuf>, SandboxError> {
        let mut roots = vec![dir.to_path_buf()];
        roots.extend(dir.parent().map(Path::to_path_buf));
        let mut pointers = vec![dir.join("gitdir")];
        if listed.has("worktrees") {
            let folder = dir.join("worktrees");
            match list(&self.root, &folder) {
                Ok(listed) => {
                    pointers.extend(listed.entries.iter().map(|(name, _)| folder.join(name).join("gitdir")))
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(unreadable(self.host, &folder, errno)),
            }
        }
        for pointer in pointers {
            // It holds the path of the worktree's `.git` file.
            let Some(text) = self.small_text(&pointer)? else { continue };
            let beside = pointer.parent().unwrap_or(dir);
            roots.extend(beside.join(text.trim_end()).parent().map(Path::to_path_buf));
        }
        Ok(roots)
    }

    /// The text of a file that has to be small. `None`: it isn't there, or isn't a file of the workspace.
    fn small_text(&self, path: &Path) -> Result<Option<String>, SandboxError> {
        let Some(End { path, folder: Some(false) }) = landing(self.host, path)?.end else { return Ok(None) };
        let fail = |cause: std::io::Error| unreadable(self.host, &path, cause);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat2(&self.root, &path, flags, Mode::empty(), BENEATH) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(fail(errno.into())),
        };
        let found = rustix::fs::fstat(&file).map_err(|errno| fail(errno.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        std::fs::File::from(file).take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fail)?;
        if bytes.len() as u64 > CONFIG_BYTES_MAX {
            let path = self.host.join(&path);
            let why = format!(
                "`{}` is larger than {CONFIG_BYTES_MAX} bytes, so what it names can't be guarded",
                path.display()
            );
            return Err(SandboxError::Spec(why));
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}
