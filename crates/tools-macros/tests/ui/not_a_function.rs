//! Something that isn't a function.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "text.count", effect = "none")]
struct Count;

fn main() {}
