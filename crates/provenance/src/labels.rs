//! What an integrator declares once per tool: what it does, which arguments choose who is affected, which output an outsider can write.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
}

/// The labels of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Who may read what is confidential besides the user: words as they occur in sinks.
    #[serde(default)]
    pub readers: BTreeSet<String>,
    /// Nobody declared this: it was inferred, and a person should confirm it.
    #[serde(default)]
    pub inferred: bool,
}

impl FieldLabels {
    /// The labels of a tool that declares none: it writes, every argument is a sink, all of its output is an outsider's and confidential.
    /// What its schema or its author *says* about itself lowers nothing; only a person does.
    pub fn inferred(schema: &Value) -> Self {
        let properties = schema.get("properties").and_then(Value::as_object);
        Self {
            effect: Effect::Write,
            sinks: properties.map(|all| all.keys().cloned().collect()).unwrap_or_default(),
            taint: Taint::Whole(Whole::All),
            secret: true,
            readers: BTreeSet::new(),
            inferred: true,
        }
    }

    /// Labels as declared; what isn't declared, or can't be read, is inferred.
    pub fn declared(labels: &Value, schema: &Value) -> Self {
        Self::deserialize(labels).unwrap_or_else(|_| Self::inferred(schema))
    }

    /// Whether a call does something outside of the agent.
    pub fn acts(&self) -> bool {
        self.effect != Effect::Read
    }

    /// Whether an argument chooses who or what is affected. Of an inferred tool every one does, and a URL that is fetched always does.
    pub fn is_sink(&self, argument: &str, value: &Value) -> bool {
        self.inferred
            || self.sinks.contains(argument)
            || (self.effect == Effect::Egress && names_a_url(value))
    }

    /// Whether what is at a path of the output is an outsider's. Where single fields are named, what has no field can't be told apart.
    pub(crate) fn is_tainted(&self, path: &str) -> bool {
        match &self.taint {
            Taint::Whole(Whole::None) => false,
            Taint::Whole(Whole::All) => true,
            Taint::Fields(fields) => {
                let mut names = path.split(['.', '[', ']']).filter(|name| !name.is_empty()).peekable();
                names.peek().is_none() || names.any(|name| fields.contains(name))
            }
        }
    }
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
                    && labels.is_tainted(".id")
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
            assert_eq!(labels.is_tainted(path), tainted, "{path}");
        }
    }
}
