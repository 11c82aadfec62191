//! One supervised call at a time, among all runs of this process and of the user's other Regent processes.
//!
//! A folder that was searched before it is moved has to hold the same names when it is, and a survey must not be overtaken by a folder
//! that is moved from where it looks later to where it has looked already. Workspaces may lie in each other, so there is one lock for
//! all of them.

use std::fs::{DirBuilder, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

const PAUSE: Duration = Duration::from_micros(300);

/// The lock file, once it is open.
static ORDER: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Keeps every other supervised call and survey waiting.
#[derive(Debug)]
pub(crate) struct Order(MutexGuard<'static, Option<OwnedFd>>);

impl Drop for Order {
    fn drop(&mut self) {
        if let Some(file) = &*self.0 {
            // Sent explicitly rather than left to closing the socket: a child that was just forked still has the file open.
            rustix::fs::flock(file.as_fd(), FlockOperation::Unlock).ok();
        }
    }
}

/// Waits for its turn. `EAGAIN`: it did not come within `wait_max`; a process that was stopped while it had the lock must not stop
/// everybody without a word.
pub(crate) fn order(wait_max: Duration) -> Result<Order, Errno> {
    let began = Instant::now();
    loop {
        // Let go of between two tries, so that the threads of this process wait for the file alone.
        let mut file = ORDER.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            *file = Some(open()?);
        }
        let fd = file.as_ref().ok_or(Errno::NOENT)?;
        match rustix::fs::flock(fd.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Order(file)),
            Err(Errno::WOULDBLOCK | Errno::INTR) if began.elapsed() < wait_max => {}
            Err(errno) => return Err(errno),
        }
        drop(file);
        std::thread::sleep(PAUSE);
    }
}

/// Opens the lock file: in Regent's state folder, or where there is none, among the temporary files.
fn open() -> Result<OwnedFd, Errno> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let state = state.map(|state| state.join("regent"));
    let shared = std::env::temp_dir().join(format!("regent-{}", rustix::process::geteuid().as_raw()));
    let mut last = Errno::NOENT;
    for folder in state.into_iter().chain([shared]) {
        match open_in(&folder) {
            Ok(file) => return Ok(file),
            Err(errno) => last = errno,
        }
    }
    Err(last)
}

/// The lock file of a folder that nobody else can write.
fn open_in(folder: &Path) -> Result<OwnedFd, Errno> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(errno)?;
    let found = std::fs::symlink_metadata(folder).map_err(errno)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(Errno::PERM);
    }
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    options.open(folder.join("sandbox.lock")).map(OwnedFd::from).map_err(errno)
}
