//! What executors do with files: every open takes a resolved spelling and follows no link, every write is whole or not at all.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use regent_ledger::Digest;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use serde::Serialize;

use super::{INSIDE, NO_LINKS, OUTSIDE, PathError, ROOT, Workspace, is_inside, openat2};
use crate::content::{FileState, size_of};
use crate::turn::Moves;

/// The permission bits that a replaced file keeps; set-id bits are not carried to content that someone else wrote.
pub(crate) const MODE_KEPT: u32 = 0o777;

/// The kind of a path's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link; only listings show them, everything else goes by where they lead.
    Link,
    /// A FIFO, socket or device.
    Special,
}

/// Metadata of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FileMetadata {
    /// What it is.
    pub kind: FileKind,
    /// How large.
    pub bytes: u64,
    /// The permission bits.
    pub mode: u32,
    /// When its content last changed, milliseconds since 1970.
    pub modified_ms: i64,
    /// How many names it has.
    pub links: u32,
}

/// One thing in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// Its name as the file system has it; [`escape_name`] makes it printable.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// How large.
    pub bytes: u64,
}

/// The entries of a folder, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The things in it.
    pub items: Vec<FolderEntry>,
    /// There is more than was asked for.
    pub more: bool,
}

/// How a write treats an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// There must be nothing.
    Create,
    /// It is replaced.
    Replace,
    /// It is replaced if it still has this content; otherwise the write fails with [`PathError::Changed`].
    Swap(Digest),
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Written {
    /// The file was not there before.
    pub created: bool,
    /// How much was written.
    pub bytes: u64,
}

impl Workspace {
    /// Opens a file for reading.
    pub fn open_read(&self, spelling: &str) -> Result<File, PathError> {
        // Looked at before it is opened: opening a device can already do something.
        let look = self.reach(spelling, OFlags::PATH, Mode::empty())?;
        sound(&look, is_inside(spelling))?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.reach(spelling, flags, Mode::empty())?;
        sound(&file, is_inside(spelling))?;
        Ok(File::from(file))
    }

    /// The content of a file that isn't larger than that.
    pub fn read_whole(&self, spelling: &str, bytes_max: u64) -> Result<Vec<u8>, PathError> {
        self.read_in_state(spelling, bytes_max).map(|(content, _)| content)
    }

    /// The same with the state that the file was in.
    pub fn read_in_state(&self, spelling: &str, bytes_max: u64) -> Result<(Vec<u8>, FileState), PathError> {
        let (mut content, file) = (Vec::new(), self.open_read(spelling)?);
        let state = FileState::of_file(&file)?;
        let mut bounded = file.take(bytes_max.saturating_add(1));
        bounded.read_to_end(&mut content).map_err(|error| PathError::of_io(&error))?;
        if content.len() as u64 > bytes_max {
            return Err(PathError::TooLarge { bytes_max });
        }
        Ok((content, state))
    }

    /// Returns the metadata of a path.
    pub fn stat(&self, spelling: &str) -> Result<FileMetadata, PathError> {
        Ok(found(&rustix::fs::fstat(self.reach(spelling, OFlags::PATH, Mode::empty())?)?))
    }

