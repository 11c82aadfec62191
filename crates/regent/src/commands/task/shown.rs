//! `task list` and `task show`: what the ledger tells of tasks.

use regent_kernel::Budget;
use regent_runtime::TaskView;
use regent_runtime::task::Recorded;
use regent_wire::Status;
use regent_wire::body::{Decision, EndStatus};
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done, Screen};
use crate::past::Past;
use crate::{money, term};

/// The message about a task whose process is gone.
const INTERRUPTED: &str = "interrupted";
/// The steps that read the project's notes for agents. Most projects have none.
const NOTES_STEPS: [(&str, &str); 2] = [("0/notes", "no AGENTS.md"), ("0/notes-claude", "no CLAUDE.md")];

pub(super) fn list(context: &Context, count: u32) -> CommandResult {
    let (screen, past) = (&context.screen, Past::open(context)?);
    let mut text = String::new();
    let mut rows = Vec::new();
    let views = past.newest(count)?;
    if views.is_empty() {
        text.push_str("no tasks yet; `regent task run \"GOAL\"` starts one\n");
    } else {
        let head =
            format!("{:<14} {:<11} {:>5} {:>10} {:>14}  GOAL\n", "ID", "STATE", "STEPS", "TOKENS", "COST");
        text.push_str(&screen.strong(&head));
    }
    let room = screen.width.saturating_sub(61).max(20);
    let mut any_interrupted = false;
    for view in &views {
        let word = stands(&past, view)?;
        any_interrupted |= word == INTERRUPTED;
        text.push_str(&format!(
            "{:<14} {} {:>5} {:>10} {:>14}  {}\n",
            view.record.task.as_str(),
            painted(screen, word, 11),
            view.steps,
            money::grouped(view.spent.tokens),
            money::usd(view.spent.money_microusd),
            term::short(&view.record.spec.goal, room)
        ));
        rows.push(brief(view, word));
    }
    if any_interrupted {
        text.push_str("interrupted: the process ended; `regent task resume ID` continues\n");
    }
    Ok(Done::new(json!({"tasks": rows}), text))
}

pub(super) fn show(context: &Context, id: &str) -> CommandResult {
    let (screen, past) = (&context.screen, Past::open(context)?);
    let view = &past.task(&past.find(id)?)?;
    let steps = past.steps(view)?;
    let steps: Vec<&Recorded> = in_order(steps.values());
    let spec = &view.record.spec;
    let (task, word) = (&view.record.task, stands(&past, view)?);
    let mut text = format!("{}  {}\n", screen.strong(task.as_str()), painted(screen, word, 0));
    let mut row = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {}  {value}\n", screen.faint(&format!("{name:<9}"))));
        }
    };
    row("goal", &term::block(&spec.goal).replace('\n', "\n             "));
    row("model", &term::inline(&spec.model));
    row("agent", &term::inline(&spec.agent));
    let tools: Vec<&str> = view.record.tools.keys().map(String::as_str).collect();
    row("tools", &term::inline(&tools.join(", ")));
    let why = match (word, view.why.as_deref()) {
        (INTERRUPTED, _) => format!("its process ended; `regent task resume {task}` continues"),
        (_, Some(why)) => term::inline(why).into_owned(),
        (_, None) => String::new(),
    };
    row("why", &why);
    row("doubt", &view.unverified.as_deref().map(term::inline).unwrap_or_default());
    row("used", &money::spent(&view.spent));
    let budget = money::percent_used(&spec.budget, &money::counted(&view.used)).map(|percent| {
        let near = money::Nearness::from_percent(percent).painted(screen);
        format!("{}: {percent} % used, {near}", money::limits(&spec.budget))
    });
    row("budget", &budget.unwrap_or_default());
    row("runs", &view.runs.saturating_sub(1).to_string());
    for one in view.exchanges.iter().skip(1) {
        let request = term::block(&one.request).replace('\n', "\n             ");
        row("then", &format!("{request}  (turn {})", one.turn));
    }
    for one in &view.record.ancestors {
        row("forked", &format!("from {} at {}", one.task, term::inline(&one.at)));
    }
    for (id, after) in &view.snapshots {
        row("snapshot", &format!("{id} after step {}", term::inline(after)));
    }
    for step in &steps {
        text.push_str(&step_line(screen, step));
        if let Some(line) = compacted_line(step, &steps) {
            text.push_str(&format!("  {:<14} {}\n", "", screen.warn(&line)));
        }
    }
    if let Some(answer) = &view.answer {
        text.push_str(&format!("\n{}\n", term::block(answer)));
    }
    let data = json!({"task": brief(view, word), "record": view.record, "snapshots": view.snapshots, "steps": steps});
    Ok(Done::new(data, text))
}

