//! What an approval is bound to: who, what, where, and what the files hold that the call names or that its program reads as a script.
//!
//! Where names are made at run time (`sh $X`) no list of files is complete. Such an approval is bound to the whole workspace as well: it is
//! for one run, and any change before that run is another call. The same holds for a folder that a call deletes, moves or copies: the
//! approval is bound to everything in it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::approval::BoundFile;
use crate::command::{WORDS_MAX, Words};
use regent_ledger::{CanonicalJson, Digest};
use regent_policy::{Access, Reason};
use regent_workspace::{FolderState, NamedEntry, NamedFile, PathError, TreeError, Workspace, escape_name};
use serde_json::{Value, json};

use super::{Sheet, Target, program_target, refusal, relocates};
use crate::call::{Call, CallDigest};
use crate::catalogue::{ArgumentKind, Tool};
use crate::principal::Principal;
use crate::recovery::InDoubt;
use crate::syscall::Fault;

/// Folders that a call names, each on its own or below another: a line may change into each of them.
const FOLDERS_MAX: usize = 64;
/// Names that are looked up for one call: every word in every folder.
const LOOKUPS_MAX: usize = 50_000;
/// Names on the way to them, links included.
const STEPS_MAX: usize = 500_000;
/// Files that one approval can be bound to.
const FILES_MAX: usize = 512;
/// What these files may hold together, as far as it is read. A quarter of a second to hash.
const BYTES_MAX: u64 = 64 << 20;

/// The files that a call is bound to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    /// By their resolved spelling.
    pub(crate) files: Vec<BoundFile>,
    /// Folders that the call deletes, moves or copies, with everything in them.
    pub(crate) trees: Vec<BoundTree>,
    /// The state of the whole workspace, where the call can reach further files by names that are made at run time.
    pub(crate) tree: Option<Digest>,
    /// Why the approval is for one run: what in the call makes such names, or which folders it covers.
    pub(crate) open_why: Option<String>,
}

impl Bound {
    /// What a digest covers beside the files. Without folders it is what it was before folders were bound, so that approvals stay valid.
    fn beyond_files(&self) -> Value {
        if self.trees.is_empty() {
            return json!(self.tree);
        }
        let tree = |tree: &BoundTree| json!([tree.path, tree.state.entries, tree.state.digest]);
        json!([self.tree, self.trees.iter().map(tree).collect::<Vec<_>>()])
    }
}

/// A folder that a call is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoundTree {
    path: String,
    pub(crate) state: FolderState,
}

impl BoundTree {
    /// Whether it is the folder of this spelling.
    pub(crate) fn is_at(&self, spelling: &str) -> bool {
        self.path == spelling
    }
}

/// The survey of the whole workspace, made on first use.
pub(crate) type TreeState = Option<Result<Digest, TreeError>>;

/// What has to be looked up to bind a call. It borrows nothing, so that another thread can do it.
#[derive(Debug)]
pub(crate) struct Binding {
    targets: Vec<Target>,
    args: Value,
    tool: Option<Arc<Tool>>,
}

impl Binding {
    /// For a call that was recorded: its arguments are those that were judged.
    pub(crate) fn of_recorded(tool: Option<Arc<Tool>>, args: &Value) -> Self {
        let declared = tool.iter().flat_map(|tool| &tool.spec().arguments);
        let targets = declared.filter_map(|(pointer, kind)| match (kind, args.pointer(pointer)?) {
            (ArgumentKind::Path(access), Value::String(path)) => {
                Some(Target::Path { path: path.clone(), access: *access })
            }
            (ArgumentKind::Argv, Value::Array(_)) | (ArgumentKind::Shell, Value::String(_)) => {
                program_target(*kind, args.pointer(pointer)?)
            }
            _no_file => None,
        });
        Self { targets: targets.collect(), args: args.clone(), tool: tool.clone() }
    }

