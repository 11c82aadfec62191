//! `http.fetch`: one request to one address that was checked, and each redirect a new call.
//!
//! What protects: the URL has one spelling, which policy has judged; the name is resolved once, every address it gives is checked,
//! and the connection goes to one of those; no proxy, no cookie, no credential of ours is ever added; a redirect is made as a system
//! call of its own, so that policy judges every hop and the ledger has every hop. Handles to secrets in headers and body are
//! replaced by their values here, for this request alone; a redirect carries the handles on, to be judged again.

use std::cell::Cell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use regent_egress::{Client, ReachError, Request, Response};
use regent_kernel::{
    Confidentiality, Fault, Integrity, Label, Op, Outcome, RawOutput, Reply, Secret, SecretError, Spent,
    Status, ToolCall, endpoint,
};
use serde_json::{Map, Value, json};
use url::Url;

use crate::output::{DriverResult, OutputRoom, failure};
use crate::seam::{self, SEAM_BYTES};
use crate::{Context, ToolError, tool};

const BYTES_DEFAULT: u64 = 1 << 20;
const BYTES_MAX: u64 = 8 << 20;
const BODY_BYTES_MAX: u64 = 1 << 20;
const REDIRECTS_MAX: u64 = 5;
/// How much of the response's headers is returned.
const HEADERS_SHOWN_BYTES_MAX: usize = 16 << 10;

/// The headers that a caller may set. Not among them: `host` and what belongs to the connection, cookies, what proxies believe
/// (`x-forwarded-…`), and what changes the method behind policy's back (`x-http-method-override`).
const HEADERS: &[&str] = &[
    "accept",
    "accept-language",
    "authorization",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "prefer",
    "range",
    "user-agent",
    "x-api-key",
    "x-github-api-version",
    "x-request-id",
];
/// Of these, the ones that open doors: they go nowhere but to the origin that the caller named.
const CREDENTIALS: &[&str] = &["authorization", "x-api-key"];

/// The open network: nobody vouches for it, and everybody can read it.
const WEB: Label = Label { integrity: Integrity::Web, confidentiality: Confidentiality::Public };

/// What a call asks for.
#[derive(Debug)]
struct Args<'a> {
    url: &'a str,
    method: &'a str,
    headers: Map<String, Value>,
    body: Option<&'a str>,
    bytes_max: Option<u64>,
    redirects_max: Option<u64>,
}

/// Make one HTTP request to a public address. Redirects are followed as calls of their own, each judged by policy. Returns JSON: url,
/// status, headers, body (text) or base64, bytes, truncated.
///
/// - url: http or https
/// - method: GET if absent
/// - body: what to send; a handle `secret://name` is sent as its value
/// - bytes_max: how much of the body to return; 1048576 if absent
/// - redirects_max: how many redirects to follow; 5 if absent
// Some methods are idempotent, but the manifest speaks for all of them.
#[tool(name = "http.fetch", effect = "network", capabilities = ["network.request"], cost = "moderate", output = WEB)]
#[expect(clippy::too_many_arguments, reason = "a model names each argument of a tool")]
pub(crate) async fn fetch(
    #[arg(url, schema = json!({"type": "string", "minLength": 1, "maxLength": 8192}))] url: &str,
    #[arg(schema = json!({"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]}))]
    method: Option<String>,
    #[arg(schema = headers_schema())] headers: Option<Map<String, Value>>,
    #[arg(schema = json!({"type": "string", "maxLength": BODY_BYTES_MAX}))] body: Option<String>,
    #[schemars(range(min = 1, max = BYTES_MAX))] bytes_max: Option<u64>,
    #[schemars(range(min = 0, max = REDIRECTS_MAX))] redirects_max: Option<u64>,
    #[state] client: &Client,
    permit: &Context<'_>,
) -> Result<RawOutput, ToolError> {
    let (method, body) = (method.as_deref().unwrap_or("GET"), body.as_deref());
    let headers = headers.unwrap_or_default();
    request(permit, client, &Args { url, method, headers, body, bytes_max, redirects_max }).await
}

fn headers_schema() -> Value {
    json!({
        "type": "object", "maxProperties": 32, "additionalProperties": {"type": "string", "maxLength": 8192},
        "description": format!("any of: {}; a handle `secret://name` is sent as its value", HEADERS.join(", ")),
    })
}