    /// Lists a folder, sorted by name. Regent's own files are left out.
    pub fn list(&self, spelling: &str, items_max: usize) -> Result<Listing, PathError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let folder = self.reach(spelling, flags, Mode::empty())?;
        let mut listing = Listing { items: Vec::new(), more: false };
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || is_regents(name.to_bytes()) {
                continue;
            }
            if listing.items.len() >= items_max {
                listing.more = true;
                break;
            }
            // Gone between the listing and the look: then it isn't there any more.
            let Ok(stat) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let FileMetadata { kind, bytes, .. } = found(&stat);
            listing.items.push(FolderEntry { name: name.to_bytes().to_vec(), kind, bytes });
        }
        listing.items.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(listing)
    }

    /// Writes a file atomically. Missing folders are created. A file that is replaced
    /// keeps its permission bits, and its owner where we may set one. Writes of all Regent processes to one folder take turns from
    /// the last look at the old file to the rename, so none of them replaces content that it hasn't compared.
    pub fn place(&self, spelling: &str, content: &[u8], how: Placement) -> Result<Written, PathError> {
        let missing = if matches!(how, Placement::Swap(_)) { Missing::Refuse } else { Missing::Make };
        let (folder, name) = self.parent(spelling, missing)?;
        let old = existing(&folder, name, is_inside(spelling))?;
        if old.is_some() && how == Placement::Create {
            return Err(PathError::Exists);
        }
        let draft = FileDraft::begin(folder.as_fd(), old.as_ref())?;
        draft.fill(content, old.as_ref())?;
        let turn = self.turn(&folder, spelling, Moves::Name)?;
        if let Placement::Swap(expected) = how {
            still(&folder, name, &expected)?;
        }
        self.check_layout(spelling)?;
        draft.publish(name, how)?;
        turn.still_here(name, old.is_none())?;
        rustix::fs::fsync(&folder)?;
        Ok(Written { created: old.is_none(), bytes: content.len() as u64 })
    }

    /// Adds to the end of a file, which is made if absent and never gets larger than that. Unlike [`place`](Self::place) this is not all
    /// or nothing: a full disk can leave a part. A file that is there has to hold what was seen, if that is given.
    pub fn append(
        &self,
        spelling: &str,
        content: &[u8],
        seen: Option<&Digest>,
        bytes_max: u64,
    ) -> Result<Written, PathError> {
        let (folder, name) = self.parent(spelling, Missing::Make)?;
        // A replacement between the open and the write would take the old file, and what is added to it, away.
        let _turn = self.turn(&folder, spelling, Moves::Name)?;
        let old = existing(&folder, name, is_inside(spelling))?;
        let created = old.is_none();
        let bytes = old.map_or(0, |old| size_of(&old)).saturating_add(content.len() as u64);
        if bytes > bytes_max {
            return Err(PathError::TooLarge { bytes_max });
        }
        if let Some(seen) = seen.filter(|_| !created) {
            still(&folder, name, seen)?;
        }
        self.check_layout(spelling)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat2(folder.as_fd(), name, flags, Mode::from_raw_mode(0o666), INSIDE)?;
        sound(&file, is_inside(spelling))?;
        let mut file = File::from(file);
        file.write_all(content).and_then(|()| file.sync_data()).map_err(|error| PathError::of_io(&error))?;
        Ok(Written { created, bytes: content.len() as u64 })
    }

    /// Takes a file away. A link is never at the end of a resolved spelling; if one is there now it is left alone.
    pub fn remove(&self, spelling: &str) -> Result<(), PathError> {
        let (folder, name) = self.parent(spelling, Missing::Refuse)?;
        let _turn = self.turn(&folder, spelling, Moves::Name)?;
        existing(&folder, name, is_inside(spelling))?.ok_or(PathError::NotFound)?;
        rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
        Ok(rustix::fs::fsync(&folder)?)
    }

    /// The folder that holds a name, opened, and the name.
    pub(crate) fn parent<'a>(
        &self,
        spelling: &'a str,
        missing: Missing,
    ) -> Result<(OwnedFd, &'a str), PathError> {
        self.check_reach(spelling)?;
        if matches!(spelling, ROOT | "/") {
            return Err(PathError::IsFolder);
        }
        let (above, name) = split(spelling);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match (self.reach(above, flags, Mode::empty()), missing) {
            (Err(PathError::NotFound), Missing::Make) => Ok((self.make_folders(above)?, name)),
            (Err(PathError::NotFound), Missing::Refuse) => Err(PathError::NotFound),
            (Ok(folder), _) => Ok((folder, name)),
            (Err(error), _) => Err(error),
        }
    }

    /// Makes what is missing of a folder's path, name by name, each opened without following a link.
    fn make_folders(&self, spelling: &str) -> Result<OwnedFd, PathError> {
        let (base, below, resolve) = match spelling.strip_prefix('/') {
            Some(below) => ("/", below, OUTSIDE),
            None => (ROOT, spelling, INSIDE),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = self.reach(base, flags, Mode::empty())?;
        let mut above = spelling.strip_suffix(below).unwrap_or_default().to_owned();
        for name in below.split('/') {
            above.push_str(name);
            let turn = self.turn(&folder, &above, Moves::Name)?;
            self.check_layout(&above)?;
            match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                Ok(()) => rustix::fs::fsync(&folder)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            drop(turn);
            above.push('/');
            folder = openat2(folder.as_fd(), name, flags, Mode::empty(), resolve)?;
        }
        Ok(folder)
    }
}

/// The folder of a resolved spelling, and the name in it.
pub(crate) fn split(spelling: &str) -> (&str, &str) {
    match spelling.rsplit_once('/') {
        None => (ROOT, spelling),
        Some(("", name)) => ("/", name),
        Some((above, name)) => (above, name),
    }
}

/// What to do about folders that a path names and that aren't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Make them.
    Make,
    /// Fail.
    Refuse,
}

