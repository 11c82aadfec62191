//! `fs.stat`: what is known of a file or folder.

use serde_json::{Value, json};

use crate::confidentiality::WORKSPACE_FILE;
use crate::output::path_failure;
use crate::{Context, ToolError, tool};

/// Describe a file or folder; of a link, what it leads to. Returns JSON: path, kind (file, folder, special), bytes, mode,
/// modified_ms, links.
///
/// - path: the file or folder
#[tool(
    name = "fs.stat",
    effect = "read",
    capabilities = ["file.read"],
    idempotent,
    reversible,
    cost = "cheap",
    output = WORKSPACE_FILE
)]
pub(crate) fn stat(#[arg(path = "read")] path: &str, context: &Context<'_>) -> Result<Value, ToolError> {
    let found = context.workspace().stat(path).map_err(|error| path_failure(path, &error))?;
    Ok(json!({
        "path": path,
        "kind": found.kind,
        "bytes": found.bytes,
        "mode": format!("{:04o}", found.mode),
        "modified_ms": found.modified_ms,
        "links": found.links,
    }))
}
