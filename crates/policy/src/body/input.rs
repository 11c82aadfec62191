//! The input of bodies in other languages: one object with all facts of a call.

use serde_json::{Map, Value, json};

use crate::condition::{argvs, paths, secrets};
use crate::facts::{Facts, Resource};

/// Resolved things, which no argument can pretend to be. ACS manifests get these.
pub(crate) const AMBIENT: &[&str] = &[
    "op",
    "class",
    "roles",
    "trust",
    "capabilities",
    "paths",
    "endpoints",
    "argv",
    "secrets",
    "tier",
    "integrity",
    "confidentiality",
    "now_ms",
];
/// What is called, by whom and with what.
#[cfg(any(feature = "rego", feature = "cedar"))]
const CALLED: &[&str] = &["agent", "tool", "args", "tool_calls"];

/// All fields of the input.
#[cfg(any(feature = "rego", feature = "cedar"))]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    AMBIENT.iter().chain(CALLED).copied()
}

/// All fields, by name.
#[cfg(feature = "rego")]
pub(crate) fn all(facts: &Facts<'_>) -> Map<String, Value> {
    only(facts, names())
}

/// Some of the fields.
pub(crate) fn only(facts: &Facts<'_>, names: impl IntoIterator<Item = &'static str>) -> Map<String, Value> {
    names.into_iter().map(|name| (name.to_owned(), field(facts, name))).collect()
}

fn field(facts: &Facts<'_>, name: &str) -> Value {
    match name {
        "agent" => json!(facts.caller.agent),
        "class" => json!(facts.caller.class.as_str()),
        "roles" => json!(facts.caller.roles),
        "trust" => json!(facts.caller.trust),
        "op" => json!(facts.op),
        "tool" => json!(facts.tool.unwrap_or_default()),
        "capabilities" => json!(facts.capabilities),
        "args" => facts.args.clone(),
        "paths" => {
            paths(facts).map(|(path, access)| json!({"path": path, "access": access.as_str()})).collect()
        }
        "endpoints" => facts.resources.iter().filter_map(endpoint).collect(),
        "argv" => argvs(facts).next().map_or_else(|| json!([]), |argv| json!(argv)),
        "secrets" => secrets(facts).collect(),
        "tier" => json!(facts.tier.as_str()),
        "integrity" => json!(facts.labels.label_of("").integrity.as_str()),
        "confidentiality" => json!(facts.labels.label_of("").confidentiality.as_str()),
        "now_ms" => json!(facts.now_ms),
        "tool_calls" => json!(facts.session.tool_calls),
        _unknown => Value::Null,
    }
}

fn endpoint(resource: &Resource<'_>) -> Option<Value> {
    match resource {
        Resource::Endpoint { scheme, host, port, method, path } => {
            Some(json!({"scheme": scheme, "host": host, "port": port, "method": method, "path": path}))
        }
        Resource::Path { .. } | Resource::Argv(_) | Resource::Secret(_) => None,
    }
}
