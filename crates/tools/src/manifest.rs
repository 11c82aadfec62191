//! The manifests of all built-in tools.

use std::path::Path;

use regent_egress::{Broker, Network};
use regent_kernel::{Driver, DriverKind, ToolSpec};
use serde_json::{Value, json};

use crate::host;

/// The largest whole number that every JSON reader agrees on.
pub(crate) const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The manifests of all built-in tools, for callers that only read them.
pub fn specs() -> Vec<ToolSpec> {
    // Nothing is opened or connected before the first call.
    let broker = Broker::new(Network::default(), Path::new(""));
    let programs = Driver::missing(DriverKind::Process);
    host::built_in(&broker, &programs).specs().cloned().collect()
}

/// A whole number between bounds.
pub(crate) fn integer(minimum: u64, maximum: u64) -> Value {
    json!({"type": "integer", "minimum": minimum, "maximum": maximum})
}

#[cfg(test)]
mod golden;

#[cfg(test)]
mod tests {
    use regent_kernel::Origin;

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
            "fs.append",
            "fs.copy",
            "fs.delete",
            "fs.edit",
            "fs.list",
            "fs.mkdir",
            "fs.move",
            "fs.read",
            "fs.search",
            "fs.stat",
            "fs.write",
            "http.fetch",
            "memory.recall",
            "memory.remember",
            "net.connect",
            "net.request",
            "process.exec",
            "process.kill",
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
