//! What names lead to and what the files hold, for approvals and labels. Only "there is no such file" means absent; everything else that
//! can't be looked at is an error.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use regent_ledger::Digest;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use crate::files::{is_regents, ms_of};
use crate::walk::{self, Located};
use crate::{
    INSIDE, NAME_BYTES_MAX, NO_LINKS, OUTSIDE, PATH_BYTES_MAX, PathError, ROOT, Workspace, escape_name,
    openat2,
};

/// Files up to this size are known by their content, larger ones by size, time of change and inode.
pub(crate) const DIGEST_BYTES_MAX: u64 = 8 << 20;
/// Entries of a tree.
const ENTRIES_MAX: usize = 200_000;
/// Folders within folders of a tree. Each holds a descriptor while it is read.
const DEPTH_MAX: usize = 128;
/// A program's own streams. They are links of `/proc`, and no files.
const STREAMS: &[&[u8]] = &[
    b"/dev/stdin",
    b"/dev/stdout",
    b"/dev/stderr",
    b"/dev/fd/0",
    b"/dev/fd/1",
    b"/dev/fd/2",
    b"/proc/self/fd/0",
    b"/proc/self/fd/1",
    b"/proc/self/fd/2",
];

/// The target of a name. Spellings are bytes: not every file has a name that is text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedEntry {
    /// No file and no folder.
    Absent,
    /// A file in the workspace.
    File(NamedFile),
    /// A folder, in the workspace or outside.
    Folder(Vec<u8>),
    /// Something outside, which programs in the sandbox can't write.
    Outside(Vec<u8>),
}

/// A file in the workspace that a name leads to. Looking it up doesn't read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// Its resolved spelling.
    pub spelling: Vec<u8>,
    /// How much [`Workspace::file_digest`] reads of it.
    pub bytes: u64,
    /// An execute bit is set.
    pub is_program: bool,
}

/// The content of a file in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The same for the same content.
    pub digest: Digest,
    /// When the file last changed in any way, milliseconds since 1970. Only root can set this back.
    pub changed_ms: i64,
    /// The state in which it holds this.
    pub state: FileState,
}

/// The state of a file: any change to the file, and another file in its place, gives another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// Device and inode.
    identity: (u64, u64),
    bytes: u64,
    /// When anything about it last changed, in seconds and nanoseconds. Only root can set this back.
    changed: (i64, i64),
}

impl FileState {
    /// The state of an open file.
    pub fn of_file(file: &File) -> Result<Self, PathError> {
        Ok(Self::from(&rustix::fs::fstat(file)?))
    }
}

impl From<&Stat> for FileState {
    fn from(stat: &Stat) -> Self {
        let changed = (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or_default());
        Self { identity: crate::identity_of(stat), bytes: size_of(stat), changed }
    }
}

/// Why a tree can't be read completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeError {
    /// Which part of it, fit for people.
    pub name: String,
    /// Why.
    pub why: PathError,
}

impl Workspace {
    /// What a name leads to now. Each name on the way takes one of the steps; without any left this is an error.
    pub fn named_entry(&self, name: &[u8], steps_left: &mut usize) -> Result<NamedEntry, PathError> {
        let is_too_long = |name: &[u8]| name.len() > NAME_BYTES_MAX;
        let can_be_opened = !name.is_empty() && name.len() < PATH_BYTES_MAX && !name.contains(&0);
        if !can_be_opened || STREAMS.contains(&name) || name.split(|byte| *byte == b'/').any(is_too_long) {
            return Ok(NamedEntry::Absent);
        }
        match walk::locate(&self.0, name, steps_left)? {
            Located::Absent => Ok(NamedEntry::Absent),
            Located::Outside(spelling) => self.outside(spelling),
            Located::Inside(spelling) => self.inside(spelling),
        }
    }

