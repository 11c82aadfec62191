//! `task run` and `task resume`: tasks run here, shown while they do, until each has ended or stopped.

use std::io::Read as _;
use std::sync::Arc;

use regent_kernel::{Budget, Host, Sampling, TaskId};
use regent_runtime::task::is_question;
use regent_runtime::{FollowUp, Mode, Outlook, StopCause, TaskEnd, TaskError, TaskHandle, TaskSpec};
use serde_json::{Value, json};

use super::live::Live;
use super::watch::{self, View, WatchedTasks};
use super::{RunArgs, Unattended};
use crate::asking::TerminalAsker;
use crate::codes::{self, Code};
use crate::compose::limits::{self, AskedLimits};
use crate::compose::{BootedKernel, instructions, tasks};
use crate::context::Context;
use crate::failure::Failure;
use crate::money;
use crate::output::{CommandResult, Done};
use crate::past::{self, Past};
use crate::stage::Stage;
use crate::term;

/// A goal from stdin may be so long.
const GOAL_BYTES_MAX: u64 = 256 << 10;

pub(super) async fn run(context: &Context, args: RunArgs) -> CommandResult {
    let unattended = args.unattended;
    let asked = AskedLimits { turns: args.turns, window: args.window, answer: args.max_answer };
    let prompt = args.prompt.clone();
    let mut spec = spec(args)?;
    let running = BootedKernel::boot(context).await?;
    // A name that is mistyped is refused before its templates are looked for.
    let result = match instructions::prompts(context, prompt.as_deref()) {
        Ok(prompts) => {
            spec.prompts = prompts;
            spec.limits = limits::of_task(context, &running, &spec, asked);
            begin(context, &running, spec, unattended).await
        }
        Err(failure) => Err(failure),
    };
    running.close(context, result).await
}

fn spec(args: RunArgs) -> Result<TaskSpec, Failure> {
    let RunArgs { goal, model, tools, mode, plan, budget, agent, role, priority, effort, .. } = args;
    let goal = if goal == "-" { read_goal()? } else { goal };
    if goal.trim().is_empty() {
        return Err(Failure::new(codes::TASK_GOAL, "a task needs a goal"));
    }
    Ok(TaskSpec {
        model,
        tools: tools.map(|tools| tools.into_iter().filter(|tool| !tool.is_empty()).collect()),
        changes: mode.changes(),
        role: mode.role().to_owned(),
        mode: if plan { Mode::Plan } else { Mode::React },
        budget: money::parse(&budget)?,
        agent,
        roles: role,
        priority: priority.into(),
        sampling: Sampling { effort: effort.map(Into::into), ..Sampling::default() },
        ..TaskSpec::new(goal.trim())
    })
}

fn read_goal() -> Result<String, Failure> {
    let mut goal = String::new();
    std::io::stdin()
        .lock()
        .take(GOAL_BYTES_MAX + 1)
        .read_to_string(&mut goal)
        .map_err(|error| Failure::new(codes::IO, format!("can't read stdin as text: {error}")))?;
    if goal.len() as u64 > GOAL_BYTES_MAX {
        return Err(Failure::new(codes::INPUT_SIZE, format!("a goal has at most {GOAL_BYTES_MAX} bytes")));
    }
    Ok(goal)
}

async fn begin(
    context: &Context,
    running: &BootedKernel,
    spec: TaskSpec,
    unattended: Option<Unattended>,
) -> CommandResult {
    watched(context, running, spec, unattended).await?.report(context)
}

