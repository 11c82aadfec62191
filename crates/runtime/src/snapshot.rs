//! Snapshots of the workspace: taken at milestones, put back exactly. Kept outside the workspace, in a store of our own; the user's `.git` is
//! neither read nor written.
//!
//! A snapshot is a list of files, folders and links with their permission bits, folder by folder; content and the lists of folders lie
//! beside it under their SHA-256, once however often they occur. A file is read only if its size, times or inode have changed since the
//! last snapshot, so a snapshot costs one look at each name and the reading of what changed.
//!
//! Left alone, both ways, and named in the snapshot: files that hold secrets (no snapshot has them in clear), FIFOs, sockets and
//! devices, files with a further name outside, what can't be read, names that aren't text, and what is too large, too deep or too much: an
//! agent that makes such a thing must not make snapshots impossible. Names in [`SnapshotOptions::excluded`] are
//! left alone without a word. `.gitignore` means nothing here: an agent changes ignored files too.

mod cache;
mod files;
mod restore;
mod retention;
#[cfg(test)]
mod tests;
mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use regent_guard::GuardKind;
use regent_kernel::{Digest, PathError, Workspace};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use cache::{SnapshotCache, SnapshotStamp};
pub use restore::{Missed, Restored};
pub use retention::{Pruned, Retention};
pub use tool::{RESTORE, RestoreArgs, restore_spec, run_restore};

/// So many files may be read again by the next process before what is known of them is written down again.
const UNSAVED_MAX: usize = 256;
/// A snapshot this young may not be in the ledger yet.
pub const YOUNG_MS: i64 = 60 * 60 * 1_000;

/// A snapshot can't be taken or put back.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// There is no such snapshot.
    #[error("unknown snapshot `{}`", .0.escape_debug())]
    Unknown(String),
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

/// What a snapshot contains.
#[derive(Debug, Clone)]
pub struct SnapshotOptions {
    /// Names that are left alone wherever they are.
    pub excluded: BTreeSet<String>,
    /// Files and folders at most.
    pub items_max: usize,
    /// Content at most.
    pub bytes_max: u64,
    /// Content of one file at most: it is held in memory while it is read.
    pub file_bytes_max: u64,
    /// Whether a file holds secrets, by its path: then no snapshot has it.
    pub is_secret: fn(&str) -> bool,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        let excluded = [".git", ".regent", "target", "node_modules", ".venv", "__pycache__"];
        Self {
            excluded: excluded.map(str::to_owned).into(),
            items_max: 200_000,
            bytes_max: 4 << 30,
            file_bytes_max: 256 << 20,
            is_secret: holds_secrets,
        }
    }
}

/// One thing in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Where, from the workspace's root.
    pub path: String,
    /// The permission bits; 0 for links, which have none.
    pub mode: u32,
    /// What it is.
    pub what: SnapshotContent,
}

/// The kind of an item in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotContent {
    /// A folder.
    Folder,
    /// A file, by its content.
    File {
        /// The digest of the content.
        sha256: Digest,
        /// How much it is.
        bytes: u64,
        /// It is one file with the one at this path: a hard link.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        same: Option<String>,
    },
    /// A symbolic link, by where it leads.
    Link(String),
}

/// A snapshot. Items are sorted by path, folders before their contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The form that this is written in.
    pub schema: u32,
    /// What is in it.
    pub items: Vec<Item>,
    /// What was left alone.
    pub skipped: Vec<Skipped>,
}

/// Something that no snapshot has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "SkippedForm")]
pub struct Skipped {
    /// Where.
    pub path: String,
    /// Why.
    pub why: SnapshotSkipReason,
}

/// Why something is in no snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotSkipReason {
    /// It holds secrets.
    Secret,
    /// A FIFO, socket or device.
    Special,
    /// The file has another name outside the snapshot, so it may be a file of elsewhere.
    HardLink,
    /// It can't be read.
    Unreadable,
    /// Another file system is mounted there.
    Mount,
    /// Its name, or where it leads, isn't text.
    Name,
    /// A file that is too large, a folder that lies too deep, or the rest of a folder behind too many files.
    TooLarge,
}

