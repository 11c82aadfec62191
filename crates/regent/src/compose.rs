//! Wires policy, ledger, state, tools, skills and sandbox into a kernel. The only place that does.

pub(crate) mod generated;
mod index;
pub(crate) mod ledger;
mod restoring;
pub(crate) mod skills;
pub(crate) mod tasks;

use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use regent_control as control;
use regent_egress::{Broker, Network};
use regent_kernel::{
    Catalogue, Executor, Executors, Host, Kernel, Models, Parts, Policy, UNIDENTIFIED, Workspace, tier,
};
use regent_ledger::{Kind as EntryKind, Reader};
use regent_models::Hub;
use regent_policy::{Layer, LoadError, Source, Tallied, Tally};
#[cfg(all(feature = "microvm", target_arch = "x86_64"))]
use regent_sandbox::microvm::{self, MicrovmTier};
#[cfg(feature = "wasm")]
use regent_sandbox::wasm::{WasmConfig, WasmTier};
use regent_sandbox::{Explained, Finding, Floor, ProcessTier, SandboxError, Spec};
use regent_skills::{Guarded, Skills};
use regent_store::{self as store, MemoryState, SqliteState};
use regent_tools::generated::{Checking, Generated};
use regent_tools::{HostTool, HostTools};

use crate::bundles;
use crate::chores::{self, Eraser};
use crate::codes;
use crate::context::Context;
use crate::failure::{Excerpt, Failure, Mark};
use crate::judge::{Host as Performer, Judge};
use crate::manifests;
use crate::paths::{Paths, Project};
use crate::reload::{Reloading, Seen};
use crate::secrets;
use crate::state::Sealed;
use crate::trust::{self, Trust};
use crate::user_namespace;
use crate::way_out::WayOut;
use restoring::Restoring;

pub(crate) use ledger::{ledger_key, payload_key};

/// Entries that `auto` remembers outcomes from.
const RECALLED_MAX: usize = 1_000;

/// A kernel that is up, with its control socket.
#[derive(Debug)]
pub(crate) struct Running {
    /// What makes system calls: this is what components get.
    pub(crate) kernel: Kernel,
    /// The authority behind it. It stays here and with the commands that a person gave.
    pub(crate) host: Host,
    /// The project's skills.
    pub(crate) skills: Arc<Skills>,
    /// The models that are set up.
    pub(crate) hub: Arc<Hub>,
    listening: control::Listening,
    reloading: Reloading,
    state: Arc<SqliteState>,
}

impl Running {
    /// Brings a kernel up in the project that the command was given in. The folder must be trusted.
    pub(crate) async fn boot(context: &Context) -> Result<Self, Failure> {
        let project = context.project()?;
        Trust::demand(&context.paths, &project)?;
        // Looked at before it is read: a change in between is a change.
        let seen = Seen::of(&context.paths, &project);
        let policy = policy(&context.paths, Some(&project))?;
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
        let catalogue = Catalogue::default();
        regent_tools::register(&catalogue).map_err(|error| {
            Failure::new(codes::INTERNAL, format!("a built-in tool is not usable: {error}"))
        })?;
        let skills = Arc::new(skills::open(context, project)?);
        skills::admit(context, &catalogue, &skills)?;
        let generated = generated::open(context, project, &skills);
        generated::admit(context, &catalogue, generated.as_ref())?;
        let workspace = Workspace::with_own(&project.root, own).map_err(|error| {
            Failure::new(codes::IO, format!("can't enter `{}`: {error}", project.root.display()))
        })?;
        let state = Arc::new(crate::state::open(&context.paths)?);
        let vault = secrets::vault(context)?;
        let hub = Arc::new(models(context)?);
        let shared = Arc::clone(&state) as Arc<dyn store::State>;
        let ledger = ledger::ledger(context, project, &vault)?;
        let mut chores = chores::tools(Eraser { ledger: ledger.clone(), clock: Arc::clone(&context.clock) });
        chores.push(Arc::new(Restoring(tasks::snapshots_folder(context, project))));
        chores::admit(&catalogue, &chores)?;
        let parts = Parts {
            policy,
            ledger,
            executors: executors(context, &hub, (&skills, generated), chores),
            catalogue,
            workspace,
            state: Arc::new(Sealed::new(shared, Arc::clone(&vault), context.settings.encrypts_payloads())),
            secrets: vault,
            clock: Arc::clone(&context.clock),
            sponsor: operator_name(),
            session: session_word()?,
        };
        let host = Host::boot(parts).await?;
        tell_in_doubt(context, &host);
        recall(&hub, &host);
        let served = control::Served {
            kernel: host.kernel(),
            operator: host.operator(),
            workspace: host.workspace().root().to_owned(),
        };
        let listening = control::listen(served, &context.paths.runtime).await.map_err(|error| {
            Failure::new(codes::IO, format!("the control socket can't be opened: {error}"))
        })?;
        Ok(Self {
            kernel: host.kernel(),
            host,
            skills,
            hub,
            listening,
            reloading: Reloading::default(),
            state,
        })
    }

