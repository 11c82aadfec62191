//! Parses `declassify`: the result fields that a rule declassifies.

use std::collections::BTreeSet;

use super::reader::{Fields, Reader};
use crate::condition::Condition;
use crate::declassify::Declassified;
use crate::rule::Rule;
use crate::tree::Node;
use crate::verdict::Layer;

/// Maximum fields of one rule.
const FIELDS_MAX: usize = 64;
const FIELD_BYTES_MAX: usize = 256;

pub(super) fn read(reader: &mut Reader<'_>, fields: Fields<'_>, rule: &Rule) -> Option<Declassified> {
    let node = fields.get("declassify")?;
    let at = fields.key_at("declassify");
    if reader.layer == Layer::Project {
        reader.findings.error_with_help(
            at,
            "a project's file can only narrow, and `declassify` extends trust",
            "put the rule into your own policy",
        );
        return None;
    }
    let names_tools = rule.when.iter().any(|clause| {
        matches!(&clause.condition, Condition::Tool(names) if names.globs().is_empty() && names.exact().next().is_some())
    });
    if !names_tools {
        reader.findings.error_with_help(
            at,
            "`declassify` needs named tools",
            "add `tool: NAME` to `match`, without wildcards",
        );
    }
    let parts = reader.fields(node, "`declassify`", &["trust", "open"]);
    let found = Declassified {
        rule: rule.at.id.clone(),
        trust: parts.get("trust").map(|node| paths(reader, node)).unwrap_or_default(),
        open: parts.get("open").map(|node| paths(reader, node)).unwrap_or_default(),
    };
    if found.is_empty() {
        reader.findings.error_with_help(
            node.at,
            "`declassify` names no field",
            "use `{ trust: [sender] }` for fields that an outsider can write, `{ open: [title] }` for confidential ones",
        );
    }
    Some(found)
}

fn paths(reader: &mut Reader<'_>, node: &Node) -> BTreeSet<String> {
    let texts = reader.texts(node);
    if texts.len() > FIELDS_MAX {
        reader.findings.error(node.at, format!("a rule declassifies at most {FIELDS_MAX} fields"));
    }
    let mut all = BTreeSet::new();
    for (text, at) in texts {
        if !is_path(text) {
            reader.findings.error_with_help(
                at,
                format!("`{text}` is not a field of a result"),
                "use a path from the top, such as `sender`, `items[].id` or `[].name`",
            );
        }
        all.insert(text.to_owned());
    }
    all
}

/// Names separated by dots, with `[]` for list items. The entire result has no path, so it can't be declassified.
fn is_path(text: &str) -> bool {
    let name = |part: &str| {
        let bare = part.trim_end_matches("[]");
        !bare.is_empty() && bare.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    let listed = text.trim_start_matches("[]");
    let inner = match listed.len() == text.len() {
        true => Some(text),
        false => listed.strip_prefix('.'),
    };
    text.len() <= FIELD_BYTES_MAX && inner.is_some_and(|inner| inner.split('.').all(name))
}
