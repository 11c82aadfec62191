//! The drivers of skills. Each use reads and compares every file again, and runs the compared bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use regent_guard::{Kinds, kinds_of};
#[cfg(feature = "wasm")]
use regent_kernel::Digest;
use regent_kernel::{
    BoxFuture, Catalogue, Driver, DriverKind, ExecuteError, Executor, Permit, RawOutput, ToolSet, Workspace,
    tier,
};
#[cfg(all(feature = "microvm", target_arch = "x86_64"))]
use regent_microvm::{MicrovmTier, ProvidedProgram};
#[cfg(feature = "wasm")]
use regent_sandbox::wasm::{WasmError, WasmTier, WasmTool};
use regent_sandbox::{Bind, ProcessTier, Spec, Stdin, WorkspaceMount};
use serde::Deserialize;
use serde_json::Value;

use crate::error::SkillError;
use crate::permission::{Permission, Permissions};
use crate::skill::Runtime;
use crate::skills::{Checked, Skills};

/// The tiers that run skills. A skill whose tier is missing is listed but can't be called.
#[derive(Debug, Clone, Default)]
pub struct SkillTiers {
    /// For programs.
    pub process: Option<ProcessTier>,
    /// For components.
    #[cfg(feature = "wasm")]
    pub wasm: Option<Arc<WasmTier>>,
    /// For programs in a microVM.
    #[cfg(all(feature = "microvm", target_arch = "x86_64"))]
    pub microvm: Option<Arc<MicrovmTier>>,
}

/// A project's skills as tools.
#[derive(Debug, Clone)]
pub struct SkillTools {
    skills: Arc<Skills>,
    tiers: SkillTiers,
}

impl SkillTools {
    /// These skills, run in these tiers.
    pub fn new(skills: Arc<Skills>, tiers: SkillTiers) -> Self {
        Self { skills, tiers }
    }

    /// The skills themselves.
    pub fn skills(&self) -> &Arc<Skills> {
        &self.skills
    }

    /// Admits the tool of a skill, if the skill has a program and matches the approved digest. Otherwise removes the tool.
    pub fn admit(&self, catalogue: &Catalogue, name: &str) -> Result<(), SkillError> {
        let checked = match self.skills.check(name) {
            Ok(checked) => checked,
            Err(error) => {
                catalogue.withdraw(&source_of(name));
                return Err(error);
            }
        };
        let Some(spec) = checked.spec() else { return Ok(()) };
        let set = ToolSet::new(&source_of(name)).made_from(checked.digest);
        let set = set.with(spec, self.driver(name, checked.skill.runtime));
        catalogue.admit(set, Some(checked.agreed)).map_err(|error| SkillError::Skill(error.to_string()))
    }

    fn driver(&self, name: &str, runtime: Runtime) -> Driver {
        let uses = || SkillUse { skills: Arc::clone(&self.skills), name: name.to_owned() };
        match runtime {
            Runtime::Instruction => Driver::missing(DriverKind::Host),
            Runtime::Process => {
                let program = |tier: &ProcessTier| Arc::new(Program { uses: uses(), tier: tier.clone() });
                Driver::process(self.tiers.process.as_ref().map(|tier| program(tier) as _), None)
            }
            #[cfg(feature = "wasm")]
            Runtime::Wasm => match &self.tiers.wasm {
                Some(tier) => Driver::wasm(Arc::new(Component {
                    uses: uses(),
                    tier: Arc::clone(tier),
                    ready: Arc::default(),
                })),
                None => Driver::missing(DriverKind::Wasm),
            },
            #[cfg(not(feature = "wasm"))]
            Runtime::Wasm => Driver::missing(DriverKind::Wasm),
            #[cfg(all(feature = "microvm", target_arch = "x86_64"))]
            Runtime::Microvm => match &self.tiers.microvm {
                Some(tier) => {
                    Driver::microvm(Arc::new(MicrovmProgram { uses: uses(), tier: Arc::clone(tier) }))
                }
                None => Driver::missing(DriverKind::Microvm),
            },
            #[cfg(not(all(feature = "microvm", target_arch = "x86_64")))]
            Runtime::Microvm => Driver::missing(DriverKind::Microvm),
        }
    }
}

/// The source name of a skill: a set of one tool, pinned by the digest of its files.
pub(crate) fn source_of(name: &str) -> String {
    format!("skill:{name}")
}

/// A skill that is checked before each use.
struct SkillUse {
    skills: Arc<Skills>,
    name: String,
}

