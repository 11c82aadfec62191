//! The WIT package `regent:host`: each import turned into an `Op`, each reply into what the guest expects. Nothing is decided here.

mod files;
mod web;

use regent_kernel::result::Opened;
use regent_kernel::{Memory, Op, OpenMode, Region, ToolCall};
use serde_json::Value;
use wasmtime::component::{ComponentType, Lift, Linker, Lower};
use wasmtime::{Result, StoreContextMut};

use super::guest::{HostFailure, WasmGuest, ask, charge};

type Store<'s> = StoreContextMut<'s, WasmGuest>;
/// What an import returns: a trap of ours, or an answer that may be a denial.
type Answered<T> = Result<Result<T, HostFailure>>;

const SECRET_NAME_BYTES_MAX: usize = 128;
const KEY_BYTES_MAX: usize = 64;

/// How loud a line is.
#[derive(Debug, Clone, Copy, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "only guests make these calls")]
enum Level {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

/// Puts all of the package into a linker.
pub(super) fn link(linker: &mut Linker<WasmGuest>) -> Result<()> {
    files::link(&mut linker.instance("regent:host/filesystem@0.1.0")?)?;
    web::link(&mut linker.instance("regent:host/http@0.1.0")?)?;

    let mut logging = linker.instance("regent:host/logging@0.1.0")?;
    logging.func_wrap("log", |store: Store<'_>, (level, message): (Level, String)| {
        log(store, level, &message)
    })?;

    let mut clock = linker.instance("regent:host/clock@0.1.0")?;
    clock.func_wrap("now-ms", |mut store: Store<'_>, ()| {
        charge(&mut store, 0)?;
        Ok((store.data().clock.now_ms(),))
    })?;
    clock.func_wrap("elapsed-ns", |mut store: Store<'_>, ()| {
        charge(&mut store, 0)?;
        Ok((nanoseconds(store.data().clock.elapsed()),))
    })?;

    let mut secrets = linker.instance("regent:host/secrets@0.1.0")?;
    secrets.func_wrap("handle", |mut store: Store<'_>, (name,): (String,)| {
        charge(&mut store, name.len())?;
        Ok((handle(&name),))
    })?;

    let mut tools = linker.instance("regent:host/tools@0.1.0")?;
    tools.func_wrap_async("call", |store, (name, args): (String, String)| {
        Box::new(async move { Ok((call(store, name, &args).await?,)) })
    })?;

    let mut kv = linker.instance("regent:host/kv@0.1.0")?;
    kv.func_wrap_async("get", |store, (key,): (String,)| {
        Box::new(async move { Ok((get(store, &key).await?,)) })
    })?;
    kv.func_wrap_async("set", |store, (key, value): (String, String)| {
        Box::new(async move { Ok((set(store, &key, value).await?,)) })
    })
}

pub(super) fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn log(mut store: Store<'_>, level: Level, message: &str) -> Result<()> {
    charge(&mut store, message.len())?;
    let word = match level {
        Level::Debug => "debug: ",
        Level::Info => "info: ",
        Level::Warn => "warn: ",
        Level::Error => "error: ",
    };
    let said = &mut store.data_mut().said;
    said.note(word.as_bytes());
    said.note(message.as_bytes());
    said.note(b"\n");
    Ok(())
}

/// A handle is only a name. Whether this caller may use the secret is judged by the call that it is used in, where the host fills
/// in the value; so there is nothing to ask here, and a guest that makes up its own handle gains nothing.
fn handle(name: &str) -> std::result::Result<String, HostFailure> {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._/-".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if !begins || name.len() > SECRET_NAME_BYTES_MAX || !name.bytes().all(fine) {
        return Err(HostFailure::new("secret.name", "invalid name of a secret"));
    }
    Ok(format!("secret://{name}"))
}

async fn call(store: Store<'_>, name: String, args: &str) -> Answered<String> {
    let args: Value = match serde_json::from_str(args) {
        Ok(args) => args,
        Err(error) => {
            return Ok(Err(HostFailure::new("args.invalid", format!("the arguments aren't JSON: {error}"))));
        }
    };
    let output = tool(store, &name, args).await?;
    Ok(output.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// For the adapter of older modules: what they know as files are the same tools.
pub(super) async fn read_file(store: Store<'_>, path: String) -> Answered<Vec<u8>> {
    files::read(store, path).await
}

/// The same for writing.
pub(super) async fn write_file(store: Store<'_>, path: String, content: &[u8]) -> Answered<()> {
    files::write(store, path, content, "replace").await
}

/// Runs a tool of the catalogue for the guest.
async fn tool(store: Store<'_>, name: &str, args: Value) -> Answered<Vec<u8>> {
    ask(store, Op::RunTool(ToolCall { tool: name.to_owned(), args })).await
}

/// The same for tools that answer in JSON.
async fn json(store: Store<'_>, name: &str, args: Value) -> Answered<Value> {
    Ok(tool(store, name, args).await?.and_then(|bytes| {
        serde_json::from_slice(&bytes).map_err(|error| {
            HostFailure::new("tool.answer", format!("`{name}` did not answer in JSON: {error}"))
        })
    }))
}

/// A tool's keys lie in a folder of its own, in the working memory of its caller.
fn place(tool: &str, key: &str) -> std::result::Result<String, HostFailure> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.bytes().all(fine) || key.starts_with('.') {
        return Err(HostFailure::new(
            "kv.key",
            "a key must be 1 to 64 of `a-z A-Z 0-9 . _ -`, not beginning with a dot",
        ));
    }
    Ok(format!("kv/{tool}/{key}"))
}

async fn set(store: Store<'_>, key: &str, content: String) -> Answered<()> {
    let key = match place(&store.data().tool, key) {
        Ok(key) => key,
        Err(failure) => return Ok(Err(failure)),
    };
    let memory = Memory { region: Region::Working, key, content };
    Ok(ask(store, Op::Remember(memory)).await?.map(drop))
}

/// Looking things up by name is opening, reading and closing: a search would find what only looks like it.
async fn get(mut store: Store<'_>, key: &str) -> Answered<Option<String>> {
    let place = match place(&store.data().tool, key) {
        Ok(place) => place,
        Err(failure) => return Ok(Err(failure)),
    };
    let path = format!("/self/mem/{}/{place}", Region::Working.folder());
    let opened = match ask(&mut store, Op::Open { path, mode: OpenMode::Read }).await? {
        Ok(opened) => opened,
        Err(failure) if failure.code == "vfs.not_found" => return Ok(Ok(None)),
        Err(failure) => return Ok(Err(failure)),
    };
    let Opened { fd } = serde_json::from_slice(&opened)?;
    let read = ask(&mut store, Op::Read { fd, offset: 0, bytes_max: u32::MAX }).await?;
    let closed = ask(&mut store, Op::Close { fd }).await?;
    Ok(match (read, closed) {
        (Ok(bytes), Ok(_)) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        (Err(failure), _) | (Ok(_), Err(failure)) => Err(failure),
    })
}
