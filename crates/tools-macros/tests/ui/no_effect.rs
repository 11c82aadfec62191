//! A tool that doesn't say what it does to the world.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "text.count")]
fn count(text: String) -> Result<usize, ToolError> {
    Ok(text.len())
}

fn main() {}
