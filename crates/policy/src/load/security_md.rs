//! An `.agents/security.md`: YAML, alone, as front matter or in a fenced block of a Markdown file, loaded as it is.
//!
//! | key | becomes |
//! |---|---|
//! | `kernel.mode` | the mode |
//! | `signals` | a rule that denies sending any other signal |
//! | `policies[].action` | tools: `file_read`, `file_write`, `shell`, `network` … stand for the built-in ones, any other name for the tool of that name, `*` for every tool |
//! | `effect`, `requires_approval` | `allow`, `deny`, or `ask` |
//! | `mode: read_only` | an exception for everything that writes, deletes, runs or posts |
//! | `rate_limit` | the rule's rate |
//! | `constraints` | conditions: `paths`, `domains`, `methods`, and their `allowed_…` spellings |
//! | `observability` | nothing: the ledger always records everything |
//!
//! Deny wins here too. A bare `*` with `deny` denies calls that no other entry allows, which is what its authors intend.

use super::foreign::{conditions, control_files, own_things, rule};
use super::reader::{Fields, Reader};
use super::{Loaded, When, units};
use crate::condition::{Clause, Condition, PathTest};
use crate::finding::{Findings, SourceSpan, choices};
use crate::policy::Mode;
use crate::rule::{Effect, Rule};
use crate::tree::{Content, Node, parse_yaml};

pub(super) const KEYS: &[&str] = &["kernel", "signals", "policies", "observability"];
const POLICY_KEYS: &[&str] = &["action", "effect", "mode", "requires_approval", "rate_limit", "constraints"];
const CONSTRAINTS: &[&str] =
    &["paths", "allowed_paths", "domains", "allowed_domains", "methods", "allowed_methods"];
const SIGNALS: &[&str] =
    &["STOP", "CONT", "INT", "KILL", "TERM", "USR1", "USR2", "POLICY", "TRUST", "BUDGET", "LOOP", "DRIFT"];

/// Action names that stand for built-in tools.
const ACTIONS: &[When] = &[
    ("file_read", "{ tool: [fs.read, fs.list, fs.search, fs.stat, file_read] }"),
    ("file_write", "{ tool: [fs.write, fs.edit, fs.append, file_write] }"),
    ("shell", "{ tool: [shell.exec, process.exec, shell] }"),
    ("shell_exec", "{ tool: [shell.exec, process.exec, shell_exec] }"),
    ("code_execution", "{ tool: [shell.exec, process.exec, code_execution] }"),
    ("network", "{ any: [{ tool: [http.fetch, network] }, { capability: network.request }] }"),
    ("http_request", "{ tool: [http.fetch, http_request] }"),
    ("*", "{ op: tool.run }"),
];

const CHANGING: &str = "{ any: [{ access: [write, delete, execute] }, { method: [POST, PUT, PATCH, DELETE] }, \
    { capability: [file.write, file.delete, process.exec] }] }";

pub(super) fn read(reader: &mut Reader<'_>, root: &Node) -> Loaded {
    let fields = reader.fields(root, "the policy", KEYS);
    let layer = reader.layer;
    let mut mode = fields.get("kernel").map_or(Mode::Strict, |node| kernel(reader, node));
    let mut rules = own_things(layer, "security");
    rules.push(control_files(layer, "security"));
    if let Some(node) = fields.get("signals") {
        rules.extend(signals(reader, node, fields.key_at("signals").line));
    }
    if let Some(node) = fields.get("observability") {
        reader.fields(node, "`observability`", &["metrics", "traces", "flight_recorder"]);
    }
    if let Some(node) = fields.get("policies") {
        let Content::List(items) = &node.content else {
            reader.findings.error(node.at, format!("`policies` must be a list, not {}", node.kind()));
            return loaded(mode, rules);
        };
        if items.len() > super::native::RULES_MAX {
            reader.findings.error(node.at, "the file has too many policies");
            return loaded(mode, rules);
        }
        for (at, item) in items.iter().enumerate() {
            policy(reader, item, at + 1, &mut mode, &mut rules);
        }
    }
    loaded(mode, rules)
}

fn loaded(mode: Mode, rules: Vec<Rule>) -> Loaded {
    Loaded { mode, rules, ..Loaded::default() }
}

