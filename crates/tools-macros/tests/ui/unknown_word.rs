//! A word that the attribute doesn't have.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "text.count", effect = "none", harmless)]
fn count(text: String) -> Result<usize, ToolError> {
    Ok(text.len())
}

fn main() {}