impl SnapshotSkipReason {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Secret => "holds secrets",
            Self::Special => "is a FIFO, socket or device",
            Self::HardLink => "has another name outside",
            Self::Unreadable => "can't be read",
            Self::Mount => "is another file system",
            Self::Name => "has a name that isn't text",
            Self::TooLarge => "is too large, too deep or too much for a snapshot",
        }
    }
}

/// The first form had paths only.
#[derive(Deserialize)]
#[serde(untagged)]
enum SkippedForm {
    Path(String),
    Whole { path: String, why: SnapshotSkipReason },
}

impl From<SkippedForm> for Skipped {
    fn from(form: SkippedForm) -> Self {
        match form {
            SkippedForm::Path(path) => Self { path, why: SnapshotSkipReason::Unreadable },
            SkippedForm::Whole { path, why } => Self { path, why },
        }
    }
}

/// A snapshot, as the store has it: the items of each folder are a list of their own, so that a change costs the lists on its path.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    schema: u32,
    /// Folders and the digest of what is in each.
    folders: Vec<(String, Digest)>,
    skipped: Vec<Skipped>,
}

/// A store of snapshots.
#[derive(Debug)]
pub struct Snapshots {
    folder: PathBuf,
    options: SnapshotOptions,
    /// What is known of files, and as much of it as is written down.
    known: Mutex<Option<(SnapshotCache, SnapshotCache)>>,
}

