//! What performs a tool's calls. A manifest names the kind; registration gives the driver itself, so the name of a tool decides nothing.

use std::sync::Arc;

use regent_policy::Tier;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::executor::{Executor, Foreseen};
use crate::syscall::tier;

/// What kind of driver performs a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverKind {
    /// Code of ours, in this process.
    #[default]
    Host,
    /// A program in the process sandbox. Where there is a hypervisor, policy may raise it to a guest.
    Process,
    /// A WASM component or a script in an interpreter.
    Wasm,
    /// A program that is always a guest of the hypervisor.
    Microvm,
    /// An external program that we talk to, such as an MCP server. Its output is a peer's or the web's.
    Remote,
}

impl DriverKind {
    /// The tiers at which a driver of this kind can run.
    pub(crate) fn runs_at(self, tier: Tier) -> bool {
        match self {
            // A tool that models only see needs no driver.
            Self::Host => matches!(tier, Tier::Host | Tier::Instruction),
            Self::Remote => tier == Tier::Host,
            Self::Process => matches!(tier, Tier::Process | Tier::Microvm),
            Self::Wasm => tier == Tier::Wasm,
            Self::Microvm => tier == Tier::Microvm,
        }
    }
}

/// What performs the calls of one tool: an executor for each tier that it can run at. Cloning shares them.
#[derive(Clone)]
pub struct Driver {
    kind: DriverKind,
    pub(crate) host: Option<Arc<dyn Executor<tier::Host>>>,
    pub(crate) process: Option<Arc<dyn Executor<tier::Process>>>,
    pub(crate) wasm: Option<Arc<dyn Executor<tier::Wasm>>>,
    pub(crate) microvm: Option<Arc<dyn Executor<tier::Microvm>>>,
}

impl Driver {
    /// No driver on this machine: the tool is known, and its calls are refused.
    pub fn missing(kind: DriverKind) -> Self {
        Self { kind, host: None, process: None, wasm: None, microvm: None }
    }

    /// Code of ours.
    pub fn host(executor: Arc<dyn Executor<tier::Host>>) -> Self {
        Self { host: Some(executor), ..Self::missing(DriverKind::Host) }
    }

    /// A driver for an external program.
    pub fn remote(executor: Arc<dyn Executor<tier::Host>>) -> Self {
        Self { host: Some(executor), ..Self::missing(DriverKind::Remote) }
    }

    /// Programs: in the sandbox where there is one, as guests where there is a hypervisor.
    pub fn process(
        process: Option<Arc<dyn Executor<tier::Process>>>,
        microvm: Option<Arc<dyn Executor<tier::Microvm>>>,
    ) -> Self {
        Self { process, microvm, ..Self::missing(DriverKind::Process) }
    }

    /// Components and scripts.
    pub fn wasm(executor: Arc<dyn Executor<tier::Wasm>>) -> Self {
        Self { wasm: Some(executor), ..Self::missing(DriverKind::Wasm) }
    }

    /// Guests only.
    pub fn microvm(executor: Arc<dyn Executor<tier::Microvm>>) -> Self {
        Self { microvm: Some(executor), ..Self::missing(DriverKind::Microvm) }
    }

    /// What kind it is.
    pub fn kind(&self) -> DriverKind {
        self.kind
    }

    /// Whether it can run at this tier, on this machine.
    pub(crate) fn has(&self, tier: Tier) -> bool {
        match tier {
            Tier::Host => self.host.is_some(),
            Tier::Process => self.process.is_some(),
            Tier::Wasm => self.wasm.is_some(),
            Tier::Microvm => self.microvm.is_some(),
            // Shown, never run: nothing is missing.
            Tier::Instruction => true,
        }
    }

    /// See [`Executor::foresee`].
    pub(crate) fn foresee(&self, args: &Value, before: Option<&[u8]>) -> Option<Foreseen> {
        self.host.as_ref()?.foresee(args, before)
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("kind", &self.kind).finish_non_exhaustive()
    }
}
