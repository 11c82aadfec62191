//! A tool that nobody describes.

use regent_tools_macros::tool;

#[tool(name = "text.count", effect = "none")]
fn count(text: String) -> Result<usize, ToolError> {
    Ok(text.len())
}

fn main() {}
