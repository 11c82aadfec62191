//! What an integrator declares once per tool: what it does, which arguments choose who is affected, which output an outsider can write.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text;

/// Stands for all fields among those that are [remembered](FieldLabels::remembered).
pub const ALL_FIELDS: &str = "*";

/// What a call of the tool does outside of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing.
    Read,
    /// It reads, but reaches an outside party: its arguments can carry something out.
    Egress,
    /// It changes something, or reaches another person.
    Write,
}

/// Which part of the output an outsider can write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Taint {
    /// All of it, or none.
    Whole(Whole),
    /// What is in, or below, fields of these names.
    Fields(BTreeSet<String>),
}

/// A taint without fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whole {
    /// An outsider can write none of it.
    None,
    /// An outsider can write all of it.
    All,
    /// Nobody has said. What reads like text, an address or a link is an outsider's, with all else in fields of that name; ids,
    /// numbers, dates and single words aren't.
    Observed,
}

/// The labels of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldLabels {
    /// What it does.
    pub effect: Effect,
    /// The arguments that choose who or what is affected; the others are content.
    #[serde(default)]
    pub sinks: BTreeSet<String>,
    /// Which output is an outsider's.
    pub taint: Taint,
    /// The output is confidential to the user.
    #[serde(default)]
    pub secret: bool,
    /// The only ones besides the user who may read the output, as sinks name them. Naming any makes the output confidential, and it goes
    /// to nobody else unasked.
    #[serde(default)]
    pub readers: BTreeSet<String>,
    /// Nobody declared this: it was inferred, and a person should confirm it.
    #[serde(default)]
    pub inferred: bool,
    /// Fields that held a stranger's text in earlier sessions, for the taint `observed`. The empty name stands for what has no field,
    /// [`ALL_FIELDS`] for everything.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub remembered: BTreeSet<String>,
    /// Arguments that a project wants judged as choosing who is affected, besides as what they are: it can't lift what holds for content.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub also_sinks: BTreeSet<String>,
    /// Its effect stays on this machine and can be taken back: only what it reaches is judged, not what is written there or how often.
    #[serde(skip)]
    pub local: bool,
    /// The names that the schema of the arguments has, at any depth; none if there is no schema.
    #[serde(skip)]
    pub fields: BTreeSet<String>,
}

impl FieldLabels {
    /// The worst labels: it writes, every argument is a sink, all of its output is an outsider's and confidential.
    pub(crate) fn worst(schema: &Value) -> Self {
        let properties = schema.get("properties").and_then(Value::as_object);
        Self {
            effect: Effect::Write,
            sinks: properties.map(|all| all.keys().cloned().collect()).unwrap_or_default(),
            taint: Taint::Whole(Whole::All),
            secret: true,
            readers: BTreeSet::new(),
            inferred: true,
            remembered: BTreeSet::new(),
            also_sinks: BTreeSet::new(),
            local: false,
            fields: names_in(schema),
        }
    }

    /// Labels as declared; missing or unreadable ones are the strictest.
    pub fn declared(labels: &Value, schema: &Value) -> Self {
        match Self::deserialize(labels) {
            Ok(labels) => Self { fields: names_in(schema), ..labels },
            Err(_) => Self::worst(schema),
        }
    }

    /// Whether the output is confidential.
    pub fn is_confidential(&self) -> bool {
        self.secret || !self.readers.is_empty()
    }

    /// Whether a call does something outside of the agent.
    pub fn acts(&self) -> bool {
        self.effect != Effect::Read
    }

    /// Whether an argument chooses who or what is affected. A URL that is fetched always does. Of an inferred tool so does what its schema
    /// doesn't name, and whatever is long enough to be a message.
    pub fn is_sink(&self, argument: &str, value: &Value) -> bool {
        let is_odd = || !self.fields.contains(argument) || (!self.acts() && says_much(value));
        (self.inferred && is_odd())
            || self.sinks.contains(argument)
            || (self.effect == Effect::Egress && names_a_url(value))
    }

    /// Which part of this output is an outsider's.
    pub(crate) fn taint_of(&self, output: &Value) -> Cow<'_, Taint> {
        if self.taint != Taint::Whole(Whole::Observed) {
            return Cow::Borrowed(&self.taint);
        }
        let mut fields = strangers_fields(output);
        if fields.contains("") || self.remembered.contains(ALL_FIELDS) {
            return Cow::Owned(Taint::Whole(Whole::All));
        }
        fields.extend(self.remembered.iter().cloned());
        Cow::Owned(if fields.is_empty() { Taint::Whole(Whole::None) } else { Taint::Fields(fields) })
    }
}

/// The fields whose values look as if an outsider could have written them. The empty name stands for an output
/// that has such text outside of any field.
pub fn strangers_fields(output: &Value) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    text::leaves(output, &mut |path, leaf| {
        if !text::is_token(&text::text_of(leaf)) {
            let name = path.rsplit(['.', '[', ']']).find(|name| !name.is_empty());
            fields.insert(name.unwrap_or_default().to_owned());
        }
    });
    fields
}

