//! A function with a receiver.

use regent_tools_macros::tool;

struct Counter;

impl Counter {
    /// Counts.
    #[tool(name = "text.count", effect = "none")]
    fn count(&self, text: String) -> Result<usize, ToolError> {
        Ok(text.len())
    }
}

fn main() {}
