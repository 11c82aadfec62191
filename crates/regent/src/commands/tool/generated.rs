//! Generated tools on the command line: made from a file, shown, made again, rolled back, removed. Each change is a call like any other.

use std::path::Path;
use std::sync::Arc;

use regent_kernel::ToolCall;
use regent_tools::generated::{Example, Generated, GeneratedError, Kept};
use serde_json::{Value, json};

use super::{Making, call};
use crate::codes;
use crate::compose::{self, BootedKernel};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::term;
use crate::trust::Trust;

const FILE_BYTES_MAX: u64 = 2 << 20;
/// How a file says what its tool is.
const HEADER: &str = "/* regent-tool";

/// `regent tool generate FILE`
pub(super) async fn generate(context: &Context, making: Making) -> CommandResult {
    let args = wanted(&making)?;
    run(context, "tool.generate", args, making.agent.as_deref()).await
}

/// Makes one of these calls in a kernel of its own.
pub(super) async fn run(context: &Context, tool: &str, args: Value, agent: Option<&str>) -> CommandResult {
    let running = BootedKernel::boot(context).await?;
    let result = call(context, &running, ToolCall { tool: tool.to_owned(), args }, agent).await;
    running.close(context, result).await
}

/// Makes a tool again from what is kept of it: tried again, as a new version.
pub(super) async fn renew(context: &Context, name: &str) -> CommandResult {
    let kept = {
        let generated = open(context)?;
        let (active, _) = generated.registry().versions(name)?;
        generated.registry().version(name, active)?
    };
    let manifest = kept.manifest;
    let args = json!({
        "name": manifest.name, "description": manifest.description, "source": kept.source, "input": manifest.input,
        "examples": manifest.examples, "capabilities": manifest.capabilities,
    });
    run(context, "tool.generate", args, None).await
}

/// Everything about a tool, and whether it is what was agreed to.
pub(super) fn show(context: &Context, name: &str) -> CommandResult {
    let generated = open(context)?;
    let registry = generated.registry();
    let problem = generated.usable(name).err();
    if let Some(GeneratedError::Unknown(_)) = problem {
        return Err(problem.map_or_else(|| Failure::new(codes::INTERNAL, "unknown"), Failure::from));
    }
    let (active, versions) = registry.versions(name).unwrap_or_default();
    let kept = registry.version(name, active).ok();
    let state = problem.as_ref().map_or_else(|| "usable".to_owned(), ToString::to_string);
    let data = json!({
        "name": name, "usable": problem.is_none(), "state": state, "code": problem.as_ref().map(|error| error.code()),
        "active": active, "versions": versions,
        "manifest": kept.as_ref().map(|kept| &kept.manifest), "sha256": kept.as_ref().map(|kept| kept.digest),
        "source": kept.as_ref().map(|kept| &kept.source),
    });
    Ok(Done::new(data, render(context, name, &state, active, &versions, kept.as_ref())))
}

fn render(
    context: &Context,
    name: &str,
    state: &str,
    active: u32,
    versions: &[u32],
    kept: Option<&Kept>,
) -> String {
    let versions: Vec<String> = versions.iter().map(|version| format!("v{version}")).collect();
    let mut text = format!("{}  {}\n", context.screen.strong(&term::inline(name)), term::inline(state));
    text.push_str(&format!("active    v{active} of {}\n", versions.join(", ")));
    if let Some(kept) = kept {
        let manifest = &kept.manifest;
        let or_none =
            |words: &[String]| if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
        text.push_str(&format!("does      {}\n", term::inline(&manifest.description)));
        text.push_str(&format!("granted   {}\n", term::inline(&or_none(&manifest.capabilities))));
        text.push_str(&format!("uses      {}\n", term::inline(&or_none(&manifest.uses))));
        text.push_str(&format!("tried on  {}\n", term::count(manifest.examples.len() as u64, "example")));
        text.push_str(&format!("made by   {}\n", term::inline(&manifest.made_by)));
        text.push_str(&format!("sha256    {}\n\n{}\n", kept.digest, term::block(&kept.source)));
    }
    text
}

/// Whether a tool of that name was generated here, usable or not.
pub(super) fn has(context: &Context, name: &str) -> bool {
    open(context).is_ok_and(|generated| generated.registry().names().iter().any(|one| one == name))
}

/// Why a generated tool can't be called, if it is one and can't.
pub(super) fn unusable(context: &Context, name: &str) -> Option<Failure> {
    let generated = open(context).ok().filter(|_| has(context, name))?;
    generated.usable(name).err().map(Failure::from)
}

fn open(context: &Context) -> Result<Arc<Generated>, Failure> {
    let project = context.project()?;
    Trust::demand(&context.paths, &project)?;
    compose::generated::open(context, &project, &compose::ToolTiers::new(context)).ok_or_else(|| {
        Failure::new(codes::TOOL_NOT_BUILT, "this build has no WASM tier, which generated tools need")
    })
}

/// The arguments of `tool.generate`, from the file's own header and what the command line says instead.
fn wanted(making: &Making) -> Result<Value, Failure> {
    let source = read(&making.file)?;
    let mut wanted = match header(&source) {
        Some(text) => serde_json::from_str::<Value>(text).map_err(|error| {
            Failure::new(
                codes::USAGE,
                format!("the header `{HEADER} {{…}} */` of `{}` is not JSON: {error}", making.file.display()),
            )
        })?,
        None => json!({}),
    };
    let fields = wanted
        .as_object_mut()
        .ok_or_else(|| Failure::new(codes::USAGE, "the header must be a JSON object"))?;
    fields.insert("source".to_owned(), json!(source));
    for (field, given) in [("name", &making.name), ("description", &making.description)] {
        if let Some(given) = given {
            fields.insert(field.to_owned(), json!(given));
        }
    }
    if !making.capabilities.is_empty() {
        fields.insert("capabilities".to_owned(), json!(making.capabilities));
    }
    if let Some(file) = &making.examples {
        let examples: Vec<Example> = serde_json::from_str(&read(file)?).map_err(|error| {
            Failure::new(
                codes::USAGE,
                format!("`{}` has no list of examples {{input, output}}: {error}", file.display()),
            )
        })?;
        fields.insert("examples".to_owned(), json!(examples));
    }
    Ok(wanted)
}

fn header(source: &str) -> Option<&str> {
    let rest = source.trim_start().strip_prefix(HEADER)?;
    rest.split_once("*/").map(|(header, _)| header)
}

fn read(path: &Path) -> Result<String, Failure> {
    use std::io::Read as _;
    let fail = |error: std::io::Error| Failure::new(codes::IO, format!("`{}`: {error}", path.display()));
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(fail)?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}
