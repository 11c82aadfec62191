//! What deleting, copying and moving have in common: one survey, judged entry by entry, then one act on what was surveyed.

use regent_kernel::{
    ExecuteError, FolderState, Op, PathError, RemoveError, ToolCall, TreeEntry, TreeError, TreeLimits,
};
use serde_json::{Value, json};

use crate::Context;
use crate::output::{DriverResult, failure, is_cancelled, on_files};
use crate::tool::ToolError;

/// How much one call deletes or moves: entries, however large the files are.
pub(super) const TREE: TreeLimits = TreeLimits { entries_max: 10_000, bytes_max: u64::MAX };

/// What is at a path. What is below it takes `recursive`.
pub(super) async fn surveyed(
    permit: &Context<'_>,
    path: &str,
    recursive: Option<bool>,
    limits: TreeLimits,
) -> DriverResult<Vec<TreeEntry>> {
    if path == "." {
        return Err(ToolError::failed(
            "fs.workspace",
            "the workspace itself stays where it is: name something in it",
        ));
    }
    let is_recursive = recursive == Some(true);
    let limits = if is_recursive { limits } else { TreeLimits { entries_max: 1, ..limits } };
    let place = path.to_owned();
    match on_files(permit, move |workspace| workspace.survey(&place, limits)).await? {
        Ok(entries) => {
            // Between the comparison before the call and this survey somebody may have put more into it.
            if !permit.is_as_approved(path, FolderState::of_survey(&entries).as_ref()) {
                let message = format!("`{path}`: what is in it has changed since the call was approved");
                return Err(ToolError::failed("approval.stale", message));
            }
            Ok(entries)
        }
        Err(TreeError { why: PathError::TooManyEntries { .. }, .. }) if !is_recursive => {
            let message = format!("`{path}` is not empty; set `recursive` to include its contents");
            Err(ToolError::failed("fs.not_empty", message))
        }
        Err(error) => Err(tree_failure(&error)),
    }
}

/// What is at `from`, if policy allows the same call with `to` for everything below it.
pub(super) async fn judged(
    permit: &Context<'_>,
    from: &str,
    to: &str,
    recursive: Option<bool>,
    limits: TreeLimits,
) -> DriverResult<Vec<TreeEntry>> {
    let entries = surveyed(permit, from, recursive, limits).await?;
    let moved = |entry: &TreeEntry| format!("{to}{}", entry.path.strip_prefix(from).unwrap_or_default());
    judge_below(permit, &entries, |entry| json!({"from": entry.path, "to": moved(entry)})).await?;
    Ok(entries)
}

/// Asks policy about everything below the root, as if each had been named by itself. `args` are the arguments of that call. What somebody
/// would be asked about isn't allowed either: its own call asks.
pub(super) async fn judge_below(
    permit: &Context<'_>,
    entries: &[TreeEntry],
    args: impl Fn(&TreeEntry) -> Value,
) -> DriverResult<()> {
    let Op::RunTool(run) = permit.call().op() else {
        let message = "a tree can only be judged within a call of a tool".to_owned();
        return Err(ExecuteError::Broken(message).into());
    };
    for entry in entries.iter().skip(1) {
        if is_cancelled(permit) {
            return Err(failure("fs.stopped", "the call was cancelled; nothing was changed").into());
        }
        let op = Op::RunTool(ToolCall { tool: run.tool.clone(), args: args(entry) });
        if !permit.would_allow(op).await {
            let message = format!(
                "nothing was changed: policy doesn't simply allow this for `{}`; make the call for that one by itself",
                entry.path.escape_debug()
            );
            return Err(failure("fs.refused_below", message).into());
        }
    }
    Ok(())
}

pub(super) fn tree_failure(error: &TreeError) -> ToolError {
    failure(error.why.code(), sentence(error)).into()
}

/// The failure of a removal, which says what it has done.
pub(super) fn removal_failure(RemoveError { removed, cause }: &RemoveError, entries: usize) -> ToolError {
    let done = match removed {
        0 => "nothing was deleted".to_owned(),
        removed => format!("{removed} of {entries} entries are deleted"),
    };
    failure(cause.why.code(), format!("{}; {done}", sentence(cause))).into()
}

fn sentence(TreeError { name, why }: &TreeError) -> String {
    // The name is fit for people already.
    if *why == PathError::Changed {
        return format!("`{name}` changed while the call ran; repeat the call");
    }
    format!("`{name}`: {why}")
}

#[cfg(test)]
mod tests;
