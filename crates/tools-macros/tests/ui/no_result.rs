//! A tool that can't fail.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "text.count", effect = "none")]
fn count(text: String) -> usize {
    text.len()
}

fn main() {}