/// Runs a new task and shows it while it runs.
pub(crate) async fn watched(
    context: &Context,
    running: &BootedKernel,
    mut spec: TaskSpec,
    unattended: Option<Unattended>,
) -> Result<TaskResult, Failure> {
    needs_a_model(context, running)?;
    is_a_model(running, &spec.model)?;
    spec.skills = skills(running);
    spec.instructions = instructions::of_task(context)?;
    let stage = Arc::new(Stage::new(context.screen));
    if spec.tools.is_none() {
        spec.tools = tasks::usual_tools(running, &spec.model);
        // A small model only writes lists.
        spec.todo = spec.tools.is_none();
        if let (Some(tools), false) = (&spec.tools, context.screen.json) {
            let line = format!(
                "tools: {} (a small set for a local model; choose others with --tools)",
                tools.join(", ")
            );
            stage.line(&stage.screen().faint(&line));
        }
    }
    if spec.changes.is_none() && is_question(&spec.goal) && !context.screen.json {
        let line = "read-only, because the goal is a question (--may-write lets the task change things)";
        stage.line(&stage.screen().faint(line));
    }
    let runtime = tasks::runtime(context, running, asks(context, running, &stage, unattended))?;
    let budget = spec.budget;
    let handle = runtime.run(spec).await?;
    one_of(watch(context, &running.host, &stage, vec![handle]).await, budget)
}

pub(super) async fn resume(
    context: &Context,
    id: Option<&str>,
    budget: &[String],
    unattended: Option<Unattended>,
) -> CommandResult {
    let budget = money::parse(budget)?;
    let task = id.map(|id| past::find_task(context, id)).transpose()?;
    let running = BootedKernel::boot(context).await?;
    let result = go_on(context, &running, task, (budget, unattended)).await;
    running.close(context, result).await
}

async fn go_on(
    context: &Context,
    running: &BootedKernel,
    task: Option<TaskId>,
    (budget, unattended): (Budget, Option<Unattended>),
) -> CommandResult {
    let stage = Arc::new(Stage::new(context.screen));
    let runtime = tasks::runtime(context, running, asks(context, running, &stage, unattended))?;
    let Some(task) = task else {
        let handles = runtime.resume_all().await?;
        if handles.is_empty() {
            return Ok(Done::new(json!({"tasks": []}), "nothing to resume\n"));
        }
        let budget = match handles.as_slice() {
            [one] => Some(runtime.task(&one.task)?.record.spec.budget),
            _several => None,
        };
        let ended = watch(context, &running.host, &stage, handles).await;
        return match budget {
            // One task is reported like one that was named; only the JSON is that of a list.
            Some(budget) => {
                let one = one_of(ended, budget)?;
                one.report_with(context, json!({"tasks": [one.json()]}))
            }
            None => report_all(context, ended),
        };
    };
    needs_a_model(context, running)?;
    let limits = money::merged(runtime.task(&task)?.record.spec.budget, budget);
    if budget != Budget::default() {
        runtime.set_budget(&task, limits).await?;
    }
    let handle = runtime.resume(&task).await?;
    let ended = watch(context, &running.host, &stage, vec![handle]).await;
    one_of(ended, limits)?.report(context)
}

/// `task continue`.
pub(super) async fn say(
    context: &Context,
    id: &str,
    message: FollowUp,
    (budget, unattended): (&[String], Option<Unattended>),
) -> CommandResult {
    let budget = money::parse(budget)?;
    let task = past::find_task(context, id)?;
    let text = if message.text == "-" { read_goal()? } else { message.text };
    let message = FollowUp { text: text.trim().to_owned(), ..message };
    if message.text.is_empty() {
        return Err(Failure::new(codes::TASK_GOAL, "say what the task is to do next"));
    }
    let running = BootedKernel::boot(context).await?;
    let result = tell(context, &running, (&task, message), (budget, unattended)).await;
    running.close(context, result).await
}

async fn tell(
    context: &Context,
    running: &BootedKernel,
    (task, message): (&TaskId, FollowUp),
    (budget, unattended): (Budget, Option<Unattended>),
) -> CommandResult {
    needs_a_model(context, running)?;
    message.model.as_deref().map_or(Ok(()), |model| is_a_model(running, model))?;
    let stage = Arc::new(Stage::new(context.screen));
    let runtime = tasks::runtime(context, running, asks(context, running, &stage, unattended))?;
    let limits = money::merged(runtime.task(task)?.record.spec.budget, budget);
    if budget != Budget::default() {
        runtime.set_budget(task, limits).await?;
    }
    let Some(handle) = runtime.say(task, message).await? else {
        return Err(TaskError::Busy(task.clone()).into());
    };
    let ended = watch(context, &running.host, &stage, vec![handle]).await;
    one_of(ended, limits)?.report(context)
}

