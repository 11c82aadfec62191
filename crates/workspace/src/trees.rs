//! Files and folders as wholes: surveyed, removed, copied, moved. A survey lists every entry; what follows acts on these entries and on no
//! others, so what was judged is what happens. A folder that gains an entry in between is left alone, or put back.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use regent_guard::completes_repository;
use regent_ledger::Digest;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::content::{DIGEST_BYTES_MAX, FileState};
use crate::files::{FileDraft, MODE_KEPT, Missing, existing, found, sound, split};
use crate::turn::Moves;
use crate::{
    FileKind, INSIDE, PathError, Placement, ROOT, StopFlag, TreeError, Workspace, escape_name, is_inside,
    openat2,
};

/// Folders within folders. Each holds a descriptor while it is surveyed.
const DEPTH_MAX: usize = 64;
/// A copy looks at its stop flag between two of these.
const COPIED_AT_ONCE_BYTES: u64 = 4 << 20;
/// What evidence looks at.
const STATE_LIMITS: TreeLimits = TreeLimits { entries_max: 20_000, bytes_max: u64::MAX };

const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// How large a tree may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLimits {
    /// Files, folders and links, the tree's own root included.
    pub entries_max: usize,
    /// Content of all files.
    pub bytes_max: u64,
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Its resolved spelling. A link is spelled by its own name.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// How large.
    pub bytes: u64,
    /// Where a link leads, as it says.
    target: Option<String>,
    mode: u32,
    /// Device and inode.
    identity: (u64, u64),
    state: FileState,
}

/// What is in a folder, for approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderState {
    /// Files, folders and links, the folder itself included.
    pub entries: usize,
    /// Of everything that changes when an entry does.
    pub digest: Digest,
}

impl FolderState {
    /// The state of a folder that was surveyed; `None` if it is none.
    pub fn of_survey(entries: &[TreeEntry]) -> Option<Self> {
        entries.first().filter(|root| root.kind == FileKind::Folder)?;
        // Each field that is text has its length before it, so that no name can look like two entries.
        let line = |entry: &TreeEntry| {
            let TreeEntry { path, kind, bytes, target, mode, identity, state } = entry;
            format!("{}:{path} {kind:?} {bytes} {target:?} {mode} {identity:?} {state:?}\n", path.len())
        };
        let lines: String = entries.iter().map(line).collect();
        Some(Self { entries: entries.len(), digest: Digest::compute(lines.as_bytes()) })
    }
}

/// A removal that ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveError {
    /// How many entries are gone.
    pub removed: usize,
    /// Where it ended, and why.
    pub cause: TreeError,
}

impl TreeEntry {
    /// Its path below the root of a tree, with the slash before it; empty for the root.
    fn below(&self, root: &str) -> &str {
        self.path.strip_prefix(root).unwrap_or_default()
    }

    fn fault(&self, why: impl Into<PathError>) -> TreeError {
        TreeError { name: escape_name(self.path.as_bytes()), why: why.into() }
    }
}

impl Workspace {
    /// Everything at and below a path, folders before what they hold. Refuses what no tool may touch: Regent's own files, other mounts,
    /// devices, files with a second name, names that aren't plain text.
    pub fn survey(&self, spelling: &str, limits: TreeLimits) -> Result<Vec<TreeEntry>, TreeError> {
        let fault = |why| TreeError { name: escape_name(spelling.as_bytes()), why };
        let (folder, name) = self.parent(spelling, Missing::Refuse).map_err(fault)?;
        let mut survey = Survey { workspace: self, entries: Vec::new(), bytes: 0, limits };
        survey.add(folder.as_fd(), name, spelling, 0)?;
        Ok(survey.entries)
    }

