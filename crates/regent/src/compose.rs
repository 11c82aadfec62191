//! Wires policy, ledger, state, tools, skills and sandbox into a kernel. The only place that does.

pub(crate) mod generated;
pub(crate) mod index;
pub(crate) mod instructions;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod policies;
mod restoring;
pub(crate) mod skills;
pub(crate) mod tasks;

use std::sync::Arc;

use regent_control as control;
use regent_egress::{Broker, Network};
use regent_kernel::{
    Catalogue, Driver, Executor, Executors, Host, Kernel, Models, Parts, Policy, Principal, TaskOwner,
    ToolSet, UNIDENTIFIED, Workspace, tier,
};
use regent_ledger::Reader;
use regent_lookup::Span;
#[cfg(all(feature = "microvm", target_arch = "x86_64"))]
use regent_microvm::MicrovmTier;
use regent_models::{Hub, OpenWeights, Transport};
use regent_protocols::judge::{self, Labels, Memory, Performer, Planner};
use regent_protocols::labels::known::KnownTools;
use regent_protocols::labels::stores::Stores;
#[cfg(feature = "wasm")]
use regent_sandbox::wasm::{WasmConfig, WasmTier};
use regent_sandbox::{Explained, Finding, Floor, ProcessTier, SandboxError, Spec};
use regent_skills::{Severity, SkillTiers, SkillTools, Skills};
use regent_store::State;
use regent_tools::{EXTRACT, HostTool, extract, tool_set};
use regent_vault::Vault;
use regent_wire::body::EntryBody;

use crate::caller;
use crate::calls;
use crate::chores::{self, Eraser};
use crate::codes;
use crate::context::Context;
use crate::egress_proxy::BrokerProxy;
use crate::failure::Failure;
use crate::labels;
use crate::past;
use crate::paths::Project;
use crate::reload::{PolicyStamps, Reloading};
use crate::secrets;
use crate::state::{Apart, Sealed};
use crate::trust::Trust;
use crate::user_namespace;
use restoring::Restoring;

pub(crate) use ledger::{LedgerStart, ledger_key, payload_key};
pub(crate) use policies::{invalid_policy, load_policy, own_policies, policy, project_policies, tally_key};

/// Calls that `auto` remembers outcomes of.
const RECALLED_MAX: u32 = 300;

/// A kernel that is up, with its control socket.
#[derive(Debug)]
pub(crate) struct BootedKernel {
    /// What makes system calls: this is what components get.
    pub(crate) kernel: Kernel,
    /// The authority behind it. It stays here and with the commands that a user typed.
    pub(crate) host: Host,
    /// The project's skills.
    pub(crate) skills: Arc<Skills>,
    /// The models that are set up.
    pub(crate) hub: Arc<Hub>,
    listening: control::Listening,
    reloading: Reloading,
    state: Arc<dyn State>,
    caller: Principal,
}

impl BootedKernel {
    /// Brings a kernel up in the project that the command was given in. The folder must be trusted.
    pub(crate) async fn boot(context: &Context) -> Result<Self, Failure> {
        let project = context.project()?;
        // Looked at before it is read: a change in between is a change.
        let seen = PolicyStamps::capture(&context.paths, &project);
        let controls = Trust::demand(&context.paths, &project)?;
        context.demand_settings(&controls)?;
        let policy = policy(&context.paths, Some(&controls))?;
        let mut running = Self::boot_with(context, &project, policy).await?;
        running.reloading = Reloading::start(context, &project, &running.host, seen);
        Ok(running)
    }

