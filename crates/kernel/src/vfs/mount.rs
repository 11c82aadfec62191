//! What can be mounted in an agent's tree, what reading it gives, and why it refuses.

use regent_policy::Label;
pub use regent_wire::{Fd, OpenMode};
use serde::Serialize;

/// Something that can be mounted in an agent's tree. Paths are relative to it, `""` is its own root; they have been parsed: no dots,
/// no empty parts.
pub(crate) trait Mount: Send + Sync + std::fmt::Debug {
    /// Describes a file or folder.
    fn stat(&self, path: &str) -> Result<Stat, VfsError>;
    /// Lists a folder.
    fn list(&self, path: &str) -> Result<Folder, VfsError>;
    /// Reads a part of a file.
    fn read(&self, path: &str, offset: u64, bytes_max: usize) -> Result<Content, VfsError>;
    /// Writes a part of a file, making the file if need be; `None` appends. Gives back how long it is now.
    fn write(&self, path: &str, offset: Option<u64>, content: &[u8], label: Label) -> Result<u64, VfsError> {
        let _unused = (offset, content, label);
        Err(VfsError::ReadOnly(path.to_owned()))
    }
    /// Replaces a file as a whole. Gives back how long it is now.
    fn put(&self, path: &str, content: &[u8], label: Label) -> Result<u64, VfsError> {
        let _unused = (content, label);
        Err(VfsError::ReadOnly(path.to_owned()))
    }
    /// Finds files of a folder by text in their name or content. In the order of names: ranking is the memory crate's matter.
    fn search(&self, folder: &str, text: &str, entries_max: usize) -> Result<Vec<Recalled>, VfsError> {
        let _unused = (text, entries_max);
        Err(VfsError::NotFound(folder.to_owned()))
    }
}

/// Metadata of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Stat {
    /// A folder, not a file.
    pub(crate) folder: bool,
    /// How long the file is.
    pub(crate) bytes: u64,
    /// The label of all that is in it.
    pub(crate) label: Label,
}

/// What is in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    /// Names of files and folders.
    pub(crate) names: Vec<String>,
    /// The label of the names.
    pub(crate) label: Label,
}

/// The content that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// Their label.
    pub(crate) label: Label,
}

/// One file that a search found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Recalled {
    /// Its name in the folder that was searched.
    pub(crate) name: String,
    /// What it holds.
    pub(crate) content: String,
    /// The label of that.
    pub(crate) label: Label,
}

/// Why the virtual file system refuses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VfsError {
    /// A path that isn't one.
    #[error("`{}` is not a path: {why}", .path.escape_debug())]
    Path {
        /// How it begins.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Nothing there.
    #[error("there is no `{}`", .0.escape_debug())]
    NotFound(String),
    /// A folder where a file is needed.
    #[error("`{}` is no place for a file", .0.escape_debug())]
    NotAFile(String),
    /// A file where a folder is needed.
    #[error("`{}` is not a folder", .0.escape_debug())]
    NotAFolder(String),
    /// It can't be written.
    #[error("`{}` can't be written", .0.escape_debug())]
    ReadOnly(String),
    /// A write past the end.
    #[error("the write to `{}` begins past its end", .0.escape_debug())]
    Gap(String),
    /// No room; which limit was met.
    #[error("there is no room: {0} is the limit")]
    Full(String),
    /// The descriptor is not open.
    #[error("file {0} is not open")]
    NotOpen(u32),
    /// Something is mounted there already, or nothing can be.
    #[error("nothing can be mounted at `{}`; mounts go to `/self/mnt/<name>`", .0.escape_debug())]
    NoMountPoint(String),
    /// What is behind the mount failed.
    #[error("the mount failed: {0}")]
    Broken(String),
}

impl VfsError {
    /// A stable word for it.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Path { .. } => "path.invalid",
            Self::NotFound(_) => "vfs.not_found",
            Self::NotAFile(_) => "vfs.not_a_file",
            Self::NotAFolder(_) => "vfs.not_a_folder",
            Self::ReadOnly(_) => "vfs.read_only",
            Self::Gap(_) => "vfs.gap",
            Self::Full(_) => "vfs.full",
            Self::NotOpen(_) => "vfs.not_open",
            Self::NoMountPoint(_) => "vfs.no_mount_point",
            Self::Broken(_) => "vfs.broken",
        }
    }
}
