//! Executors that check a skill before they run it: every file, before each use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use regent_guard::{Kinds, kinds_of};
use regent_kernel::{BoxFuture, ExecuteError, Executor, Op, Permit, RawOutput, Workspace, tier};
use regent_sandbox::{Bind, ProcessTier, Spec, Stdin, WorkspaceMount};
use serde::Deserialize;
use serde_json::Value;

use crate::error::SkillError;
use crate::permission::{Permission, Permissions};
use crate::skills::{Checked, Skills};

/// An executor of a tier that runs skills too. What is no skill goes to the tier as it is.
#[derive(Debug, Clone)]
pub struct Guarded<E> {
    tier: E,
    skills: Arc<Skills>,
}

impl<E> Guarded<E> {
    /// Before a tier.
    pub fn new(tier: E, skills: Arc<Skills>) -> Self {
        Self { tier, skills }
    }

    /// The skill that a call is about, with every file compared; `None` if it is about none.
    async fn checked(&self, op: &Op) -> Option<Result<Checked, SkillError>> {
        let Op::RunTool(run) = op else { return None };
        let name = run.tool.strip_prefix("skill.")?.to_owned();
        let skills = Arc::clone(&self.skills);
        let checked = tokio::task::spawn_blocking(move || skills.check(&name)).await;
        Some(checked.unwrap_or_else(|error| Err(SkillError::Package(error.to_string()))))
    }

    /// The same for a skill that is a program, with what it is called with, or what is said instead.
    async fn program<T: tier::Tier>(
        &self,
        permit: &Permit<'_, T>,
    ) -> Option<Result<(Checked, Arguments), RawOutput>> {
        let checked = match self.checked(permit.call().op()).await? {
            Ok(checked) => checked,
            Err(error) => return Some(Err(RawOutput::failed(error.code(), error.to_string()))),
        };
        let arguments = Arguments::deserialize(permit.args());
        let refused = |error: serde_json::Error| RawOutput::failed("args.invalid", error.to_string());
        Some(arguments.map(|arguments| (checked, arguments)).map_err(refused))
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

impl Executor<tier::Process> for Guarded<ProcessTier> {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Process>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let (checked, arguments) = match self.program(&permit).await {
                None => return self.tier.execute(permit).await,
                Some(Ok(program)) => program,
                Some(Err(refused)) => return Ok(refused),
            };
            // What runs is what was compared: a copy of those bytes, which goes with the call.
            let copy = match self.skills.stage(&checked.package) {
                Ok(copy) => copy,
                Err(error) => return Err(ExecuteError::Broken(error.to_string())),
            };
            let network = checked.granted.iter().any(|one| matches!(one, Permission::Network(_)));
            let shown = match Shown::of(&checked.granted, permit.workspace()) {
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

#[cfg(feature = "wasm")]
impl Executor<tier::Wasm> for Guarded<Arc<regent_sandbox::wasm::WasmTier>> {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Wasm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            match self.checked(permit.call().op()).await {
                None => {}
                Some(Ok(checked)) => {
                    if let Err(error) = self.make_ready(checked).await {
                        return Ok(RawOutput::failed(error.code(), error.to_string()));
                    }
                }
                Some(Err(error)) => return Ok(RawOutput::failed(error.code(), error.to_string())),
            }
            self.tier.execute(permit).await
        })
    }
}

#[cfg(feature = "wasm")]
impl Guarded<Arc<regent_sandbox::wasm::WasmTier>> {
    /// Gives the tier the bytes that were compared, unless it has them.
    async fn make_ready(&self, checked: Checked) -> Result<(), regent_sandbox::wasm::WasmError> {
        use regent_sandbox::wasm::WasmError;
        let tool = format!("skill.{}", checked.skill.name);
        let tier = Arc::clone(&self.tier);
        let ready = tokio::task::spawn_blocking(move || {
            let entry = checked.skill.entrypoint.as_deref().unwrap_or_default();
            let wasm = checked.package.file(entry).unwrap_or_default();
            let digest = regent_kernel::Digest::of(wasm);
            if tier.digest_of(&tool) == Some(digest) { Ok(()) } else { tier.install(&tool, wasm, digest) }
        });
        ready.await.unwrap_or_else(|torn| Err(WasmError::Broken(torn.to_string())))
    }
}

#[cfg(all(feature = "microvm", target_arch = "x86_64"))]
impl Executor<tier::Microvm> for Guarded<regent_sandbox::microvm::MicrovmTier> {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Microvm>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let (checked, arguments) = match self.program(&permit).await {
                None => return self.tier.execute(permit).await,
                Some(Ok(program)) => program,
                Some(Err(refused)) => return Ok(refused),
            };
            // The guest is the bytes that were compared. Its files are calls of its own, bounded by what was granted.
            let entry = checked.skill.entrypoint.as_deref().unwrap_or_default();
            let content = checked.package.file(entry).unwrap_or_default().to_vec();
            let name = entry.rsplit('/').next().unwrap_or(entry).to_owned();
            let argv = [vec![name], arguments.args].concat();
            let input = arguments.input.map_or_else(Vec::new, |input| input.to_string().into_bytes());
            self.tier.execute_given(permit, regent_sandbox::microvm::Given { content, argv, input }).await
        })
    }
}

/// What a skill's program is given: its own files, what was granted of the workspace, and its input.
fn prepare(spec: &mut Spec, checked: &Checked, arguments: Arguments, copy: &Path, shown: Shown) {
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
        Shown::Whole { writable } => {
            if let Some(workspace) = &mut spec.workspace {
                workspace.writable = writable;
            }
        }
        Shown::Places { read, write } => {
            spec.cwd = write.clone().unwrap_or_else(|| copy.to_owned());
            spec.binds.extend(read.into_iter().map(Bind::same));
            spec.workspace = write.map(|host| WorkspaceMount::new(host, true));
        }
    }
}

/// Scripts are given to the program that reads them; everything else has to be runnable by itself.
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

/// What is shown of the workspace.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    /// All of it, but for what no program sees.
    Whole { writable: bool },
    /// Some places to read, and at most one to write.
    Places { read: Vec<PathBuf>, write: Option<PathBuf> },
}

impl Shown {
    fn of(granted: &Permissions, workspace: &Workspace) -> Result<Self, String> {
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
                return Err(
                    "a program can be given one folder to write to, or the whole workspace".to_owned()
                );
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

/// A place of the workspace. A link that leads out of what was granted is not followed.
fn inside(workspace: &Workspace, path: &str) -> Result<PathBuf, String> {
    match workspace.resolve(path) {
        Ok(spelling) if spelling == path => Ok(workspace.root().join(spelling)),
        Ok(_) => Err(format!("`{path}` leads elsewhere by a link")),
        Err(error) => Err(format!("`{path}`: {error}")),
    }
}

/// What is at the top of the workspace, but for what no program sees.
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
