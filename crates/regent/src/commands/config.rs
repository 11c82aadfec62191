//! `regent config`: settings, and where each comes from.

use clap::Subcommand;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde_json::json;

use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, CommandResult, Done, StdoutContent};
use crate::settings::{self, SettingsFile};
use crate::term;

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
    /// Remove one setting from your own file, or from the project's with --project; also one that doesn't exist
    Unset {
        /// Its name, e.g. ui.color
        #[arg(add = ArgValueCandidates::new(names))]
        key: String,
        /// Change the project's file
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
            Self::Unset { .. } => "config.unset",
            Self::Show { .. } => "config.show",
        }
    }
}

pub(crate) fn run(context: &Context, command: &ConfigCommand) -> CommandResult {
    match command {
        ConfigCommand::Get { key } => get(context, key),
        ConfigCommand::Set { key, value, project } => set(context, key, value, *project),
        ConfigCommand::Unset { key, project } => unset(context, key, *project),
        ConfigCommand::Show { origin } => valid(context, show(context, *origin)),
    }
}

fn get(context: &Context, name: &str) -> CommandResult {
    let key = settings::key(name)?;
    let found = context.settings.all().find(|(name, ..)| *name == key.name);
    let (value, origin) =
        found.map_or((key.default, String::new()), |(_, value, origin)| (value, origin.to_string()));
    valid(
        context,
        Done::new(json!({"key": key.name, "value": value, "origin": origin}), format!("{value}\n")),
    )
}

/// The values are shown although a line is invalid: it has no effect. The mistake is the error.
fn valid(context: &Context, shown: Done) -> CommandResult {
    let Some(mistake) = context.mistakes.first() else { return Ok(shown) };
    if let (false, StdoutContent::Text(text)) = (context.screen.json, &shown.shown) {
        output::write_all(text.as_bytes()).map_err(|error| Failure::new(codes::IO, error.to_string()))?;
    }
    Err(mistake.clone().data(shown.data))
}

fn file(context: &Context, in_project: bool) -> Result<SettingsFile, Failure> {
    Ok(match in_project {
        true => SettingsFile::Project(context.project()?.settings()),
        false => SettingsFile::User(context.paths.settings()),
    })
}

/// What is still to be done about a changed file.
fn next_step(file: &SettingsFile, mistake: Option<&Failure>) -> String {
    let mut text = String::new();
    if let Some(mistake) = mistake {
        text.push_str(&format!("still invalid: {}\n", term::inline(&mistake.message)));
    }
    if matches!(file, SettingsFile::Project(_)) {
        text.push_str("run `regent trust` to activate the changed file\n");
    }
    text
}

fn set(context: &Context, name: &str, value: &str, in_project: bool) -> CommandResult {
    let file = file(context, in_project)?;
    let mistake = settings::set(&file, name, value)?;
    let path = file.path().display().to_string();
    let text = format!("{name} = {value}  ({path})\n{}", next_step(&file, mistake.as_ref()));
    let mistake = mistake.map(|mistake| mistake.message);
    Ok(Done::new(json!({"key": name, "value": value, "file": path, "mistake": mistake}), text))
}

fn unset(context: &Context, name: &str, in_project: bool) -> CommandResult {
    let file = file(context, in_project)?;
    let (was_set, mistake) = settings::unset(&file, name)?;
    let (shown, path) = (term::inline(name), file.path().display().to_string());
    let text = match was_set {
        true => format!("removed {shown}  ({path})\n{}", next_step(&file, mistake.as_ref())),
        false => format!("{shown} is not set in {path}\n"),
    };
    let mistake = mistake.map(|mistake| mistake.message);
    Ok(Done::new(json!({"key": name, "was_set": was_set, "file": path, "mistake": mistake}), text))
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
