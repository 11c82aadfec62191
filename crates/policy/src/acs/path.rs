//! Paths: a root, then `.name`, `[n]` or `["name"]`. Read without coercion.

use serde_json::Value;

use super::RuntimeError;

const STEPS_MAX: usize = 64;

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

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Name(String),
    At(usize),
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) root: Root,
    steps: Vec<Step>,
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
        let (root, mut rest) = roots.iter().find_map(|(word, root)| {
            text.strip_prefix(word).filter(|rest| starts(rest)).map(|rest| (*root, rest))
        })?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if steps.len() >= STEPS_MAX {
                return None;
            }
            let step;
            (step, rest) = next(rest)?;
            steps.push(step);
        }
        Some(Self { root, steps })
    }

    /// Whether the first step is this name.
    pub(super) fn begins_with(&self, name: &str) -> bool {
        matches!(self.steps.first(), Some(Step::Name(first)) if first == name)
    }

    /// A JSON pointer to what this path and then `more` lead to, from below the names of `below`; `None` if that lies elsewhere.
    pub(super) fn pointer(&self, more: &Self, below: &[&str]) -> Option<String> {
        let mut steps = self.steps.iter().chain(&more.steps);
        for name in below {
            steps.next().filter(|step| matches!(step, Step::Name(own) if own == name))?;
        }
        let part = |step: &Step| match step {
            Step::Name(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            Step::At(at) => format!("/{at}"),
        };
        Some(steps.map(part).collect())
    }

    pub(super) fn get<'v>(&self, root: &'v Value) -> Result<&'v Value, RuntimeError> {
        self.steps.iter().try_fold(root, |value, step| match (value, step) {
            (Value::Object(fields), Step::Name(name)) => fields.get(name).ok_or(RuntimeError::PathMissing),
            (Value::Array(items), Step::At(at)) => items.get(*at).ok_or(RuntimeError::PathMissing),
            (
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_)
                | Value::Object(_),
                _,
            ) => Err(RuntimeError::PathTypeMismatch),
        })
    }

    pub(super) fn get_mut<'v>(&self, root: &'v mut Value) -> Option<&'v mut Value> {
        self.steps.iter().try_fold(root, |value, step| match (value, step) {
            (Value::Object(fields), Step::Name(name)) => fields.get_mut(name),
            (Value::Array(items), Step::At(at)) => items.get_mut(*at),
            (
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_)
                | Value::Object(_),
                _,
            ) => None,
        })
    }
}

fn next(rest: &str) -> Option<(Step, &str)> {
    if let Some(rest) = rest.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at_checked(end)?;
        return (!name.is_empty() && !name.contains(']')).then(|| (Step::Name(name.to_owned()), rest));
    }
    let rest = rest.strip_prefix('[')?;
    if let Some(rest) = rest.strip_prefix('"') {
        let (name, rest) = rest.split_once("\"]")?;
        return Some((Step::Name(name.to_owned()), rest));
    }
    let (number, rest) = rest.split_once(']')?;
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    Some((Step::At(number.parse().ok().filter(|_| plain)?), rest))
}
