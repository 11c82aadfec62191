//! Whether a call that a crash cut off took effect.
//!
//! A tool that changes files says beforehand what will be at the paths of its arguments ([`Executor::foresee`](crate::Executor::foresee)). The
//! kernel looks at the paths, and the intent records digests of what is there before and after. After a crash the kernel looks again and
//! compares: all as after means done, all as before means not done. Anything else, an error included, means unknown, and a
//! person is asked.
//!
//! The digests are in a payload with a random salt. The entry names the payload by its digest, so it says nothing about the content of
//! the files, and the payload is encrypted and erased like the arguments.

#[cfg(test)]
mod tests;

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

/// What the intent of a call records about the paths that the call changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evidence {
    /// What will be at each path, none for nothing. None at all if the call was expected to fail.
    after: Option<Vec<Option<Digest>>>,
    /// What was at each path, none for nothing.
    before: Vec<Option<Digest>>,
    paths: Vec<(String, Access)>,
    salt: String,
}

/// What a tool said that the one file which it writes will hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Foresight {
    pub(crate) digest: Digest,
    /// Some of what the file holds stays in it: with another content, the tool would write something else, or nothing.
    pub(crate) keeps: bool,
}

/// Where the evidence of an intent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EvidenceRef {
    payload: Digest,
    /// The intent is proven. Otherwise anyone with access to the ledger's folder may have written it: then it can
    /// show that the call is still to be made, which is judged anew, and never that the call was made.
    pub(crate) proven: bool,
}

impl EvidenceRef {
    /// The evidence that an intent names; `proven` is whether the ledger proves the intent.
    pub(crate) fn named(intent: &IntentBody<'_>, proven: bool) -> Option<Self> {
        intent.evidence.map(|payload| Self { payload: payload.sha256, proven })
    }
}

/// What became of a call in doubt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DoubtOutcome {
    Done(Evidence),
    NotDone,
    Unknown,
}

impl Evidence {
    /// Compares the files with the evidence. Files that the call would have left as they were count as done.
    fn check(self, workspace: &Workspace, proven: bool) -> DoubtOutcome {
        let now: Result<Vec<_>, _> = self.paths.iter().map(|(path, _)| workspace.state(path)).collect();
        let Ok(now) = now else { return DoubtOutcome::Unknown };
        if proven && self.after.as_ref() == Some(&now) {
            DoubtOutcome::Done(self)
        } else if now == self.before {
            DoubtOutcome::NotDone
        } else {
            DoubtOutcome::Unknown
        }
    }

    /// What the caller receives instead of the tool's own result.
    pub(crate) fn output(&self) -> RawOutput {
        let (sha256, path) = match (self.after.as_deref(), self.paths.as_slice()) {
            (Some([after]), [(path, _)]) => (*after, Some(path)),
            (_, paths) => (None, paths.last().map(|(path, _)| path)),
        };
        let obtained = json!({"recovered": true, "sha256": sha256});
        RawOutput::json(&json!({"path": path, "recovered": true})).with_obtained(obtained)
    }

    pub(crate) fn targets(&self) -> Vec<Target> {
        let target = |(path, access): &(String, Access)| Target::Path { path: path.clone(), access: *access };
        self.paths.iter().map(target).collect()
    }
}

