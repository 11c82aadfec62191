//! Pictures of the workspace: taken at milestones, put back exactly. Kept outside the workspace, in a store of our own; the user's `.git` is
//! neither read nor written.
//!
//! A picture is a list of files, folders and links with their permission bits; content lies beside it under its SHA-256, once however
//! often it occurs. Names in [`SnapshotOptions::excluded`] are left alone, both ways, and so is whatever can't be put back exactly: files
//! with a second hard link, devices, names that aren't text. `.gitignore` means nothing here: an agent changes ignored files too.
//!
//! This is the person's tool, not an agent's: it runs beside the path, on the workspace of whoever starts it.

mod files;
mod restore;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use regent_kernel::{Digest, PathError, Workspace};
use serde::{Deserialize, Serialize};

pub use restore::Restored;

/// A picture can't be taken or put back.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// There is no such picture.
    #[error("there is no snapshot `{}`", .0.escape_debug())]
    Unknown(String),
    /// Too many files, or too much in them.
    #[error("the workspace is too large for a snapshot: {0}")]
    TooLarge(String),
    /// What is in the store is not what was put there.
    #[error("the snapshot store is damaged: {0}")]
    Damaged(String),
    /// A file of the workspace can't be used.
    #[error("`{}`: {error}", .path.escape_debug())]
    Path {
        /// Which one.
        path: String,
        /// Why.
        error: PathError,
    },
    /// The store can't be used.
    #[error("the snapshot store can't be used: {0}")]
    Store(#[from] std::io::Error),
}

/// What is in a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// Names that are left alone wherever they are.
    pub excluded: BTreeSet<String>,
    /// Files and folders at most.
    pub items_max: usize,
    /// Content at most.
    pub bytes_max: u64,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        let excluded = [".git", ".regent", "target", "node_modules", ".venv", "__pycache__"];
        Self { excluded: excluded.map(str::to_owned).into(), items_max: 200_000, bytes_max: 4 << 30 }
    }
}

/// One thing in a picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Where, from the workspace's root.
    pub path: String,
    /// The permission bits; 0 for links, which have none.
    pub mode: u32,
    /// What it is.
    pub what: What,
}

/// What a thing in a picture is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A folder.
    Folder,
    /// A file, by its content.
    File {
        /// The digest of the content.
        sha256: Digest,
        /// How much it is.
        bytes: u64,
    },
    /// A symbolic link, by where it leads.
    Link(String),
}

/// A picture, as the store has it. Items are in the order of their paths, folders before what is in them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The form that this is written in.
    pub schema: u32,
    /// What is in it.
    pub items: Vec<Item>,
    /// What was left alone because it can't be put back exactly.
    pub skipped: Vec<String>,
}

/// A store of pictures.
#[derive(Debug)]
pub struct Snapshots {
    folder: PathBuf,
    options: SnapshotOptions,
}

