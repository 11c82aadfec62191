//! `fs.move`: another name for a file or a folder.

use serde_json::{Value, json};

use super::copy::{foresee, placement};
use super::tree::{TREE, judged, tree_failure};
use crate::confidentiality::RECEIPT;
use crate::output::on_files;
use crate::{Context, ToolError, tool};

/// Move or rename a file or a link, and a folder with everything in it if `recursive`, in one step. Missing folders are made. A link is
/// moved, not where it leads. Nothing is moved if policy would not allow it for each file by itself. Returns JSON: from, to, moved (files,
/// folders and links).
///
/// - from: what to move
/// - to: its new name, not the folder to put it in
/// - recursive: move what is in the folder, too; false if absent
/// - overwrite: replace a file that is there; false if absent
#[tool(
    name = "fs.move",
    effect = "delete",
    capabilities = ["file.delete", "file.read", "file.write"],
    reversible,
    output = RECEIPT,
    foresee = foresee
)]
pub(crate) async fn relocate(
    #[arg(path = "delete")] from: &str,
    #[arg(path = "write")] to: &str,
    recursive: Option<bool>,
    overwrite: Option<bool>,
    permit: &Context<'_>,
) -> Result<Value, ToolError> {
    let entries = judged(permit, from, to, recursive, TREE).await?;
    let (place, count) = (to.to_owned(), entries.len());
    let how = placement(overwrite);
    on_files(permit, move |workspace| workspace.rename_to(&entries, &place, how))
        .await?
        .map_err(|error| tree_failure(&error))?;
    Ok(json!({"from": from, "to": to, "moved": count}))
}
