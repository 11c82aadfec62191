//! `regent man`: manual pages from the same definitions as the help.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use serde_json::json;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};

/// Write manual pages into a folder
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Where to; it is made if it isn't there
    #[arg(value_hint = clap::ValueHint::DirPath)]
    folder: PathBuf,
}

pub(crate) fn run(args: &ManArgs) -> CommandResult {
    let folder = &args.folder;
    let fail = |error: &std::io::Error| Failure::io("write manual pages into", folder, error);
    std::fs::create_dir_all(folder).map_err(|error| fail(&error))?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(|error| fail(&error))?;
    let pages = std::fs::read_dir(folder).map_err(|error| fail(&error))?.filter_map(Result::ok);
    let mut names: Vec<String> = pages.map(|page| page.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with("regent") && name.ends_with(".1"));
    names.sort();
    let text = format!("{} manual pages in {}\n", names.len(), folder.display());
    Ok(Done::new(json!({"folder": folder.display().to_string(), "pages": names}), text))
}
