//! A simulated disk that distinguishes written bytes from bytes that survive a power cut.
//!
//! The disk counts every operation that changes something. A [`Plan`] names the operation at which the power fails or an error occurs, so a
//! test can try each one. Unsynced bytes survive a power cut in part: cut at any offset, with random 512-byte sectors lost, and file names
//! lost or kept.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Appender, Existing, Lock, Stat, Storage};

const SECTOR_BYTES: usize = 512;

/// Planned failures. Operations are counted from 0.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// The power fails during this operation; every later operation fails.
    pub crash_at: Option<u64>,
    /// This operation fails.
    pub fail_at: Option<(u64, DiskFailure)>,
    /// Remaining capacity; an append beyond it writes what fits, then fails.
    pub room_bytes: Option<u64>,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFailure {
    /// EIO.
    Io,
    /// ENOSPC after a partial write.
    Full,
    /// EROFS.
    ReadOnly,
}

impl DiskFailure {
    fn error(self) -> io::Error {
        match self {
            DiskFailure::Io => io::Error::other("simulated input/output error"),
            DiskFailure::Full => io::ErrorKind::StorageFull.into(),
            DiskFailure::ReadOnly => io::ErrorKind::ReadOnlyFilesystem.into(),
        }
    }
}

/// A simulated disk. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Sim {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Default)]
struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    folders: BTreeSet<String>,
    locked: BTreeSet<String>,
    operations: u64,
    changes: u64,
    plan: Plan,
    random: u64,
    dead: bool,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    stamp: u64,
}

/// What the plan allows an operation to do.
enum DiskOp {
    Whole,
    /// Only a part of it happens, then it fails.
    Part(io::Error),
}

impl Sim {
    /// An empty disk; `seed` decides what a power cut loses.
    pub fn new(seed: u64) -> Sim {
        let sim = Sim::default();
        sim.held().random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        sim
    }

    /// Sets the planned failures.
    pub fn plan(&self, plan: Plan) {
        self.held().plan = plan;
    }

    /// Number of operations so far.
    pub fn operations(&self) -> u64 {
        self.held().operations
    }

    /// The disk after a power cut. The old handle is dead.
    #[must_use]
    pub fn after_power_cut(&self) -> Sim {
        let mut disk = self.held();
        disk.dead = true;
        let mut names = disk.durable_names.clone();
        for (name, inode) in disk.names.clone() {
            if !names.contains_key(&name) && disk.coin() {
                names.insert(name, inode);
            }
        }
        let mut inodes = Vec::new();
        for inode in disk.inodes.clone() {
            let bytes = disk.spoil(&inode);
            inodes.push(Inode { durable: bytes.clone(), bytes, stamp: inode.stamp });
        }
        let fresh = Disk {
            inodes,
            durable_names: names.clone(),
            names,
            folders: disk.folders.clone(),
            random: disk.random,
            changes: disk.changes + 1,
            ..Disk::default()
        };
        Sim { disk: Arc::new(Mutex::new(fresh)) }
    }

    /// The disk as seen by another process after this one was killed: all writes are kept.
    #[must_use]
    pub fn after_kill(&self) -> Sim {
        let mut disk = self.held();
        disk.dead = true;
        let fresh = Disk {
            inodes: disk.inodes.clone(),
            names: disk.names.clone(),
            durable_names: disk.durable_names.clone(),
            folders: disk.folders.clone(),
            random: disk.random,
            changes: disk.changes + 1,
            ..Disk::default()
        };
        Sim { disk: Arc::new(Mutex::new(fresh)) }
    }

    fn held(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn coin(&mut self) -> bool {
        self.next_random() & 64 == 0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next_random() % (end as u64 + 1)).unwrap_or(0)
    }

    /// Counts an operation and applies the plan.
    fn step(&mut self) -> io::Result<DiskOp> {
        if self.dead {
            return Err(io::Error::other("the power is off"));
        }
        let operation = self.operations;
        self.operations += 1;
        self.changes += 1;
        if self.plan.crash_at == Some(operation) {
            self.dead = true;
            return Ok(DiskOp::Part(io::Error::other("the power went")));
        }
        match self.plan.fail_at {
            Some((at, failure)) if at == operation => Ok(DiskOp::Part(failure.error())),
            Some(_) | None => Ok(DiskOp::Whole),
        }
    }

    fn inode(&mut self, path: &str) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Unsynced bytes after a power cut: cut at any offset, with random sectors lost.
    fn spoil(&mut self, inode: &Inode) -> Vec<u8> {
        let shared = inode.durable.len().min(inode.bytes.len());
        let kept = shared + self.below(inode.bytes.len() - shared);
        let mut bytes: Vec<u8> = inode.bytes.iter().take(kept).copied().collect();
        for (number, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
            if self.coin() {
                continue;
            }
            // A lost sector reads as its last durable content, or as zeros.
            let old = inode.durable.iter().skip(number * SECTOR_BYTES);
            let old = old.copied().chain(std::iter::repeat(0));
            sector.iter_mut().zip(old).for_each(|(byte, old)| *byte = old);
        }
        bytes
    }

    fn append(&mut self, inode: usize, bytes: &[u8]) -> io::Result<()> {
        let step = self.step()?;
        let mut count = bytes.len();
        let mut error = None;
        if let DiskOp::Part(failure) = step {
            count = self.below(bytes.len());
            error = Some(failure);
        }
        if let Some(room) = self.plan.room_bytes {
            let room_now = usize::try_from(room).unwrap_or(usize::MAX);
            if room_now < count {
                count = room_now;
                error = Some(DiskFailure::Full.error());
            }
            self.plan.room_bytes = Some(room - count as u64);
        }
        let stamp = self.changes;
        if let Some(inode) = self.inodes.get_mut(inode) {
            inode.bytes.extend(bytes.iter().take(count));
            inode.stamp = stamp;
        }
        error.map_or(Ok(()), Err)
    }

