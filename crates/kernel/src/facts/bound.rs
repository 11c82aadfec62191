//! What an approval is bound to: who, what, where, and what the files hold that the call names or that its program reads as a script.
//!
//! Where names are made at run time (`sh $X`) no list of files is complete. Such an approval is bound to the whole workspace as well: it is
//! for one run, and any change before that run is another call.

use std::borrow::Cow;
use std::collections::BTreeMap;

use regent_approval::{BoundFile, WORDS_MAX, Words};
use regent_ledger::{CanonicalJson, Digest};
use regent_policy::Reason;
use regent_workspace::{NamedEntry, PathError, TreeError, Workspace, shown};
use serde_json::{Value, json};

use super::{Sheet, Target, refusal};
use crate::call::{Call, CallDigest};
use crate::catalogue::{ArgumentKind, Tool};
use crate::principal::Principal;
use crate::recovery::InDoubt;
use crate::syscall::Fault;

/// Folders that a call names, each on its own or below another: a line may change into each of them.
const FOLDERS_MAX: usize = 64;
/// Names that are looked up for one call: every word in every folder.
const LOOKUPS_MAX: usize = 50_000;
/// Files that one approval can be bound to.
const FILES_MAX: usize = 512;

/// The files that a call is bound to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    /// By their resolved spelling.
    pub(crate) files: Vec<BoundFile>,
    /// The state of the whole workspace, where the call can reach further files by names that are made at run time.
    pub(crate) tree: Option<Digest>,
}

impl Bound {
    /// Looks up the files that a call names. What can't be looked at, or is too much to look at, is a refusal.
    fn new(
        workspace: &Workspace,
        targets: &[Target],
        args: &Value,
        tool: Option<&Tool>,
    ) -> Result<Self, Reason> {
        let (mut words, mut found) = (Words::default(), BTreeMap::new());
        let mut runs_program = false;
        for target in targets {
            match target {
                Target::Path { path, .. } => {
                    look_up(workspace, path.as_bytes(), &mut found)?;
                }
                Target::Argv(argv) => {
                    runs_program = true;
                    match argv.as_slice() {
                        [shell, option, line] if shell == "/bin/sh" && option == "-c" => words.add_line(line),
                        argv => words.add_argv(argv),
                    }
                }
                Target::Endpoint { .. } | Target::Secret(_) => {}
            }
        }
        if runs_program {
            for text in inputs(args, tool) {
                words.add_input(&text);
            }
        }
        if words.all.len() > WORDS_MAX {
            return Err(too_much());
        }
        // The working folder was resolved when the call was judged; without one, programs run at the root.
        let cwd = args.get("cwd").and_then(Value::as_str).unwrap_or(".");
        in_every_folder(workspace, cwd, &words, &mut found)?;
        if found.len() > FILES_MAX {
            return Err(too_much());
        }
        let files =
            found.into_iter().map(|(path, sha256)| BoundFile { path: shown(&path), sha256 }).collect();
        let tree = words.is_open().then(|| workspace.tree_digest()).transpose();
        Ok(Self { files, tree: tree.map_err(|error| unknown_tree(&error))? })
    }

    /// The same for a call that was recorded: its arguments are those that were judged.
    pub(crate) fn of_recorded(
        workspace: &Workspace,
        tool: Option<&Tool>,
        args: &Value,
    ) -> Result<Self, Reason> {
        let declared = tool.map(|tool| &tool.spec().arguments).into_iter().flatten();
        let targets = declared.filter_map(|(pointer, kind)| match (kind, args.pointer(pointer)?) {
            (ArgumentKind::Path(access), Value::String(path)) => {
                Some(Target::Path { path: path.clone(), access: *access })
            }
            (ArgumentKind::Argv, Value::Array(_)) | (ArgumentKind::Shell, Value::String(_)) => {
                Target::program(*kind, args.pointer(pointer)?)
            }
            _no_file => None,
        });
        Self::new(workspace, &targets.collect::<Vec<_>>(), args, tool)
    }
}

/// Whom an approval is for. An agent has a new key in each process, so where a person started it, its name counts: for a task together
/// with the task, which goes on with other agents. An agent that another one started is only itself.
fn standing(who: &Principal) -> Cow<'_, [String]> {
    let named = |kind: String| Cow::Owned(vec![who.sponsor().to_owned(), kind, who.name().to_owned()]);
    match (who.step(), who.lineage()) {
        (Some(step), _) => named(format!("task:{}", step.task)),
        (None, [_started_by_a_person]) => named("agent".to_owned()),
        (None, _) => Cow::Borrowed(who.chain()),
    }
}

impl Sheet {
    /// Looks up the files that the final call names.
    pub(crate) fn bound(&self, workspace: &Workspace) -> Result<Bound, Reason> {
        Bound::new(workspace, &self.resources, &self.args, self.tool.as_deref())
    }

