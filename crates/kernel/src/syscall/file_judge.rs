//! What policy says to reading files of the workspace, asked of many files at once and answered without reading any.

use std::sync::Arc;

use regent_policy::{Access, Facts, Verdict};
use serde_json::{Value, json};

use super::Fault;
use crate::call::{Call, Op, ToolCall};
use crate::catalogue::{Tool, ToolSpec};
use crate::facts::{Sheet, Target};
use crate::kernel::Core;

/// The tool that a program's own reading is compared with.
const READ_TOOL: &str = "fs.read";

/// Judges `fs.read` of one path after the other for the same caller. Nothing is recorded, and no rate or approval is taken: nothing is
/// done.
#[derive(Debug)]
pub struct ReadJudge<'s> {
    core: &'s Arc<Core>,
    call: Call,
    sheet: Sheet,
}

impl<'s> ReadJudge<'s> {
    pub(super) async fn new(core: &'s Arc<Core>, nested: impl FnOnce(Op) -> Call) -> Result<Self, Fault> {
        let call = nested(Op::RunTool(ToolCall { tool: READ_TOOL.to_owned(), args: json!({"path": "."}) }));
        let mut sheet = core.facts(&call).await?;
        if sheet.tool.is_none() {
            // A kernel without file tools still has rules about files.
            let spec = ToolSpec {
                name: READ_TOOL.to_owned(),
                input: json!({}),
                capabilities: vec!["file.read".to_owned()],
                ..ToolSpec::default()
            };
            sheet.tool = Tool::new(spec).ok().map(Arc::new);
        }
        Ok(Self { core, call, sheet })
    }

    /// Whether reading a file, by its path in the workspace, is something that no rule asks about or denies.
    ///
    /// Where no rule speaks of the file at all, the answer is yes: whoever allowed the program the workspace, and wrote no rule about
    /// reading, meant it to be read.
    pub fn may_read(&mut self, path: &str) -> bool {
        if let Some(slot) = self.sheet.args.pointer_mut("/path") {
            *slot = Value::String(path.to_owned());
        } else {
            self.sheet.args = json!({"path": path});
        }
        self.sheet.resources = vec![Target::Path { path: path.to_owned(), access: Access::Read }];
        let Self { core, call, sheet } = self;
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
