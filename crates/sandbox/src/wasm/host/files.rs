//! `regent:host/filesystem`: the file tools, as functions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use wasmtime::Result;
use wasmtime::component::{ComponentType, Lift, LinkerInstance, Lower};

use super::{Answered, Store, json, tool};
use crate::wasm::guest::{HostFailure, WasmGuest, charge};

/// As much as `fs.read` gives at once.
const READ_BYTES_MAX: u64 = 8 << 20;
/// As many names as `fs.list` gives at once.
const ENTRIES_MAX: u64 = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
enum FileKind {
    #[component(name = "file")]
    File,
    #[component(name = "folder")]
    Folder,
    #[component(name = "link")]
    Link,
    #[component(name = "special")]
    Special,
}

#[derive(Debug, Clone, ComponentType, Lift, Lower)]
#[component(record)]
struct FileEntry {
    path: String,
    kind: FileKind,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, ComponentType, Lift, Lower)]
#[component(record)]
struct Status {
    kind: FileKind,
    bytes: u64,
    #[component(name = "modified-ms")]
    modified_ms: i64,
}

pub(super) fn link(files: &mut LinkerInstance<'_, WasmGuest>) -> Result<()> {
    files.func_wrap_async("read-file", |store, (path,): (String,)| {
        Box::new(async move { Ok((read(store, path).await?,)) })
    })?;
    files.func_wrap_async("read-text", |store, (path,): (String,)| {
        Box::new(async move { Ok((read_text(store, path).await?,)) })
    })?;
    files.func_wrap_async("write-file", |store, (path, content): (String, Vec<u8>)| {
        Box::new(async move { Ok((write(store, path, &content, "replace").await?,)) })
    })?;
    files.func_wrap_async("append-file", |store, (path, content): (String, Vec<u8>)| {
        Box::new(async move { Ok((write(store, path, &content, "append").await?,)) })
    })?;
    files.func_wrap_async("list-dir", |store, (path,): (String,)| {
        Box::new(async move { Ok((list(store, path).await?,)) })
    })?;
    files.func_wrap_async("stat", |store, (path,): (String,)| {
        Box::new(async move { Ok((stat(store, path).await?,)) })
    })
}

pub(super) async fn read(store: Store<'_>, path: String) -> Answered<Vec<u8>> {
    let args = json!({"path": path, "bytes_max": READ_BYTES_MAX, "encoding": "base64"});
    Ok(json(store, "fs.read", args).await?.and_then(|answer| {
        if answer.get("next_offset").is_some_and(|next| !next.is_null()) {
            return Err(HostFailure::new("fs.too_large", "the file is larger than a call may return"));
        }
        let base64 = answer.get("base64").and_then(Value::as_str).unwrap_or_default();
        STANDARD.decode(base64).map_err(|error| HostFailure::new("tool.answer", error.to_string()))
    }))
}

async fn read_text(store: Store<'_>, path: String) -> Answered<String> {
    Ok(read(store, path).await?.and_then(|bytes| {
        String::from_utf8(bytes)
            .map_err(|_bytes| HostFailure::new("fs.not_text", "the file is not UTF-8 text"))
    }))
}

pub(super) async fn write(mut store: Store<'_>, path: String, content: &[u8], mode: &str) -> Answered<()> {
    charge(&mut store, content.len())?;
    // Text stays text, so that policy and people can read what a call carries.
    let args = match std::str::from_utf8(content) {
        Ok(text) => json!({"path": path, "content": text, "mode": mode}),
        Err(_bytes) => {
            json!({"path": path, "content": STANDARD.encode(content), "encoding": "base64", "mode": mode})
        }
    };
    Ok(tool(store, "fs.write", args).await?.map(drop))
}

async fn list(store: Store<'_>, path: String) -> Answered<Vec<FileEntry>> {
    let args = json!({"path": path, "entries_max": ENTRIES_MAX});
    Ok(json(store, "fs.list", args).await?.and_then(|answer| {
        if answer.get("more").and_then(Value::as_bool) == Some(true) {
            return Err(HostFailure::new("fs.too_large", "the folder listing exceeds the limit of a call"));
        }
        let entries = answer.get("entries").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Ok(entries.iter().map(entry).collect())
    }))
}

fn entry(value: &Value) -> FileEntry {
    FileEntry {
        path: value.get("path").and_then(Value::as_str).unwrap_or_default().to_owned(),
        kind: kind(value),
        bytes: bytes(value),
    }
}

fn kind(value: &Value) -> FileKind {
    match value.get("kind").and_then(Value::as_str) {
        Some("file") => FileKind::File,
        Some("folder") => FileKind::Folder,
        Some("link") => FileKind::Link,
        Some(_) | None => FileKind::Special,
    }
}

fn bytes(value: &Value) -> u64 {
    value.get("bytes").and_then(Value::as_u64).unwrap_or(0)
}

async fn stat(store: Store<'_>, path: String) -> Answered<Status> {
    Ok(json(store, "fs.stat", json!({"path": path})).await?.map(|answer| Status {
        kind: kind(&answer),
        bytes: bytes(&answer),
        modified_ms: answer.get("modified_ms").and_then(Value::as_i64).unwrap_or(0),
    }))
}