pub(super) async fn fork(context: &Context, id: &str, at: &str, model: Option<String>) -> CommandResult {
    let past = Past::open(context)?;
    let task = past.find(id)?;
    past.demand_step(&past.task(&task)?, at)?;
    let running = BootedKernel::boot(context).await?;
    let result = part(context, &running, &task, at, model).await;
    running.close(context, result).await
}

async fn part(
    context: &Context,
    running: &BootedKernel,
    task: &TaskId,
    at: &str,
    model: Option<String>,
) -> CommandResult {
    needs_a_model(context, running)?;
    model.as_deref().map_or(Ok(()), |model| is_a_model(running, model))?;
    let stage = Arc::new(Stage::new(context.screen));
    let runtime = tasks::runtime(context, running, asks(context, running, &stage, None))?;
    let handle = runtime.fork(task, at, model).await?;
    let budget = runtime.task(&handle.task)?.record.spec.budget;
    let ended = watch(context, &running.host, &stage, vec![handle]).await;
    one_of(ended, budget)?.report(context)
}

/// Without a model there is nobody to do the work.
pub(crate) fn needs_a_model(context: &Context, running: &BootedKernel) -> Result<(), Failure> {
    if !running.hub.is_empty() {
        return Ok(());
    }
    let settings = context.paths.settings();
    Err(Failure::new(codes::MODEL_NONE, "no model is set up")
        .help(format!("`regent model pull` downloads one; or set one up in `{}`", settings.display())))
}

/// A name that is mistyped is refused before there is a task of it.
pub(crate) fn is_a_model(running: &BootedKernel, model: &str) -> Result<(), Failure> {
    running.hub.check_name(model).map_err(Failure::of_reason)
}

/// A line for each skill that is installed and whole.
pub(crate) fn skills(running: &BootedKernel) -> Vec<String> {
    let checked =
        running.skills.check_all().into_iter().filter_map(|(name, checked)| Some((name, checked.ok()?)));
    checked.map(|(name, checked)| format!("skill.{name}: {}", checked.skill.description)).collect()
}

/// Who is asked: the user at the terminal, if there is one and the flag doesn't change it.
pub(crate) fn asks(
    context: &Context,
    running: &BootedKernel,
    stage: &Arc<Stage>,
    unattended: Option<Unattended>,
) -> tasks::Asks {
    let valid_ms = context.settings.approve_valid_ms();
    let terminal = || TerminalAsker::new(running, Arc::clone(stage), valid_ms);
    match unattended {
        None if context.screen.can_ask => tasks::Asks::At(Arc::new(terminal())),
        None if context.settings.denies_unattended() => tasks::Asks::Nobody,
        Some(Unattended::Deny) => tasks::Asks::Nobody,
        None | Some(Unattended::Wait) => tasks::Asks::Later,
    }
}

/// Shows a task from a turn on, until it has ended: what came before was shown when it happened.
pub(crate) async fn watch_from(
    context: &Context,
    host: &Host,
    stage: &Arc<Stage>,
    (handle, first_turn): (TaskHandle, u32),
) -> WatchedTasks {
    let live = Live::new(context, Arc::clone(stage), vec![handle.task.clone()]).starting_at(first_turn);
    watch::until_ended(View::new(live), host, stage, vec![handle]).await
}

/// Shows tasks until all have ended.
async fn watch(context: &Context, host: &Host, stage: &Arc<Stage>, handles: Vec<TaskHandle>) -> WatchedTasks {
    let tasks = handles.iter().map(|one| one.task.clone()).collect();
    let view = View::new(Live::new(context, Arc::clone(stage), tasks));
    watch::until_ended(view, host, stage, handles).await
}

/// How one task ended.
#[derive(Debug)]
pub(crate) struct TaskResult {
    end: TaskEnd,
    /// What it may use in all.
    budget: Budget,
    interrupted: bool,
}

