//! The native format: `version`, `mode`, `limits`, the governance fields, and `rules`.

use std::collections::HashMap;

use regex::RegexSetBuilder;

use super::Loaded;
use super::declassify;
use super::graph;
use super::reader::{Fields, Reader};
use super::sequence;
use super::sketch::{CallSketch, sketch};
use super::units;
use super::values::transforms;
use super::when::clauses;
use crate::body::{Body, Language};
use crate::condition::{Clause, Condition, Names};
use crate::finding::SourceSpan;
use crate::glob::NameGlob;
use crate::governance::{Blocked, Check, Governance};
use crate::policy::Mode;
use crate::rule::{Effect, Rule};
use crate::tree::{Content, Node};
use crate::verdict::{Limits, RuleRef};
use crate::words::Word;

/// The top-level keys of a file.
pub(super) const KEYS: &[&str] = &[
    "version",
    "name",
    "mode",
    "limits",
    "rules",
    "agents",
    "conflicts",
    "graph",
    "allowed_tools",
    "blocked_patterns",
    "max_tokens_per_request",
    "max_tool_calls_per_request",
    "confidence_threshold",
    "drift_threshold",
    "require_human_approval",
];
const RULE_KEYS: &[&str] = &[
    "id",
    "effect",
    "match",
    "unless",
    "reason",
    "help",
    "limits",
    "rate",
    "tier",
    "set",
    "declassify",
    "approvers",
    "priority",
    "after",
    "until",
    "needs",
    "at_most",
    "same",
    "scope",
    "rego",
    "cedar",
    "examples",
];
/// Maximum rules in a file.
pub(super) const RULES_MAX: usize = 20_000;
const BLOCKED_PATTERNS_MAX: usize = 1000;
/// Maximum memory of the automaton of all blocked patterns.
const BLOCKED_COMPILED_BYTES_MAX: usize = 16 << 20;

pub(super) fn read(reader: &mut Reader<'_>, root: &Node) -> Loaded {
    let fields = reader.fields(root, "the policy", KEYS);
    match fields.get("version") {
        Some(node) => {
            reader.whole(node, 1, 1);
        }
        None => reader.findings.error_with_help(
            root.at,
            "the version is missing",
            "write `version: 1` at the top",
        ),
    }
    if let Some(node) = fields.get("name") {
        reader.text(node);
    }
    let mut loaded = Loaded {
        mode: fields.get("mode").and_then(|node| reader.word(node, "mode")).unwrap_or(Mode::Strict),
        limits: fields
            .get("limits")
            .map_or_else(Limits::default, |node| limits(reader, node, Limits::default())),
        governance: governance(reader, fields),
        agents: fields.get("agents").map(|node| reader.names(node)),
        conflicts: fields.get("conflicts").and_then(|node| reader.word(node, "strategy")).unwrap_or_default(),
        graph: fields.get("graph").and_then(|node| graph::read(reader, node, fields.key_at("graph"))),
        ..Loaded::default()
    };
    match fields.get("rules") {
        Some(node) => rules(reader, node, &mut loaded),
        None => loaded.rules.extend(allowed_tools_rule(reader, fields)),
    }
    loaded
}

/// Parses limits; missing ones come from `default`.
fn limits(reader: &mut Reader<'_>, node: &Node, default: Limits) -> Limits {
    let keys = ["wall", "cpu", "output", "memory", "pids", "open_files", "file", "tmp"];
    let fields = reader.fields(node, "`limits`", &keys);
    let unit = |reader: &mut Reader<'_>, key, parse: fn(&str) -> Option<u64>, example: &str, default| {
        let Some(node) = fields.get(key) else { return default };
        let found = match &node.content {
            Content::Scalar { text, .. } => parse(text),
            Content::List(_) | Content::Map(_) => None,
        };
        if found.is_none() {
            reader.findings.error(node.at, format!("expected an amount with a unit, such as `{example}`"));
        }
        found.unwrap_or(default)
    };
    let count = |reader: &mut Reader<'_>, key, default: u32| {
        let found = fields.get(key).and_then(|node| reader.whole(node, 1, u64::from(u32::MAX)));
        found.and_then(|count| u32::try_from(count).ok()).unwrap_or(default)
    };
    Limits {
        wall_ms_max: unit(reader, "wall", units::duration_ms, "60s", default.wall_ms_max),
        cpu_ms_max: unit(reader, "cpu", units::duration_ms, "60s", default.cpu_ms_max),
        output_bytes_max: unit(reader, "output", units::size_bytes, "10MiB", default.output_bytes_max),
        memory_bytes_max: unit(reader, "memory", units::size_bytes, "2GiB", default.memory_bytes_max),
        pids_max: count(reader, "pids", default.pids_max),
        open_files_max: count(reader, "open_files", default.open_files_max),
        file_bytes_max: unit(reader, "file", units::size_bytes, "1GiB", default.file_bytes_max),
        tmp_bytes_max: unit(reader, "tmp", units::size_bytes, "1GiB", default.tmp_bytes_max),
    }
}

