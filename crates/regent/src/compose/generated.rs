//! The tools that agents have written, and the tier that runs them.

use std::sync::Arc;

use regent_kernel::Catalogue;
#[cfg(feature = "wasm")]
use regent_kernel::{BoxFuture, Digest, ExecuteError, Executor, Permit, RawOutput, tier};
#[cfg(feature = "wasm")]
use regent_sandbox::wasm::WasmTier;
#[cfg(feature = "wasm")]
use regent_skills::Guarded;
use regent_skills::Skills;
use regent_tools::generated::Generated;
#[cfg(feature = "wasm")]
use regent_tools::generated::ScriptTier;

use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::paths::Project;
use crate::term;

/// The generated tools of a project, before the tier that runs them; none where there is no such tier.
#[cfg(feature = "wasm")]
pub(crate) fn open(context: &Context, project: &Project, skills: &Arc<Skills>) -> Option<Arc<Generated>> {
    let pins = context.paths.generated_pins(&project.root);
    let tier = super::wasm_tier(context);
    let guarded = Guarded::new(Arc::clone(&tier), Arc::clone(skills));
    Some(Arc::new(Generated::new(
        project.folder().join("tools"),
        pins,
        Arc::new(Components { tier, guarded }),
    )))
}

#[cfg(not(feature = "wasm"))]
pub(crate) fn open(_context: &Context, _project: &Project, _skills: &Arc<Skills>) -> Option<Arc<Generated>> {
    None
}

/// The tools that make tools, and those that were made. One that isn't what was agreed to is left out, loudly.
pub(super) fn admit(
    context: &Context,
    catalogue: &Catalogue,
    generated: Option<&Arc<Generated>>,
) -> Result<(), Failure> {
    let Some(generated) = generated else { return Ok(()) };
    for tool in regent_tools::generated::host_tools(generated) {
        let fail =
            |error| Failure::new(codes::INTERNAL, format!("a tool that makes tools is not usable: {error}"));
        catalogue.admit(tool.spec()).map_err(fail)?;
    }
    for (name, error) in generated.admit_all(catalogue) {
        let why = format!("{error}; `regent tool show {name}` says more");
        context.screen.say(&format!("regent: {}\n", term::inline(&why)));
    }
    Ok(())
}

/// The WASM tier with what looks at skills before they run; scripts are installed in the same tier.
#[cfg(feature = "wasm")]
#[derive(Debug)]
struct Components {
    tier: Arc<WasmTier>,
    guarded: Guarded<Arc<WasmTier>>,
}

#[cfg(feature = "wasm")]
impl Executor<tier::Wasm> for Components {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Wasm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        self.guarded.execute(permit)
    }
}

#[cfg(feature = "wasm")]
impl ScriptTier for Components {
    fn install_script(
        &self,
        tool: &str,
        interpreter: &[u8],
        digest: Digest,
        source: String,
    ) -> Result<(), String> {
        self.tier.install_script(tool, interpreter, digest, source).map_err(|error| error.to_string())
    }

    fn remove_script(&self, tool: &str) {
        self.tier.remove(tool);
    }
}
