//! Parses the history conditions of a rule: `after` (with `until`), `needs` (with `same`), `at_most`, and `scope`.
//!
//! ```yaml
//! - id: secrets-stay                     # after reading secret data, nothing leaves without an approval
//!   effect: ask
//!   match: { capability: network.* }
//!   after: { result: { min_confidentiality: secret } }
//!   until: approved
//! - id: one-payment
//!   effect: deny
//!   match: { tool: pay.* }
//!   at_most: 1
//!   scope: lasting                       # across sessions; `session` otherwise
//! - id: read-first
//!   effect: deny
//!   match: { tool: fs.write }
//!   needs: { tool: fs.read }
//!   same: path                           # or `host`, or a JSON pointer, or { earlier: /id, later: /order }
//! ```

use super::reader::{Fields, Reader};
use super::when::{clause, clauses, label_test};
use crate::condition::{Clause, Condition, LabelTest};
use crate::history::Scope;
use crate::json_path::JsonPath;
use crate::rule::{Effect, Rule};
use crate::sequence::{Event, Events, HistoryEffect, HistoryTest, HistoryTestKind, Same};
use crate::tree::{Content, Entry, Node};
use crate::words::Word;

impl Word for Scope {
    const WORDS: &'static [(&'static str, Self)] = &[("session", Self::Session), ("lasting", Self::Lasting)];
}

/// Adds the rule's condition on the past, and returns the events that update its history.
pub(super) fn read(reader: &mut Reader<'_>, fields: Fields<'_>, rule: &mut Rule) -> Vec<(Rule, Event)> {
    let kinds: Vec<&str> =
        ["after", "needs", "at_most"].into_iter().filter(|key| fields.get(key).is_some()).collect();
    for (key, wanted) in [("until", "after"), ("same", "needs")] {
        if let Some(node) = fields.get(key)
            && fields.get(wanted).is_none()
        {
            reader.findings.error(node.at, format!("`{key}` has no effect without `{wanted}`"));
        }
    }
    let [kind] = kinds.as_slice() else {
        if let Some(node) = fields.get("scope").filter(|_| kinds.is_empty()) {
            reader.findings.error(node.at, "`scope` has no effect without `after`, `needs` or `at_most`");
        } else if !kinds.is_empty() {
            let message = "a rule may have only one of `after`, `needs` and `at_most`; write several rules";
            reader.findings.error(fields.at, message);
        }
        return Vec::new();
    };
    let Some(node) = fields.get(kind) else { return Vec::new() };
    let scope = fields.get("scope").and_then(|node| reader.word(node, "scope")).unwrap_or(Scope::Session);
    let mut events = Vec::new();
    let event = |act: HistoryEffect, when: Box<[Clause]>, rule: &Rule| {
        (Events::calls_of(rule, &act, when), Event { rule: rule.id, scope, act })
    };
    let turn = match *kind {
        "at_most" => {
            let most =
                reader.whole(node, 0, 1_000_000).and_then(|most| u32::try_from(most).ok()).unwrap_or(0);
            events.push(event(
                HistoryEffect::Count { most, asks: rule.effect == Effect::Ask },
                rule.when.clone(),
                rule,
            ));
            HistoryTestKind::Spent(most)
        }
        "needs" => {
            let same = fields.get("same").map_or(Some(Same::Nothing), |node| same(reader, node));
            let Some(same) = same else { return Vec::new() };
            let when = clauses(reader, node, 0);
            events.push(event(HistoryEffect::Remember(same.clone()), when, rule));
            HistoryTestKind::Unseen(same)
        }
        _after => {
            let (when, result) = after(reader, node);
            events.push(event(HistoryEffect::Arm(result), when, rule));
            if let Some(node) = fields.get("until") {
                let (when, approved) = until(reader, node, rule);
                events.push(event(HistoryEffect::Disarm { approved }, when, rule));
            }
            HistoryTestKind::Armed
        }
    };
    let condition = Condition::History(HistoryTest { rule: rule.id, scope, kind: turn });
    let turn = clause(reader, kind, node, condition);
    rule.when = rule.when.iter().cloned().chain([turn]).collect();
    events
}

/// Conditions on the call, and optionally on the label of its output.
fn after(reader: &mut Reader<'_>, node: &Node) -> (Box<[Clause]>, Option<LabelTest>) {
    let Content::Map(entries) = &node.content else { return (clauses(reader, node, 0), None) };
    let Some(result) = entries.iter().find(|entry| entry.key == "result") else {
        return (clauses(reader, node, 0), None);
    };
    let test = label_test(reader, &result.value);
    let others: Vec<Entry> = entries.iter().filter(|entry| entry.key != "result").cloned().collect();
    if others.is_empty() {
        return (Box::default(), Some(test));
    }
    let others = Node { content: Content::Map(others), ..node.clone() };
    (clauses(reader, &others, 0), Some(test))
}

/// `approved`: an approved call that matches the rule itself. Or conditions on any call.
fn until(reader: &mut Reader<'_>, node: &Node, rule: &Rule) -> (Box<[Clause]>, bool) {
    match &node.content {
        Content::Scalar { text, .. } if text == "approved" => (rule.when.clone(), true),
        Content::Scalar { .. } | Content::List(_) => {
            reader.findings.error(node.at, "expected `approved` or conditions");
            (Box::default(), true)
        }
        Content::Map(_) => (clauses(reader, node, 0), false),
    }
}

fn same(reader: &mut Reader<'_>, node: &Node) -> Option<Same> {
    let path = |reader: &mut Reader<'_>, node: &Node| {
        let text = reader.text(node)?;
        match JsonPath::new(text) {
            Ok(path) if path.is_single() => Some(path),
            Ok(_) => {
                reader.findings.error(node.at, format!("`{text}` can be several values; expected one"));
                None
            }
            Err(error) => {
                reader.findings.error(node.at, error.to_string());
                None
            }
        }
    };
    if let Content::Map(_) = &node.content {
        let fields = reader.fields(node, "`same`", &["earlier", "later"]);
        let (Some(earlier), Some(later)) = (fields.get("earlier"), fields.get("later")) else {
            reader.findings.error(node.at, "`earlier` and `later` are both required");
            return None;
        };
        return Some(Same::Arg(path(reader, earlier)?, path(reader, later)?));
    }
    match reader.text(node)? {
        "path" => Some(Same::Path),
        "host" => Some(Same::Host),
        _pointer => {
            let found = path(reader, node)?;
            Some(Same::Arg(found.clone(), found))
        }
    }
}