fn kernel(reader: &mut Reader<'_>, node: &Node) -> Mode {
    let fields = reader.fields(node, "`kernel`", &["version", "mode"]);
    if let Some(node) = fields.get("version") {
        let value = reader.json(node);
        if value.as_f64() != Some(1.0) && !matches!(value.as_str(), Some("1" | "1.0")) {
            reader.findings.error(node.at, "unknown version of a security file; supported: 1.0");
        }
    }
    fields.get("mode").and_then(|node| reader.word(node, "mode")).unwrap_or(Mode::Strict)
}

/// Signals may be spelled `KILL`, `SIGKILL`, in lower case, or as a number; in a call's argument too.
fn signals(reader: &mut Reader<'_>, node: &Node, line: u32) -> Option<Rule> {
    let mut spellings = Vec::new();
    for (text, at) in reader.texts(node) {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let Some(number) = SIGNALS.iter().position(|known| *known == name) else {
            reader.findings.error_with_help(at, format!("unknown signal `{text}`"), choices(name, SIGNALS));
            continue;
        };
        let lower = name.to_ascii_lowercase();
        spellings.push(format!("{name}, SIG{name}, {lower}, sig{lower}, {}", number + 1));
    }
    let when =
        format!("{{ op: signal.send, args: {{ /signal: {{ not_in: [{}] }} }} }}", spellings.join(", "));
    (!spellings.is_empty()).then(|| rule(reader.layer, "security.signals", line, Effect::Deny, &when))
}

fn policy(reader: &mut Reader<'_>, node: &Node, number: usize, mode: &mut Mode, rules: &mut Vec<Rule>) {
    let fields = reader.fields(node, "a policy", POLICY_KEYS);
    let Some(action) = fields.get("action").and_then(|node| reader.text(node)) else {
        reader.findings.error(node.at, "the policy has no `action`");
        return;
    };
    let Some(effect) = effect(reader, fields) else { return };
    let line = fields.key_at("action").line;
    let id = format!("security.{number}.{}", if action == "*" { "any" } else { action });
    let Some(when) = action_clauses(reader, fields, action, line) else { return };
    let bare = fields.entries().iter().all(|entry| matches!(entry.key.as_str(), "action" | "effect"));
    if action == "*" && effect == Effect::Deny && bare {
        if *mode == Mode::Permissive {
            *mode = Mode::Strict;
        }
        return;
    }
    let mut rule = Rule::new(&id, reader.layer, line, effect);
    rule.when = when.clone();
    if let Some(node) = fields.get("rate_limit") {
        rule.rate = reader.text(node).and_then(units::rate);
        if rule.rate.is_none() {
            reader.findings.error(node.at, "expected a rate, such as `100/hour`");
        }
    }
    constraints(reader, fields, &mut rule);
    if is_read_only(reader, fields) && effect != Effect::Deny {
        rule.unless = conditions(reader.layer, CHANGING, line);
        // In other modes, an exception from an allow is no denial, so an explicit deny is added.
        if action != "*" || *mode != Mode::Strict {
            let mut changing = Rule::new(&format!("{id}.read_only"), reader.layer, line, Effect::Deny);
            changing.when = when.iter().cloned().chain(conditions(reader.layer, CHANGING, line)).collect();
            changing.reason = Some(format!("`{action}` only supports reading").into());
            rules.push(changing);
        }
    }
    rules.push(rule);
}

fn effect(reader: &mut Reader<'_>, fields: Fields<'_>) -> Option<Effect> {
    let approval = fields.get("requires_approval").map(|node| reader.boolean(node));
    let named: Option<Effect> = match fields.get("effect") {
        Some(node) => Some(reader.word(node, "effect")?),
        None => None,
    };
    match (named, approval.flatten()) {
        (Some(Effect::Deny), _) => Some(Effect::Deny),
        (Some(Effect::Allow) | None, Some(true)) => Some(Effect::Ask),
        (Some(Effect::Allow), Some(false) | None) => Some(Effect::Allow),
        (Some(Effect::Ask | Effect::Transform | Effect::RaiseTier | Effect::Warn), _) => {
            reader.findings.error(
                fields.get("effect").map_or(fields.at, |node| node.at),
                "the effect must be `allow` or `deny`",
            );
            None
        }
        (None, Some(false) | None) => {
            reader.findings.error(fields.at, "the policy has neither `effect` nor `requires_approval: true`");
            None
        }
    }
}

