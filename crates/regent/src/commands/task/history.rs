//! `task cancel`, `replay`, `diff` and `rollback`: what is done to tasks that don't run here.

use regent_kernel::{ApprovalAnswer, Op, OpenQuestion, Signal, TaskId};
use regent_runtime::snapshot::Restored;
use regent_runtime::task::{self, Brief};
use regent_runtime::{Runtime, TaskError};
use serde_json::json;

use super::restored::{AHEAD, DONE, changes};
use crate::calls;
use crate::codes;
use crate::commands::agent;
use crate::compose::{BootedKernel, tasks};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done, Screen};
use crate::past::Past;
use crate::prompt;
use crate::question::{self, Batch};
use crate::term;

pub(super) async fn cancel(context: &Context, id: &str) -> CommandResult {
    let task = Past::open(context)?.find(id)?;
    let running = BootedKernel::boot(context).await?;
    let result = match tasks::runtime(context, &running, tasks::Asks::Later) {
        Ok(runtime) => match put_away(context, &runtime, &task).await {
            Ok(done) => withdraw(context, &running, &task).await.map(|()| done),
            Err(failure) => Err(failure),
        },
        Err(failure) => Err(failure),
    };
    running.close(context, result).await
}

/// Denies what the task's calls still ask for: nobody needs the answers any more. Who may cancel a task may not be one who answers; then
/// the questions stay until they expire.
async fn withdraw(context: &Context, running: &BootedKernel, task: &TaskId) -> Result<(), Failure> {
    let caller = running.caller();
    let open: Vec<OpenQuestion> =
        calls::result(&calls::call(context, running, &caller, Op::Questions).await?)?;
    let mut kept = 0_u64;
    for question in open.iter().filter(|one| question::task_of(&running.host, one).as_ref() == Some(task)) {
        let answer = ApprovalAnswer::Deny { because: Some("the task was cancelled".to_owned()) };
        let op = Batch::alone(question.clone()).answered_by(answer);
        match calls::call(context, running, &caller, op).await {
            Ok(_) => {}
            Err(refused) if refused.exit == codes::exit::DENIED => kept = kept.saturating_add(1),
            Err(failure) => return Err(failure),
        }
    }
    if kept > 0 {
        let kept = term::count(kept, "question");
        context.screen.say(&format!("regent: {kept} of the task stay open: your role can't answer them\n"));
    }
    Ok(())
}

