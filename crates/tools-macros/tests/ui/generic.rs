//! A function with a parameter of type.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "text.count", effect = "none")]
fn count<T: AsRef<str>>(text: T) -> Result<usize, ToolError> {
    Ok(text.as_ref().len())
}

fn main() {}
