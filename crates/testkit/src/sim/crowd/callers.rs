//! The callers: agents that make calls, and an operator who answers questions.

use std::sync::Arc;

use regent_kernel::{ApprovalAnswer, Fault, Host, Lifecycle, Op, Principal, Reply, Scope, Status};
use serde_json::json;

use super::book::Book;
use super::schedule::pause;
use crate::drivers::run;
use crate::random::Random;

const CALLS_MAX: u64 = 6;
/// How often a call is retried.
const TRIES_MAX: u32 = 12;

/// One agent, one call after another.
pub(super) async fn make_calls(host: Host, agent: Principal, book: Arc<Book>, mut random: Random) {
    for _ in 0..1 + random.below(CALLS_MAX) {
        let tool = match random.below(8) {
            0 | 1 => "ping",
            2 | 3 => "pay",
            4 | 5 => "ask",
            _rest => "mark",
        };
        let mut id = book.fresh_id();
        for _ in 0..TRIES_MAX {
            book.begins(id, tool);
            let reply = host.attached(&agent, run(tool, json!({"id": id}))).await;
            book.ended(id, &reply);
            match reply {
                Ok(Reply::Done(_)) => break,
                Ok(Reply::Pending(ticket)) => book.asks(id, &agent, ticket.id),
                // Another call has reserved the rest of the budget: retry.
                Ok(Reply::Denied(denial)) if denial.reason.code == "budget.held" => {}
                // The agent is suspended, and no one resumes it.
                Ok(Reply::Denied(denial)) if denial.reason.code == "budget.exhausted" => {
                    return book.leaves();
                }
                Ok(Reply::Denied(_)) => break,
                // The disk was full while the agent was being suspended, so the suspension wasn't reported, and no one resumes it.
                Err(Fault::Ledger(_)) if is_suspended(&host, &agent) => return book.leaves(),
                Err(Fault::Ledger(_)) => {}
                // The effect happened, so the call is not repeated.
                Err(Fault::Unrecorded { .. }) => break,
                Err(_over) => return book.leaves(),
            }
            if tool != "ask" {
                id = book.fresh_id();
            }
            pause(1 + random.below(4)).await;
        }
        pause(random.below(3)).await;
    }
    book.leaves();
}

fn is_suspended(host: &Host, agent: &Principal) -> bool {
    let stage = agent.agent_id().and_then(|id| host.lifecycle_of(&host.operator(), id));
    stage == Some(Lifecycle::Suspended)
}

/// The operator approves everything until all callers have left.
pub(super) async fn answer_questions(host: Host, book: Arc<Book>, callers: usize) {
    while book.left() < callers {
        pause(1).await;
        let Some((id, ticket)) = book.next_question() else { continue };
        let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 3_600_000 };
        let op = Op::Answer { ticket: ticket.clone(), with: Vec::new(), answer };
        match host.attached(&host.operator(), op).await {
            Ok(Reply::Done(outcome)) if outcome.status == Status::Ok => book.approved(id),
            // Accepted, rejected, or unrecorded: none of these can be relied on.
            Ok(_) | Err(Fault::Unrecorded { .. }) => {}
            Err(Fault::Ledger(_)) => book.put_back(id, ticket),
            Err(_over) => return,
        }
    }
}
