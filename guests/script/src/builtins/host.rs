//! `regent`: the host functions. And `console`, which writes to the same log.

use super::arg;
use crate::host::{HostError, Level, Request};
use crate::interp::{Eval, Interp, Stop};
use crate::native::{Member, Namespace};
use crate::object::Props;
use crate::text::str_of;
use crate::value::Value;

pub(crate) static CONSOLE: Namespace =
    Namespace { name: "console", call: None, construct: None, member: console, methods: None };

/// Maximum characters of a value in a log line.
const LINE_CHARS_MAX: usize = 4000;

fn console(name: &str) -> Option<Member> {
    Some(Member::Fn(match name {
        "log" | "info" => |interp, _, args| write(interp, Level::Note, args),
        "debug" => |interp, _, args| write(interp, Level::Debug, args),
        "warn" => |interp, _, args| write(interp, Level::Warn, args),
        "error" => |interp, _, args| write(interp, Level::Error, args),
        _other => return None,
    }))
}

fn write(interp: &mut Interp<'_>, level: Level, args: &[Value]) -> Eval {
    let mut line = String::new();
    for (index, value) in args.iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        let is_plain = value.as_object().is_none_or(|object| object.is_error() || object.is_callable());
        let text = if is_plain { Some(interp.to_str(value)?) } else { super::json::compact(interp, value)? };
        line.push_str(text.unwrap_or_default().as_str());
    }
    if let Some((end, _)) = line.char_indices().nth(LINE_CHARS_MAX) {
        line.truncate(end);
    }
    interp.host.log(level, &line);
    Ok(Value::Undefined)
}

/// Throws a host error with the host's code.
fn refused(interp: &mut Interp<'_>, error: HostError) -> Stop {
    let class = interp.error_class(0);
    let value = interp.make_error(class, Value::text(error.message));
    match interp.set_str(&value, &str_of("code"), Value::text(error.code)) {
        Ok(()) => crate::interp::throw(value),
        Err(stop) => stop,
    }
}

fn given<T>(interp: &mut Interp<'_>, answer: Result<T, HostError>) -> Eval<T> {
    answer.map_err(|error| refused(interp, error))
}

/// An argument that must be text: host functions never convert values implicitly.
fn text(interp: &mut Interp<'_>, args: &[Value], index: usize, what: &str) -> Eval<String> {
    match args.get(index) {
        Some(Value::Str(text)) => Ok(text.as_str().to_owned()),
        other => {
            let shown = crate::interp::shown(&other.cloned().unwrap_or_default());
            Err(interp.type_error(format!("{what} must be a string, not {shown}")))
        }
    }
}

pub(crate) fn read_file(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let path = text(interp, args, 0, "the path")?;
    let answer = interp.host.read_file(&path);
    Ok(Value::text(given(interp, answer)?))
}

pub(crate) fn write_file(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let path = text(interp, args, 0, "the path")?;
    let content = text(interp, args, 1, "the content")?;
    let answer = interp.host.write_file(&path, &content);
    given(interp, answer).map(|()| Value::Undefined)
}

pub(crate) fn append_file(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let path = text(interp, args, 0, "the path")?;
    let content = text(interp, args, 1, "the content")?;
    let answer = interp.host.append_file(&path, &content);
    given(interp, answer).map(|()| Value::Undefined)
}

fn record(interp: &mut Interp<'_>, fields: Vec<(&str, Value)>) -> Value {
    let mut props = Props::default();
    for (name, value) in fields {
        props.set(&str_of(name), value);
    }
    interp.record(props)
}

pub(crate) fn list_dir(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let path = match args.first() {
        None | Some(Value::Undefined) => ".".to_owned(),
        Some(_) => text(interp, args, 0, "the path")?,
    };
    let answer = interp.host.list_dir(&path);
    let mut out = Vec::new();
    for entry in given(interp, answer)? {
        let name = entry.path.rsplit('/').next().unwrap_or("").to_owned();
        out.push(record(
            interp,
            vec![
                ("name", Value::text(name)),
                ("path", Value::text(entry.path)),
                ("kind", Value::str(entry.kind)),
                ("bytes", Value::Num(entry.bytes as f64)),
            ],
        ));
    }
    Ok(interp.array(out))
}