    /// The one number that an approval is for.
    pub(crate) fn digest(
        &self,
        call: &Call,
        workspace: &Workspace,
        bound: &Bound,
    ) -> Result<CallDigest, Fault> {
        let chain = standing(&call.principal);
        let whole = json!({
            "args": self.args,
            "chain": chain,
            "files": bound.files,
            "op": call.op.name(),
            "root": workspace.root().to_string_lossy(),
            "tool": self.tool.as_ref().map(|tool| (&tool.spec().name, tool.digest())),
            "tree": bound.tree,
        });
        Ok(CallDigest(Digest::of(CanonicalJson::of(&whole)?.as_str().as_bytes())))
    }

    /// What an approval to repeat a call in doubt is for: the place of its intent, the arguments as they are recorded, and the files.
    /// Other projects keep their questions in the same state, and their ledgers have the same lanes.
    pub(crate) fn repeat_digest(
        &self,
        workspace: &Workspace,
        bound: &Bound,
    ) -> Option<Result<CallDigest, Fault>> {
        let args = self.recorded.as_ref().map(regent_ledger::Payload::digest);
        self.doubt.map(|doubt| repeat_digest(workspace, (doubt.intent.lane, doubt.intent.seq), args, bound))
    }
}

impl InDoubt {
    /// The same, as far as the ledger knows the call.
    pub(crate) fn repeat_digest(&self, workspace: &Workspace, bound: &Bound) -> Result<CallDigest, Fault> {
        repeat_digest(workspace, (self.lane, self.seq), self.args, bound)
    }
}

fn repeat_digest(
    workspace: &Workspace,
    place: (regent_ledger::LaneId, u64),
    args: Option<Digest>,
    bound: &Bound,
) -> Result<CallDigest, Fault> {
    let whole = json!({
        "args": args,
        "files": bound.files,
        "in_doubt": place,
        "root": workspace.root().to_string_lossy(),
        "tree": bound.tree,
    });
    Ok(CallDigest(Digest::of(CanonicalJson::of(&whole)?.as_str().as_bytes())))
}

/// Looks up every word in every folder that the words lead to from the root or the working folder, one below the other
/// (`cd a && cd b && sh x.sh`).
fn in_every_folder(
    workspace: &Workspace,
    cwd: &str,
    words: &Words,
    found: &mut BTreeMap<Vec<u8>, Digest>,
) -> Result<(), Reason> {
    let mut folders = vec![b".".to_vec()];
    if let NamedEntry::Folder(cwd) = look_up(workspace, cwd.as_bytes(), found)?
        && !folders.contains(&cwd)
    {
        folders.push(cwd);
    }
    let (mut at, mut lookups) = (0_usize, 0_usize);
    while let Some(folder) = folders.get(at).cloned() {
        at = at.saturating_add(1);
        lookups = lookups.saturating_add(words.all.len());
        if folders.len() > FOLDERS_MAX || lookups > LOOKUPS_MAX {
            return Err(too_much());
        }
        for word in &words.all {
            if let NamedEntry::Folder(below) = look_up(workspace, &joined(&folder, word), found)?
                && !folders.contains(&below)
            {
                folders.push(below);
            }
        }
    }
    Ok(())
}

/// Texts that a program is given beside its arguments: its input, its variables.
fn inputs(args: &Value, tool: Option<&Tool>) -> Vec<String> {
    let mut rest = args.clone();
    for pointer in tool.into_iter().flat_map(|tool| tool.spec().arguments.keys()) {
        if let Some(declared) = rest.pointer_mut(pointer) {
            *declared = Value::Null;
        }
    }
    let (mut left, mut texts) = (vec![rest], Vec::new());
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) => texts.push(text),
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => left.extend(fields.into_iter().map(|(_, value)| value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    texts
}

/// Finds out what a name leads to, and takes it down if it is a file in the workspace.
fn look_up(
    workspace: &Workspace,
    name: &[u8],
    found: &mut BTreeMap<Vec<u8>, Digest>,
) -> Result<NamedEntry, Reason> {
    let entry = workspace.named_entry(name).map_err(|error| unreadable(&shown(name), &error))?;
    if let NamedEntry::File(spelling, digest) = &entry {
        found.insert(spelling.clone(), *digest);
    }
    Ok(entry)
}

fn joined(folder: &[u8], name: &str) -> Vec<u8> {
    match folder {
        _anywhere if name.starts_with('/') => name.as_bytes().to_vec(),
        b"." => name.as_bytes().to_vec(),
        b"/" => [b"/", name.as_bytes()].concat(),
        folder => [folder, b"/", name.as_bytes()].concat(),
    }
}

fn unreadable(name: &str, error: &PathError) -> Reason {
    let message = format!("an approval can't be bound to `{name}`: {error}");
    refusal("approval.unbound", message, "make it a file that Regent can read, or leave it out of the call")
}

fn unknown_tree(error: &TreeError) -> Reason {
    let TreeError { name, why } = error;
    let message = format!(
        "the call makes names of files at run time, so its approval would be bound to the whole workspace, and `{name}` is in the way: {why}"
    );
    refusal("approval.unbound", message, "write out the names of the files that the call runs")
}

fn too_much() -> Reason {
    let message = format!(
        "the call names more than an approval can be bound to ({WORDS_MAX} names, {FOLDERS_MAX} folders, {FILES_MAX} files in the workspace)"
    );
    refusal("approval.unbound", message, "split it into several calls")
}