    /// The file in the workspace that a spelling leads to: a digest of what it holds, and when it last changed. A large one is known by its
    /// size and its beginning, so that a copy, or the same file under another name or mode, is still the same.
    pub fn content(&self, spelling: &str) -> Result<Option<Content>, PathError> {
        let mut steps_left = usize::MAX;
        let NamedEntry::File(file) = self.named_entry(spelling.as_bytes(), &mut steps_left)? else {
            return Ok(None);
        };
        let (stat, opened) = self.open_named(&file)?;
        let digest = match opened {
            Some(opened) if size_of(&stat) > DIGEST_BYTES_MAX => {
                let beginning = content_of(opened, DIGEST_BYTES_MAX)?;
                Digest::compute(format!("{} {beginning}", size_of(&stat)).as_bytes())
            }
            opened => digest_of(&stat, opened)?,
        };
        let changed_ms = ms_of(stat.st_ctime, stat.st_ctime_nsec);
        Ok(Some(Content { digest, changed_ms, state: FileState::from(&stat) }))
    }

    /// A digest of what a file holds, or of its size, inode and time of change if it is large.
    pub fn file_digest(&self, file: &NamedFile) -> Result<Digest, PathError> {
        let (stat, opened) = self.open_named(file)?;
        digest_of(&stat, opened)
    }

    /// A file that was looked up, opened unless it isn't readable before a program changes its mode.
    fn open_named(&self, file: &NamedFile) -> Result<(Stat, Option<OwnedFd>), PathError> {
        let open = |flags: OFlags| {
            let flags = flags | OFlags::CLOEXEC;
            openat2(self.0.dir.as_fd(), file.spelling.as_slice(), flags, Mode::empty(), INSIDE)
        };
        let stat = rustix::fs::fstat(open(OFlags::PATH)?)?;
        if kind_of(&stat) != FileType::RegularFile {
            return Err(PathError::Swapped);
        }
        match open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(opened) => Ok((stat, Some(opened))),
            Err(PathError::NotPermitted) => Ok((stat, None)),
            Err(error) => Err(error),
        }
    }

    fn outside(&self, spelling: Vec<u8>) -> Result<NamedEntry, PathError> {
        let below = spelling.strip_prefix(b"/").filter(|below| !below.is_empty()).unwrap_or(ROOT.as_bytes());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(entry) = openat2(self.0.slash.as_fd(), below, flags, Mode::empty(), OUTSIDE) else {
            return Ok(NamedEntry::Outside(spelling));
        };
        let is_folder = kind_of(&rustix::fs::fstat(&entry)?) == FileType::Directory;
        Ok(if is_folder { NamedEntry::Folder(spelling) } else { NamedEntry::Outside(spelling) })
    }

    fn inside(&self, spelling: Vec<u8>) -> Result<NamedEntry, PathError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let stat = match openat2(self.0.dir.as_fd(), spelling.as_slice(), flags, Mode::empty(), INSIDE) {
            Ok(entry) => rustix::fs::fstat(entry)?,
            Err(PathError::NotFound | PathError::NotFolder) => return Ok(NamedEntry::Absent),
            Err(error) => return Err(error),
        };
        let is_reserved = self.is_reserved(&String::from_utf8_lossy(&spelling));
        match kind_of(&stat) {
            // No program sees it, so none can go there.
            FileType::Directory if is_reserved => return Ok(NamedEntry::Outside(spelling)),
            FileType::Directory => return Ok(NamedEntry::Folder(spelling)),
            FileType::RegularFile if is_reserved => return Err(PathError::Reserved),
            FileType::RegularFile => {}
            // Nothing can be opened there.
            FileType::Socket => return Ok(NamedEntry::Absent),
            // No link is at the end of a resolved spelling; one that is there now was put there since.
            FileType::Symlink => return Err(PathError::Swapped),
            FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                return Err(PathError::Special);
            }
        }
        let bytes = Some(size_of(&stat)).filter(|bytes| *bytes <= DIGEST_BYTES_MAX).unwrap_or(0);
        let is_program = stat.st_mode & 0o111 != 0;
        Ok(NamedEntry::File(NamedFile { spelling, bytes, is_program }))
    }

    /// A digest of all names in the workspace with what the file system says of them: any change to any file changes it. Regent's own
    /// files aren't part of it.
    pub fn tree_digest(&self) -> Result<Digest, TreeError> {
        let mut tree = Tree { workspace: self, entries: 0 };
        let fault = |why: PathError| TreeError { name: ROOT.to_owned(), why };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat2(self.0.dir.as_fd(), ROOT, flags, Mode::empty(), NO_LINKS).map_err(fault)?;
        tree.digest(root, &mut Vec::new())
    }
}

