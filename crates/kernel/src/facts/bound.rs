//! What an approval is bound to: who, what, where, and what the files hold that the call names or that its program reads as a script.

use std::collections::BTreeMap;

use regent_approval::{BoundFile, WORDS_MAX, Words};
use regent_ledger::{CanonicalJson, Digest};
use regent_policy::Reason;
use regent_workspace::{FileKind, PathError, Workspace};
use serde_json::{Value, json};

use super::{Sheet, Target, refusal};
use crate::call::{Call, CallDigest};
use crate::journal::Doubt;
use crate::syscall::Fault;

/// Folders that a call names, beside the one it runs in: a line may change into each of them.
const FOLDERS_MAX: usize = 16;
/// Files that one approval can be bound to.
const FILES_MAX: usize = 512;

/// The files that a call is bound to.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    /// By their resolved spelling.
    pub(crate) files: Vec<BoundFile>,
    /// The call can reach further files by names that a shell makes at run time.
    pub(crate) is_open: bool,
}

impl Sheet {
    /// Looks up the files that the final call names. What can't be looked at, or is too much to look at, is a refusal.
    pub(crate) fn bound(&self, workspace: &Workspace) -> Result<Bound, Reason> {
        let mut words = Words::default();
        let mut found = BTreeMap::new();
        for target in &self.resources {
            match target {
                Target::Path { path, .. } => note(workspace, path, &mut found)?,
                Target::Argv(argv) => match argv.as_slice() {
                    [shell, option, line] if shell == "/bin/sh" && option == "-c" => words.add_line(line),
                    argv => words.add_argv(argv),
                },
                Target::Endpoint { .. } | Target::Secret(_) => {}
            }
        }
        if words.all.len() > WORDS_MAX {
            return Err(too_much());
        }
        // The working folder was resolved when the call was judged; without one, programs run at the root.
        let cwd = self.args.get("cwd").and_then(Value::as_str).unwrap_or(".");
        let mut folders = vec![".".to_owned()];
        for folder in std::iter::once(cwd).chain(words.all.iter().map(String::as_str)) {
            for base in [".", cwd] {
                let folder = joined(base, folder);
                if folders.len() < FOLDERS_MAX && !folders.contains(&folder) && is_folder(workspace, &folder)
                {
                    folders.push(folder);
                }
            }
        }
        for word in &words.all {
            for folder in &folders {
                note(workspace, &joined(folder, word), &mut found)?;
            }
        }
        if found.len() > FILES_MAX {
            return Err(too_much());
        }
        let files = found.into_iter().map(|(path, sha256)| BoundFile { path, sha256 }).collect();
        Ok(Bound { files, is_open: words.is_open })
    }

    /// The one number that an approval is for.
    pub(crate) fn digest(
        &self,
        call: &Call,
        workspace: &Workspace,
        bound: &Bound,
    ) -> Result<CallDigest, Fault> {
        if let Some(Doubt { intent, .. }) = self.doubt {
            return Ok(CallDigest::in_doubt(workspace, intent.lane, intent.seq));
        }
        let task: Vec<String>;
        // An agent that resumes a task is a new one; what a person agreed to holds for the task.
        let chain = match call.principal.step() {
            Some(step) => {
                task = vec![
                    call.principal.sponsor().to_owned(),
                    format!("task:{}", step.task),
                    call.principal.name().to_owned(),
                ];
                &task
            }
            None => call.principal.chain(),
        };
        let whole = json!({
            "args": self.args,
            "chain": chain,
            "files": bound.files,
            "op": call.op.name(),
            "root": workspace.root().to_string_lossy(),
            "tool": self.tool.as_ref().map(|tool| (&tool.spec().name, tool.digest())),
        });
        Ok(CallDigest(Digest::of(CanonicalJson::of(&whole)?.as_str().as_bytes())))
    }
}

/// Takes a name down if it leads to a file in the workspace.
fn note(workspace: &Workspace, name: &str, found: &mut BTreeMap<String, Digest>) -> Result<(), Reason> {
    match workspace.held(name) {
        Ok(held) => {
            found.extend(held);
            Ok(())
        }
        Err(error) => Err(unreadable(name, &error)),
    }
}

fn is_folder(workspace: &Workspace, name: &str) -> bool {
    let spelling = workspace.resolve(name).ok().filter(|spelling| !spelling.starts_with('/'));
    spelling
        .is_some_and(|spelling| workspace.stat(&spelling).is_ok_and(|found| found.kind == FileKind::Folder))
}

fn joined(folder: &str, name: &str) -> String {
    if folder == "." || name.starts_with('/') { name.to_owned() } else { format!("{folder}/{name}") }
}

fn unreadable(name: &str, error: &PathError) -> Reason {
    let message = format!("an approval can't be bound to `{}`: {error}", name.escape_debug());
    refusal("approval.unbound", message, "make the file readable for Regent, or leave it out of the call")
}

fn too_much() -> Reason {
    let message = format!(
        "the call names more than an approval can be bound to ({WORDS_MAX} names, {FILES_MAX} files in the workspace)"
    );
    refusal("approval.unbound", message, "split it into several calls")
}
