//! Git directories that aren't called `.git`: bare repositories, those of submodules (`.git/modules/NAME`) and of linked worktrees.
//!
//! A path alone doesn't say where such a directory begins, because the name of a submodule may contain slashes. The survey finds them
//! by their layout, and a program can't make new ones, so what was found holds for the whole run.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use regent_guard::git::{GitEntry, LAYOUT_CONTROL, git_entry};
use regent_guard::{Creation, Kinds, creation, fold_name, is_git_folder};

/// The git directories of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GitDirs(HashSet<PathBuf>);

impl GitDirs {
    pub(super) fn insert(&mut self, path: PathBuf) {
        self.0.insert(path);
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        self.0.contains(path)
    }

    /// What the list of guarded places says to making a path of the workspace.
    pub(crate) fn judged(&self, path: &Path) -> Creation {
        match self.as_dot_git(path) {
            Some(alike) => judged(&alike),
            None => judged(path),
        }
    }

    /// A path below a git directory, spelt as if that directory were called `.git`.
    pub(super) fn as_dot_git(&self, path: &Path) -> Option<PathBuf> {
        // The nearest one: a submodule may have submodules.
        let dir = path.ancestors().skip(1).find(|above| self.0.contains(*above))?;
        let below = path.strip_prefix(dir).ok()?;
        let mut around = PathBuf::new();
        for part in dir.components() {
            around.push(part);
            if is_git(part) {
                return Some(around.join(below));
            }
        }
        // A bare layout may be a project's own folder, in which only what steers git is special.
        let first = below.components().next()?.as_os_str().to_string_lossy().into_owned();
        let first = fold_name(&first);
        let first = first.strip_suffix(".lock").unwrap_or(&first);
        LAYOUT_CONTROL.contains(&first).then(|| dir.join(".git").join(below))
    }

    /// Whether git writes the path, or what is below it, in ordinary work.
    pub(crate) fn is_written_by_git(&self, path: &Path) -> bool {
        if path.parent().is_some_and(|above| above.components().any(is_git)) {
            return true;
        }
        let dir = path.ancestors().skip(1).find(|above| self.0.contains(*above));
        let below = dir.and_then(|dir| path.strip_prefix(dir).ok());
        below.is_some_and(|below| {
            self.as_dot_git(path).is_some() || git_entry(&below.to_string_lossy()) == GitEntry::Writable
        })
    }
}

fn is_git(part: Component<'_>) -> bool {
    is_git_folder(&part.as_os_str().to_string_lossy())
}

fn judged(path: &Path) -> Creation {
    let parent = path.parent().map(Path::to_string_lossy).unwrap_or_default();
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    creation(&parent, &name, Kinds::UNWRITABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submodules_and_bare_repositories_are_judged_like_dot_git() {
        let dirs = [
            ".git/modules/a/objects",
            ".git/modules/b",
            ".git/modules/b/modules/c",
            "bare",
            "bare/worktrees/w",
        ];
        let dirs = GitDirs(dirs.iter().map(PathBuf::from).collect());
        for writable in [
            ".git/modules/b/index.lock",
            ".git/modules/b/modules/c/HEAD",
            ".git/modules/a/objects/refs/heads/x",
            "bare/refs/heads/x",
            "bare/worktrees/w/index",
            "bare/worktrees/w/logs/HEAD",
            "bare/README.md",
        ] {
            assert_eq!(dirs.judged(Path::new(writable)), Creation::Free, "{writable}");
        }
        for control in [
            ".git/modules/b/config",
            ".git/modules/b",
            ".git/modules/new/HEAD",
            ".git/modules/a/objects/config",
            ".git/modules/b/modules/c/hooks/x",
            "bare/config.lock",
            "bare/hooks/post-update",
            "bare/worktrees/w/commondir",
            "bare/worktrees/w/rebase-merge",
            "bare/worktrees/new",
        ] {
            assert!(matches!(dirs.judged(Path::new(control)), Creation::Guarded(_)), "{control}");
        }
        for git in [".git/logs/HEAD", "bare/logs/HEAD", "bare/worktrees/w/index"] {
            assert!(dirs.is_written_by_git(Path::new(git)), "{git}");
        }
        for other in ["bare/src/x", "src/logs/HEAD", ".git"] {
            assert!(!dirs.is_written_by_git(Path::new(other)), "{other}");
        }
    }
}
