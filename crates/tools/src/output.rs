//! What drivers share: failures with a code, bounded results, work that may block.

use std::pin::pin;
use std::task::{Context, Waker};

use regent_kernel::{ExecuteError, PathError, Permit, StopFlag, ToolFailure, Workspace, tier};

use crate::tool::ToolError;

/// What a driver gives: a result, the tool's own failure, or a fault of ours.
pub(crate) type DriverResult<T> = Result<T, ToolError>;

/// A failure with a stable code.
pub(crate) fn failure(code: &str, message: impl Into<String>) -> ToolFailure {
    ToolFailure { code: code.to_owned(), message: message.into() }
}

/// The failure of a path, in a sentence that names it.
pub(crate) fn path_failure(path: &str, error: &PathError) -> ToolFailure {
    failure(error.code(), format!("`{}`: {error}", path.escape_debug()))
}

/// The failure of reading or writing what was already open.
pub(crate) fn io_failure(path: &str, error: &std::io::Error) -> ToolFailure {
    failure("fs.failed", format!("`{}`: {error}", path.escape_debug()))
}

/// Runs work on the workspace on a thread that may wait for a disk. Once the call is cancelled, the work changes nothing more: a call that
/// has ended leaves no effect behind it.
pub(crate) async fn on_files<T: Send + 'static>(
    permit: &Permit<'_, tier::Host>,
    work: impl FnOnce(&Workspace) -> T + Send + 'static,
) -> Result<T, ExecuteError> {
    let workspace = permit.workspace().clone();
    blocking(permit, move |stop| work(&workspace.stopped_by(stop))).await
}

/// Runs work that may block on a thread that may, and stops it when the call is cancelled.
pub(crate) async fn blocking<T: Send + 'static>(
    permit: &Permit<'_, tier::Host>,
    work: impl FnOnce(&StopFlag) -> T + Send + 'static,
) -> Result<T, ExecuteError> {
    let stop = StopFlag::default();
    let seen = stop.clone();
    let mut job = tokio::task::spawn_blocking(move || work(&seen));
    let done = tokio::select! {
        biased;
        done = &mut job => done,
        () = permit.cancelled() => {
            stop.pull();
            job.await
        }
    };
    done.map_err(|error| ExecuteError::Broken(error.to_string()))
}

/// Whether the call has already been cancelled.
pub(crate) fn is_cancelled(permit: &Permit<'_, tier::Host>) -> bool {
    let cancelled = pin!(permit.cancelled());
    cancelled.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// How many bytes of output are left to give.
#[derive(Debug)]
pub(crate) struct OutputRoom {
    bytes_left: usize,
}

impl OutputRoom {
    /// What policy allows, less what the JSON around it needs.
    pub(crate) fn from_permit(permit: &Permit<'_, tier::Host>) -> Self {
        const ENVELOPE_BYTES: usize = 1024;
        let bytes_max = usize::try_from(permit.limits().output_bytes_max).unwrap_or(usize::MAX);
        Self { bytes_left: bytes_max.saturating_sub(ENVELOPE_BYTES) }
    }

    /// Takes room for one more value, if there is some.
    pub(crate) fn take(&mut self, value: &serde_json::Value) -> bool {
        // Counted as it will be written, comma included.
        let bytes = value.to_string().len() + 1;
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                true
            }
            None => false,
        }
    }

    /// How much text fits at all.
    pub(crate) fn bytes_left(&self) -> usize {
        self.bytes_left
    }
}
