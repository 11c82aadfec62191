//! Putting a snapshot back as a system call: judged, recorded before it happens, and never for an agent.

use regent_kernel::{Confidentiality, Integrity, Label, RawOutput, ToolCall, Workspace};
use regent_tools_macros::tool;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{SnapshotError, Snapshots};

/// The tool's name.
pub const RESTORE: &str = "workspace.restore";

/// Paths of the workspace, as the tool brought them.
const OUTPUT: Label = Label { integrity: Integrity::Tool, confidentiality: Confidentiality::Private };

/// The arguments in the intent: enough to finish after a crash, and to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreArgs {
    /// The task whose snapshot it is.
    pub task: String,
    /// The snapshot to put back.
    pub snapshot: String,
    /// The snapshot of what was there: putting that back undoes this.
    pub before: String,
}

impl RestoreArgs {
    /// The call.
    pub fn call(&self) -> ToolCall {
        ToolCall { tool: RESTORE.to_owned(), args: json!(self) }
    }
}

/// Put the workspace back to a snapshot. Returns JSON: before, written, removed, left, failed, left_out, not_kept.
// It is idempotent, so an interrupted restore is simply repeated.
#[tool(
    name = "workspace.restore",
    effect = "write",
    capabilities = ["workspace.restore", "for.operator"],
    idempotent,
    reversible,
    cost = "moderate",
    output = OUTPUT
)]
pub fn restore_spec(
    #[arg(schema = json!({"type": "string", "maxLength": 128}))] task: String,
    #[arg(schema = id_schema())] snapshot: String,
    #[arg(schema = id_schema())] before: String,
);

fn id_schema() -> Value {
    json!({"type": "string", "pattern": "^[0-9a-f]{16}$"})
}

/// Does it. May take as long as the files that differ need.
pub fn run_restore(store: &Snapshots, workspace: &Workspace, args: &Value) -> RawOutput {
    let args = match RestoreArgs::deserialize(args) {
        Ok(args) => args,
        Err(error) => return RawOutput::failed("args.invalid", error.to_string()),
    };
    match store.restore_from(workspace, &args.snapshot, &args.before) {
        Ok(restored) => RawOutput::json(&json!(restored)),
        Err(error) => RawOutput::failed(code_of(&error), error.to_string()),
    }
}

fn code_of(error: &SnapshotError) -> &'static str {
    match error {
        SnapshotError::Unknown(_) => "snapshot.unknown",
        SnapshotError::Damaged(_) => "snapshot.damaged",
        SnapshotError::Path { error, .. } => error.code(),
        SnapshotError::Store(_) => "snapshot.store",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_the_manifest_is_what_it_was() {
        let text = serde_json::to_string(&restore_spec()).unwrap();
        assert_eq!(text, GOLDEN);
    }

    const GOLDEN: &str = r#"{"name":"workspace.restore","description":"Put the workspace back to a snapshot. Returns JSON: before, written, removed, left, failed, left_out, not_kept.","input":{"additionalProperties":false,"properties":{"before":{"pattern":"^[0-9a-f]{16}$","type":"string"},"snapshot":{"pattern":"^[0-9a-f]{16}$","type":"string"},"task":{"maxLength":128,"type":"string"}},"required":["task","snapshot","before"],"type":"object"},"arguments":{},"capabilities":["workspace.restore","for.operator"],"effect":"write","idempotent":true,"reversible":true,"driver":"host","tiers":["host"],"output":{"integrity":"tool","confidentiality":"private"},"version":"1.0.0","cost":"moderate","origin":"built_in","may":null}"#;
}
