//! Two runs side by side: where they are the same, and where they part.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::tape::Recorded;
use crate::door::is_before;

/// What one run did at a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Brief {
    /// What was asked for: the tool, or the operation.
    pub what: String,
    /// The digest of the call.
    pub call: String,
    /// How it ended; `deny` if it was refused.
    pub status: String,
    /// The digest of what came back.
    pub output: Option<String>,
}

/// A step that isn't the same in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Which step.
    pub step: String,
    /// In the first run, if it is there.
    pub left: Option<Brief>,
    /// In the second.
    pub right: Option<Brief>,
}

/// The steps that differ, in the order of the program.
pub fn diff(left: &BTreeMap<String, Recorded>, right: &BTreeMap<String, Recorded>) -> Vec<Difference> {
    let mut names: Vec<&String> =
        left.keys().chain(right.keys()).collect::<BTreeSet<_>>().into_iter().collect();
    names.sort_by(|one, other| match (is_before(one, other), is_before(other, one)) {
        (true, _) => std::cmp::Ordering::Less,
        (false, true) => std::cmp::Ordering::Greater,
        (false, false) => std::cmp::Ordering::Equal,
    });
    let both = |name: &String| Difference {
        step: name.clone(),
        left: left.get(name).map(brief),
        right: right.get(name).map(brief),
    };
    names.into_iter().map(both).filter(|one| one.left != one.right).collect()
}

fn brief(step: &Recorded) -> Brief {
    let end = step.end.as_ref();
    Brief {
        what: step.tool.clone().unwrap_or_else(|| step.op.clone()),
        call: step.call.clone(),
        status: end.map_or_else(
            || step.verdict.clone(),
            |end| match end.status.as_str() {
                Some(word) => word.to_owned(),
                None => end.status.to_string(),
            },
        ),
        output: end.and_then(|end| end.output.as_ref()).map(ToString::to_string),
    }
}
