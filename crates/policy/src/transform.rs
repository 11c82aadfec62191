//! Transforms: changes to a call's arguments before they reach an executor.

use std::sync::Arc;

use regex::Regex;
use serde::ser::{Serialize, Serializer};
use serde_json::{Number, Value};

use crate::number::compare;

/// Switches that only narrow a call at this value: inspect tunnels, no network, no terminal.
const NARROWING: &[(&str, bool)] = &[("/inspect", true), ("/network", false), ("/terminal", false)];
/// Arguments that are limits: reducing them narrows the call.
const LIMITS: &[&str] =
    &["/timeout_ms", "/bytes_max", "/entries_max", "/matches_max", "/redirects_max", "/max_tokens"];

/// One change to the arguments, at one JSON pointer.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Transform {
    /// Sets a constant, even if the argument is missing.
    Set {
        /// The argument.
        pointer: String,
        /// The constant.
        value: Value,
    },
    /// Removes the argument.
    Remove {
        /// The argument.
        pointer: String,
    },
    /// Masks every match of a regular expression in every text there.
    Redact {
        /// The argument.
        pointer: String,
        /// The pattern to mask.
        pattern: Pattern,
        /// The replacement.
        mask: String,
    },
    /// Truncates every text there.
    Truncate {
        /// The argument.
        pointer: String,
        /// Maximum characters.
        chars_max: usize,
    },
    /// Clamps a number to a range.
    Clamp {
        /// The argument.
        pointer: String,
        /// Minimum.
        min: Option<Number>,
        /// Maximum.
        max: Option<Number>,
    },
}

impl Transform {
    /// Applies the change; returns whether anything changed.
    pub fn apply(&self, args: &mut Value) -> bool {
        match self {
            Self::Set { pointer, value } => set(args, pointer, value),
            Self::Remove { pointer } => remove(args, pointer),
            Self::Redact { pointer, pattern, mask } => args.pointer_mut(pointer).is_some_and(|target| {
                each_text(target, &mut |text| match pattern.0.replace_all(text, regex::NoExpand(mask)) {
                    std::borrow::Cow::Borrowed(_) => None,
                    std::borrow::Cow::Owned(masked) => (masked != text).then_some(masked),
                })
            }),
            Self::Truncate { pointer, chars_max } => args.pointer_mut(pointer).is_some_and(|target| {
                each_text(target, &mut |text| {
                    let (end, _) = text.char_indices().nth(*chars_max)?;
                    text.get(..end).map(str::to_owned)
                })
            }),
            Self::Clamp { pointer, min, max } => args.pointer_mut(pointer).is_some_and(|target| {
                let bound = clamped(target, min.as_ref(), max.as_ref());
                bound.is_some_and(|bound| {
                    *target = Value::Number(bound);
                    true
                })
            }),
        }
    }

    /// Whether it can only narrow a call, whatever the call is. A project's policy may make only such changes: any other could turn a call
    /// that the user allows into one that the project wants.
    pub fn only_narrows(&self) -> bool {
        match self {
            Self::Set { pointer, value } => {
                NARROWING.iter().any(|(at, to)| at == pointer && value == &Value::Bool(*to))
            }
            Self::Clamp { pointer, min: None, max: Some(_) } => LIMITS.contains(&pointer.as_str()),
            Self::Clamp { .. } | Self::Remove { .. } | Self::Redact { .. } | Self::Truncate { .. } => false,
        }
    }

    /// The argument that it changes.
    pub fn pointer(&self) -> &str {
        match self {
            Self::Set { pointer, .. }
            | Self::Remove { pointer }
            | Self::Redact { pointer, .. }
            | Self::Truncate { pointer, .. }
            | Self::Clamp { pointer, .. } => pointer,
        }
    }
}

/// A compiled linear-time regular expression, compared and displayed by its source.
#[derive(Debug, Clone)]
pub struct Pattern(pub(crate) Arc<Regex>);

