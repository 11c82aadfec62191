//! What a user sees while tasks run: a line for each thing that happened, and a last line with step, tokens, cost and what is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use regent_kernel::{Budget, Channel, Clock, Spent, TaskId};
use regent_runtime::TaskState;
use regent_runtime::event::{CallEnd, Event, EventLine, PlannedStep, TodoItem, TodoState};
use serde_json::json;

use crate::context::Context;
use crate::money;
use crate::output::{self, Screen};
use crate::stage::Stage;
use crate::term;

const SAID_CHARS_MAX: usize = 400;
/// A line of a tool that is longer is shown in parts.
const LINE_BYTES_MAX: usize = 4_096;
/// How much of what a model is saying the last line shows.
const SAYING_CHARS_MAX: usize = 48;
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

/// The view of some tasks that run.
pub(super) struct Live {
    stage: Arc<Stage>,
    clock: Arc<dyn Clock>,
    json: bool,
    /// Questions are put where this is shown.
    asks_here: bool,
    width: usize,
    began: Duration,
    ticks: usize,
    tasks: Vec<LiveTask>,
    stopping: bool,
    /// Turns before this one aren't shown.
    first_turn: u32,
}

/// One of them.
struct LiveTask {
    task: TaskId,
    /// Calls that run: tool and arguments, by step.
    calls: BTreeMap<String, (String, String)>,
    /// The line that each of them is writing, by step and whether it is an error.
    unfinished: BTreeMap<(String, bool), String>,
    step: String,
    spent: Spent,
    left: Budget,
    is_over: bool,
    /// The end of what its model says, while it says it.
    saying: String,
    /// It is what the model thinks, not what it says.
    is_thought: bool,
}

impl LiveTask {
    /// Keeps the end of the model's text, on one line.
    fn append(&mut self, text: &str, is_thought: bool, anew: bool) {
        if anew || self.is_thought != is_thought {
            self.saying.clear();
        }
        self.is_thought = is_thought;
        self.saying.extend(text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }));
        let length = self.saying.chars().count();
        if length > SAYING_CHARS_MAX {
            self.saying = self.saying.chars().skip(length - SAYING_CHARS_MAX).collect();
        }
    }

    /// The lines of a tool that are whole by now.
    fn written(&mut self, screen: &Screen, step: String, channel: Channel, text: &str) -> Vec<String> {
        let open = self.unfinished.entry((step, channel == Channel::Error)).or_default();
        open.push_str(text);
        // A line that doesn't end is shown as far as it goes.
        let end = open.rfind('\n').map_or(0, |at| at + 1);
        let end = if open.len() - end > LINE_BYTES_MAX { open.len() } else { end };
        let rest = open.split_off(end);
        let whole = std::mem::replace(open, rest);
        let room = screen.width.saturating_sub(8);
        whole.lines().map(|line| screen.faint(&format!("      | {}", term::short(line, room)))).collect()
    }

    /// How a call ended, with what it was.
    fn ended(
        &mut self,
        screen: &Screen,
        step: &str,
        (end, text): (CallEnd, &str),
        replayed: bool,
    ) -> Vec<String> {
        let name = step.split('~').next().unwrap_or_default();
        let Some((tool, args)) = self.calls.remove(name) else {
            // A model that answered speaks for itself, and notes for agents need not be there.
            let speaks = end == CallEnd::Done || name.split('/').any(|part| part.starts_with("notes"));
            let line = || format!("  {}  {}: {}", term::inline(step), end.word(), term::short(text, 200));
            return if speaks { Vec::new() } else { vec![line()] };
        };
        let shown = match end {
            CallEnd::Done => screen.good(end.word()),
            CallEnd::Denied => screen.bad(end.word()),
            CallEnd::Failed | CallEnd::TimedOut | CallEnd::Cancelled | CallEnd::Broke => {
                screen.warn(end.word())
            }
        };
        let again = if replayed { " (from the ledger)" } else { "" };
        let room = screen.width.saturating_sub(tool.len() + step.len() + 8);
        let (tool, args) = (screen.strong(&term::inline(&tool)), term::short(&args, room));
        let text = term::short(text.trim(), screen.width.saturating_sub(16));
        vec![
            format!("  {}  {tool} {args}", screen.faint(&term::inline(step))),
            format!("      {shown}{again}  {text}"),
        ]
    }
}

