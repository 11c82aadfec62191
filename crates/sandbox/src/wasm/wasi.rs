//! Of WASI (preview 2), what an ordinary program needs to start, talk and end, on a machine that has nothing: no arguments, no
//! environment, no folder, no network. Standard input is the call's input, standard output its output.
//!
//! Everything else that a component imports from `wasi:` is there as a stand-in that ends the guest when it is called: a program
//! that merely mentions sockets runs, one that uses them doesn't.

mod streams;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Component, ComponentType, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType,
};
use wasmtime::{Result, StoreContextMut};

use super::WasmError;
use super::guest::{WasmGuest, charge};
use super::host::nanoseconds;

type Store<'s> = StoreContextMut<'s, WasmGuest>;

/// The most random bytes at once.
const RANDOM_BYTES_MAX: u64 = 64 << 10;

/// The guest ended itself.
#[derive(Debug, thiserror::Error)]
#[error("it exited with code {0}")]
pub(super) struct Exited(pub(super) u8);

/// The guest called something that isn't there.
#[derive(Debug, thiserror::Error)]
#[error("it called `{0}`, which Regent doesn't provide")]
pub(super) struct NotOffered(String);

/// Things of WASI that are never made here.
enum Nothing {}
/// An open folder or file: there is none, ever.
enum Descriptor {}
enum Terminal {}

#[derive(Debug, Clone, Copy, ComponentType, Lift, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

/// Links everything that this component imports. Interfaces that are neither ours nor WASI's are refused.
pub(super) fn link(
    linker: &mut Linker<WasmGuest>,
    component: &Component,
) -> std::result::Result<(), WasmError> {
    let vm = linker.engine().clone();
    let all = component.component_type();
    for (name, import) in all.imports(&vm) {
        if name.starts_with("regent:host/") {
            continue;
        }
        let ComponentItem::ComponentInstance(interface) = import.ty else {
            return Err(WasmError::Import(name.to_owned()));
        };
        let Some(path) = name.strip_prefix("wasi:").and_then(|name| name.split_once("@0.2.")) else {
            return Err(WasmError::Import(name.to_owned()));
        };
        let items = interface.exports(&vm).map(|(item, export)| (item.to_owned(), export.ty));
        let linked = linker.instance(name).and_then(|mut instance| {
            stand_in(&mut instance, name, items)?;
            implement(&mut instance, path.0)
        });
        linked.map_err(|error| WasmError::Broken(error.to_string()))?;
    }
    Ok(())
}

fn stand_in(
    instance: &mut LinkerInstance<'_, WasmGuest>,
    interface: &str,
    items: impl Iterator<Item = (String, ComponentItem)>,
) -> Result<()> {
    for (item, kind) in items {
        match kind {
            ComponentItem::ComponentFunc(_) => {
                let called = format!("{interface}#{item}");
                instance.func_new(&item, move |_store, _kind, _params, _results| {
                    Err(wasmtime::Error::new(NotOffered(called.clone())))
                })?;
            }
            // The same thing is named in many interfaces; it must be the same kind in all of them.
            ComponentItem::Resource(_) => match item.as_str() {
                "input-stream" | "output-stream" | "error" | "pollable" => {
                    streams::resource(instance, &item)?;
                }
                "descriptor" => {
                    instance.resource(&item, ResourceType::host::<Descriptor>(), |_, _| Ok(()))?
                }
                "terminal-input" | "terminal-output" => {
                    instance.resource(&item, ResourceType::host::<Terminal>(), |_, _| Ok(()))?;
                }
                _other => instance.resource(&item, ResourceType::host::<Nothing>(), |_, _| Ok(()))?,
            },
            ComponentItem::Type(_)
            | ComponentItem::CoreFunc(_)
            | ComponentItem::Module(_)
            | ComponentItem::Component(_)
            | ComponentItem::ComponentInstance(_) => {}
        }
    }
    Ok(())
}

fn implement(instance: &mut LinkerInstance<'_, WasmGuest>, interface: &str) -> Result<()> {
    match interface {
        "cli/environment" => {
            instance
                .func_wrap("get-environment", |_: Store<'_>, ()| Ok((Vec::<(String, String)>::new(),)))?;
            instance.func_wrap("get-arguments", |_: Store<'_>, ()| Ok((Vec::<String>::new(),)))?;
            instance.func_wrap("initial-cwd", |_: Store<'_>, ()| Ok((None::<String>,)))
        }
        "cli/exit" => {
            instance.func_wrap("exit", |_: Store<'_>, (ended,): (std::result::Result<(), ()>,)| {
                Err::<(), _>(wasmtime::Error::new(Exited(u8::from(ended.is_err()))))
            })?;
            instance.func_wrap("exit-with-code", |_: Store<'_>, (code,): (u8,)| {
                Err::<(), _>(wasmtime::Error::new(Exited(code)))
            })
        }
        "cli/terminal-stdin" => no_terminal(instance, "get-terminal-stdin"),
        "cli/terminal-stdout" => no_terminal(instance, "get-terminal-stdout"),
        "cli/terminal-stderr" => no_terminal(instance, "get-terminal-stderr"),
        "clocks/wall-clock" => wall_clock(instance),
        "filesystem/preopens" => instance.func_wrap("get-directories", |_: Store<'_>, ()| {
            Ok((Vec::<(Resource<Descriptor>, String)>::new(),))
        }),
        "random/random" => {
            random(instance, "get-random-bytes")?;
            instance.func_wrap("get-random-u64", |store: Store<'_>, ()| Ok((random_u64(store)?,)))
        }
        "random/insecure" => {
            random(instance, "get-insecure-random-bytes")?;
            instance.func_wrap("get-insecure-random-u64", |store: Store<'_>, ()| Ok((random_u64(store)?,)))
        }
        "random/insecure-seed" => instance.func_wrap("insecure-seed", |mut store: Store<'_>, ()| {
            Ok(((random_u64(&mut store)?, random_u64(&mut store)?),))
        }),
        streams => streams::implement(instance, streams),
    }
}

fn no_terminal(instance: &mut LinkerInstance<'_, WasmGuest>, name: &str) -> Result<()> {
    instance.func_wrap(name, |_: Store<'_>, ()| Ok((None::<Resource<Terminal>>,)))
}

fn wall_clock(instance: &mut LinkerInstance<'_, WasmGuest>) -> Result<()> {
    instance.func_wrap("now", |mut store: Store<'_>, ()| {
        charge(&mut store, 0)?;
        let now_ms = u64::try_from(store.data().clock.now_ms()).unwrap_or(0);
        let nanoseconds = u32::try_from(now_ms % 1_000 * 1_000_000).unwrap_or(0);
        Ok((Datetime { seconds: now_ms / 1_000, nanoseconds },))
    })?;
    instance
        .func_wrap("resolution", |_: Store<'_>, ()| Ok((Datetime { seconds: 0, nanoseconds: 1_000_000 },)))
}

fn random(instance: &mut LinkerInstance<'_, WasmGuest>, name: &str) -> Result<()> {
    instance.func_wrap(name, |mut store: Store<'_>, (bytes,): (u64,)| {
        let bytes = usize::try_from(bytes.min(RANDOM_BYTES_MAX)).unwrap_or(0);
        charge(&mut store, bytes)?;
        let mut random = vec![0_u8; bytes];
        getrandom::fill(&mut random)?;
        Ok((random,))
    })
}

fn random_u64(mut store: impl wasmtime::AsContextMut<Data = WasmGuest>) -> Result<u64> {
    charge(&mut store, 8)?;
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random)?;
    Ok(u64::from_le_bytes(random))
}
