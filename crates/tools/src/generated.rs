//! Tools that agents write: source in a strict subset of JavaScript, run by one interpreter component in the WASM tier.
//!
//! [`Generated`] makes a tool (`tool.generate`: read, checked, tried on its examples, written as a new
//! version), lets it run (every file compared with what was agreed to, before each call), rolls it back and removes it. Each is a tool set of its own. What a tool may
//! reach for is what it was granted: the kernel refuses the rest of its calls, see [`ToolSpec::may`](regent_kernel::ToolSpec).

mod error;
mod make;
mod manifest;
mod registry;

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use regent_kernel::{
    BoxFuture, Catalogue, Digest, Driver, ExecuteError, Executor, Permit, RawOutput, ToolSet, ToolSpec, tier,
};

pub use error::GeneratedError;
pub use make::host_tools;
pub use manifest::{Example, Manifest};
pub use registry::{Kept, Registry};

/// The interpreter, as a component that was built ahead (ADR 0076). CI builds it again and compares every byte.
static INTERPRETER: &[u8] = include_bytes!("../../../guests/script/script.wasm");

/// A tier that can run scripts with an interpreter.
pub trait ScriptTier: Debug + Send + Sync {
    /// What runs a script. May block: the interpreter may have to be compiled.
    fn script(
        &self,
        interpreter: &[u8],
        digest: Digest,
        source: String,
    ) -> Result<Arc<dyn Executor<tier::Wasm>>, String>;
}

/// The generated tools of a project.
#[derive(Debug)]
pub struct Generated {
    registry: Registry,
    tier: Arc<dyn ScriptTier>,
    interpreter: &'static [u8],
    digest: Digest,
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
        Self { registry, tier, interpreter, digest: Digest::compute(interpreter) }
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
        let kept = self.registry.active(name)?;
        if kept.manifest.interpreter_sha256 != self.digest {
            return Err(GeneratedError::Interpreter(name.to_owned()));
        }
        Ok(kept)
    }

    /// Puts a version in force in this process: it takes the place of the one before, whose calls run on.
    fn enact(&self, catalogue: &Catalogue, kept: Kept) -> Result<(), GeneratedError> {
        let (spec, pinned) = (kept.spec(), kept.digest);
        let source = source_of(&spec.name);
        let driver = self.driver(&spec.name, kept.source.clone(), Some(kept));
        catalogue.admit(ToolSet::new(&source).made_from(pinned).with(spec, driver), Some(pinned))?;
        Ok(())
    }

    /// What runs a source; `kept` is what lies on disk, to be compared before each call.
    fn driver(&self, name: &str, source: String, kept: Option<Kept>) -> Driver {
        Driver::wasm(Arc::new(Scripted(Arc::new(ScriptSource {
            registry: self.registry.clone(),
            tier: Arc::clone(&self.tier),
            interpreter: (self.interpreter, self.digest),
            name: name.to_owned(),
            source,
            kept,
            ready: OnceLock::new(),
        }))))
    }
}

/// The set that a generated tool is: one tool, pinned by the digest of its manifest.
fn source_of(name: &str) -> String {
    format!("generated:{name}")
}

/// The driver of one version of a tool.
struct Scripted(Arc<ScriptSource>);

struct ScriptSource {
    registry: Registry,
    tier: Arc<dyn ScriptTier>,
    interpreter: (&'static [u8], Digest),
    name: String,
    source: String,
    kept: Option<Kept>,
    ready: OnceLock<Arc<dyn Executor<tier::Wasm>>>,
}

impl ScriptSource {
    /// Compares the files with what was agreed to, and gives what runs the script.
    fn prepare(&self) -> Result<Arc<dyn Executor<tier::Wasm>>, GeneratedError> {
        if let Some(kept) = &self.kept {
            self.registry.compare(kept)?;
        }
        if let Some(ready) = self.ready.get() {
            return Ok(Arc::clone(ready));
        }
        let (interpreter, digest) = self.interpreter;
        let made = self.tier.script(interpreter, digest, self.source.clone());
        let made = made.map_err(|why| GeneratedError::Tier { name: self.name.clone(), why })?;
        Ok(Arc::clone(self.ready.get_or_init(|| made)))
    }
}

impl Executor<tier::Wasm> for Scripted {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Wasm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let script = Arc::clone(&self.0);
            // Files are read, and the interpreter may have to be compiled.
            match tokio::task::spawn_blocking(move || script.prepare()).await {
                Ok(Ok(ready)) => ready.execute(permit).await,
                Ok(Err(error)) => Ok(RawOutput::failed(error.code(), error.to_string())),
                Err(torn) => Err(ExecuteError::Broken(torn.to_string())),
            }
        })
    }
}

#[cfg(test)]
mod tests;