pub(crate) fn one_of(watched: WatchedTasks, budget: Budget) -> Result<TaskResult, Failure> {
    let WatchedTasks { mut ended, interrupted } = watched;
    let none = || Failure::new(codes::INTERNAL, "the task ended without a result");
    ended.pop().map(|end| TaskResult { end, budget, interrupted }).ok_or_else(none)
}

impl TaskResult {
    /// What `--json` says.
    pub(crate) fn json(&self) -> Value {
        end_json(&self.end)
    }

    /// What the task came to, or why it came to nothing.
    pub(crate) fn answer(&self) -> Result<&str, Failure> {
        match short_of(&self.end, self.interrupted) {
            None => Ok(self.end.answer.as_ref().map_or("", |answer| &answer.text)),
            Some((code, message)) => {
                Err(Failure::new(code, message).help(help(&self.end, self.budget, code)))
            }
        }
    }

    /// The result for the user who started it. An answer of a task that left something undone is still its answer.
    pub(crate) fn report(&self, context: &Context) -> CommandResult {
        self.report_with(context, self.json())
    }

    fn report_with(&self, context: &Context, data: Value) -> CommandResult {
        let answer = match self.answer() {
            Ok(answer) => Done::new(data.clone(), term::block(answer).into_owned()),
            Err(failure) => return Err(failure.data(data)),
        };
        match undone(&self.end).or_else(|| unverified(&self.end)) {
            None => Ok(answer),
            Some(failure) => {
                context.screen.show(answer);
                Err(failure.data(data))
            }
        }
    }
}

/// Why the answer isn't borne out by what was done, if something speaks against it.
fn unverified(end: &TaskEnd) -> Option<Failure> {
    let why = end.unverified.as_ref()?;
    let task = &end.task;
    let message = format!("task `{task}` ended with an answer that isn't borne out: {}", term::inline(why));
    let help = format!(
        "`regent task show {task}` shows what it did, `regent task rollback {task}` undoes it, `regent task continue {task} \"…\"` goes on"
    );
    Some(Failure::new(codes::TASK_UNVERIFIED, message).help(help))
}

/// What was left undone because no operator was available, if anything was.
fn undone(end: &TaskEnd) -> Option<Failure> {
    if end.undone.is_empty() {
        return None;
    }
    let count = term::count(u64::try_from(end.undone.len()).unwrap_or(u64::MAX), "call");
    let lines = end.undone.iter().map(|one| format!("\n  {}: {}", one.step, term::short(&one.call, 200)));
    let message = format!(
        "task `{}` completed, but {count} {} denied, because no operator was available:{}",
        end.task,
        if end.undone.len() == 1 { "was" } else { "were" },
        lines.collect::<String>()
    );
    let help = format!(
        "`regent task show {}` says why each needs an approval; name what you want in the goal, or run it at a terminal",
        end.task
    );
    Some(Failure::new(codes::TASK_UNDONE, message).help(help))
}

/// Several tasks: how each ended, with its answer below.
fn report_all(context: &Context, watched: WatchedTasks) -> CommandResult {
    let WatchedTasks { ended, interrupted } = watched;
    let (mut text, mut rows) = (String::new(), Vec::new());
    let mut failed = None;
    for end in ended {
        let word = match short_of(&end, interrupted) {
            None if !end.undone.is_empty() => {
                failed.get_or_insert((codes::TASK_UNDONE, end.task.clone()));
                context.screen.warn(&format!("completed, {} left undone", end.undone.len()))
            }
            None if end.unverified.is_some() => {
                failed.get_or_insert((codes::TASK_UNVERIFIED, end.task.clone()));
                context.screen.warn("unverified")
            }
            None => context.screen.good("completed"),
            Some((code, message)) => {
                failed.get_or_insert((code, end.task.clone()));
                format!("{} {}", context.screen.bad(code.id), term::inline(&message))
            }
        };
        text.push_str(&format!("{}  {word}\n", end.task));
        if let Some(answer) = &end.answer {
            text.push_str(&format!("{}\n", term::block(answer.text.trim_end())));
        }
        rows.push(end_json(&end));
    }
    let data = json!({"tasks": rows});
    match failed {
        None => Ok(Done::new(data, text)),
        Some((code, task)) => {
            // The answers of the others are on stdout all the same.
            context.screen.show(Done::new(data.clone(), text));
            Err(Failure::new(code, format!("not all tasks succeeded; the first that didn't is `{task}`"))
                .help(format!("for details run `regent task show {task}`"))
                .data(data))
        }
    }
}

