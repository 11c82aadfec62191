//! Tools as others know them: OpenAI functions, Anthropic tools, MCP tools.

use regent_kernel::{CostClass, Origin, SideEffect, ToolSpec};
use serde_json::{Value, json};

/// Names that model providers take are at most this long, and have no dots.
const WIRE_NAME_BYTES_MAX: usize = 64;

/// A tool as the OpenAI chat API takes it.
pub fn openai(spec: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {"name": wire_name(&spec.name), "description": spec.description, "parameters": spec.input},
    })
}

/// A tool as the Anthropic messages API takes it.
pub fn anthropic(spec: &ToolSpec) -> Value {
    json!({"name": wire_name(&spec.name), "description": spec.description, "input_schema": spec.input})
}

/// A tool as MCP lists it, with the hints that clients show.
pub fn mcp(spec: &ToolSpec) -> Value {
    let read_only = matches!(spec.effect, SideEffect::None | SideEffect::Read);
    let network = |capability: &String| capability == "network" || capability.starts_with("network.");
    json!({
        "name": spec.name,
        "description": spec.description,
        "inputSchema": spec.input,
        "annotations": {
            "readOnlyHint": read_only,
            "destructiveHint": !read_only && (spec.effect == SideEffect::Delete || !spec.reversible),
            "idempotentHint": spec.idempotent,
            "openWorldHint": spec.effect == SideEffect::Network || spec.capabilities.iter().any(network),
        },
    })
}

/// A tool's name in the letters that model providers take: `fs.read` is `fs__read`. Where that would be ambiguous or too long, the end
/// of the name is a digest of the whole, so that no two tools share one.
pub fn wire_name(name: &str) -> String {
    let plain = name.replace('.', "__");
    let ambiguous = name.contains("__") || name.contains("_.") || name.contains("._");
    if !ambiguous && plain.len() <= WIRE_NAME_BYTES_MAX {
        return plain;
    }
    let digest = regent_kernel::Digest::compute(name.as_bytes()).to_string();
    let (digest, _) = digest.split_at_checked(16).unwrap_or((digest.as_str(), ""));
    let room = WIRE_NAME_BYTES_MAX - digest.len() - 2;
    let start = plain.get(..plain.floor_char_boundary(room)).unwrap_or_default();
    format!("{}__{digest}", start.trim_end_matches('_'))
}

/// Which tools are looked for; what is `None` doesn't matter.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToolFilter<'a> {
    /// A capability, or the part before a dot: `file` finds `file.read`.
    pub capability: Option<&'a str>,
    /// What it does to the world.
    pub effect: Option<SideEffect>,
    /// The most that it may cost.
    pub cost_max: Option<CostClass>,
    /// Who vouches for it.
    pub origin: Option<Origin>,
}

impl ToolFilter<'_> {
    /// Whether a tool is one of those. There are few tools, so a linear search is enough.
    pub fn fits(&self, spec: &ToolSpec) -> bool {
        let tagged = |tag: &str| {
            let has = |own: &String| {
                own.strip_prefix(tag).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            spec.capabilities.iter().any(has)
        };
        self.capability.is_none_or(tagged)
            && self.effect.is_none_or(|effect| effect == spec.effect)
            && self.cost_max.is_none_or(|most| spec.cost <= most)
            && self.origin.is_none_or(|origin| origin == spec.origin)
    }
}

#[cfg(test)]
mod tests;
