//! The runtime over a kernel that is up: where its locks and snapshots are, and who asks the user.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use regent_kernel::{
    Confidentiality, Inference, Integrity, Label, Message, PersonRole, Principal, Reader, Role, Sampling,
    Tier,
};
use regent_runtime::agent::Craft;
use regent_runtime::context::Guardrails;
use regent_runtime::door::Asker;
use regent_runtime::snapshot::{SnapshotOptions, Snapshots};
use regent_runtime::task::TaskIndex;
use regent_runtime::{Checkpoints, Options, Runtime};

use super::BootedKernel;
use super::index::Index;
use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::past;
use crate::paths::{Project, make_private};

/// Tasks that run side by side in one process.
const RUNNING_MAX: usize = 64;
/// A snapshot of the workspace is taken after each turn that changed something; the runtime leaves some out where that takes long.
const SNAPSHOT_EVERY_TURNS: u32 = 1;
const SNAPSHOT_EVERY_MS: u64 = 60_000;
const SNAPSHOT_REST_TIMES: u64 = 10;
/// What a model in this process is offered where nobody names tools: what most tasks need. Everything that there is would be thousands of
/// tokens of prompt, minutes of reading on a small machine, and a small model picks the wrong one of many.
const SMALL_SET: [&str; 9] = [
    "fs.append",
    "fs.delete",
    "fs.edit",
    "fs.list",
    "fs.move",
    "fs.read",
    "fs.search",
    "fs.write",
    "shell.exec",
];
/// How skills are read up on, where there are some.
const READ_SKILL: &str = "skill.read";

/// The tools of a task that names none: a few where a model in this process will do it, and all that can be run elsewhere (`None`).
pub(crate) fn usual_tools(running: &BootedKernel, model: &str) -> Option<Vec<String>> {
    if !is_local(running, model) {
        return None;
    }
    // Skills were installed on purpose, so they are offered as well.
    let skills = running.skills.check_all();
    let skills =
        skills.iter().filter(|(_, checked)| checked.is_ok()).map(|(name, _)| format!("skill.{name}"));
    let mut wanted: BTreeSet<String> = skills.collect();
    if !wanted.is_empty() {
        wanted.insert(READ_SKILL.to_owned());
    }
    wanted.extend(SMALL_SET.map(str::to_owned));
    let runs = |name: &String| {
        let tool = running.kernel.tool(name);
        tool.is_some_and(|tool| tool.spec().tiers.iter().any(|tier| *tier != Tier::Instruction))
    };
    Some(wanted.into_iter().filter(runs).collect())
}

/// Whether a task on this model begins in this process: the model is named, or it is what `auto` means now.
fn is_local(running: &BootedKernel, model: &str) -> bool {
    let hub = &running.hub;
    let message = Message::new(Role::User, "");
    let asked = Inference {
        model: model.to_owned(),
        messages: vec![message],
        tools: Vec::new(),
        tokens_max: 1,
        sampling: Sampling::default(),
    };
    let label = Label { integrity: Integrity::Operator, confidentiality: Confidentiality::Internal };
    let is_open = model == "auto" || model.starts_with("auto:");
    let chosen = is_open.then(|| hub.explain(&asked, label).fitting().next().map(str::to_owned)).flatten();
    let wanted = chosen.as_deref().unwrap_or(model);
    let names = |listed: &str| listed == wanted || listed.split('/').next() == Some(wanted);
    hub.list().iter().find(|one| names(&one.model)).is_some_and(|one| one.kind == "local")
}

/// Where the snapshots of a project are kept.
pub(crate) fn snapshots_folder(context: &Context, project: &Project) -> PathBuf {
    context.paths.tasks(&project.root).join("snapshots")
}

/// Where the locks of a project's tasks are. The process that runs a task holds its lock.
pub(crate) fn locks_folder(context: &Context, project: &Project) -> PathBuf {
    context.paths.tasks(&project.root).join("locks")
}

/// What a task does when a call needs an approval.
#[derive(Debug)]
pub(crate) enum Asks {
    /// It asks here, and waits.
    At(Arc<dyn Asker>),
    /// It stops, and can be resumed when there is an answer.
    Later,
    /// It continues without the call.
    Nobody,
}

