//! What policy says to reading or writing files of the workspace, asked of many files at once and answered without touching any.

use std::sync::Arc;

use regent_policy::{Access, Facts, Verdict};
use serde_json::{Value, json};

use super::Fault;
use crate::agent::Slot;
use crate::call::{Call, Op, ToolCall};
use crate::catalogue::{Tool, ToolSpec};
use crate::facts::{Sheet, Target};
use crate::kernel::Core;

/// The tools that a program's own use of files is compared with, and their capabilities.
const READ: (&str, &str) = ("fs.read", "file.read");
const WRITE: (&str, &str) = ("fs.write", "file.write");

/// Judges `fs.read` or `fs.write` of one path after the other for the same caller. Nothing is recorded, and no rate or approval is
/// taken: nothing is done.
#[derive(Debug)]
pub struct FileJudge {
    core: Arc<Core>,
    call: Call,
    sheet: Sheet,
    access: Access,
}

impl FileJudge {
    pub(super) async fn reading(core: &Arc<Core>, nested: impl FnOnce(Op) -> Call) -> Result<Self, Fault> {
        Self::new(core, nested, READ, Access::Read).await
    }

    pub(super) async fn writing(core: &Arc<Core>, nested: impl FnOnce(Op) -> Call) -> Result<Self, Fault> {
        Self::new(core, nested, WRITE, Access::Write).await
    }

    async fn new(
        core: &Arc<Core>,
        nested: impl FnOnce(Op) -> Call,
        (tool, capability): (&str, &str),
        access: Access,
    ) -> Result<Self, Fault> {
        let call = nested(Op::RunTool(ToolCall { tool: tool.to_owned(), args: json!({"path": "."}) }));
        let mut sheet = core.facts(&call).await?;
        if sheet.tool.is_none() {
            // A kernel without file tools still has rules about files.
            let spec = ToolSpec {
                name: tool.to_owned(),
                input: json!({}),
                capabilities: vec![capability.to_owned()],
                ..ToolSpec::default()
            };
            sheet.tool = Tool::new(spec).ok().map(Arc::new);
        }
        // A judge can live as long as a program. No call is made, so it holds no place in the session's count meanwhile.
        let session = sheet.slot.session;
        sheet.slot = Slot::default();
        sheet.slot.session = session;
        Ok(Self { core: Arc::clone(core), call, sheet, access })
    }

    /// Whether the access to a file, by its path in the workspace, is something that no rule asks about or denies.
    ///
    /// Where no rule speaks of the file at all, the answer is yes: whoever allowed the program the workspace, and wrote no rule about
    /// files, meant it to be used.
    pub fn allows(&mut self, path: &str) -> bool {
        if let Some(slot) = self.sheet.args.pointer_mut("/path") {
            *slot = Value::String(path.to_owned());
        } else {
            self.sheet.args = json!({"path": path});
        }
        self.sheet.resources = vec![Target::Path { path: path.to_owned(), access: self.access }];
        let Self { core, call, sheet, .. } = self;
        let verdict = core.with_facts(call, sheet, |policy, facts| {
            let own = policy.foresee(&facts);
            call.principal.agents_above().fold(own, |so_far, above| {
                let facts = Facts { caller: above.as_caller(core.agents.trust(above)), ..facts };
                so_far.narrowed(policy.foresee(&facts), above.name())
            })
        });
        match verdict {
            Verdict::Allow(_) => true,
            Verdict::Ask(_) => false,
            Verdict::Deny(reason) => reason.rule.is_none(),
        }
    }
}
