//! Places in JSON: where in a call's arguments a condition looks, and what a manifest reads and changes. Written as a JSON pointer
//! (`/to/0`) or as a JSON path (`$.to[*]`).

use std::ops::ControlFlow;

use serde_json::Value;

/// Longest path, in steps.
const STEPS_MAX: usize = 64;

/// A compiled path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Box<[Step]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A field, or an element if the name is a number: JSON pointers don't tell them apart.
    Name(Box<str>),
    /// One element.
    At(usize),
    /// Every field or element.
    Each,
    /// Every value at any depth, the present one included.
    Deep,
}

/// Why a path is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonPathError {
    #[error("a path into the arguments starts with `/` or `$`")]
    Start,
    #[error("unexpected `{0}` in a JSON path")]
    Rest(String),
    #[error("the path has more than {STEPS_MAX} steps")]
    TooLong,
    #[error("`..` may occur only once: several are too slow on deeply nested arguments")]
    Deep,
}

/// Why a strict path leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Astray {
    /// There is no such field or element.
    Missing,
    /// A name was looked for in what is no object, or an element in what is no list.
    Mismatch,
}

impl JsonPath {
    /// Compiles either spelling.
    pub(crate) fn new(text: &str) -> Result<Self, JsonPathError> {
        let steps = if text.is_empty() || text.starts_with('/') {
            text.split('/').skip(1).map(|name| Step::Name(unescape(name).into())).collect()
        } else if let Some(rest) = text.strip_prefix('$') {
            path_steps(rest)?
        } else {
            return Err(JsonPathError::Start);
        };
        Self::bounded(steps)
    }

    /// Compiles what follows the root of a path.
    pub(crate) fn below_root(text: &str) -> Result<Self, JsonPathError> {
        Self::bounded(path_steps(text)?)
    }

    fn bounded(steps: Vec<Step>) -> Result<Self, JsonPathError> {
        if steps.len() > STEPS_MAX { Err(JsonPathError::TooLong) } else { Ok(Self(steps.into())) }
    }

    /// Shows every value there to `visit` until it breaks off.
    pub(crate) fn select<'v>(
        &self,
        value: &'v Value,
        visit: &mut dyn FnMut(&'v Value) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        select(value, &self.0, visit)
    }

    /// The one value there, if the path can't name several.
    pub(crate) fn single<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(value, |value, step| match step {
            Step::Name(name) => child(value, name),
            Step::At(at) => value.get(at),
            Step::Each | Step::Deep => None,
        })
    }

    /// The one value there, where a name is only a field's and a number only an element's.
    pub(crate) fn strict<'v>(&self, value: &'v Value) -> Result<&'v Value, Astray> {
        self.0.iter().try_fold(value, |value, step| match (value, step) {
            (Value::Object(fields), Step::Name(name)) => fields.get(&**name).ok_or(Astray::Missing),
            (Value::Array(items), Step::At(at)) => items.get(*at).ok_or(Astray::Missing),
            (_other, Step::Name(_) | Step::At(_) | Step::Each | Step::Deep) => Err(Astray::Mismatch),
        })
    }

    /// The same as a JSON pointer, if it names one place.
    pub(crate) fn pointer(&self) -> Option<String> {
        let part = |step: &Step| match step {
            Step::Name(name) => Some(format!("/{}", name.replace('~', "~0").replace('/', "~1"))),
            Step::At(at) => Some(format!("/{at}")),
            Step::Each | Step::Deep => None,
        };
        self.0.iter().map(part).collect()
    }

    /// This path, then another.
    pub(crate) fn followed_by(&self, more: &Self) -> Self {
        Self(self.0.iter().chain(&more.0).cloned().collect())
    }

    /// What is left of it below these names; `None` if it doesn't begin with them.
    pub(crate) fn below(&self, names: &[&str]) -> Option<Self> {
        let mut steps = self.0.iter();
        for name in names {
            steps.next().filter(|step| matches!(step, Step::Name(own) if &**own == *name))?;
        }
        Some(Self(steps.cloned().collect()))
    }

    /// Its first step, if that is a name.
    pub(crate) fn first_name(&self) -> Option<&str> {
        match self.0.first() {
            Some(Step::Name(name)) => Some(name),
            Some(Step::At(_) | Step::Each | Step::Deep) | None => None,
        }
    }

    /// The name of the argument, if that is all it says.
    pub(crate) fn plain_name(&self) -> Option<&str> {
        match &*self.0 {
            [Step::Name(name)] => Some(name),
            [..] => None,
        }
    }

    /// Whether it names one place only.
    pub(crate) fn is_single(&self) -> bool {
        self.0.iter().all(|step| matches!(step, Step::Name(_) | Step::At(_)))
    }
}

