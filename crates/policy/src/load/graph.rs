//! Reads `graph`: edges from callers or places to things or places.
//!
//! ```yaml
//! graph:
//!   - { from: researcher, to: { host: "*.example.com" } }
//!   - { from: { role: ops }, to: { place: vault } }
//!   - { from: { place: vault }, to: { secret: "prod/*" } }
//!   - { from: "*", to: { path: "private/**" }, effect: deny, priority: 10 }
//! ```

use super::reader::{Fields, Reader};
use super::when::clauses;
use crate::condition::{Clause, Condition};
use crate::finding::SourceSpan;
use crate::graph::{Edge, EdgeEnd, EdgeStart, Graph};
use crate::rule::{Effect, Rule};
use crate::tree::{Content, Node};
use crate::verdict::RuleRef;

const EDGES_MAX: usize = 10_000;
const EDGE_KEYS: &[&str] = &["id", "from", "to", "effect", "match", "priority", "reason"];
/// Conditions that can be the end of an edge.
const THINGS: &[&str] =
    &["path", "access", "host", "scheme", "port", "method", "url_path", "argv", "program", "secret", "place"];

pub(super) fn read(reader: &mut Reader<'_>, node: &Node, at: SourceSpan) -> Option<Graph> {
    let items = reader.items(node);
    if items.len() > EDGES_MAX {
        reader.findings.error(node.at, format!("the graph has more than {EDGES_MAX} edges"));
        return None;
    }
    let edges: Vec<Edge> =
        items.iter().enumerate().filter_map(|(number, item)| edge(reader, item, number)).collect();
    let whole = RuleRef { id: "graph".into(), layer: reader.layer, line: at.line };
    match Graph::new(edges, whole) {
        Ok(graph) => Some(graph),
        Err(error) => {
            reader.findings.error(node.at, error.to_string());
            None
        }
    }
}

fn edge(reader: &mut Reader<'_>, node: &Node, number: usize) -> Option<Edge> {
    let fields = reader.fields(node, "an edge", EDGE_KEYS);
    for key in ["from", "to"] {
        if fields.get(key).is_none() {
            reader.findings.error(node.at, format!("the edge has no `{key}`"));
        }
    }
    let effect = match fields.get("effect") {
        None => Effect::Allow,
        Some(node) => reader.word(node, "effect")?,
    };
    if !matches!(effect, Effect::Allow | Effect::Deny) {
        reader.findings.error(node.at, "an edge's effect must be `allow` or `deny`");
        return None;
    }
    let own = format!("graph.{}", number + 1);
    let id = match fields.get("id") {
        Some(node) => super::native::identifier(reader, node)?,
        None => &own,
    };
    let mut rule = Rule::new(id, reader.layer, node.at.line, effect);
    rule.reason = fields.get("reason").and_then(|node| reader.text(node)).map(Box::from);
    rule.priority = fields.get("priority").map_or(0, |node| super::native::priority(reader, node));
    let mut when: Vec<Clause> = Vec::new();
    let from = from(reader, fields, &mut when)?;
    let to = to(reader, fields, &mut when)?;
    if let Some(node) = fields.get("match") {
        when.extend(clauses(reader, node, 0));
    }
    rule.when = when.into();
    Some(Edge { from, to, rule })
}

/// Parses agent names, conditions on the caller, or `{ place: … }`.
fn from(reader: &mut Reader<'_>, fields: Fields<'_>, when: &mut Vec<Clause>) -> Option<EdgeStart> {
    let node = fields.get("from")?;
    if !matches!(node.content, Content::Map(_)) {
        let (text, condition) = (reader.source(node), Condition::Agent(reader.names(node)));
        when.push(Clause { condition, text: format!("from: {text}").into(), line: node.at.line });
        return Some(EdgeStart::Callers);
    }
    let callers = reader.fields(node, "`from`", &["agent", "role", "class", "trust", "place"]);
    if let Some(place) = callers.get("place") {
        return Some(EdgeStart::Place(reader.text(place)?.into()));
    }
    when.extend(clauses(reader, node, 0));
    Some(EdgeStart::Callers)
}

fn to(reader: &mut Reader<'_>, fields: Fields<'_>, when: &mut Vec<Clause>) -> Option<EdgeEnd> {
    let node = fields.get("to")?;
    let things = reader.fields(node, "`to`", THINGS);
    if let Some(place) = things.get("place") {
        return Some(EdgeEnd::Place(reader.text(place)?.into()));
    }
    when.extend(clauses(reader, node, 0));
    Some(EdgeEnd::Things)
}