    fn sync(&mut self, inode: usize) -> io::Result<()> {
        let step = self.step()?;
        if let DiskOp::Part(error) = step {
            return Err(error);
        }
        if let Some(inode) = self.inodes.get_mut(inode) {
            inode.durable = inode.bytes.clone();
        }
        Ok(())
    }

    fn create(&mut self, path: &str) -> usize {
        self.inodes.push(Inode { stamp: self.changes, ..Inode::default() });
        let inode = self.inodes.len() - 1;
        self.names.insert(path.to_owned(), inode);
        inode
    }
}

impl Storage for Sim {
    fn read(&self, path: &str, from: u64, bytes_max: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let mut disk = self.held();
        let inode = disk.inode(path)?;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let count = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        into.clear();
        if let Some(inode) = disk.inodes.get(inode) {
            into.extend(inode.bytes.iter().skip(from).take(count));
        }
        Ok(())
    }

    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        let disk = self.held();
        let Some(number) = disk.names.get(path) else { return Ok(None) };
        Ok(disk.inodes.get(*number).map(|inode| Stat {
            bytes: inode.bytes.len() as u64,
            modified_ns: i128::from(inode.stamp),
            changed_ns: i128::from(inode.stamp),
            inode: *number as u64,
        }))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{folder}/");
        let disk = self.held();
        let names: BTreeSet<String> = (disk.names.keys().chain(&disk.folders))
            .filter_map(|path| path.strip_prefix(&prefix)?.split('/').next().map(str::to_owned))
            .collect();
        Ok(names.into_iter().collect())
    }

    fn create_folder(&self, path: &str) -> io::Result<bool> {
        let mut disk = self.held();
        if disk.folders.contains(path) {
            return Ok(false);
        }
        match disk.step()? {
            DiskOp::Whole => Ok(disk.folders.insert(path.to_owned())),
            DiskOp::Part(error) => Err(error),
        }
    }

    fn appender(&self, path: &str, existing: Existing) -> io::Result<Box<dyn Appender>> {
        let mut disk = self.held();
        let inode = match (disk.names.get(path).copied(), existing) {
            (Some(inode), Existing::Required) => inode,
            (None, Existing::Refused) => match disk.step()? {
                DiskOp::Whole => disk.create(path),
                DiskOp::Part(error) => {
                    if disk.coin() {
                        disk.create(path);
                    }
                    return Err(error);
                }
            },
            (Some(_), Existing::Refused) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, Existing::Required) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Box::new(SimAppender { sim: self.clone(), inode }))
    }

    fn sync_folder(&self, path: &str) -> io::Result<()> {
        let mut disk = self.held();
        if let DiskOp::Part(error) = disk.step()? {
            return Err(error);
        }
        let prefix = format!("{path}/");
        let here = |name: &String| name.strip_prefix(&prefix).is_some_and(|name| !name.contains('/'));
        let now: Vec<_> =
            disk.names.iter().filter(|(name, _)| here(name)).map(|(n, i)| (n.clone(), *i)).collect();
        disk.durable_names.retain(|name, _| !here(name));
        disk.durable_names.extend(now);
        Ok(())
    }

    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.held();
        let failed = match disk.step()? {
            DiskOp::Whole => None,
            DiskOp::Part(error) => Some(error),
        };
        // The new file is synced before the rename, so it is complete wherever it is visible.
        if failed.is_none() || disk.coin() {
            let inode = Inode { bytes: bytes.to_vec(), durable: bytes.to_vec(), stamp: disk.changes };
            disk.inodes.push(inode);
            let number = disk.inodes.len() - 1;
            disk.names.insert(path.to_owned(), number);
            if failed.is_none() || disk.coin() {
                disk.durable_names.insert(path.to_owned(), number);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn overwrite(&self, path: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.held();
        let number = disk.inode(path)?;
        let failed = match disk.step()? {
            DiskOp::Whole => None,
            DiskOp::Part(error) => Some(error),
        };
        let count = if failed.is_some() { disk.below(bytes.len()) } else { bytes.len() };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let stamp = disk.changes;
        if let Some(inode) = disk.inodes.get_mut(number) {
            let old = inode.bytes.iter_mut().skip(at).take(count);
            old.zip(bytes).for_each(|(old, new)| *old = *new);
            inode.stamp = stamp;
            if failed.is_none() {
                inode.durable = inode.bytes.clone();
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut disk = self.held();
        disk.inode(path)?;
        if let DiskOp::Part(error) = disk.step()? {
            return Err(error);
        }
        disk.names.remove(path);
        disk.durable_names.remove(path);
        Ok(())
    }

    fn lock(&self, path: &str) -> io::Result<Option<Box<dyn Lock>>> {
        if !self.held().locked.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock { sim: self.clone(), path: path.to_owned() })))
    }

    fn is_locked(&self, path: &str) -> io::Result<bool> {
        Ok(self.held().locked.contains(path))
    }
}

#[derive(Debug)]
struct SimAppender {
    sim: Sim,
    inode: usize,
}

impl Appender for SimAppender {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sim.held().append(self.inode, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sim.held().sync(self.inode)
    }
}

#[derive(Debug)]
struct SimLock {
    sim: Sim,
    path: String,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.sim.held().locked.remove(&self.path);
    }
}