fn rules(reader: &mut Reader<'_>, node: &Node, loaded: &mut Loaded) {
    let Content::List(items) = &node.content else {
        reader.findings.error(node.at, format!("`rules` must be a list, not {}", node.kind()));
        return;
    };
    if items.len() > RULES_MAX {
        reader
            .findings
            .error(node.at, format!("the file has {} rules; at most {RULES_MAX} are allowed", items.len()));
        return;
    }
    let mut seen: HashMap<String, u32> = HashMap::new();
    for item in items {
        let fields = reader.fields(item, "a rule", RULE_KEYS);
        let Some(mut rule) = rule(reader, fields) else { continue };
        if let Some(first) = seen.insert(rule.at.id.to_string(), rule.at.line) {
            let at = fields.get("id").map_or(item.at, |node| node.at);
            reader
                .findings
                .error(at, format!("the id `{}` is taken by the rule in line {first}", rule.at.id));
        }
        loaded.events.extend(sequence::read(reader, fields, &mut rule));
        let examples = fields.get("examples").map(|node| examples(reader, node)).unwrap_or_default();
        loaded.examples.extend(examples.into_iter().map(|example| (loaded.rules.len(), example)));
        loaded.rules.push(rule);
    }
}

fn rule(reader: &mut Reader<'_>, fields: Fields<'_>) -> Option<Rule> {
    let missing = |reader: &mut Reader<'_>, key: &str| {
        if fields.get(key).is_none() && !fields.entries().is_empty() {
            reader.findings.error(fields.at, format!("the rule has no `{key}`"));
        }
    };
    missing(reader, "id");
    missing(reader, "effect");
    let id = identifier(reader, fields.get("id")?)?;
    let effect: Effect = reader.word(fields.get("effect")?, "effect")?;
    let mut rule = Rule::new(id, reader.layer, fields.key_at("id").line, effect);
    if let Some(node) = fields.get("match") {
        rule.when = clauses(reader, node, 0);
    }
    if let Some(node) = fields.get("unless") {
        rule.unless = clauses(reader, node, 0);
    }
    rule.reason = fields.get("reason").and_then(|node| reader.text(node)).map(Box::from);
    rule.help = fields.get("help").and_then(|node| reader.text(node)).map(Box::from);
    rule.limits = fields.get("limits").map(|node| limits(reader, node, Limits::UNLIMITED));
    rule.tier = fields.get("tier").and_then(|node| reader.word(node, "tier"));
    rule.transforms = fields.get("set").map(|node| transforms(reader, node)).unwrap_or_default();
    if let Some(node) = fields.get("rate") {
        rule.rate = reader.text(node).and_then(units::rate);
        if rule.rate.is_none() {
            reader.findings.error(node.at, "expected a rate, such as `100/hour`, `5/min` or `10/30s`");
        }
    }
    if let Some(node) = fields.get("approvers") {
        rule.approvers = reader.whole(node, 1, 100).and_then(|count| u8::try_from(count).ok()).unwrap_or(1);
    }
    if let Some(node) = fields.get("priority") {
        rule.priority = priority(reader, node);
    }
    for (key, language) in [("rego", Language::Rego), ("cedar", Language::Cedar)] {
        if let Some(node) = fields.get(key) {
            body(reader, node, key, language, &mut rule);
        }
    }
    rule.declassify = declassify::read(reader, fields, &rule);
    fits_effect(reader, fields, effect);
    Some(rule)
}

pub(super) fn priority(reader: &mut Reader<'_>, node: &Node) -> u32 {
    reader.whole(node, 0, 1_000_000).and_then(|priority| u32::try_from(priority).ok()).unwrap_or(0)
}

