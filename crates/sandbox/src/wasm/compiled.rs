//! Code that is ready to run, and what it is: a component of one of our worlds, a WASI command, or an older core module.

use regent_kernel::Digest;
use wasmtime::component::types::{ComponentItem, Type};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};
use wasmtime::{Engine as Vm, Module, Store};

use super::az::Adapted;
use super::cache::{CodeCache, WasmKind};
use super::guest::WasmGuest;
use super::wasi::Exited;
use super::{WasmError, host, wasi};

/// What a tool returned: its output, or its own error message.
pub(super) type Spoken = Result<String, String>;

/// One component or module, linked and waiting.
pub(super) struct Compiled {
    digest: Digest,
    form: CodeForm,
}

enum CodeForm {
    Component { ready: InstancePre<WasmGuest>, entry: WasmEntryPoint },
    Module(Adapted),
}

/// What is called.
#[derive(Clone, Copy)]
enum WasmEntryPoint {
    /// `run: func(input: string) -> result<string, string>`.
    Tool(ComponentExportIndex),
    /// `run: func(source: string, input: string) -> result<string, string>`.
    Script(ComponentExportIndex),
    /// `wasi:cli/run`: standard input to standard output.
    Command(ComponentExportIndex),
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").field("digest", &self.digest).field("world", &self.world()).finish()
    }
}

impl Compiled {
    pub(super) fn new(
        vm: &Vm,
        cache: Option<&CodeCache>,
        wasm: &[u8],
        digest: Digest,
    ) -> Result<Self, WasmError> {
        let invalid = |error: wasmtime::Error| WasmError::Invalid(format!("{error:#}"));
        let form = match WasmKind::detect(wasm) {
            Some(WasmKind::Component) => {
                let cached = cache.and_then(|cache| cache.component(vm, &digest));
                let component = match cached {
                    Some(component) => component,
                    None => {
                        let component = Component::from_binary(vm, wasm).map_err(invalid)?;
                        keep(cache, WasmKind::Component, &digest, component.serialize());
                        component
                    }
                };
                let entry = entry(vm, &component)?;
                let mut linker = Linker::new(vm);
                // Stand-ins come first, and what is really there takes their place.
                linker.allow_shadowing(true);
                wasi::link(&mut linker, &component)?;
                host::link(&mut linker).map_err(|error| WasmError::Broken(error.to_string()))?;
                CodeForm::Component { ready: linker.instantiate_pre(&component).map_err(invalid)?, entry }
            }
            Some(WasmKind::Module) => {
                let cached = cache.and_then(|cache| cache.module(vm, &digest));
                let module = match cached {
                    Some(module) => module,
                    None => {
                        let module = Module::from_binary(vm, wasm).map_err(invalid)?;
                        keep(cache, WasmKind::Module, &digest, module.serialize());
                        module
                    }
                };
                CodeForm::Module(Adapted::new(vm, &module)?)
            }
            None => return Err(WasmError::Invalid("it is not WASM".to_owned())),
        };
        Ok(Self { digest, form })
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    /// What it is, for the receipt.
    pub(super) fn world(&self) -> &'static str {
        match &self.form {
            CodeForm::Component { entry: WasmEntryPoint::Tool(_), .. } => "tool",
            CodeForm::Component { entry: WasmEntryPoint::Script(_), .. } => "script",
            CodeForm::Component { entry: WasmEntryPoint::Command(_), .. } => "command",
            CodeForm::Module(_) => "module",
        }
    }

    pub(super) fn must_be_a_tool(&self) -> Result<(), WasmError> {
        match &self.form {
            CodeForm::Component { entry: WasmEntryPoint::Script(_), .. } => {
                Err(WasmError::World("it is an interpreter, which needs source code"))
            }
            CodeForm::Component { entry: WasmEntryPoint::Tool(_) | WasmEntryPoint::Command(_), .. }
            | CodeForm::Module(_) => Ok(()),
        }
    }

    pub(super) fn must_be_an_interpreter(&self) -> Result<(), WasmError> {
        match &self.form {
            CodeForm::Component { entry: WasmEntryPoint::Script(_), .. } => Ok(()),
            CodeForm::Component { entry: WasmEntryPoint::Tool(_) | WasmEntryPoint::Command(_), .. }
            | CodeForm::Module(_) => {
                Err(WasmError::World("it is not an interpreter: `run` must take a source and an input"))
            }
        }
    }

