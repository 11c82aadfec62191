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
mod views;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use regent_policy::{Access, Label};
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, AgentId};
use crate::call::{Call, Op};
use crate::kernel::Core;
use crate::principal::Principal;
pub(crate) use path::VfsPath;
use region::{Region, Room};

/// Files that one agent has open at the same time.
const OPEN_FILES_MAX: usize = 256;
/// Mappings in one tree.
const MAPPINGS_MAX: usize = 32;
/// Checkpoints, and diagnostics, that are kept; the oldest go first.
const STATE_FILES_KEPT_MAX: usize = 32;
const MEMORY_ROOM: Room = Room { file_bytes_max: 1 << 20, files_max: 1024, bytes_max: 16 << 20 };
const STATE_ROOM: Room =
    Room { file_bytes_max: 32 << 20, files_max: 2 * STATE_FILES_KEPT_MAX, bytes_max: 64 << 20 };

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

/// All trees.
#[derive(Debug, Default)]
pub(crate) struct Vfs(RwLock<HashMap<AgentId, Arc<Tree>>>);

/// One agent's tree, and the files it has open, here or in others.
#[derive(Debug)]
struct Tree {
    memory: Arc<Region>,
    state: Arc<Region>,
    /// By the name below the root: `mem`, `mnt/<name>`.
    mounts: Mutex<BTreeMap<String, Place>>,
    open: Mutex<OpenFiles>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    given: u32,
    files: BTreeMap<u32, (VfsPath, OpenMode)>,
}

/// A place in a mount.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    mount: Arc<dyn Mount>,
    path: String,
    writable: bool,
}

impl Tree {
    fn mounts(&self) -> MutexGuard<'_, BTreeMap<String, Place>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, OpenFiles> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(crate) fn stat(&self) -> Result<Stat, VfsError> {
        self.mount.stat(&self.path)
    }

    pub(crate) fn list(&self) -> Result<Folder, VfsError> {
        self.mount.list(&self.path)
    }

    pub(crate) fn read(&self, offset: u64, bytes_max: usize) -> Result<Content, VfsError> {
        self.mount.read(&self.path, offset, bytes_max)
    }

    pub(crate) fn write(&self, offset: Option<u64>, content: &[u8], label: Label) -> Result<u64, VfsError> {
        self.writable()?.mount.write(&self.path, offset, content, label)
    }

    pub(crate) fn put(&self, content: &[u8], label: Label) -> Result<u64, VfsError> {
        self.writable()?.mount.put(&self.path, content, label)
    }

    pub(crate) fn search(&self, text: &str, entries_max: usize) -> Result<Vec<Recalled>, VfsError> {
        self.mount.search(&self.path, text, entries_max)
    }

    fn writable(&self) -> Result<&Self, VfsError> {
        if self.writable { Ok(self) } else { Err(VfsError::ReadOnly(self.path.clone())) }
    }
}

impl Vfs {
    /// Gives an agent its tree.
    pub(crate) fn grow(&self, core: &Arc<Core>, agent: &Agent) {
        let tree = Tree::new(views::all(core, &agent.id, &agent.principal));
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(agent.id.clone(), Arc::new(tree));
    }

    /// Takes an agent's tree away. Regions that others have mapped stay with them.
    pub(crate) fn fell(&self, id: &AgentId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Closes the files of an agent that has ended.
    pub(crate) fn close_all(&self, id: &AgentId) {
        if let Some(tree) = self.tree(id) {
            tree.open().files.clear();
        }
    }

    fn tree(&self, id: &AgentId) -> Option<Arc<Tree>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// The caller's own tree; the person's comes into being when it is first used.
    fn own(&self, core: &Arc<Core>, who: &Principal) -> Arc<Tree> {
        let home = who.home();
        if let Some(tree) = self.tree(&home) {
            return tree;
        }
        let tree = Arc::new(Tree::new(views::all(core, &home, who)));
        let mut trees = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(trees.entry(home).or_insert(tree))
    }

    /// What is at a path: a place in a mount, or the names of a folder above the mounts.
    pub(crate) fn find(&self, core: &Arc<Core>, who: &Principal, path: &VfsPath) -> Result<Node, VfsError> {
        let tree =
            if *path.tree() == who.home() { Some(self.own(core, who)) } else { self.tree(path.tree()) };
        let tree = tree.ok_or_else(|| VfsError::NotFound(path.to_string()))?;
        let mounts = tree.mounts();
        let parts = path.parts();
        let depth = usize::from(parts.first().is_some_and(|first| first == MAPPED)) + 1;
        if parts.len() < depth {
            return Ok(Node::Above(names_above(&mounts, parts.first())));
        }
        let (name, below) = parts.split_at(depth);
        let mut place =
            mounts.get(&name.join("/")).ok_or_else(|| VfsError::NotFound(path.to_string()))?.clone();
        for part in below {
            if !place.path.is_empty() {
                place.path.push('/');
            }
            place.path.push_str(part);
        }
        Ok(Node::In(place))
    }

    /// Maps a place into a tree.
    pub(crate) fn map(
        &self,
        core: &Arc<Core>,
        who: &Principal,
        source: Place,
        target: &VfsPath,
    ) -> Result<(), VfsError> {
        let no_mount_point = || VfsError::NoMountPoint(target.to_string());
        let [first, _name] = target.parts() else { return Err(no_mount_point()) };
        if first != MAPPED {
            return Err(no_mount_point());
        }
        source.stat()?;
        let tree =
            if *target.tree() == who.home() { Some(self.own(core, who)) } else { self.tree(target.tree()) };
        let tree = tree.ok_or_else(no_mount_point)?;
        let mut mounts = tree.mounts();
        let prefix = format!("{MAPPED}/");
        if mounts.keys().filter(|name| name.starts_with(&prefix)).count() >= MAPPINGS_MAX {
            return Err(VfsError::Full(format!("{MAPPINGS_MAX} mappings in one tree")));
        }
        match mounts.entry(target.parts().join("/")) {
            std::collections::btree_map::Entry::Occupied(_) => Err(no_mount_point()),
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(source);
                Ok(())
            }
        }
    }