fn action_clauses(
    reader: &mut Reader<'_>,
    fields: Fields<'_>,
    action: &str,
    line: u32,
) -> Option<Box<[Clause]>> {
    if let Some((_, when)) = ACTIONS.iter().find(|(name, _)| *name == action) {
        return Some(conditions(reader.layer, when, line));
    }
    let node = fields.get("action")?;
    if action.is_empty() || action.contains(|next: char| next.is_whitespace() || next.is_control()) {
        reader.findings.error(node.at, format!("`{}` is not the name of an action", action.escape_debug()));
        return None;
    }
    let text = format!("action: {action}").into();
    Some(Box::new([Clause { condition: Condition::Tool(reader.names(node)), text, line }]))
}

fn is_read_only(reader: &mut Reader<'_>, fields: Fields<'_>) -> bool {
    let Some(node) = fields.get("mode") else { return false };
    match reader.text(node) {
        Some("read_only") => true,
        Some("read_write") => false,
        Some(other) => {
            let help = choices(other, &["read_only", "read_write"]);
            reader.findings.error_with_help(node.at, format!("unknown mode `{other}`"), help);
            true
        }
        None => true,
    }
}

fn constraints(reader: &mut Reader<'_>, fields: Fields<'_>, rule: &mut Rule) {
    let Some(node) = fields.get("constraints") else { return };
    let constraints = reader.fields(node, "`constraints`", CONSTRAINTS);
    let mut extra = Vec::new();
    for entry in constraints.entries() {
        let (line, text) =
            (entry.key_at.line, format!("{}: {}", entry.key, reader.source(&entry.value)).into());
        let condition = match entry.key.as_str() {
            "paths" | "allowed_paths" => {
                Condition::Path(PathTest { globs: Some(reader.plain_path_globs(&entry.value)), access: None })
            }
            "domains" | "allowed_domains" => super::resources::endpoint(reader, Some(&entry.value), None),
            "methods" | "allowed_methods" => super::resources::endpoint(reader, None, Some(&entry.value)),
            _ => continue,
        };
        extra.push(Clause { condition, text, line });
    }
    rule.when = rule.when.iter().cloned().chain(extra).collect();
}

/// The YAML of a Markdown file, with everything else blanked out, so that lines and columns stay correct.
pub(super) fn yaml_of(text: &str, findings: &mut Findings) -> Option<String> {
    let candidates: Vec<String> = blocks(text).into_iter().map(|range| only(text, &range)).collect();
    let speaks = |candidate: &String| {
        parse_yaml(candidate, &mut Findings::default()).is_some_and(|root| match &root.content {
            Content::Map(entries) => entries.iter().any(|entry| KEYS.contains(&entry.key.as_str())),
            Content::Scalar { .. } | Content::List(_) => false,
        })
    };
    let mut found: Vec<String> = match candidates.as_slice() {
        [] => return Some(text.to_owned()),
        [_only] => candidates,
        [..] => candidates.into_iter().filter(speaks).collect(),
    };
    if found.len() > 1 {
        let at = SourceSpan { line: 1, column: 1, ..SourceSpan::default() };
        findings.error(at, "several blocks of this file look like a policy; only one is allowed");
        return None;
    }
    Some(found.pop().unwrap_or_else(|| text.to_owned()))
}

/// The front matter and the fenced YAML blocks, as byte ranges.
fn blocks(text: &str) -> Vec<std::ops::Range<usize>> {
    let (mut out, mut open, mut at) = (Vec::new(), None, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let end = at + line.len();
        let bare = line.trim_end();
        match (open, bare) {
            (None, "---") if number == 0 => open = Some((end, "---")),
            (None, "```yaml" | "```yml") => open = Some((end, "```")),
            (Some((start, fence)), bare) if bare == fence => {
                out.push(start..at);
                open = None;
            }
            (None | Some(_), _) => {}
        }
        at = end;
    }
    // An unclosed block extends to the end, so that none of its content is ignored.
    out.extend(open.map(|(start, _)| start..text.len()));
    out
}

fn only(text: &str, range: &std::ops::Range<usize>) -> String {
    let keep = |at: usize| range.contains(&at);
    let bytes = text.char_indices().flat_map(|(at, next)| {
        let (shown, times) = if keep(at) || next == '\n' { (next, 1) } else { (' ', next.len_utf8()) };
        std::iter::repeat_n(shown, times)
    });
    bytes.collect()
}