    /// The same with a policy that is loaded already.
    pub(crate) async fn boot_with(
        context: &Context,
        project: &Project,
        policy: Policy,
    ) -> Result<Self, Failure> {
        let own = context.paths.demand_apart(project)?;
        context.paths.make()?;
        let tiers = ToolTiers::new(context);
        let catalogue = Catalogue::default();
        admit(&catalogue, regent_tools::built_in(&tiers.broker, &tiers.programs()))?;
        let skills = Arc::new(skills::open(context, project)?);
        skills::admit(context, &catalogue, &tiers.skills(&skills))?;
        generated::admit(context, &catalogue, generated::open(context, project, &tiers))?;
        let workspace = Workspace::with_own(&project.root, own).map_err(|error| {
            Failure::new(codes::IO, format!("can't enter `{}`: {error}", project.root.display()))
        })?;
        let state = crate::state::open(context).await?;
        let vault = secrets::vault(context)?;
        let hub = Arc::new(models(context)?);
        let ledger = ledger::ledger(context, project, &vault, LedgerStart::Behind)?;
        let mut chores = chores::tools(Eraser { ledger: ledger.clone(), clock: Arc::clone(&context.clock) });
        chores.push(Arc::new(Restoring(tasks::snapshots_folder(context, project))));
        admit(&catalogue, tool_set("operator", chores))?;
        let parts = Parts {
            policy,
            ledger,
            executors: Executors { models: asked(&hub), ..Executors::default() },
            catalogue,
            workspace,
            state: shared(context, Arc::clone(&state), &vault),
            secrets: vault,
            clock: Arc::clone(&context.clock),
            sponsor: person_name(),
            session: session_word()?,
        };
        let host = Host::boot(parts).await?;
        let caller = match caller::authenticate(context, &host).await {
            Ok(caller) => caller,
            Err(refused) => return calls::settled(Err(refused), host.shutdown().await),
        };
        tell_in_doubt(context, &host);
        recall(context, &hub, project);
        let listening = control(context, &host).await?;
        Ok(Self {
            kernel: host.kernel(),
            host,
            skills,
            hub,
            listening,
            reloading: Reloading::default(),
            state,
            caller,
        })
    }

    /// Who gave the command.
    pub(crate) fn caller(&self) -> Principal {
        self.caller.clone()
    }

    /// The same as the owner of tasks.
    pub(crate) fn task_owner(&self) -> TaskOwner {
        TaskOwner { principal: self.caller(), records: self.host.records() }
    }

    /// Takes the kernel down: running calls end in their outcomes, and the ledger is closed.
    pub(crate) async fn close<T>(self, context: &Context, result: Result<T, Failure>) -> Result<T, Failure> {
        drop(self.reloading);
        drop(self.listening);
        let closed = self.host.shutdown().await;
        policies::keep_tallies(context, &self.host, &*self.state).await;
        calls::settled(result, closed)
    }
}

/// Calls that a crash cut off: only a reviewer can find out whether they took effect.
fn tell_in_doubt(context: &Context, host: &Host) {
    for one in host.in_doubt().iter().filter(|one| !one.idempotent) {
        context.screen.say(&format!(
            "regent: an earlier run was interrupted during {}, which may or may not have happened; `regent audit show {}/{}` shows it\n",
            crate::term::inline(one.tool.as_ref().unwrap_or(&one.op)), one.lane, one.seq
        ));
    }
}

