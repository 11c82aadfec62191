//! A complete kernel for tests: real policy, real ledger, real call path; only the tools are scripted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use regent_kernel::{
    Catalogue, Clock, Driver, DriverKind, Executor, Executors, Fault, Host, Models, Op, Parts, Principal,
    Reply, SystemClock, ToolSet, ToolSpec, Workspace, tier,
};
use regent_ledger::{Ledger, LedgerKey, Options};
use regent_policy::{Layer, Source};
use regent_store::{MemoryState, State};
use regent_wire::result::Spawned;
use serde_json::json;

use crate::drivers::{Behaviour, Drivers, spec};

/// A rule that allows everything; a kernel needs a policy.
pub const ALLOW_ALL: &str =
    "version: 1\nrules:\n  - id: everything\n    effect: allow\n    reason: this is a test\n";

/// Why a kernel could not be set up.
pub type SetupError = Box<dyn std::error::Error + Send + Sync>;

/// A kernel with its own folder, an agent, and scripted tools.
#[derive(Debug)]
pub struct TestKernel {
    /// The kernel.
    pub kernel: Host,
    /// An agent called `worker`, started by the operator.
    pub agent: Principal,
    folder: Folder,
}

#[derive(Debug)]
enum Folder {
    Own(tempfile::TempDir),
    Given(PathBuf),
}

impl Folder {
    fn path(&self) -> &Path {
        match self {
            Self::Own(folder) => folder.path(),
            Self::Given(folder) => folder,
        }
    }
}

/// The configuration of a test kernel.
#[derive(Debug)]
pub struct Builder {
    policy: String,
    drivers: Drivers,
    specs: Vec<ToolSpec>,
    given: Vec<(ToolSpec, Driver)>,
    journal: Journal,
    tiers: Tiers,
    clock: Arc<dyn Clock>,
    state: Arc<dyn State>,
    folder: Option<PathBuf>,
}

#[derive(Debug)]
enum Journal {
    Memory,
    Durable(Options),
    Given(Ledger),
}

/// The executors of a test.
#[derive(Default)]
struct Tiers {
    process: Option<Arc<dyn Executor<tier::Process>>>,
    microvm: Option<Arc<dyn Executor<tier::Microvm>>>,
    models: Option<Arc<dyn Models>>,
}

impl std::fmt::Debug for Tiers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tiers").field("process", &self.process.is_some()).finish_non_exhaustive()
    }
}

impl TestKernel {
    /// A kernel that allows everything, with its ledger in memory and the tools `noop`, `echo`, `panics` and `hangs`.
    pub fn builder() -> Builder {
        let builder = Builder {
            policy: ALLOW_ALL.to_owned(),
            drivers: Drivers::default(),
            specs: Vec::new(),
            given: Vec::new(),
            journal: Journal::Memory,
            tiers: Tiers::default(),
            clock: Arc::new(SystemClock::default()),
            state: Arc::new(MemoryState::default()),
            folder: None,
        };
        builder
            .tool("noop", Behaviour::Noop)
            .tool("echo", Behaviour::Echo)
            .tool("panics", Behaviour::Panics)
            .tool("hangs", Behaviour::Hangs)
    }

    /// The folder that the agent works in.
    pub fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    /// The path of a durable ledger.
    pub fn audit(&self) -> PathBuf {
        self.folder.path().join("audit")
    }

    /// Makes a call by the agent.
    pub async fn call(&self, op: Op) -> Result<Reply, Fault> {
        self.kernel.syscall(&self.agent, op).await
    }
}

impl Builder {
    /// Replaces the rules.
    #[must_use]
    pub fn policy(mut self, text: &str) -> Self {
        text.clone_into(&mut self.policy);
        self
    }

    /// Adds a host-tier tool that takes any arguments.
    #[must_use]
    pub fn tool(self, name: &str, behaviour: Behaviour) -> Self {
        self.tool_as(spec(name), behaviour)
    }

    /// Adds a host-tier tool with this manifest.
    #[must_use]
    pub fn tool_as(mut self, spec: ToolSpec, behaviour: Behaviour) -> Self {
        self.drivers = self.drivers.with(&spec.name, behaviour);
        self.specs.push(spec);
        self
    }

    /// Adds a tool for which the given executors supply the driver, by the kind in its manifest.
    #[must_use]
    pub fn declared(mut self, spec: ToolSpec) -> Self {
        self.specs.push(spec);
        self
    }

