//! Shared parts of foreign formats: rules with fixed conditions, and what every agent needs for itself.

use super::reader::Reader;
use super::when::clauses;
use crate::condition::Clause;
use crate::rule::{Effect, Rule};
use crate::tree::parse_yaml;
use crate::verdict::Layer;

/// Conditions in the native format, attributed to a line of the foreign file.
pub(super) fn conditions(layer: Layer, text: &str, line: u32) -> Box<[Clause]> {
    let mut reader = Reader::new(text, layer);
    let node = parse_yaml(text, &mut reader.findings);
    let mut found = node.map(|node| clauses(&mut reader, &node, 0)).unwrap_or_default();
    debug_assert!(reader.findings.is_empty(), "{text}: {:?}", reader.findings);
    for clause in &mut found {
        clause.line = line;
    }
    found
}

/// A rule with fixed conditions.
pub(super) fn rule(layer: Layer, id: &str, line: u32, effect: Effect, when: &str) -> Rule {
    let mut rule = Rule::new(id, layer, line, effect);
    rule.when = conditions(layer, when, line);
    rule
}

/// Operations of an agent on its own data, and of the operator on questions. Foreign formats don't mention them, and no agent works without
/// them. The kernel itself limits an agent's signals to its own children.
pub(super) fn own_things(layer: Layer, prefix: &str) -> Vec<Rule> {
    let allow = |id: &str, when: &str| rule(layer, &format!("{prefix}.{id}"), 1, Effect::Allow, when);
    vec![
        allow("own-files", "{ op: vfs.*, path: ['vfs:/self/**', 'vfs:/agent/${agent}/**'] }"),
        allow("own-memory", "{ op: memory.* }"),
        allow("own-children", "{ op: signal.send }"),
        allow("operator", "{ class: operator, op: [approval.*, budget.*, token.*] }"),
        allow(
            "own-life",
            "{ op: [vfs.close, agent.exit, agent.wait, agent.list, pipe.*, signal.action, signal.mask, signal.pending, policy.*, auth.whoami] }",
        ),
    ]
}

/// Denies writing files that control Regent, git, editors and shells, which would run code later.
pub(super) fn control_files(layer: Layer, prefix: &str) -> Rule {
    const WHEN: &str = "{ access: [write, delete], path: ['**/.regent/**', '**/.agentzero/**', '**/.agents/security.md', \
        '**/.git/**', '**/.mcp.json', '**/.vscode/**', '**/.envrc', '**/.{bashrc,bash_profile,profile,zshrc,zshenv}'] }";
    let mut rule = rule(layer, &format!("{prefix}.control-files"), 1, Effect::Deny, WHEN);
    rule.reason = Some("agents may not write files that control Regent, git, editors or shells".into());
    rule
}
