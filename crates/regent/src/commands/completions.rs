//! `regent completions`: what a shell needs to complete our commands, ids included.

use clap::Args;
use clap_complete::env::Shells;
use serde_json::json;

use crate::codes;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};

/// Print a shell completion script
#[derive(Debug, Args)]
#[command(
    after_help = "For bash: regent completions bash > ~/.local/share/bash-completion/completions/regent"
)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    shell: String,
}

pub(crate) fn run(args: &CompletionsArgs) -> CommandResult {
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(&args.shell) else {
        return Err(Failure::new(codes::USAGE, format!("no completions for the shell `{}`", args.shell)));
    };
    let mut script = Vec::new();
    shell
        .write_registration("COMPLETE", "regent", "regent", "regent", &mut script)
        .map_err(|error| Failure::new(codes::INTERNAL, format!("the script can't be written: {error}")))?;
    let script = String::from_utf8_lossy(&script).into_owned();
    Ok(Done::new(json!({"shell": args.shell, "script": script}), script))
}
