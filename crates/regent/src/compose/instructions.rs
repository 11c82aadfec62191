//! What instructs a task beside its goal: the user's own files, the trusted project's, and templates of prompts. All of it is recorded with
//! the task.

use std::collections::BTreeMap;
use std::path::Path;

use regent_runtime::task::{InstructionFile, Instructions};

use crate::codes;
use crate::context::Context;
use crate::controls::{self, Controls};
use crate::failure::Failure;
use crate::trust::Trust;

/// The user's own files, in the folder of the settings.
const OWN_FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// How large each may be.
const OWN_BYTES_MAX: usize = 32 << 10;
/// The kind of task whose templates apply where none is named.
const USUAL: &str = "default";

/// The instructions of a new task. Its project is trusted, or no kernel would run in it; this looks again, and what was read then counts.
pub(crate) fn of_task(context: &Context) -> Result<Instructions, Failure> {
    let project = Trust::demand(&context.paths, &context.project()?).is_ok();
    let mut own = Vec::new();
    for name in OWN_FILES {
        let path = context.paths.config.join(name);
        if let Some(text) = controls::read_if_there(&path)?
            && !text.trim().is_empty()
            && !own.iter().any(|file: &InstructionFile| file.text == text)
        {
            own.push(InstructionFile { path: path.display().to_string(), text: cut(text) });
        }
    }
    Ok(Instructions { project, own })
}

fn cut(mut text: String) -> String {
    if text.len() > OWN_BYTES_MAX {
        let end = (0..=OWN_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str("\n[cut: the file is longer than 32 KiB]");
    }
    text
}

/// The templates of a kind of task, by name without `.txt`: the project's, and the user's where the project has none.
pub(crate) fn prompts(context: &Context, kind: Option<&str>) -> Result<BTreeMap<String, String>, Failure> {
    let word = kind.unwrap_or(USUAL);
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if word.is_empty() || !word.chars().all(is_word) {
        return Err(Failure::new(codes::USAGE, format!("`{word}` is not the name of a kind of task")));
    }
    let mut found = BTreeMap::new();
    let users = context.paths.prompts();
    for path in controls::templates(&users)? {
        if path.parent() == Some(users.join(word).as_path()) {
            found.insert(name_of(&path), controls::read_file(&path)?);
        }
    }
    let controls: Controls = Trust::demand(&context.paths, &context.project()?)?;
    found.extend(controls.prompts(word).map(|(path, text)| (name_of(path), text.to_owned())));
    if found.is_empty() && kind.is_some() {
        let message = format!("there are no templates for `{word}`");
        return Err(Failure::new(codes::USAGE, message).help(format!(
            "write `.regent/prompts/{word}/task.txt` (or `system.txt`, `role.txt`), or the same below `{}`",
            users.display()
        )));
    }
    Ok(found)
}

fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