    /// Adds a tool with its own driver.
    #[must_use]
    pub fn driven(mut self, spec: ToolSpec, driver: Driver) -> Self {
        self.given.push((spec, driver));
        self
    }

    /// Sets the executor of the process tier.
    #[must_use]
    pub fn process(mut self, executor: Arc<dyn Executor<tier::Process>>) -> Self {
        self.tiers.process = Some(executor);
        self
    }

    /// Sets the executor of the microVM tier.
    #[must_use]
    pub fn microvm(mut self, executor: Arc<dyn Executor<tier::Microvm>>) -> Self {
        self.tiers.microvm = Some(executor);
        self
    }

    /// Sets the models.
    #[must_use]
    pub fn models(mut self, models: Arc<dyn Models>) -> Self {
        self.tiers.models = Some(models);
        self
    }

    /// Uses a ledger on disk.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.journal = Journal::Durable(Options::default());
        self
    }

    /// Uses a ledger on disk, with options.
    #[must_use]
    pub fn durable_with(mut self, options: Options) -> Self {
        self.journal = Journal::Durable(options);
        self
    }

    /// Uses an open ledger.
    #[must_use]
    pub fn ledger(mut self, ledger: Ledger) -> Self {
        self.journal = Journal::Given(ledger);
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the shared state, for kernels that follow one another.
    #[must_use]
    pub fn state(mut self, state: Arc<dyn State>) -> Self {
        self.state = state;
        self
    }

    /// Uses a folder that outlives the kernel, instead of a temporary one.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_path_buf());
        self
    }

    /// Boots the kernel and starts the agent.
    pub async fn boot(self) -> Result<TestKernel, SetupError> {
        let folder = match self.folder {
            Some(given) => Folder::Given(given),
            None => Folder::Own(tempfile::tempdir()?),
        };
        let workspace = folder.path().join("workspace");
        std::fs::create_dir_all(&workspace)?;
        let ledger = match self.journal {
            Journal::Memory => Ledger::in_memory(LedgerKey::generate()?),
            Journal::Given(ledger) => ledger,
            Journal::Durable(options) => {
                let key = LedgerKey::load_or_create(&folder.path().join("key"))?;
                Ledger::open(&folder.path().join("audit"), key, options)?
            }
        };
        let catalogue = Catalogue::default();
        catalogue.admit_own(tool_set(self.specs, self.given, self.drivers, &self.tiers))?;
        let kernel = Host::boot(Parts {
            policy: regent_policy::load(&self.policy, &Source::new("test policy", Layer::User))?,
            ledger,
            executors: Executors { models: self.tiers.models, ..Executors::default() },
            catalogue,
            workspace: Workspace::open(&workspace)?,
            state: self.state,
            secrets: Arc::new(regent_kernel::NoSecrets),
            clock: self.clock,
            sponsor: "tester".to_owned(),
            session: "test".to_owned(),
        })
        .await?;
        let agent = spawn(&kernel, "worker").await?;
        Ok(TestKernel { kernel, agent, folder })
    }
}

/// The tools of a test, each with its driver.
fn tool_set(
    specs: Vec<ToolSpec>,
    given: Vec<(ToolSpec, Driver)>,
    drivers: Drivers,
    tiers: &Tiers,
) -> ToolSet {
    let host = Driver::host(Arc::new(drivers));
    let driver = |spec: &ToolSpec| match spec.driver {
        DriverKind::Host => host.clone(),
        DriverKind::Process => Driver::process(tiers.process.clone(), tiers.microvm.clone()),
        kind @ (DriverKind::Wasm | DriverKind::Microvm | DriverKind::Remote) => Driver::missing(kind),
    };
    let declared = specs.into_iter().map(|spec| (driver(&spec), spec));
    let all = given.into_iter().chain(declared.map(|(driver, spec)| (spec, driver)));
    all.fold(ToolSet::new("built-in"), |set, (spec, driver)| set.with(spec, driver))
}

/// Starts an agent by a system call of the operator.
pub async fn spawn(kernel: &Host, name: &str) -> Result<Principal, SetupError> {
    let operator = kernel.operator();
    // As received over the wire: the kernel fills in missing fields.
    let spec = serde_json::from_value(json!({"name": name, "roles": []}))?;
    let Reply::Done(outcome) = kernel.syscall(&operator, Op::Spawn(spec)).await? else {
        return Err("the policy doesn't let the operator start an agent".into());
    };
    let born: Spawned = outcome.read()?;
    let agent = kernel.principal_of(&operator, &born.agent);
    agent.ok_or_else(|| "the agent has no principal".into())
}
