//! `regent tool`: what can be called, and calling it.

use clap::Subcommand;
use clap_complete::engine::ArgValueCandidates;
use regent_kernel::{Op, Outcome, ToolCall};
use serde_json::{Value, json};

use super::policy::tool_names;
use crate::calls;
use crate::compose::Running;
use crate::context::Context;
use crate::json;
use crate::output::{CommandResult, Done, Shown};
use crate::term;

/// List and call tools
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// List the tools that exist; --json has their schemas
    List,
    /// Call a tool: judged by policy, confined, recorded
    Call {
        /// Its name, e.g. fs.read
        #[arg(add = ArgValueCandidates::new(tool_names))]
        name: String,
        /// Its arguments as JSON, or `-` for stdin
        #[arg(default_value = "{}")]
        arguments: String,
        /// As an agent of this name, not as yourself
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
}

impl ToolCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::List => "tool.list",
            Self::Call { .. } => "tool.call",
        }
    }
}

pub(crate) async fn run(context: &Context, command: ToolCommand) -> CommandResult {
    match command {
        ToolCommand::List => Ok(list(context)),
        ToolCommand::Call { name, arguments, agent } => {
            let args = json::from_argument(&arguments)?;
            let running = Running::boot(context).await?;
            let result = call(context, &running, ToolCall { tool: name, args }, agent.as_deref()).await;
            running.close(context, result).await
        }
    }
}

fn list(context: &Context) -> Done {
    let specs = regent_tools::specs();
    let mut text = String::new();
    for spec in &specs {
        let tier = spec.tiers.first().map(ToString::to_string).unwrap_or_default();
        let first = spec.description.split_once(". ").map_or(spec.description.as_str(), |(first, _)| first);
        let room = context.screen.width.saturating_sub(28).max(20);
        text.push_str(&format!(
            "{} {}  {}\n",
            context.screen.strong(&format!("{:<14}", spec.name)),
            context.screen.faint(&format!("{tier:<8}")),
            term::short(first, room)
        ));
    }
    Done::new(json!({"tools": specs}), text)
}

async fn call(context: &Context, running: &Running, call: ToolCall, agent: Option<&str>) -> CommandResult {
    let caller = match agent {
        Some(name) => calls::spawn(context, running, name).await?,
        None => running.kernel.operator(),
    };
    let outcome = calls::call(context, running, &caller, Op::RunTool(call)).await?;
    if let Err(failure) = calls::succeeded(&outcome) {
        // A program that failed has usually said why.
        if !context.screen.json && !outcome.output.bytes().is_empty() {
            context.screen.say(&(term::block_of_bytes(outcome.output.bytes()) + "\n"));
        }
        return Err(failure);
    }
    Ok(Done { data: calls::outcome_json(&outcome), shown: Shown::Bytes(with_line_end(outcome)), exit: 0 })
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
