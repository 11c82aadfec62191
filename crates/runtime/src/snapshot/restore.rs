//! Putting a snapshot back: what came since goes, what went comes back, what changed is as it was.
//!
//! Names are replaced and removed, whatever they are by now: a FIFO, a socket, a link, a second name of another file. Nothing is
//! followed. What can't be put back is listed, and the rest is put back all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;

use regent_kernel::{PathError, Workspace};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::files::parent;
use super::{Item, Skipped, Snapshot, SnapshotContent, SnapshotError, SnapshotSkipReason, Snapshots};

/// What a restore did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// The snapshot of what was there before: putting that back undoes this.
    pub before: String,
    /// Files, folders and links that were written or set.
    pub written: Vec<String>,
    /// Those that were removed.
    pub removed: Vec<String>,
    /// What had come since and stays: it, or something in it, is no part of snapshots.
    pub left: Vec<String>,
    /// What could not be put back, and why.
    pub failed: Vec<Missed>,
    /// What neither snapshot has: it is as it was before this.
    pub left_out: Vec<Skipped>,
    /// What is replaced or removed although its present state is in no snapshot: undoing this doesn't bring it back.
    pub not_kept: Vec<Skipped>,
}

/// Something that could not be put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// Which one.
    pub path: String,
    /// Why.
    pub why: String,
}

/// What has to be done.
struct Changes<'a> {
    /// What has to go, the deepest first so that a folder is empty when its turn comes.
    surplus: Vec<(&'a str, bool)>,
    /// What has to be put, with what is there now.
    due: Vec<(&'a Item, Option<&'a Item>)>,
    left: Vec<String>,
    left_out: Vec<Skipped>,
    not_kept: Vec<Skipped>,
}

pub(super) fn apply(
    store: &Snapshots,
    workspace: &Workspace,
    (now, wanted): (&Snapshot, &Snapshot),
    before: String,
) -> Restored {
    let changes = between(now, wanted);
    let mut done = Restored {
        before,
        written: Vec::new(),
        removed: Vec::new(),
        left: changes.left,
        failed: Vec::new(),
        left_out: changes.left_out,
        not_kept: changes.not_kept,
    };
    for (path, is_folder) in changes.surplus {
        take_away(workspace, path, is_folder, &mut done);
    }
    for (item, old) in &changes.due {
        match put(store, workspace, item, *old) {
            Ok(aside) => {
                done.written.push(item.path.clone());
                // A folder that was left in its place is elsewhere now.
                done.left.retain(|path| *path != item.path);
                done.left.extend(aside);
            }
            Err(error) => done.missed(&item.path, &error),
        }
    }
    // The deepest first, and after all content: a folder may not be writable in the end.
    for (item, _) in changes.due.iter().rev().filter(|(item, _)| item.what == SnapshotContent::Folder) {
        if let Err(error) = set_mode(workspace, item) {
            done.missed(&item.path, &error);
        }
    }
    done
}

/// What putting a snapshot back would do.
pub(super) fn foreseen(now: &Snapshot, wanted: &Snapshot, before: String) -> Restored {
    let changes = between(now, wanted);
    Restored {
        before,
        written: changes.due.iter().map(|(item, _)| item.path.clone()).collect(),
        removed: changes.surplus.iter().map(|(path, _)| (*path).to_owned()).collect(),
        left: changes.left,
        failed: Vec::new(),
        left_out: changes.left_out,
        not_kept: changes.not_kept,
    }
}

impl Restored {
    /// Nothing changes.
    pub fn is_nothing(&self) -> bool {
        self.written.is_empty() && self.removed.is_empty() && self.failed.is_empty()
    }

    fn missed(&mut self, path: &str, error: &SnapshotError) {
        if !self.failed.iter().any(|missed| missed.path == path) {
            self.failed.push(Missed { path: path.to_owned(), why: error.to_string() });
        }
    }
}

