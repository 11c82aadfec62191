//! The manifests of the broker's two tools. Nobody calls them by hand: without a live connection behind it, a call fails.

use regent_kernel::{Confidentiality, Integrity, Label, ToolSpec};
use regent_tools_macros::tool;
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
    vec![connect(), request()]
}

/// A sandboxed program opens a TLS tunnel to a host. Only the egress proxy makes this call. Returns JSON: the bytes transferred.
///
/// - inspect: inspect the tunnel and judge each request in it; set by a rule
#[tool(
    name = "net.connect",
    effect = "network",
    capabilities = ["network.connect", "from.program"],
    cost = "moderate",
    output = WEB
)]
fn connect(
    #[arg(url, schema = url())] url: String,
    #[arg(schema = json!({"const": "CONNECT"}))] method: String,
    inspect: Option<bool>,
);

/// A sandboxed program makes an HTTP request. Only the egress proxy makes this call. Returns JSON: the bytes transferred.
///
/// - body_sha256: digest of the body, so that an approval covers this one
/// - body_unbound: set if the body is streamed: an approval can't be bound to it, so a rule must allow it
#[tool(
    name = "net.request",
    effect = "network",
    capabilities = ["network.request", "from.program"],
    cost = "moderate",
    output = WEB
)]
fn request(
    #[arg(url, schema = url())] url: String,
    #[arg(schema = json!({"type": "string", "pattern": "^[A-Z][A-Z-]*$", "maxLength": 32}))] method: String,
    #[arg(schema = json!({
        "type": "object", "maxProperties": 100, "additionalProperties": {"type": "string", "maxLength": 65_536},
    }))]
    headers: BTreeMap<String, String>,
    #[arg(schema = json!({"type": "integer", "minimum": 0, "maximum": (1_u64 << 53) - 1}))]
    body_bytes: Option<u64>,
    #[arg(schema = json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}))] body_sha256: Option<String>,
    #[arg(schema = json!({"type": "string", "maxLength": 64}))] body_unbound: Option<String>,
    #[arg(schema = json!({"type": "array", "maxItems": 32, "items": {"type": "string", "maxLength": 4096}}))]
    placeholders: Option<Vec<String>>,
);

fn url() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 8192})
}