impl SkillUse {
    /// The skill, with every file compared.
    async fn checked(&self) -> Result<Checked, RawOutput> {
        let (skills, name) = (Arc::clone(&self.skills), self.name.clone());
        let checked = tokio::task::spawn_blocking(move || skills.check(&name)).await;
        let checked = checked.unwrap_or_else(|error| Err(SkillError::Package(error.to_string())));
        checked.map_err(|error| RawOutput::failed(error.code(), error.to_string()))
    }

    /// The checked skill of a program tier, with its arguments.
    async fn program<T: tier::Tier>(
        &self,
        permit: &Permit<'_, T>,
    ) -> Result<(Checked, Arguments), RawOutput> {
        let checked = self.checked().await?;
        let arguments = Arguments::deserialize(permit.args())
            .map_err(|error| RawOutput::failed("args.invalid", error.to_string()))?;
        Ok((checked, arguments))
    }
}

/// The arguments of a skill's tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    input: Option<Value>,
    #[serde(default)]
    args: Vec<String>,
}

struct Program {
    uses: SkillUse,
    tier: ProcessTier,
}

impl Executor<tier::Process> for Program {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Process>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let (checked, arguments) = match self.uses.program(&permit).await {
                Ok(program) => program,
                Err(refused) => return Ok(refused),
            };
            // The program runs from a copy of the compared bytes, which lives as long as the call.
            let copy = match self.uses.skills.stage(&checked.package) {
                Ok(copy) => copy,
                Err(error) => return Err(ExecuteError::Broken(error.to_string())),
            };
            let network = checked.granted.iter().any(|one| matches!(one, Permission::Network(_)));
            let shown = match VisibleFiles::from_permissions(&checked.granted, permit.workspace()) {
                Ok(shown) => shown,
                Err(why) => return Ok(RawOutput::failed("skill.permission", why)),
            };
            let ended = self
                .tier
                .run(permit, network, |spec| prepare(spec, &checked, arguments, copy.path(), shown))
                .await;
            drop(copy);
            ended
        })
    }
}

/// The digest of some bytes, and the compiled tool.
#[cfg(feature = "wasm")]
type Compiled = (Digest, Arc<WasmTool>);

#[cfg(feature = "wasm")]
struct Component {
    uses: SkillUse,
    tier: Arc<WasmTier>,
    /// The last compiled component, so that calls don't recompile it.
    ready: Arc<std::sync::Mutex<Option<Compiled>>>,
}

#[cfg(feature = "wasm")]
impl Component {
    /// The driver for the compared bytes.
    async fn compiled(&self, checked: Checked) -> Result<Arc<WasmTool>, WasmError> {
        let (tier, ready) = (Arc::clone(&self.tier), Arc::clone(&self.ready));
        let compiled = tokio::task::spawn_blocking(move || {
            let entry = checked.skill.entrypoint.as_deref().unwrap_or_default();
            let wasm = checked.package.file(entry).unwrap_or_default();
            let digest = Digest::compute(wasm);
            let mut ready = ready.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some((known, tool)) = &*ready
                && *known == digest
            {
                return Ok(Arc::clone(tool));
            }
            let tool = Arc::new(tier.tool(wasm, digest)?);
            *ready = Some((digest, Arc::clone(&tool)));
            Ok(tool)
        });
        compiled.await.unwrap_or_else(|torn| Err(WasmError::Broken(torn.to_string())))
    }
}

#[cfg(feature = "wasm")]
impl Executor<tier::Wasm> for Component {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Wasm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let checked = match self.uses.checked().await {
                Ok(checked) => checked,
                Err(refused) => return Ok(refused),
            };
            match self.compiled(checked).await {
                Ok(tool) => tool.execute(permit).await,
                Err(error) => Ok(RawOutput::failed(error.code(), error.to_string())),
            }
        })
    }
}

#[cfg(all(feature = "microvm", target_arch = "x86_64"))]
struct MicrovmProgram {
    uses: SkillUse,
    tier: Arc<MicrovmTier>,
}

#[cfg(all(feature = "microvm", target_arch = "x86_64"))]
impl Executor<tier::Microvm> for MicrovmProgram {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Microvm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let (checked, arguments) = match self.uses.program(&permit).await {
                Ok(program) => program,
                Err(refused) => return Ok(refused),
            };
            // The guest is the compared bytes. It accesses files by nested calls within its grant.
            let entry = checked.skill.entrypoint.as_deref().unwrap_or_default();
            let content = checked.package.file(entry).unwrap_or_default().to_vec();
            let name = entry.rsplit('/').next().unwrap_or(entry).to_owned();
            let argv = [vec![name], arguments.args].concat();
            let input = arguments.input.map_or_else(Vec::new, |input| input.to_string().into_bytes());
            self.tier.execute_given(permit, ProvidedProgram { content, argv, input }).await
        })
    }
}