impl Core {
    /// The evidence for the intent of a call that will run, if its tool can foresee what the call does, and what a file will hold.
    pub(crate) async fn foresee(
        &self,
        call: &Call,
        sheet: &Sheet,
        verdict: &Verdict,
    ) -> Option<(Payload, Option<Foresight>)> {
        let (Verdict::Allow(grant), Some(tool)) = (verdict, &sheet.tool) else { return None };
        if grant.tier != Tier::Host || sheet.is_idempotent(&call.op) {
            return None;
        }
        let paths: Vec<(String, Access)> = sheet.resources.iter().map(path_of).collect::<Option<_>>()?;
        if paths.is_empty() {
            return None;
        }
        let (workspace, tool, args) = (self.workspace.clone(), Arc::clone(tool), sheet.args.clone());
        // Contents are read and hashed: milliseconds, so another thread does it.
        let foreseen = move || {
            let written = paths.iter().position(|(_, access)| *access == Access::Write);
            let content = match written.and_then(|at| paths.get(at)) {
                Some((path, _)) => content_of(&workspace, path).ok()?,
                None => None,
            };
            let foreseen = tool.driver().foresee(&args, content.as_deref())?;
            let before = |(path, _): &(String, Access)| workspace.state(path).ok();
            let before: Vec<Option<Digest>> = paths.iter().map(before).collect::<Option<_>>()?;
            let mut foresight = None;
            let after = match foreseen {
                Foreseen::Fails => None,
                Foreseen::Holds(content) if content.len() as u64 > FILE_BYTES_MAX || paths.len() != 1 => {
                    return None;
                }
                Foreseen::Holds(after) => {
                    let (digest, held) = (Digest::compute(&after), Some(Foreseen::Holds(after)));
                    // Asked about another content: also where nothing is there yet, somebody may write before the tool does.
                    let other = if content.is_some() { None } else { Some(&b"other"[..]) };
                    let keeps = tool.driver().foresee(&args, other) != held;
                    foresight = Some(Foresight { digest, keeps });
                    Some(vec![Some(digest)])
                }
                Foreseen::Relocates => relocated(&paths, &before),
            };
            let mut salt = [0_u8; 16];
            getrandom::fill(&mut salt).ok()?;
            let salt = format!("{:032x}", u128::from_ne_bytes(salt));
            let evidence = serde_json::to_vec(&Evidence { after, before, paths, salt }).ok()?;
            Some((Payload::new(evidence), foresight))
        };
        tokio::task::spawn_blocking(foreseen).await.ok().flatten()
    }

    /// Looks whether a call in doubt took effect. An intent without evidence, or with erased evidence, tells nothing.
    pub(crate) async fn effect_of(&self, evidence: Option<EvidenceRef>) -> DoubtOutcome {
        let Some(EvidenceRef { payload, proven }) = evidence else { return DoubtOutcome::Unknown };
        let (ledger, workspace) = (self.recorder.ledger.clone(), self.workspace.clone());
        let look = move || {
            let payload = ledger.payload(&payload).ok().flatten();
            let evidence = payload.and_then(|bytes| serde_json::from_slice::<Evidence>(&bytes).ok());
            evidence.map_or(DoubtOutcome::Unknown, |evidence| evidence.check(&workspace, proven))
        };
        tokio::task::spawn_blocking(look).await.unwrap_or(DoubtOutcome::Unknown)
    }

    /// The same for a call that is about to be made. What the kernel refuses by itself isn't looked at: it stays refused.
    pub(crate) async fn look(&self, doubt: &Doubt, sheet: &Sheet) -> DoubtOutcome {
        if sheet.refusal.is_some() || sheet.tool.is_none() {
            return DoubtOutcome::Unknown;
        }
        self.effect_of(doubt.evidence).await
    }
}

/// What will be at each path of a call that removes, copies or moves: what is deleted is gone, and what is written is what the other was.
/// None at all where there is nothing to act on: the call is expected to fail.
fn relocated(paths: &[(String, Access)], before: &[Option<Digest>]) -> Option<Vec<Option<Digest>>> {
    let all = || paths.iter().map(|(_, access)| *access).zip(before.iter().copied());
    let source = Some(all().find(|(access, _)| *access != Access::Write)?.1?);
    let after = |(access, digest)| match access {
        Access::Delete => None,
        Access::Write => source,
        Access::Read | Access::Execute | Access::List => digest,
    };
    Some(all().map(after).collect())
}

fn path_of(target: &Target) -> Option<(String, Access)> {
    match target {
        Target::Path { path, access } => Some((path.clone(), *access)),
        Target::Endpoint { .. } | Target::Argv(_) | Target::Secret(_) => None,
    }
}

/// What a file holds, none if it doesn't exist. No link is followed. Any other error is an error: it is not "absent".
fn content_of(workspace: &Workspace, path: &str) -> Result<Option<Vec<u8>>, PathError> {
    match workspace.read_whole(path, FILE_BYTES_MAX) {
        Ok(content) => Ok(Some(content)),
        Err(PathError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