impl Pattern {
    /// Its source.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

fn set(args: &mut Value, pointer: &str, value: &Value) -> bool {
    if let Some(target) = args.pointer_mut(pointer) {
        let differs = target != value;
        target.clone_from(value);
        return differs;
    }
    let Some((around, name)) = parent(args, pointer) else { return false };
    match around {
        Value::Object(fields) => {
            fields.insert(name, value.clone());
            true
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

fn remove(args: &mut Value, pointer: &str) -> bool {
    let Some((around, name)) = parent(args, pointer) else { return false };
    match around {
        Value::Object(fields) => fields.remove(&name).is_some(),
        Value::Array(items) => match name.parse::<usize>() {
            Ok(at) if at < items.len() => {
                items.remove(at);
                true
            }
            Ok(_) | Err(_) => false,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The parent of the value at the pointer, and the value's unescaped name.
fn parent<'v>(args: &'v mut Value, pointer: &str) -> Option<(&'v mut Value, String)> {
    let (around, name) = pointer.rsplit_once('/')?;
    Some((args.pointer_mut(around)?, name.replace("~1", "/").replace("~0", "~")))
}

/// Changes every text at or below a value. An expected text may well be a list of texts.
fn each_text(value: &mut Value, change: &mut dyn FnMut(&str) -> Option<String>) -> bool {
    match value {
        Value::String(text) => match change(text) {
            Some(changed) => {
                *text = changed;
                true
            }
            None => false,
        },
        Value::Array(items) => {
            items.iter_mut().filter_map(|item| each_text(item, change).then_some(())).count() > 0
        }
        Value::Object(fields) => {
            fields.values_mut().filter_map(|field| each_text(field, change).then_some(())).count() > 0
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn clamped(value: &Value, min: Option<&Number>, max: Option<&Number>) -> Option<Number> {
    let Value::Number(number) = value else { return None };
    let below = |bound: &&Number| compare(number, bound).is_lt();
    let above = |bound: &&Number| compare(number, bound).is_gt();
    min.filter(below).or(max.filter(above)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pattern(text: &str) -> Pattern {
        Pattern(Arc::new(Regex::new(text).unwrap()))
    }

    #[test]
    fn each_transform_has_its_effect() {
        let at = |pointer: &str| pointer.to_owned();
        let clamp = |min: Option<i64>, max: Option<i64>| Transform::Clamp {
            pointer: at("/n"),
            min: min.map(Number::from),
            max: max.map(Number::from),
        };
        let cases = [
            (Transform::Set { pointer: at("/a"), value: json!(1) }, json!({"a": 2}), json!({"a": 1}), true),
            (Transform::Set { pointer: at("/a"), value: json!(1) }, json!({"a": 1}), json!({"a": 1}), false),
            (
                Transform::Set { pointer: at("/b/c"), value: json!(1) },
                json!({"b": {}}),
                json!({"b": {"c": 1}}),
                true,
            ),
            (Transform::Set { pointer: at("/b/c"), value: json!(1) }, json!({}), json!({}), false),
            (Transform::Set { pointer: at("/x~1y"), value: json!(1) }, json!({}), json!({"x/y": 1}), true),
            (Transform::Remove { pointer: at("/a") }, json!({"a": 2, "b": 3}), json!({"b": 3}), true),
            (Transform::Remove { pointer: at("/a/1") }, json!({"a": [1, 2]}), json!({"a": [1]}), true),
            (Transform::Remove { pointer: at("/a/7") }, json!({"a": [1, 2]}), json!({"a": [1, 2]}), false),
            (
                Transform::Redact { pointer: at("/t"), pattern: pattern("[0-9]+"), mask: "$0#".to_owned() },
                json!({"t": ["call 12 34", {"k": "5"}, 6]}),
                json!({"t": ["call $0# $0#", {"k": "$0#"}, 6]}),
                true,
            ),
            (
                Transform::Truncate { pointer: at("/t"), chars_max: 2 },
                json!({"t": "äöü"}),
                json!({"t": "äö"}),
                true,
            ),
            (
                Transform::Truncate { pointer: at("/t"), chars_max: 3 },
                json!({"t": "äöü"}),
                json!({"t": "äöü"}),
                false,
            ),
            (clamp(None, Some(30)), json!({"n": 31}), json!({"n": 30}), true),
            (clamp(Some(5), None), json!({"n": 1.5}), json!({"n": 5}), true),
            (clamp(Some(5), Some(9)), json!({"n": 7}), json!({"n": 7}), false),
            (clamp(Some(5), Some(9)), json!({"n": "7"}), json!({"n": "7"}), false),
        ];
        for (transform, mut args, expected, changed) in cases {
            assert_eq!(transform.apply(&mut args), changed, "{transform:?}");
            assert_eq!(args, expected, "{transform:?}");
        }
    }
}