fn child<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => fields.get(name),
        // As in RFC 6901: no leading zeros, or two spellings would name one element.
        Value::Array(items) if name == "0" || !name.starts_with('0') => {
            name.parse::<usize>().ok().and_then(|at| items.get(at))
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn select<'v>(
    value: &'v Value,
    steps: &[Step],
    visit: &mut dyn FnMut(&'v Value) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some((step, rest)) = steps.split_first() else { return visit(value) };
    match step {
        Step::Name(name) => {
            child(value, name).map_or(ControlFlow::Continue(()), |found| select(found, rest, visit))
        }
        Step::At(at) => value.get(at).map_or(ControlFlow::Continue(()), |found| select(found, rest, visit)),
        Step::Each => each(value, &mut |inner| select(inner, rest, visit)),
        Step::Deep => {
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

fn path_steps(text: &str) -> Result<Vec<Step>, JsonPathError> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let refuse = || JsonPathError::Rest(rest.to_owned());
        if let Some(after) = rest.strip_prefix("..") {
            if after.is_empty() || after.starts_with('.') {
                return Err(refuse());
            }
            if steps.contains(&Step::Deep) {
                return Err(JsonPathError::Deep);
            }
            steps.push(Step::Deep);
            // `..name` reads as `..` and `.name`; `..[0]` continues with its bracket.
            rest = if after.starts_with('[') { after } else { rest.get(1..).ok_or_else(refuse)? };
            continue;
        }
        let (step, after) = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at_checked(end).ok_or_else(refuse)?;
            match name {
                name if name.is_empty() || name.contains(']') => return Err(refuse()),
                "*" => (Step::Each, after),
                name => (Step::Name(name.into()), after),
            }
        } else {
            bracket(rest).ok_or_else(refuse)?
        };
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

/// `[*]`, `[3]`, `['name']` or `["name"]`, and what follows it.
fn bracket(text: &str) -> Option<(Step, &str)> {
    let inside = text.strip_prefix('[')?;
    if let Some(after) = inside.strip_prefix("*]") {
        return Some((Step::Each, after));
    }
    for quote in ['\'', '"'] {
        if let Some(quoted) = inside.strip_prefix(quote) {
            let (name, after) = quoted.split_once(quote)?;
            return Some((Step::Name(name.into()), after.strip_prefix(']')?));
        }
    }
    let (number, after) = inside.split_once(']')?;
    // `+1` would be a number too.
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
    Some((Step::At(number.parse().ok().filter(|_| is_plain)?), after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_spellings_select_what_they_say() {
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
            (".a.0", Err(Astray::Mismatch), Some("/a/0")),
            ("[0]", Err(Astray::Mismatch), Some("/0")),
            (".a[1]", Err(Astray::Missing), Some("/a/1")),
            (".x", Err(Astray::Missing), Some("/x")),
            (".a[*]", Err(Astray::Mismatch), None),
        ];
        for (path, expected, pointer) in cases {
            let path = JsonPath::below_root(path).unwrap();
            assert_eq!(path.strict(&value), expected, "{path:?}");
            assert_eq!(path.pointer().as_deref(), pointer, "{path:?}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for path in ["to", "$to", "$.", "$.a[", "$.a[x]", "$...a", "$..", "$.a['b]", "$.a[+1]", "$.a]"] {
            assert!(JsonPath::new(path).is_err(), "{path}");
        }
        assert_eq!(JsonPath::new(&"/a".repeat(STEPS_MAX + 1)), Err(JsonPathError::TooLong));
        assert_eq!(JsonPath::new("$..a..b"), Err(JsonPathError::Deep));
    }
}