async fn request(permit: &Context<'_>, client: &Client, args: &Args<'_>) -> DriverResult<RawOutput> {
    keep_secrets(permit, permit.args())?;
    let has_secret = Cell::new(false);
    let request = request_of(args, |text| {
        let filled = permit.filled(text)?;
        has_secret.set(has_secret.get() || filled.expose() != text.as_bytes());
        Ok(filled)
    })?;
    let has_secret = has_secret.get();
    if has_secret && request.headers.contains_key("range") {
        let message = "`range` can't be set in a request with a secret: a part of its value couldn't be recognised in the answer";
        return Err(failure("http.header_refused", message).into());
    }
    let bytes_max =
        args.bytes_max.unwrap_or(BYTES_DEFAULT).min(OutputRoom::from_permit(permit).bytes_left() as u64);
    let response = tokio::select! {
        biased;
        () = permit.cancelled() => return Err(failure("http.cancelled", "the call was cancelled").into()),
        // What stands after the cut tells whether a value goes across it.
        response = client.send(&request, bytes_max.saturating_add(SEAM_BYTES as u64)) => response.map_err(unreached)?,
    };
    let spent = Spent { bytes_out: response.bytes_sent, ..Spent::default() };
    if let Some(next) = redirect(args, &request, &response)? {
        keep_secrets(permit, &next)?;
        return hop(permit, next, spent).await;
    }
    let label = label_of(&request, &response, has_secret);
    let response = shortened(response, bytes_max, |bytes| permit.scrub(bytes));
    Ok(describe(&request.url, response, OutputRoom::from_permit(permit)).with_label(label).with_spent(spent))
}

/// A value that was revealed leaves only where we put it, not where an agent or a server did.
fn keep_secrets(permit: &Context<'_>, args: &Value) -> DriverResult<()> {
    if permit.scrub(&mut args.to_string().into_bytes()) {
        let message = "the request would send the value of a secret; give its handle (secret://name) instead";
        return Err(failure("http.secret_leaving", message).into());
    }
    Ok(())
}

fn unreached(error: ReachError) -> ToolError {
    failure(&format!("http.{}", error.word()), error.to_string()).into()
}