struct Tree<'w> {
    workspace: &'w Workspace,
    entries: usize,
}

impl Tree<'_> {
    fn digest(&mut self, folder: OwnedFd, above: &mut Vec<Vec<u8>>) -> Result<Digest, TreeError> {
        let fault =
            |above: &[Vec<u8>], why: PathError| TreeError { name: escape_name(&above.join(&b'/')), why };
        if above.len() > DEPTH_MAX {
            return Err(fault(above, PathError::TooMany));
        }
        let mut names = names_of(&folder).map_err(|why| fault(above, why))?;
        names.sort_unstable();
        self.entries = self.entries.saturating_add(names.len());
        if self.entries > ENTRIES_MAX {
            return Err(fault(&[ROOT.into()], PathError::TooMany));
        }
        let mut all = Vec::new();
        for name in names {
            above.push(name);
            if let Some(entry) = self.entry(folder.as_fd(), above)? {
                all.extend_from_slice(entry.as_bytes());
                all.extend_from_slice(above.last().map_or(&[][..], Vec::as_slice));
                all.push(0);
            }
            above.pop();
        }
        Ok(Digest::compute(&all))
    }

    /// What is known of the last of these names, and of what is below it; nothing of Regent's own.
    fn entry(
        &mut self,
        folder: BorrowedFd<'_>,
        path: &mut Vec<Vec<u8>>,
    ) -> Result<Option<String>, TreeError> {
        let Some(name) = path.last().cloned() else { return Ok(None) };
        let fault = |why: PathError| TreeError { name: escape_name(&path.join(&b'/')), why };
        let text = path.join(&b'/');
        let absolute = [self.workspace.root().as_os_str().as_encoded_bytes(), b"/", &text].concat();
        if is_regents(&name) || self.workspace.0.own.holds(&String::from_utf8_lossy(&absolute)) {
            return Ok(None);
        }
        let stat = match rustix::fs::statat(folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed since the folder was listed, which changes the folder.
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(fault(errno.into())),
        };
        let marks = marks_of(&stat);
        match kind_of(&stat) {
            FileType::RegularFile | FileType::Symlink | FileType::Socket => return Ok(Some(marks)),
            FileType::Directory => {}
            FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                return Err(fault(PathError::Special));
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat2(folder, name.as_slice(), flags, Mode::empty(), NO_LINKS) {
            Ok(below) => Ok(Some(format!("{marks} {}", self.digest(below, path)?))),
            // We have the rights of the programs that we start. To go in there, one would have to change the folder's mode first.
            Err(PathError::NotPermitted) => Ok(Some(marks)),
            Err(why) => Err(fault(why)),
        }
    }
}

fn names_of(folder: &OwnedFd) -> Result<Vec<Vec<u8>>, PathError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
        if names.len() > ENTRIES_MAX {
            break;
        }
    }
    Ok(names)
}

fn content_of(opened: OwnedFd, bytes_max: u64) -> Result<Digest, PathError> {
    let mut content = Vec::new();
    let mut bounded = File::from(opened).take(bytes_max);
    bounded.read_to_end(&mut content).map_err(|error| PathError::of_io(&error))?;
    Ok(Digest::compute(&content))
}

fn digest_of(stat: &Stat, opened: Option<OwnedFd>) -> Result<Digest, PathError> {
    match opened {
        Some(opened) if size_of(stat) <= DIGEST_BYTES_MAX => {
            content_of(opened, DIGEST_BYTES_MAX.saturating_add(1))
        }
        // Only root can set back the time of the last change.
        Some(_) | None => Ok(Digest::compute(marks_of(stat).as_bytes())),
    }
}

/// What changes whenever the file does, without reading it.
fn marks_of(stat: &Stat) -> String {
    let (mode, bytes, inode) = (stat.st_mode, size_of(stat), stat.st_ino);
    format!("{mode:o} {bytes} {} {} {inode}", stat.st_ctime, stat.st_ctime_nsec)
}

pub(crate) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(u64::MAX)
}

fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
