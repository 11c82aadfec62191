//! The WASM tier: components and core modules that can do nothing by themselves.
//!
//! A guest gets its input as JSON and gives text back. Whatever else it wants, it asks for through the imports of the WIT package
//! `regent:host`, and each of those is a system call on the one path, made by the very future that holds the permit: there is no
//! second check and no second thread. Of WASI it sees a machine with nothing in it.
//!
//! What it does not promise:
//! - Guests share our process and its address space. A bug in the compiler is an escape; code that is expected to look for one
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

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use regent_kernel::{BoxFuture, Digest, ExecuteError, Executor, Op, Permit, RawOutput, tier};

use compiled::Compiled;
pub use error::WasmError;
use machine::WasmMachine;
use run::WasmJob;
pub use self_test::{SelfTest, finding, self_test};

/// The largest component that can be installed.
pub const COMPONENT_BYTES_MAX: usize = 64 << 20;
/// The most source that an interpreter is started with.
pub const SOURCE_BYTES_MAX: usize = 4 << 20;
/// How long a call waits for a place when all are taken. Guests that wait for guests must not wait for ever.
const PLACE_WAIT_MS_MAX: u64 = 1_000;

/// Configuration of the tier.
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

/// What WASM tools run on. Each tool is a driver of its own ([`WasmTool`]); they share the machine, the compiler and its cache.
#[derive(Debug)]
pub struct WasmTier {
    config: WasmConfig,
    /// Made when the first tool is: a command that needs none of this shouldn't wait for it.
    machine: OnceLock<Result<WasmMachine, WasmError>>,
}

/// The driver of one tool.
#[derive(Debug)]
pub struct WasmTool {
    tier: Arc<WasmTier>,
    compiled: Arc<Compiled>,
    /// What an interpreter is to run.
    source: Option<Source>,
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
        Self { config, machine: OnceLock::new() }
    }

    /// The driver of a component (world `tool`, or a WASI command) or of an older core module, if its SHA-256 is `digest`. Compiling takes a
    /// while: not for a thread that must not block.
    pub fn tool(self: &Arc<Self>, wasm: &[u8], digest: Digest) -> Result<WasmTool, WasmError> {
        let compiled = self.compiled(wasm, digest)?;
        compiled.must_be_a_tool()?;
        Ok(WasmTool { tier: Arc::clone(self), compiled, source: None })
    }

    /// The driver of a script: `interpreter` is a component of the world `script`, compiled once for all tools that share it.
    pub fn script(
        self: &Arc<Self>,
        interpreter: &[u8],
        digest: Digest,
        source: String,
    ) -> Result<WasmTool, WasmError> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(WasmError::TooLarge { bytes: source.len(), bytes_max: SOURCE_BYTES_MAX });
        }
        let compiled = self.compiled(interpreter, digest)?;
        compiled.must_be_an_interpreter()?;
        let source = Some(Source { digest: Digest::compute(source.as_bytes()), text: source });
        Ok(WasmTool { tier: Arc::clone(self), compiled, source })
    }

    fn compiled(&self, wasm: &[u8], digest: Digest) -> Result<Arc<Compiled>, WasmError> {
        check(wasm, digest)?;
        self.machine()?.compiled(wasm, digest)
    }

    fn machine(&self) -> Result<&WasmMachine, WasmError> {
        self.machine.get_or_init(|| WasmMachine::new(&self.config)).as_ref().map_err(WasmError::clone)
    }
}

fn check(wasm: &[u8], digest: Digest) -> Result<(), WasmError> {
    if wasm.len() > COMPONENT_BYTES_MAX {
        return Err(WasmError::TooLarge { bytes: wasm.len(), bytes_max: COMPONENT_BYTES_MAX });
    }
    let found = Digest::compute(wasm);
    if found != digest {
        return Err(WasmError::Changed { expected: digest, found });
    }
    Ok(())
}

impl Executor<tier::Wasm> for WasmTool {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Wasm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let Op::RunTool(call) = permit.call().op() else {
                return Err(ExecuteError::NoDriver(permit.call().op().name().to_owned()));
            };
            let tier = &self.tier;
            let machine = tier.machine().map_err(|error| ExecuteError::Unavailable(error.to_string()))?;
            let waited = Duration::from_millis(PLACE_WAIT_MS_MAX);
            let Ok(place) = tokio::time::timeout(waited, machine.place()).await else {
                let busy = format!("all {} slots of the tier are in use", tier.config.guests_max);
                return Ok(RawOutput::failed("wasm.busy", busy));
            };
            let job = WasmJob {
                compiled: &self.compiled,
                source: self.source.as_ref().map(|source| source.text.as_str()),
                tool: &call.tool,
                input: permit.args().to_string(),
                limits: permit.limits(),
                clock: permit.clock(),
            };
            let (stop, suspension) = (permit.cancelled(), permit.suspension());
            let ran = run::run(machine, job, |op| permit.syscall(op), stop, suspension).await;
            drop(place);
            ran?.into_output(self)
        })
    }
}