fn between<'a>(now: &'a Snapshot, wanted: &'a Snapshot) -> Changes<'a> {
    let by_path = |snapshot: &'a Snapshot| -> BTreeMap<&'a str, &'a Item> {
        snapshot.items.iter().map(|item| (item.path.as_str(), item)).collect()
    };
    let (goal, have) = (by_path(wanted), by_path(now));
    let unkept: BTreeSet<&str> = wanted.skipped.iter().map(|one| one.path.as_str()).collect();
    // What could not be kept then is no reason to remove what is there now; nor is a folder that was not looked through.
    let is_unkept = |path: &str| {
        let above = path.match_indices('/').map(|(at, _)| path.get(..at).unwrap_or_default());
        above.chain([".", path]).any(|one| unkept.contains(one))
    };
    let stays = |item: &Item| {
        let path = item.path.as_str();
        is_unkept(path) || goal.get(path).is_some_and(|other| same_kind(&other.what, &item.what))
    };
    let mut surplus: Vec<(&str, bool)> = now
        .items
        .iter()
        .filter(|item| !stays(item))
        .map(|item| (item.path.as_str(), item.what == SnapshotContent::Folder))
        .collect();
    let (mut left, mut left_out, mut not_kept) = (Vec::new(), Vec::new(), Vec::new());
    for one in &now.skipped {
        let path = one.path.as_str();
        let is_wanted = goal.contains_key(path) && one.why != SnapshotSkipReason::Secret;
        let came_since = !goal.contains_key(path) && !is_unkept(path);
        // Of a folder behind too many files, only a part was looked at.
        let is_partial = one.why == SnapshotSkipReason::TooLarge && (have.contains_key(path) || path == ".");
        if is_partial || (is_wanted && !have.contains_key(path)) {
            not_kept.push(one.clone());
        } else if came_since && matches!(one.why, SnapshotSkipReason::Special | SnapshotSkipReason::HardLink)
        {
            surplus.push((path, false));
            not_kept.push(one.clone());
        } else if came_since && !have.contains_key(path) {
            left.push(one.path.clone());
        }
    }
    let skipped = wanted.skipped.iter().chain(&now.skipped);
    left_out.extend(skipped.filter(|one| !goal.contains_key(one.path.as_str())).cloned());
    left_out.retain(|one| !not_kept.contains(one) && !left.contains(&one.path));
    left_out.sort();
    left_out.dedup_by(|one, other| one.path == other.path);
    surplus.sort_unstable();
    surplus.reverse();
    let due = due(wanted, &have);
    Changes { surplus, due, left, left_out, not_kept }
}

/// What differs; and the further names of a file that does, because writing it makes a new file.
fn due<'a>(wanted: &'a Snapshot, have: &BTreeMap<&str, &'a Item>) -> Vec<(&'a Item, Option<&'a Item>)> {
    let old = |item: &Item| have.get(item.path.as_str()).copied();
    let differs = |item: &Item| old(item) != Some(item);
    let renewed: BTreeSet<&str> =
        wanted.items.iter().filter(|item| differs(item)).map(|item| item.path.as_str()).collect();
    let is_due = |item: &&Item| match &item.what {
        SnapshotContent::File { same: Some(first), .. } => differs(item) || renewed.contains(first.as_str()),
        SnapshotContent::File { same: None, .. } | SnapshotContent::Folder | SnapshotContent::Link(_) => {
            differs(item)
        }
    };
    wanted.items.iter().filter(is_due).map(|item| (item, old(item))).collect()
}

fn same_kind(one: &SnapshotContent, other: &SnapshotContent) -> bool {
    matches!(
        (one, other),
        (SnapshotContent::Folder, SnapshotContent::Folder)
            | (SnapshotContent::File { .. }, SnapshotContent::File { .. })
            | (SnapshotContent::Link(_), SnapshotContent::Link(_))
    )
}

fn take_away(workspace: &Workspace, path: &str, is_folder: bool, done: &mut Restored) {
    let (folder, name) = match parent(workspace, path) {
        Ok(found) => found,
        Err(error) => return done.missed(path, &error),
    };
    let flags = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match rustix::fs::unlinkat(&folder, name, flags) {
        Ok(()) => done.removed.push(path.to_owned()),
        Err(Errno::NOENT) => {}
        Err(Errno::NOTEMPTY | Errno::EXIST) => done.left.push(path.to_owned()),
        Err(errno) => done.missed(path, &failed(path, errno)),
    }
}

