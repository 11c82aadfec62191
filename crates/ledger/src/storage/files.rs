//! A ledger in a folder of the file system.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use super::{Appender, Existing, Lock, Stat, Storage};

/// A folder. Only the owner can access its files, and symbolic links are not followed.
#[derive(Debug, Clone)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    /// A folder that may not exist yet. Creates nothing.
    pub fn new(root: &Path) -> Files {
        Files { root: root.to_owned() }
    }

    /// Creates the folder and its parents if they don't exist.
    pub fn create(root: &Path) -> io::Result<Files> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        Ok(Files::new(root))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn parent(&self, path: &str) -> PathBuf {
        self.path(path.rsplit_once('/').map_or("", |(folder, _)| folder))
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        options
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl Storage for Files {
    fn read(&self, path: &str, from: u64, bytes_max: u64, into: &mut Vec<u8>) -> io::Result<()> {
        into.clear();
        let mut file = Files::options().read(true).open(self.path(path))?;
        if from > 0 {
            file.seek(SeekFrom::Start(from))?;
        }
        file.take(bytes_max).read_to_end(into)?;
        Ok(())
    }

    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        let meta = match std::fs::symlink_metadata(self.path(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            meta => meta?,
        };
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{path}` is not a plain file")));
        }
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Ok(Some(Stat {
            bytes: meta.len(),
            modified_ns: nanoseconds(meta.mtime(), meta.mtime_nsec()),
            changed_ns: nanoseconds(meta.ctime(), meta.ctime_nsec()),
            inode: meta.ino(),
        }))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match rustix::fs::open(self.path(folder), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            // A clone can contain a symbolic link, and tools may be able to write to its target, unlike to the ledger's own folder.
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let why = format!("`{}` is a link or not a folder", self.path(folder).display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
            }
            opened => opened?,
        };
        let mut names = Vec::new();
        for entry in Dir::new(opened)? {
            // The ledger creates only UTF-8 names, so other names are ignored.
            let name = entry?.file_name().to_str().map(str::to_owned);
            names.extend(name.ok().filter(|name| name != "." && name != ".."));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_folder(&self, path: &str) -> io::Result<bool> {
        match std::fs::DirBuilder::new().mode(0o700).create(self.path(path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            made => {
                made?;
                sync_folder(&self.parent(path))?;
                Ok(true)
            }
        }
    }

    fn appender(&self, path: &str, existing: Existing) -> io::Result<Box<dyn Appender>> {
        let mut options = Files::options();
        options.append(true).create_new(existing == Existing::Refused);
        let path = self.path(path);
        let file = options.open(&path)?;
        let meta = file.metadata()?;
        Ok(Box::new(FileAppender { file, path, identity: (meta.dev(), meta.ino()) }))
    }

    fn sync_folder(&self, path: &str) -> io::Result<()> {
        sync_folder(&self.path(path))
    }

    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        // The caller holds a lock, so a fixed temporary name is safe. A leftover of a crash is replaced.
        let draft = self.path(&format!("{path}.tmp"));
        let mut file = Files::options().write(true).create(true).truncate(true).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&draft, self.path(path))?;
        sync_folder(&self.parent(path))
    }

    fn overwrite(&self, path: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = Files::options().write(true).open(self.path(path))?;
        file.write_all_at(bytes, at)?;
        file.sync_all()
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(path))?;
        sync_folder(&self.parent(path))
    }

    fn lock(&self, path: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let file = Files::options().write(true).create(true).truncate(false).open(self.path(path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(FileLock { _file: file }))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn is_locked(&self, path: &str) -> io::Result<bool> {
        let file = match Files::options().read(true).open(self.path(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[derive(Debug)]
struct FileAppender {
    file: File,
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Appender for FileAppender {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn confirm(&self) -> io::Result<()> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(meta) if (meta.dev(), meta.ino()) == self.identity => Ok(()),
            Ok(_another) => Err(self.lost(&"another file has its name")),
            Err(error) => Err(self.lost(&error)),
        }
    }
}

impl FileAppender {
    fn lost(&self, why: &dyn std::fmt::Display) -> io::Error {
        io::Error::other(format!(
            "`{}` was removed or moved while it was written: {why}",
            self.path.display()
        ))
    }
}

/// The lock ends when the file is closed.
#[derive(Debug)]
struct FileLock {
    _file: File,
}

impl Lock for FileLock {}
