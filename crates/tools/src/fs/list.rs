//! `fs.list`: what is in a folder.

use serde_json::{Value, json};

use super::{Below, Met, Tour};
use crate::confidentiality::WORKSPACE_FILE;
use crate::output::OutputRoom;
use crate::{Context, ToolError, tool};

const ENTRIES_DEFAULT: usize = 1000;
const ENTRIES_MAX: u64 = 20_000;

/// List a folder, with everything below it if `recursive`. Links are shown, not followed; `.git` is not gone into. Returns JSON: entries
/// (path, kind, bytes), more (there are more than fit), left_out (folders that were not gone into because policy or permissions are
/// against it).
///
/// - path: the folder; `.` is the workspace
/// - recursive: false if absent
/// - entries_max: how many at most; 1000 if absent
#[tool(
    name = "fs.list",
    effect = "read",
    capabilities = ["file.list"],
    idempotent,
    reversible,
    output = WORKSPACE_FILE
)]
pub(crate) async fn list(
    #[arg(path = "list")] path: &str,
    recursive: Option<bool>,
    #[schemars(range(min = 1, max = ENTRIES_MAX))] entries_max: Option<usize>,
    permit: &Context<'_>,
) -> Result<Value, ToolError> {
    let entries_max = entries_max.unwrap_or(ENTRIES_DEFAULT);
    let below = if recursive == Some(true) { Below::Enter } else { Below::Stay };
    let (mut tour, mut room) = (Tour::new(path), OutputRoom::from_permit(permit));
    let (mut entries, mut more) = (Vec::new(), false);
    'tour: while let Some(folder) = tour.next(permit, below).await? {
        for met in &folder {
            let entry = describe(met);
            if entries.len() >= entries_max || !room.take(&entry) {
                more = true;
                break 'tour;
            }
            entries.push(entry);
        }
    }
    Ok(json!({"path": path, "entries": entries, "more": more, "left_out": tour.left_out}))
}

fn describe(met: &Met) -> Value {
    let mut entry = json!({"path": met.path, "kind": met.item.kind, "bytes": met.item.bytes});
    if !met.plain
        && let Some(fields) = entry.as_object_mut()
    {
        fields.insert("escaped".to_owned(), Value::Bool(true));
    }
    entry
}