impl Live {
    pub(super) fn new(context: &Context, stage: Arc<Stage>, tasks: Vec<TaskId>) -> Self {
        let watched = |task: TaskId| LiveTask {
            task,
            calls: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            step: String::new(),
            spent: Spent::default(),
            left: Budget::default(),
            is_over: false,
            saying: String::new(),
            is_thought: false,
        };
        let tasks: Vec<LiveTask> = tasks.into_iter().map(watched).collect();
        Self {
            stage,
            clock: Arc::clone(&context.clock),
            json: context.screen.json,
            asks_here: context.screen.can_ask,
            width: context.screen.width,
            began: context.clock.elapsed(),
            ticks: 0,
            tasks,
            stopping: false,
            first_turn: 0,
        }
    }

    /// Shows nothing of the turns before this one.
    pub(super) fn starting_at(self, first_turn: u32) -> Self {
        Self { first_turn, ..self }
    }

    /// Whether an event is of a turn that is left out.
    fn is_earlier(&self, event: &Event) -> bool {
        let turn = match event {
            Event::Turn { step }
            | Event::Said { step, .. }
            | Event::Compacted { step, .. }
            | Event::Tool { step, .. }
            | Event::Verdict { step, .. } => step.split('/').next().and_then(|turn| turn.parse::<u32>().ok()),
            Event::Heard { turn, .. } => Some(*turn),
            Event::State { .. }
            | Event::Plan { .. }
            | Event::Token { .. }
            | Event::Thought { .. }
            | Event::Output { .. }
            | Event::Asked { .. }
            | Event::Todo { .. }
            | Event::Used { .. }
            | Event::Snapshot { .. }
            | Event::NoSnapshot { .. }
            | Event::Missed { .. } => None,
        };
        turn.is_some_and(|turn| turn < self.first_turn)
    }

    /// Shows what happened.
    pub(super) fn event(&mut self, number: usize, event: Event) {
        let Some(task) = self.tasks.get(number).map(|one| one.task.clone()) else { return };
        if self.is_earlier(&event) {
            return;
        }
        if self.json {
            return print_json(EventLine::new(Some(&task), event));
        }
        let prefix = if self.tasks.len() > 1 { format!("{task}  ") } else { String::new() };
        let lines = self.lines(number, event);
        for line in lines {
            self.stage.line(&format!("{prefix}{line}"));
        }
        self.draw();
    }

    /// Some news were missed: the ledger has them.
    pub(super) fn missed(&self, count: u64) {
        if self.json {
            return print_json(EventLine::new(None, Event::Missed { count }));
        }
        self.stage.line(&missed(count));
    }

