//! The virtual file system of agents: a tree each, made of mounts.
//!
//! ```text
//! /agent/<id>/mem/{working,episodic,semantic}   the agent's own files, in memory
//!            /state/{checkpoints,diagnostics}   written by the kernel on USR1 and USR2, read-only
//!            /policy /audit /tools /ipc         views of the kernel, read-only
//!            /mnt/<name>                        what was mapped here from another place
//! ```
//!
//! `/self` is the caller's own tree. An agent reaches its own tree and those of its descendants; whoever may see a region can map
//! it into a tree they reach, so a parent shares with its child by mapping a region of its own into the child's `mnt`. A mapping leads
//! straight to the mount below it, never to another mapping, so there are no cycles. What is mapped is judged when it is mapped,
//! and from then on by the name it has there.

mod path;
mod region;
mod trees;
mod views;

use std::sync::Arc;

use regent_ledger::Kind;
use regent_policy::{Access, Label};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::agent::AgentId;
use crate::call::{Call, Op};
use crate::kernel::Core;
use crate::syscall::{Fault, Kernel};
pub(crate) use path::VfsPath;
use trees::MAPPED;
pub(crate) use trees::{Node, Place, Vfs};

/// An open file of one agent. Numbers are never used again, so a number means the file it was judged as, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fd(pub u32);

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenMode {
    /// To read.
    Read,
    /// To read and write; made if absent.
    Write,
}

/// Something that can be mounted in an agent's tree. Paths are relative to it, `""` is its own root; they have been parsed: no dots,
/// no empty parts.
pub trait Mount: Send + Sync + std::fmt::Debug {
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

/// What a file or folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stat {
    /// A folder, not a file.
    pub folder: bool,
    /// How long the file is.
    pub bytes: u64,
    /// The label of all that is in it.
    pub label: Label,
}

/// What is in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Names of files and folders.
    pub names: Vec<String>,
    /// The label of the names.
    pub label: Label,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their label.
    pub label: Label,
}

/// One file that a search found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recalled {
    /// Its name in the folder that was searched.
    pub name: String,
    /// What it holds.
    pub content: String,
    /// The label of that.
    pub label: Label,
}

/// The virtual file system says no.
#[derive(Debug, thiserror::Error)]
pub enum VfsError {
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
    pub fn code(&self) -> &'static str {
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

impl Kernel {
    /// Mounts something that another crate provides in an agent's tree: over `mem` for a memory that lasts, or at a new name. Says
    /// whether there is such an agent. Recorded, like everything that changes what an agent can reach.
    pub async fn plug(
        &self,
        agent: &AgentId,
        name: &str,
        mount: Arc<dyn Mount>,
        writable: bool,
    ) -> Result<bool, Fault> {
        let is_name =
            !name.is_empty() && name != MAPPED && name.bytes().all(|byte| byte.is_ascii_lowercase());
        if !is_name || !self.0.vfs.has(agent) {
            return Ok(false);
        }
        let body = json!({
            "agent": agent, "event": "plugged", "name": name, "session": self.operator().session(), "writable": writable,
        });
        self.0.note(Kind::Agent, &body).await?;
        Ok(self.0.vfs.plug(agent, name, mount, writable))
    }
}

impl Core {
    /// The absolute virtual paths that an operation touches, in the form policy sees. A path that can't be parsed is refused by
    /// the kernel's own rules, so it needs no form here.
    pub(crate) fn vfs_paths(&self, call: &Call, op: &Op) -> Vec<(String, Access)> {
        let who = call.principal();
        let spelt =
            |path: &str, access| VfsPath::parse(path, who).ok().map(|path| (path.to_string(), access));
        let opened =
            |fd: &Fd, access| self.vfs.opened(who, *fd).ok().map(|(path, _)| (path.to_string(), access));
        let access = |writes: bool| if writes { Access::Write } else { Access::Read };
        let (one, other) = match op {
            Op::Open { path, mode } => (spelt(path, access(*mode == OpenMode::Write)), None),
            Op::Close { fd } | Op::Read { fd, .. } => (opened(fd, Access::Read), None),
            Op::Write { fd, .. } => (opened(fd, Access::Write), None),
            Op::Stat { path } => (spelt(path, Access::Read), None),
            Op::List { path } => (spelt(path, Access::List), None),
            Op::Mount { source, target, writable } => {
                (spelt(source, access(*writable)), spelt(target, Access::Write))
            }
            Op::Unmount { target } => (spelt(target, Access::Delete), None),
            Op::Remember(memory) => {
                let path = format!("/self/mem/{}/{}", memory.region.folder(), memory.key);
                (spelt(&path, Access::Write), None)
            }
            Op::Recall(query) => (spelt(&format!("/self/mem/{}", query.region.folder()), Access::Read), None),
            Op::RunTool(_)
            | Op::Elsewhere(_)
            | Op::Begin { .. }
            | Op::Declassify { .. }
            | Op::Infer(_)
            | Op::Spawn(_)
            | Op::Wait { .. }
            | Op::Exit { .. }
            | Op::Agents
            | Op::Pipe(_)
            | Op::Send { .. }
            | Op::Recv { .. }
            | Op::Signal { .. }
            | Op::Sigaction { .. }
            | Op::Sigprocmask { .. }
            | Op::Sigpending
            | Op::GetPolicy
            | Op::CheckPolicy { .. }
            | Op::Answer { .. }
            | Op::Questions
            | Op::SetBudget { .. } => (None, None),
        };
        one.into_iter().chain(other).collect()
    }
}

#[cfg(test)]
mod tests;
