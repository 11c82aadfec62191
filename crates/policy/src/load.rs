//! Compiles policy text. Reports all findings at once, each with its line and column.

mod agentzero;
mod bodies;
mod declassify;
mod foreign;
mod graph;
mod manifest;
mod native;
mod reader;
mod resources;
mod security_md;
mod sequence;
mod sketch;
mod toolkit;
mod units;
mod values;
mod when;

use crate::acs::control::Control;
use crate::condition::{Clause, Condition, Names};
use crate::conflicts::Conflicts;
use crate::finding::{Findings, LoadError, Source, SourceSpan};
use crate::governance::Governance;
use crate::graph::Graph;
use crate::index::Index;
use crate::policy::{Mode, Policy, RuleSet};
use crate::rule::Rule;
use crate::sequence::{Event, Events};
use crate::tree::{Content, parse_toml, parse_yaml};
use crate::verdict::{Layer, Limits};

pub(crate) use reader::Reader;
pub use sketch::CallSketch;
pub(crate) use sketch::sketch;

/// The parsed content of a file.
#[derive(Debug)]
struct Loaded {
    mode: Mode,
    agents: Option<Names>,
    limits: Limits,
    governance: Governance,
    conflicts: Conflicts,
    graph: Option<Graph>,
    control: Option<Control>,
    /// Events that update the history of rules.
    events: Vec<(Rule, Event)>,
    rules: Vec<Rule>,
    /// Examples with the index of their rule in `rules`.
    examples: Vec<(usize, native::Example)>,
}

impl Default for Loaded {
    fn default() -> Self {
        Self {
            mode: Mode::Strict,
            agents: None,
            limits: Limits::default(),
            governance: Governance::default(),
            conflicts: Conflicts::default(),
            graph: None,
            control: None,
            events: Vec::new(),
            rules: Vec::new(),
            examples: Vec::new(),
        }
    }
}

/// Compiles conditions alone, as in a rule's `match`; `None` if they are invalid.
pub(crate) fn conditions_of(text: &str, layer: Layer) -> Option<Box<[Clause]>> {
    let mut reader = Reader::new(text, layer);
    let node = parse_yaml(text, &mut reader.findings)?;
    let found = when::clauses(&mut reader, &node, 0);
    reader.findings.is_empty().then_some(found)
}

/// A name and the conditions that it stands for.
type When = (&'static str, &'static str);

/// Compiles the text of a policy file: the native format, an agentzero `policy.yml`, an `.agents/security.md`, a `governance.toolkit/v1`
/// policy, an ACS manifest, or (if enabled at build time) a `.cedar` or `.rego` file.
pub fn load(text: &str, source: &Source) -> Result<Policy, LoadError> {
    let mut reader = Reader::new(text, source.layer);
    let loaded = read(&mut reader, source);
    let mut findings = reader.findings;
    match loaded {
        Some(loaded) if findings.is_empty() => {
            check_examples(&loaded, &mut findings);
            if findings.is_empty() {
                Ok(compiled(loaded, text, source))
            } else {
                Err(findings.into_error(&source.name))
            }
        }
        Some(_) | None => Err(findings.into_error(&source.name)),
    }
}

/// Detects the format: Markdown by file name, TOML by its first line, the rest by their top-level keys.
fn read(reader: &mut Reader<'_>, source: &Source) -> Option<Loaded> {
    if reader.text.contains('\0') {
        let at = SourceSpan { line: 1, column: 1, ..SourceSpan::default() };
        reader.findings.error(at, "the file contains a NUL character, so it is not a text");
        return None;
    }
    if source.name.ends_with(".md") {
        let yaml = security_md::yaml_of(reader.text, &mut reader.findings)?;
        let root = parse_yaml(&yaml, &mut reader.findings)?;
        return Some(security_md::read(reader, &root));
    }
    if source.name.ends_with(".cedar") {
        return bodies::cedar(reader);
    }
    if source.name.ends_with(".rego") {
        return bodies::rego(reader);
    }
    if looks_like_toml(reader.text) {
        let root = parse_toml(reader.text, &mut reader.findings)?;
        return Some(agentzero::read(reader, &root));
    }
    let root = parse_yaml(reader.text, &mut reader.findings)?;
    let has = |keys: &[&str]| match &root.content {
        Content::Map(entries) => entries.iter().any(|entry| keys.contains(&entry.key.as_str())),
        Content::Scalar { .. } | Content::List(_) => false,
    };
    // Several formats have `version`; unique keys distinguish them.
    let agentzero_only: Vec<&str> =
        agentzero::KEYS.iter().copied().filter(|key| !native::KEYS.contains(key)).collect();
    if has(&["agent_control_specification_version"]) {
        return manifest::read(reader, &root, source);
    }
    Some(if has(&["apiVersion"]) {
        toolkit::read(reader, &root)
    } else if has(native::KEYS) && has(&["rules", "mode", "limits"]) {
        native::read(reader, &root)
    } else if has(&["kernel", "policies"]) {
        security_md::read(reader, &root)
    } else if has(&agentzero_only) {
        agentzero::read(reader, &root)
    } else {
        native::read(reader, &root)
    })
}

/// Whether the first significant line is TOML.
fn looks_like_toml(text: &str) -> bool {
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.next().is_some_and(|line| {
        let is_key = |key: &str| {
            let odd = |next: char| !(next.is_ascii_alphanumeric() || matches!(next, '_' | '-' | '.' | '"'));
            !key.is_empty() && !key.contains(odd)
        };
        line.split_once('=').is_some_and(|(key, _)| is_key(key.trim_end()))
            || line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).is_some_and(is_key)
    })
}

/// A rule that contradicts its own examples is a load error.
fn check_examples(loaded: &Loaded, findings: &mut Findings) {
    for (rule, example) in &loaded.examples {
        let Some(rule) = loaded.rules.get(*rule) else { continue };
        // The history is assumed to be what the rule requires.
        let mut rule = rule.clone();
        let looks_back = |clause: &&Clause| matches!(clause.condition, Condition::History(_));
        rule.when = rule.when.iter().filter(|clause| !looks_back(clause)).cloned().collect();
        let rule = &rule;
        let matches = example.call.with_facts(|facts| rule.matches(facts));
        if matches == example.is_match {
            continue;
        }
        let (does, should) = if matches { ("matches", "should not") } else { ("doesn't match", "should") };
        let help = example.call.with_facts(|facts| crate::explain::first_failure(rule, facts));
        let message = format!("rule `{}` {does} this example, and it {should}", rule.at.id);
        match help {
            Some(help) => findings.error_with_help(example.at, message, help),
            None => findings.error(example.at, message),
        }
    }
}

fn compiled(loaded: Loaded, text: &str, source: &Source) -> Policy {
    let rules: Box<[Rule]> = loaded.rules.into();
    let set = RuleSet {
        name: source.name.as_str().into(),
        layer: source.layer,
        mode: loaded.mode,
        agents: loaded.agents,
        limits: loaded.limits,
        governance: loaded.governance,
        conflicts: loaded.conflicts,
        events: Events::new(loaded.events),
        graph: loaded.graph,
        control: loaded.control,
        has_rates: rules.iter().any(|rule| rule.rate.is_some()),
        index: Index::new(&rules),
        rules,
        examples: loaded.examples.len(),
        is_loaded: true,
    };
    Policy::from_set(set, text, &source.files)
}
