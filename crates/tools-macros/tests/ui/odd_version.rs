//! A version that is not three numbers.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "text.count", effect = "none", version = "v1")]
fn count(text: String) -> Result<usize, ToolError> {
    Ok(text.len())
}

fn main() {}
