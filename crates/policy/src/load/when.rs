//! Parses `match` and `unless`: the conditions of a rule.

use super::reader::{Fields, Reader};
use super::units;
use super::values::tests;
use crate::condition::{Clause, Condition, Gauge, LabelTest, Meter, Names, Window};
use crate::finding::{SourceSpan, choices};
use crate::glob::NameGlob;
use crate::json_path::JsonPath;
use crate::tree::{Content, Node};
use crate::words::{Integrity, OPS, Tier, Word};

type Branches = Box<[Box<[Clause]>]>;

const KEYS: &[&str] = &[
    "class",
    "agent",
    "role",
    "trust",
    "op",
    "tool",
    "capability",
    "path",
    "access",
    "scheme",
    "host",
    "port",
    "method",
    "url_path",
    "argv",
    "program",
    "secret",
    "args",
    "labels",
    "provenance",
    "tier",
    "time",
    "budget_left",
    "session",
    "any",
    "all",
];
/// Maximum nesting of `any` and `all`.
const NESTING_MAX: u8 = 4;

/// Parses a mapping of conditions and sorts cheap ones first, which is the order of evaluation.
pub(super) fn clauses(reader: &mut Reader<'_>, node: &Node, nesting: u8) -> Box<[Clause]> {
    let fields = reader.fields(node, "conditions", KEYS);
    if fields.entries().is_empty() {
        reader.findings.error_with_help(
            node.at,
            "no conditions are given",
            "remove the key to match everything",
        );
    }
    let mut out = Vec::new();
    caller(reader, fields, &mut out);
    super::resources::read(reader, fields, &mut out);
    circumstances(reader, fields, &mut out);
    contents(reader, fields, &mut out);
    branches(reader, fields, nesting, &mut out);
    out.into()
}

/// A condition with its source, for explanations.
pub(super) fn clause(reader: &Reader<'_>, key: &str, node: &Node, condition: Condition) -> Clause {
    Clause { condition, text: format!("{key}: {}", reader.source(node)).into(), line: node.at.line }
}

fn caller(reader: &mut Reader<'_>, fields: Fields<'_>, out: &mut Vec<Clause>) {
    if let Some(node) = fields.get("op") {
        let names = ops(reader, node);
        out.push(clause(reader, "op", node, Condition::Op(names)));
    }
    let named = [
        ("tool", Condition::Tool as fn(Names) -> Condition),
        ("agent", Condition::Agent),
        ("role", Condition::Role),
        ("capability", Condition::Capability),
        ("secret", Condition::Secret),
    ];
    for (key, make) in named {
        if let Some(node) = fields.get(key) {
            let names = reader.names(node);
            out.push(clause(reader, key, node, make(names)));
        }
    }
    if let Some(node) = fields.get("class") {
        let classes = reader.words(node, "class");
        out.push(clause(reader, "class", node, Condition::Class(classes)));
    }
    if let Some(node) = fields.get("trust") {
        let range = reader.fields(node, "`trust`", &["min", "max"]);
        let mut bound = |key, default| {
            range
                .get(key)
                .and_then(|node| reader.whole(node, 0, 1000))
                .and_then(|bound| u16::try_from(bound).ok())
                .unwrap_or(default)
        };
        let (min, max) = (bound("min", 0), bound("max", 1000));
        if min > max {
            reader.findings.error(node.at, "`min` is above `max`");
        }
        out.push(clause(reader, "trust", node, Condition::Trust { min, max }));
    }
}

/// Operation names. An unknown one is an error, because it would never match.
fn ops(reader: &mut Reader<'_>, node: &Node) -> Names {
    for (text, at) in reader.texts(node) {
        let globs = reader.expanded(text, at, NameGlob::new);
        if globs.iter().any(|glob| !OPS.iter().any(|op| glob.matches(op))) {
            reader.findings.error_with_help(at, format!("unknown operation `{text}`"), choices(text, OPS));
        }
    }
    reader.names(node)
}