    /// Time has passed.
    pub(super) fn tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        self.draw();
    }

    /// The person wants it to stop.
    pub(super) fn stopping(&mut self) {
        self.stopping = true;
        if !self.json {
            self.stage.line("stopping before the next call; press Ctrl-C again to stop now");
        }
    }

    fn lines(&mut self, number: usize, event: Event) -> Vec<String> {
        let (stage, width, asks_here) = (Arc::clone(&self.stage), self.width, self.asks_here);
        let screen = stage.screen();
        let Some(one) = self.tasks.get_mut(number) else { return Vec::new() };
        match event {
            // A user needs no line about a hold that ended.
            Event::State { state: TaskState::Finalized, .. } => Vec::new(),
            Event::State { state, why, .. } => {
                one.is_over = state.is_over();
                let why = why.map(|why| format!(": {}", term::short(&why, 200))).unwrap_or_default();
                vec![screen.faint(&format!("{} {state}{why}", one.task))]
            }
            Event::Plan { steps } => plan_lines(screen, &steps, width),
            // The goal was typed just now.
            Event::Heard { turn: 1, .. } => Vec::new(),
            Event::Heard { text, .. } => {
                one.saying.clear();
                vec![format!("{} {}", screen.strong(">"), term::short(text.trim(), SAID_CHARS_MAX))]
            }
            Event::Todo { items } => todo_lines(screen, &items),
            Event::Turn { step } => {
                one.step = step;
                one.saying.clear();
                Vec::new()
            }
            Event::Token { text, anew, .. } => {
                one.append(&text, false, anew);
                Vec::new()
            }
            Event::Thought { text, .. } => {
                one.append(&text, true, false);
                Vec::new()
            }
            Event::Said { text, .. } => {
                one.saying.clear();
                if text.trim().is_empty() {
                    return Vec::new();
                }
                vec![format!("  {}", screen.faint(&term::short(text.trim(), SAID_CHARS_MAX)))]
            }
            compacted @ Event::Compacted { .. } => compacted_line(screen, compacted).into_iter().collect(),
            Event::Tool { step, tool, args } => {
                one.step.clone_from(&step);
                one.calls.insert(step, (tool, args));
                Vec::new()
            }
            Event::Output { step, channel, text } => one.written(screen, step, channel, &text),
            Event::Verdict { step, word, text, replayed } => {
                one.unfinished.retain(|(writer, _), _| *writer != step);
                one.ended(screen, &step, (word, &text), replayed)
            }
            Event::Asked { .. } if asks_here => Vec::new(),
            // The cause is printed once.
            Event::Asked { ticket, asked_with: Some(_), summary, .. } => {
                vec![format!("    and {} ({ticket})", term::short(&summary, 200))]
            }
            Event::Asked { ticket, summary, reason, quote, .. } => {
                let (asked, reason) = (screen.warn("asked"), term::inline(&reason));
                let line = format!("  {asked} {reason}: {} ({ticket})", term::short(&summary, 200));
                let quote = quote.map(|quote| format!("    {}", term::inline(&quote)));
                std::iter::once(line).chain(quote).collect()
            }
            Event::Used { spent, left } => {
                (one.spent, one.left) = (spent, left);
                Vec::new()
            }
            Event::Missed { count } => vec![missed(count)],
            Event::Snapshot { id, step } => vec![screen.faint(&format!("  snapshot {id} after step {step}"))],
            Event::NoSnapshot { step, why } => vec![no_snapshot(screen, &step, &why)],
        }
    }

    fn draw(&self) {
        let spin = SPINNER.get(self.ticks % SPINNER.len()).copied().unwrap_or(' ');
        let seconds = self.clock.elapsed().saturating_sub(self.began).as_secs();
        let what = match self.tasks.as_slice() {
            [one] if one.calls.is_empty() && !one.saying.is_empty() => {
                let thinking = if one.is_thought { "thinking: " } else { "" };
                format!("{} {thinking}{}", one.step, term::inline(&one.saying))
            }
            [one] if one.calls.is_empty() => format!("{} thinking", one.step),
            [one] => {
                let tools: Vec<&str> = one.calls.values().map(|(tool, _)| tool.as_str()).collect();
                format!("{} {}", one.step, tools.join(", "))
            }
            many => format!("{} of {} tasks", many.iter().filter(|one| !one.is_over).count(), many.len()),
        };
        let (mut tokens, mut money) = (0_u64, 0_u64);
        for one in &self.tasks {
            tokens = tokens.saturating_add(one.spent.tokens);
            money = money.saturating_add(one.spent.money_microusd);
        }
        let used = money::spent(&Spent { tokens, money_microusd: money, ..Spent::default() });
        let left = match self.tasks.as_slice() {
            [one] => money::limits(&one.left),
            _many => String::new(),
        };
        let left = if left.is_empty() { left } else { format!("  ·  left: {left}") };
        let stop = if self.stopping { "  ·  stopping" } else { "" };
        self.stage.status(&format!("{spin} {what}  ·  {seconds}s  ·  {used}{left}{stop}"));
    }
}

fn plan_lines(screen: &Screen, steps: &[PlannedStep], width: usize) -> Vec<String> {
    let step = |PlannedStep { name, goal }: &PlannedStep| {
        let goal = term::short(goal, width.saturating_sub(24));
        format!("  {}  {goal}", screen.strong(&term::short(name, 20)))
    };
    std::iter::once("plan".to_owned()).chain(steps.iter().map(step)).collect()
}

/// A line for each thing that an agent has to do.
pub(crate) fn todo_lines(screen: &Screen, items: &[TodoItem]) -> Vec<String> {
    let line = |item: &TodoItem| {
        let text = term::short(&item.text, screen.width.saturating_sub(8));
        match item.state {
            TodoState::Done => screen.faint(&format!("  [x] {text}")),
            TodoState::Doing => format!("  [>] {}", screen.strong(&text)),
            TodoState::Open => format!("  [ ] {text}"),
        }
    };
    items.iter().map(line).collect()
}

pub(crate) fn compacted_line(screen: &Screen, event: Event) -> Option<String> {
    let Event::Compacted { step, turns, tokens_before, tokens_after, no_summary } = event else {
        return None;
    };
    let why = no_summary.map(|why| format!(", without a summary: {}", term::inline(&why)));
    Some(screen.faint(&format!(
        "  {step} compacted: {} left the prompt, {} → {} tokens{}",
        term::count(turns, "turn"),
        money::grouped(tokens_before),
        money::grouped(tokens_after),
        why.unwrap_or_default()
    )))
}

fn no_snapshot(screen: &Screen, step: &str, why: &str) -> String {
    screen.warn(&format!("  no snapshot after step {step}: {}", term::inline(why)))
}

fn missed(count: u64) -> String {
    format!("… {count} more; `regent task show` lists all")
}

fn print_json(line: EventLine) {
    // If nobody reads, the exit code still tells.
    let _unread = output::write_all(&output::line(&json!(line)));
}
