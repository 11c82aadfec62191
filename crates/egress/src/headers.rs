//! The headers of a request: as policy and the ledger see them, and as they are sent.
//!
//! Both are the same, with two exceptions. The value of a credential header is replaced by its digest, so that the ledger contains no
//! credentials; a handle in it stays visible. And handles are sent as the values that they stand for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use regent_kernel::{Digest, Permit, ToolFailure, tier};
use serde_json::{Map, Value};

use crate::tally::failure;

const HANDLE: &str = "secret://";

/// Headers that belong to one connection and not to the request, and those between a client and its proxy.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that make a server answer another method, host or path than the one that policy judged.
const STEERING: &[&str] = &[
    "forwarded",
    "front-end-https",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-override-url",
    "x-proxy-host",
    "x-proxy-url",
    "x-real-host",
];
/// Prefixes of such headers.
const STEERING_PREFIXES: &[&str] = &["x-forwarded", "x-original-", "x-rewrite-", "x-envoy-original-"];

/// Servers treat an underscore as a dash.
fn steers(name: &str) -> bool {
    let name = name.replace('_', "-");
    STEERING.contains(&name.as_str())
        || STEERING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.contains("method-override")
}

/// Parts of the names of credential headers.
const CREDENTIALS: &[&str] =
    &["auth", "cookie", "credential", "key", "passw", "secret", "session", "signature", "token"];

/// Removes headers of the connection, including those that its `Connection` header lists, and headers that redirect a server.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all("connection")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(*name);
    }
    let steering: Vec<HeaderName> = headers.keys().filter(|name| steers(name.as_str())).cloned().collect();
    for name in steering {
        headers.remove(name);
    }
}

/// The headers as policy sees them, and decoded basic credentials if they contain a handle.
pub(crate) fn for_policy(headers: &HeaderMap) -> (Map<String, Value>, Option<String>) {
    let basic = basic_with_handle(headers);
    let mut fields = Map::new();
    for name in headers.keys() {
        let text = match &basic {
            Some(basic) if name == "authorization" => format!("Basic {basic}"),
            Some(_) | None => shown_value(headers, name),
        };
        fields.insert(name.as_str().to_owned(), Value::String(text));
    }
    (fields, basic)
}

fn shown_value(headers: &HeaderMap, name: &HeaderName) -> String {
    let text = joined(headers, name);
    let opens = CREDENTIALS.iter().any(|part| name.as_str().contains(part));
    // The digest binds an approval to a value that isn't shown, or isn't text.
    match (opens && !text.contains(HANDLE), is_text(headers, name)) {
        (true, _) => format!("({} bytes, not shown, sha256 {})", text.len(), digest(headers, name)),
        (false, true) => text,
        (false, false) => format!("{text} (not text, sha256 {})", digest(headers, name)),
    }
}

fn joined(headers: &HeaderMap, name: &HeaderName) -> String {
    let values: Vec<_> =
        headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    values.join(", ")
}

fn is_text(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get_all(name).iter().all(|value| std::str::from_utf8(value.as_bytes()).is_ok())
}

fn digest(headers: &HeaderMap, name: &HeaderName) -> Digest {
    let values: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    Digest::compute(&values.join(&b", "[..]))
}

fn basic_with_handle(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("authorization")?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    (scheme.eq_ignore_ascii_case("basic") && decoded.contains(HANDLE)).then_some(decoded)
}

/// The headers to send: as received where policy left them alone, as policy changed them otherwise, with handles replaced.
pub(crate) fn outgoing(
    permit: &Permit<'_, tier::Host>,
    came: &HeaderMap,
    basic: Option<&str>,
) -> Result<HeaderMap, ToolFailure> {
    let (was, _) = for_policy(came);
    let nothing = Map::new();
    let judged = permit.args().get("headers").and_then(Value::as_object).unwrap_or(&nothing);
    let mut headers = HeaderMap::new();
    for (name, text) in judged {
        let name: HeaderName = name.parse().map_err(|_| refused(name))?;
        let text = text.as_str().unwrap_or_default();
        let untouched = was.get(name.as_str()).and_then(Value::as_str) == Some(text);
        if text.contains(HANDLE) {
            headers.insert(&name, filled(permit, &name, text, basic)?);
        } else if untouched {
            for value in came.get_all(&name) {
                headers.append(&name, value.clone());
            }
        } else {
            headers.insert(&name, text.parse().map_err(|_| refused(name.as_str()))?);
        }
    }
    // A rule may add headers, but none that change how the request is parsed.
    strip(&mut headers);
    headers.remove("host");
    headers.remove("content-length");
    Ok(headers)
}

