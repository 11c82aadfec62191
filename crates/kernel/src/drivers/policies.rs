//! The policy in force, what it would say, and the questions it puts to people.

use std::sync::Arc;

use regent_policy::Verdict;
use serde_json::{Value, json};

use super::{HostPermit, Performed, broken};
use crate::call::{Call, Op};
use crate::executor::RawOutput;
use crate::kernel::Core;

pub(super) fn get(core: &Arc<Core>, _permit: HostPermit<'_>) -> Performed {
    Ok(RawOutput::json(&core.outline()))
}

/// Decides on a call without making it: the same facts, the same rules, but nothing is asked, counted or done.
pub(super) async fn check(core: &Arc<Core>, permit: HostPermit<'_>, op: &Op) -> Performed {
    let call = Call {
        principal: permit.call().principal().clone(),
        op: op.clone(),
        parent: Some(permit.intent().seq),
        depth: permit.call().depth,
        within: permit.call().within.clone(),
        listener: None,
    };
    let mut sheet = core.facts(&call).await.map_err(broken)?;
    let verdict = core.decide(&call, &mut sheet).await;
    let (grant, code, reason, help) = match &verdict {
        Verdict::Allow(grant) => (Some(grant), None, None, None),
        Verdict::Ask(question) => (Some(&question.grant), None, Some(question.reason.as_str()), None),
        Verdict::Deny(reason) => {
            (None, Some(&*reason.code), Some(reason.message.as_str()), reason.help.as_deref())
        }
    };
    let declassify = grant.map_or(&[][..], |grant| grant.declassify.as_slice());
    let (limits, tier) = (grant.map(|grant| grant.limits), grant.map(|grant| grant.tier));
    let body = json!({
        "code": code, "considered": core.considered(&call, &sheet), "declassify": declassify, "effect": verdict.word(), "help": help, "limits": limits, "reason": reason, "rule": verdict.rule(), "tier": tier,
    });
    Ok(RawOutput::json(&body))
}

impl Core {
    /// The policy in force, as far as it tells about itself.
    pub(crate) fn outline(&self) -> Value {
        let in_force = self.policy();
        json!({"digest": in_force.digest, "layers": in_force.policy.outline()})
    }
}