fn circumstances(reader: &mut Reader<'_>, fields: Fields<'_>, out: &mut Vec<Clause>) {
    if let Some(node) = fields.get("tier") {
        let tiers = tiers(reader, node);
        out.push(clause(reader, "tier", node, Condition::Tier(tiers)));
    }
    if let Some(node) = fields.get("time") {
        let windows = reader.items(node).iter().filter_map(|item| window(reader, item)).collect();
        out.push(clause(reader, "time", node, Condition::Time(windows)));
    }
    if let Some(node) = fields.get("budget_left") {
        for entry in reader.mapping(node, "`budget_left`").entries() {
            let Some(meter) = known_word(reader, &entry.key, entry.key_at, "budget") else { continue };
            let tests = tests(reader, &entry.value, 0);
            out.push(clause(
                reader,
                &format!("budget_left.{}", entry.key),
                &entry.value,
                Condition::Budget { meter, tests },
            ));
        }
    }
    if let Some(node) = fields.get("session") {
        for entry in reader.mapping(node, "`session`").entries() {
            let Some(gauge) = known_word(reader, &entry.key, entry.key_at, "measure") else { continue };
            let tests = tests(reader, &entry.value, 0);
            out.push(clause(
                reader,
                &format!("session.{}", entry.key),
                &entry.value,
                Condition::Session { gauge, tests },
            ));
        }
    }
}

fn known_word<T: Word>(reader: &mut Reader<'_>, text: &str, at: SourceSpan, what: &str) -> Option<T> {
    let found = T::parse(text);
    if found.is_none() {
        let known: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        reader.findings.error_with_help(at, format!("unknown {what} `{text}`"), choices(text, &known));
    }
    found
}

impl Word for Meter {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("money_usd", Self::MoneyUsd),
        ("tokens", Self::Tokens),
        ("calls", Self::Calls),
        ("wall_s", Self::WallS),
        ("bytes_out", Self::BytesOut),
        ("approvals", Self::Approvals),
    ];
}

impl Word for Gauge {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("tool_calls", Self::ToolCalls),
        ("tokens", Self::Tokens),
        ("request_tokens", Self::RequestTokens),
        ("confidence", Self::Confidence),
        ("drift", Self::Drift),
    ];
}

/// A tier, a list of them, or `{ min: …, max: … }`.
fn tiers(reader: &mut Reader<'_>, node: &Node) -> Box<[Tier]> {
    if !matches!(node.content, Content::Map(_)) {
        return reader.words(node, "tier");
    }
    let range = reader.fields(node, "`tier`", &["min", "max"]);
    let min = range.get("min").and_then(|node| reader.word(node, "tier")).unwrap_or(Tier::Instruction);
    let max = range.get("max").and_then(|node| reader.word(node, "tier")).unwrap_or(Tier::Microvm);
    let tiers: Box<[Tier]> =
        Tier::WORDS.iter().map(|(_, tier)| *tier).filter(|tier| (min..=max).contains(tier)).collect();
    if tiers.is_empty() {
        reader.findings.error(node.at, "`min` is above `max`");
    }
    tiers
}

/// A day of the week, Monday first.
#[derive(Debug, Clone, Copy)]
struct Day(usize);

impl Word for Day {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("mon", Self(0)),
        ("tue", Self(1)),
        ("wed", Self(2)),
        ("thu", Self(3)),
        ("fri", Self(4)),
        ("sat", Self(5)),
        ("sun", Self(6)),
    ];
}

fn window(reader: &mut Reader<'_>, node: &Node) -> Option<Window> {
    let fields = reader.fields(node, "a time window", &["days", "from", "to", "utc_offset"]);
    let mut days = [fields.get("days").is_none(); 7];
    if let Some(node) = fields.get("days") {
        for Day(at) in reader.words::<Day>(node, "day").iter().copied() {
            if let Some(day) = days.get_mut(at) {
                *day = true;
            }
        }
    }
    let time = |reader: &mut Reader<'_>, key, default| match fields.get(key) {
        None => Some(default),
        Some(node) => {
            let found = reader.text(node).and_then(units::time_of_day_min);
            if found.is_none() {
                reader.findings.error(node.at, "expected a time of day in quotes: \"09:30\"");
            }
            found
        }
    };
    let (from_min, to_min) = (time(reader, "from", 0)?, time(reader, "to", crate::condition::DAY_MINUTES)?);
    let utc_offset_min = match fields.get("utc_offset") {
        None => None,
        Some(node) => {
            let found = reader.text(node).and_then(units::utc_offset_min);
            if found.is_none() {
                reader.findings.error(node.at, "expected an offset from UTC in quotes: \"+02:00\"");
            }
            Some(found?)
        }
    };
    Some(Window { days, from_min, to_min, utc_offset_min })
}

