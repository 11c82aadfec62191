//! Reading the workspace: everything under it, in order, reached beneath the held folder and through no link.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};

use regent_kernel::{Digest, PathError, Workspace, escape_name};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};

use super::cache::{SnapshotCache, SnapshotStamp};
use super::{Item, Skipped, Snapshot, SnapshotContent, SnapshotError, SnapshotOptions, SnapshotSkipReason};

/// What a snapshot's form is called.
pub(super) const SCHEMA: u32 = 2;
/// Folders inside folders.
const DEPTH_MAX: usize = 128;
/// Files larger than this are read last, the smallest first: a few of them can't use up the room for all the others.
const LARGE_BYTES: u64 = 16 << 20;
/// How anything is reached.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Where the content of files goes.
pub(super) type Keep<'a> = dyn FnMut(&[u8]) -> Result<(), SnapshotError> + 'a;

/// Looks at everything, hands on the content of files that changed, and says what there is. `now_ns` is what time the file system has.
pub(super) fn scan(
    workspace: &Workspace,
    options: &SnapshotOptions,
    (known, now_ns): (&SnapshotCache, i128),
    keep: &mut Keep<'_>,
) -> Result<(Snapshot, SnapshotCache), SnapshotError> {
    let mut scan = Scan {
        workspace,
        options,
        known,
        now_ns,
        seen: SnapshotCache::default(),
        found: Snapshot { schema: SCHEMA, items: Vec::new(), skipped: Vec::new() },
        linked: BTreeMap::new(),
        large: Vec::new(),
        looked_at: 0,
        bytes: 0,
    };
    let root = open_folder(workspace, ".").map_err(|error| in_folder(".", error))?;
    scan.folder(&root, ".", 0, keep)?;
    scan.linked(keep)?;
    scan.large(keep)?;
    let (mut found, seen) = (scan.found, scan.seen);
    found.items.sort_by(|one, other| one.path.cmp(&other.path));
    found.skipped.sort_by(|one, other| one.path.cmp(&other.path));
    found.skipped.dedup();
    Ok((found, seen))
}

struct Scan<'a> {
    workspace: &'a Workspace,
    options: &'a SnapshotOptions,
    known: &'a SnapshotCache,
    now_ns: i128,
    seen: SnapshotCache,
    found: Snapshot,
    /// Files with more than one name, by device and inode.
    linked: BTreeMap<(u64, u64), (usize, Vec<String>)>,
    /// Files that are read last: size, path, permission bits.
    large: Vec<(u64, String, u32)>,
    /// Names so far.
    looked_at: usize,
    bytes: u64,
}

