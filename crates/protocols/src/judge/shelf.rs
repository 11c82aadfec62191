//! Where sessions lie that nobody uses at the moment: one file in the state folder that has no name, so that nobody can open it and a
//! crash leaves nothing behind. What it holds is encrypted with a key that is in memory only, part by part: what was altered isn't read
//! back.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use regent_kernel::Saved;
use regent_vault::{seal, unseal};
use rustix::fs::{FallocateFlags, fallocate};
use zeroize::Zeroizing;

/// What all sessions together may take on disk.
const DISK_BYTES_MAX: u64 = 16 << 30;
/// Parts begin at multiples of this, so that the disk has back all of a part that is given up.
const BLOCK_BYTES: u64 = 4096;

/// The file, made when it is first needed.
#[derive(Debug)]
pub(super) struct Shelf {
    folder: PathBuf,
    open: Mutex<Option<Arc<Open>>>,
}

struct Open {
    file: File,
    key: Zeroizing<[u8; 32]>,
    numbers: AtomicU64,
    used: Mutex<ShelfUse>,
}

#[derive(Debug, Default)]
struct ShelfUse {
    end: u64,
    bytes: u64,
}

/// A part of the file.
struct Part {
    open: Arc<Open>,
    number: u64,
    at: u64,
    bytes: usize,
}

impl Shelf {
    /// In a folder that only the user can read.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, open: Mutex::new(None) }
    }

    /// Saves a part of a session's history.
    pub(super) fn save(&self, history: &[u8]) -> io::Result<Saved> {
        let open = self.opened()?;
        let number = open.numbers.fetch_add(1, Ordering::Relaxed);
        let sealed = seal(&open.key, &name(number), history).map_err(io::Error::other)?;
        let bytes = sealed.len();
        let at = open.take(bytes)?;
        let part = Part { open, number, at, bytes };
        part.open.file.write_all_at(&sealed, at)?;
        Ok(Box::new(move || part.read()))
    }

    fn opened(&self) -> io::Result<Arc<Open>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*open {
            return Ok(Arc::clone(open));
        }
        let mut key = Zeroizing::new([0_u8; 32]);
        getrandom::fill(&mut *key).map_err(io::Error::other)?;
        let file = tempfile::tempfile_in(&self.folder)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let new = Arc::new(Open { file, key, numbers: AtomicU64::new(0), used: Mutex::default() });
        *open = Some(Arc::clone(&new));
        Ok(new)
    }
}

impl Open {
    /// Takes room at the end.
    fn take(&self, bytes: usize) -> io::Result<u64> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = blocks(bytes);
        let all = used.bytes.saturating_add(bytes);
        if all > DISK_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "idle sessions take too much disk space"));
        }
        let at = used.end;
        (used.end, used.bytes) = (at.saturating_add(bytes), all);
        Ok(at)
    }
}

impl Part {
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut sealed = vec![0; self.bytes];
        self.open.file.read_exact_at(&mut sealed, self.at)?;
        let altered = || io::Error::new(io::ErrorKind::InvalidData, "it was altered on disk");
        unseal(&self.open.key, &name(self.number), &sealed).ok_or_else(altered)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let bytes = blocks(self.bytes);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Where the file system can't do this, the room is given back when the process ends.
        let _given_back = fallocate(&self.open.file, hole, self.at, bytes);
        let mut used = self.open.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.bytes = used.bytes.saturating_sub(bytes);
    }
}

fn blocks(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX)
}

/// What a part is encrypted under: no part passes for another.
fn name(number: u64) -> String {
    format!("judge/{number}")
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("used", &self.used).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_each_part_until_it_is_altered() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path().to_path_buf());
        let (one, other) = (shelf.save(b"mail from ann").unwrap(), shelf.save(&[7; 100_000]).unwrap());
        assert_eq!((one().unwrap(), other().unwrap()), (b"mail from ann".to_vec(), vec![7; 100_000]));
        let open = shelf.opened().unwrap();
        let mut all = vec![0; 4096];
        open.file.read_exact_at(&mut all, 0).unwrap();
        assert!(!all.windows(4).any(|bytes| bytes == b"mail"), "it is encrypted");
        open.file.write_all_at(&[all[20] ^ 1], 20).unwrap();
        assert_eq!(one().unwrap_err().kind(), io::ErrorKind::InvalidData);
        open.file.set_len(0).unwrap();
        assert!(other().is_err(), "nothing is read back that isn't there");
    }

    #[test]
    fn has_no_name_and_is_private() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path().to_path_buf());
        let _part = shelf.save(b"mail").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a crash leaves nothing behind");
        let meta = shelf.opened().unwrap().file.metadata().unwrap();
        assert_eq!((meta.mode() & 0o777, meta.nlink()), (0o600, 0));
    }

    #[test]
    fn gives_back_what_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path().to_path_buf());
        let parts: Vec<Saved> = (0..10).map(|_| shelf.save(&[1; 10_000]).unwrap()).collect();
        let open = shelf.opened().unwrap();
        assert!(open.used.lock().unwrap().bytes >= 100_000);
        drop(parts);
        assert_eq!(open.used.lock().unwrap().bytes, 0);
    }
}
