//! An effect that there isn't.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "text.count", effect = "harmless")]
fn count(text: String) -> Result<usize, ToolError> {
    Ok(text.len())
}

fn main() {}
