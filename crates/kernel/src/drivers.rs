//! The kernel's own effects: what the operations that aren't tools do, once they are permitted.

use std::sync::Arc;

use serde_json::json;

use crate::call::Op;
use crate::executor::{BoxFuture, ExecuteError, RawOutput};
use crate::kernel::Core;
use crate::syscall::{Permit, tier};

#[expect(clippy::wildcard_enum_match_arm, reason = "the other drivers take the place of this arm")]
pub(crate) fn perform<'s>(
    core: &'s Arc<Core>,
    permit: Permit<'s, tier::Host>,
) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
    let call = permit.call();
    Box::pin(async move {
        match call.op() {
            Op::Answer { ticket, answer } => core.answer(ticket, answer, call.principal()),
            Op::Questions => Ok(RawOutput::json(&json!(core.approvals.list()?))),
            Op::SetBudget { scope, limits } => {
                core.budgets.set(scope, *limits)?;
                Ok(RawOutput::json(&json!({"scope": scope, "limits": limits})))
            }
            other => Err(ExecuteError::NoDriver(other.name().to_owned())),
        }
    })
}
