//! `regent tool`: what can be called, and calling it.

mod generated;
mod labelled;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use regent_kernel::{CostClass, Op, Origin, Outcome, SideEffect, ToolCall, ToolSpec};
use regent_tools::{ToolFilter, schema};
use serde_json::{Value, json};

use super::policy::tool_names;
use crate::calls;
use crate::codes;
use crate::compose::{self, BootedKernel};
use crate::context::Context;
use crate::failure::{Failure, did_you_mean};
use crate::json;
use crate::output::{CommandResult, Done, StdoutContent};
use crate::term;

/// The kernel's word for a tool that it doesn't have.
const UNKNOWN: &str = "tool.unknown";

/// List and call tools
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// List tools; --json includes their schemas
    List {
        /// Format: json (Regent's own), openai, anthropic, mcp
        #[arg(long, value_enum)]
        format: Option<Format>,
        /// Only those with this capability, e.g. file or file.read
        #[arg(long, value_name = "CAPABILITY")]
        tag: Option<String>,
        /// Only those with this effect
        #[arg(long, value_enum)]
        effect: Option<EffectWord>,
        /// Only those that cost at most this
        #[arg(long, value_enum)]
        cost: Option<CostWord>,
        /// Only those of this origin
        #[arg(long, value_enum)]
        origin: Option<OriginWord>,
        /// Only those that agents or you have generated
        #[arg(long, conflicts_with = "origin")]
        generated: bool,
        /// List tools of other applications that `regent judge` has seen, with their active labels
        #[arg(long, conflicts_with_all = ["format", "tag", "effect", "cost", "origin", "generated"])]
        judged: bool,
    },
    /// Create a tool from a JavaScript file: checks it, runs its examples, stores a new version
    Generate(Making),
    /// Show a tool: arguments, effects, and labels with their source; for a generated one also its source code,
    /// permissions and versions
    Show {
        /// Its name, e.g. fs.read or gen.word_count
        name: String,
    },
    /// Rebuild a generated tool from its stored source: runs its examples, stores a new version
    Renew {
        /// Its name
        name: String,
    },
    /// Go back to an earlier version of a generated tool
    Rollback {
        /// Its name
        name: String,
        /// The version [default: the one before the active one]
        #[arg(long, value_name = "N")]
        to: Option<u32>,
    },
    /// Remove a generated tool with all its versions
    Remove {
        /// Its name
        name: String,
    },
    /// Call a tool; policy judges it, the ledger records it
    Call {
        /// Its name, e.g. fs.read
        #[arg(add = ArgValueCandidates::new(tool_names))]
        name: String,
        /// Its arguments as JSON, or `-` for stdin
        #[arg(default_value = "{}")]
        arguments: String,
        /// Act as an agent of this name
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
}

/// The parts of a generated tool. The file can contain them as JSON in a comment at its beginning: /* regent-tool {…} */
#[derive(Debug, Args)]
pub(crate) struct Making {
    /// The source: export function run(input) { … }
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// The tool's name, e.g. gen.word_count
    #[arg(long)]
    name: Option<String>,
    /// What it does, in one sentence
    #[arg(long)]
    description: Option<String>,
    /// A JSON file with examples: [{"input": …, "output": …}]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    examples: Option<PathBuf>,
    /// A capability to grant, e.g. file.read; repeatable
    #[arg(long = "may", value_name = "CAPABILITY")]
    capabilities: Vec<String>,
    /// Act as an agent of this name
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
}

/// How tools are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Our own manifests
    Json,
    /// Functions of the OpenAI chat API
    Openai,
    /// Tools of the Anthropic messages API
    Anthropic,
    /// Tools in MCP's format
    Mcp,
}

impl Format {
    fn convert(self, spec: &ToolSpec) -> Value {
        match self {
            Self::Json => json!(spec),
            Self::Openai => schema::openai(spec),
            Self::Anthropic => schema::anthropic(spec),
            Self::Mcp => schema::mcp(spec),
        }
    }
}