/// Escapes a file name for output, so that it can't forge lines or colours.
pub fn escape_name(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || regent_guard::invisible::is_invisible(c) {
                text.extend(c.escape_unicode());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Whether a name in a listing is Regent's folder, in any spelling.
pub(crate) fn is_regents(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    regent_guard::is_kind(&name, regent_guard::GuardKind::Regent)
}

/// A file under a name of its own beside its place, taken away again unless it is published.
pub(crate) struct FileDraft<'f> {
    folder: BorrowedFd<'f>,
    name: String,
    pub(crate) file: OwnedFd,
}

/// What names of unfinished files begin and end with.
const DRAFT: (&str, &str) = (".regent-", ".tmp");

impl<'f> FileDraft<'f> {
    /// Whether a name is one of something unfinished.
    pub(crate) fn is_name_of_one(name: &str) -> bool {
        name.starts_with(DRAFT.0) && name.ends_with(DRAFT.1)
    }

    /// A name for something unfinished.
    pub(crate) fn name_of_one() -> Result<String, PathError> {
        let mut bytes = [0_u8; 8];
        getrandom::fill(&mut bytes).map_err(|error| PathError::Os(error.to_string()))?;
        Ok(format!("{}{:016x}{}", DRAFT.0, u64::from_ne_bytes(bytes), DRAFT.1))
    }

    pub(crate) fn begin(folder: BorrowedFd<'f>, old: Option<&Stat>) -> Result<Self, PathError> {
        let name = Self::name_of_one()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // No other user may read the new content of a private file while it is being written; a new file gets what the umask gives.
        let mode = Mode::from_raw_mode(if old.is_some() { 0o600 } else { 0o666 });
        let file = openat2(folder, &name, flags, mode, NO_LINKS)?;
        Ok(Self { folder, name, file })
    }

    fn fill(&self, content: &[u8], old: Option<&Stat>) -> Result<(), PathError> {
        let mut rest = content;
        while !rest.is_empty() {
            match rustix::io::write(&self.file, rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if let Some(old) = old {
            // Only root may give files away; for anyone else the new file is their own, as with any editor.
            let owner = (Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)));
            match rustix::fs::fchown(&self.file, owner.0, owner.1) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(errno) => return Err(errno.into()),
            }
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(old.st_mode & MODE_KEPT))?;
        }
        Ok(rustix::fs::fsync(&self.file)?)
    }

    pub(crate) fn publish(self, name: &str, how: Placement) -> Result<(), PathError> {
        let flags = match how {
            Placement::Create => RenameFlags::NOREPLACE,
            Placement::Replace | Placement::Swap(_) => RenameFlags::empty(),
        };
        match rustix::fs::renameat_with(self.folder, &self.name, self.folder, name, flags) {
            // A file system without that flag: a link refuses to replace, too, and the draft's own name goes when it is dropped.
            Err(Errno::INVAL | Errno::NOSYS) if how == Placement::Create => {
                Ok(rustix::fs::linkat(self.folder, &self.name, self.folder, name, AtFlags::empty())?)
            }
            other => Ok(other?),
        }
    }
}

impl Drop for FileDraft<'_> {
    fn drop(&mut self) {
        // After a rename the name is gone already; a failed unlink can't be reported here.
        rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty()).unwrap_or(());
    }
}

/// Fails unless the file under a name has this content now.
fn still(folder: &OwnedFd, name: &str, expected: &Digest) -> Result<(), PathError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat2(folder.as_fd(), name, flags, Mode::empty(), NO_LINKS)?;
    let bytes = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(u64::MAX);
    let mut content = Vec::new();
    // One that grows meanwhile has changed.
    let mut bounded = File::from(file).take(bytes.saturating_add(1));
    bounded.read_to_end(&mut content).map_err(|error| PathError::of_io(&error))?;
    if Digest::compute(&content) == *expected { Ok(()) } else { Err(PathError::Changed) }
}

/// What a write would replace, if anything. Looked at, never opened.
pub(crate) fn existing(folder: &OwnedFd, name: &str, inside: bool) -> Result<Option<Stat>, PathError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(folder.as_fd(), name, flags, Mode::empty(), INSIDE) {
        Ok(file) => sound(&file, inside).map(Some),
        Err(PathError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Only plain files are read and written, and inside the workspace only such as have no other name.
pub(crate) fn sound(file: &OwnedFd, inside: bool) -> Result<Stat, PathError> {
    let stat = rustix::fs::fstat(file)?;
    let found = found(&stat);
    match found.kind {
        // Policy named a file outside by its own path; there a second name is no disguise.
        FileKind::File if inside && found.links > 1 => Err(PathError::HardLink),
        FileKind::File => Ok(stat),
        FileKind::Folder => Err(PathError::IsFolder),
        FileKind::Link => Err(PathError::Swapped),
        FileKind::Special => Err(PathError::Special),
    }
}

/// A time of a file system in milliseconds since 1970.
pub(crate) fn ms_of(seconds: i64, nanoseconds: impl TryInto<i64>) -> i64 {
    seconds.saturating_mul(1000).saturating_add(nanoseconds.try_into().unwrap_or(0) / 1_000_000)
}

pub(crate) fn found(stat: &Stat) -> FileMetadata {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => FileKind::Special,
    };
    FileMetadata {
        kind,
        bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified_ms: ms_of(stat.st_mtime, stat.st_mtime_nsec),
        links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
    }
}
