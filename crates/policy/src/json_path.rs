//! Paths in JSON: which part of a call's arguments a condition tests, and what a manifest reads and changes. Written as a JSON pointer
//! (`/to/0`) or as a JSON path (`$.to[*]`).

use std::ops::ControlFlow;

use serde_json::Value;

/// Maximum segments of a path.
const SEGMENTS_MAX: usize = 64;

/// A compiled path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Box<[PathSegment]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathSegment {
    /// A field, or an element if the name is a number: JSON pointers don't distinguish them.
    Name(Box<str>),
    /// One element.
    At(usize),
    /// Every field or element.
    Each,
    /// Every value at any depth, including the current one.
    Deep,
}

/// Why a path is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonPathError {
    #[error("a path into the arguments starts with `/` or `$`")]
    Start,
    #[error("unexpected `{0}` in a JSON path")]
    Rest(String),
    #[error("the path has more than {SEGMENTS_MAX} steps")]
    TooLong,
    #[error("`..` may occur only once: several are too slow on deeply nested arguments")]
    Deep,
}

/// Why a strict path leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StrictPathError {
    /// The field or element doesn't exist.
    Missing,
    /// A field of a value that isn't an object, or an element of one that isn't a list.
    Mismatch,
}

impl JsonPath {
    /// Compiles either syntax.
    pub(crate) fn new(text: &str) -> Result<Self, JsonPathError> {
        let steps = if text.is_empty() || text.starts_with('/') {
            text.split('/').skip(1).map(|name| PathSegment::Name(unescape(name).into())).collect()
        } else if let Some(rest) = text.strip_prefix('$') {
            path_steps(rest)?
        } else {
            return Err(JsonPathError::Start);
        };
        Self::bounded(steps)
    }

    /// Compiles the part after the root of a path.
    pub(crate) fn below_root(text: &str) -> Result<Self, JsonPathError> {
        Self::bounded(path_steps(text)?)
    }

    fn bounded(steps: Vec<PathSegment>) -> Result<Self, JsonPathError> {
        if steps.len() > SEGMENTS_MAX { Err(JsonPathError::TooLong) } else { Ok(Self(steps.into())) }
    }

    /// Calls `visit` with every selected value until it breaks.
    pub(crate) fn select<'v>(
        &self,
        value: &'v Value,
        visit: &mut dyn FnMut(&'v Value) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        select(value, &self.0, visit)
    }

    /// The selected value, if the path can select only one.
    pub(crate) fn single<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(value, |value, step| match step {
            PathSegment::Name(name) => child(value, name),
            PathSegment::At(at) => value.get(at),
            PathSegment::Each | PathSegment::Deep => None,
        })
    }

    /// The selected value, where a name only selects fields and a number only elements.
    pub(crate) fn strict<'v>(&self, value: &'v Value) -> Result<&'v Value, StrictPathError> {
        self.0.iter().try_fold(value, |value, step| match (value, step) {
            (Value::Object(fields), PathSegment::Name(name)) => {
                fields.get(&**name).ok_or(StrictPathError::Missing)
            }
            (Value::Array(items), PathSegment::At(at)) => items.get(*at).ok_or(StrictPathError::Missing),
            (_other, PathSegment::Name(_) | PathSegment::At(_) | PathSegment::Each | PathSegment::Deep) => {
                Err(StrictPathError::Mismatch)
            }
        })
    }

    /// The path as a JSON pointer, if it selects one value.
    pub(crate) fn pointer(&self) -> Option<String> {
        let part = |step: &PathSegment| match step {
            PathSegment::Name(name) => Some(format!("/{}", name.replace('~', "~0").replace('/', "~1"))),
            PathSegment::At(at) => Some(format!("/{at}")),
            PathSegment::Each | PathSegment::Deep => None,
        };
        self.0.iter().map(part).collect()
    }

    /// This path followed by another.
    pub(crate) fn followed_by(&self, more: &Self) -> Self {
        Self(self.0.iter().chain(&more.0).cloned().collect())
    }

    /// The rest of the path after these names; `None` if it doesn't begin with them.
    pub(crate) fn below(&self, names: &[&str]) -> Option<Self> {
        let mut steps = self.0.iter();
        for name in names {
            steps.next().filter(|step| matches!(step, PathSegment::Name(own) if &**own == *name))?;
        }
        Some(Self(steps.cloned().collect()))
    }

    /// Its first segment, if that is a name.
    pub(crate) fn first_name(&self) -> Option<&str> {
        match self.0.first() {
            Some(PathSegment::Name(name)) => Some(name),
            Some(PathSegment::At(_) | PathSegment::Each | PathSegment::Deep) | None => None,
        }
    }

    /// The argument's name, if the path is only that.
    pub(crate) fn plain_name(&self) -> Option<&str> {
        match &*self.0 {
            [PathSegment::Name(name)] => Some(name),
            [..] => None,
        }
    }

    /// Whether it selects at most one value.
    pub(crate) fn is_single(&self) -> bool {
        self.0.iter().all(|step| matches!(step, PathSegment::Name(_) | PathSegment::At(_)))
    }
}

