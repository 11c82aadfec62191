//! The changes that policy makes to a call's arguments, until the call is final.

use regent_policy::{Reason, Verdict};

use super::{Sheet, refusal};
use crate::call::{Call, Op};
use crate::kernel::Core;

/// A change can make another rule match, which wants a change of its own. A policy that isn't content after so many has no final call.
const ROUNDS_MAX: usize = 4;

impl Core {
    /// Changes the arguments as policy demands and judges the result again, because a change can move a path or a host. The strictest of
    /// all verdicts holds. Afterwards the sheet is that of the final call: what is asked about, bound, recorded and run.
    pub(crate) async fn transform(&self, call: &Call, sheet: &mut Sheet, mut verdict: Verdict) -> Verdict {
        if !matches!(call.op, Op::RunTool(_) | Op::Elsewhere(_)) {
            return Verdict::Deny(not_a_tool());
        }
        let mut changes = verdict.transforms().to_vec();
        for _round in 0..ROUNDS_MAX {
            let mut args = sheet.args.clone();
            for change in &changes {
                change.apply(&mut args);
            }
            let before = sheet.take_args();
            sheet.resources.clear();
            sheet.mentioned.clear();
            sheet.added.clear();
            let tool = sheet.tool.take();
            self.facts_of_tool(sheet, call, tool, args);
            sheet.fix_args();
            if sheet.refusal.is_none() && sheet.args == before {
                return verdict;
            }
            let judged = self.decide(call, sheet).await;
            changes = judged.transforms().to_vec();
            verdict = verdict.stricter(judged);
            if matches!(verdict, Verdict::Deny(_)) {
                return verdict;
            }
        }
        Verdict::Deny(unsettled())
    }
}

fn not_a_tool() -> Reason {
    refusal("transform.not_a_tool", "only a tool's arguments can be transformed".to_owned(), "")
}

fn unsettled() -> Reason {
    let message = format!(
        "policy still changes the arguments after {ROUNDS_MAX} rounds, so there is no final call to judge"
    );
    refusal(
        "transform.unsettled",
        message,
        "use `regent policy why` to find rules whose `set` undo or trigger each other",
    )
}
