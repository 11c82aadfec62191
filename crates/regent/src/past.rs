//! What the ledger tells, without a kernel: through the lookup index, so that a question about one task doesn't read all of history. What a
//! process that died wrote last is in no index; it is searched for, because a task that shows only after the next start is one that
//! somebody gives twice.
//!
//! The index proves nothing. Resuming a task reads the ledger itself.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regent_kernel::{Digest, Fault, TaskId};
use regent_ledger::{EntryPlace, PayloadKey, ReadError, Reader};
use regent_lookup::{Cost, GroupBy, Lookup, LookupError};
use regent_runtime::task::{self, Recorded, Tape, TaskIndex as _};
use regent_runtime::{TaskState, TaskView};

use crate::codes;
use crate::commands::audit;
use crate::compose::index::Index;
use crate::compose::{self, error_chain, tasks};
use crate::context::Context;
use crate::failure::Failure;
use crate::paths::make_private;
use crate::{secrets, state, term};

/// More tasks with one prefix need not be distinguished.
const ALIKE_MAX: u32 = 1_000;

/// A project's ledger and its index, up to date.
pub(crate) struct Past<'c> {
    context: &'c Context,
    locks: PathBuf,
    reader: Reader,
    /// None where nothing has happened yet.
    index: Option<Index>,
    key: OnceCell<Option<PayloadKey>>,
}

impl<'c> Past<'c> {
    /// The ledger of the project that the command was given in.
    pub(crate) fn open(context: &'c Context) -> Result<Self, Failure> {
        let project = context.project()?;
        let folder = project.audit();
        // A ledger that was removed is not an empty one.
        compose::ledger::demand_kept(&context.paths, &project)?;
        let index = if folder.is_dir() {
            let lookup = refreshed(context, &folder)?;
            Some(Index::over(lookup, &index_place(context, &folder)?, Reader::new(&folder)))
        } else {
            None
        };
        let locks = tasks::locks_folder(context, &project);
        Ok(Self { context, locks, reader: Reader::new(&folder), index, key: OnceCell::new() })
    }

    /// The one task whose id begins like this.
    pub(crate) fn find(&self, id: &str) -> Result<TaskId, Failure> {
        let alike = match self.index.as_ref().filter(|_| !id.is_empty()) {
            Some(index) => index.tasks(id, ALIKE_MAX).map_err(|error| failed(&error))?,
            None => Vec::new(),
        };
        meant(id, &alike)
    }

    /// The newest tasks, the oldest of them first.
    pub(crate) fn newest(&self, count_max: u32) -> Result<Vec<TaskView>, Failure> {
        let Some(index) = &self.index else { return Ok(Vec::new()) };
        let ids = index.newest(count_max).map_err(|error| failed(&error))?;
        let mut views = Vec::new();
        for tape in self.tapes(&ids)?.values() {
            views.extend(tape.view(&|entry, digest| self.payload(entry, digest))?);
        }
        views.sort_by(|one, other| {
            (one.created_ms, &one.record.task).cmp(&(other.created_ms, &other.record.task))
        });
        Ok(views)
    }

    /// One task.
    pub(crate) fn task(&self, task: &TaskId) -> Result<TaskView, Failure> {
        let tapes = self.tapes(&[task.to_string()])?;
        let view = tapes
            .get(task)
            .map(|tape| tape.view(&|entry, digest| self.payload(entry, digest)))
            .transpose()?
            .flatten();
        view.ok_or_else(|| Failure::new(codes::TASK_UNKNOWN, format!("task `{task}` was never recorded")))
    }

    /// Whether the process that ran a task is gone without having recorded the task's state.
    pub(crate) fn is_interrupted(&self, view: &TaskView) -> Result<bool, Failure> {
        match view.state {
            TaskState::Initialized | TaskState::Running | TaskState::Retrying => {
                let runs = regent_runtime::is_running(&self.locks, &view.record.task);
                runs.map(|runs| !runs).map_err(|error| Failure::io("look at", &self.locks, &error))
            }
            TaskState::Pending
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Cancelled
            | TaskState::Finalized => Ok(false),
        }
    }

    /// The steps of a task, its own and those it shares, by name.
    pub(crate) fn steps(&self, view: &TaskView) -> Result<BTreeMap<String, Recorded>, Failure> {
        let family = view.record.ancestors.iter().map(|one| &one.task).chain([&view.record.task]);
        let family: Vec<String> = family.map(ToString::to_string).collect();
        Ok(Tape::whole(&view.record, &self.tapes(&family)?))
    }

    /// Refuses a step that a task doesn't have.
    pub(crate) fn demand_step(&self, view: &TaskView, at: &str) -> Result<(), Failure> {
        let is_there =
            |step: &String| step == at || step.strip_prefix(at).is_some_and(|rest| rest.starts_with('/'));
        if self.steps(view)?.keys().any(is_there) {
            return Ok(());
        }
        let task = &view.record.task;
        let message = format!("task `{task}` has no step `{}`", term::short(at, 80));
        Err(Failure::new(codes::TASK_STEP, message).help(format!("`regent task show {task}` lists them")))
    }

