//! Sockets that only our own user can connect to, for as long as they are served.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tokio::task::AbortHandle;

/// A served socket. Dropping it ends the service and removes the socket.
#[derive(Debug)]
pub struct Listening {
    path: PathBuf,
    task: AbortHandle,
}

impl Listening {
    /// A socket at this path, served by this task.
    pub fn new(path: PathBuf, task: AbortHandle) -> Self {
        Self { path, task }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
        // A socket that stays behind is swept by the next kernel.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Binds under the name `unready`, and takes `path` when the mode is right: no client ever finds a socket that can't be connected to,
/// or one that others can connect to.
pub fn bind_private(path: &Path, unready: &Path) -> io::Result<UnixListener> {
    drop(std::fs::remove_file(unready));
    let listener = UnixListener::bind(unready)?;
    let ready = std::fs::set_permissions(unready, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::rename(unready, path));
    ready.inspect_err(|_error| drop(std::fs::remove_file(unready)))?;
    Ok(listener)
}
