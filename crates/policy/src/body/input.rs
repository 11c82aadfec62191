//! A call as bodies in other languages see it: one object, the same for all of them.

use serde_json::{Map, Value, json};

use crate::condition::{argvs, paths, secrets};
use crate::facts::{Facts, Resource};

/// What a body looks at, by name.
pub(crate) fn of(facts: &Facts<'_>) -> Map<String, Value> {
    let hosts = facts.resources.iter().filter_map(|resource| match resource {
        Resource::Endpoint { scheme, host, port, method, path } => {
            Some(json!({"scheme": scheme, "host": host, "port": port, "method": method, "path": path}))
        }
        Resource::Path { .. } | Resource::Argv(_) | Resource::Secret(_) => None,
    });
    let paths = paths(facts).map(|(path, access)| json!({"path": path, "access": access.as_str()}));
    let label = facts.labels.label_of("");
    let fields = [
        ("agent", json!(facts.caller.agent)),
        ("class", json!(facts.caller.class.as_str())),
        ("roles", json!(facts.caller.roles)),
        ("trust", json!(facts.caller.trust)),
        ("op", json!(facts.op)),
        ("tool", json!(facts.tool.unwrap_or_default())),
        ("capabilities", json!(facts.capabilities)),
        ("args", facts.args.clone()),
        ("paths", paths.collect()),
        ("endpoints", hosts.collect()),
        ("argv", argvs(facts).next().map_or_else(|| json!([]), |argv| json!(argv))),
        ("secrets", secrets(facts).collect()),
        ("tier", json!(facts.tier.as_str())),
        ("integrity", json!(label.integrity.as_str())),
        ("confidentiality", json!(label.confidentiality.as_str())),
        ("now_ms", json!(facts.now_ms)),
        ("tool_calls", json!(facts.session.tool_calls)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
