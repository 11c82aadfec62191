//! The WASM tier: components and core modules that can do nothing by themselves.
//!
//! A guest gets its input as JSON and gives text back. Whatever else it wants, it asks for through the imports of the WIT package
//! `regent:host`, and each of those is a system call on the one path, made by the very future that holds the permit: there is no
//! second check and no second thread. Of WASI it sees a machine with nothing in it.
//!
//! What it does not promise:
//! - Guests share our process and its address space. A mistake in the compiler is a way out; code that is expected to look for one
//!   belongs in the microVM tier.
//! - Fuel counts instructions, not time. The wall clock is the kernel's.
//! - Compiling is not metered. What may be installed is bounded in size, and installing is its own decision.
//! - A memory limit counts linear memory, not what the compiler and the runtime keep about a guest (some ten kilobytes).
//!
//! Read `run.rs` for one call from start to end, `door.rs` for how a guest gets out, `machine.rs` for the limits.

mod az;
mod cache;
mod compiled;
mod door;
mod ending;
mod error;
mod guest;
mod host;
mod machine;
mod pace;
mod run;
mod self_test;
mod wasi;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use regent_kernel::{BoxFuture, Digest, ExecuteError, Executor, Op, Permit, RawOutput, tier};

use compiled::Compiled;
pub use error::WasmError;
use machine::Machine;
use run::Job;
pub use self_test::{SelfTest, finding, self_test};

/// The largest component that can be installed.
pub const COMPONENT_BYTES_MAX: usize = 64 << 20;
/// The most source that an interpreter is started with.
pub const SOURCE_BYTES_MAX: usize = 4 << 20;
/// How long a call waits for a place when all are taken. Guests that wait for guests must not wait for ever.
const PLACE_WAIT_MS_MAX: u64 = 1_000;

/// What the tier is given.
#[derive(Debug, Clone)]
pub struct WasmConfig {
    /// Where compiled code is kept between runs: a folder of the user's own, made with mode 0700. `None`: in memory only.
    pub cache: Option<PathBuf>,
    /// How many guests run at the same time.
    pub guests_max: u32,
}

impl Default for WasmConfig {
    fn default() -> Self {
        Self { cache: None, guests_max: 32 }
    }
}

/// Runs tools that are WASM.
#[derive(Debug)]
pub struct WasmTier {
    config: WasmConfig,
    /// Made when the first tool is installed: a command that needs none of this shouldn't wait for it.
    machine: OnceLock<Result<Machine, WasmError>>,
    tools: RwLock<HashMap<String, Arc<Installed>>>,
}

/// A tool that can be called.
#[derive(Debug)]
struct Installed {
    compiled: Arc<Compiled>,
    /// What an interpreter is to run.
    source: Option<Source>,
    /// Where the bytes are kept, if they are to be looked at before each call.
    file: Option<PathBuf>,
}

/// An interpreter's script.
#[derive(Debug)]
struct Source {
    text: String,
    digest: Digest,
}

impl WasmTier {
    /// A tier with no tools yet.
    pub fn new(config: WasmConfig) -> Self {
        Self { config, machine: OnceLock::new(), tools: RwLock::default() }
    }

    /// Makes a component (world `tool`, or a WASI command) or an older core module callable as the tool `tool`, if its SHA-256 is
    /// `digest`. A tool of that name that was there is replaced. Compiling takes a while: not for a thread that must not block.
    pub fn install(&self, tool: &str, wasm: &[u8], digest: Digest) -> Result<(), WasmError> {
        let compiled = self.compiled(wasm, digest)?;
        compiled.must_be_a_tool()?;
        self.put(tool, Installed { compiled, source: None, file: None });
        Ok(())
    }

    /// The same for bytes that stay in a file: before each call they are looked at again, and if they have changed the call is
    /// refused.
    pub fn install_file(&self, tool: &str, file: PathBuf, digest: Digest) -> Result<(), WasmError> {
        let compiled = self.compiled(&read(&file)?, digest)?;
        compiled.must_be_a_tool()?;
        self.put(tool, Installed { compiled, source: None, file: Some(file) });
        Ok(())
    }

