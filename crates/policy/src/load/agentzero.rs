//! An `.agentzero/policy.yml` (TOML despite its name), loaded as it is.
//!
//! | key | becomes |
//! |---|---|
//! | `file_read`, `file_write` | a rule on the `fs` tools inside the workspace; nothing outside it is allowed |
//! | `shell_commands` | a rule on `shell.exec` and `process.exec` |
//! | `network` | a rule on `http.fetch` and on everything that can reach the network |
//! | `wasm_execution` | a rule on tools that run in the WASM tier |
//! | `model_routing` | `local_only`: models on this machine only; `local_preferred`: models anywhere |
//! | `default_classification` | the level of unlabelled text; from `pii` up it never leaves for remote hosts and models |
//!
//! `allow`, `deny` and `require_approval` become `allow`, `deny` and `ask`. A missing key allows nothing: the mode
//! is strict. Secrets never leave for remote hosts, control files are never written, and an agent may use its own data.

use super::foreign::{control_files, own_things, rule};
use super::reader::{Fields, Reader};
use super::{Loaded, When};
use crate::rule::Effect;
use crate::tree::Node;
use crate::words::{Confidentiality, Word};

pub(super) const KEYS: &[&str] = &[
    "version",
    "default_classification",
    "model_routing",
    "shell_commands",
    "file_write",
    "file_read",
    "network",
    "wasm_execution",
];

const LOCAL_HOSTS: &str = "[localhost, 127.0.0.1, '::1', '[::1]']";

const ACTIONS: &[When] = &[
    ("file_read", "{ tool: [fs.read, fs.list, fs.search, fs.stat], path: '**', access: [read, list] }"),
    ("file_write", "{ tool: [fs.write, fs.edit, fs.append], path: '**' }"),
    ("shell_commands", "{ tool: [shell.exec, process.exec] }"),
    ("network", "{ any: [{ tool: http.fetch }, { capability: network.request }] }"),
    ("wasm_execution", "{ op: tool.run, tier: wasm }"),
];

/// `allow`, `deny` or `require_approval`.
#[derive(Debug, Clone, Copy)]
struct Action(Effect);

impl Word for Action {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("allow", Self(Effect::Allow)),
        ("deny", Self(Effect::Deny)),
        ("require_approval", Self(Effect::Ask)),
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Routing {
    LocalOnly,
    LocalPreferred,
}

impl Word for Routing {
    const WORDS: &'static [(&'static str, Self)] =
        &[("local_only", Self::LocalOnly), ("local_preferred", Self::LocalPreferred)];
}

pub(super) fn read(reader: &mut Reader<'_>, root: &Node) -> Loaded {
    let fields = reader.fields(root, "the policy", KEYS);
    let layer = reader.layer;
    let mut rules = own_things(layer, "agentzero");
    rules.push(control_files(layer, "agentzero"));
    version(reader, fields);
    for (key, when) in ACTIONS {
        let Some(node) = fields.get(key) else { continue };
        let Some(Action(effect)) = reader.word(node, "action") else { continue };
        rules.push(rule(layer, &format!("agentzero.{key}"), fields.key_at(key).line, effect, when));
    }
    if let Some(routing) = fields.get("model_routing").and_then(|node| reader.word(node, "routing")) {
        let local = format!("{{ op: model.infer, host: {LOCAL_HOSTS} }}");
        let when = match routing {
            Routing::LocalOnly => local.as_str(),
            Routing::LocalPreferred => "{ op: model.infer }",
        };
        rules.push(rule(
            layer,
            "agentzero.model_routing",
            fields.key_at("model_routing").line,
            Effect::Allow,
            when,
        ));
    }
    let classification =
        fields.get("default_classification").and_then(|node| reader.word(node, "classification"));
    let line = fields.key_at("default_classification").line;
    let mut guard = |id: &str, line: u32, label: &str| {
        let when = format!("{{ host: '*', labels: {{ '*': {{ {label} }} }} }}");
        let mut guard = rule(layer, id, line, Effect::Deny, &when);
        guard.unless = super::foreign::conditions(layer, &format!("{{ host: {LOCAL_HOSTS} }}"), line);
        guard.reason = Some("confidential text stays on this machine".into());
        rules.push(guard);
    };
    guard("agentzero.secrets-stay", 1, "min_confidentiality: secret");
    if classification.is_some_and(|level: Confidentiality| level > Confidentiality::Unknown) {
        guard("agentzero.default_classification", line, "confidentiality: unknown");
    }
    Loaded { rules, ..Loaded::default() }
}

fn version(reader: &mut Reader<'_>, fields: Fields<'_>) {
    let Some(node) = fields.get("version") else { return };
    let known = matches!(reader.json(node), serde_json::Value::Number(number) if number.as_f64() == Some(1.0))
        || matches!(
            node.to_json(&mut reader.findings).as_str(),
            Some("1" | "1.0" | "1.0.0" | "0.1" | "0.1.0")
        );
    if !known {
        reader.findings.error(node.at, "unknown version of an agentzero policy; supported: 1");
    }
}
