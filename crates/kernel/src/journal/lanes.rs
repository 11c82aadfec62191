//! The lanes that a task has steps in: resuming it reads these alone.
//!
//! The kernel notes a lane in the shared state when the intent of a step is recorded there, and before the call takes effect. A note is
//! complete, or says that it isn't; without a complete one all lanes are read. So a lost note costs time, and no step runs twice.

use std::collections::BTreeSet;

use regent_ledger::LaneId;
use regent_store::{self as store, Partition, StateError, key_part};
use regent_wire::TaskId;

use crate::call::Call;
use crate::kernel::Core;

/// After this time all lanes are read again.
const KEPT_MS: i64 = 90 * 24 * 60 * 60 * 1000;

impl Core {
    /// The lanes that these tasks have steps in; none if that isn't known of each.
    pub(super) async fn noted_lanes(&self, tasks: &[TaskId]) -> Result<Option<BTreeSet<LaneId>>, StateError> {
        let mut all = BTreeSet::new();
        for task in tasks {
            let key = self.key_of(task);
            let noted = store::load(&*self.state, &key, &Partition::containing(&key)).await?;
            let Some(Some::<BTreeSet<LaneId>>(lanes)) = noted else { return Ok(None) };
            all.extend(lanes);
        }
        Ok(Some(all))
    }

    /// Notes that the task of this call has a step in a lane.
    pub(crate) async fn note_lane(&self, call: &Call, lane: LaneId) -> Result<(), StateError> {
        let Some(step) = call.principal.step() else { return Ok(()) };
        let known = self.journal.lanes().get(&step.task).cloned();
        if known.as_ref().is_some_and(|known| known.noted.contains(&lane)) {
            return Ok(());
        }
        let (key, until_ms) = (self.key_of(&step.task), self.clock.now_ms().saturating_add(KEPT_MS));
        let keys = [key.clone()];
        store::change(&*self.state, &Partition::containing(&key), &keys, |records| {
            let noted: Option<Option<BTreeSet<LaneId>>> = records.load(&key)?;
            // Until the task is read, its earlier lanes are unknown.
            let lanes = noted.unwrap_or_else(|| known.as_ref().map(|known| known.all.clone()));
            records.save(&key, &lanes.map(|lanes| &lanes | &BTreeSet::from([lane])), until_ms)
        })
        .await?;
        if let Some(known) = self.journal.lanes().get_mut(&step.task) {
            known.all.insert(lane);
            known.noted.insert(lane);
        }
        Ok(())
    }

    pub(super) fn key_of(&self, task: &TaskId) -> String {
        format!("task/{}/{task}", key_part(&self.workspace.root().to_string_lossy()))
    }
}
