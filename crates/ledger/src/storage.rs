//! Where a ledger lives: the few things it asks of a disk.
//!
//! Three implementors: [`Files`] is the real one, [`Memory`] keeps a ledger that ends with the
//! process, and [`Sim`] is a disk that loses power, tears writes and runs full when told to.

mod files;
mod memory;
pub mod sim;

use std::fmt;
use std::io;

pub use files::Files;
pub use memory::Memory;
pub use sim::Sim;

/// A small file system. Paths are relative, separated by `/`, and made by the ledger alone.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Replaces the contents of `into` by at most `bytes_max` bytes of a file, from an offset on.
    fn read(&self, path: &str, from: u64, bytes_max: u64, into: &mut Vec<u8>) -> io::Result<()>;

    /// What is known of a file without reading it; `None` if there is none.
    fn stat(&self, path: &str) -> io::Result<Option<Stat>>;

    /// The names in a folder, sorted; none if there is no folder.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Makes a folder, durably. Tells whether it is new.
    fn create_folder(&self, path: &str) -> io::Result<bool>;

    /// Opens a file to append to it. A new one must not exist yet, and lasts once its folder is synced.
    fn appender(&self, path: &str, existing: Existing) -> io::Result<Box<dyn Appender>>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, path: &str) -> io::Result<()>;

    /// Puts a whole file in place, durably and atomically: after a crash it is the old or the new one.
    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()>;

    /// Overwrites bytes within a file, durably. Only erasure does that.
    fn overwrite(&self, path: &str, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Removes a file, durably.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Takes an exclusive lock that ends with its guard or its process; `None` if another has it.
    fn lock(&self, path: &str) -> io::Result<Option<Box<dyn Lock>>>;

    /// Whether someone holds a lock. Nothing is written.
    fn is_locked(&self, path: &str) -> io::Result<bool>;
}

/// Whether a file to append to is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It must be there.
    Required,
    /// It must not be there.
    Refused,
}

/// A file open for appending.
pub trait Appender: Send + fmt::Debug {
    /// Appends all bytes. After an error any part of them may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes durable what was appended.
    fn sync(&mut self) -> io::Result<()>;

    /// Fails if the file isn't the one under its name any more: a file that was removed or moved away still takes bytes, and
    /// nobody will find them.
    fn confirm(&self) -> io::Result<()> {
        Ok(())
    }
}

/// An exclusive lock, given up when dropped.
pub trait Lock: Send + Sync + fmt::Debug {}

/// Metadata of a file: if all of it is unchanged, so are its contents, unless
/// someone forged the system's clock or wrote to the raw device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Length.
    pub bytes: u64,
    /// When the contents changed.
    pub modified_ns: i128,
    /// When anything about the file changed.
    pub changed_ns: i128,
    /// Its number in the file system.
    pub inode: u64,
}

/// Whether an error means that there is no room, which may pass.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// A whole file, at most `bytes_max` of it.
pub(crate) fn read_all(storage: &dyn Storage, path: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(stat) = storage.stat(path)? else { return Ok(None) };
    if stat.bytes > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("`{path}` is too large")));
    }
    let mut bytes = Vec::new();
    storage.read(path, 0, bytes_max, &mut bytes)?;
    Ok(Some(bytes))
}
