//! The manifests of the broker's two tools. Nobody calls them by hand: without a live connection behind it, a call fails.

use std::collections::BTreeMap;

use regent_kernel::{
    ArgumentKind, Confidentiality, CostClass, FROM_PROGRAM, Integrity, Label, Origin, SideEffect, Tier,
    ToolSpec,
};
use serde_json::{Value, json};

/// A tunnel.
pub(crate) const CONNECT: &str = "net.connect";
/// A request.
pub(crate) const REQUEST: &str = "net.request";

/// The open network: nobody vouches for it, and everybody can read it.
pub(crate) const WEB: Label = Label { integrity: Integrity::Web, confidentiality: Confidentiality::Public };
/// What somebody's key has opened, or what lies on a private network, is not everybody's.
pub(crate) const WEB_PRIVATE: Label =
    Label { integrity: Integrity::Web, confidentiality: Confidentiality::Private };

/// Both manifests. The [`Broker`](crate::Broker) is the driver.
pub fn specs() -> Vec<ToolSpec> {
    let url = json!({"type": "string", "minLength": 1, "maxLength": 8192});
    let connect = json!({
        "url": url,
        "method": {"const": "CONNECT"},
        "inspect": {"type": "boolean", "description": "inspect the tunnel and judge each request in it; set by a rule"},
    });
    let request = json!({
        "url": url,
        "method": {"type": "string", "pattern": "^[A-Z][A-Z-]*$", "maxLength": 32},
        "headers": {"type": "object", "maxProperties": 100, "additionalProperties": {"type": "string", "maxLength": 65_536}},
        "body_bytes": {"type": "integer", "minimum": 0, "maximum": (1_u64 << 53) - 1},
        "body_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "digest of the body, so that an approval covers this one"},
        "body_unbound": {"type": "string", "maxLength": 64, "description": "set if the body is streamed: an approval can't be bound to it, so a rule must allow it"},
        "placeholders": {"type": "array", "maxItems": 32, "items": {"type": "string", "maxLength": 4096}},
    });
    vec![
        spec(
            CONNECT,
            "A sandboxed program opens a TLS tunnel to a host. Only the egress proxy makes this call. Returns JSON: the bytes transferred.",
            "network.connect",
            object(&["url", "method"], connect),
        ),
        spec(
            REQUEST,
            "A sandboxed program makes an HTTP request. Only the egress proxy makes this call. Returns JSON: the bytes transferred.",
            "network.request",
            object(&["url", "method", "headers"], request),
        ),
    ]
}

fn spec(name: &str, description: &str, capability: &str, input: Value) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input,
        arguments: BTreeMap::from([("/url".to_owned(), ArgumentKind::Url)]),
        capabilities: vec![capability.to_owned(), FROM_PROGRAM.to_owned()],
        effect: SideEffect::Network,
        idempotent: false,
        reversible: false,
        tiers: vec![Tier::Host],
        output: WEB,
        cost: CostClass::Moderate,
        origin: Origin::BuiltIn,
        ..ToolSpec::default()
    }
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}
