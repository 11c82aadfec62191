//! A tool without a name.

use regent_tools_macros::tool;

/// Counts.
#[tool(effect = "none")]
fn count(text: String) -> Result<usize, ToolError> {
    Ok(text.len())
}

fn main() {}
