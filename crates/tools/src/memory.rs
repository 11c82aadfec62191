//! `memory.remember` and `memory.recall`: what an agent keeps while it lives. Both are calls to the kernel's own memory, judged and
//! labelled there.

use regent_kernel::{
    Confidentiality, ExecuteError, Fault, Integrity, Label, Labelled, Memory, Op, Outcome, Query, RawOutput,
    Region, Reply, Status,
};

use crate::{Context, ToolError, tool};

/// Where an agent's notes are.
const NOTES: Region = Region::Semantic;
const ENTRIES_DEFAULT: u32 = 20;
const KEPT: Label = Label { integrity: Integrity::OwnModel, confidentiality: Confidentiality::Internal };
/// Somebody else may have written what an agent noted, so what comes back counts as read text.
const NOTED: Label = Label { integrity: Integrity::Memory, confidentiality: Confidentiality::Public };

/// Keep a note for later in this task. A note with the same key is replaced. Notes are gone when you end.
///
/// - key: the note's name; letters, digits, `.`, `_` and `-`
/// - content: the note
#[tool(
    name = "memory.remember",
    effect = "write",
    capabilities = ["memory"],
    idempotent,
    reversible,
    cost = "cheap",
    output = KEPT
)]
pub(crate) async fn remember(
    #[schemars(length(min = 1, max = 64))] key: &str,
    #[schemars(length(min = 1, max = 65_536))] content: &str,
    context: &Context<'_>,
) -> Result<RawOutput, ToolError> {
    let memory = Memory { region: NOTES, key: key.to_owned(), content: content.to_owned() };
    let kept = done(context.syscall(Op::Remember(memory)).await)?;
    Ok(RawOutput::new(kept.bytes().to_vec()).with_label(kept.label()))
}

/// Find notes that you kept with memory.remember. Returns JSON: entries (each key, content, label), cut.
///
/// - text: what a note's key or content contains; all notes if absent
/// - entries_max: how many notes at most
#[tool(
    name = "memory.recall",
    effect = "read",
    capabilities = ["memory"],
    idempotent,
    reversible,
    cost = "cheap",
    output = NOTED
)]
pub(crate) async fn recall(
    #[schemars(length(max = 1024))] text: Option<String>,
    #[schemars(range(min = 1, max = 100))] entries_max: Option<u32>,
    context: &Context<'_>,
) -> Result<RawOutput, ToolError> {
    let entries_max = entries_max.unwrap_or(ENTRIES_DEFAULT);
    let query = Query { region: NOTES, text: text.unwrap_or_default(), entries_max };
    let found = done(context.syscall(Op::Recall(query)).await)?;
    Ok(RawOutput::new(found.bytes().to_vec()).with_label(found.label()))
}

/// What the kernel's memory answered. A denial and a failure keep their codes.
fn done(reply: Result<Reply, Fault>) -> Result<Labelled, ToolError> {
    match reply {
        Ok(Reply::Done(Outcome { status: Status::Ok, output, .. })) => Ok(output),
        Ok(Reply::Done(Outcome { status: Status::Failed(failure), .. })) => Err(failure.into()),
        Ok(Reply::Done(outcome)) => Err(ExecuteError::Broken(format!("{:?}", outcome.status)).into()),
        Ok(Reply::Denied(denial)) => Err(ToolError::failed(&denial.reason.code, denial.reason.message)),
        Ok(Reply::Pending(ticket)) => {
            let message = format!("a rule asks first: `regent approve {}`, then call again", ticket.id);
            Err(ToolError::failed("approval.needed", message))
        }
        Err(fault) => Err(ExecuteError::Broken(fault.to_string()).into()),
    }
}