/// A kernel for calls that are performed elsewhere: no tools of ours, the same policy, a ledger. In a trusted project it is the project's;
/// in a folder that was never trusted one in the user's state folder, judged by the user's policy, or by the default one where there is none
/// yet. A project that changed since it was trusted is refused: its policy must not be left out.
pub(crate) async fn judge(
    context: &Context,
    planner: Planner,
    asked: QuestionRecipient,
) -> Result<(Host, Arc<judge::Parts>), Failure> {
    let performer = Arc::new(Performer::default());
    let elsewhere = Some(Arc::clone(&performer) as Arc<dyn Executor<tier::Host>>);
    context.paths.make()?;
    let catalogue = Catalogue::default();
    let executors = match planner.model() {
        None => Executors { elsewhere, models: None },
        Some(model) => {
            let hub = Arc::new(models(context)?);
            hub.check_name(model).map_err(Failure::of_reason)?;
            admit(&catalogue, tool_set("built-in", [Arc::new(extract(model)) as Arc<dyn HostTool>]))?;
            Executors { elsewhere, models: Some(hub as Arc<dyn Models>) }
        }
    };
    let lasting = crate::state::open(context).await?;
    let trusted = Trust::of_judged(&context.paths, &context.cwd)?;
    let corrections = labels::load(&context.paths, trusted.as_ref())?;
    let shared_labels = || Arc::clone(&lasting);
    let known = KnownTools::new(shared_labels(), corrections, Arc::clone(&context.clock));
    let labels = Labels { known, stores: Stores::new(shared_labels()) };
    let vault = secrets::vault(context)?;
    let shared = shared(context, lasting, &vault);
    let state = |policy: &Policy| match asked {
        QuestionRecipient::Host => Arc::new(Apart::new(shared, policy)) as Arc<dyn State>,
        QuestionRecipient::Here => shared,
    };
    let host = standalone(context, executors, catalogue, (state, vault), LedgerStart::Behind).await?;
    let memory = Memory::new(context.paths.state.clone());
    let parts = judge::Parts {
        kernel: host.kernel(),
        performer,
        planner,
        memory,
        labels,
        scan: scan_description,
        extract: EXTRACT,
    };
    Ok((host, Arc::new(parts)))
}

/// To whom the judge's questions are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionRecipient {
    /// The host's person, whom it tells at once. The people here get them too if a rule needs several people.
    Host,
    /// The people here, by `regent approve`.
    Here,
}

/// The control socket of a kernel that isn't a project's.
pub(crate) async fn control(context: &Context, host: &Host) -> Result<control::Listening, Failure> {
    let served = control::Served {
        kernel: host.kernel(),
        authenticator: host.authenticator(),
        workspace: host.workspace().root().to_owned(),
    };
    control::listen(served, &context.paths.runtime)
        .await
        .map_err(|error| Failure::new(codes::IO, format!("the control socket can't be opened: {error}")))
}

/// What the scanner of skills finds in the description of a tool.
fn scan_description(name: &str, description: &str) -> Vec<String> {
    let found = regent_skills::scan_text(name, description.as_bytes()).into_iter();
    found.filter(|one| one.severity > Severity::Low).map(|one| one.message).collect()
}

/// A kernel for what a user does outside of projects too, with these tools and no others.
pub(crate) async fn for_chores(
    context: &Context,
    tools: Vec<Arc<dyn HostTool>>,
    start: LedgerStart,
) -> Result<Host, Failure> {
    context.paths.make()?;
    let catalogue = Catalogue::default();
    admit(&catalogue, tool_set("operator", tools))?;
    let executors = Executors::default();
    let vault = secrets::vault(context)?;
    let state = shared(context, crate::state::open(context).await?, &vault);
    standalone(context, executors, catalogue, (|_: &Policy| state, vault), start).await
}

/// Puts a set of Regent's own tools in force.
fn admit(catalogue: &Catalogue, tools: ToolSet) -> Result<(), Failure> {
    let fail = |error| Failure::new(codes::INTERNAL, format!("a built-in tool is invalid: {error}"));
    catalogue.admit_own(tools).map_err(fail)
}

/// The models, where some are set up.
fn asked(hub: &Arc<Hub>) -> Option<Arc<dyn Models>> {
    (!hub.is_empty()).then(|| Arc::clone(hub) as Arc<dyn Models>)
}

/// The database as the kernel sees it: with its questions encrypted where payloads are.
fn shared(context: &Context, state: Arc<dyn State>, vault: &Arc<Vault>) -> Arc<dyn State> {
    Arc::new(Sealed::new(state, Arc::clone(vault), context.settings.encrypts_payloads()))
}

