//! Tests on values: `eq ne gt lt in contains starts_with matches …`.
//!
//! An undecidable test gets the safe result. A missing value fails every test of an `allow`; for other effects it passes negative tests, so
//! that "deny unless the recipient is one of ours" also denies a call without recipient. Text in a numeric comparison fails an `allow` and
//! passes a `deny`.

use std::ops::ControlFlow;

use regex::Regex;
use serde_json::{Number, Value};

use super::Quantifier;
use crate::json_path::JsonPath;
use crate::number::compare;

/// One test on one value.
#[derive(Debug, Clone)]
pub(crate) enum Test {
    Eq(Value),
    Ne(Value),
    Gt(Number),
    Lt(Number),
    Gte(Number),
    Lte(Number),
    In(Box<[Value]>),
    NotIn(Box<[Value]>),
    Contains(Value),
    NotContains(Value),
    StartsWith(Box<str>),
    EndsWith(Box<str>),
    Matches(Regex),
    Exists(bool),
    Any(Box<[Box<[Test]>]>),
    All(Box<[Box<[Test]>]>),
}

impl Test {
    pub(crate) fn holds(&self, value: &Value, quantifier: Quantifier) -> bool {
        let ordered = |bound: &Number, fits: fn(std::cmp::Ordering) -> bool| match value {
            Value::Number(number) => fits(compare(number, bound)),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                quantifier == Quantifier::Any
            }
        };
        let text = |fits: &dyn Fn(&str) -> bool| value.as_str().is_some_and(fits);
        match self {
            Self::Eq(other) => equal(value, other),
            Self::Ne(other) => !equal(value, other),
            Self::Gt(bound) => ordered(bound, std::cmp::Ordering::is_gt),
            Self::Lt(bound) => ordered(bound, std::cmp::Ordering::is_lt),
            Self::Gte(bound) => ordered(bound, std::cmp::Ordering::is_ge),
            Self::Lte(bound) => ordered(bound, std::cmp::Ordering::is_le),
            Self::In(list) => list.iter().any(|one| equal(value, one)),
            Self::NotIn(list) => !list.iter().any(|one| equal(value, one)),
            Self::Contains(part) => contains(value, part),
            Self::NotContains(part) => !contains(value, part),
            Self::StartsWith(start) => text(&|text| text.starts_with(&**start)),
            Self::EndsWith(end) => text(&|text| text.ends_with(&**end)),
            Self::Matches(regex) => text(&|text| regex.is_match(text)),
            Self::Exists(wanted) => *wanted,
            Self::Any(branches) => {
                branches.iter().any(|tests| tests.iter().all(|test| test.holds(value, quantifier)))
            }
            Self::All(branches) => {
                branches.iter().all(|tests| tests.iter().all(|test| test.holds(value, quantifier)))
            }
        }
    }

    /// The exact values that it accepts, if it lists them.
    pub(crate) fn wanted(&self) -> Option<&[Value]> {
        match self {
            Self::Eq(value) => Some(std::slice::from_ref(value)),
            Self::In(values) => Some(values),
            Self::Ne(_)
            | Self::Gt(_)
            | Self::Lt(_)
            | Self::Gte(_)
            | Self::Lte(_)
            | Self::NotIn(_)
            | Self::Contains(_)
            | Self::NotContains(_)
            | Self::StartsWith(_)
            | Self::EndsWith(_)
            | Self::Matches(_)
            | Self::Exists(_)
            | Self::Any(_)
            | Self::All(_) => None,
        }
    }

    /// Whether it holds for a missing value.
    pub(crate) fn holds_for_nothing(&self, quantifier: Quantifier) -> bool {
        match self {
            Self::Exists(wanted) => !wanted,
            Self::Ne(_) | Self::NotIn(_) | Self::NotContains(_) => quantifier == Quantifier::Any,
            Self::Eq(_)
            | Self::Gt(_)
            | Self::Lt(_)
            | Self::Gte(_)
            | Self::Lte(_)
            | Self::In(_)
            | Self::Contains(_)
            | Self::StartsWith(_)
            | Self::EndsWith(_)
            | Self::Matches(_) => false,
            Self::Any(branches) => {
                branches.iter().any(|tests| tests.iter().all(|test| test.holds_for_nothing(quantifier)))
            }
            Self::All(branches) => {
                branches.iter().all(|tests| tests.iter().all(|test| test.holds_for_nothing(quantifier)))
            }
        }
    }
}

/// Whether the values at a path pass all tests.
pub(crate) fn holds(path: &JsonPath, tests: &[Test], args: &Value, quantifier: Quantifier) -> bool {
    let passes = |value: &Value| tests.iter().all(|test| test.holds(value, quantifier));
    let (mut found, mut decided) = (false, false);
    let flow = path.select(args, &mut |value| {
        found = true;
        let passed = passes(value);
        let enough = match quantifier {
            Quantifier::Any => passed,
            Quantifier::Every => !passed,
        };
        if enough {
            decided = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    debug_assert_eq!(flow.is_break(), decided);
    if !found {
        return tests.iter().all(|test| test.holds_for_nothing(quantifier));
    }
    match quantifier {
        Quantifier::Any => decided,
        Quantifier::Every => !decided,
    }
}

/// Equality by value: numbers compare by value, not by spelling.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| equal(value, other)))
        }
        (left, right) => left == right,
    }
}

/// Text contains text, a list an element, an object a field of that name.
fn contains(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
        (Value::Array(items), part) => items.iter().any(|item| equal(item, part)),
        (Value::Object(fields), Value::String(name)) => fields.contains_key(name),
        (
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
        ) => false,
    }
}