pub(crate) fn stat(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let path = text(interp, args, 0, "the path")?;
    let answer = interp.host.stat(&path);
    let status = given(interp, answer)?;
    Ok(record(
        interp,
        vec![
            ("kind", Value::str(status.kind)),
            ("bytes", Value::Num(status.bytes as f64)),
            ("modifiedMs", Value::Num(status.modified_ms as f64)),
        ],
    ))
}

pub(crate) fn fetch(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let url = text(interp, args, 0, "the address")?;
    let options = arg(args, 1);
    let mut request = Request { method: "GET".to_owned(), url, headers: Vec::new(), body: None };
    if options.as_object().is_some() {
        let method = interp.get(&options, "method")?;
        if !method.is_nullish() {
            request.method = interp.to_str(&method)?.as_str().to_uppercase();
        }
        let headers = interp.get(&options, "headers")?;
        if !headers.is_nullish() {
            for (name, value) in interp.entries_of(&headers)? {
                let value = interp.to_str(&value)?;
                request.headers.push((name.as_str().to_owned(), value.as_str().to_owned()));
            }
        }
        let body = interp.get(&options, "body")?;
        if !body.is_nullish() {
            request.body = Some(text(interp, &[body], 0, "the body")?);
        }
    }
    let answer = interp.host.fetch(&request);
    let response = given(interp, answer)?;
    let mut headers = Props::default();
    for (name, value) in response.headers {
        headers.set(&str_of(&name.to_lowercase()), Value::text(value));
    }
    let headers = interp.record(headers);
    let json = interp.native("json", |interp, this, _| {
        let body = interp.get(this, "body")?;
        super::json::parse(interp, &Value::Undefined, &[body])
    });
    let body_text = interp.native("text", |interp, this, _| interp.get(this, "body"));
    Ok(record(
        interp,
        vec![
            ("status", Value::Num(f64::from(response.status))),
            ("ok", (200..300).contains(&response.status).into()),
            ("headers", headers),
            ("body", Value::text(response.body)),
            ("truncated", response.truncated.into()),
            ("json", json),
            ("text", body_text),
        ],
    ))
}

pub(crate) fn log(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    write(interp, Level::Note, args)
}

pub(crate) fn now(interp: &mut Interp<'_>, _this: &Value, _args: &[Value]) -> Eval {
    Ok(Value::Num(interp.host.now_ms() as f64))
}

pub(crate) fn secret(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let name = text(interp, args, 0, "the name")?;
    let answer = interp.host.secret(&name);
    Ok(Value::text(given(interp, answer)?))
}

/// The output, parsed if it is JSON, else as text.
pub(crate) fn call_tool(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let name = text(interp, args, 0, "the tool's name")?;
    let given_args = match arg(args, 1) {
        Value::Undefined => str_of("{}"),
        value => super::json::compact(interp, &value)?.unwrap_or_default(),
    };
    let answer = interp.host.call_tool(&name, given_args.as_str());
    let output = given(interp, answer)?;
    match super::json::read(interp, &output) {
        Ok(value) => Ok(value),
        Err(_not_json) => Ok(Value::text(output)),
    }
}

pub(crate) fn kv_get(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let key = text(interp, args, 0, "the key")?;
    let answer = interp.host.kv_get(&key);
    Ok(given(interp, answer)?.map_or(Value::Null, Value::text))
}

pub(crate) fn kv_set(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let key = text(interp, args, 0, "the key")?;
    let value = text(interp, args, 1, "the value")?;
    let answer = interp.host.kv_set(&key, &value);
    given(interp, answer).map(|()| Value::Undefined)
}