/// A runtime that keeps its locks and snapshots outside the project: what comes with a download must not bring its own.
pub(crate) fn runtime(context: &Context, running: &BootedKernel, asks: Asks) -> Result<Runtime, Failure> {
    may_run(&running.caller())?;
    let project = context.project()?;
    let folder = context.paths.tasks(&project.root);
    make_private(&folder)?;
    let store = Snapshots::open(&snapshots_folder(context, &project), SnapshotOptions::default())
        .map_err(|error| Failure::new(codes::IO, error.to_string()))?;
    let checkpoints = Checkpoints {
        store: Arc::new(store),
        workspace: running.host.workspace().clone(),
        every_turns: SNAPSHOT_EVERY_TURNS,
        every_ms: SNAPSHOT_EVERY_MS,
        rest_times: SNAPSHOT_REST_TIMES,
    };
    let unattended = matches!(asks, Asks::Nobody);
    let asker = if let Asks::At(asker) = asks { Some(asker) } else { None };
    let guardrails = Guardrails { forbidden: context.settings.forbidden(), ..Guardrails::default() };
    let options = Options {
        craft: Craft { guardrails, ..Craft::default() },
        asker,
        unattended,
        running_max: RUNNING_MAX,
        locks: Some(locks_folder(context, &project)),
        snapshots: Some(checkpoints),
        index: index(context, running, &project),
        ..Options::default()
    };
    Ok(Runtime::new(running.kernel.clone(), running.task_owner(), options))
}

/// Refuses callers whose role has no tasks. The kernel refuses each of their calls too, with the first operation that a task happens to need.
fn may_run(caller: &Principal) -> Result<(), Failure> {
    match caller.role() {
        Some(role @ (PersonRole::Viewer | PersonRole::Approver)) => {
            let message = format!("the role {role} can't run tasks");
            Err(Failure::named("auth.role", codes::exit_of("auth.role"), message)
                .help("requires the role operator or admin"))
        }
        Some(PersonRole::Operator | PersonRole::Admin) | None => Ok(()),
    }
}

/// Finds tasks in the project's ledger. The folder for it must be there; without it all of the ledger is read.
fn index(context: &Context, running: &BootedKernel, project: &Project) -> Option<Arc<dyn TaskIndex>> {
    Some(Arc::new(index_over(context, project, running.host.records().reader())?))
}

fn index_over(context: &Context, project: &Project, reader: Reader) -> Option<Index> {
    let place = context.paths.lookup(&project.audit().canonicalize().ok()?);
    make_private(place.parent()?).ok()?;
    Some(Index::new(&place, reader))
}

/// The tasks of the project whose ids begin like this, at most about so many. No kernel is needed.
pub(crate) fn beginning_with(context: &Context, id: &str, count_max: u32) -> Result<Vec<String>, Failure> {
    let project = context.project()?;
    let Some(index) = index_over(context, &project, Reader::new(&project.audit())) else {
        return Ok(Vec::new());
    };
    index.tasks(id, count_max).map_err(|error| past::failed(&error))
}

#[cfg(test)]
mod tests {
    use regent_models::wire::schema::{restored, strict, strict_problem};
    use regent_runtime::plan::Plan;
    use serde_json::{Value, json};

    #[test]
    fn d5_our_own_schemas_have_a_strict_form_that_breaks_no_rule() {
        let tools = regent_tools::specs().into_iter().map(|spec| (spec.name.clone(), spec.input.clone()));
        let all: Vec<(String, Value)> = tools.chain([("plan".to_owned(), Plan::schema())]).collect();
        assert!(all.len() > 10);
        for (name, schema) in all {
            let has_properties = schema["properties"].as_object().is_some_and(|all| !all.is_empty());
            match strict(&schema) {
                Some(strict) => assert_eq!(strict_problem(&strict), None, "{name}"),
                None => assert!(!has_properties, "{name}: {schema}"),
            }
        }
        let answer = json!({"steps": [{"id": "a", "goal": "g", "needs": null, "tools": ["fs.read"], "undo": {"tool": "t", "args": "{\"x\":1}"}}]});
        let expected = json!({"steps": [{"id": "a", "goal": "g", "tools": ["fs.read"], "undo": {"tool": "t", "args": {"x": 1}}}]});
        assert_eq!(restored(&Plan::schema(), answer), expected);
    }
}
