//! Looks at what was done for a request, before its answer is called one.

use std::io::ErrorKind;

use super::Inner;
use crate::agent::AgentAnswer;
use crate::task::{Mode, TaskRecord, doubt};

/// A name in a request that is longer isn't looked for.
const NAME_BYTES_MAX: usize = 200;

impl Inner {
    /// Why the answer to the last request isn't borne out by the calls that were made for it.
    pub(super) fn doubt_of(&self, record: &TaskRecord, answer: &AgentAnswer) -> Option<String> {
        if record.spec.mode == Mode::Plan {
            return None;
        }
        let request = record.said.last().map_or(record.spec.goal.as_str(), |said| said.text.as_str());
        let workspace = self.options.snapshots.as_ref().map(|checkpoints| &checkpoints.workspace);
        doubt(request, record.reads_only(), &answer.deeds, |name| {
            // Tools have names like files.
            if self.kernel.tool(name).is_some() {
                return None;
            }
            // What can't be looked up speaks for nobody.
            let Some(workspace) = workspace.filter(|_| name.len() <= NAME_BYTES_MAX) else {
                return Some(true);
            };
            let found = std::fs::symlink_metadata(workspace.root().join(name));
            Some(!matches!(found, Err(error) if error.kind() == ErrorKind::NotFound))
        })
    }
}
