//! The manifests of all built-in tools, and the words that they are written with.

use std::path::Path;

use regent_egress::{Broker, Network};
use regent_kernel::{ArgumentKind, CostClass, Driver, DriverKind, Origin, ToolSpec};
use serde_json::{Value, json};

use crate::host;

/// The largest whole number that every JSON reader agrees on.
pub(crate) const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The manifests of all built-in tools, for whoever only wants to read them.
pub fn specs() -> Vec<ToolSpec> {
    // Nothing is opened or connected before the first call.
    let broker = Broker::new(Network::default(), Path::new(""));
    let programs = Driver::missing(DriverKind::Process);
    host::built_in(&broker, &programs).specs().cloned().collect()
}

/// What the built-in tools have in common.
pub(crate) fn built_in() -> ToolSpec {
    ToolSpec { cost: CostClass::Cheap, origin: Origin::BuiltIn, ..ToolSpec::default() }
}

/// An object schema that names all its fields.
pub(crate) fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

/// A path argument.
pub(crate) fn path(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 4095, "description": description})
}

/// A whole number between bounds.
pub(crate) fn integer(minimum: u64, maximum: u64, description: &str) -> Value {
    json!({"type": "integer", "minimum": minimum, "maximum": maximum, "description": description})
}

/// The kinds of a tool's arguments, by pointer.
pub(crate) fn kinds<const N: usize>(
    kinds: [(&str, ArgumentKind); N],
) -> std::collections::BTreeMap<String, ArgumentKind> {
    kinds.into_iter().map(|(pointer, kind)| (pointer.to_owned(), kind)).collect()
}

/// Capabilities, as a manifest has them.
pub(crate) fn capabilities(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[cfg(test)]
mod golden;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_is_admitted_and_closed() {
        let catalogue = regent_kernel::Catalogue::default();
        let broker = Broker::new(Network::default(), Path::new(""));
        for _twice in 0..2 {
            let tools = host::built_in(&broker, &Driver::missing(DriverKind::Process));
            catalogue.admit_own(tools).unwrap();
        }
        let names: Vec<_> = catalogue.all().iter().map(|tool| tool.spec().name.clone()).collect();
        let expected = [
            "fs.edit",
            "fs.list",
            "fs.read",
            "fs.search",
            "fs.stat",
            "fs.write",
            "http.fetch",
            "net.connect",
            "net.request",
            "process.exec",
            "process.list",
            "shell.exec",
            "text.extract",
        ];
        assert_eq!(names, expected);
        for spec in specs() {
            assert_eq!(spec.input["additionalProperties"], false, "{}", spec.name);
            for pointer in spec.arguments.keys() {
                assert!(spec.input["properties"].get(&pointer[1..]).is_some(), "{} {pointer}", spec.name);
            }
            assert_eq!((spec.origin, spec.version.as_str()), (Origin::BuiltIn, "1.0.0"), "{}", spec.name);
            for (name, field) in spec.input["properties"].as_object().unwrap() {
                assert!(field["type"] != "integer" || field["maximum"].is_u64(), "{} {name}", spec.name);
            }
        }
    }
}