/// Why a task has no answer, in a code and a sentence.
pub(crate) fn short_of(end: &TaskEnd, interrupted: bool) -> Option<(Code, String)> {
    let stop = match (&end.answer, &end.why) {
        (Some(_), _) => return None,
        (None, Some(stop)) => stop,
        (None, None) => {
            return Some((codes::TASK_FAILED, format!("task `{}` ended without an answer", end.task)));
        }
    };
    let code = match (&**stop, stop.outlook()) {
        (StopCause::Waiting { .. }, _) => codes::TASK_WAITS,
        (StopCause::Used(_), _) => codes::TASK_BUDGET,
        (StopCause::Unavailable { .. }, _) if !interrupted => codes::TASK_LATER,
        (_, Outlook::Paused) => codes::TASK_PAUSED,
        (_, Outlook::Cancelled) if !interrupted => codes::TASK_CANCELLED,
        // Calls that run are stopped by taking the kernel down, which is a fault for their callers.
        _any if interrupted => codes::TASK_PAUSED,
        (_, Outlook::Again | Outlook::Later | Outlook::Never | Outlook::Cancelled) => codes::TASK_FAILED,
    };
    Some((code, format!("task `{}`: {stop}", end.task)))
}

fn help(end: &TaskEnd, budget: Budget, code: Code) -> String {
    let task = &end.task;
    match end.why.as_deref() {
        Some(StopCause::Waiting { last, calls, .. }) => {
            let all = match calls {
                0 | 1 => String::new(),
                calls => format!(", which answers all {calls} (`regent approve list` shows them)"),
            };
            format!(
                "run `regent approve {last}` or `regent deny {last}`{all}, then `regent task resume {task}`"
            )
        }
        Some(StopCause::Unavailable { .. }) => {
            format!("`regent task resume {task}` continues; no step runs twice")
        }
        Some(StopCause::Refused(_)) => format!(
            "fix what the provider reports, check it with `regent model test`, then run `regent task resume {task}`"
        ),
        // A task without limits of its own is stopped by a wider one, or by a rate.
        Some(StopCause::Used(reason)) if budget == Budget::default() => {
            let raise = reason.help.as_deref().map(|help| format!("{help}; then ")).unwrap_or_default();
            format!("{raise}`regent task resume {task}` continues")
        }
        Some(StopCause::Used(_)) => {
            let more = money::words(&money::doubled(budget));
            format!(
                "raise the budget, e.g. `regent task resume {task} --budget {more}`; limits count from the first run"
            )
        }
        _other if code == codes::TASK_PAUSED => {
            format!("`regent task resume {task}` continues, `regent task cancel {task}` ends it")
        }
        _other => format!("`regent task show {task}` shows its steps"),
    }
}

fn end_json(end: &TaskEnd) -> Value {
    let (question, calls) = match end.why.as_deref() {
        Some(StopCause::Waiting { last, calls, .. }) => (Some(last.to_string()), Some(calls)),
        _other => (None, None),
    };
    let resume_at_ms = match end.why.as_deref() {
        Some(StopCause::Unavailable { at_ms, .. }) => *at_ms,
        _other => None,
    };
    json!({
        "task": end.task,
        "resume_at_ms": resume_at_ms,
        "state": end.state,
        "answer": end.answer.as_ref().map(|answer| &answer.text),
        "unverified": end.unverified,
        "turns": end.answer.as_ref().map(|answer| answer.turns),
        "why": end.why.as_ref().map(ToString::to_string),
        "question": question,
        "waiting_calls": calls,
        "spent": end.spent,
        "undone": end.undone,
    })
}
