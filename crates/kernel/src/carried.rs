//! Labels that files carry, by what is in them. What an agent wrote is as tainted as the agent was, whoever reads it, under whatever name:
//! laundering through a scratch file cleans nothing. What a program in a sandbox writes by itself isn't seen here; its files count as files.

use regent_policy::{Access, ArgLabels, Confidentiality, Integrity, Label};
use regent_store::{self as store, StateError};
use regent_workspace::PathError;

use crate::facts::{Sheet, Target};
use crate::kernel::Core;
use crate::syscall::{Fault, Frame, Status};

/// How long a label is kept for a file that nobody reads.
const KEPT_MS: i64 = 365 * 24 * 60 * 60 * 1000;

impl Core {
    /// The labels of the files that a call has read, joined.
    pub(crate) fn carried(&self, frame: &Frame) -> Result<Option<Label>, Fault> {
        let mut all: Option<Label> = None;
        let Ok(keys) = self.keys(frame, Access::Read) else {
            // What can't be looked at may carry any label.
            return Ok(Some(ArgLabels::default().default));
        };
        for key in keys {
            if let Some(bytes) = self.state.get(&key)? {
                let label: Label = store::parse(&key, &bytes)?;
                all = Some(all.map_or(label, |so_far| so_far.join(label)));
            }
        }
        Ok(all)
    }

    /// Notes the label of what a call has written. It only rises.
    pub(crate) fn carry(&self, frame: &Frame, sheet: &Sheet, status: &Status) -> Result<(), Fault> {
        let label = sheet.labels.default;
        let plain =
            label.integrity <= Integrity::OwnModel && label.confidentiality <= Confidentiality::Internal;
        if plain || *status != Status::Ok {
            return Ok(());
        }
        let until_ms = self.clock.now_ms().saturating_add(KEPT_MS);
        let unlabelled = |error: PathError| StateError::Unusable(format!("a label can't be noted: {error}"));
        for key in self.keys(frame, Access::Write).map_err(unlabelled)? {
            store::change(&*self.state, |records| {
                let before: Option<Label> = store::load(records, &key)?;
                store::save(records, &key, &before.map_or(label, |before| before.join(label)), until_ms)
            })?;
        }
        Ok(())
    }

    /// Where the labels of the files are that an agent's call reached for in this way.
    fn keys(&self, frame: &Frame, way: Access) -> Result<Vec<String>, PathError> {
        let mut keys = Vec::new();
        let agents_only = frame.call.principal.life().map(|_| frame.targets.iter());
        for target in agents_only.into_iter().flatten() {
            let Target::Path { path, access } = target else { continue };
            if *access != way || path.starts_with("vfs:") {
                continue;
            }
            match self.workspace.content_digest(path) {
                Ok(digest) => keys.extend(digest.map(|digest| format!("label/{digest}"))),
                // No tool reads or writes these.
                Err(PathError::Special | PathError::Reserved | PathError::OtherMount) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(keys)
    }
}
