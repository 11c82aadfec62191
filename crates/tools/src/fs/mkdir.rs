//! `fs.mkdir`: a new folder.

use regent_kernel::Missing;
use serde_json::{Value, json};

use crate::confidentiality::RECEIPT;
use crate::output::{on_files, path_failure};
use crate::{Context, ToolError, tool};

/// Make a folder. One that is there already is fine. Returns JSON: path, created.
///
/// - path: the folder
/// - parents: make missing folders above it, too; false if absent
#[tool(name = "fs.mkdir", effect = "write", capabilities = ["file.write"], idempotent, reversible, output = RECEIPT)]
pub(crate) async fn make(
    #[arg(path = "write")] path: &str,
    parents: Option<bool>,
    permit: &Context<'_>,
) -> Result<Value, ToolError> {
    let place = path.to_owned();
    let missing = if parents == Some(true) { Missing::Make } else { Missing::Refuse };
    let created = on_files(permit, move |workspace| workspace.make_folder(&place, missing))
        .await?
        .map_err(|error| path_failure(path, &error))?;
    Ok(json!({"path": path, "created": created}))
}