fn request_of(args: &Args<'_>, fill: impl Fn(&str) -> Result<Secret, SecretError>) -> DriverResult<Request> {
    let filled =
        |text: &str| fill(text).map_err(|error| ToolError::from(failure(error.code(), error.to_string())));
    let url = endpoint::parse(args.url).map_err(|why| failure("http.url", why))?;
    let method = Method::from_bytes(args.method.as_bytes())
        .map_err(|_| failure("http.method", "not an HTTP method"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &args.headers {
        let Some(known) = HEADERS.iter().copied().find(|known| known.eq_ignore_ascii_case(name)) else {
            let name = name.escape_debug();
            let message = format!("the header `{name}` can't be set; these can: {}", HEADERS.join(", "));
            return Err(failure("http.header_refused", message).into());
        };
        let value = filled(value.as_str().unwrap_or_default())?;
        let mut value = HeaderValue::from_bytes(value.expose()).map_err(|_| {
            failure("http.header_refused", format!("the value of `{known}` is not a header's"))
        })?;
        value.set_sensitive(true);
        headers.insert(known, value);
    }
    let body = filled(args.body.unwrap_or_default())?.expose().to_vec();
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(
            failure("http.too_large", format!("the body is larger than {BODY_BYTES_MAX} bytes")).into()
        );
    }
    Ok(Request { url, method, headers, body })
}

/// The arguments of the call that a redirect asks for, if the response is one.
fn redirect(args: &Args<'_>, request: &Request, response: &Response) -> DriverResult<Option<Value>> {
    let keeps_method = match response.status {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => {
            matches!(request.method, Method::GET | Method::HEAD)
        }
        StatusCode::SEE_OTHER => request.method == Method::HEAD,
        _not_a_redirect => return Ok(None),
    };
    let Some(location) = response.headers.get("location") else { return Ok(None) };
    let left = args.redirects_max.unwrap_or(REDIRECTS_MAX);
    let Some(left) = left.checked_sub(1) else {
        return Err(failure("http.redirects", "there are more redirects than may be followed").into());
    };
    let target = location
        .to_str()
        .ok()
        .and_then(|location| request.url.join(location).ok())
        .ok_or_else(|| failure("http.redirects", "the redirect leads to something that is not a URL"))?;
    let mut next = json!({
        "url": target.as_str(),
        "method": if keeps_method { args.method } else { "GET" },
        "headers": headers_onward(&args.headers, &request.url, &target, keeps_method),
        "redirects_max": left,
    });
    if let Some(fields) = next.as_object_mut() {
        if let Some(bytes_max) = args.bytes_max {
            fields.insert("bytes_max".to_owned(), bytes_max.into());
        }
        if let Some(body) = args.body.filter(|_| keeps_method) {
            fields.insert("body".to_owned(), body.into());
        }
    }
    Ok(Some(next))
}

/// What goes along to where a redirect leads: nothing that opens doors elsewhere, and no type for a body that isn't sent.
fn headers_onward(
    headers: &Map<String, Value>,
    from: &Url,
    to: &Url,
    keeps_body: bool,
) -> Map<String, Value> {
    let same_origin = from.origin() == to.origin();
    let goes = |name: &str| {
        let name = name.to_ascii_lowercase();
        (same_origin || !CREDENTIALS.contains(&name.as_str())) && (keeps_body || name != "content-type")
    };
    headers.iter().filter(|(name, _)| goes(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Follows a redirect the only way there is: as a call that is judged and recorded like any other.
async fn hop(permit: &Context<'_>, args: Value, spent: Spent) -> DriverResult<RawOutput> {
    let to = args.get("url").and_then(Value::as_str).unwrap_or_default().to_owned();
    let op = Op::RunTool(ToolCall { tool: "http.fetch".to_owned(), args });
    match permit.syscall(op).await {
        Ok(Reply::Done(outcome)) => Ok(arrived(&to, outcome)?.with_spent(spent)),
        Ok(Reply::Denied(denial)) => {
            let message = format!("the redirect to `{}` was denied: {}", to.escape_debug(), denial.reason);
            Err(failure("http.redirect_denied", message).into())
        }
        Ok(Reply::Pending(_)) => {
            let message = format!("the redirect to `{}` needs an approval", to.escape_debug());
            Err(failure("http.redirect_pending", message).into())
        }
        Err(Fault::TooDeep) => {
            Err(failure("http.redirects", "the redirect would nest calls too deeply").into())
        }
        Err(fault) => Err(regent_kernel::ExecuteError::Broken(fault.to_string()).into()),
    }
}

fn arrived(to: &str, outcome: Outcome) -> DriverResult<RawOutput> {
    let Outcome { output, status, .. } = outcome;
    match status {
        Status::Ok => {
            let label = output.label();
            Ok(RawOutput::new(output.into_bytes()).with_label(label))
        }
        Status::Failed(inner) => Err(inner.into()),
        Status::TimedOut => Err(failure("http.timeout", format!("`{to}` took too long")).into()),
        Status::Cancelled => Err(failure("http.cancelled", "the call was cancelled").into()),
        Status::Faulted(message) => Err(regent_kernel::ExecuteError::Broken(message).into()),
    }
}

/// The body up to this length. A value that was revealed and goes across its end is left out: cut, nobody would recognise it.
fn shortened(mut response: Response, bytes_max: u64, scrub: impl Fn(&mut Vec<u8>) -> bool) -> Response {
    let most = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    if response.body.len() > most {
        let end = seam::whole_characters(&response.body, 0..most);
        let end = seam::cut_outside_secrets(&response.body, 0..end, scrub).unwrap_or(0);
        response.body.truncate(end);
        response.truncated = true;
    }
    response
}

/// What came in answer to a credential, or from a private network, is not for everyone.
fn label_of(request: &Request, response: &Response, has_secret: bool) -> Label {
    let opened = has_secret || CREDENTIALS.iter().any(|name| request.headers.contains_key(*name));
    if opened || response.private { Label { confidentiality: Confidentiality::Private, ..WEB } } else { WEB }
}

fn describe(url: &Url, response: Response, mut room: OutputRoom) -> RawOutput {
    let mut headers = Map::new();
    let mut shown = 0_usize;
    for (name, value) in &response.headers {
        shown = shown.saturating_add(name.as_str().len() + value.len());
        // A session that a server opens is not for the model.
        if shown <= HEADERS_SHOWN_BYTES_MAX && name != "set-cookie" {
            headers.insert(name.to_string(), String::from_utf8_lossy(value.as_bytes()).into());
        }
    }
    let bytes = response.body.len();
    let (field, body) = match String::from_utf8(response.body) {
        Ok(text) => ("body", Value::String(text)),
        Err(error) => ("base64", STANDARD.encode(error.as_bytes()).into()),
    };
    let mut result = json!({
        "url": url.as_str(),
        "status": response.status.as_u16(),
        "headers": headers,
        "bytes": bytes,
        "truncated": response.truncated,
    });
    let fits = room.take(&result) && room.take(&body);
    if let Some(fields) = result.as_object_mut() {
        if fits {
            fields.insert(field.to_owned(), body);
        } else {
            // Escapes and base64 can make it longer than it was; then we report it rather than cut it somewhere.
            fields.insert("truncated".to_owned(), true.into());
            fields.insert("body".to_owned(), "".into());
        }
    }
    RawOutput::json(&result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn onward(from: &str, to: &str, keeps_body: bool) -> Vec<String> {
        let headers = json!({"Authorization": "x", "X-Api-Key": "x", "Accept": "x", "Content-Type": "x"});
        let (from, to) = (Url::parse(from).unwrap(), Url::parse(to).unwrap());
        headers_onward(headers.as_object().unwrap(), &from, &to, keeps_body).keys().cloned().collect()
    }

    fn unfilled(text: &str) -> Result<Secret, SecretError> {
        Ok(Secret::new(text.as_bytes().to_vec()))
    }

    #[test]
    fn d2_a_body_is_never_cut_within_a_secret() {
        const SECRET: &[u8] = b"Zq9-TOPSECRET/val+42==xx";
        let scrub = |bytes: &mut Vec<u8>| {
            let Some(at) = bytes.windows(SECRET.len()).position(|part| part == SECRET) else { return false };
            bytes.splice(at..at + SECRET.len(), *b"[secret:tok]");
            true
        };
        let body = [b"AAAAAAAAAAAAAAAAAAAA".as_slice(), SECRET, b" after"].concat();
        for bytes_max in 0..=body.len() {
            let response = Response {
                status: StatusCode::OK,
                headers: HeaderMap::new(),
                body: body.clone(),
                truncated: false,
                private: false,
                bytes_sent: 0,
            };
            let cut = shortened(response, bytes_max as u64, scrub);
            assert_eq!(cut.truncated, bytes_max < body.len());
            let is_within = (21..20 + SECRET.len()).contains(&bytes_max);
            assert_eq!(cut.body.len(), if is_within { 20 } else { bytes_max }, "{bytes_max}");
        }
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        let all = ["Accept", "Authorization", "Content-Type", "X-Api-Key"];
        assert_eq!(onward("https://a.test/", "https://a.test/b", true), all);
        for to in ["https://b.test/", "http://a.test/", "https://a.test:444/", "https://sub.a.test/"] {
            assert_eq!(onward("https://a.test/", to, true), ["Accept", "Content-Type"], "to {to}");
            assert_eq!(onward("https://a.test/", to, false), ["Accept"], "to {to}");
        }
    }

    #[test]
    fn headers_that_could_mislead_are_refused() {
        for name in [
            "Host",
            "Connection",
            "Transfer-Encoding",
            "Content-Length",
            "Cookie",
            "Proxy-Authorization",
            "TE",
            "Upgrade",
            "X-Forwarded-For",
            "X-HTTP-Method-Override",
            "Expect",
            "",
            "bad name",
        ] {
            let args = Args {
                url: "http://a.test/",
                method: "GET",
                headers: Map::from_iter([(name.to_owned(), json!("x"))]),
                body: None,
                bytes_max: None,
                redirects_max: None,
            };
            assert!(request_of(&args, unfilled).is_err(), "{name}");
        }
        let smuggled = Args {
            url: "http://a.test/",
            method: "GET",
            headers: Map::from_iter([("accept".to_owned(), json!("x\r\nHost: evil"))]),
            body: None,
            bytes_max: None,
            redirects_max: None,
        };
        assert!(request_of(&smuggled, unfilled).is_err());
        let harmless = Args { headers: Map::from_iter([("accept".to_owned(), json!("x"))]), ..smuggled };
        assert!(request_of(&harmless, unfilled).is_ok());
        // What a secret holds is checked like any other value.
        let newline = |_: &str| Ok(Secret::new(b"x\r\nHost: evil".to_vec()));
        assert!(request_of(&harmless, newline).is_err());
    }
}