fn contents(reader: &mut Reader<'_>, fields: Fields<'_>, out: &mut Vec<Clause>) {
    if let Some(node) = fields.get("labels") {
        for entry in reader.mapping(node, "`labels`").entries() {
            let pointer = match entry.key.as_str() {
                "*" => None,
                pointer if pointer.is_empty() || pointer.starts_with('/') => Some(Box::from(pointer)),
                other => {
                    let help = "use a JSON pointer such as `/body`, or `*` for any argument";
                    reader.findings.error_with_help(
                        entry.key_at,
                        format!("`{other}` is not an argument"),
                        help,
                    );
                    continue;
                }
            };
            let test = label_test(reader, &entry.value);
            out.push(clause(
                reader,
                &format!("labels {}", entry.key),
                &entry.value,
                Condition::Label { pointer, test },
            ));
        }
    }
    if let Some(node) = fields.get("provenance") {
        for entry in reader.mapping(node, "`provenance`").entries() {
            let pointer =
                (entry.key != "*").then(|| format!("/{}", entry.key.trim_start_matches('/')).into());
            let test = LabelTest { integrity: Some(origins(reader, &entry.value)), ..LabelTest::default() };
            let key = format!("provenance {}", entry.key);
            out.push(clause(reader, &key, &entry.value, Condition::Label { pointer, test }));
        }
    }
    if let Some(node) = fields.get("args") {
        for entry in reader.mapping(node, "`args`").entries() {
            match JsonPath::new(&entry.key) {
                Ok(path) => {
                    let tests = tests(reader, &entry.value, 0);
                    out.push(clause(
                        reader,
                        &format!("args {}", entry.key),
                        &entry.value,
                        Condition::Arg { path, tests },
                    ));
                }
                Err(error) => {
                    let help = format!(
                        "use a JSON pointer such as `/{0}`, or a path such as `$.{0}[*]`",
                        entry.key.trim_matches(['/', '$', '.'])
                    );
                    reader.findings.error_with_help(entry.key_at, error.to_string(), help);
                }
            }
        }
    }
}

/// The origin of an argument in three words: the request (or an approval), a trusted source, or untrusted. A value without origin is
/// untrusted.
const ORIGINS: &[(&str, &[Integrity])] = &[
    ("request", &[Integrity::System, Integrity::Operator, Integrity::User]),
    ("trusted", &[Integrity::SignedSkill, Integrity::OwnModel, Integrity::Tool]),
    ("untrusted", &[Integrity::File, Integrity::Memory, Integrity::Peer, Integrity::Web]),
];

fn origins(reader: &mut Reader<'_>, node: &Node) -> Box<[Integrity]> {
    let mut all = Vec::new();
    for (text, at) in reader.texts(node) {
        match ORIGINS.iter().find(|(word, _)| *word == text) {
            Some((_, integrity)) => all.extend_from_slice(integrity),
            None => {
                let words: Vec<&str> = ORIGINS.iter().map(|(word, _)| *word).collect();
                reader.findings.error_with_help(
                    at,
                    format!("unknown provenance `{text}`"),
                    choices(text, &words),
                );
            }
        }
    }
    all.into()
}

const LABEL_KEYS: &[&str] = &[
    "integrity",
    "less_trusted_than",
    "at_least_as_trusted_as",
    "confidentiality",
    "min_confidentiality",
    "max_confidentiality",
];

pub(super) fn label_test(reader: &mut Reader<'_>, node: &Node) -> LabelTest {
    let fields = reader.fields(node, "a label test", LABEL_KEYS);
    if fields.entries().is_empty() {
        reader.findings.error(node.at, "a label test needs at least one condition");
    }
    LabelTest {
        integrity: fields.get("integrity").map(|node| reader.words(node, "origin")),
        less_trusted_than: fields.get("less_trusted_than").and_then(|node| reader.word(node, "origin")),
        at_least_as_trusted_as: fields
            .get("at_least_as_trusted_as")
            .and_then(|node| reader.word(node, "origin")),
        confidentiality: fields.get("confidentiality").map(|node| reader.words(node, "confidentiality")),
        min_confidentiality: fields
            .get("min_confidentiality")
            .and_then(|node| reader.word(node, "confidentiality")),
        max_confidentiality: fields
            .get("max_confidentiality")
            .and_then(|node| reader.word(node, "confidentiality")),
    }
}

fn branches(reader: &mut Reader<'_>, fields: Fields<'_>, nesting: u8, out: &mut Vec<Clause>) {
    let kinds = [("any", Condition::Any as fn(Branches) -> Condition), ("all", Condition::All)];
    for (key, make) in kinds {
        let Some(node) = fields.get(key) else { continue };
        if nesting >= NESTING_MAX {
            reader.findings.error(node.at, format!("`any` and `all` are nested deeper than {NESTING_MAX}"));
            continue;
        }
        let branches = reader.items(node).iter().map(|item| clauses(reader, item, nesting + 1)).collect();
        out.push(clause(reader, key, node, make(branches)));
    }
}
