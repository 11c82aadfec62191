//! Two runs side by side: where they are the same, and where they part.

use std::collections::{BTreeMap, BTreeSet};

use regent_kernel::Status;
use regent_wire::body::EndStatus;
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

/// How a step ended, with the tool's message about it: two failures may be different ones.
fn detailed(status: &EndStatus) -> String {
    match status {
        EndStatus::Ended(Status::Failed(failure)) => {
            format!("failed: {}: {}", failure.code, failure.message)
        }
        EndStatus::Ended(Status::Faulted(message)) => format!("faulted: {message}"),
        EndStatus::Ended(Status::Ok | Status::TimedOut | Status::Cancelled) | EndStatus::InDoubt(_) => {
            status.word().to_owned()
        }
    }
}

fn brief(step: &Recorded) -> Brief {
    let end = step.end.as_ref();
    Brief {
        what: step.tool.clone().unwrap_or_else(|| step.op.clone()),
        call: step.call.map(|call| call.to_string()).unwrap_or_default(),
        status: end.map_or_else(|| step.verdict.to_string(), |end| detailed(&end.status)),
        output: end.and_then(|end| end.output.as_ref()).map(ToString::to_string),
    }
}