    /// Looks up the files that the call names. Reads up to [`BYTES_MAX`] and the whole tree, so it has a thread of its own.
    pub(crate) async fn bind(self, workspace: &Workspace) -> Result<Bound, Reason> {
        let names_files = |target: &Target| matches!(target, Target::Path { .. } | Target::Argv(_));
        if !self.targets.iter().any(names_files) {
            return self.bind_here(workspace, &mut None);
        }
        let workspace = workspace.clone();
        let bound = tokio::task::spawn_blocking(move || self.bind_here(&workspace, &mut None)).await;
        bound.unwrap_or_else(|error| {
            let message = format!("the files that the call names can't be looked up: {error}");
            Err(refusal("approval.unbound", message, "try again; `regent doctor` checks this machine"))
        })
    }

    /// The same on this thread. What can't be looked at, or is too much to look at, is a refusal.
    pub(crate) fn bind_here(&self, workspace: &Workspace, tree: &mut TreeState) -> Result<Bound, Reason> {
        let mut words = Words::default();
        let mut names = NamedFiles { workspace, steps_left: STEPS_MAX, files: BTreeMap::new() };
        let (mut runs_program, mut trees) = (false, Vec::new());
        for target in &self.targets {
            match target {
                Target::Path { path, access } => {
                    let is_folder = matches!(names.look_up(path.as_bytes())?, NamedEntry::Folder(_));
                    let is_source = *access == Access::Read && relocates(&self.targets);
                    if is_folder && (is_source || *access == Access::Delete) {
                        trees.extend(folder_tree(workspace, path)?);
                    }
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
            for text in inputs(&self.args, self.tool.as_deref()) {
                words.add_input(&text);
            }
        }
        if words.all.len() > WORDS_MAX {
            return Err(too_much());
        }
        // The working folder was resolved when the call was judged; without one, programs run at the root.
        let cwd = self.args.get("cwd").and_then(Value::as_str).unwrap_or(".");
        names.look_up_everywhere(cwd, &mut words)?;
        let files = names.digests()?;
        if let Some(why) = words.open_why() {
            let tree = tree.get_or_insert_with(|| workspace.tree_digest());
            let tree = Some(tree.as_ref().map_err(unknown_tree).copied()?);
            return Ok(Bound { files, trees, tree, open_why: Some(why) });
        }
        let covers = |tree: &BoundTree| {
            format!("it covers `{}` with {} entries", escape_name(tree.path.as_bytes()), tree.state.entries)
        };
        let open_why = (!trees.is_empty()).then(|| trees.iter().map(covers).collect::<Vec<_>>().join("; "));
        Ok(Bound { files, trees, tree: None, open_why })
    }
}

/// Whom an approval is for: one agent with its key. An agent that resumes a task is a new one; there the task counts.
fn standing(who: &Principal) -> Cow<'_, [String]> {
    match who.step() {
        Some(step) => {
            Cow::Owned(vec![who.sponsor().to_owned(), format!("task:{}", step.task), who.name().to_owned()])
        }
        None => Cow::Borrowed(who.chain()),
    }
}

impl Sheet {
    /// What has to be looked up to bind the final call.
    pub(crate) fn binding(&self) -> Binding {
        Binding { targets: self.resources.clone(), args: self.args.clone(), tool: self.tool.clone() }
    }

    /// What the approval was bound to, and how to look it up again before the call runs.
    pub(crate) fn take_agreed(&mut self) -> Option<(Bound, Binding)> {
        self.agreed.take().map(|bound| (bound, self.binding()))
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
            "tree": bound.beyond_files(),
        });
        Ok(CallDigest(Digest::compute(CanonicalJson::encode(&whole)?.as_str().as_bytes())))
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
        "tree": bound.beyond_files(),
    });
    Ok(CallDigest(Digest::compute(CanonicalJson::encode(&whole)?.as_str().as_bytes())))
}

/// The files in the workspace that the names of a call lead to.
struct NamedFiles<'w> {
    workspace: &'w Workspace,
    steps_left: usize,
    /// By their resolved spelling, so that each is read once however many names lead to it.
    files: BTreeMap<Vec<u8>, NamedFile>,
}

