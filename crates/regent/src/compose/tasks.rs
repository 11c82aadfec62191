//! The runtime over a kernel that is up: where its locks and pictures are, and who asks the person.

use std::sync::Arc;

use regent_runtime::door::Asker;
use regent_runtime::snapshot::{SnapshotOptions, Snapshots};
use regent_runtime::{Checkpoints, Options, Runtime};

use super::Running;
use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::paths::make_private;

/// Tasks that run side by side in one process.
const RUNNING_MAX: usize = 64;
/// A picture of the workspace is taken after each turn that changed something; the runtime leaves some out where that takes long.
const PICTURE_EVERY_TURNS: u32 = 1;
const PICTURE_EVERY_MS: u64 = 60_000;

/// A runtime that keeps its locks and pictures outside the project: what comes with a download must not bring its own.
pub(crate) fn runtime(
    context: &Context,
    running: &Running,
    asker: Option<Arc<dyn Asker>>,
) -> Result<Runtime, Failure> {
    let folder = context.paths.tasks(&context.project()?.root);
    make_private(&folder)?;
    let store = Snapshots::open(&folder.join("snapshots"), SnapshotOptions::default())
        .map_err(|error| Failure::new(codes::IO, error.to_string()))?;
    let checkpoints =
        Checkpoints { store: Arc::new(store), every_turns: PICTURE_EVERY_TURNS, every_ms: PICTURE_EVERY_MS };
    let options = Options {
        asker,
        running_max: RUNNING_MAX,
        locks: Some(folder.join("locks")),
        snapshots: Some(checkpoints),
        ..Options::default()
    };
    Ok(Runtime::new(running.kernel.clone(), options))
}