/// Sets up a skill's program: its own files, the granted parts of the workspace, and its input.
fn prepare(spec: &mut Spec, checked: &Checked, arguments: Arguments, copy: &Path, shown: VisibleFiles) {
    let entry = copy.join(checked.skill.entrypoint.as_deref().unwrap_or_default());
    spec.argv = interpreter(&entry).into_iter().map(Into::into).collect();
    spec.argv.push(entry.into());
    spec.argv.extend(arguments.args.into_iter().map(Into::into));
    spec.stdin = match arguments.input {
        Some(input) => Stdin::Bytes(input.to_string().into_bytes()),
        None => Stdin::Null,
    };
    let root = spec.cwd.clone();
    spec.env.push(("SKILL_DIR".into(), copy.into()));
    spec.env.push(("WORKSPACE".into(), root.into()));
    spec.binds.push(Bind::same(copy));
    match shown {
        VisibleFiles::Whole { writable } => {
            if let Some(workspace) = &mut spec.workspace {
                workspace.writable = writable;
            }
        }
        VisibleFiles::Places { read, write } => {
            spec.cwd = write.clone().unwrap_or_else(|| copy.to_owned());
            spec.binds.extend(read.into_iter().map(Bind::same));
            spec.workspace = write.map(|host| WorkspaceMount::new(host, true));
        }
    }
}

/// The interpreter of a script; other files must be executable.
fn interpreter(entry: &Path) -> Option<&'static str> {
    match entry.extension()?.to_str()? {
        "sh" => Some("/bin/sh"),
        "bash" => Some("bash"),
        "py" => Some("python3"),
        "js" | "mjs" | "cjs" => Some("node"),
        "rb" => Some("ruby"),
        "pl" => Some("perl"),
        _other => None,
    }
}

/// The visible part of the workspace.
#[derive(Debug, PartialEq, Eq)]
enum VisibleFiles {
    /// Everything except what no program may see.
    Whole { writable: bool },
    /// Some paths to read, and at most one to write.
    Places { read: Vec<PathBuf>, write: Option<PathBuf> },
}

impl VisibleFiles {
    fn from_permissions(granted: &Permissions, workspace: &Workspace) -> Result<Self, String> {
        let (mut read, mut write) = (Vec::new(), Vec::new());
        for permission in granted {
            match permission {
                Permission::Read(path) => read.push(path.as_str()),
                Permission::Write(path) => write.push(path.as_str()),
                Permission::Network(_)
                | Permission::Shell
                | Permission::Tool(_)
                | Permission::PiiToModels
                | Permission::SecretsToModels => {}
            }
        }
        if write.contains(&".") {
            return Ok(Self::Whole { writable: true });
        }
        if read.contains(&".") && write.is_empty() {
            return Ok(Self::Whole { writable: false });
        }
        let write = match write.as_slice() {
            [] => None,
            [one] => Some(inside(workspace, one)?),
            [_, _, ..] => {
                return Err("a program can get one writable folder, or the whole workspace".to_owned());
            }
        };
        let mut places = Vec::new();
        for path in read {
            if path == "." {
                places.extend(top(workspace.root())?);
            } else {
                places.push(inside(workspace, path)?);
            }
        }
        places.retain(|place| Some(place) != write.as_ref());
        Ok(Self::Places { read: places, write })
    }
}

/// A path in the workspace. A link to a target outside the granted paths is an error.
fn inside(workspace: &Workspace, path: &str) -> Result<PathBuf, String> {
    match workspace.resolve(path) {
        Ok(spelling) if spelling == path => Ok(workspace.root().join(spelling)),
        Ok(_) => Err(format!("`{path}` is a link to another place")),
        Err(error) => Err(format!("`{path}`: {error}")),
    }
}

/// The top-level entries of the workspace, except those that no program may see.
fn top(root: &Path) -> Result<Vec<PathBuf>, String> {
    const PLACES_MAX: usize = 512;
    let fail = |error: std::io::Error| format!("`{}`: {error}", root.display());
    let mut places = Vec::new();
    for entry in std::fs::read_dir(root).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let kind = entry.file_type().map_err(fail)?;
        let hidden =
            entry.file_name().to_str().is_none_or(|name| kinds_of(name).intersects(Kinds::UNREADABLE));
        if (kind.is_dir() || kind.is_file()) && !hidden {
            places.push(entry.path());
        }
        if places.len() > PLACES_MAX {
            return Err(format!("the workspace has more than {PLACES_MAX} entries at its top"));
        }
    }
    Ok(places)
}