/// What `--effect` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffectWord {
    None,
    Read,
    Write,
    Delete,
    Network,
}

impl EffectWord {
    fn effect(self) -> SideEffect {
        match self {
            Self::None => SideEffect::None,
            Self::Read => SideEffect::Read,
            Self::Write => SideEffect::Write,
            Self::Delete => SideEffect::Delete,
            Self::Network => SideEffect::Network,
        }
    }
}

/// What `--cost` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostWord {
    Free,
    Cheap,
    Moderate,
    Expensive,
}

impl CostWord {
    fn cost(self) -> CostClass {
        match self {
            Self::Free => CostClass::Free,
            Self::Cheap => CostClass::Cheap,
            Self::Moderate => CostClass::Moderate,
            Self::Expensive => CostClass::Expensive,
        }
    }
}

/// What `--origin` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OriginWord {
    BuiltIn,
    Verified,
    Community,
    Generated,
}

impl OriginWord {
    fn origin(self) -> Origin {
        match self {
            Self::BuiltIn => Origin::BuiltIn,
            Self::Verified => Origin::Verified,
            Self::Community => Origin::Community,
            Self::Generated => Origin::Generated,
        }
    }
}

impl ToolCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::List { .. } => "tool.list",
            Self::Generate(_) => "tool.generate",
            Self::Show { .. } => "tool.show",
            Self::Renew { .. } => "tool.renew",
            Self::Rollback { .. } => "tool.rollback",
            Self::Remove { .. } => "tool.remove",
            Self::Call { .. } => "tool.call",
        }
    }
}

pub(crate) async fn run(context: &Context, command: ToolCommand) -> CommandResult {
    match command {
        ToolCommand::List { judged: true, .. } => labelled::list(context).await,
        ToolCommand::List { format, tag, effect, cost, origin, generated, judged: false } => {
            let origin = if generated { Some(OriginWord::Generated) } else { origin };
            let wanted = ToolFilter {
                capability: tag.as_deref(),
                effect: effect.map(EffectWord::effect),
                cost_max: cost.map(CostWord::cost),
                origin: origin.map(OriginWord::origin),
            };
            list(context, &wanted, format)
        }
        ToolCommand::Generate(making) => generated::generate(context, making).await,
        ToolCommand::Show { name } if generated::has(context, &name) => generated::show(context, &name),
        ToolCommand::Show { name } => show(context, &name).await,
        ToolCommand::Renew { name } => generated::renew(context, &name).await,
        ToolCommand::Rollback { name, to } => {
            let mut args = json!({"name": name});
            if let (Some(to), Some(fields)) = (to, args.as_object_mut()) {
                fields.insert("version".to_owned(), json!(to));
            }
            generated::run(context, "tool.rollback", args, None).await
        }
        ToolCommand::Remove { name } => {
            generated::run(context, "tool.remove", json!({"name": name}), None).await
        }
        ToolCommand::Call { name, arguments, agent } => {
            let args = json::from_argument(&arguments)?;
            let running = BootedKernel::boot(context).await?;
            let result = call(context, &running, ToolCall { tool: name, args }, agent.as_deref()).await;
            running.close(context, result).await
        }
    }
}

fn list(context: &Context, wanted: &ToolFilter<'_>, format: Option<Format>) -> CommandResult {
    let mut specs = compose::skills::specs(context)?;
    specs.retain(|spec| wanted.fits(spec));
    if let Some(format) = format {
        let told: Vec<Value> = specs.iter().map(|spec| format.convert(spec)).collect();
        // What others take is JSON, with or without our envelope round it.
        let text = serde_json::to_string_pretty(&told)
            .map_err(|error| Failure::new(codes::INTERNAL, format!("the tools can't be written: {error}")))?;
        return Ok(Done::new(json!({"tools": told}), text));
    }
    let mut text = String::new();
    if specs.is_empty() {
        text.push_str("no tool matches\n");
    }
    for spec in &specs {
        let tier = spec.tiers.first().map(ToString::to_string).unwrap_or_default();
        let first = spec.description.split_once(". ").map_or(spec.description.as_str(), |(first, _)| first);
        let room = context.screen.width.saturating_sub(28).max(20);
        text.push_str(&format!(
            "{} {}  {}\n",
            context.screen.strong(&format!("{:<14}", term::inline(&spec.name))),
            context.screen.faint(&format!("{tier:<8}")),
            term::short(first, room)
        ));
    }
    Ok(Done::new(json!({"tools": specs}), text))
}