/// A kernel with the ledger of the project, if it is trusted, or with the user's own.
async fn standalone(
    context: &Context,
    executors: Executors,
    catalogue: Catalogue,
    (state, vault): (impl FnOnce(&Policy) -> Arc<dyn State>, Arc<Vault>),
    start: LedgerStart,
) -> Result<Host, Failure> {
    context.paths.make()?;
    let trusted = Trust::of_judged(&context.paths, &context.cwd)?;
    let user = policies::own_or_default(&context.paths)?;
    let policy = match &trusted {
        Some(controls) => {
            context.demand_settings(controls)?;
            Policy::layered(user, project_policies(controls)?)
        }
        None => user,
    };
    let (project, root) = match trusted {
        Some(controls) => (controls.project().clone(), controls.project().root.clone()),
        None => {
            let own = context.paths.own_ledger();
            crate::paths::make_private(&own)?;
            let own = Project::open(&own)?;
            let root = context.paths.root_outside_projects(&context.cwd, &own);
            (own, root)
        }
    };
    let own = context.paths.demand_apart(&project)?;
    let workspace = Workspace::with_own(&root, own)
        .map_err(|error| Failure::new(codes::IO, format!("can't enter `{}`: {error}", root.display())))?;
    let parts = Parts {
        state: state(&policy),
        policy,
        ledger: ledger::ledger(context, &project, &vault, start)?,
        executors,
        catalogue,
        workspace,
        secrets: vault,
        clock: Arc::clone(&context.clock),
        sponsor: person_name(),
        session: session_word()?,
    };
    Ok(Host::boot(parts).await?)
}

/// What runs tools that aren't functions of ours, and what they reach the network through.
pub(crate) struct ToolTiers {
    broker: Broker,
    process: ProcessTier,
    #[cfg(feature = "wasm")]
    wasm: Arc<WasmTier>,
    #[cfg(all(feature = "microvm", target_arch = "x86_64"))]
    microvm: Option<Arc<MicrovmTier>>,
}

impl ToolTiers {
    /// Those of this machine. Whether each works is tried with its first call; until then it costs nothing.
    pub(crate) fn new(context: &Context) -> Self {
        let network = Network { allow_private: context.settings.allow_private(), ..Network::default() };
        let broker = Broker::new(network, &context.paths.runtime);
        let process = ProcessTier::new(floor(context))
            .with_memory(context.settings.memory_floor())
            .with_egress_proxy(Arc::new(BrokerProxy(broker.clone())));
        Self {
            broker,
            process,
            #[cfg(feature = "wasm")]
            wasm: wasm_tier(context),
            #[cfg(all(feature = "microvm", target_arch = "x86_64"))]
            microvm: regent_microvm::is_offered().then(|| Arc::new(MicrovmTier::new())),
        }
    }

    /// What runs programs.
    fn programs(&self) -> Driver {
        #[cfg(all(feature = "microvm", target_arch = "x86_64"))]
        let microvm = self.microvm.clone().map(|tier| tier as Arc<dyn Executor<tier::Microvm>>);
        #[cfg(not(all(feature = "microvm", target_arch = "x86_64")))]
        let microvm = None;
        Driver::process(Some(Arc::new(self.process.clone())), microvm)
    }

    fn skills(&self, skills: &Arc<Skills>) -> Arc<SkillTools> {
        let tiers = SkillTiers {
            process: Some(self.process.clone()),
            #[cfg(feature = "wasm")]
            wasm: Some(Arc::clone(&self.wasm)),
            #[cfg(all(feature = "microvm", target_arch = "x86_64"))]
            microvm: self.microvm.clone(),
        };
        Arc::new(SkillTools::new(Arc::clone(skills), tiers))
    }
}

/// The WASM tier. Tools install themselves there; until then it costs nothing.
#[cfg(feature = "wasm")]
fn wasm_tier(context: &Context) -> Arc<WasmTier> {
    Arc::new(WasmTier::new(WasmConfig { cache: Some(context.paths.wasm_cache()), ..WasmConfig::default() }))
}

/// What was found about the tiers besides the process tier, by trying them.
pub(crate) async fn other_tiers() -> Vec<Finding> {
    vec![
        #[cfg(feature = "wasm")]
        regent_sandbox::wasm::finding().await,
        #[cfg(all(feature = "microvm", target_arch = "x86_64"))]
        regent_microvm::finding(),
    ]
}

