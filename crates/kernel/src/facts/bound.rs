//! What an approval is bound to.

use regent_ledger::{CanonicalJson, Digest};
use regent_workspace::Workspace;
use serde_json::json;

use super::Sheet;
use crate::call::{Call, CallDigest};
use crate::journal::Doubt;
use crate::syscall::Fault;

impl Sheet {
    /// What an approval is bound to: who, what, where, and what the named files hold now.
    pub(crate) fn digest(&self, call: &Call, workspace: &Workspace) -> Result<CallDigest, Fault> {
        if let Some(Doubt { lane, seq, .. }) = self.doubt {
            return Ok(CallDigest::in_doubt(workspace, lane, seq));
        }
        let task: Vec<String>;
        // An agent that resumes a task is a new one; what a person agreed to holds for the task.
        let chain = match call.principal.step() {
            Some(step) => {
                task = vec![
                    call.principal.sponsor().to_owned(),
                    format!("task:{}", step.task),
                    call.principal.name().to_owned(),
                ];
                &task
            }
            None => call.principal.chain(),
        };
        let held = |name: &String| workspace.digest_of(name).map(|digest| (name.clone(), digest));
        let bound = json!({
            "args": self.args,
            "chain": chain,
            "files": self.named.iter().filter_map(held).collect::<Vec<_>>(),
            "op": call.op.name(),
            "root": workspace.root().to_string_lossy(),
            "tool": self.tool.as_ref().map(|tool| (&tool.spec().name, tool.digest())),
        });
        Ok(CallDigest(Digest::of(CanonicalJson::of(&bound)?.as_str().as_bytes())))
    }
}