fn put(
    store: &Snapshots,
    workspace: &Workspace,
    item: &Item,
    old: Option<&Item>,
) -> Result<Option<String>, SnapshotError> {
    let (folder, name) = parent(workspace, &item.path)?;
    match &item.what {
        SnapshotContent::Folder => match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(None),
            // It is made usable until all that belongs into it is there.
            Err(Errno::EXIST) => chmod(&folder, name, item, item.mode | 0o700).map(|()| None),
            Err(errno) => Err(failed(&item.path, errno)),
        },
        SnapshotContent::File { same: Some(first), .. } => {
            let (beside, other) = parent(workspace, first)?;
            let draft = draft_name()?;
            rustix::fs::linkat(&beside, other, &folder, &draft, AtFlags::empty())
                .map_err(|errno| failed(&item.path, errno))?;
            publish(folder.as_fd(), &draft, name, item)
        }
        SnapshotContent::File { sha256, same: None, .. } => {
            let is_same = |old: &&Item| matches!(&old.what, SnapshotContent::File { sha256: other, same: None, .. } if other == sha256);
            if old.filter(is_same).is_some() && set_mode(workspace, item).is_ok() {
                return Ok(None);
            }
            let content = store.content(sha256)?;
            write(&folder, name, item, &content)
        }
        SnapshotContent::Link(to) => {
            let draft = draft_name()?;
            rustix::fs::symlinkat(to, &folder, &draft).map_err(|errno| failed(&item.path, errno))?;
            publish(folder.as_fd(), &draft, name, item)
        }
    }
}

/// Writes a file beside its place and moves it there: the old name goes, whatever it was.
fn write(folder: &OwnedFd, name: &str, item: &Item, content: &[u8]) -> Result<Option<String>, SnapshotError> {
    let draft = draft_name()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let os = |errno| failed(&item.path, errno);
    let file = rustix::fs::openat(folder, &draft, flags, Mode::from_raw_mode(0o600)).map_err(os)?;
    let mut rest = content;
    let filled = loop {
        if rest.is_empty() {
            break rustix::fs::fchmod(&file, Mode::from_raw_mode(item.mode))
                .and_then(|()| rustix::fs::fsync(&file));
        }
        match rustix::io::write(&file, rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => break Err(errno),
        }
    };
    if let Err(errno) = filled {
        // Half a draft is of no use; the error that is reported says why.
        let _gone = rustix::fs::unlinkat(folder, &draft, AtFlags::empty()).is_ok();
        return Err(os(errno));
    }
    publish(folder.as_fd(), &draft, name, item)
}

/// Moves a draft into its place. A folder that is there and could not be removed is moved aside; the result is where it is then.
fn publish(
    folder: BorrowedFd<'_>,
    draft: &str,
    name: &str,
    item: &Item,
) -> Result<Option<String>, SnapshotError> {
    let mut moved = rustix::fs::renameat(folder, draft, folder, name).map(|()| None);
    if moved == Err(Errno::ISDIR) {
        let end = draft.trim_start_matches(".regent-").trim_end_matches(".tmp");
        let aside = format!("{name}.aside-{end}");
        moved = rustix::fs::renameat(folder, name, folder, &aside)
            .and_then(|()| rustix::fs::renameat(folder, draft, folder, name))
            .map(|()| {
                Some(
                    item.path.rsplit_once('/').map_or(aside.clone(), |(above, _)| format!("{above}/{aside}")),
                )
            });
    }
    // Two names of one file: then a rename does nothing, and the draft stays.
    let _gone = rustix::fs::unlinkat(folder, draft, AtFlags::empty()).is_ok();
    moved.map_err(|errno| failed(&item.path, errno))
}

fn set_mode(workspace: &Workspace, item: &Item) -> Result<(), SnapshotError> {
    let (folder, name) = parent(workspace, &item.path)?;
    chmod(&folder, name, item, item.mode)
}

/// Sets permission bits by descriptor: what a name leads to by now isn't followed.
pub(super) fn chmod(folder: &OwnedFd, name: &str, item: &Item, mode: u32) -> Result<(), SnapshotError> {
    let os = |errno| failed(&item.path, errno);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(os)?;
    let stat = rustix::fs::fstat(&held).map_err(os)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_it = match item.what {
        SnapshotContent::Folder => kind == FileType::Directory,
        SnapshotContent::File { .. } => kind == FileType::RegularFile,
        SnapshotContent::Link(_) => false,
    };
    if !is_it {
        return Err(os(Errno::LOOP));
    }
    // A file may be unreadable by now, so it is reached through the descriptor that only names it.
    let place = format!("/proc/self/fd/{}", held.as_raw_fd());
    std::fs::set_permissions(place, Permissions::from_mode(mode)).map_err(|error| SnapshotError::Path {
        path: item.path.clone(),
        error: PathError::Os(error.to_string()),
    })
}

fn draft_name() -> Result<String, SnapshotError> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(format!(".regent-{:016x}.tmp", u64::from_ne_bytes(random)))
}

fn failed(path: &str, errno: Errno) -> SnapshotError {
    SnapshotError::Path { path: path.to_owned(), error: PathError::from(errno) }
}
