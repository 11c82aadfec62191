//! Putting a picture back: what came since goes, what went comes back, what changed is as it was.

use std::collections::BTreeMap;

use regent_kernel::{PathError, Placement, Workspace};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use serde::Serialize;

use super::files::parent;
use super::{Item, Snapshot, SnapshotError, Snapshots, What};

/// What putting a picture back did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The picture of what was there before: putting that back undoes this.
    pub before: String,
    /// Files, folders and links that were written or set.
    pub written: Vec<String>,
    /// Those that were taken away.
    pub removed: Vec<String>,
    /// Folders that had come since but hold something that is left alone, so they stay.
    pub left: Vec<String>,
}

pub(super) fn apply(
    store: &Snapshots,
    workspace: &Workspace,
    (now, wanted): (&Snapshot, &Snapshot),
    before: String,
) -> Result<Restored, SnapshotError> {
    let mut done = Restored { before, written: Vec::new(), removed: Vec::new(), left: Vec::new() };
    let (surplus, due) = between(now, wanted);
    for item in surplus {
        take_away(workspace, item, &mut done)?;
    }
    for (item, old) in &due {
        put(store, workspace, item, *old)?;
        done.written.push(item.path.clone());
    }
    // The deepest first, and after all content: a folder may not be writable in the end.
    for (item, _) in due.iter().rev().filter(|(item, _)| item.what == What::Folder) {
        set_mode(workspace, item)?;
    }
    Ok(done)
}

/// What putting a picture back would do.
pub(super) fn foreseen(now: &Snapshot, wanted: &Snapshot, before: String) -> Restored {
    let (surplus, due) = between(now, wanted);
    Restored {
        before,
        written: due.iter().map(|(item, _)| item.path.clone()).collect(),
        removed: surplus.iter().map(|item| item.path.clone()).collect(),
        left: Vec::new(),
    }
}

/// What has to go, the deepest first so that a folder is empty when its turn comes; and what has to be put, with what is there now.
fn between<'a>(
    now: &'a Snapshot,
    wanted: &'a Snapshot,
) -> (Vec<&'a Item>, Vec<(&'a Item, Option<&'a Item>)>) {
    let by_path = |snapshot: &'a Snapshot| -> BTreeMap<&'a str, &'a Item> {
        snapshot.items.iter().map(|item| (item.path.as_str(), item)).collect()
    };
    let (goal, have) = (by_path(wanted), by_path(now));
    let stays =
        |item: &Item| goal.get(item.path.as_str()).is_some_and(|other| same_kind(&other.what, &item.what));
    let surplus = now.items.iter().rev().filter(|item| !stays(item)).collect();
    let due = wanted.items.iter().map(|item| (item, have.get(item.path.as_str()).copied()));
    (surplus, due.filter(|(item, old)| *old != Some(*item)).collect())
}

fn same_kind(one: &What, other: &What) -> bool {
    matches!(
        (one, other),
        (What::Folder, What::Folder)
            | (What::File { .. }, What::File { .. })
            | (What::Link(_), What::Link(_))
    )
}

fn take_away(workspace: &Workspace, item: &Item, done: &mut Restored) -> Result<(), SnapshotError> {
    let (folder, name) = parent(workspace, &item.path)?;
    let flags = if item.what == What::Folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match rustix::fs::unlinkat(&folder, name, flags) {
        Ok(()) => done.removed.push(item.path.clone()),
        Err(Errno::NOENT) => {}
        Err(Errno::NOTEMPTY | Errno::EXIST) => done.left.push(item.path.clone()),
        Err(errno) => return Err(failed(item, PathError::from(errno))),
    }
    Ok(())
}

fn put(
    store: &Snapshots,
    workspace: &Workspace,
    item: &Item,
    old: Option<&Item>,
) -> Result<(), SnapshotError> {
    match &item.what {
        What::Folder => {
            let (folder, name) = parent(workspace, &item.path)?;
            match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(failed(item, PathError::from(errno))),
            }
        }
        What::File { sha256, .. } => {
            if old.map(|old| &old.what) != Some(&item.what) {
                let content = store.content(sha256)?;
                workspace
                    .place(&item.path, &content, Placement::Replace)
                    .map_err(|error| failed(item, error))?;
            }
            set_mode(workspace, item)
        }
        What::Link(to) => {
            let (folder, name) = parent(workspace, &item.path)?;
            match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(item, PathError::from(errno))),
            }
            rustix::fs::symlinkat(to, &folder, name).map_err(|errno| failed(item, PathError::from(errno)))
        }
    }
}

fn set_mode(workspace: &Workspace, item: &Item) -> Result<(), SnapshotError> {
    let (folder, name) = parent(workspace, &item.path)?;
    rustix::fs::chmodat(&folder, name, Mode::from_raw_mode(item.mode), AtFlags::empty())
        .map_err(|errno| failed(item, PathError::from(errno)))
}

fn failed(item: &Item, error: PathError) -> SnapshotError {
    SnapshotError::Path { path: item.path.clone(), error }
}