    /// Takes a mapping away. Files that are open through it can't be used any more.
    pub(crate) fn unmap(&self, target: &VfsPath) -> Result<(), VfsError> {
        let name = target.parts().join("/");
        let is_mapping = target.parts().first().is_some_and(|first| first == MAPPED);
        let tree = self.tree(target.tree()).filter(|_| is_mapping);
        let gone = tree.and_then(|tree| tree.mounts().remove(&name));
        gone.map(|_| ()).ok_or_else(|| VfsError::NotFound(target.to_string()))
    }

    /// Gives a number to an open file.
    pub(crate) fn open(
        &self,
        core: &Arc<Core>,
        who: &Principal,
        path: VfsPath,
        mode: OpenMode,
    ) -> Result<Fd, VfsError> {
        let tree = self.own(core, who);
        let mut open = tree.open();
        if open.files.len() >= OPEN_FILES_MAX {
            return Err(VfsError::Full(format!("{OPEN_FILES_MAX} open files")));
        }
        let fd = open.given;
        open.given = fd.checked_add(1).ok_or_else(|| VfsError::Full("descriptor numbers".to_owned()))?;
        open.files.insert(fd, (path, mode));
        Ok(Fd(fd))
    }

    /// What a number stands for.
    pub(crate) fn opened(&self, who: &Principal, fd: Fd) -> Result<(VfsPath, OpenMode), VfsError> {
        let tree = self.tree(&who.home());
        let file = tree.and_then(|tree| tree.open().files.get(&fd.0).cloned());
        file.ok_or(VfsError::NotOpen(fd.0))
    }

    pub(crate) fn close(&self, who: &Principal, fd: Fd) -> Result<(), VfsError> {
        let tree = self.tree(&who.home());
        let file = tree.and_then(|tree| tree.open().files.remove(&fd.0));
        file.map(|_| ()).ok_or(VfsError::NotOpen(fd.0))
    }

    /// What an agent is working with, for a checkpoint.
    pub(crate) fn working_memory(&self, id: &AgentId) -> (BTreeMap<String, String>, Label) {
        self.tree(id).map_or_else(|| (BTreeMap::new(), region::BLANK), |tree| tree.memory.all("working"))
    }

    /// Writes a file of an agent's `state`, where the agent itself can only read. The oldest make room for it.
    pub(crate) fn keep_state(&self, id: &AgentId, name: &str, content: &[u8], label: Label) -> bool {
        let Some(tree) = self.tree(id) else { return false };
        let folder = name.split('/').next().unwrap_or_default();
        while tree.state.list(folder).is_ok_and(|listing| listing.names.len() >= STATE_FILES_KEPT_MAX) {
            tree.state.drop_oldest(folder);
        }
        loop {
            match tree.state.put(name, content, label) {
                Ok(_) => return true,
                Err(_full) if tree.state.drop_oldest(folder) => {}
                Err(_full) => return false,
            }
        }
    }
}

/// The folder that mappings appear in.
const MAPPED: &str = "mnt";

/// What is at a path.
#[derive(Debug)]
pub(crate) enum Node {
    /// A folder of the tree itself, with these names in it.
    Above(Vec<String>),
    /// A place in a mount.
    In(Place),
}

impl Node {
    /// The place in a mount; the folders above the mounts are no files and can't be mapped.
    pub(crate) fn place(self, path: &VfsPath) -> Result<Place, VfsError> {
        match self {
            Self::In(place) => Ok(place),
            Self::Above(_) => Err(VfsError::NotAFile(path.to_string())),
        }
    }
}

impl Place {
    /// The same place, perhaps for reading only. What can't be written here can't be written through a mapping of it.
    pub(crate) fn narrowed(self, writable: bool) -> Result<Self, VfsError> {
        if writable {
            self.writable()?;
        }
        Ok(Self { writable, ..self })
    }
}

impl Tree {
    fn new(views: BTreeMap<String, Arc<dyn Mount>>) -> Self {
        let memory = Arc::new(Region::new(&["working", "episodic", "semantic"], MEMORY_ROOM));
        let state = Arc::new(Region::new(&["checkpoints", "diagnostics"], STATE_ROOM));
        let place = |mount: Arc<dyn Mount>, writable| Place { mount, path: String::new(), writable };
        let mut mounts: BTreeMap<_, _> =
            views.into_iter().map(|(name, view)| (name, place(view, false))).collect();
        mounts.insert("mem".to_owned(), place(memory.clone(), true));
        mounts.insert("state".to_owned(), place(state.clone(), false));
        Self { memory, state, mounts: Mutex::new(mounts), open: Mutex::default() }
    }
}

fn names_above(mounts: &BTreeMap<String, Place>, folder: Option<&String>) -> Vec<String> {
    let mut names: Vec<String> = match folder {
        None => mounts.keys().filter_map(|name| name.split('/').next()).map(str::to_owned).collect(),
        Some(folder) => {
            let below =
                |name: &String| Some(name.strip_prefix(folder.as_str())?.strip_prefix('/')?.to_owned());
            mounts.keys().filter_map(below).collect()
        }
    };
    names.dedup();
    names
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
