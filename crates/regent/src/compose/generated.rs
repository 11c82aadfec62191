//! The tools that agents have written, and the tier that runs them.

use std::sync::Arc;

use regent_kernel::Catalogue;
#[cfg(feature = "wasm")]
use regent_kernel::{Digest, Executor, tier};
#[cfg(feature = "wasm")]
use regent_sandbox::wasm::WasmTier;
use regent_tools::generated::Generated;
#[cfg(feature = "wasm")]
use regent_tools::generated::ScriptTier;
use regent_tools::tool_set;

use super::ToolTiers;
use crate::context::Context;
use crate::failure::Failure;
use crate::paths::Project;
use crate::term;

/// The generated tools of a project; none where there is no tier that runs them.
#[cfg(feature = "wasm")]
pub(crate) fn open(context: &Context, project: &Project, tiers: &ToolTiers) -> Option<Arc<Generated>> {
    let pins = context.paths.generated_pins(&project.root);
    let scripts = Arc::new(Scripts(Arc::clone(&tiers.wasm)));
    Some(Arc::new(Generated::new(project.folder().join("tools"), pins, scripts)))
}

#[cfg(not(feature = "wasm"))]
pub(crate) fn open(_context: &Context, _project: &Project, _tiers: &ToolTiers) -> Option<Arc<Generated>> {
    None
}

/// The tools that make tools, and those that were made. One that isn't what was agreed to is left out, loudly.
pub(super) fn admit(
    context: &Context,
    catalogue: &Catalogue,
    generated: Option<Arc<Generated>>,
) -> Result<(), Failure> {
    let Some(generated) = generated else { return Ok(()) };
    super::admit(catalogue, tool_set("making", regent_tools::generated::host_tools(&generated)))?;
    for (name, error) in generated.admit_all(catalogue) {
        let why = format!("{error}; for details run `regent tool show {name}`");
        context.screen.say(&format!("regent: {}\n", term::inline(&why)));
    }
    Ok(())
}

/// Scripts run in the WASM tier.
#[cfg(feature = "wasm")]
#[derive(Debug)]
struct Scripts(Arc<WasmTier>);

#[cfg(feature = "wasm")]
impl ScriptTier for Scripts {
    fn script(
        &self,
        interpreter: &[u8],
        digest: Digest,
        source: String,
    ) -> Result<Arc<dyn Executor<tier::Wasm>>, String> {
        let script = self.0.script(interpreter, digest, source).map_err(|error| error.to_string())?;
        Ok(Arc::new(script))
    }
}