    /// Takes the kernel down: running calls end in their outcomes, and the ledger is closed. If that fails, so does the command: what
    /// it did may not be recorded.
    pub(crate) async fn close<T>(self, context: &Context, result: Result<T, Failure>) -> Result<T, Failure> {
        drop(self.reloading);
        drop(self.listening);
        let closed = self.host.shutdown().await;
        keep_tally(context, &self.state);
        match (result, closed) {
            (Ok(_), Err(fault)) => {
                context
                    .screen
                    .say("regent: the command came to its end, but the kernel did not close cleanly\n");
                Err(fault.into())
            }
            (result, _) => result,
        }
    }
}

/// Calls that a crash cut off: whether they took effect only a person can find out.
fn tell_in_doubt(context: &Context, host: &Host) {
    for one in host.in_doubt().iter().filter(|one| !one.idempotent) {
        context.screen.say(&format!(
            "regent: an earlier run ended in the middle of {}: it may or may not have happened; `regent audit show {}/{}` shows it\n",
            crate::term::inline(one.tool.as_ref().unwrap_or(&one.op)), one.lane, one.seq
        ));
    }
}

/// A kernel for calls that are performed elsewhere: no tools of ours, the same policy, a ledger. In a trusted project it is the project's;
/// in a folder that was never trusted one in the user's state folder, judged by the user's policy, or by the default one where there is none
/// yet. A project that changed since it was trusted is refused: its policy must not be left out.
pub(crate) async fn judge(context: &Context) -> Result<(Host, Judge), Failure> {
    let performer = Arc::new(Performer::default());
    let executors = Executors {
        elsewhere: Some(Arc::clone(&performer) as Arc<dyn Executor<tier::Host>>),
        ..Executors::new(Arc::clone(&performer) as Arc<dyn Executor<tier::Host>>)
    };
    // What it asks is for the host's person, who is told at once: nobody else should find it.
    let state = Arc::new(MemoryState::default());
    let host = standalone(context, executors, Catalogue::default(), state).await?;
    let judge = Judge::new(host.kernel(), host.operator(), performer);
    Ok((host, judge))
}

/// A kernel for what a person does outside of projects too, with these tools and no others.
pub(crate) async fn for_chores(context: &Context, tools: Vec<Arc<dyn HostTool>>) -> Result<Host, Failure> {
    context.paths.make()?;
    let catalogue = Catalogue::default();
    chores::admit(&catalogue, &tools)?;
    let network = Network { allow_private: context.settings.allow_private(), ..Network::default() };
    let host = HostTools::new(Broker::new(network, &context.paths.runtime));
    let executors = Executors::new(Arc::new(tools.into_iter().fold(host, HostTools::with_shared)));
    let state = SqliteState::open(&context.paths.state_db()).map_err(|error| {
        Failure::new(codes::STATE_UNUSABLE, format!("`{}`: {error}", context.paths.state_db().display()))
            .help("`regent doctor` checks it")
    })?;
    standalone(context, executors, catalogue, Arc::new(state)).await
}

/// A kernel with the ledger of the project, if it is trusted, or with the user's own.
async fn standalone(
    context: &Context,
    executors: Executors,
    catalogue: Catalogue,
    state: Arc<dyn store::State>,
) -> Result<Host, Failure> {
    context.paths.make()?;
    let trusted = Trust::of_judged(&context.paths, &context.cwd)?;
    let own = [context.paths.policy(), context.paths.manifest(), context.paths.bundle()];
    let user = if own.iter().any(|path| path.exists()) {
        own_policies(&context.paths)?
    } else {
        let source = Source::new("the default policy", Layer::User);
        regent_policy::load(regent_policy::DEFAULT_POLICY, &source).map_err(|error| {
            Failure::new(codes::INTERNAL, format!("the default policy is not usable: {error}"))
        })?
    };
    let policy = match &trusted {
        Some(project) => Policy::layered(user, project_policies(project)?),
        None => user,
    };
    let project = match trusted {
        Some(project) => project,
        None => {
            let own = context.paths.own_ledger();
            crate::paths::make_private(&own)?;
            Project::at(&own)?
        }
    };
    let vault = secrets::vault(context)?;
    let own = context.paths.demand_apart(&project)?;
    let workspace = Workspace::with_own(&project.root, own).map_err(|error| {
        Failure::new(codes::IO, format!("can't enter `{}`: {error}", project.root.display()))
    })?;
    let parts = Parts {
        policy,
        ledger: ledger::ledger(context, &project, &vault)?,
        executors,
        catalogue,
        workspace,
        state,
        secrets: vault,
        clock: Arc::clone(&context.clock),
        sponsor: operator_name(),
        session: session_word()?,
    };
    Ok(Host::boot(parts).await?)
}

