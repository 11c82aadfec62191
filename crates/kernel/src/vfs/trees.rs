//! The trees themselves: what is mounted where, and which files are open.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use regent_identity::AgentId;
use regent_policy::Label;

use super::region::{self, Region, Room};
use super::{Content, Fd, Folder, Mount, OpenMode, Recalled, Stat, VfsError, VfsPath};

/// Files that one agent has open at the same time.
pub(crate) const OPEN_FILES_MAX: usize = 256;
/// Mappings in one tree.
pub(crate) const MAPPINGS_MAX: usize = 32;
/// Checkpoints, and diagnostics, that are kept; the oldest go first.
const STATE_FILES_KEPT_MAX: usize = 32;
const MEMORY_ROOM: Room = Room { file_bytes_max: 1 << 20, files_max: 1024, bytes_max: 16 << 20 };
const STATE_ROOM: Room =
    Room { file_bytes_max: 32 << 20, files_max: 2 * STATE_FILES_KEPT_MAX, bytes_max: 64 << 20 };

/// All trees.
#[derive(Debug, Default)]
pub(crate) struct Vfs(RwLock<HashMap<AgentId, Arc<Tree>>>);

/// One agent's tree, and the files it has open, here or in others.
#[derive(Debug)]
struct Tree {
    memory: Arc<Region>,
    state: Arc<Region>,
    /// By the name below the root: `mem`, `mnt/<name>`.
    mounts: Mutex<BTreeMap<String, MountedPath>>,
    open: Mutex<OpenFiles>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    given: u32,
    files: BTreeMap<u32, (VfsPath, OpenMode)>,
}

/// A place in a mount.
#[derive(Debug, Clone)]
pub(crate) struct MountedPath {
    mount: Arc<dyn Mount>,
    path: String,
    writable: bool,
}

impl Tree {
    fn mounts(&self) -> MutexGuard<'_, BTreeMap<String, MountedPath>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, OpenFiles> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MountedPath {
    /// What it is.
    pub(crate) fn stat(&self) -> Result<Stat, VfsError> {
        self.mount.stat(&self.path)
    }

    /// What is in it, if it is a folder.
    pub(crate) fn list(&self) -> Result<Folder, VfsError> {
        self.mount.list(&self.path)
    }

    /// A part of what it holds.
    pub(crate) fn read(&self, offset: u64, bytes_max: usize) -> Result<Content, VfsError> {
        self.mount.read(&self.path, offset, bytes_max)
    }

    /// Writes a part of it; `None` appends. Gives back how long it is now.
    pub(crate) fn write(&self, offset: Option<u64>, content: &[u8], label: Label) -> Result<u64, VfsError> {
        self.writable()?.mount.write(&self.path, offset, content, label)
    }

    /// Replaces it as a whole. Gives back how long it is now.
    pub(crate) fn put(&self, content: &[u8], label: Label) -> Result<u64, VfsError> {
        self.writable()?.mount.put(&self.path, content, label)
    }

    /// Finds files in it by text in their name or content.
    pub(crate) fn search(&self, text: &str, entries_max: usize) -> Result<Vec<Recalled>, VfsError> {
        self.mount.search(&self.path, text, entries_max)
    }

    fn writable(&self) -> Result<&Self, VfsError> {
        if self.writable { Ok(self) } else { Err(VfsError::ReadOnly(self.path.clone())) }
    }
}

impl Vfs {
    /// Gives an agent its tree, with what else is to be seen in it, read-only, by name. One that has a tree keeps it.
    pub(crate) fn grow(&self, id: AgentId, views: BTreeMap<String, Arc<dyn Mount>>) {
        let mut trees = self.0.write().unwrap_or_else(PoisonError::into_inner);
        trees.entry(id).or_insert_with(|| Arc::new(Tree::new(views)));
    }

    /// Takes an agent's tree away. Regions that others have mapped stay with them.
    pub(crate) fn fell(&self, id: &AgentId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Whether an agent has a tree.
    pub(crate) fn has(&self, id: &AgentId) -> bool {
        self.tree(id).is_some()
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

    /// What is at a path: a place in a mount, or the names of a folder above the mounts.
    pub(crate) fn find(&self, path: &VfsPath) -> Result<Node, VfsError> {
        let tree = self.tree(path.tree()).ok_or_else(|| VfsError::NotFound(path.to_string()))?;
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
    pub(crate) fn map(&self, source: MountedPath, target: &VfsPath) -> Result<(), VfsError> {
        let no_mount_point = || VfsError::NoMountPoint(target.to_string());
        let [first, _name] = target.parts() else { return Err(no_mount_point()) };
        if first != MAPPED {
            return Err(no_mount_point());
        }
        source.stat()?;
        let tree = self.tree(target.tree()).ok_or_else(no_mount_point)?;
        let mut mounts = tree.mounts();
        let prefix = format!("{MAPPED}/");
        if mounts.keys().filter(|name| name.starts_with(&prefix)).count() >= MAPPINGS_MAX {
            return Err(VfsError::Full(format!("{MAPPINGS_MAX} mappings in one tree")));
        }
        match mounts.entry(target.parts().join("/")) {
            Entry::Occupied(_) => Err(no_mount_point()),
            Entry::Vacant(free) => {
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

    /// Gives a number to a file that an agent opens, in its own tree or in another.
    pub(crate) fn open(&self, id: &AgentId, path: VfsPath, mode: OpenMode) -> Result<Fd, VfsError> {
        let tree = self.tree(id).ok_or_else(|| VfsError::NotFound(path.to_string()))?;
        let mut open = tree.open();
        if open.files.len() >= OPEN_FILES_MAX {
            return Err(VfsError::Full(format!("{OPEN_FILES_MAX} open files")));
        }
        let fd = open.given;
        open.given = fd.checked_add(1).ok_or_else(|| VfsError::Full("descriptor numbers".to_owned()))?;
        open.files.insert(fd, (path, mode));
        Ok(Fd(fd))
    }

    /// What a number of an agent stands for.
    pub(crate) fn opened(&self, id: &AgentId, fd: Fd) -> Result<(VfsPath, OpenMode), VfsError> {
        let tree = self.tree(id);
        let file = tree.and_then(|tree| tree.open().files.get(&fd.0).cloned());
        file.ok_or(VfsError::NotOpen(fd.0))
    }

    /// Closes a file of an agent.
    pub(crate) fn close(&self, id: &AgentId, fd: Fd) -> Result<(), VfsError> {
        let tree = self.tree(id);
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
    In(MountedPath),
}

impl Node {
    /// The place in a mount; the folders above the mounts are no files and can't be mapped.
    pub(crate) fn place(self, path: &VfsPath) -> Result<MountedPath, VfsError> {
        match self {
            Self::In(place) => Ok(place),
            Self::Above(_) => Err(VfsError::NotAFile(path.to_string())),
        }
    }
}

impl MountedPath {
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
        let place = |mount: Arc<dyn Mount>, writable| MountedPath { mount, path: String::new(), writable };
        let mut mounts: BTreeMap<_, _> =
            views.into_iter().map(|(name, view)| (name, place(view, false))).collect();
        mounts.insert("mem".to_owned(), place(memory.clone(), true));
        mounts.insert("state".to_owned(), place(state.clone(), false));
        Self { memory, state, mounts: Mutex::new(mounts), open: Mutex::default() }
    }
}

fn names_above(mounts: &BTreeMap<String, MountedPath>, folder: Option<&String>) -> Vec<String> {
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

#[cfg(test)]
mod tests;