/// A body in another language is one more condition, evaluated last.
fn body(reader: &mut Reader<'_>, node: &Node, key: &str, language: Language, rule: &mut Rule) {
    let Some(text) = reader.text(node) else { return };
    match Body::new(language, text) {
        Ok(body) => {
            let condition = Condition::Body(std::sync::Arc::new(body));
            let clause = Clause { condition, text: format!("{key}: …").into(), line: node.at.line };
            rule.when = rule.when.iter().cloned().chain([clause]).collect();
        }
        Err(error) => reader.findings.error(node.at, error.to_string()),
    }
}

pub(super) fn identifier<'n>(reader: &mut Reader<'_>, node: &'n Node) -> Option<&'n str> {
    const ID_BYTES_MAX: usize = 100;
    let id = reader.text(node)?;
    let odd = |next: char| !(next.is_ascii_alphanumeric() || matches!(next, '-' | '_' | '.' | ':' | '/'));
    if id.is_empty() || id.len() > ID_BYTES_MAX || id.contains(odd) {
        reader.findings.error(node.at, "an id has at most 100 letters, digits and `-_.:/`");
    }
    Some(id)
}

/// A key without meaning for the effect is an error.
fn fits_effect(reader: &mut Reader<'_>, fields: Fields<'_>, effect: Effect) {
    let (needed, useless): (&[&str], &[&str]) = match effect {
        Effect::Allow => (&[], &["approvers", "help", "after", "until", "needs", "at_most", "same", "scope"]),
        Effect::Ask => (&[], &["declassify"]),
        Effect::Deny => (&[], &["limits", "tier", "set", "declassify", "approvers"]),
        Effect::Transform => (&["set"], &["rate", "declassify", "approvers", "help", "priority"]),
        Effect::RaiseTier => (&["tier"], &["rate", "set", "declassify", "approvers", "help", "priority"]),
        Effect::Warn => {
            (&["reason"], &["limits", "rate", "tier", "set", "declassify", "approvers", "priority"])
        }
    };
    for key in useless {
        if let Some(node) = fields.get(key) {
            reader
                .findings
                .error(node.at, format!("`{key}` has no effect in a rule with the effect `{effect}`"));
        }
    }
    for key in needed {
        if fields.get(key).is_none() {
            reader.findings.error(fields.at, format!("a rule with the effect `{effect}` needs `{key}`"));
        }
    }
}

/// A call that a rule must match, or must not match.
#[derive(Debug)]
pub(super) struct Example {
    pub call: CallSketch,
    pub is_match: bool,
    pub at: SourceSpan,
}

fn examples(reader: &mut Reader<'_>, node: &Node) -> Vec<Example> {
    let fields = reader.fields(node, "`examples`", &["match", "not_match"]);
    let mut out = Vec::new();
    for (key, is_match) in [("match", true), ("not_match", false)] {
        let Some(node) = fields.get(key) else { continue };
        for item in reader.items(node) {
            out.extend(sketch(reader, item).map(|call| Example { call, is_match, at: item.at }));
        }
    }
    out
}

fn governance(reader: &mut Reader<'_>, fields: Fields<'_>) -> Governance {
    let at = |reader: &Reader<'_>, key: &str, id: &str| RuleRef {
        id: format!("governance.{id}").into(),
        layer: reader.layer,
        line: fields.key_at(key).line,
    };
    let mut out = Governance::default();
    if let Some(node) = fields.get("allowed_tools") {
        out.allowed_tools =
            Some(Check { at: at(reader, "allowed_tools", "allowed_tools"), bound: reader.names(node) });
    }
    if let Some(node) = fields.get("blocked_patterns") {
        out.blocked = blocked(reader, node)
            .map(|bound| Check { at: at(reader, "blocked_patterns", "blocked_patterns"), bound });
    }
    if let Some(node) = fields.get("max_tokens_per_request") {
        let bound = reader.whole(node, 1, u64::MAX);
        out.max_tokens_per_request =
            bound.map(|bound| Check { at: at(reader, "max_tokens_per_request", "max_tokens"), bound });
    }
    if let Some(node) = fields.get("max_tool_calls_per_request") {
        let bound = reader.whole(node, 0, u64::from(u32::MAX)).and_then(|bound| u32::try_from(bound).ok());
        let at = at(reader, "max_tool_calls_per_request", "max_tool_calls");
        out.max_tool_calls_per_request = bound.map(|bound| Check { at, bound });
    }
    if let Some(node) = fields.get("confidence_threshold") {
        let bound = reader.share(node);
        out.confidence_threshold =
            bound.map(|bound| Check { at: at(reader, "confidence_threshold", "confidence"), bound });
    }
    if let Some(node) = fields.get("drift_threshold") {
        let bound = reader.share(node);
        out.drift_threshold = bound.map(|bound| Check { at: at(reader, "drift_threshold", "drift"), bound });
    }
    if let Some(node) = fields.get("require_human_approval") {
        let bound = tools_to_approve(reader, node);
        let at = at(reader, "require_human_approval", "human_approval");
        out.human_approval = bound.map(|bound| Check { at, bound });
    }
    out
}