    /// Makes a script callable: `interpreter` is a component of the world `script`, compiled once for all tools that share it.
    pub fn install_script(
        &self,
        tool: &str,
        interpreter: &[u8],
        digest: Digest,
        source: String,
    ) -> Result<(), WasmError> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(WasmError::TooLarge { bytes: source.len(), bytes_max: SOURCE_BYTES_MAX });
        }
        let compiled = self.compiled(interpreter, digest)?;
        compiled.must_be_an_interpreter()?;
        let source = Some(Source { digest: Digest::of(source.as_bytes()), text: source });
        self.put(tool, Installed { compiled, source, file: None });
        Ok(())
    }

    /// Takes a tool away. Calls that run go on.
    pub fn remove(&self, tool: &str) -> bool {
        self.tools.write().unwrap_or_else(PoisonError::into_inner).remove(tool).is_some()
    }

    /// The digest of the code that a tool runs.
    pub fn digest_of(&self, tool: &str) -> Option<Digest> {
        Some(self.installed(tool)?.compiled.digest())
    }

    fn put(&self, tool: &str, installed: Installed) {
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        tools.insert(tool.to_owned(), Arc::new(installed));
    }

    fn installed(&self, tool: &str) -> Option<Arc<Installed>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }

    fn compiled(&self, wasm: &[u8], digest: Digest) -> Result<Arc<Compiled>, WasmError> {
        check(wasm, digest)?;
        self.machine()?.compiled(wasm, digest)
    }

    fn machine(&self) -> Result<&Machine, WasmError> {
        self.machine.get_or_init(|| Machine::new(&self.config)).as_ref().map_err(WasmError::clone)
    }
}

impl Installed {
    /// Nothing that was changed since it was agreed to is run.
    async fn is_unchanged(&self) -> Result<(), WasmError> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        let digest = self.compiled.digest();
        let checked = tokio::task::spawn_blocking(move || check(&read(&file)?, digest)).await;
        checked.unwrap_or_else(|torn| Err(WasmError::Broken(torn.to_string())))
    }
}

fn check(wasm: &[u8], digest: Digest) -> Result<(), WasmError> {
    if wasm.len() > COMPONENT_BYTES_MAX {
        return Err(WasmError::TooLarge { bytes: wasm.len(), bytes_max: COMPONENT_BYTES_MAX });
    }
    let found = Digest::of(wasm);
    if found != digest {
        return Err(WasmError::Changed { expected: digest, found });
    }
    Ok(())
}

fn read(file: &std::path::Path) -> Result<Vec<u8>, WasmError> {
    use std::io::Read as _;
    let unreadable =
        |error: std::io::Error| WasmError::Unreadable { path: file.to_path_buf(), error: error.to_string() };
    let mut wasm = Vec::new();
    let most = COMPONENT_BYTES_MAX as u64 + 1;
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    opened.take(most).read_to_end(&mut wasm).map_err(unreadable)?;
    Ok(wasm)
}

impl Executor<tier::Wasm> for WasmTier {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Wasm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let Op::RunTool(call) = permit.call().op() else {
                return Err(ExecuteError::NoDriver(permit.call().op().name().to_owned()));
            };
            let Some(installed) = self.installed(&call.tool) else {
                return Err(ExecuteError::NoDriver(call.tool.clone()));
            };
            if let Err(error) = installed.is_unchanged().await {
                return Ok(RawOutput::failed(error.code(), error.to_string()));
            }
            let machine = self.machine().map_err(|error| ExecuteError::Unavailable(error.to_string()))?;
            let waited = Duration::from_millis(PLACE_WAIT_MS_MAX);
            let Ok(place) = tokio::time::timeout(waited, machine.place()).await else {
                let busy = format!("all {} places of the tier are taken", self.config.guests_max);
                return Ok(RawOutput::failed("wasm.busy", busy));
            };
            let job = Job {
                compiled: &installed.compiled,
                source: installed.source.as_ref().map(|source| source.text.as_str()),
                tool: &call.tool,
                input: permit.args().to_string(),
                limits: permit.limits(),
                clock: permit.clock(),
            };
            let ran = run::run(machine, job, |op| permit.syscall(op), permit.cancelled()).await;
            drop(place);
            ran?.into_output(&installed)
        })
    }
}