    /// What was used, as receipts say.
    pub(crate) fn costs(&self, by: GroupBy, since_ms: Option<i64>) -> Result<Vec<Cost>, Failure> {
        let Some(index) = &self.index else { return Ok(Vec::new()) };
        index.costs(by, since_ms).map_err(|error| failed(&error))
    }

    fn tapes(&self, ids: &[String]) -> Result<BTreeMap<TaskId, Tape>, Failure> {
        let Some(index) = &self.index else { return Ok(BTreeMap::new()) };
        let wanted: Vec<TaskId> = ids.iter().filter_map(|id| TaskId::new(id)).collect();
        let entries = index.entries(&wanted)?;
        Ok(task::read_from(entries.into_iter().map(Ok), |task| wanted.contains(task))?)
    }

    fn payload(&self, entry: EntryPlace, digest: &Digest) -> Result<Option<Vec<u8>>, Fault> {
        match self.reader.payload_of(entry, digest, None) {
            // Spoilt, or encrypted: the vault's key tells.
            Err(ReadError::Payload(spoilt)) => match self.key() {
                Some(key) => Ok(self.reader.payload_of(entry, digest, Some(key))?),
                None => Err(ReadError::Payload(spoilt).into()),
            },
            read => Ok(read?),
        }
    }

    fn key(&self) -> Option<&PayloadKey> {
        let opened = || {
            let vault = secrets::vault(self.context).ok()?;
            compose::payload_key(&vault).ok()
        };
        self.key.get_or_init(opened).as_ref()
    }
}

/// The one task whose id begins like this, found without bringing the index up to date: that takes long after much has been written.
pub(crate) fn find_task(context: &Context, id: &str) -> Result<TaskId, Failure> {
    let alike = if id.is_empty() { Vec::new() } else { tasks::beginning_with(context, id, ALIKE_MAX)? };
    meant(id, &alike)
}

/// Which of the tasks that begin like this is meant.
fn meant(id: &str, alike: &[String]) -> Result<TaskId, Failure> {
    let unknown = |message: String| Failure::new(codes::TASK_UNKNOWN, message);
    // A whole id is meant even if another begins with it.
    let meant = match alike {
        [one] => Some(one),
        many => many.iter().find(|one| *one == id),
    };
    match meant.and_then(|id| TaskId::new(id)) {
        Some(task) => Ok(task),
        None if alike.is_empty() => Err(unknown(format!("no task matches `{}`", term::short(id, 80)))
            .help("`regent task list` shows them")),
        None => Err(unknown(format!("{} tasks begin with `{}`", alike.len(), term::inline(id)))
            .help("give more of the id")),
    }
}

/// A ledger's index, up to date.
pub(crate) fn refreshed(context: &Context, folder: &Path) -> Result<Lookup, Failure> {
    refreshed_some(context, folder, u64::MAX)
}

/// The same where it is enough to be nearly up to date: so many entries are indexed at most.
pub(crate) fn refreshed_some(context: &Context, folder: &Path, count_max: u64) -> Result<Lookup, Failure> {
    let mut lookup = Lookup::open(&index_place(context, folder)?).map_err(|error| failed(&error))?;
    lookup.refresh_some(&Reader::new(folder), count_max).map_err(|error| failed(&error))?;
    Ok(lookup)
}

/// Where the index of a ledger is.
fn index_place(context: &Context, folder: &Path) -> Result<PathBuf, Failure> {
    let folder = folder.canonicalize().map_err(|error| Failure::io("enter", folder, &error))?;
    let path = context.paths.lookup(&folder);
    make_private(path.parent().unwrap_or(Path::new(".")))?;
    Ok(path)
}

/// The words are SQLite's own and stable; its codes are not in this crate's reach.
fn is_code(error: &dyn std::error::Error, words: &str) -> bool {
    error.to_string().contains(words)
}

/// Why nothing can be looked up.
pub(crate) fn failed(error: &LookupError) -> Failure {
    match error {
        LookupError::Ledger(error) => audit::unreadable(error),
        LookupError::Body(error) => audit::unreadable_body(error),
        LookupError::Index(index) if is_code(index, "disk is full") || is_code(index, "disk I/O") => {
            state::full(format!("the lookup index can't be written: {index}"))
        }
        LookupError::Index(index) if is_code(index, "is locked") => Failure {
            exit: codes::exit::TEMPORARY,
            ..Failure::new(codes::STATE_UNUSABLE, "another process has locked the lookup index")
        }
        .help("try again in a moment"),
        LookupError::Index(_) | LookupError::Io(_) => Failure::new(codes::STATE_UNUSABLE, error_chain(error))
            .help("it is derived from the ledger: `regent gc` removes it, and the next query rebuilds it"),
    }
}