/// `true` means every tool, `false` none; a list means those tools.
fn tools_to_approve(reader: &mut Reader<'_>, node: &Node) -> Option<Names> {
    if node.kind() == "a truth value" {
        return reader.boolean(node)?.then(|| Names::new(NameGlob::new("*").into_iter().collect()));
    }
    Some(reader.names(node))
}

/// For a file with only governance fields: allows the listed tools.
fn allowed_tools_rule(reader: &mut Reader<'_>, fields: Fields<'_>) -> Option<Rule> {
    let node = fields.get("allowed_tools")?;
    let line = fields.key_at("allowed_tools").line;
    let mut rule = Rule::new("governance.allowed_tools", reader.layer, line, Effect::Allow);
    let text: Box<str> = format!("tool: {}", reader.source(node)).into();
    rule.when = Box::new([Clause { condition: Condition::Tool(reader.names(node)), text, line }]);
    Some(rule)
}

/// The kind of a blocked pattern.
#[derive(Debug, Clone, Copy)]
enum PatternKind {
    Substring,
    Regex,
    Glob,
}

impl Word for PatternKind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("SUBSTRING", Self::Substring),
        ("REGEX", Self::Regex),
        ("GLOB", Self::Glob),
        ("substring", Self::Substring),
        ("regex", Self::Regex),
        ("glob", Self::Glob),
    ];
}

/// Compiles all patterns to one automaton. Matching ignores case: a blocked word in capitals is still blocked.
fn blocked(reader: &mut Reader<'_>, node: &Node) -> Option<Blocked> {
    let items = reader.items(node);
    if items.len() > BLOCKED_PATTERNS_MAX {
        reader
            .findings
            .error(node.at, format!("at most {BLOCKED_PATTERNS_MAX} blocked patterns are allowed"));
        return None;
    }
    let (mut regexes, mut patterns) = (Vec::new(), Vec::new());
    for item in items {
        let (text, kind) = match &item.content {
            Content::Map(_) => {
                let fields = reader.fields(item, "a blocked pattern", &["pattern", "type"]);
                let Some(pattern) = fields.get("pattern") else {
                    reader.findings.error(item.at, "a blocked pattern needs `pattern`");
                    continue;
                };
                let kind =
                    fields.get("type").map_or(Some(PatternKind::Substring), |node| reader.word(node, "type"));
                (reader.text(pattern), kind)
            }
            Content::Scalar { .. } | Content::List(_) => (reader.text(item), Some(PatternKind::Substring)),
        };
        let (Some(text), Some(kind)) = (text, kind) else { continue };
        if text.is_empty() {
            reader.findings.error(item.at, "an empty pattern would block everything");
        }
        let regex = match kind {
            PatternKind::Substring => regex::escape(text),
            PatternKind::Regex => text.to_owned(),
            PatternKind::Glob => glob_regex(text),
        };
        // Compiled alone first, so that an error is reported at its line.
        reader.compile(&regex, item.at, true)?;
        regexes.push(regex);
        patterns.push(Box::from(text));
    }
    let set =
        RegexSetBuilder::new(&regexes).case_insensitive(true).size_limit(BLOCKED_COMPILED_BYTES_MAX).build();
    match set {
        Ok(set) => Some(Blocked { set, patterns: patterns.into() }),
        Err(_) => {
            reader.findings.error(node.at, "the compiled blocked patterns are too large together");
            None
        }
    }
}

/// A glob over the full text, as a regular expression.
fn glob_regex(glob: &str) -> String {
    let mut out = String::from("(?s)\\A");
    for next in glob.chars() {
        match next {
            '*' => out.push_str(".*"),
            '?' => out.push('.'),
            other => out.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    out.push_str("\\z");
    out
}
