//! The policy in force, what it would say, and the questions it puts to people.

use std::sync::Arc;

use regent_policy::Verdict;
use regent_wire::result::{Checked, PolicyView};

use super::{HostPermit, Performed, broken};
use crate::call::{Call, Op};
use crate::executor::RawOutput;
use crate::kernel::Core;

pub(super) fn get(core: &Arc<Core>, _permit: HostPermit<'_>) -> Performed {
    Ok(RawOutput::result(&core.outline()))
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
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(RawOutput::result(&Checked {
        code: owned(code),
        considered: core.considered(&call, &sheet),
        declassify: declassify.to_vec(),
        effect: verdict.word().to_owned(),
        help: owned(help),
        limits: grant.map(|grant| grant.limits),
        reason: owned(reason),
        rule: verdict.rule().cloned(),
        tier: grant.map(|grant| grant.tier),
    }))
}

impl Core {
    /// The policy in force, as far as it tells about itself.
    pub(crate) fn outline(&self) -> PolicyView {
        let in_force = self.policy();
        PolicyView { digest: in_force.digest.clone(), layers: in_force.policy.outline() }
    }
}