impl NamedFiles<'_> {
    /// Finds out what a name leads to, and takes it down if it is a file in the workspace.
    fn look_up(&mut self, name: &[u8]) -> Result<NamedEntry, Reason> {
        let entry = match self.workspace.named_entry(name, &mut self.steps_left) {
            Err(PathError::TooManyNames) if self.steps_left == 0 => return Err(too_much()),
            entry => entry.map_err(|error| unreadable(&escape_name(name), &error))?,
        };
        if let NamedEntry::File(file) = &entry {
            self.files.insert(file.spelling.clone(), file.clone());
        }
        Ok(entry)
    }

    /// Looks up every word in every folder that the words lead to from the root or the working folder, one below the other
    /// (`cd a && cd b && sh x.sh`). Links say what the programs among them really are.
    fn look_up_everywhere(&mut self, cwd: &str, words: &mut Words) -> Result<(), Reason> {
        let mut folders = vec![b".".to_vec()];
        if let NamedEntry::Folder(cwd) = self.look_up(cwd.as_bytes())?
            && !folders.contains(&cwd)
        {
            folders.push(cwd);
        }
        let all: Vec<String> = words.all.iter().cloned().collect();
        let (mut at, mut lookups) = (0_usize, 0_usize);
        while let Some(folder) = folders.get(at).cloned() {
            at = at.saturating_add(1);
            lookups = lookups.saturating_add(all.len());
            if folders.len() > FOLDERS_MAX || lookups > LOOKUPS_MAX {
                return Err(too_much());
            }
            for word in &all {
                match self.look_up(&joined(&folder, word))? {
                    NamedEntry::Folder(below) if !folders.contains(&below) => folders.push(below),
                    NamedEntry::File(file) if file.is_program => words.add_own_program(),
                    NamedEntry::Outside(program) => words.add_program(&escape_name(&program)),
                    NamedEntry::Absent | NamedEntry::Folder(_) | NamedEntry::File(_) => {}
                }
            }
        }
        Ok(())
    }

    fn digests(self) -> Result<Vec<BoundFile>, Reason> {
        let bytes: u64 = self.files.values().map(|file| file.bytes).sum();
        if self.files.len() > FILES_MAX || bytes > BYTES_MAX {
            return Err(too_much());
        }
        let digest = |file: NamedFile| {
            let path = escape_name(&file.spelling);
            match self.workspace.file_digest(&file) {
                Ok(sha256) => Ok(BoundFile { path, sha256 }),
                Err(error) => Err(unreadable(&path, &error)),
            }
        };
        self.files.into_values().map(digest).collect()
    }
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

fn joined(folder: &[u8], name: &str) -> Vec<u8> {
    match folder {
        _anywhere if name.starts_with('/') => name.as_bytes().to_vec(),
        b"." => name.as_bytes().to_vec(),
        b"/" => [b"/", name.as_bytes()].concat(),
        folder => [folder, b"/", name.as_bytes()].concat(),
    }
}

/// Everything in a folder, if the path is one.
fn folder_tree(workspace: &Workspace, path: &str) -> Result<Option<BoundTree>, Reason> {
    match workspace.folder_state(path) {
        Ok(state) => Ok(state.map(|state| BoundTree { path: path.to_owned(), state })),
        Err(TreeError { name, why }) => {
            let message = format!("an approval can't be bound to what is in the folder: `{name}`: {why}");
            Err(refusal("approval.unbound", message, "name a smaller folder, or what is in it one by one"))
        }
    }
}

fn unreadable(name: &str, error: &PathError) -> Reason {
    let message = format!("an approval can't be bound to `{name}`: {error}");
    refusal("approval.unbound", message, "make it a regular, readable file, or remove it from the call")
}

fn unknown_tree(error: &TreeError) -> Reason {
    let TreeError { name, why } = error;
    let message = format!(
        "the call builds file names at run time, so its approval would be bound to the whole workspace, which `{name}` prevents: {why}"
    );
    refusal("approval.unbound", message, "name the files that the call runs explicitly")
}

fn too_much() -> Reason {
    let message = format!(
        "the call names more than an approval can be bound to ({WORDS_MAX} names, {FOLDERS_MAX} folders, {FILES_MAX} files with {} MiB in the workspace)",
        BYTES_MAX >> 20
    );
    refusal("approval.unbound", message, "split it into several calls")
}
