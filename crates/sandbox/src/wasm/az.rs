//! Core modules of the older kind: they import `az::log`, `az::read_file` and `az::write_file`, and export `memory`, `alloc` and
//! `run` (or `main`). Same limits, same door: only the words differ.
//!
//! `run(ptr, len) -> i64` gets the input at the address that `alloc(len) -> ptr` returned, and gives back pointer and length in one number, pointer
//! in the upper half, or -1. `read_file(ptr, len) -> i64` gives content back in the same way, `write_file(ptr, len, ptr, len)` gives 0
//! or 1. A module with only `main() -> i32` gets no input, and the number is its output.

use wasmtime::{
    AsContextMut as _, Caller, Engine as Vm, Extern, Instance, InstancePre, Linker, Memory, Module, Result,
    Store, TypedFunc,
};

use super::WasmError;
use super::compiled::Spoken;
use super::guest::{WasmGuest, charge};
use super::host;
use super::machine::CARRIED_BYTES_MAX;

/// A module, linked and waiting.
pub(super) struct Adapted {
    ready: InstancePre<WasmGuest>,
    entry: AzEntryPoint,
}

#[derive(Clone, Copy)]
enum AzEntryPoint {
    Run,
    Main(&'static str),
}

/// What `read_file` and `run` give when they have nothing.
const NOTHING: i64 = -1;

impl Adapted {
    pub(super) fn new(vm: &Vm, module: &Module) -> std::result::Result<Self, WasmError> {
        for import in module.imports() {
            if import.module() != "az" || !matches!(import.name(), "log" | "read_file" | "write_file") {
                return Err(WasmError::Import(format!("{}::{}", import.module(), import.name())));
            }
        }
        let entry = ["run", "main", "_start"].into_iter().find(|name| module.get_export(name).is_some());
        let entry = match entry {
            Some("run") => AzEntryPoint::Run,
            Some(other) => AzEntryPoint::Main(other),
            None => return Err(WasmError::World("the module exports neither `run` nor `main`")),
        };
        let invalid = |error: wasmtime::Error| WasmError::Invalid(format!("{error:#}"));
        let linker = linker(vm).map_err(|error| WasmError::Broken(error.to_string()))?;
        Ok(Self { ready: linker.instantiate_pre(module).map_err(invalid)?, entry })
    }

    pub(super) async fn call(&self, store: &mut Store<WasmGuest>, input: &str) -> Result<Spoken> {
        let instance = self.ready.instantiate_async(&mut *store).await?;
        store.data_mut().begun = true;
        match self.entry {
            AzEntryPoint::Run => run(store, &instance, input).await,
            AzEntryPoint::Main(name) => main(store, &instance, name).await,
        }
    }
}

async fn run(store: &mut Store<WasmGuest>, instance: &Instance, input: &str) -> Result<Spoken> {
    let memory = instance.get_memory(&mut *store, "memory").ok_or_else(|| missing("memory"))?;
    let alloc = instance.get_typed_func::<i32, i32>(&mut *store, "alloc")?;
    let run = instance.get_typed_func::<(i32, i32), i64>(&mut *store, "run")?;
    let len =
        i32::try_from(input.len()).map_err(|_too_long| wasmtime::Error::msg("the input is too long"))?;
    let start = alloc.call_async(&mut *store, len).await?;
    memory.write(&mut *store, offset(start), input.as_bytes())?;
    let packed = run.call_async(&mut *store, (start, len)).await?;
    if packed == NOTHING {
        return Ok(Err("it returned nothing".to_owned()));
    }
    let (start, len) = unpack(packed);
    let text = copy(memory.data(&*store), start, len).and_then(|bytes| String::from_utf8(bytes).ok());
    Ok(text.ok_or_else(|| "its result is not text in its memory".to_owned()))
}

async fn main(store: &mut Store<WasmGuest>, instance: &Instance, name: &str) -> Result<Spoken> {
    if let Ok(main) = instance.get_typed_func::<(), i32>(&mut *store, name) {
        return Ok(Ok(main.call_async(&mut *store, ()).await?.to_string()));
    }
    let main = instance.get_typed_func::<(), ()>(&mut *store, name)?;
    main.call_async(&mut *store, ()).await?;
    Ok(Ok(String::new()))
}

fn linker(vm: &Vm) -> Result<Linker<WasmGuest>> {
    let mut linker = Linker::new(vm);
    linker.func_wrap(
        "az",
        "log",
        |mut caller: Caller<'_, WasmGuest>, start: i32, len: i32| -> Result<()> {
            charge(&mut caller, usize::try_from(len).unwrap_or(0))?;
            if let Some(message) = text(&mut caller, start, len) {
                let said = &mut caller.data_mut().said;
                said.note(message.as_bytes());
                said.note(b"\n");
            }
            Ok(())
        },
    )?;
    linker.func_wrap_async(
        "az",
        "read_file",
        |mut caller: Caller<'_, WasmGuest>, (start, len): (i32, i32)| {
            Box::new(async move {
                let Some(path) = text(&mut caller, start, len) else { return Ok(NOTHING) };
                match host::read_file(caller.as_context_mut(), path).await? {
                    Ok(content) => give(&mut caller, &content).await,
                    Err(_refused) => Ok(NOTHING),
                }
            })
        },
    )?;
    linker.func_wrap_async(
        "az",
        "write_file",
        |mut caller: Caller<'_, WasmGuest>, (start, len, from, bytes): (i32, i32, i32, i32)| {
            Box::new(async move {
                let (path, content) = (text(&mut caller, start, len), text(&mut caller, from, bytes));
                let (Some(path), Some(content)) = (path, content) else { return Ok(1) };
                let written = host::write_file(caller.as_context_mut(), path, content.as_bytes()).await?;
                Ok::<i32, wasmtime::Error>(if written.is_ok() { 0 } else { 1 })
            })
        },
    )?;
    Ok(linker)
}

