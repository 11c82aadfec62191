//! `regent:host/http`: the tool `http.fetch`, as a function.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use wasmtime::Result;
use wasmtime::component::{ComponentType, Lift, LinkerInstance, Lower};

use super::{Answered, Store, json};
use crate::wasm::guest::{HostFailure, WasmGuest, charge};

#[derive(Debug, Clone, ComponentType, Lift, Lower)]
#[component(record)]
struct Request {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

#[derive(Debug, Clone, ComponentType, Lift, Lower)]
#[component(record)]
struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    truncated: bool,
}

pub(super) fn link(http: &mut LinkerInstance<'_, WasmGuest>) -> Result<()> {
    http.func_wrap_async("fetch", |store, (request,): (Request,)| {
        Box::new(async move { Ok((fetch(store, request).await?,)) })
    })
}

async fn fetch(mut store: Store<'_>, request: Request) -> Answered<Response> {
    charge(&mut store, request.body.as_ref().map_or(0, String::len))?;
    let mut headers = Map::new();
    for (name, value) in request.headers {
        // Which of two would count is nothing to guess about.
        if headers.insert(name.to_ascii_lowercase(), Value::String(value)).is_some() {
            return Ok(Err(HostFailure::new("http.header_refused", format!("duplicate header `{name}`"))));
        }
    }
    let mut args =
        json!({"url": request.url, "method": request.method.to_ascii_uppercase(), "headers": headers});
    if let (Some(body), Some(fields)) = (request.body, args.as_object_mut()) {
        fields.insert("body".to_owned(), Value::String(body));
    }
    Ok(json(store, "http.fetch", args).await?.and_then(|answer| response(&answer)))
}

fn response(answer: &Value) -> std::result::Result<Response, HostFailure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let headers = answer.get("headers").and_then(Value::as_object);
    let headers = headers.into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect();
    let body = match (answer.get("body"), answer.get("base64")) {
        (Some(body), _) => text(body).into_bytes(),
        (None, Some(base64)) => {
            let decoded = STANDARD.decode(text(base64));
            decoded.map_err(|error| HostFailure::new("tool.answer", error.to_string()))?
        }
        (None, None) => Vec::new(),
    };
    let status = answer.get("status").and_then(Value::as_u64);
    Ok(Response {
        status: status.and_then(|status| u16::try_from(status).ok()).unwrap_or(0),
        headers,
        body,
        truncated: answer.get("truncated").and_then(Value::as_bool).unwrap_or(false),
    })
}