impl Taint {
    /// Whether what is at a path of the output is an outsider's. Where single fields are named, what has no field can't be told apart.
    pub(crate) fn covers(&self, path: &str) -> bool {
        match self {
            Taint::Whole(Whole::None) => false,
            Taint::Whole(Whole::All | Whole::Observed) => true,
            Taint::Fields(fields) => {
                let mut names = path.split(['.', '[', ']']).filter(|name| !name.is_empty()).peekable();
                names.peek().is_none() || names.any(|name| fields.contains(name))
            }
        }
    }
}

/// Deeper than any schema of use.
const SCHEMA_DEPTH_MAX: usize = 32;

/// The names of all properties in a schema, at any depth.
pub fn names_in(schema: &Value) -> BTreeSet<String> {
    fn collect(schema: &Value, depth: usize, names: &mut BTreeSet<String>) {
        if depth > SCHEMA_DEPTH_MAX {
            return;
        }
        match schema {
            Value::Object(parts) => {
                names.extend(
                    parts
                        .get("properties")
                        .and_then(Value::as_object)
                        .into_iter()
                        .flat_map(|all| all.keys().cloned()),
                );
                parts.values().for_each(|part| collect(part, depth.saturating_add(1), names));
            }
            Value::Array(parts) => {
                parts.iter().for_each(|part| collect(part, depth.saturating_add(1), names))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut names = BTreeSet::new();
    collect(schema, 0, &mut names);
    names
}

/// Fields of one output that a policy rule declassifies: paths from the top, `sender` or `items[].id`, with everything below.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cleared {
    /// Trusted although an outsider can write them.
    pub trust: BTreeSet<String>,
    /// Open although the output is confidential.
    pub open: BTreeSet<String>,
}

impl Cleared {
    /// Whether no field is declassified.
    pub fn is_empty(&self) -> bool {
        self.trust.is_empty() && self.open.is_empty()
    }

    /// What of it can be told apart in an output: nothing where a key could pass for a path of others.
    pub(crate) fn within(&self, output: &Value) -> Self {
        let spares = |fields: &BTreeSet<String>| !fields.is_empty();
        if (spares(&self.trust) || spares(&self.open)) && has_plain_keys(output, 0) {
            self.clone()
        } else {
            Self::default()
        }
    }

    pub(crate) fn trusts(&self, path: &str) -> Option<&String> {
        self.trust.iter().find(|field| is_at(path, field))
    }

    pub(crate) fn opens(&self, path: &str) -> Option<&String> {
        self.open.iter().find(|field| is_at(path, field))
    }
}

/// Whether a path is that of a field, or below it.
fn is_at(path: &str, field: &str) -> bool {
    let path = path.strip_prefix('.').unwrap_or(path);
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Deeper than any result of use.
const DEPTH_MAX: usize = 64;

/// Whether no key looks like a path: the key `{"a.b": …}` must not pass for the field `b` of `a`.
fn has_plain_keys(value: &Value, depth: usize) -> bool {
    if depth > DEPTH_MAX {
        return false;
    }
    let below = |value| has_plain_keys(value, depth.saturating_add(1));
    match value {
        Value::Object(fields) => fields
            .iter()
            .all(|(key, value)| !key.is_empty() && !key.contains(['.', '[', ']']) && below(value)),
        Value::Array(items) => items.iter().all(below),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Whether it could tell more than a name or a question: some words are enough for either.
fn says_much(value: &Value) -> bool {
    const BYTES_MAX: usize = 64;
    let mut bytes = 0_usize;
    text::leaves(value, &mut |_, leaf| bytes = bytes.saturating_add(text::text_of(leaf).len()));
    bytes > BYTES_MAX
}

fn names_a_url(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains("://") || text.starts_with("www."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_declared_is_the_worst() {
        let schema = json!({"properties": {"to": {}, "text": {}}});
        for odd in [
            json!(null),
            json!({}),
            json!({"effect": "harmless", "taint": "none"}),
            json!({"effect": "read"}),
        ] {
            let labels = FieldLabels::declared(&odd, &schema);
            assert!(labels.inferred && labels.acts() && labels.secret, "{odd}");
            assert!(
                labels.is_sink("text", &json!(1))
                    && labels.is_sink("extra", &json!(1))
                    && labels.taint.covers(".id")
            );
        }
    }

    #[test]
    fn fields_and_urls() {
        let declared = json!({"effect": "egress", "sinks": ["to"], "taint": ["subject"], "secret": true});
        let labels = FieldLabels::declared(&declared, &json!({}));
        assert!(
            !labels.inferred && labels.is_sink("to", &json!("x")) && !labels.is_sink("text", &json!("x"))
        );
        assert!(labels.is_sink("page", &json!("https://a.test/x")));
        let cases =
            [("[].subject", true), ("[].subject.deep", true), ("[].sender", false), ("", true), ("[]", true)];
        for (path, tainted) in cases {
            assert_eq!(labels.taint.covers(path), tainted, "{path}");
        }
    }
}
