//! `fs.delete`: a file, a link, a folder with what is in it.

use regent_kernel::Foreseen;
use serde_json::{Value, json};

use super::tree::{TREE, judge_below, removal_failure, surveyed};
use crate::confidentiality::RECEIPT;
use crate::output::on_files;
use crate::{Context, ToolError, tool};

/// Delete a file, a link or an empty folder, and a folder with everything in it if `recursive`. A link is deleted, not where it leads.
/// Nothing is deleted if policy would not allow it for each file by itself. Returns JSON: path, deleted (files, folders and links).
///
/// - path: what to delete
/// - recursive: delete what is in the folder, too; false if absent
#[tool(name = "fs.delete", effect = "delete", capabilities = ["file.delete"], output = RECEIPT, foresee = foresee)]
pub(crate) async fn delete(
    #[arg(path = "delete")] path: &str,
    recursive: Option<bool>,
    permit: &Context<'_>,
) -> Result<Value, ToolError> {
    let entries = surveyed(permit, path, recursive, TREE).await?;
    judge_below(permit, &entries, |entry| json!({"path": entry.path})).await?;
    let deleted = entries.len();
    on_files(permit, move |workspace| workspace.remove_tree(&entries))
        .await?
        .map_err(|error| removal_failure(&error, deleted))?;
    Ok(json!({"path": path, "deleted": deleted}))
}

fn foresee(_path: &str, _recursive: Option<bool>, _before: Option<&[u8]>) -> Option<Foreseen> {
    Some(Foreseen::Relocates)
}
