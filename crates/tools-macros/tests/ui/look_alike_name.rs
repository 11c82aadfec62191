//! A name with a letter that looks like another.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "fs.reаd", effect = "none")]
fn count(text: String) -> Result<usize, ToolError> {
    Ok(text.len())
}

fn main() {}