impl Scan<'_> {
    fn folder(
        &mut self,
        folder: &OwnedFd,
        path: &str,
        depth: usize,
        keep: &mut Keep<'_>,
    ) -> Result<(), SnapshotError> {
        let names = match names_in(folder, self.options.items_max) {
            Ok((names, is_whole)) => {
                if !is_whole {
                    self.skip(path.to_owned(), SnapshotSkipReason::TooLarge);
                }
                names
            }
            Err(error) if depth == 0 => return Err(in_folder(path, error)),
            Err(_) => {
                self.skip(path.to_owned(), SnapshotSkipReason::Unreadable);
                return Ok(());
            }
        };
        for name in names {
            // The rest of this folder isn't looked at, and neither is the rest of those above it.
            if self.looked_at >= self.options.items_max {
                self.skip(path.to_owned(), SnapshotSkipReason::TooLarge);
                return Ok(());
            }
            let text = std::str::from_utf8(&name).ok().filter(|name| !name.chars().any(char::is_control));
            let Some(name) = text else {
                self.skip(below(path, &escape_name(&name)), SnapshotSkipReason::Name);
                continue;
            };
            if self.options.excluded.contains(name) {
                continue;
            }
            self.looked_at = self.looked_at.saturating_add(1);
            let place = below(path, name);
            match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => self.one(folder, (name, place), &stat, depth, keep)?,
                // Gone between the listing and the look.
                Err(rustix::io::Errno::NOENT) => {}
                Err(_) => self.skip(place, SnapshotSkipReason::Unreadable),
            }
        }
        Ok(())
    }

    fn one(
        &mut self,
        folder: &OwnedFd,
        (name, path): (&str, String),
        stat: &Stat,
        depth: usize,
        keep: &mut Keep<'_>,
    ) -> Result<(), SnapshotError> {
        let mode = stat.st_mode & 0o7777;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if depth >= DEPTH_MAX => self.skip(path, SnapshotSkipReason::TooLarge),
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                match rustix::fs::openat2(folder, name, flags, Mode::empty(), INSIDE) {
                    Ok(inner) => {
                        self.push(Item { path: path.clone(), mode, what: SnapshotContent::Folder });
                        return self.folder(&inner, &path, depth.saturating_add(1), keep);
                    }
                    Err(rustix::io::Errno::XDEV) => self.skip(path, SnapshotSkipReason::Mount),
                    Err(_) => {
                        self.push(Item { path: path.clone(), mode, what: SnapshotContent::Folder });
                        self.skip(path, SnapshotSkipReason::Unreadable);
                    }
                }
            }
            FileType::RegularFile if (self.options.is_secret)(&path) => {
                self.skip(path, SnapshotSkipReason::Secret)
            }
            FileType::RegularFile if stat.st_nlink > 1 => {
                let group = self.linked.entry((stat.st_dev, stat.st_ino)).or_default();
                group.0 = usize::try_from(stat.st_nlink).unwrap_or(usize::MAX);
                group.1.push(path);
            }
            FileType::RegularFile if size_of(stat) > LARGE_BYTES => {
                self.large.push((size_of(stat), path, mode));
            }
            FileType::RegularFile => match self.content(folder, name, &path, keep)? {
                Ok((sha256, bytes)) => {
                    self.push(Item { path, mode, what: SnapshotContent::File { sha256, bytes, same: None } });
                }
                Err(why) => self.skip(path, why),
            },
            FileType::Symlink => match rustix::fs::readlinkat(folder, name, Vec::new()) {
                Ok(to) => match to.into_string() {
                    Ok(to) => self.push(Item { path, mode: 0, what: SnapshotContent::Link(to) }),
                    Err(_) => self.skip(path, SnapshotSkipReason::Name),
                },
                Err(_) => self.skip(path, SnapshotSkipReason::Unreadable),
            },
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => self.skip(path, SnapshotSkipReason::Special),
        }
        Ok(())
    }

    /// Files with several names: kept, content and links, where all names are in the snapshot. One with a name elsewhere may be a
    /// file of elsewhere, and its content isn't copied.
    fn linked(&mut self, keep: &mut Keep<'_>) -> Result<(), SnapshotError> {
        for (names, mut paths) in std::mem::take(&mut self.linked).into_values() {
            paths.sort_unstable();
            let is_whole = names == paths.len();
            let Some(first) = paths.first().filter(|_| is_whole).cloned() else {
                paths.into_iter().for_each(|path| self.skip(path, SnapshotSkipReason::HardLink));
                continue;
            };
            let read = match parent(self.workspace, &first) {
                Ok((folder, name)) => {
                    let mode = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
                        .map_or(0o644, |stat| stat.st_mode & 0o7777);
                    self.content(&folder, name, &first, keep)?.map(|read| (mode, read))
                }
                // Its folder went meanwhile.
                Err(_) => Err(SnapshotSkipReason::Unreadable),
            };
            let (mode, (sha256, bytes)) = match read {
                Ok(read) => read,
                Err(why) => {
                    paths.into_iter().for_each(|path| self.skip(path, why));
                    continue;
                }
            };
            for path in paths {
                let same = (path != first).then(|| first.clone());
                self.push(Item { path, mode, what: SnapshotContent::File { sha256, bytes, same } });
            }
        }
        Ok(())
    }

    /// Large files, the smallest first.
    fn large(&mut self, keep: &mut Keep<'_>) -> Result<(), SnapshotError> {
        let mut large = std::mem::take(&mut self.large);
        large.sort_unstable();
        for (_, path, mode) in large {
            let read = match parent(self.workspace, &path) {
                Ok((folder, name)) => self.content(&folder, name, &path, keep)?,
                Err(_) => Err(SnapshotSkipReason::Unreadable),
            };
            match read {
                Ok((sha256, bytes)) => {
                    self.push(Item { path, mode, what: SnapshotContent::File { sha256, bytes, same: None } });
                }
                Err(why) => self.skip(path, why),
            }
        }
        Ok(())
    }

    /// The digest of a file's content, which is read only if it may have changed; or why no snapshot has it.
    fn content(
        &mut self,
        folder: &OwnedFd,
        name: &str,
        path: &str,
        keep: &mut Keep<'_>,
    ) -> Result<Result<(Digest, u64), SnapshotSkipReason>, SnapshotError> {
        let room = self.options.bytes_max.saturating_sub(self.bytes).min(self.options.file_bytes_max);
        let unreadable = Ok(Err(SnapshotSkipReason::Unreadable));
        let Ok(file) = rustix::fs::openat(folder, name, READ, Mode::empty()) else { return unreadable };
        let Ok(stat) = rustix::fs::fstat(&file) else { return unreadable };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return unreadable;
        }
        let (stamp, size) = (SnapshotStamp::from_stat(&stat), size_of(&stat));
        // Before it is read: a sparse file is as long as it says, and takes the memory of this process.
        if size > room {
            return Ok(Err(SnapshotSkipReason::TooLarge));
        }
        let (sha256, bytes) = match self.known.get(path, &stamp) {
            Some(sha256) => (sha256, size),
            None => {
                let mut content = Vec::new();
                if File::from(file).take(room.saturating_add(1)).read_to_end(&mut content).is_err() {
                    return unreadable;
                }
                // It grew since the look.
                if content.len() as u64 > room {
                    return Ok(Err(SnapshotSkipReason::TooLarge));
                }
                keep(&content)?;
                (Digest::compute(&content), content.len() as u64)
            }
        };
        self.bytes = self.bytes.saturating_add(bytes);
        self.seen.put(path, stamp, sha256, self.now_ns);
        Ok(Ok((sha256, bytes)))
    }

    fn push(&mut self, item: Item) {
        self.found.items.push(item);
    }

    fn skip(&mut self, path: String, why: SnapshotSkipReason) {
        self.found.skipped.push(Skipped { path, why });
    }
}