    /// What tells whether a path is as it was: a digest of a file's content, or of the names, kinds and sizes in a folder. `None`: nothing is
    /// there.
    pub fn state(&self, spelling: &str) -> Result<Option<Digest>, PathError> {
        let entries = match self.survey(spelling, STATE_LIMITS) {
            Ok(entries) => entries,
            Err(TreeError { why: PathError::NotFound, .. }) => return Ok(None),
            Err(error) => return Err(error.why),
        };
        let root = entries.first().ok_or(PathError::NotFound)?;
        if root.kind == FileKind::File {
            return self
                .read_whole(spelling, DIGEST_BYTES_MAX)
                .map(|content| Some(Digest::compute(&content)));
        }
        let line = |entry: &TreeEntry| {
            let (below, target) = (entry.below(&root.path), entry.target.as_deref().unwrap_or_default());
            // A folder's own size is the file system's affair.
            let bytes = if entry.kind == FileKind::Folder { 0 } else { entry.bytes };
            format!("{:?} {bytes} {below}\n{target}\n", entry.kind)
        };
        let mut lines: Vec<String> = entries.iter().map(line).collect();
        lines.sort_unstable();
        Ok(Some(Digest::compute(lines.concat().as_bytes())))
    }

    /// What is in a folder: names, kinds, sizes, and which files they are since when. Nothing is read, however large the files are. `None`: the
    /// path is no folder.
    pub fn folder_state(&self, spelling: &str) -> Result<Option<FolderState>, TreeError> {
        let entries = match self.survey(spelling, STATE_LIMITS) {
            Ok(entries) => entries,
            Err(TreeError { why: PathError::NotFound, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(FolderState::of_survey(&entries))
    }

    /// Makes a folder. Says whether it is new: one that is there already is fine.
    pub fn make_folder(&self, spelling: &str, parents: Missing) -> Result<bool, PathError> {
        let (above, name) = self.parent(spelling, parents)?;
        let _turn = self.turn(&above, spelling, Moves::Name)?;
        self.check_layout(spelling)?;
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => rustix::fs::fsync(&above).map(|()| true).map_err(PathError::from),
            Err(Errno::EXIST) => match openat2(above.as_fd(), name, LIST, Mode::empty(), INSIDE) {
                Ok(_) => Ok(false),
                Err(PathError::NotFolder) => Err(PathError::Exists),
                Err(error) => Err(error),
            },
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the entries of a survey, and nothing else: a folder that holds more by now stays. The flag ends it between two entries.
    pub fn remove_tree(&self, entries: &[TreeEntry]) -> Result<(), RemoveError> {
        let Some(root) = entries.first() else { return Ok(()) };
        let mut removed: usize = 0;
        let failed = entries.iter().rev().find_map(|entry| {
            let why = self.remove_entry(entry).err();
            removed = removed.saturating_add(usize::from(why.is_none()));
            why.map(|why| (entry, why))
        });
        let (last, why) = failed.map_or((root, None), |(entry, why)| (entry, Some(why)));
        let synced = self.sync_above(root, last);
        why.map_or(synced, Err).map_err(|why| RemoveError { removed, cause: last.fault(why) })
    }

    fn remove_entry(&self, entry: &TreeEntry) -> Result<(), PathError> {
        self.1.check()?;
        let (folder, name) = self.parent(&entry.path, Missing::Refuse)?;
        self.check_same(folder.as_fd(), name, entry)?;
        let flags = if entry.kind == FileKind::Folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&folder, name, flags) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(PathError::Changed),
            other => Ok(other?),
        }
    }

    /// Syncs the folders above the last entry of a removal, up to the one that holds the root. All other folders that lost an entry are gone
    /// themselves.
    fn sync_above(&self, root: &TreeEntry, last: &TreeEntry) -> Result<(), PathError> {
        let mut left = Some(last.path.as_str());
        while let Some(path) = left.filter(|path| path.len() >= root.path.len()) {
            rustix::fs::fsync(self.parent(path, Missing::Refuse)?.0)?;
            left = path.rsplit_once('/').map(|(above, _)| above);
        }
        Ok(())
    }

    /// Moves a surveyed tree to another name, in one step. Missing folders are made. Only a file replaces something, and only a file.
    pub fn rename_to(&self, entries: &[TreeEntry], to: &str, how: Placement) -> Result<(), TreeError> {
        let Some(root) = entries.first() else { return Ok(()) };
        self.check_place(entries, to, Transfer::Move)?;
        // A write that isn't finished was judged for where it is.
        if let Some(draft) = entries.iter().find(|entry| FileDraft::is_name_of_one(split(&entry.path).1)) {
            return Err(draft.fault(PathError::Unfinished));
        }
        let fault = |why: PathError| TreeError { name: escape_name(to.as_bytes()), why };
        let (from_folder, from_name) =
            self.parent(&root.path, Missing::Refuse).map_err(|why| root.fault(why))?;
        let (folder, name) = self.parent(to, Missing::Make).map_err(fault)?;
        let _turn = self.turn(&folder, to, Moves::Folder).map_err(fault)?;
        self.check_layout(to).map_err(fault)?;
        self.check_same(from_folder.as_fd(), from_name, root).map_err(|why| root.fault(why))?;
        // What is replaced takes the source's name until it is certain that the source stays.
        let replaces = replaces(root, (&folder, name, to), how).map_err(fault)?;
        let flags = if replaces { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        rustix::fs::renameat_with(&from_folder, from_name, &folder, name, flags)
            .map_err(|errno| fault(errno.into()))?;
        let settled = if !self.is_same_at(entries, to, |one, other| one.identity == other.identity) {
            // What was put into it meanwhile has not been judged under its new name.
            Err(root.fault(PathError::Changed))
        } else if replaces {
            rustix::fs::unlinkat(&from_folder, from_name, AtFlags::empty()).map_err(|errno| root.fault(errno))
        } else {
            Ok(())
        };
        if settled.is_err() {
            let stays = |errno: Errno| {
                let why = format!(
                    "it changed while it was moved, and it stays here because it can't be moved back ({errno})"
                );
                fault(PathError::Os(why))
            };
            rustix::fs::renameat_with(&folder, name, &from_folder, from_name, flags).map_err(stays)?;
            return settled;
        }
        rustix::fs::fsync(&folder)
            .and_then(|()| rustix::fs::fsync(&from_folder))
            .map_err(|errno| fault(errno.into()))
    }

    /// Copies a surveyed tree: content, permission bits, and links as links. The copy appears whole or not at all. Missing folders are made.
    /// Only a file replaces something, and only a file.
    pub fn copy_tree(
        &self,
        entries: &[TreeEntry],
        to: &str,
        how: Placement,
        limits: TreeLimits,
    ) -> Result<u64, TreeError> {
        let Some(root) = entries.first() else { return Ok(0) };
        self.check_place(entries, to, Transfer::Copy)?;
        let fault = |why: PathError| TreeError { name: escape_name(to.as_bytes()), why };
        let (folder, name) = self.parent(to, Missing::Make).map_err(fault)?;
        let mut copy = Copy { workspace: self, bytes_left: limits.bytes_max };
        match root.kind {
            FileKind::File => {
                let draft = copy.file(root, folder.as_fd()).map_err(|why| root.fault(why))?;
                let turn = self.turn(&folder, to, Moves::Name).map_err(fault)?;
                self.check_layout(to).map_err(fault)?;
                let replaced = replaces(root, (&folder, name, to), how).map_err(fault)?;
                draft.publish(name, how).map_err(fault)?;
                turn.still_here(name, !replaced).map_err(fault)?;
            }
            FileKind::Folder => {
                let draft = FileDraft::name_of_one().map_err(fault)?;
                let made = copy.tree(entries, folder.as_fd(), &draft).and_then(|()| {
                    let _turn = self.turn(&folder, to, Moves::Name).map_err(fault)?;
                    self.check_layout(to).map_err(fault)?;
                    let flags = RenameFlags::NOREPLACE;
                    rustix::fs::renameat_with(&folder, &*draft, &folder, name, flags)
                        .map_err(|errno| fault(errno.into()))
                });
                let above = to.strip_suffix(name).unwrap_or_default();
                let draft = format!("{above}{draft}");
                if let Err(error) = made {
                    self.discard(&draft);
                    return Err(error);
                }
                if !self.is_same_at(entries, to, |one, other| one.target == other.target) {
                    let hidden = draft.strip_prefix(above).unwrap_or(&draft);
                    rustix::fs::renameat(&folder, name, &folder, hidden)
                        .map_err(|errno| fault(errno.into()))?;
                    self.discard(&draft);
                    return Err(root.fault(PathError::Changed));
                }
            }
            FileKind::Link => {
                let _turn = self.turn(&folder, to, Moves::Name).map_err(fault)?;
                self.check_layout(to).map_err(fault)?;
                let target = root.target.as_deref().unwrap_or_default();
                rustix::fs::symlinkat(target, &folder, name).map_err(|errno| fault(errno.into()))?;
            }
            FileKind::Special => return Err(root.fault(PathError::Special)),
        }
        rustix::fs::fsync(&folder).map_err(|errno| fault(errno.into()))?;
        Ok(limits.bytes_max.saturating_sub(copy.bytes_left))
    }

    /// A tree can't go into itself, its links must stay inside from where they will be, and nothing in it becomes a repository there.
    fn check_place(&self, entries: &[TreeEntry], to: &str, moves: Transfer) -> Result<(), TreeError> {
        let Some(root) = entries.first() else { return Ok(()) };
        let is_below = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if is_below(to, &root.path) || is_below(&root.path, to) {
            return Err(root.fault(PathError::IntoItself));
        }
        let names: BTreeSet<&str> = entries.iter().map(|entry| entry.below(&root.path)).collect();
        let is_control = |path: &str| regent_guard::is_kind(path, regent_guard::GuardKind::Control);
        for entry in entries {
            let below = entry.below(&root.path);
            let place = format!("{to}{below}");
            if let Some(target) = &entry.target {
                self.check_link(&place, target).map_err(|why| entry.fault(why))?;
            }
            // What is a bare repository where it is may move as it is; out of a `.git` folder, or by a copy, it would be a new one.
            let (above, name) = split_below(below);
            let sibling = |wanted: &str| names.contains(format!("{above}/{wanted}").as_str());
            let is_new = moves == Transfer::Copy || is_control(&entry.path);
            if is_new && !below.is_empty() && !is_control(&place) && completes_repository(name, sibling) {
                return Err(entry.fault(PathError::Repository));
            }
        }
        Ok(())
    }

    /// A link may only lead to something in the workspace. Steps upwards are counted from the link's own folder, which no link leads to;
    /// further ones would depend on where other links lead.
    fn check_link(&self, place: &str, target: &str) -> Result<(), PathError> {
        let mut names: Vec<&str> = place.split('/').collect();
        names.pop();
        let mut rest = target.split('/').filter(|name| !matches!(*name, "" | ".")).peekable();
        if target.starts_with('/') {
            names = vec![""];
        } else {
            while rest.next_if_eq(&"..").is_some() {
                names.pop().ok_or(PathError::LinkLeaves)?;
            }
        }
        names.extend(rest);
        if !is_inside(place) || names.contains(&"..") {
            return Err(PathError::LinkLeaves);
        }
        let spelling = if names.is_empty() { ROOT.to_owned() } else { names.join("/") };
        if is_inside(&self.resolve(&spelling)?) { Ok(()) } else { Err(PathError::LinkLeaves) }
    }

    /// Fails unless what a name leads to is still what was surveyed.
    fn check_same(&self, folder: BorrowedFd<'_>, name: &str, entry: &TreeEntry) -> Result<(), PathError> {
        self.check_reach(&entry.path)?;
        let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_same = crate::identity_of(&stat) == entry.identity && found(&stat).kind == entry.kind;
        if is_same { Ok(()) } else { Err(PathError::Changed) }
    }

    /// Whether a place holds the names and kinds of a survey and nothing else, and each two entries are the same in this, too.
    fn is_same_at(&self, entries: &[TreeEntry], at: &str, same: fn(&TreeEntry, &TreeEntry) -> bool) -> bool {
        let limits = TreeLimits { entries_max: entries.len(), bytes_max: u64::MAX };
        let (Some(root), Ok(now)) = (entries.first(), self.survey(at, limits)) else { return false };
        let is_same = |(one, other): (&TreeEntry, &TreeEntry)| {
            one.below(&root.path) == other.below(at) && one.kind == other.kind && same(one, other)
        };
        entries.len() == now.len() && entries.iter().zip(&now).all(is_same)
    }

    /// Removes an unfinished copy. If that fails, the copy stays under its temporary name, as an unfinished write would.
    fn discard(&self, draft: &str) {
        if let Ok(entries) = self.survey(draft, STATE_LIMITS) {
            // Also for a call that was told to stop.
            self.stopped_by(&StopFlag::default()).remove_tree(&entries).unwrap_or(());
        }
    }
}

/// What becomes of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transfer {
    Copy,
    Move,
}

/// A path below a tree's root, with the slash before it, as the folder and the name.
fn split_below(below: &str) -> (&str, &str) {
    below.rsplit_once('/').unwrap_or(("", below))
}

/// Whether the last step of a copy or a move replaces a file.
fn replaces(
    root: &TreeEntry,
    (folder, name, to): (&OwnedFd, &str, &str),
    how: Placement,
) -> Result<bool, PathError> {
    let may = how != Placement::Create && root.kind == FileKind::File;
    Ok(may && existing(folder, name, is_inside(to))?.is_some())
}

struct Survey<'w> {
    workspace: &'w Workspace,
    entries: Vec<TreeEntry>,
    bytes: u64,
    limits: TreeLimits,
}

impl Survey<'_> {
    fn add(&mut self, folder: BorrowedFd<'_>, name: &str, path: &str, depth: usize) -> Result<(), TreeError> {
        let fault = |why: PathError| TreeError { name: escape_name(path.as_bytes()), why };
        self.workspace.check_reach(path).map_err(fault)?;
        let entries_max = self.limits.entries_max;
        if self.entries.len() >= entries_max || depth > DEPTH_MAX {
            return Err(fault(PathError::TooManyEntries { entries_max }));
        }
        let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| fault(errno.into()))?;
        let look = found(&stat);
        let mut entry = TreeEntry {
            path: path.to_owned(),
            kind: look.kind,
            bytes: look.bytes,
            target: None,
            mode: look.mode,
            identity: crate::identity_of(&stat),
            state: FileState::from(&stat),
        };
        match look.kind {
            FileKind::Link => {
                let target =
                    rustix::fs::readlinkat(folder, name, Vec::new()).map_err(|errno| fault(errno.into()))?;
                entry.target = Some(target.into_string().map_err(|_| fault(PathError::NotText))?);
                self.entries.push(entry);
            }
            FileKind::File | FileKind::Special => {
                let opened = openat2(folder, name, LOOK, Mode::empty(), INSIDE).map_err(fault)?;
                sound(&opened, is_inside(path)).map_err(fault)?;
                self.bytes = self.bytes.saturating_add(look.bytes);
                if self.bytes > self.limits.bytes_max {
                    return Err(fault(PathError::TooLarge { bytes_max: self.limits.bytes_max }));
                }
                self.entries.push(entry);
            }
            FileKind::Folder => {
                let below = openat2(folder, name, LIST, Mode::empty(), INSIDE).map_err(fault)?;
                self.entries.push(entry);
                for name in names_in(&below, entries_max).map_err(fault)? {
                    self.add(below.as_fd(), &name, &format!("{path}/{name}"), depth.saturating_add(1))?;
                }
            }
        }
        Ok(())
    }
}

