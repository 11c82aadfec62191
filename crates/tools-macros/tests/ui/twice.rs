//! The same word twice.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "text.count", effect = "none", effect = "read")]
fn count(text: String) -> Result<usize, ToolError> {
    Ok(text.len())
}

fn main() {}
