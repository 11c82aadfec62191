//! The input of bodies in other languages: one object with all facts of a call.

use serde_json::{Map, Value, json};

use crate::condition::{argvs, paths, secrets};
use crate::facts::{Facts, Resource};

/// All fields of the input.
#[cfg(any(feature = "rego", feature = "cedar"))]
pub(crate) const NAMES: &[&str] = &[
    "agent",
    "class",
    "roles",
    "trust",
    "op",
    "tool",
    "capabilities",
    "args",
    "paths",
    "endpoints",
    "argv",
    "secrets",
    "tier",
    "integrity",
    "confidentiality",
    "now_ms",
    "tool_calls",
];

/// All fields, by name.
#[cfg(feature = "rego")]
pub(crate) fn all(facts: &Facts<'_>) -> Map<String, Value> {
    only(facts, NAMES)
}

/// Some of the fields.
pub(crate) fn only(facts: &Facts<'_>, names: &[&'static str]) -> Map<String, Value> {
    names.iter().map(|name| ((*name).to_owned(), field(facts, name))).collect()
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
