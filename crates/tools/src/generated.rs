//! Tools that agents write: source in a strict subset of JavaScript, run by one interpreter component in the WASM tier.
//!
//! [`Generated`] stands before the tier. It makes a tool (`tool.generate`: read, checked, tried on its examples, written as a new
//! version), lets it run (every file compared with what was agreed to, before each call), rolls it back and removes it. What a tool may
//! reach for is what it was granted: the kernel refuses the rest of its calls, see [`ToolSpec::may`](regent_kernel::ToolSpec).

mod error;
mod make;
mod manifest;
mod registry;

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use regent_kernel::{
    BoxFuture, Catalogue, Digest, ExecuteError, Executor, Op, Permit, RawOutput, ToolSpec, tier,
};

pub use error::GeneratedError;
pub use make::host_tools;
pub use manifest::{Example, Manifest};
pub use registry::{Kept, Registry};

/// The interpreter, as a component. Empty where it could not be built.
static INTERPRETER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/script.wasm"));

/// Whether this build has the interpreter.
pub fn is_built_in() -> bool {
    !INTERPRETER.is_empty()
}

/// A tier that can run scripts with an interpreter.
pub trait ScriptTier: Executor<tier::Wasm> + Debug {
    /// Makes a script callable under a tool's name; one of that name that was there is replaced. May block.
    fn install_script(
        &self,
        tool: &str,
        interpreter: &[u8],
        digest: Digest,
        source: String,
    ) -> Result<(), String>;

    /// Takes it away.
    fn remove_script(&self, tool: &str);
}

/// The generated tools of a project, before the tier that runs them.
#[derive(Debug)]
pub struct Generated {
    registry: Registry,
    tier: Arc<dyn ScriptTier>,
    interpreter: &'static [u8],
    digest: Digest,
    /// The tools that this process knows, each at the version that is in its catalogue.
    live: RwLock<HashMap<String, Arc<Live>>>,
}

/// A tool that can be called in this process.
#[derive(Debug)]
struct Live {
    source: String,
    /// What lies on disk, to be compared before each call; `None` while a tool is tried.
    kept: Option<Kept>,
    installed: AtomicBool,
}

impl Generated {
    /// Those in `folder` (`.regent/tools`), as `pins`, a file of the user's own, says that they were agreed to.
    pub fn new(folder: PathBuf, pins: PathBuf, tier: Arc<dyn ScriptTier>) -> Self {
        Self::with_interpreter(folder, pins, tier, INTERPRETER)
    }

    /// The same with another interpreter.
    pub fn with_interpreter(
        folder: PathBuf,
        pins: PathBuf,
        tier: Arc<dyn ScriptTier>,
        interpreter: &'static [u8],
    ) -> Self {
        let registry = Registry::new(folder, pins);
        Self { registry, tier, interpreter, digest: Digest::of(interpreter), live: RwLock::default() }
    }

    /// What is on disk.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The digest of the interpreter of this build.
    pub fn interpreter(&self) -> Digest {
        self.digest
    }

    /// Makes every tool that is what was agreed to callable, and tells which aren't.
    pub fn admit_all(&self, catalogue: &Catalogue) -> Vec<(String, GeneratedError)> {
        let admit = |name: &String| {
            let kept = self.usable(name)?;
            self.enact(catalogue, kept)
        };
        let names = self.registry.names();
        names.into_iter().filter_map(|name| admit(&name).err().map(|error| (name, error))).collect()
    }

    /// What can be called, as the catalogue would have it.
    pub fn specs(&self) -> Vec<ToolSpec> {
        let names = self.registry.names();
        names.iter().filter_map(|name| self.usable(name).ok()).map(|kept| kept.spec()).collect()
    }

    /// The active version, if it is what was agreed to and was tried with the interpreter that would run it.
    pub fn usable(&self, name: &str) -> Result<Kept, GeneratedError> {
        if self.interpreter.is_empty() {
            return Err(GeneratedError::NotBuilt);
        }
        let kept = self.registry.active(name)?;
        if kept.manifest.interpreter_sha256 != self.digest {
            return Err(GeneratedError::Interpreter(name.to_owned()));
        }
        Ok(kept)
    }

    /// Puts a version in force in this process.
    fn enact(&self, catalogue: &Catalogue, kept: Kept) -> Result<(), GeneratedError> {
        let spec = kept.spec();
        let (name, version) = (spec.name.clone(), spec.version.clone());
        catalogue.admit(spec)?;
        catalogue.activate(&name, &version);
        let live = Live { source: kept.source.clone(), kept: Some(kept), installed: AtomicBool::new(false) };
        self.set_live(name, live);
        Ok(())
    }

    fn set_live(&self, name: String, live: Live) {
        self.live.write().unwrap_or_else(PoisonError::into_inner).insert(name, Arc::new(live));
    }

    /// No longer callable in this process.
    fn forget(&self, catalogue: &Catalogue, name: &str) {
        catalogue.remove(name);
        self.live.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.tier.remove_script(name);
    }

    fn live(&self, name: &str) -> Option<Arc<Live>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Compares the files with what was agreed to, and sees to it that the tier has the script.
    fn prepare(&self, name: &str, live: &Live) -> Result<(), GeneratedError> {
        if let Some(kept) = &live.kept {
            self.registry.compare(kept)?;
        }
        if live.installed.load(Ordering::Acquire) {
            return Ok(());
        }
        let installed = self.tier.install_script(name, self.interpreter, self.digest, live.source.clone());
        installed.map_err(|why| GeneratedError::Tier { name: name.to_owned(), why })?;
        live.installed.store(true, Ordering::Release);
        Ok(())
    }
}

/// The tier, with generated tools checked before each use. What isn't generated goes to the tier as it is.
#[derive(Debug, Clone)]
pub struct Checking(pub Arc<Generated>);

impl Executor<tier::Wasm> for Checking {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Wasm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        let generated = &self.0;
        let found = if let Op::RunTool(run) = permit.call().op() {
            generated.live(&run.tool).map(|live| (run.tool.clone(), live))
        } else {
            None
        };
        let Some((name, live)) = found else { return generated.tier.execute(permit) };
        Box::pin(async move {
            let checked = Arc::clone(generated);
            // Files are read, and the interpreter may have to be compiled.
            let prepared = tokio::task::spawn_blocking(move || checked.prepare(&name, &live)).await;
            match prepared {
                Ok(Ok(())) => generated.tier.execute(permit).await,
                Ok(Err(error)) => Ok(RawOutput::failed(error.code(), error.to_string())),
                Err(torn) => Err(ExecuteError::Broken(torn.to_string())),
            }
        })
    }
}

#[cfg(test)]
mod tests;
