//! Folders of Regent's own, and the home folder: a workspace lies beside or below them as the rules say, never around them.
//!
//! Folders are compared as the file system knows them, by device and inode of every folder on the way, so that links, bind mounts and
//! other spellings of a name make no difference. Only "does not exist" means absent; whatever else goes wrong refuses.

use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// Folders that no tool reaches, and the home folder, resolved.
#[derive(Debug, Clone, Default)]
pub struct OwnFolders {
    folders: Vec<PathBuf>,
    home: Option<PathBuf>,
}

/// Why a folder can't be a workspace.
#[derive(Debug, thiserror::Error)]
pub enum Overlap {
    /// Everything there is.
    #[error("it is the root of the file system")]
    Root,
    /// The home folder is it, or in it.
    #[error("it is or contains your home folder `{}`", .0.display())]
    AroundHome(PathBuf),
    /// A folder of Regent's own is it, or in it.
    #[error("it contains `{}`, where Regent keeps its own files", .0.display())]
    AroundOwn(PathBuf),
    /// It lies in a folder of Regent's own.
    #[error("it is inside `{}`, where Regent keeps its own files", .0.display())]
    InOwn(PathBuf),
    /// A folder can't be looked at.
    #[error("`{}` can't be checked: {error}", path.display())]
    Unknown {
        /// Which folder.
        path: PathBuf,
        /// What the operating system says.
        error: Error,
    },
}

impl OwnFolders {
    /// Resolves Regent's own folders and the home folder. Folders that don't exist yet are named by where they would be.
    pub fn resolve(
        folders: impl IntoIterator<Item = PathBuf>,
        home: Option<PathBuf>,
    ) -> Result<Self, Overlap> {
        let folders = folders.into_iter().map(|folder| resolved(&folder)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { folders, home: home.map(|home| resolved(&home)).transpose()? })
    }

    /// The folders themselves, for the sandbox that hides them.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Refuses a workspace that contains, is, or is inside one of the folders, or contains or is the home folder.
    pub fn check(&self, root: &Path) -> Result<(), Overlap> {
        let root = resolved(root)?;
        if root.parent().is_none() {
            return Err(Overlap::Root);
        }
        let place = lineage(&root)?;
        let Some(own) = place.first() else {
            return Err(Overlap::Unknown { path: root, error: Error::from(ErrorKind::NotFound) });
        };
        for (folder, is_home) in
            self.folders.iter().map(|one| (one, false)).chain(self.home.iter().map(|one| (one, true)))
        {
            let above = lineage(folder)?;
            if folder.starts_with(&root) || above.contains(own) {
                let folder = folder.clone();
                return Err(if is_home { Overlap::AroundHome(folder) } else { Overlap::AroundOwn(folder) });
            }
            let is_there = above.len() == folder.ancestors().count();
            let itself = above.first().filter(|_| is_there);
            if !is_home && (root.starts_with(folder) || itself.is_some_and(|itself| place.contains(itself))) {
                return Err(Overlap::InOwn(folder.clone()));
            }
        }
        Ok(())
    }

    /// Whether an absolute spelling without links is one of the folders or lies in one.
    pub(crate) fn holds(&self, spelling: &str) -> bool {
        let folded = |path: &str| regent_guard::fold_path(path).into_owned();
        let wanted = folded(spelling);
        self.folders.iter().any(|folder| {
            let folder = folded(&folder.to_string_lossy());
            wanted.strip_prefix(&folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// The real path of a folder; of one that isn't there yet, that of its nearest ancestor with the missing names behind it.
fn resolved(folder: &Path) -> Result<PathBuf, Overlap> {
    let mut missing = Vec::new();
    for ancestor in folder.ancestors() {
        match ancestor.canonicalize() {
            Ok(real) => {
                return Ok(missing.into_iter().rev().fold(real, |path: PathBuf, name| path.join(name)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound && is_absent(ancestor)? => {
                match ancestor.components().next_back() {
                    Some(Component::Normal(name)) => missing.push(name.to_owned()),
                    Some(_) | None => return Err(unknown(ancestor, error)),
                }
            }
            Err(error) => return Err(unknown(ancestor, error)),
        }
    }
    Err(unknown(folder, Error::from(ErrorKind::NotFound)))
}

/// A dangling link counts: its target can be created later.
fn is_absent(path: &Path) -> Result<bool, Overlap> {
    match path.symlink_metadata() {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(unknown(path, error)),
    }
}

/// Device and inode of a folder and of each folder above it, as far as they exist.
fn lineage(folder: &Path) -> Result<Vec<(u64, u64)>, Overlap> {
    let mut found = Vec::new();
    for ancestor in folder.ancestors() {
        match ancestor.metadata() {
            Ok(stat) => found.push((stat.dev(), stat.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(unknown(ancestor, error)),
        }
    }
    Ok(found)
}

fn unknown(path: &Path, error: Error) -> Overlap {
    Overlap::Unknown { path: path.to_owned(), error }
}