fn child<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => fields.get(name),
        // As in RFC 6901, no leading zeros, or two spellings would select one element.
        Value::Array(items) if name == "0" || !name.starts_with('0') => {
            name.parse::<usize>().ok().and_then(|at| items.get(at))
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn select<'v>(
    value: &'v Value,
    steps: &[PathSegment],
    visit: &mut dyn FnMut(&'v Value) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some((step, rest)) = steps.split_first() else { return visit(value) };
    match step {
        PathSegment::Name(name) => {
            child(value, name).map_or(ControlFlow::Continue(()), |found| select(found, rest, visit))
        }
        PathSegment::At(at) => {
            value.get(at).map_or(ControlFlow::Continue(()), |found| select(found, rest, visit))
        }
        PathSegment::Each => each(value, &mut |inner| select(inner, rest, visit)),
        PathSegment::Deep => {
            select(value, rest, visit)?;
            each(value, &mut |inner| select(inner, steps, visit))
        }
    }
}

fn each<'v>(value: &'v Value, visit: &mut dyn FnMut(&'v Value) -> ControlFlow<()>) -> ControlFlow<()> {
    match value {
        Value::Array(items) => items.iter().try_for_each(visit),
        Value::Object(fields) => fields.values().try_for_each(visit),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => ControlFlow::Continue(()),
    }
}

fn unescape(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

fn path_steps(text: &str) -> Result<Vec<PathSegment>, JsonPathError> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let refuse = || JsonPathError::Rest(rest.to_owned());
        if let Some(after) = rest.strip_prefix("..") {
            if after.is_empty() || after.starts_with('.') {
                return Err(refuse());
            }
            if steps.contains(&PathSegment::Deep) {
                return Err(JsonPathError::Deep);
            }
            steps.push(PathSegment::Deep);
            // `..name` parses as `..` and `.name`; `..[0]` continues with its bracket.
            rest = if after.starts_with('[') { after } else { rest.get(1..).ok_or_else(refuse)? };
            continue;
        }
        let (step, after) = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at_checked(end).ok_or_else(refuse)?;
            match name {
                name if name.is_empty() || name.contains(']') => return Err(refuse()),
                "*" => (PathSegment::Each, after),
                name => (PathSegment::Name(name.into()), after),
            }
        } else {
            bracket(rest).ok_or_else(refuse)?
        };
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

/// `[*]`, `[3]`, `['name']` or `["name"]`, and the rest of the path.
fn bracket(text: &str) -> Option<(PathSegment, &str)> {
    let inside = text.strip_prefix('[')?;
    if let Some(after) = inside.strip_prefix("*]") {
        return Some((PathSegment::Each, after));
    }
    for quote in ['\'', '"'] {
        if let Some(quoted) = inside.strip_prefix(quote) {
            let (name, after) = quoted.split_once(quote)?;
            return Some((PathSegment::Name(name.into()), after.strip_prefix(']')?));
        }
    }
    let (number, after) = inside.split_once(']')?;
    // `parse` would accept `+1` too.
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
    Some((PathSegment::At(number.parse().ok().filter(|_| is_plain)?), after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_syntaxes_select_the_same_values() {
        let args = json!({"to": ["a", "b"], "m": {"x": {"y": 1}, "z/w": 2}, "n": [{"k": 5}, {"k": 6}]});
        let cases = [
            ("/to/0", json!(["a"])),
            ("/to/00", json!([])),
            ("$.to[0]", json!(["a"])),
            ("$.to[*]", json!(["a", "b"])),
            ("$.n[*].k", json!([5, 6])),
            ("$..k", json!([5, 6])),
            ("$..y", json!([1])),
            ("/m/z~1w", json!([2])),
            ("$.m['z/w']", json!([2])),
            ("$.m.*", json!([{"y": 1}, 2])),
            ("/nothing", json!([])),
            ("$.to.x", json!([])),
        ];
        for (path, expected) in cases {
            let mut found = Vec::new();
            let flow = JsonPath::new(path).unwrap().select(&args, &mut |value| {
                found.push(value.clone());
                ControlFlow::Continue(())
            });
            assert!(flow.is_continue());
            assert_eq!(json!(found), expected, "{path}");
        }
        assert_eq!(JsonPath::new("").unwrap().single(&args), Some(&args));
    }

    #[test]
    fn a_strict_path_takes_no_name_for_a_number() {
        let value = json!({"a": [{"b/c": 1}], "0": 2});
        let cases = [
            (".a[0][\"b/c\"]", Ok(&json!(1)), Some("/a/0/b~1c")),
            ("", Ok(&value), Some("")),
            (".a.0", Err(StrictPathError::Mismatch), Some("/a/0")),
            ("[0]", Err(StrictPathError::Mismatch), Some("/0")),
            (".a[1]", Err(StrictPathError::Missing), Some("/a/1")),
            (".x", Err(StrictPathError::Missing), Some("/x")),
            (".a[*]", Err(StrictPathError::Mismatch), None),
        ];
        for (path, expected, pointer) in cases {
            let path = JsonPath::below_root(path).unwrap();
            assert_eq!(path.strict(&value), expected, "{path:?}");
            assert_eq!(path.pointer().as_deref(), pointer, "{path:?}");
        }
    }

    #[test]
    fn rejects_malformed_paths() {
        for path in ["to", "$to", "$.", "$.a[", "$.a[x]", "$...a", "$..", "$.a['b]", "$.a[+1]", "$.a]"] {
            assert!(JsonPath::new(path).is_err(), "{path}");
        }
        assert_eq!(JsonPath::new(&"/a".repeat(SEGMENTS_MAX + 1)), Err(JsonPathError::TooLong));
        assert_eq!(JsonPath::new("$..a..b"), Err(JsonPathError::Deep));
    }
}