/// The results of the latest model calls, so that `auto` chooses with that in mind and nobody sends again what a provider refuses.
/// Where there is nothing to learn nothing is read. The lookup index finds the calls; without it nothing is learnt.
fn recall(context: &Context, hub: &Hub, project: &Project) {
    let set_up = hub.list();
    if set_up.len() >= 2 || set_up.iter().any(|one| one.remote.is_some()) {
        recall_from(context, hub, project);
    }
}

/// The same without a kernel.
pub(crate) fn recall_from(context: &Context, hub: &Hub, project: &Project) {
    let Ok(lookup) = past::refreshed_some(context, &project.audit(), index::REFRESHED_MAX) else { return };
    let reader = Reader::new(&project.audit());
    for Span { lane, first, last } in lookup.outcomes_of("model.infer", RECALLED_MAX).unwrap_or_default() {
        let Ok(piece) = reader.lane_since(lane, first) else { continue };
        let entries = piece.map_while(Result::ok).take_while(|entry| entry.seq <= last);
        for entry in entries {
            // It only helps to choose: what can't be read teaches nothing.
            if let Ok(EntryBody::Outcome(outcome)) = EntryBody::read(&entry) {
                hub.learn_from(&outcome);
            }
        }
    }
}

/// The models that the user has set up or pulled.
pub(crate) fn models(context: &Context) -> Result<Hub, Failure> {
    let mut settings = context.settings.models().clone();
    settings.weights = Some(context.paths.weights());
    settings.transport =
        Transport { roots: context.settings.authorities()?, proxy: context.settings.proxy() };
    #[cfg(feature = "local")]
    let local: Option<OpenWeights> = Some(regent_inference::open);
    #[cfg(not(feature = "local"))]
    let local: Option<OpenWeights> = None;
    Hub::from_settings(settings, local, Arc::clone(&context.clock)).map_err(|error| {
        Failure::new(codes::CONFIG_INVALID, format!("`{}`: {error}", context.paths.settings().display()))
    })
}

/// The least confinement that programs are run in.
pub(crate) fn floor(context: &Context) -> Floor {
    if context.settings.needs_namespaces() { Floor::Full } else { Floor::LandlockSeccomp }
}

/// The word that this process's calls are recorded under.
fn session_word() -> Result<String, Failure> {
    let mut bytes = [0_u8; 6];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(codes::INTERNAL, format!("no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The user of this process, as the system knows them: the environment could say anything.
pub(crate) fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id.parse() == Ok(uid)).then(|| name.to_owned())
    });
    // A name is what tells people apart, so it has no room for anything else.
    let is_plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || "._@-".contains(c));
    name.filter(|name| !name.is_empty() && is_plain(name)).unwrap_or_else(|| format!("uid-{uid}"))
}

/// The person that this process runs for: what approvals, erasures and all other entries name. In a user namespace the number of a user is
/// whatever its maker chose, so everybody there has one name, which counts for nothing where several people have to agree.
pub(crate) fn person_name() -> String {
    if user_namespace::is_first() { user_name() } else { UNIDENTIFIED.to_owned() }
}

/// An error with what caused it, in one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// What a program of this project would see and be held to.
pub(crate) fn sandbox_view(context: &Context) -> Result<Explained, Failure> {
    let root = context.project().map_or_else(|_no_project| context.cwd.clone(), |project| project.root);
    let spec = Spec { argv: vec!["true".into()], ..ProcessTier::new(floor(context)).spec(&root) };
    regent_sandbox::explain(&spec).map_err(|error| {
        let fix = if let SandboxError::Unavailable { fix, .. } = &error { fix.clone() } else { None };
        let help = fix.unwrap_or_else(|| "`regent doctor` says what this machine lacks".to_owned());
        Failure::new(codes::SANDBOX_UNAVAILABLE, error.to_string()).help(help)
    })
}
