//! The generated tools of a project, before the WASM tier that runs them.

use std::sync::Arc;

use regent_kernel::{BoxFuture, Catalogue, Digest, ExecuteError, Executor, Permit, RawOutput, tier};
use regent_sandbox::wasm::WasmTier;
use regent_skills::{Guarded, Skills};
use regent_tools::generated::{Generated, ScriptTier, host_tools};

use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::paths::Project;
use crate::term;

/// The WASM tier, with skills checked before they run, and scripts installed when they are first called.
#[derive(Debug)]
struct Scripts {
    tier: Arc<WasmTier>,
    guarded: Guarded<Arc<WasmTier>>,
}

impl Executor<tier::Wasm> for Scripts {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Wasm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        self.guarded.execute(permit)
    }
}

impl ScriptTier for Scripts {
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

/// The generated tools of a project. Whoever asks has made sure that it is trusted.
pub(crate) fn open(context: &Context, project: &Project, skills: &Arc<Skills>) -> Arc<Generated> {
    let pins = context.paths.generated_pins(&project.root);
    let tier = super::wasm_tier(context);
    let guarded = Guarded::new(Arc::clone(&tier), Arc::clone(skills));
    Arc::new(Generated::new(project.folder().join("tools"), pins, Arc::new(Scripts { tier, guarded })))
}

/// The tools that make tools, and those that were made. One that isn't what was agreed to is left out, loudly.
pub(super) fn admit(
    context: &Context,
    catalogue: &Catalogue,
    generated: &Arc<Generated>,
) -> Result<(), Failure> {
    for tool in host_tools(generated) {
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