/// A tool's manifest, as policy and models know it.
async fn show(context: &Context, name: &str) -> CommandResult {
    let specs = compose::skills::specs(context)?;
    let judged = labelled::find(context, name).await?;
    let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
        if !judged.is_empty() {
            return Ok(Done::new(json!({"judged": judged}), labelled::text(context, &judged)));
        }
        let message = format!("unknown tool `{}`", term::inline(name));
        return Err(Failure::named(UNKNOWN, codes::exit_of(UNKNOWN), message).help(did_you_mean(
            name,
            specs.iter().map(|spec| spec.name.as_str()),
            "`regent tool list` and `regent tool list --judged` list them",
        )));
    };
    let words = |words: &[String]| if words.is_empty() { "–".to_owned() } else { words.join(", ") };
    let tiers: Vec<String> = spec.tiers.iter().map(ToString::to_string).collect();
    let input = serde_json::to_string_pretty(&spec.input)
        .map_err(|error| Failure::new(codes::INTERNAL, format!("the manifest can't be written: {error}")))?;
    let idempotent = if spec.idempotent { "yes" } else { "no" };
    let labels = labelled::own(spec);
    let mut text = format!(
        "{}  {}\n\neffect        {}\ntiers         {}\ncapabilities  {}\nidempotent    {idempotent}\narguments     {input}\n",
        context.screen.strong(&term::inline(&spec.name)),
        term::inline(&spec.description),
        json!(spec.effect).as_str().unwrap_or_default(),
        words(&tiers),
        words(&spec.capabilities),
    );
    text.push_str(&labels.text());
    text.push_str(&labelled::text(context, &judged));
    Ok(Done::new(json!({"judged": judged, "labels": labels, "tool": spec}), text))
}

async fn call(
    context: &Context,
    running: &BootedKernel,
    call: ToolCall,
    agent: Option<&str>,
) -> CommandResult {
    let caller = match agent {
        Some(name) => calls::spawn(context, running, name).await?,
        None => running.caller(),
    };
    let name = call.tool.clone();
    let called = calls::call(context, running, &caller, Op::RunTool(call)).await;
    // A generated tool that isn't usable is in no catalogue; its own check says why.
    let outcome = called.map_err(|failure| match &*failure.code {
        UNKNOWN => generated::unusable(context, &name).unwrap_or(failure),
        _other => failure,
    })?;
    if let Err(failure) = calls::succeeded(&outcome) {
        // A program that failed has usually printed why.
        if !context.screen.json && !outcome.output.bytes().is_empty() {
            context.screen.say(&(term::block_of_bytes(outcome.output.bytes()) + "\n"));
        }
        return Err(failure);
    }
    Ok(Done {
        data: calls::outcome_json(&outcome),
        shown: StdoutContent::Bytes(with_line_end(outcome)),
        exit: 0,
    })
}

/// JSON results end in a line end, so that a prompt doesn't stick to them; a file's text stays as it is.
fn with_line_end(outcome: Outcome) -> Vec<u8> {
    let is_object =
        serde_json::from_slice::<Value>(outcome.output.bytes()).is_ok_and(|value| value.is_object());
    let mut bytes = outcome.output.into_bytes();
    if is_object {
        bytes.push(b'\n');
    }
    bytes
}