fn filled(
    permit: &Permit<'_, tier::Host>,
    name: &HeaderName,
    text: &str,
    basic: Option<&str>,
) -> Result<HeaderValue, ToolFailure> {
    let secret = |error: regent_kernel::SecretError| failure(error.code(), error.to_string());
    let mut value = match text.strip_prefix("Basic ").filter(|rest| Some(*rest) == basic) {
        Some(pair) => {
            let pair = permit.filled(pair).map_err(secret)?;
            HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair.expose())))
        }
        None => HeaderValue::from_bytes(permit.filled(text).map_err(secret)?.expose()),
    }
    .map_err(|_| refused(name.as_str()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn refused(name: &str) -> ToolFailure {
    failure("net.header", format!("the header `{}` can't be sent", name.escape_debug()))
}

/// Replaces the handles in the texts of a JSON value.
pub(crate) fn fill(permit: &Permit<'_, tier::Host>, value: &mut Value) -> Result<(), ToolFailure> {
    match value {
        Value::String(text) if text.contains(HANDLE) => {
            let whole = permit.filled(text).map_err(|error| failure(error.code(), error.to_string()))?;
            *text = String::from_utf8(whole.expose().to_vec())
                .map_err(|_| failure("net.secret_not_text", "a secret in the body is not text"))?;
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill(permit, item)),
        Value::Object(fields) => fields.values_mut().try_for_each(|field| fill(permit, field)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// The texts of a JSON body that contain handles.
pub(crate) fn placeholders(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(HANDLE) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| placeholders(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| placeholders(field, found)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether bytes contain a handle.
pub(crate) fn has_handle(bytes: &[u8]) -> bool {
    bytes.windows(HANDLE.len()).any(|window| window == HANDLE.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap()))
            .collect()
    }

    #[test]
    fn hides_credentials_but_shows_handles() {
        let basic = format!("Basic {}", STANDARD.encode("ada:secret://git/token"));
        let (fields, decoded) = for_policy(&headers(&[
            ("accept", "a"),
            ("cookie", "sid=12345"),
            ("x-api-key", "secret://api"),
            ("x-auth-token", "hunter2"),
            ("authorization", &basic),
        ]));
        let text = Value::Object(fields).to_string();
        assert!(!text.contains("12345") && !text.contains("hunter2"), "{text}");
        assert!(text.contains("secret://api") && text.contains("Basic ada:secret://git/token"), "{text}");
        assert_eq!(decoded.as_deref(), Some("ada:secret://git/token"));
        let plain = format!("Basic {}", STANDARD.encode("ada:hunter2"));
        let hidden = format!("(22 bytes, not shown, sha256 {})", Digest::compute(plain.as_bytes()));
        let (fields, decoded) = for_policy(&headers(&[("authorization", &plain)]));
        assert_eq!((fields["authorization"].as_str(), decoded), (Some(hidden.as_str()), None));
    }

    #[test]
    fn adv_051_strips_connection_headers() {
        let mut all = headers(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "x"),
            ("transfer-encoding", "chunked"),
            ("accept", "a"),
        ]);
        strip(&mut all);
        assert_eq!(all.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }

    #[test]
    fn l2_strips_headers_that_redirect_a_server() {
        let mut all = headers(&[
            ("x-http-method-override", "DELETE"),
            ("x-http-method", "DELETE"),
            ("x-method-override", "DELETE"),
            ("x_http_method_override", "DELETE"),
            ("x-forwarded-host", "internal"),
            ("x-forwarded-for", "127.0.0.1"),
            ("x_forwarded_host", "internal"),
            ("forwarded", "host=internal"),
            ("x-host", "internal"),
            ("x-original-url", "/admin"),
            ("x-original-host", "internal"),
            ("x-rewrite-url", "/admin"),
            ("x-envoy-original-path", "/admin"),
            ("accept", "a"),
            ("x-api-key", "k"),
            ("x-request-id", "1"),
        ]);
        strip(&mut all);
        let mut left: Vec<_> = all.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "x-api-key", "x-request-id"]);
    }
}
