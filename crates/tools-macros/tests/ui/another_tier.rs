//! A tier that a function of this process can't have.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "text.count", effect = "none", tiers = ["host", "wasm"])]
fn count(text: String) -> Result<usize, ToolError> {
    Ok(text.len())
}

fn main() {}