/// The names in a folder, sorted; all of them text.
fn names_in(folder: &OwnedFd, entries_max: usize) -> Result<Vec<String>, PathError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_str().map_err(|_| PathError::NotText)?;
        if !matches!(name, "." | "..") {
            names.push(name.to_owned());
        }
        if names.len() > entries_max {
            return Err(PathError::TooManyEntries { entries_max });
        }
    }
    names.sort_unstable();
    Ok(names)
}

struct Copy<'w> {
    workspace: &'w Workspace,
    bytes_left: u64,
}

impl Copy<'_> {
    /// Builds the whole tree under a name of its own.
    fn tree(&mut self, entries: &[TreeEntry], folder: BorrowedFd<'_>, draft: &str) -> Result<(), TreeError> {
        let Some(root) = entries.first() else { return Ok(()) };
        let place_of = |entry: &TreeEntry| format!("{draft}{}", entry.below(&root.path));
        for entry in entries {
            self.entry(entry, folder, &place_of(entry)).map_err(|why| entry.fault(why))?;
        }
        // Opened one by one: a tree may have more folders than the process may have descriptors.
        for entry in entries.iter().rev().filter(|entry| entry.kind == FileKind::Folder) {
            let made = openat2(folder, place_of(entry).as_str(), LIST, Mode::empty(), INSIDE)
                .map_err(|why| entry.fault(why))?;
            let mode = Mode::from_raw_mode(entry.mode & MODE_KEPT);
            rustix::fs::fchmod(&made, mode)
                .and_then(|()| rustix::fs::fsync(&made))
                .map_err(|errno| entry.fault(errno))?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &TreeEntry, folder: BorrowedFd<'_>, place: &str) -> Result<(), PathError> {
        self.workspace.1.check()?;
        let (above, name) = place.rsplit_once('/').unwrap_or((ROOT, place));
        let at = openat2(folder, above, LIST, Mode::empty(), INSIDE)?;
        match entry.kind {
            // Its own bits come when it is full: it may be read-only.
            FileKind::Folder => rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o700))?,
            FileKind::File => self.file(entry, at.as_fd())?.publish(name, Placement::Create)?,
            FileKind::Link => {
                rustix::fs::symlinkat(entry.target.as_deref().unwrap_or_default(), &at, name)?;
            }
            FileKind::Special => return Err(PathError::Special),
        }
        Ok(())
    }

    /// A copy of a file's content and permission bits, not published yet.
    fn file<'f>(&mut self, entry: &TreeEntry, folder: BorrowedFd<'f>) -> Result<FileDraft<'f>, PathError> {
        let mut source = self.workspace.open_read(&entry.path)?;
        let stat = rustix::fs::fstat(&source)?;
        let draft = FileDraft::begin(folder, Some(&stat))?;
        let io = |error: std::io::Error| PathError::of_io(&error);
        let mut to = File::from(draft.file.try_clone().map_err(io)?);
        loop {
            let part = source.by_ref().take(COPIED_AT_ONCE_BYTES);
            let copied = std::io::copy(&mut { part }, &mut to).map_err(io)?;
            let bytes_max = self.bytes_left;
            self.bytes_left = bytes_max.checked_sub(copied).ok_or(PathError::TooLarge { bytes_max })?;
            self.workspace.1.check()?;
            if copied == 0 {
                break;
            }
        }
        // Compared after the last read, so that this also finds what was written meanwhile.
        if FileState::of_file(&source)? != entry.state {
            return Err(PathError::Changed);
        }
        rustix::fs::fchmod(&to, Mode::from_raw_mode(stat.st_mode & MODE_KEPT))?;
        rustix::fs::fsync(&to)?;
        Ok(draft)
    }
}
