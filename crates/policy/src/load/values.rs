//! Parses tests on values (`eq`, `lt`, `matches` …) and changes to them (`set`).

use super::reader::Reader;
use crate::condition::Test;
use crate::finding::choices;
use crate::transform::{Pattern, Transform};
use crate::tree::{Content, Node};
use crate::verdict::Layer;

const TESTS: &[&str] = &[
    "eq",
    "ne",
    "gt",
    "lt",
    "gte",
    "lte",
    "in",
    "not_in",
    "contains",
    "not_contains",
    "starts_with",
    "ends_with",
    "matches",
    "exists",
    "any",
    "all",
];
/// Maximum nesting of `any` and `all`.
const NESTING_MAX: u8 = 4;

/// A mapping of tests that must all hold; a bare value means `eq`.
pub(super) fn tests(reader: &mut Reader<'_>, node: &Node, nesting: u8) -> Box<[Test]> {
    let entries = match &node.content {
        Content::Scalar { .. } => return Box::new([Test::Eq(reader.json(node))]),
        Content::List(_) => {
            reader.findings.error_with_help(
                node.at,
                "expected a test, found a list",
                "use `{ in: […] }` to test for one of several",
            );
            return Box::default();
        }
        Content::Map(entries) => entries,
    };
    if entries.is_empty() {
        reader.findings.error(node.at, "a test needs at least one condition");
    }
    entries
        .iter()
        .filter_map(|entry| {
            let test = test(reader, &entry.key, &entry.value, nesting);
            if test.is_none() && !TESTS.contains(&entry.key.as_str()) {
                reader.findings.error_with_help(
                    entry.key_at,
                    format!("unknown test `{}`", entry.key),
                    choices(&entry.key, TESTS),
                );
            }
            test
        })
        .collect()
}

fn test(reader: &mut Reader<'_>, name: &str, node: &Node, nesting: u8) -> Option<Test> {
    let list = |reader: &mut Reader<'_>| match &node.content {
        Content::List(_) => {
            Some(reader.items(node).iter().map(|item| item.to_json(&mut reader.findings)).collect())
        }
        Content::Scalar { .. } | Content::Map(_) => {
            reader.findings.error(node.at, format!("`{name}` needs a list, not {}", node.kind()));
            None
        }
    };
    Some(match name {
        "eq" => Test::Eq(reader.json(node)),
        "ne" => Test::Ne(reader.json(node)),
        "gt" => Test::Gt(reader.number(node)?),
        "lt" => Test::Lt(reader.number(node)?),
        "gte" => Test::Gte(reader.number(node)?),
        "lte" => Test::Lte(reader.number(node)?),
        "in" => Test::In(list(reader)?),
        "not_in" => Test::NotIn(list(reader)?),
        "contains" => Test::Contains(reader.json(node)),
        "not_contains" => Test::NotContains(reader.json(node)),
        "starts_with" => Test::StartsWith(reader.text(node)?.into()),
        "ends_with" => Test::EndsWith(reader.text(node)?.into()),
        "matches" => Test::Matches(reader.regex(node)?),
        "exists" => Test::Exists(reader.boolean(node)?),
        "any" => Test::Any(nested(reader, node, nesting)?),
        "all" => Test::All(nested(reader, node, nesting)?),
        _ => return None,
    })
}

fn nested(reader: &mut Reader<'_>, node: &Node, nesting: u8) -> Option<Box<[Box<[Test]>]>> {
    if nesting >= NESTING_MAX {
        reader.findings.error(node.at, format!("`any` and `all` are nested deeper than {NESTING_MAX}"));
        return None;
    }
    Some(reader.items(node).iter().map(|item| tests(reader, item, nesting + 1)).collect())
}

const CHANGES: &[&str] = &["value", "remove", "redact", "mask", "truncate", "clamp"];

/// Parses `set`: JSON pointers, each with one change.
pub(super) fn transforms(reader: &mut Reader<'_>, node: &Node) -> Box<[Transform]> {
    let mut out = Vec::new();
    for entry in reader.mapping(node, "`set`").entries() {
        if !entry.key.starts_with('/') {
            let help = format!("write `/{}`", entry.key);
            reader.findings.error_with_help(entry.key_at, "use a JSON pointer to name the argument", help);
            continue;
        }
        let Some(change) = transform(reader, entry.key.clone(), &entry.value) else { continue };
        if reader.layer == Layer::Project && !change.only_narrows() {
            let help = "a project may set `/inspect` to true, `/network` or `/terminal` to false, and `clamp` a limit such as \
                        `/timeout_ms` with `max`; put other changes into your own policy";
            let message =
                format!("a project's file can only narrow, and this changes `{}` of the call", entry.key);
            reader.findings.error_with_help(entry.key_at, message, help);
        }
        out.push(change);
    }
    out.into()
}

fn transform(reader: &mut Reader<'_>, pointer: String, node: &Node) -> Option<Transform> {
    const CHARS_MAX: u64 = 1 << 30;
    let fields = reader.fields(node, "a change", CHANGES);
    let kinds = fields.entries().iter().filter(|entry| entry.key != "mask").count();
    if kinds != 1 || (fields.get("mask").is_some() && fields.get("redact").is_none()) {
        let help = "use `value`, `remove: true`, `redact` (with `mask`), `truncate` or `clamp: { min, max }`";
        reader.findings.error_with_help(node.at, "expected exactly one change", help);
        return None;
    }
    if let Some(node) = fields.get("value") {
        return Some(Transform::Set { pointer, value: reader.json(node) });
    }
    if let Some(node) = fields.get("remove") {
        if reader.boolean(node)? {
            return Some(Transform::Remove { pointer });
        }
        reader.findings.error(node.at, "`remove: false` has no effect");
        return None;
    }
    if let Some(node) = fields.get("redact") {
        let mask = fields.get("mask").and_then(|mask| reader.text(mask)).unwrap_or("[redacted]").to_owned();
        let pattern = Pattern(reader.regex(node)?.into());
        return Some(Transform::Redact { pointer, pattern, mask });
    }
    if let Some(node) = fields.get("truncate") {
        let chars_max = usize::try_from(reader.whole(node, 0, CHARS_MAX)?).ok()?;
        return Some(Transform::Truncate { pointer, chars_max });
    }
    let bounds = reader.fields(fields.get("clamp")?, "`clamp`", &["min", "max"]);
    if bounds.entries().is_empty() {
        reader.findings.error(bounds.at, "`clamp` needs `min` or `max`");
    }
    let mut bound = |key| bounds.get(key).and_then(|node| reader.number(node));
    Some(Transform::Clamp { pointer, min: bound("min"), max: bound("max") })
}
