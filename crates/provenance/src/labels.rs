//! Field labels, declared once per tool by an integrator: its effect, its sinks, and the output that an outsider can write.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text;

/// Means all fields in [`remembered`](FieldLabels::remembered).
pub const ALL_FIELDS: &str = "*";

/// The effect of a call outside the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing.
    Read,
    /// Reads, but reaches an outside party: its arguments can carry data out.
    Egress,
    /// Changes something, or reaches another party.
    Write,
}

/// The part of the output that an outsider can write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Taint {
    /// All of it, or none.
    Whole(Whole),
    /// Everything in or below fields of these names.
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
    /// Undeclared. Values that look like text, an address or a link count as an outsider's, along with everything else in fields of that
    /// name. Ids, numbers, dates and single words don't.
    Observed,
}

/// The labels of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldLabels {
    /// Its effect.
    pub effect: Effect,
    /// The arguments that decide who or what is affected; the others are content.
    #[serde(default)]
    pub sinks: BTreeSet<String>,
    /// The output that an outsider can write.
    pub taint: Taint,
    /// Whether the output is confidential to the user.
    #[serde(default)]
    pub secret: bool,
    /// The only parties besides the user who may read the output, as sinks name them. Any reader makes the output confidential; sending it
    /// to others needs an approval.
    #[serde(default)]
    pub readers: BTreeSet<String>,
    /// Whether the labels were inferred and should be confirmed by a reviewer.
    #[serde(default)]
    pub inferred: bool,
    /// Fields that contained outsiders' text in earlier sessions, for the taint `observed`. The empty name stands for values without a
    /// field, [`ALL_FIELDS`] for everything.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub remembered: BTreeSet<String>,
    /// Arguments that a project also judges as sinks. They are still judged as content too.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub also_sinks: BTreeSet<String>,
    /// Whether its effect stays on this machine and is reversible: then only the affected targets are judged, not the content or
    /// repetition.
    #[serde(skip)]
    pub local: bool,
    /// The names in the argument schema; empty without a schema.
    #[serde(skip)]
    pub fields: SchemaNames,
}

impl FieldLabels {
    /// The worst labels: it writes, every argument is a sink, and all output is an outsider's and confidential.
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

    /// Parses declared labels; missing or unreadable ones become the strictest.
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

    /// Whether a call has an effect outside the agent.
    pub fn acts(&self) -> bool {
        self.effect != Effect::Read
    }

    /// Whether an argument is a sink. A URL to fetch always is. For an inferred tool, so are arguments outside its schema and values long
    /// enough to be a message.
    pub fn is_sink(&self, argument: &str, value: &Value) -> bool {
        let is_odd = || !self.fields.contains(argument) || (!self.acts() && says_much(value));
        (self.inferred && is_odd())
            || self.sinks.contains(argument)
            || (self.effect == Effect::Egress && names_a_url(value))
    }

    /// The part of this output that an outsider can write.
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

/// The fields whose values look as if an outsider could have written them. The empty name stands for such text outside any field.
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
    /// Whether an outsider can write the value at a path. If only single fields are tainted, a value without a field counts as tainted.
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

/// Maximum schema depth.
const SCHEMA_DEPTH_MAX: usize = 32;

/// The property names of an argument schema, at any depth.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaNames {
    all: BTreeSet<String>,
    /// The arguments that every call has.
    required: BTreeSet<String>,
}

impl SchemaNames {
    /// Whether every call has this argument.
    pub fn requires(&self, argument: &str) -> bool {
        self.required.contains(argument)
    }
}

impl Deref for SchemaNames {
    type Target = BTreeSet<String>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// The names in a schema: of all properties at any depth, and of the required arguments.
pub fn names_in(schema: &Value) -> SchemaNames {
    fn require(schema: &Value, depth: usize, names: &mut BTreeSet<String>) {
        if depth > SCHEMA_DEPTH_MAX {
            return;
        }
        let list = |key: &str| schema.get(key).and_then(Value::as_array).into_iter().flatten();
        names.extend(list("required").filter_map(Value::as_str).map(str::to_owned));
        list("allOf").for_each(|part| require(part, depth.saturating_add(1), names));
    }

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
    let mut names = SchemaNames::default();
    collect(schema, 0, &mut names.all);
    require(schema, 0, &mut names.required);
    names
}

/// Output fields that a policy rule declassifies: paths from the top, `sender` or `items[].id`, with everything below.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cleared {
    /// Fields to trust although an outsider can write them.
    pub trust: BTreeSet<String>,
    /// Fields to open although the output is confidential.
    pub open: BTreeSet<String>,
}

impl Cleared {
    /// Whether no field is declassified.
    pub fn is_empty(&self) -> bool {
        self.trust.is_empty() && self.open.is_empty()
    }

    /// The paths that are unambiguous in an output: none if a key could pass for another path.
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

/// Whether a path is a field or below it.
fn is_at(path: &str, field: &str) -> bool {
    let path = path.strip_prefix('.').unwrap_or(path);
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Maximum depth of an output.
const DEPTH_MAX: usize = 64;

/// Whether no key looks like a path: the key in `{"a.b": …}` must not pass for the field `b` of `a`.
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

/// Whether a value could contain a message: longer than a name or a question.
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
    fn undeclared_labels_are_the_worst() {
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
