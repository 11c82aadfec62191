//! `workspace.restore`: what `regent task rollback` calls, so that policy judges it and the ledger has it before a file changes.

use std::path::PathBuf;

use regent_kernel::{BoxFuture, RawOutput, ToolSpec};
use regent_runtime::snapshot::{SnapshotOptions, Snapshots, restore_spec, run_restore};
use regent_tools::{Context as Lent, HostTool, ToolError};

/// The tool, over the store of one project.
pub(super) struct Restoring(pub(super) PathBuf);

impl HostTool for Restoring {
    fn spec(&self) -> ToolSpec {
        restore_spec()
    }

    fn run<'s>(&'s self, permit: &'s Lent<'s>) -> BoxFuture<'s, Result<RawOutput, ToolError>> {
        Box::pin(async move {
            let (folder, workspace, args) =
                (self.0.clone(), permit.workspace().clone(), permit.args().clone());
            // It ends once begun: half of it would be worse than all of it.
            let done = tokio::task::spawn_blocking(move || {
                match Snapshots::open(&folder, SnapshotOptions::default()) {
                    Ok(store) => run_restore(&store, &workspace, &args),
                    Err(error) => RawOutput::failed("snapshot.store", error.to_string()),
                }
            });
            done.await.map_err(|error| ToolError::failed("snapshot.broke", error.to_string()))
        })
    }
}
