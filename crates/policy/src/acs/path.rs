//! Paths in manifests: a root, then strict steps to one value.

use serde_json::Value;

use super::RuntimeError;
use crate::json_path::{JsonPath, StrictPathError};

/// Where a path starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    /// `$snap`, `$`.
    Snapshot,
    /// `$pi`.
    Input,
    /// `$policy_target`.
    Target,
    /// `$tool`.
    Tool,
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) root: Root,
    steps: JsonPath,
}

impl Path {
    /// `None` if it isn't one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let roots = [
            ("$snap", Root::Snapshot),
            ("$policy_target", Root::Target),
            ("$target", Root::Target),
            ("$tool", Root::Tool),
            ("$pi", Root::Input),
            ("$", Root::Snapshot),
        ];
        let starts = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        let (root, rest) = roots.iter().find_map(|(word, root)| {
            text.strip_prefix(word).filter(|rest| starts(rest)).map(|rest| (*root, rest))
        })?;
        JsonPath::below_root(rest).ok().filter(JsonPath::is_single).map(|steps| Self { root, steps })
    }

    /// Whether the first step is this name.
    pub(super) fn begins_with(&self, name: &str) -> bool {
        self.steps.first_name() == Some(name)
    }

    /// A JSON pointer to this path followed by `more`, relative to the names in `below`; `None` if it lies elsewhere.
    pub(super) fn pointer(&self, more: &Self, below: &[&str]) -> Option<String> {
        self.steps.followed_by(&more.steps).below(below)?.pointer()
    }

    pub(super) fn get<'v>(&self, root: &'v Value) -> Result<&'v Value, RuntimeError> {
        self.steps.strict(root).map_err(|astray| match astray {
            StrictPathError::Missing => RuntimeError::PathMissing,
            StrictPathError::Mismatch => RuntimeError::PathTypeMismatch,
        })
    }

    pub(super) fn get_mut<'v>(&self, root: &'v mut Value) -> Option<&'v mut Value> {
        self.steps.strict(root).ok()?;
        root.pointer_mut(&self.steps.pointer()?)
    }
}
