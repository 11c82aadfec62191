//! A `governance.toolkit/v1` policy, loaded as it is.
//!
//! Rules apply in order of priority, highest first, and the first match decides; without a match, `default_action` applies. `allow`,
//! `deny`, `require_approval` and `warn` become `allow`, `deny`, `ask`, and an allow with a warning. Rules about past events (`post_tool`
//! …) can't be evaluated before a call and are errors, and so is everything unknown, because a skipped rule would be a hole. Control files
//! are never written, and an agent may use its own data.

use super::Loaded;
use super::foreign::{conditions, control_files, own_things};
use super::native::{RULES_MAX, priority};
use super::reader::{Fields, Reader};
use super::units;
use crate::condition::{Clause, Condition, Names};
use crate::conflicts::Conflicts;
use crate::expression::{Expression, ExpressionError};
use crate::glob::NameGlob;
use crate::policy::Mode;
use crate::rule::{Effect, Rule};
use crate::tree::{Content, Node};
use crate::words::Word;

pub(super) const VERSION: &str = "governance.toolkit/v1";
const KEYS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "version",
    "name",
    "description",
    "agents",
    "scope",
    "default_action",
    "rules",
];
const RULE_KEYS: &[&str] = &[
    "name",
    "description",
    "stage",
    "condition",
    "action",
    "priority",
    "enabled",
    "message",
    "limit",
    "rate_limit",
    "approvers",
];
/// Higher than every priority in the file.
const ABOVE_ALL: u32 = 2_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Allow,
    Deny,
    Ask,
    Warn,
}

impl Word for Action {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("allow", Self::Allow),
        ("deny", Self::Deny),
        ("block", Self::Deny),
        ("require_approval", Self::Ask),
        ("escalate", Self::Ask),
        ("warn", Self::Warn),
        ("log", Self::Allow),
        ("audit", Self::Allow),
    ];
}

pub(super) fn read(reader: &mut Reader<'_>, root: &Node) -> Loaded {
    let fields = reader.fields(root, "the policy", KEYS);
    if let Some(node) = fields.get("apiVersion")
        && reader.text(node).is_some_and(|text| text != VERSION)
    {
        reader.findings.error(node.at, format!("unknown version; supported: `{VERSION}`"));
    }
    let default = fields.get("default_action").and_then(|node| reader.word(node, "action"));
    let mode = match default {
        Some(Action::Allow | Action::Warn) => Mode::Permissive,
        Some(Action::Deny) | None => Mode::Strict,
        Some(Action::Ask) => {
            reader.findings.error(root.at, "`default_action` must be `allow` or `deny`");
            Mode::Strict
        }
    };
    let mut rules = own_things(reader.layer, "toolkit");
    rules.push(control_files(reader.layer, "toolkit"));
    for rule in &mut rules {
        rule.priority = ABOVE_ALL + u32::from(rule.effect == Effect::Deny);
    }
    rules.extend(others(reader, fields));
    match fields.get("rules").map(|node| (&node.content, node)) {
        Some((Content::List(items), node)) if items.len() > RULES_MAX => {
            reader.findings.error(node.at, format!("at most {RULES_MAX} rules are allowed"));
        }
        Some((Content::List(items), _)) => {
            for (number, item) in items.iter().enumerate() {
                rule(reader, item, number, &mut rules);
            }
        }
        Some((Content::Scalar { .. } | Content::Map(_), node)) => {
            reader.findings.error(node.at, format!("`rules` must be a list, not {}", node.kind()));
        }
        None => reader.findings.error(root.at, "the policy has no `rules`"),
    }
    Loaded { mode, rules, conflicts: Conflicts::FirstMatch, ..Loaded::default() }
}

/// The policy names its agents; it gives nothing to others.
fn others(reader: &mut Reader<'_>, fields: Fields<'_>) -> Option<Rule> {
    let node = fields.get("agents")?;
    let names = reader.names(node);
    if names.matches_all() {
        return None;
    }
    let line = fields.key_at("agents").line;
    let mut rule = Rule::new("toolkit.other-agents", reader.layer, line, Effect::Deny);
    rule.when = conditions(reader.layer, "{ class: agent }", line);
    let text = format!("agents: {}", reader.source(node)).into();
    rule.unless = Box::new([Clause { condition: Condition::Agent(names), text, line }]);
    rule.priority = ABOVE_ALL;
    rule.reason = Some("the policy doesn't apply to this agent".into());
    Some(rule)
}