/// The user's policy with the project's below it.
pub(crate) fn policy(paths: &Paths, project: Option<&Project>) -> Result<Policy, Failure> {
    let below = |user: Policy| -> Result<Policy, Failure> {
        Ok(match project {
            Some(project) => Policy::layered(user, project_policies(project)?),
            None => user,
        })
    };
    let active = below(own_policies(paths)?)?;
    let candidate = paths.candidate();
    if !candidate.is_file() {
        return Ok(active);
    }
    // A candidate that doesn't load is no reason not to work; `policy shadow` says what is wrong with it.
    let Ok(candidate) = load_policy(&candidate, &candidate.display().to_string(), Layer::User) else {
        return Ok(active);
    };
    if let Ok(mut key) = TALLY_KEY.lock() {
        *key = Some(tally_key(&candidate));
    }
    Ok(active.shadowed(below(candidate)?, Arc::clone(&TALLY)))
}

/// What a candidate would have said otherwise, in this process.
static TALLY: LazyLock<Arc<Tally>> = LazyLock::new(Arc::default);
static TALLY_KEY: Mutex<Option<String>> = Mutex::new(None);
/// Counts that nobody has asked for in so long are swept.
const TALLY_KEPT_MS: i64 = 90 * 24 * 60 * 60 * 1000;

/// Where a candidate's counts are kept.
pub(crate) fn tally_key(candidate: &Policy) -> String {
    let digest: String = candidate.digest().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("policy/shadow/{digest}")
}

/// Adds what was counted in this process to what was counted before.
fn keep_tally(context: &Context, state: &SqliteState) {
    let (counted, key) = (TALLY.read(), TALLY_KEY.lock().ok().and_then(|key| key.clone()));
    let Some(key) = key.filter(|_| counted.judged > 0) else { return };
    let kept = store::change(state, |records| {
        let before: Tallied = store::load(records, &key)?.unwrap_or_default();
        store::save(
            records,
            &key,
            &before.plus(counted),
            context.clock.now_ms().saturating_add(TALLY_KEPT_MS),
        )
    });
    if let Err(error) = kept {
        context
            .screen
            .say(&format!("regent: what the candidate policy would have said isn't counted: {error}\n"));
    }
}

/// All that is the user's: the policy, a manifest, the bundle in force, and those of tenants, each of which binds its own agents. Each
/// decides, and the strictest answer holds.
pub(crate) fn own_policies(paths: &Paths) -> Result<Policy, Failure> {
    let mut all: Vec<Policy> = Vec::new();
    let own = [paths.policy(), paths.manifest()].into_iter().filter(|path| path.exists());
    for path in own.chain(paths.tenants()) {
        all.push(load_policy(&path, &path.display().to_string(), Layer::User)?);
    }
    if let Some(bundle) = bundles::in_force(paths)? {
        all.extend(bundle.policies()?);
    }
    // What binds a tenant's agents alone is no policy for the rest.
    if ![paths.policy(), paths.manifest(), paths.bundle()].iter().any(|path| path.exists()) {
        return Err(no_policy());
    }
    let mut all = all.into_iter();
    let first = all.next().ok_or_else(no_policy)?;
    Ok(all.fold(first, |so_far, one| Policy::layered(so_far, Some(one))))
}

fn no_policy() -> Failure {
    Failure::new(codes::POLICY_NONE, "you have no policy yet, and no policy means deny")
        .help("run `regent init`")
}

/// The project's policies, put together; none if it has none.
pub(crate) fn project_policies(project: &Project) -> Result<Option<Policy>, Failure> {
    let mut all: Option<Policy> = None;
    for path in project.policies() {
        let one = load_policy(&path, &project.short(&path), Layer::Project)?;
        all = Some(match all {
            Some(others) => Policy::layered(others, Some(one)),
            None => one,
        });
    }
    Ok(all)
}

/// Loads one policy file; its mistakes come with line and column.
pub(crate) fn load_policy(path: &Path, name: &str, layer: Layer) -> Result<Policy, Failure> {
    let text = trust::read_control_file(path)?;
    let source = Source::new(name, layer).beside(manifests::beside(path, &text)?);
    regent_policy::load(&text, &source).map_err(|error| invalid_policy(name, text, &error))
}

