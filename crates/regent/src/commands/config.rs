//! `regent config`: settings, and where each comes from.

use clap::Subcommand;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde_json::json;

use crate::context::Context;
use crate::output::{CommandResult, Done};
use crate::settings;

/// Read and change settings
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print one setting
    Get {
        /// Its name, e.g. ui.color
        #[arg(add = ArgValueCandidates::new(names))]
        key: String,
    },
    /// Change one setting in your own file, or in the project's with --project
    Set {
        /// Its name, e.g. ui.color
        #[arg(add = ArgValueCandidates::new(names))]
        key: String,
        /// Its new value
        value: String,
        /// Change the project's file, which can only be stricter than yours
        #[arg(long)]
        project: bool,
    },
    /// Show all settings
    Show {
        /// Also show where each value comes from
        #[arg(long)]
        origin: bool,
    },
}

impl ConfigCommand {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Get { .. } => "config.get",
            Self::Set { .. } => "config.set",
            Self::Show { .. } => "config.show",
        }
    }
}

pub(crate) fn run(context: &Context, command: &ConfigCommand) -> CommandResult {
    match command {
        ConfigCommand::Get { key } => get(context, key),
        ConfigCommand::Set { key, value, project } => set(context, key, value, *project),
        ConfigCommand::Show { origin } => Ok(show(context, *origin)),
    }
}

fn get(context: &Context, name: &str) -> CommandResult {
    let key = settings::key(name)?;
    let found = context.settings.all().find(|(name, ..)| *name == key.name);
    let (value, origin) =
        found.map_or((key.default, String::new()), |(_, value, origin)| (value, origin.to_string()));
    Ok(Done::new(json!({"key": key.name, "value": value, "origin": origin}), format!("{value}\n")))
}

fn set(context: &Context, name: &str, value: &str, in_project: bool) -> CommandResult {
    let path = if in_project { context.project()?.settings() } else { context.paths.settings() };
    settings::set(&path, name, value)?;
    let mut text = format!("{name} = {value}  ({})\n", path.display());
    if in_project {
        text.push_str("run `regent trust` to activate the changed file\n");
    }
    Ok(Done::new(json!({"key": name, "value": value, "file": path.display().to_string()}), text))
}

fn show(context: &Context, with_origin: bool) -> Done {
    let mut text = String::new();
    let mut rows = Vec::new();
    for (name, value, origin) in context.settings.all() {
        let key = settings::KEYS.iter().find(|key| key.name == name);
        let from = if with_origin {
            format!("  {}", context.screen.faint(&origin.to_string()))
        } else {
            String::new()
        };
        text.push_str(&format!("{name:<24} {value:<18}{from}\n"));
        rows.push(json!({
            "key": name, "value": value, "origin": origin.to_string(),
            "default": key.map(|key| key.default), "help": key.map(|key| key.help), "variable": key.map(settings::variable),
        }));
    }
    Done::new(json!({"settings": rows}), text)
}

fn names() -> Vec<CompletionCandidate> {
    settings::KEYS.iter().map(|key| CompletionCandidate::new(key.name).help(Some(key.help.into()))).collect()
}