/// Puts bytes where the guest's own `alloc` wants them. A guest that reads files while it makes room isn't served.
async fn give(caller: &mut Caller<'_, WasmGuest>, content: &[u8]) -> Result<i64> {
    let alloc = caller.get_export("alloc").and_then(Extern::into_func);
    let alloc: Option<TypedFunc<i32, i32>> = alloc.and_then(|alloc| alloc.typed(&*caller).ok());
    let (Some(alloc), Some(memory), Ok(len)) = (alloc, memory(caller), i32::try_from(content.len())) else {
        return Ok(NOTHING);
    };
    if std::mem::replace(&mut caller.data_mut().inside, true) {
        return Ok(NOTHING);
    }
    let start = alloc.call_async(&mut *caller, len).await;
    caller.data_mut().inside = false;
    let start = start?;
    Ok(match memory.write(&mut *caller, offset(start), content) {
        Ok(()) => pack(start, len),
        Err(_outside) => NOTHING,
    })
}

fn memory(caller: &mut Caller<'_, WasmGuest>) -> Option<Memory> {
    caller.get_export("memory").and_then(Extern::into_memory)
}

fn text(caller: &mut Caller<'_, WasmGuest>, start: i32, len: i32) -> Option<String> {
    let memory = memory(caller)?;
    String::from_utf8(copy(memory.data(&*caller), offset(start), offset(len))?).ok()
}

/// A copy of a part of the guest's memory, if there is such a part and it isn't more than may be handed over.
fn copy(memory: &[u8], start: usize, len: usize) -> Option<Vec<u8>> {
    let part = memory.get(start..start.checked_add(len)?)?;
    (len <= CARRIED_BYTES_MAX).then(|| part.to_vec())
}

/// A guest's pointers and lengths are unsigned, whatever their type says.
fn offset(value: i32) -> usize {
    usize::try_from(value.cast_unsigned()).unwrap_or(usize::MAX)
}

fn pack(start: i32, len: i32) -> i64 {
    (i64::from(start.cast_unsigned()) << 32) | i64::from(len.cast_unsigned())
}

fn unpack(packed: i64) -> (usize, usize) {
    let halves = packed.cast_unsigned();
    let part = |half: u64| usize::try_from(half & u64::from(u32::MAX)).unwrap_or(usize::MAX);
    (part(halves >> 32), part(halves))
}

fn missing(what: &str) -> wasmtime::Error {
    wasmtime::Error::msg(format!("the module exports no `{what}`"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packing_loses_nothing(start: i32, len: i32) {
            prop_assert_eq!(unpack(pack(start, len)), (offset(start), offset(len)));
        }

        #[test]
        fn no_part_lies_outside(memory in proptest::collection::vec(any::<u8>(), 0..64), start: u32, len: u32) {
            let (start, len) = (start as usize, len as usize);
            match copy(&memory, start, len) {
                Some(part) => prop_assert_eq!(&part[..], &memory[start..start + len]),
                None => prop_assert!(start.checked_add(len).is_none_or(|end| end > memory.len())),
            }
        }
    }
}
