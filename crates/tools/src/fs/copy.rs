//! `fs.copy`: the same content under another name.

use regent_kernel::{Foreseen, PathError, Placement, TreeEntry, TreeLimits};
use serde_json::{Value, json};

use super::tree::{TREE, judged, tree_failure};
use crate::confidentiality::RECEIPT;
use crate::output::{DriverResult, on_files, path_failure};
use crate::{Context, ToolError, tool};

/// How much one call copies.
const COPIED: TreeLimits = TreeLimits { bytes_max: 1 << 30, ..TREE };

/// Copy a file with its permission bits, and a folder with everything in it if `recursive`. Missing folders are made. The copy appears
/// whole or not at all. Links below a folder are copied as links, and must stay in the workspace. Returns JSON: from, to, copied (files,
/// folders and links), bytes.
///
/// - from: what to copy
/// - to: the name of the copy, not the folder to put it in
/// - recursive: copy what is in the folder, too; false if absent
/// - overwrite: replace a file that is there; false if absent
#[tool(
    name = "fs.copy",
    effect = "write",
    capabilities = ["file.read", "file.write"],
    reversible,
    output = RECEIPT,
    foresee = foresee
)]
pub(crate) async fn copy(
    #[arg(path = "read")] from: &str,
    #[arg(path = "write")] to: &str,
    recursive: Option<bool>,
    overwrite: Option<bool>,
    permit: &Context<'_>,
) -> Result<Value, ToolError> {
    let entries = judged(permit, from, to, recursive, COPIED).await?;
    check_sizes(permit, &entries)?;
    let (place, copied) = (to.to_owned(), entries.len());
    let how = placement(overwrite);
    let bytes = on_files(permit, move |workspace| workspace.copy_tree(&entries, &place, how, COPIED))
        .await?
        .map_err(|error| tree_failure(&error))?;
    Ok(json!({"from": from, "to": to, "copied": copied, "bytes": bytes}))
}

fn check_sizes(permit: &Context<'_>, entries: &[TreeEntry]) -> DriverResult<()> {
    let bytes_max = permit.limits().file_bytes_max;
    match entries.iter().find(|entry| entry.bytes > bytes_max) {
        Some(entry) => Err(path_failure(&entry.path, &PathError::TooLarge { bytes_max }).into()),
        None => Ok(()),
    }
}

pub(super) fn placement(overwrite: Option<bool>) -> Placement {
    if overwrite == Some(true) { Placement::Replace } else { Placement::Create }
}

/// What is at `to` makes the call fail, unless it may be replaced.
pub(super) fn foresee(
    _from: &str,
    _to: &str,
    _recursive: Option<bool>,
    overwrite: Option<bool>,
    before: Option<&[u8]>,
) -> Option<Foreseen> {
    let is_in_the_way = before.is_some() && placement(overwrite) == Placement::Create;
    Some(if is_in_the_way { Foreseen::Fails } else { Foreseen::Relocates })
}
