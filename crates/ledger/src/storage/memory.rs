//! A ledger that ends with the process: for tests, dry runs and benchmarks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Appender, Existing, Lock, Stat, Storage};

/// Files in memory. They grow until the storage is dropped.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    files: Arc<Mutex<BTreeMap<String, File>>>,
    locked: Arc<Mutex<BTreeSet<String>>>,
}

type File = Arc<Mutex<Contents>>;

#[derive(Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    changes: u64,
}

/// A panic can't leave this state half-changed, so a poisoned lock is usable.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    fn file(&self, path: &str) -> io::Result<File> {
        held(&self.files).get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Storage for Memory {
    fn read(&self, path: &str, from: u64, bytes_max: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let file = self.file(path)?;
        let contents = held(&file);
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(contents.bytes.len());
        let bytes = contents.bytes.get(from..).unwrap_or_default();
        let count = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(bytes.len());
        into.clear();
        into.extend_from_slice(bytes.get(..count).unwrap_or_default());
        Ok(())
    }

    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        let Ok(file) = self.file(path) else { return Ok(None) };
        let contents = held(&file);
        let stamp = i128::from(contents.changes);
        let bytes = contents.bytes.len() as u64;
        Ok(Some(Stat { bytes, modified_ns: stamp, changed_ns: stamp, inode: 0 }))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{folder}/");
        let names: BTreeSet<String> = held(&self.files)
            .keys()
            .filter_map(|path| path.strip_prefix(&prefix)?.split('/').next().map(str::to_owned))
            .collect();
        Ok(names.into_iter().collect())
    }

    fn create_folder(&self, path: &str) -> io::Result<bool> {
        Ok(self.list(path)?.is_empty())
    }

    fn appender(&self, path: &str, existing: Existing) -> io::Result<Box<dyn Appender>> {
        let mut files = held(&self.files);
        let file = match (files.get(path), existing) {
            (Some(file), Existing::Required) => file.clone(),
            (None, Existing::Refused) => files.entry(path.to_owned()).or_default().clone(),
            (Some(_), Existing::Refused) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, Existing::Required) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Box::new(MemoryAppender(file)))
    }

    fn sync_folder(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let file = held(&self.files).entry(path.to_owned()).or_default().clone();
        let mut contents = held(&file);
        contents.bytes = bytes.to_vec();
        contents.changes += 1;
        Ok(())
    }

    fn overwrite(&self, path: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.file(path)?;
        let mut contents = held(&file);
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let old = contents.bytes.iter_mut().skip(at);
        old.zip(bytes).for_each(|(old, new)| *old = *new);
        contents.changes += 1;
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        held(&self.files).remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn lock(&self, path: &str) -> io::Result<Option<Box<dyn Lock>>> {
        if !held(&self.locked).insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemoryLock { locked: self.locked.clone(), path: path.to_owned() })))
    }

    fn is_locked(&self, path: &str) -> io::Result<bool> {
        Ok(held(&self.locked).contains(path))
    }
}

#[derive(Debug)]
struct MemoryAppender(File);

impl Appender for MemoryAppender {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut contents = held(&self.0);
        contents.bytes.extend_from_slice(bytes);
        contents.changes += 1;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryLock {
    locked: Arc<Mutex<BTreeSet<String>>>,
    path: String,
}

impl Lock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        held(&self.locked).remove(&self.path);
    }
}
