//! Where a ledger is stored: the few disk operations that it needs.
//!
//! Three implementations: [`Files`] uses a real folder, [`Memory`] ends with the process, and [`Sim`] simulates power cuts, torn writes and
//! full disks as planned.

mod files;
mod memory;
pub mod sim;

use std::fmt;
use std::io;

pub use files::Files;
pub use memory::Memory;
pub use sim::Sim;

/// A small file system. Paths are relative, separated by `/`, and come only from the ledger.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Replaces the contents of `into` with at most `bytes_max` bytes of a file, starting at an offset.
    fn read(&self, path: &str, from: u64, bytes_max: u64, into: &mut Vec<u8>) -> io::Result<()>;

    /// A file's metadata; `None` if the file doesn't exist.
    fn stat(&self, path: &str) -> io::Result<Option<Stat>>;

    /// The names in a folder, sorted; empty if the folder doesn't exist.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Creates a folder durably. Returns whether it is new.
    fn create_folder(&self, path: &str) -> io::Result<bool>;

    /// Opens a file for appending. With [`Existing::Refused`] the file must not exist; it is durable once its folder is synced.
    fn appender(&self, path: &str, existing: Existing) -> io::Result<Box<dyn Appender>>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, path: &str) -> io::Result<()>;

    /// Replaces a file durably and atomically: after a crash it is the old or the new one.
    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()>;

    /// Overwrites bytes within a file, durably. Only erasure uses it.
    fn overwrite(&self, path: &str, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Removes a file, durably.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Takes an exclusive lock that ends with its guard or its process; `None` if the lock is held.
    fn lock(&self, path: &str) -> io::Result<Option<Box<dyn Lock>>>;

    /// Whether a lock is held. Writes nothing.
    fn is_locked(&self, path: &str) -> io::Result<bool>;
}

/// Whether the file must already exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It must exist.
    Required,
    /// It must not exist.
    Refused,
}

/// A file open for appending.
pub trait Appender: Send + fmt::Debug {
    /// Appends all bytes. After an error, any part of them may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes the appended bytes durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Fails if the path no longer names this file. A removed or moved file still accepts writes, but readers won't find them.
    fn confirm(&self) -> io::Result<()> {
        Ok(())
    }
}

/// An exclusive lock, released on drop.
pub trait Lock: Send + Sync + fmt::Debug {}

/// Metadata of a file. If all of it is unchanged, so are the contents, unless an attacker forged the system clock or wrote to the raw
/// device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Length.
    pub bytes: u64,
    /// When the contents changed.
    pub modified_ns: i128,
    /// When anything about the file changed.
    pub changed_ns: i128,
    /// Inode number.
    pub inode: u64,
}

/// Whether an error means that the disk is full, which may pass.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Reads a file of at most `bytes_max` bytes.
pub(crate) fn read_all(storage: &dyn Storage, path: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(stat) = storage.stat(path)? else { return Ok(None) };
    if stat.bytes > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("`{path}` is too large")));
    }
    let mut bytes = Vec::new();
    storage.read(path, 0, bytes_max, &mut bytes)?;
    Ok(Some(bytes))
}
