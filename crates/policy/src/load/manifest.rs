//! An ACS manifest as a policy file: its points decide where they apply; otherwise an agent may use its own data, and control files can't
//! be written.

use std::collections::BTreeMap;

use super::Loaded;
use super::foreign::{control_files, own_things, rule};
use super::reader::Reader;
use crate::acs::control::Control;
use crate::finding::{Source, SourceSpan};
use crate::rule::Effect;
use crate::tree::{Content, Node};

pub(super) fn read(reader: &mut Reader<'_>, root: &Node, source: &Source) -> Option<Loaded> {
    let control = match Control::new(reader.text, source.layer, &source.files, &lines(root)) {
        Ok(control) => control,
        Err(error) => {
            let at = SourceSpan { line: 1, column: 1, ..SourceSpan::default() };
            reader.findings.error(at, error.to_string());
            return None;
        }
    };
    let mut rules = own_things(reader.layer, "acs");
    // Starting or ending an agent grants nothing: its calls pass through the points that the manifest must have.
    rules.push(rule(
        reader.layer,
        "acs.agents",
        1,
        Effect::Allow,
        "{ op: [agent.spawn, request.begin, label.declassify] }",
    ));
    rules.push(control_files(reader.layer, "acs"));
    Some(Loaded { rules, control: Some(control), ..Loaded::default() })
}

/// The source line of each point.
fn lines(root: &Node) -> BTreeMap<String, u32> {
    let entries = |node: &Node| match &node.content {
        Content::Map(entries) => entries.clone(),
        Content::Scalar { .. } | Content::List(_) => Vec::new(),
    };
    let top = entries(root);
    let points = top.iter().find(|entry| entry.key == "intervention_points");
    let points = points.map(|entry| entries(&entry.value)).unwrap_or_default();
    points.into_iter().map(|entry| (entry.key, entry.key_at.line)).collect()
}