fn step_line(screen: &Screen, step: &Recorded) -> String {
    let what = step.tool.as_ref().unwrap_or(&step.op);
    let word = match (step.verdict, status(step)) {
        (Decision::Deny, _) => screen.bad("denied"),
        (_, "ok") => screen.good("done"),
        (_, other) => screen.warn(other),
    };
    let spent = step.end.as_ref().map(|end| &end.spent);
    let used = match spent {
        Some(spent) if spent.tokens > 0 => format!("  {}", money::spent(spent)),
        Some(_) | None => String::new(),
    };
    if let Some((_, none)) = NOTES_STEPS.iter().find(|(name, _)| *name == step.step)
        && is_missing(step)
    {
        return format!("  {:<14} {}\n", term::inline(&step.step), screen.faint(none));
    }
    let why = match step.verdict {
        Decision::Deny => {
            step.why.as_deref().map(|why| format!("  {}", term::short(why, 80))).unwrap_or_default()
        }
        Decision::Allow | Decision::Ask => String::new(),
    };
    format!(
        "  {:<14} {:<14} {word}{}{why}\n",
        term::inline(&step.step),
        term::inline(what),
        screen.faint(&used)
    )
}

/// Where a conversation was compacted: what the questions before and after it took, as their receipts say.
fn compacted_line(step: &Recorded, steps: &[&Recorded]) -> Option<String> {
    let (prefix, turn) =
        step.step.split('~').next()?.strip_suffix("/compact")?.rsplit_once('/').map_or_else(
            || Some(("", step.step.split('/').next()?)),
            |(prefix, turn)| Some((prefix, turn)),
        )?;
    let turn: u64 = turn.parse().ok()?;
    let below = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    let tokens_at = |turn: u64| {
        let name = format!("{below}{turn}/think");
        let think = steps.iter().rfind(|step| step.step.split('~').next() == Some(name.as_str()))?;
        Some(money::grouped(think.end.as_ref()?.spent.tokens))
    };
    let before = tokens_at(turn.checked_sub(1)?)?;
    let after = tokens_at(turn).map_or_else(String::new, |after| format!(" → {after}"));
    let summary = if status(step) == "ok" { "" } else { ", without a summary" };
    Some(format!("compacted at turn {turn}: {before}{after} tokens a question{summary}"))
}

/// Whether the file that a step was to read doesn't exist.
fn is_missing(step: &Recorded) -> bool {
    let status = step.end.as_ref().map(|end| &end.status);
    matches!(status, Some(EndStatus::Ended(Status::Failed(failure))) if failure.code == "fs.not_found")
}

/// How a step ended, in a word.
fn status(step: &Recorded) -> &'static str {
    step.end.as_ref().map_or("open", |end| end.status.word())
}

fn in_order<'a>(steps: impl Iterator<Item = &'a Recorded>) -> Vec<&'a Recorded> {
    let mut steps: Vec<&Recorded> = steps.collect();
    steps.sort_by_key(|step| step.at_ms);
    steps
}

/// How a task stands: what the ledger says, unless the process that was to say more is gone.
fn stands(past: &Past<'_>, view: &TaskView) -> Result<&'static str, Failure> {
    Ok(if past.is_interrupted(view)? { INTERRUPTED } else { view.word() })
}

fn painted(screen: &Screen, word: &str, width: usize) -> String {
    let padded = format!("{word:<width$}");
    match word {
        "completed" => screen.good(&padded),
        "failed" | "cancelled" => screen.bad(&padded),
        "pending" | "retrying" | "unverified" | INTERRUPTED => screen.warn(&padded),
        _other => padded,
    }
}

/// What lists say of a task.
fn brief(view: &TaskView, word: &str) -> Value {
    let spec = &view.record.spec;
    let budget = (spec.budget != Budget::default()).then_some(spec.budget);
    json!({
        "task": view.record.task, "state": view.state, "word": word, "why": view.why, "goal": spec.goal, "model": spec.model,
        "agent": spec.agent, "answer": view.answer, "unverified": view.unverified, "exchanges": view.exchanges, "steps": view.steps, "runs": view.runs.saturating_sub(1), "spent": view.spent,
        "budget": budget, "created_ms": view.created_ms, "changed_ms": view.changed_ms, "ancestors": view.record.ancestors,
    })
}