    /// One call, from nothing to the result.
    pub(super) async fn call(
        &self,
        store: &mut Store<WasmGuest>,
        source: &str,
        input: &str,
    ) -> wasmtime::Result<Spoken> {
        let (ready, entry) = match &self.form {
            CodeForm::Component { ready, entry } => (ready, entry),
            CodeForm::Module(adapted) => return adapted.call(store, input).await,
        };
        if matches!(entry, WasmEntryPoint::Command(_)) {
            store.data_mut().said.input = std::io::Cursor::new(input.as_bytes().to_vec());
        }
        let instance = ready.instantiate_async(&mut *store).await?;
        store.data_mut().begun = true;
        match entry {
            WasmEntryPoint::Tool(run) => {
                let run = instance.get_typed_func::<(&str,), (Spoken,)>(&mut *store, run)?;
                Ok(run.call_async(&mut *store, (input,)).await?.0)
            }
            WasmEntryPoint::Script(run) => {
                let run = instance.get_typed_func::<(&str, &str), (Spoken,)>(&mut *store, run)?;
                Ok(run.call_async(&mut *store, (source, input)).await?.0)
            }
            WasmEntryPoint::Command(run) => {
                let run = instance.get_typed_func::<(), (Result<(), ()>,)>(&mut *store, run)?;
                let ended = match run.call_async(&mut *store, ()).await {
                    Ok((ended,)) => ended,
                    Err(error) => match error.downcast_ref::<Exited>() {
                        Some(Exited(0)) => Ok(()),
                        Some(Exited(code)) => return Ok(Err(format!("it exited with code {code}"))),
                        None => return Err(error),
                    },
                };
                Ok(ended.map(|()| String::new()).map_err(|()| "it did not succeed".to_owned()))
            }
        }
    }
}

/// What couldn't be kept is compiled again next time.
fn keep(cache: Option<&CodeCache>, kind: WasmKind, digest: &Digest, code: wasmtime::Result<Vec<u8>>) {
    if let (Some(cache), Ok(code)) = (cache, code) {
        cache.keep(kind, digest, &code);
    }
}

fn entry(vm: &Vm, component: &Component) -> Result<WasmEntryPoint, WasmError> {
    let all = component.component_type();
    for (name, export) in all.exports(vm) {
        match export.ty {
            ComponentItem::ComponentFunc(function) if name == "run" => {
                let takes: Vec<Type> = function.params().map(|(_name, kind)| kind).collect();
                let gives: Vec<Type> = function.results().collect();
                let texts = |kind: &Type| {
                    matches!(kind, Type::Result(both)
                        if both.ok() == Some(Type::String) && both.err() == Some(Type::String))
                };
                let index = component.get_export_index(None, name);
                return match (takes.as_slice(), gives.as_slice(), index) {
                    ([Type::String], [one], Some(index)) if texts(one) => Ok(WasmEntryPoint::Tool(index)),
                    ([Type::String, Type::String], [one], Some(index)) if texts(one) => {
                        Ok(WasmEntryPoint::Script(index))
                    }
                    (_takes, _gives, _index) => {
                        Err(WasmError::World("`run` must take text and return `result<string, string>`"))
                    }
                };
            }
            ComponentItem::ComponentInstance(_) if name.starts_with("wasi:cli/run@0.2.") => {
                let found = component.get_export_index(None, name);
                let run = found.and_then(|inside| component.get_export_index(Some(&inside), "run"));
                return run
                    .map(WasmEntryPoint::Command)
                    .ok_or(WasmError::World("`wasi:cli/run` has no `run`"));
            }
            ComponentItem::ComponentFunc(_)
            | ComponentItem::ComponentInstance(_)
            | ComponentItem::CoreFunc(_)
            | ComponentItem::Module(_)
            | ComponentItem::Component(_)
            | ComponentItem::Type(_)
            | ComponentItem::Resource(_) => {}
        }
    }
    Err(WasmError::World("it exports neither `run` nor `wasi:cli/run`"))
}
