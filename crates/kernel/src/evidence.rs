//! Whether a call that a crash cut off took effect.
//!
//! A tool that changes one file says beforehand what the file will hold ([`Executor::foresee`](crate::Executor::foresee)). The kernel
//! reads the file, and the intent records both digests. After a crash the kernel reads the file again and compares: the content after
//! means done, the content before means not done. Anything else, an error included, means that nobody can know, and a person is asked.
//!
//! The digests are in a payload with a random salt. The entry names the payload by its digest, so it says nothing about the content of
//! the file, and the payload is encrypted and erased like the arguments.

#[cfg(test)]
mod tests;

use std::io::Read as _;
use std::sync::Arc;

use regent_ledger::{Digest, Payload};
use regent_policy::{Access, Tier, Verdict};
use regent_wire::body::IntentBody;
use regent_workspace::{PathError, Workspace};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::call::Call;
use crate::executor::{Foreseen, RawOutput};
use crate::facts::{Sheet, Target};
use crate::journal::Doubt;
use crate::kernel::Core;

/// Larger files are not compared.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// What the intent of a call records about the file that the call writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evidence {
    /// None if the call was expected to fail.
    after: Option<Digest>,
    /// None if the file did not exist.
    before: Option<Digest>,
    path: String,
    salt: String,
}

/// Where the evidence of an intent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EvidenceRef {
    payload: Digest,
    /// Somebody vouches for the intent. If nobody does, anyone with access to the ledger's folder may have written it: then it can
    /// show that the call is still to be made, which is judged anew, and never that the call was made.
    pub(crate) proven: bool,
}

impl EvidenceRef {
    /// The evidence that an intent names; `proven` is whether somebody vouches for the intent.
    pub(crate) fn named(intent: &IntentBody<'_>, proven: bool) -> Option<Self> {
        intent.evidence.map(|payload| Self { payload: payload.sha256, proven })
    }
}

/// What became of a call in doubt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Done(Evidence),
    NotDone,
    Unknown,
}

impl Evidence {
    /// Compares the file with the evidence. A file that the call would have left as it was counts as done.
    fn check(self, workspace: &Workspace, proven: bool) -> Effect {
        let Ok(content) = content_of(workspace, &self.path) else { return Effect::Unknown };
        let now = content.as_deref().map(Digest::of);
        if proven && now.is_some() && now == self.after {
            Effect::Done(self)
        } else if now == self.before {
            Effect::NotDone
        } else {
            Effect::Unknown
        }
    }

    /// What the caller receives instead of the tool's own result.
    pub(crate) fn output(&self) -> RawOutput {
        let obtained = json!({"recovered": true, "sha256": self.after});
        RawOutput::json(&json!({"path": self.path, "recovered": true})).with_obtained(obtained)
    }

    pub(crate) fn targets(&self) -> Vec<Target> {
        vec![Target::Path { path: self.path.clone(), access: Access::Write }]
    }
}

impl Core {
    /// The evidence for the intent of a call that will run, if its tool can foresee what the call does.
    pub(crate) async fn foresee(&self, call: &Call, sheet: &Sheet, verdict: &Verdict) -> Option<Payload> {
        let (Verdict::Allow(grant), Some(tool)) = (verdict, &sheet.tool) else { return None };
        let [Target::Path { path, access: Access::Write }] = sheet.resources.as_slice() else { return None };
        if grant.tier != Tier::Host || sheet.is_idempotent(&call.op) {
            return None;
        }
        let (workspace, tool, path) = (self.workspace.clone(), Arc::clone(tool), path.clone());
        let args = sheet.args.clone();
        // Both contents are read and hashed: milliseconds, so another thread does it.
        let foreseen = move || {
            let content = content_of(&workspace, &path).ok()?;
            let after = match tool.driver().foresee(&args, content.as_deref())? {
                Foreseen::Holds(content) if content.len() as u64 > FILE_BYTES_MAX => return None,
                Foreseen::Holds(content) => Some(Digest::of(&content)),
                Foreseen::Fails => None,
            };
            let mut salt = [0_u8; 16];
            getrandom::fill(&mut salt).ok()?;
            let salt = format!("{:032x}", u128::from_ne_bytes(salt));
            let evidence = Evidence { after, before: content.as_deref().map(Digest::of), path, salt };
            serde_json::to_vec(&evidence).ok().map(Payload::new)
        };
        tokio::task::spawn_blocking(foreseen).await.ok().flatten()
    }

    /// Looks whether a call in doubt took effect. An intent without evidence, or with erased evidence, tells nothing.
    pub(crate) async fn effect_of(&self, evidence: Option<EvidenceRef>) -> Effect {
        let Some(EvidenceRef { payload, proven }) = evidence else { return Effect::Unknown };
        let (ledger, workspace) = (self.recorder.ledger.clone(), self.workspace.clone());
        let look = move || {
            let payload = ledger.payload(&payload).ok().flatten();
            let evidence = payload.and_then(|bytes| serde_json::from_slice::<Evidence>(&bytes).ok());
            evidence.map_or(Effect::Unknown, |evidence| evidence.check(&workspace, proven))
        };
        tokio::task::spawn_blocking(look).await.unwrap_or(Effect::Unknown)
    }

    /// The same for a call that is about to be made. What the kernel refuses by itself isn't looked at: it stays refused.
    pub(crate) async fn look(&self, doubt: &Doubt, sheet: &Sheet) -> Effect {
        if sheet.refusal.is_some() || sheet.tool.is_none() {
            return Effect::Unknown;
        }
        self.effect_of(doubt.evidence).await
    }
}

/// What a file holds, none if it doesn't exist. No link is followed. Any other error is an error: it is not "absent".
fn content_of(workspace: &Workspace, path: &str) -> Result<Option<Vec<u8>>, PathError> {
    let file = match workspace.open_read(path) {
        Ok(file) => file,
        Err(PathError::NotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    let read = file.take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut content);
    read.map_err(|error| PathError::Os(error.to_string()))?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(PathError::TooLarge { bytes_max: FILE_BYTES_MAX });
    }
    Ok(Some(content))
}