impl Snapshots {
    /// Opens a store, and makes it if need be. Only its owner may look into it.
    pub fn open(folder: &Path, options: SnapshotOptions) -> Result<Self, SnapshotError> {
        for below in ["blobs", "trees"] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join(below))?;
        }
        Ok(Self { folder: folder.to_path_buf(), options })
    }

    /// Takes a picture. The same content gives the same id.
    pub fn take(&self, workspace: &Workspace) -> Result<String, SnapshotError> {
        let snapshot = files::scan(workspace, &self.options, |bytes| self.keep(bytes).map(|_| ()))?;
        let text =
            serde_json::to_vec(&snapshot).map_err(|error| SnapshotError::Damaged(error.to_string()))?;
        let id: String = Digest::of(&text).to_string().chars().take(16).collect();
        let place = self.folder.join("trees").join(&id);
        if !place.exists() {
            // Content first: a picture that is there can be put back.
            rustix::fs::syncfs(File::open(&self.folder)?).map_err(std::io::Error::from)?;
            self.publish(&text, &place)?;
            File::open(self.folder.join("trees"))?.sync_all()?;
        }
        Ok(id)
    }

    /// Puts the workspace back to what a picture shows. What it was before is kept as a picture too, named in the result.
    pub fn restore(&self, workspace: &Workspace, id: &str) -> Result<Restored, SnapshotError> {
        let wanted = self.get(id)?;
        let before = self.take(workspace)?;
        let now = self.get(&before)?;
        restore::apply(self, workspace, (&now, &wanted), before)
    }

    /// What [`restore`](Self::restore) would do now.
    pub fn foresee(&self, workspace: &Workspace, id: &str) -> Result<Restored, SnapshotError> {
        let wanted = self.get(id)?;
        let before = self.take(workspace)?;
        let now = self.get(&before)?;
        Ok(restore::foreseen(&now, &wanted, before))
    }

    /// A picture.
    pub fn get(&self, id: &str) -> Result<Snapshot, SnapshotError> {
        let is_id = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let unknown = || SnapshotError::Unknown(id.chars().take(64).collect());
        if !is_id {
            return Err(unknown());
        }
        let text = fs::read(self.folder.join("trees").join(id)).map_err(|_| unknown())?;
        if !Digest::of(&text).to_string().starts_with(id) {
            return Err(SnapshotError::Damaged(format!("snapshot `{id}` has changed")));
        }
        serde_json::from_slice(&text).map_err(|error| SnapshotError::Damaged(error.to_string()))
    }

    /// Forgets all pictures but these, and all content that none of them has. Gives back how many pieces of content went.
    pub fn keep_only(&self, ids: &BTreeSet<String>) -> Result<usize, SnapshotError> {
        let mut kept = BTreeSet::new();
        for entry in fs::read_dir(self.folder.join("trees"))? {
            let entry = entry?;
            let id = entry.file_name().to_string_lossy().into_owned();
            if ids.contains(&id) {
                kept.extend(self.get(&id)?.items.into_iter().filter_map(|item| match item.what {
                    What::File { sha256, .. } => Some(sha256.to_string()),
                    What::Folder | What::Link(_) => None,
                }));
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        let mut gone = 0;
        for entry in fs::read_dir(self.folder.join("blobs"))? {
            let entry = entry?;
            if !kept.contains(entry.file_name().to_string_lossy().as_ref()) {
                fs::remove_file(entry.path())?;
                gone += 1;
            }
        }
        Ok(gone)
    }

    /// The content of a file in a picture, checked.
    fn content(&self, sha256: &Digest) -> Result<Vec<u8>, SnapshotError> {
        let mut bytes = Vec::new();
        let place = self.blob(sha256);
        File::open(&place)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|error| SnapshotError::Damaged(format!("content {sha256}: {error}")))?;
        if Digest::of(&bytes) == *sha256 {
            Ok(bytes)
        } else {
            Err(SnapshotError::Damaged(format!("content {sha256} has changed")))
        }
    }

    fn keep(&self, bytes: &[u8]) -> Result<Digest, SnapshotError> {
        let sha256 = Digest::of(bytes);
        let place = self.blob(&sha256);
        let is_there = fs::metadata(&place).is_ok_and(|file| file.len() == bytes.len() as u64);
        if !is_there {
            self.publish(bytes, &place)?;
        }
        Ok(sha256)
    }

    fn blob(&self, sha256: &Digest) -> PathBuf {
        self.folder.join("blobs").join(sha256.to_string())
    }

    /// Whole or not at all: written beside its place, then moved there.
    fn publish(&self, bytes: &[u8], place: &Path) -> Result<(), SnapshotError> {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
        let draft = self.folder.join(format!("draft-{:016x}", u64::from_ne_bytes(random)));
        let written = File::options()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&draft, place));
        if written.is_err() {
            // Half a draft is of no use; if it can't be taken away either, the error that is reported says why.
            let _gone = fs::remove_file(&draft).is_ok();
        }
        Ok(written?)
    }
}