async fn put_away(context: &Context, runtime: &Runtime, task: &TaskId) -> CommandResult {
    match runtime.cancel(task).await {
        Ok(()) => Ok(Done::new(json!({"task": task, "cancelled": true}), format!("cancelled {task}\n"))),
        Err(TaskError::Busy(_)) => {
            // It runs in another process, and a signal can end its agent there.
            let Some(agent) = runtime.task(task)?.agent else {
                return Err(TaskError::Busy(task.clone()).into());
            };
            agent::deliver(context, &agent, Signal::Term, true).await?;
            Ok(Done::new(
                json!({"task": task, "cancelled": true, "agent": agent}),
                format!("signalled the agent of {task} to end\n"),
            ))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn replay(context: &Context, id: &str) -> CommandResult {
    let task = Past::open(context)?.find(id)?;
    let running = BootedKernel::boot(context).await?;
    let result = match tasks::runtime(context, &running, tasks::Asks::Later) {
        Ok(runtime) => replay_with(context, &runtime, &task).await,
        Err(failure) => Err(failure),
    };
    running.close(context, result).await
}

async fn replay_with(context: &Context, runtime: &Runtime, task: &TaskId) -> CommandResult {
    let replayed = runtime.replay(task).await?;
    let data = json!({
        "task": task, "steps": replayed.steps, "answer": replayed.answer.text, "same": replayed.same, "byte_identical": true,
    });
    if !replayed.same {
        return Err(Failure::new(
            codes::TASK_REPLAY,
            format!("the replay of task `{task}` gave another answer"),
        )
        .data(data));
    }
    let text = format!(
        "{} {task}: {} steps replayed from the ledger, every prompt and call byte for byte as recorded; no model was asked and no tool ran\n\n{}\n",
        context.screen.good("same"),
        replayed.steps,
        term::block(&replayed.answer.text)
    );
    Ok(Done::new(data, text))
}

pub(super) fn diff(context: &Context, left: &str, right: &str) -> CommandResult {
    let past = Past::open(context)?;
    let (left, right) = (past.find(left)?, past.find(right)?);
    let steps = |id: &TaskId| past.steps(&past.task(id)?);
    let differences = task::diff(&steps(&left)?, &steps(&right)?);
    let mut text = String::new();
    for one in &differences {
        text.push_str(&format!("{}\n", context.screen.strong(&term::inline(&one.step))));
        for (mark, task, brief) in [("-", &left, &one.left), ("+", &right, &one.right)] {
            text.push_str(&format!("  {mark} {task}  {}\n", brief_line(&context.screen, brief.as_ref())));
        }
    }
    if differences.is_empty() {
        text.push_str("no difference: both made the same calls at every step\n");
    }
    Ok(Done::new(json!({"left": left, "right": right, "differences": differences}), text))
}

fn brief_line(screen: &Screen, brief: Option<&Brief>) -> String {
    let Some(brief) = brief else { return screen.faint("no such step") };
    let start = |digest: &str| digest.chars().take(12).collect::<String>();
    let output = brief.output.as_deref().map(|digest| format!(" → {}", start(digest))).unwrap_or_default();
    let (what, status) = (term::inline(&brief.what), term::short(&brief.status, 80));
    format!("{what} {status} {}", screen.faint(&format!("call {}{output}", start(&brief.call))))
}

pub(super) async fn rollback(context: &Context, id: &str, to: Option<&str>, yes: bool) -> CommandResult {
    let past = Past::open(context)?;
    let task = past.find(id)?;
    let view = past.task(&task)?;
    if let Some(to) = to.filter(|to| !view.snapshots.iter().any(|(id, _)| id == to)) {
        past.demand_step(&view, to)?;
    }
    let running = BootedKernel::boot(context).await?;
    let result = match tasks::runtime(context, &running, tasks::Asks::Later) {
        Ok(runtime) => put_back(context, &runtime, &task, to, yes).await,
        Err(failure) => Err(failure),
    };
    running.close(context, result).await
}

async fn put_back(
    context: &Context,
    runtime: &Runtime,
    task: &TaskId,
    to: Option<&str>,
    yes: bool,
) -> CommandResult {
    let view = runtime.task(task)?;
    let to = match (to, view.snapshots.first()) {
        (Some(to), _) => to.to_owned(),
        (None, Some((id, _))) => id.clone(),
        (None, None) => {
            let message = format!("no snapshot of the workspace was taken for task `{task}`");
            return Err(Failure::new(codes::TASK_SNAPSHOT, message));
        }
    };
    let (id, after) = runtime.snapshot(task, &to)?;
    let ahead = runtime.foresee(task, &id).await?;
    let data =
        |restored: &Restored| json!({"task": task, "snapshot": id, "after": after, "restored": restored});
    if ahead.is_nothing() {
        let text = format!(
            "{}nothing to do: the workspace matches the snapshot after step {}\n",
            changes(&context.screen, &ahead, AHEAD),
            term::inline(&after)
        );
        return Ok(Done::new(data(&ahead), text));
    }
    if !yes {
        agree(context, &changes(&context.screen, &ahead, AHEAD)).await?;
    }
    let restored = runtime.rollback(task, &id).await?;
    let undo = format!("`regent task rollback {task} --to {}` undoes this", restored.before);
    let shown = changes(&context.screen, &restored, DONE);
    if !restored.failed.is_empty() {
        context.screen.say(&shown);
        let message =
            format!("{} of the files could not be restored; the others were", restored.failed.len());
        return Err(Failure::new(codes::TASK_ROLLBACK, message).help(undo).data(data(&restored)));
    }
    let but = match restored.left_out.len() + restored.left.len() {
        0 => String::new(),
        kept => format!(", except for {kept} that no snapshot has"),
    };
    let text = format!(
        "{shown}the workspace matches the snapshot after step {}{but}; {undo}\n",
        term::inline(&after)
    );
    Ok(Done::new(data(&restored), text))
}

/// Shows what would change, and asks. Only an explicit `y` confirms.
async fn agree(context: &Context, changes: &str) -> Result<(), Failure> {
    let unasked = || {
        Failure::new(codes::TERMINAL_NEEDED, "this changes files, and there is no terminal to ask on")
            .help("pass --yes to do it without asking")
    };
    let question = format!("{changes}Restore the workspace? [y/N] ");
    if prompt::confirm(&context.screen, &question, unasked).await? {
        return Ok(());
    }
    Err(Failure::new(codes::APPROVAL_REFUSED, "cancelled; nothing was changed"))
}