/// A policy's mistakes, with the lines they are in.
pub(crate) fn invalid_policy(name: &str, text: String, error: &LoadError) -> Failure {
    let marks = error.findings.iter().map(|finding| Mark {
        line: usize::try_from(finding.line).unwrap_or(usize::MAX),
        column: usize::try_from(finding.column).unwrap_or(usize::MAX),
        offset: finding.span.start,
        length: finding.span.end.saturating_sub(finding.span.start),
        message: finding.message.clone(),
        help: finding.help.clone(),
    });
    let marks: Vec<Mark> = marks.collect();
    let message = match marks.as_slice() {
        [one] => format!(
            "`{name}` is not a usable policy: line {}, column {}: {}",
            one.line, one.column, one.message
        ),
        many => format!("`{name}` is not a usable policy: {} mistakes", many.len()),
    };
    Failure::new(codes::POLICY_INVALID, message).excerpt(Excerpt { name: name.to_owned(), text, marks })
}

fn executors(
    context: &Context,
    hub: &Arc<Hub>,
    (skills, generated): (&Arc<Skills>, Option<Arc<Generated>>),
    chores: Vec<Arc<dyn HostTool>>,
) -> Executors {
    let network = Network { allow_private: context.settings.allow_private(), ..Network::default() };
    let broker = Broker::new(network, &context.paths.runtime);
    let process = ProcessTier::new(floor(context))
        .with_memory(context.settings.memory_floor())
        .with_outlet(Arc::new(WayOut(broker.clone())));
    let added = regent_skills::host_tools(skills)
        .into_iter()
        .chain(generated.iter().flat_map(regent_tools::generated::host_tools))
        .chain(chores);
    let host = added.fold(HostTools::new(broker), HostTools::with_shared);
    Executors {
        process: Some(Arc::new(Guarded::new(process, Arc::clone(skills)))),
        wasm: generated.map(|generated| Arc::new(Checking(generated)) as Arc<dyn Executor<tier::Wasm>>),
        #[cfg(all(feature = "microvm", target_arch = "x86_64"))]
        microvm: microvm_tier(skills),
        models: (!hub.is_empty()).then(|| Arc::clone(hub) as Arc<dyn Models>),
        ..Executors::new(Arc::new(host))
    }
}

/// The WASM tier. Whoever has tools for it installs them there; until then it costs nothing.
#[cfg(feature = "wasm")]
fn wasm_tier(context: &Context) -> Arc<WasmTier> {
    Arc::new(WasmTier::new(WasmConfig { cache: Some(context.paths.wasm_cache()), ..WasmConfig::default() }))
}

/// The microVM tier, where there is a hypervisor. Whether it works is tried with the first guest, which is refused if not.
#[cfg(all(feature = "microvm", target_arch = "x86_64"))]
fn microvm_tier(skills: &Arc<Skills>) -> Option<Arc<dyn Executor<tier::Microvm>>> {
    let guarded = || Guarded::new(MicrovmTier::new(), Arc::clone(skills));
    microvm::is_offered().then(|| Arc::new(guarded()) as Arc<dyn Executor<tier::Microvm>>)
}

/// What was found about the tiers besides the process tier, by trying them.
pub(crate) async fn other_tiers() -> Vec<Finding> {
    vec![
        #[cfg(feature = "wasm")]
        regent_sandbox::wasm::finding().await,
        #[cfg(all(feature = "microvm", target_arch = "x86_64"))]
        microvm::finding(),
    ]
}

/// What came of the latest calls to models, so that `auto` chooses with that in mind and nobody sends again what a provider refuses.
/// Where there is nothing to learn nothing is read, and a ledger that can't be read now says so to whoever needs it.
fn recall(hub: &Hub, host: &Host) {
    let set_up = hub.list();
    if set_up.len() < 2 && set_up.iter().all(|one| one.remote.is_none()) {
        return;
    }
    learn(hub, &host.records().reader());
}

/// The same from a project's ledger, without a kernel.
pub(crate) fn recall_from(hub: &Hub, project: &Project) {
    learn(hub, &Reader::new(&project.audit()));
}

fn learn(hub: &Hub, reader: &Reader) {
    let entries = reader.tail(RECALLED_MAX).unwrap_or_default();
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Outcome) {
        hub.learn_from(&entry.body);
    }
}

/// The models that the user has set up or pulled.
pub(crate) fn models(context: &Context) -> Result<Hub, Failure> {
    let mut settings = context.settings.models().clone();
    settings.weights = Some(context.paths.weights());
    Hub::from_settings(settings, Arc::clone(&context.clock)).map_err(|error| {
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

/// The person that this process runs for, as the system knows them: the environment could say anything.
pub(crate) fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid-{uid}"))
}

/// The same with the number that the system knows them by: what approvals, erasures and all other entries name. In a user namespace
/// the number is whatever its maker chose, so everybody there has one name, which counts for nothing where several people have to agree.
pub(crate) fn operator_name() -> String {
    if !user_namespace::is_first() {
        return UNIDENTIFIED.to_owned();
    }
    format!("{} (uid {})", user_name(), rustix::process::getuid().as_raw())
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
