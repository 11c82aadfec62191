//! Looks at what was done for a request, before its answer is called one.

use std::io::ErrorKind;

use regent_kernel::{SideEffect, Status, Tier};
use regent_wire::body::EndStatus;

use super::Inner;
use crate::agent::DENIED;
use crate::task::{Deed, DeedKind, Mode, Recorded, TaskRecord, doubt, turn_of};

/// A name in a request that is longer isn't looked for.
const NAME_BYTES_MAX: usize = 200;

impl Inner {
    /// Why the answer to the last request isn't borne out by the calls that were made for it. What can't be looked up speaks for nobody.
    pub(super) fn doubt_of(&self, record: &TaskRecord) -> Option<String> {
        if record.spec.mode == Mode::Plan {
            return None;
        }
        let (since, request) =
            record.said.last().map_or((1, record.spec.goal.as_str()), |said| (said.turn, said.text.as_str()));
        let tapes = self.tapes(std::slice::from_ref(&record.task)).ok()?;
        let steps = tapes.get(&record.task)?.steps.iter();
        let asked = steps.filter(|step| turn_of(&step.step).is_some_and(|turn| turn >= since));
        let asked: Vec<&Recorded> = asked.collect();
        // Whoever denied a call knows that it wasn't made.
        if asked.iter().any(|step| step.code.as_deref() == Some(DENIED)) {
            return None;
        }
        let deeds: Vec<Deed> = asked.into_iter().filter_map(|step| self.deed(step)).collect();
        let workspace = self.options.snapshots.as_ref().map(|checkpoints| &checkpoints.workspace);
        doubt(request, record.reads_only(), &deeds, |name| {
            let Some(workspace) = workspace.filter(|_| name.len() <= NAME_BYTES_MAX) else { return true };
            let found = std::fs::symlink_metadata(workspace.root().join(name));
            !matches!(found, Err(error) if error.kind() == ErrorKind::NotFound)
        })
    }

    fn deed(&self, step: &Recorded) -> Option<Deed> {
        let tool = self.kernel.tool(step.tool.as_deref()?)?;
        let (end, spec) = (step.end.as_ref(), tool.spec());
        let kind = match spec.effect {
            SideEffect::None | SideEffect::Read => DeedKind::Looks,
            _changes if !spec.tiers.contains(&Tier::Host) => DeedKind::Program,
            SideEffect::Delete => DeedKind::Removes,
            SideEffect::Write | SideEffect::Network => DeedKind::Changes,
        };
        let went_well = end.is_some_and(|end| matches!(end.status, EndStatus::Ended(Status::Ok)));
        let args = step.args.and_then(|digest| self.owner.records.payload_of(step.entry, &digest).ok()?);
        let args = args.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        Some(Deed { tool: spec.name.clone(), args, kind, went_well })
    }
}