/// The names in a folder, up to so many, and whether that is all of them.
fn names_in(folder: &OwnedFd, names_max: usize) -> Result<(Vec<Vec<u8>>, bool), PathError> {
    let mut names = Vec::new();
    let mut is_whole = true;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        is_whole = names.len() < names_max;
        if !is_whole {
            break;
        }
        names.push(name.to_vec());
    }
    names.sort_unstable();
    Ok((names, is_whole))
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn below(folder: &str, name: &str) -> String {
    if folder == "." { name.to_owned() } else { format!("{folder}/{name}") }
}

fn in_folder(path: &str, error: PathError) -> SnapshotError {
    SnapshotError::Path { path: path.to_owned(), error }
}

fn open_folder(workspace: &Workspace, path: &str) -> Result<OwnedFd, PathError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(workspace.as_fd(), path, flags, Mode::empty(), INSIDE)?)
}

/// The folder that holds a name, opened beneath the workspace through no link, and the name.
pub(super) fn parent<'a>(workspace: &Workspace, path: &'a str) -> Result<(OwnedFd, &'a str), SnapshotError> {
    let (above, name) = path.rsplit_once('/').unwrap_or((".", path));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat2(workspace.as_fd(), above, flags, Mode::empty(), INSIDE)
        .map_err(|errno| in_folder(path, PathError::from(errno)))?;
    Ok((folder, name))
}
