//! Arguments that can't come from JSON, all named at once.

use regent_tools_macros::tool;

/// Counts.
#[tool(name = "text.count", effect = "none")]
fn count((a, b): (String, String), bytes: &[u8], #[arg(path = "look")] path: String, #[arg(file)] file: String) -> Result<usize, ToolError> {
    Ok(a.len() + b.len() + bytes.len() + path.len() + file.len())
}

fn main() {}