impl Snapshots {
    /// Opens a store, and makes it if need be. Only its owner may look into it.
    pub fn open(folder: &Path, options: SnapshotOptions) -> Result<Self, SnapshotError> {
        for below in ["blobs", "trees"] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join(below))?;
        }
        Ok(Self { folder: folder.to_path_buf(), options, known: Mutex::default() })
    }

    /// Takes a snapshot. The same content gives the same id.
    pub fn take(&self, workspace: &Workspace) -> Result<String, SnapshotError> {
        // Nobody prunes what is about to be named.
        let _shared = self.lock(FlockOperation::LockShared)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (cache, saved) = known.take().unwrap_or_else(|| {
            let saved = SnapshotCache::load(&self.cache());
            (saved.clone(), saved)
        });
        let now_ns = self.now_ns()?;
        let mut keep = |bytes: &[u8]| self.keep(bytes).map(|_| ());
        let (snapshot, seen) = files::scan(workspace, &self.options, (&cache, now_ns), &mut keep)?;
        let id = self.store(&snapshot)?;
        let is_saved = seen.news_since(&saved) <= UNSAVED_MAX || self.save(&seen).is_err();
        *known = Some(if is_saved { (seen, saved) } else { (seen.clone(), seen) });
        Ok(id)
    }

    fn store(&self, snapshot: &Snapshot) -> Result<String, SnapshotError> {
        let mut folders: BTreeMap<&str, Vec<&Item>> = BTreeMap::new();
        for item in &snapshot.items {
            let above = item.path.rsplit_once('/').map_or(".", |(above, _)| above);
            folders.entry(above).or_default().push(item);
        }
        let json = |error: serde_json::Error| SnapshotError::Damaged(error.to_string());
        let mut listed = Vec::with_capacity(folders.len());
        for (folder, items) in folders {
            let list = serde_json::to_vec(&items).map_err(json)?;
            listed.push((folder.to_owned(), self.keep(&list)?));
        }
        let stored = Stored { schema: snapshot.schema, folders: listed, skipped: snapshot.skipped.clone() };
        let text = serde_json::to_vec(&stored).map_err(json)?;
        let id: String = Digest::compute(&text).to_string().chars().take(16).collect();
        let place = self.folder.join("trees").join(&id);
        if !place.exists() {
            // Content first: a snapshot that is there can be put back.
            rustix::fs::syncfs(File::open(&self.folder)?).map_err(std::io::Error::from)?;
            self.publish(&text, &place)?;
            File::open(self.folder.join("trees"))?.sync_all()?;
        }
        Ok(id)
    }

    /// Restores the workspace to a snapshot. The previous state is kept as a snapshot too, named in the result. What can't
    /// be put back is listed there, and the rest is put back all the same.
    pub fn restore(&self, workspace: &Workspace, id: &str) -> Result<Restored, SnapshotError> {
        let wanted = self.get(id)?;
        let before = self.take(workspace)?;
        let now = self.get(&before)?;
        Ok(restore::apply(self, workspace, (&now, &wanted), before))
    }

    /// The same if a snapshot of the current state was already taken, which undoes the restore even after a crash.
    pub fn restore_from(
        &self,
        workspace: &Workspace,
        id: &str,
        before: &str,
    ) -> Result<Restored, SnapshotError> {
        self.tree(before)?;
        let restored = self.restore(workspace, id)?;
        Ok(Restored { before: before.to_owned(), ..restored })
    }

    /// Previews [`restore`](Self::restore).
    pub fn foresee(&self, workspace: &Workspace, id: &str) -> Result<Restored, SnapshotError> {
        let wanted = self.get(id)?;
        let before = self.take(workspace)?;
        let now = self.get(&before)?;
        Ok(restore::foreseen(&now, &wanted, before))
    }

    /// A snapshot.
    pub fn get(&self, id: &str) -> Result<Snapshot, SnapshotError> {
        let text = self.tree(id)?;
        let json = |error: serde_json::Error| SnapshotError::Damaged(error.to_string());
        // The first form had all items in one list.
        if let Ok(whole) = serde_json::from_slice::<Snapshot>(&text) {
            return Ok(whole);
        }
        let Stored { schema, folders, skipped } = serde_json::from_slice(&text).map_err(json)?;
        let mut items = Vec::new();
        for (_, list) in folders {
            items.extend(serde_json::from_slice::<Vec<Item>>(&self.content(&list)?).map_err(json)?);
        }
        items.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Snapshot { schema, items, skipped })
    }

    /// The content of one file in a snapshot; none if it isn't a file there. Reads the list of its folder alone.
    pub fn file(&self, id: &str, path: &str) -> Result<Option<Vec<u8>>, SnapshotError> {
        let json = |error: serde_json::Error| SnapshotError::Damaged(error.to_string());
        let text = self.tree(id)?;
        let items = match serde_json::from_slice::<Snapshot>(&text) {
            Ok(whole) => whole.items,
            Err(_) => {
                let Stored { folders, .. } = serde_json::from_slice(&text).map_err(json)?;
                let above = path.rsplit_once('/').map_or(".", |(above, _)| above);
                let Some((_, list)) = folders.iter().find(|(folder, _)| folder == above) else {
                    return Ok(None);
                };
                serde_json::from_slice::<Vec<Item>>(&self.content(list)?).map_err(json)?
            }
        };
        let file = items.into_iter().find(|item| item.path == path).and_then(|item| match item.what {
            SnapshotContent::File { sha256, .. } => Some(sha256),
            SnapshotContent::Folder | SnapshotContent::Link(_) => None,
        });
        file.map(|sha256| self.content(&sha256)).transpose()
    }

    fn tree(&self, id: &str) -> Result<Vec<u8>, SnapshotError> {
        let is_id = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let unknown = || SnapshotError::Unknown(id.chars().take(64).collect());
        if !is_id {
            return Err(unknown());
        }
        let text = match fs::read(self.folder.join("trees").join(id)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(unknown()),
            Err(error) => return Err(error.into()),
        };
        if !Digest::compute(&text).to_string().starts_with(id) {
            return Err(SnapshotError::Damaged(format!("snapshot `{id}` has changed")));
        }
        Ok(text)
    }

    /// Removes all snapshots but these and those that are too young to be known, and all content that none of them has. Snapshots that
    /// are taken meanwhile wait.
    pub fn keep_only(&self, ids: &BTreeSet<String>, now_ms: i64) -> Result<Pruned, SnapshotError> {
        let _alone = self.lock(FlockOperation::LockExclusive)?;
        // What is known of files names content that goes now.
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
        remove_if_there(&self.cache())?;
        let (mut kept, mut pruned) = (BTreeSet::new(), Pruned::default());
        for entry in fs::read_dir(self.folder.join("trees"))? {
            let entry = entry?;
            let id = entry.file_name().to_string_lossy().into_owned();
            if ids.contains(&id) || is_young(&entry.metadata()?, now_ms) {
                self.name_content(&id, &mut kept)?;
            } else {
                pruned.bytes = pruned.bytes.saturating_add(entry.metadata()?.len());
                fs::remove_file(entry.path())?;
                pruned.snapshots += 1;
            }
        }
        for entry in fs::read_dir(self.folder.join("blobs"))? {
            let entry = entry?;
            if !kept.contains(entry.file_name().to_string_lossy().as_ref()) {
                pruned.bytes = pruned.bytes.saturating_add(entry.metadata()?.len());
                fs::remove_file(entry.path())?;
                pruned.pieces += 1;
            }
        }
        // Drafts of processes that died.
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("draft-") {
                remove_if_there(&entry.path())?;
            }
        }
        Ok(pruned)
    }

    /// Adds the names of all that a snapshot is made of.
    fn name_content(&self, id: &str, kept: &mut BTreeSet<String>) -> Result<(), SnapshotError> {
        if let Ok(stored) = serde_json::from_slice::<Stored>(&self.tree(id)?) {
            kept.extend(stored.folders.iter().map(|(_, list)| list.to_string()));
        }
        kept.extend(self.get(id)?.items.into_iter().filter_map(|item| match item.what {
            SnapshotContent::File { sha256, .. } => Some(sha256.to_string()),
            SnapshotContent::Folder | SnapshotContent::Link(_) => None,
        }));
        Ok(())
    }

    fn lock(&self, how: FlockOperation) -> Result<File, SnapshotError> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.folder.join("lock"))?;
        rustix::fs::flock(&file, how).map_err(std::io::Error::from)?;
        Ok(file)
    }

    fn cache(&self) -> PathBuf {
        self.folder.join("known")
    }

    fn save(&self, cache: &SnapshotCache) -> Result<(), SnapshotError> {
        let text = serde_json::to_vec(cache).map_err(|error| SnapshotError::Damaged(error.to_string()))?;
        self.publish(&text, &self.cache())
    }

    /// What time the store's file system has: that of a file which was made just now. A workspace on another machine's disk may have another
    /// time; a file there that changes twice within that difference, and keeps its size, can be taken for unchanged.
    fn now_ns(&self) -> Result<i128, SnapshotError> {
        let place = self.folder.join("clock");
        remove_if_there(&place)?;
        let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&place)?;
        Ok(SnapshotStamp::now_ns(&rustix::fs::fstat(&file).map_err(std::io::Error::from)?))
    }

    /// The content of a file in a snapshot, checked.
    fn content(&self, sha256: &Digest) -> Result<Vec<u8>, SnapshotError> {
        let mut bytes = Vec::new();
        let place = self.blob(sha256);
        File::open(&place)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|error| SnapshotError::Damaged(format!("content {sha256}: {error}")))?;
        if Digest::compute(&bytes) == *sha256 {
            Ok(bytes)
        } else {
            Err(SnapshotError::Damaged(format!("content {sha256} has changed")))
        }
    }

    fn keep(&self, bytes: &[u8]) -> Result<Digest, SnapshotError> {
        let sha256 = Digest::compute(bytes);
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

/// Files that usually hold secrets, of the project or of a user.
fn holds_secrets(path: &str) -> bool {
    let kinds = regent_guard::kinds_of(path);
    kinds.contains(GuardKind::Secret) || kinds.contains(GuardKind::PersonalSecret)
}

fn remove_if_there(place: &Path) -> Result<(), SnapshotError> {
    match fs::remove_file(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn is_young(file: &fs::Metadata, now_ms: i64) -> bool {
    file.mtime().saturating_mul(1_000) > now_ms.saturating_sub(YOUNG_MS)
}
