//! Work that waits for a disk, in the middle of an async task.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs what waits for a disk. The other tasks of this worker thread continue on another one. A runtime with one thread has nowhere to
/// send them: there it runs in place.
pub(crate) fn off_worker<T>(work: impl FnOnce() -> T) -> T {
    let has_others =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if has_others { tokio::task::block_in_place(work) } else { work() }
}
