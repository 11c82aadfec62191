//! The message to a host whose user has to approve a call. Calls of one cause refer to the first of them, so that the host can show one question.

use std::collections::HashMap;

use regent_kernel::Ticket;
use regent_wire::judge::JudgeDecision;
use serde_json::Value;

use super::{Judged, WaitingDecision};

/// The answer to `decide`, given the calls that wait.
pub(super) fn answer(waiting: &HashMap<String, WaitingDecision>, ticket: &Ticket) -> JudgeDecision {
    let question = &ticket.question;
    let reason = match &question.quote {
        Some(quote) => format!("{}; {quote}", ticket.reason),
        None => ticket.reason.clone(),
    };
    JudgeDecision::Ask {
        asked_with: first_of(waiting, question.cause.as_deref()).cloned(),
        cause: question.cause.clone(),
        intent: ticket.intent.seq,
        question: ticket.summary.clone(),
        reason,
        rule: ticket.rule.clone(),
    }
}

/// The host's id of the first call of this cause that waits for its user.
fn first_of<'w>(waiting: &'w HashMap<String, WaitingDecision>, cause: Option<&str>) -> Option<&'w Value> {
    let asked = waiting.values().filter_map(|one| match &one.state {
        Judged::Asked { cause: its, intent, .. } if cause.is_some() && its.as_deref() == cause => {
            Some((*intent, &one.call.id))
        }
        Judged::Asked { .. } | Judged::Allowed { .. } => None,
    });
    asked.min_by_key(|(intent, _)| *intent).map(|(_, id)| id)
}