fn rule(reader: &mut Reader<'_>, node: &Node, number: usize, rules: &mut Vec<Rule>) {
    let fields = reader.fields(node, "a rule", RULE_KEYS);
    if let Some(node) = fields.get("enabled")
        && reader.boolean(node) == Some(false)
    {
        return;
    }
    let name = fields.get("name").and_then(|node| reader.text(node));
    let id = name.map_or_else(|| format!("toolkit.{}", number + 1), str::to_owned);
    let Some(action) = fields.get("action").and_then(|node| reader.word(node, "action")) else {
        reader.findings.error(node.at, "the rule has no `action`");
        return;
    };
    let Some(mut when) = condition(reader, fields, node) else { return };
    when.extend(stage(reader, fields));
    let effect = match action {
        Action::Allow | Action::Warn => Effect::Allow,
        Action::Deny => Effect::Deny,
        Action::Ask => Effect::Ask,
    };
    let mut made = Rule::new(&id, reader.layer, fields.key_at("name").line, effect);
    made.when = when.into();
    made.priority = fields.get("priority").map_or(0, |node| priority(reader, node));
    made.reason = ["message", "description"]
        .iter()
        .find_map(|key| fields.get(key))
        .and_then(|node| reader.text(node))
        .map(Box::from);
    if let Some(node) = fields.get("limit").or(fields.get("rate_limit")) {
        made.rate = reader.text(node).and_then(units::rate);
        if made.rate.is_none() {
            reader.findings.error(node.at, "expected a rate, such as `100/hour`");
        }
    }
    if let Some(node) = fields.get("approvers") {
        // The approvers are for readers; the rule itself requires the approval.
        reader.texts(node);
    }
    if action == Action::Warn {
        let mut warning = made.clone();
        warning.effect = Effect::Warn;
        warning.rate = None;
        warning.reason = made.reason.clone().or_else(|| Some(format!("warning by rule `{id}`").into()));
        rules.push(warning);
    }
    rules.push(made);
}

/// Parses a text, or `{ field, operator, value }`.
fn condition(reader: &mut Reader<'_>, fields: Fields<'_>, rule: &Node) -> Option<Vec<Clause>> {
    let Some(node) = fields.get("condition") else {
        reader.findings.error(rule.at, "the rule has no `condition`");
        return None;
    };
    let parsed: Result<Expression, ExpressionError> = match &node.content {
        Content::Map(_) => {
            let parts = reader.fields(node, "a condition", &["field", "operator", "value"]);
            let (Some(field), Some(operator), Some(value)) =
                (parts.get("field"), parts.get("operator"), parts.get("value"))
            else {
                reader.findings.error(node.at, "a condition needs `field`, `operator` and `value`");
                return None;
            };
            let (field, operator) = (reader.text(field)?, reader.text(operator)?);
            let value = reader.json(value);
            Expression::from_parts(field, operator, value)
        }
        Content::Scalar { text, .. } => Expression::parse(text),
        Content::List(_) => Err(ExpressionError::Unexpected("a list".to_owned())),
    };
    let expression = match parsed {
        Ok(expression) => expression,
        Err(error) => {
            reader.findings.error(node.at, error.to_string());
            return None;
        }
    };
    let clause =
        |condition: Condition, text: String| Clause { condition, text: text.into(), line: node.at.line };
    let mut when = Vec::new();
    // Repeats the expression's tools as a condition, so that the index can file the rule.
    let plain = |name: &&str| !name.contains(['*', '?', '[', '{', '\\']);
    if let Some(tools) = expression.tools().filter(|tools| tools.iter().all(plain)) {
        let globs = tools.iter().filter_map(|tool| NameGlob::new(tool).ok()).collect();
        let op = tools.iter().any(|tool| crate::words::OPS.contains(tool));
        if !op {
            when.push(clause(Condition::Tool(Names::new(globs)), format!("tool: {}", tools.join(", "))));
        }
    }
    let shown = format!("condition: {}", reader.source(node));
    when.push(clause(Condition::Expression(std::sync::Arc::new(expression)), shown));
    Some(when)
}

/// The stage of a rule: only stages before an action are supported.
fn stage(reader: &mut Reader<'_>, fields: Fields<'_>) -> Vec<Clause> {
    let Some(node) = fields.get("stage") else { return Vec::new() };
    let line = node.at.line;
    let when = match reader.text(node) {
        Some("pre_tool" | "pre_tool_call" | "pre_execution") => "{ op: tool.run }",
        Some("pre_model" | "pre_model_call" | "pre_input") => "{ op: model.infer }",
        Some(other) => {
            let message = format!("a rule at the stage `{other}` can't be evaluated before a call");
            reader.findings.error(node.at, message);
            return Vec::new();
        }
        None => return Vec::new(),
    };
    conditions(reader.layer, when, line).into_vec()
}
