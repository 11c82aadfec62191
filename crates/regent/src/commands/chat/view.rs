//! What happens in a conversation, as it is shown: the model's words as they come, each call with its verdict and what it changed.
//!
//! A further run of the task repeats the events of all that was done before. A step is shown once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use regent_kernel::{Budget, Channel, Spent};
use regent_runtime::TaskState;
use regent_runtime::event::{CallEnd, Event, TodoItem};
use serde_json::Value;

use super::paint::Painter;
use super::text::{fitted, width};
use crate::commands::task::{compacted_line, todo_lines};
use crate::money;
use crate::output::Screen;
use crate::term;

/// Of a tool's output, so many lines stay on the screen: the last ones say how it ended.
const OUTPUT_LINES_MAX: usize = 6;
const LINE_BYTES_MAX: usize = 4_096;
const THOUGHT_CHARS_MAX: usize = 400;

/// A call that has an end.
#[derive(Debug)]
pub(super) struct EndedCall {
    pub(super) tool: String,
    pub(super) args: String,
}

/// The view of a conversation.
#[derive(Debug)]
pub(super) struct View {
    screen: Screen,
    /// Steps that were shown, and turns before which everything was.
    shown: BTreeSet<String>,
    first_turn: u32,
    /// The turn of the message that this run heard last, and how many before it have the same.
    heard: Option<(u32, usize)>,
    calls: BTreeMap<String, Call>,
    step: String,
    /// The step whose words are being shown, and all of them.
    saying: Option<(String, String)>,
    thought: String,
    spent: Spent,
    left: Budget,
    /// What the agent has to do, by its own list.
    todo: Vec<TodoItem>,
}

/// A call that runs.
#[derive(Debug, Default)]
struct Call {
    tool: String,
    args: String,
    lines: VecDeque<String>,
    line: String,
    lines_before: usize,
}

impl Call {
    fn write(&mut self, text: &str) {
        for piece in text.split_inclusive('\n') {
            self.line.push_str(piece.trim_end_matches('\n'));
            if piece.ends_with('\n') || self.line.len() > LINE_BYTES_MAX {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        self.lines.push_back(std::mem::take(&mut self.line));
        if self.lines.len() > OUTPUT_LINES_MAX {
            self.lines.pop_front();
            self.lines_before += 1;
        }
    }
}

impl View {
    /// Shows what happens from a turn on.
    pub(super) fn new(screen: Screen, first_turn: u32) -> Self {
        Self {
            screen,
            shown: BTreeSet::new(),
            first_turn,
            heard: None,
            calls: BTreeMap::new(),
            step: String::new(),
            saying: None,
            thought: String::new(),
            spent: Spent::default(),
            left: Budget::default(),
            todo: Vec::new(),
        }
    }

    pub(super) fn spent(&self) -> Spent {
        self.spent
    }

    /// What the model said last, as far as it was shown.
    pub(super) fn said(&self) -> &str {
        self.saying.as_ref().map_or("", |(_, text)| text.as_str())
    }

    /// Whether a step is news; afterwards it isn't.
    fn is_new(&mut self, step: &str) -> bool {
        let turn = step.split('/').next().and_then(|turn| turn.parse::<u32>().ok());
        let is_new = turn.is_none_or(|turn| turn >= self.first_turn) && !self.shown.contains(step);
        self.shown.insert(step.to_owned());
        is_new
    }

    /// Shows an event. Gives back a call that has ended, if it is one that may have changed a file.
    /// Arguments that the event has cut are looked up.
    pub(super) fn event(
        &mut self,
        event: Event,
        page: &mut Painter,
        whole: &dyn Fn(&str) -> Option<String>,
    ) -> Option<EndedCall> {
        let screen = self.screen;
        match event {
            Event::Turn { step } => self.step = step,
            Event::Token { step, text, anew } => self.token(step, &text, anew, page),
            Event::Thought { text, .. } => self.thought.push_str(&text),
            Event::Said { step, text, .. } => self.end_saying(step, &text, page),
            Event::Tool { step, tool, args } => {
                self.end_thought(page);
                self.step.clone_from(&step);
                self.calls.insert(step, Call { tool, args, ..Call::default() });
            }
            Event::Output { step, channel: Channel::Output | Channel::Error, text } => {
                if let Some(call) = self.calls.get_mut(&step) {
                    call.write(&text);
                }
            }
            Event::Verdict { step, word, text, .. } => {
                self.find_arguments(&step, whole);
                return self.verdict(&step, (word, &text), page);
            }
            Event::Used { spent, left } => (self.spent, self.left) = (spent, left),
            // Another run tells everything from the beginning.
            Event::State { state: TaskState::Running, .. } => self.heard = None,
            Event::State { state: TaskState::Failed | TaskState::Retrying, why: Some(why) } => {
                page.line(&screen.warn(&format!("  {}; trying again", term::short(&why, 400))));
            }
            Event::NoSnapshot { why, .. } => {
                page.line(&screen.warn(&format!("  no snapshot of the workspace: {}", term::inline(&why))));
            }
            Event::Missed { count } => self.missed(count, page),
            Event::Todo { items } => self.todo(items, page),
            Event::Compacted { ref step, .. } => {
                if self.is_new(step)
                    && let Some(line) = compacted_line(&screen, event)
                {
                    page.line(&line);
                }
            }
            // The question itself is put by the one who asks.
            Event::Asked { .. }
            | Event::Output { .. }
            | Event::State { .. }
            | Event::Plan { .. }
            | Event::Snapshot { .. }
            | Event::Heard { .. } => {}
        }
        None
    }

    /// The agent's list has changed. Another run tells all its earlier states again.
    fn todo(&mut self, items: Vec<TodoItem>, page: &mut Painter) {
        let step = format!("{}/todo", self.step);
        if self.is_new(&step) && items != self.todo {
            todo_lines(&self.screen, &items).iter().for_each(|line| page.line(line));
        }
        self.todo = items;
    }

    /// What the agent still has to do, by its own list.
    pub(super) fn todo_list(&self) -> Vec<String> {
        todo_lines(&self.screen, &self.todo)
    }

    /// Whether a message begins to be worked on that wasn't before. One turn may answer several.
    pub(super) fn hears(&mut self, turn: u32) -> bool {
        let number = self.heard.filter(|(heard, _)| *heard == turn).map_or(0, |(_, number)| number + 1);
        self.heard = Some((turn, number));
        self.is_new(&format!("{turn}/heard/{number}"))
    }

    pub(super) fn missed(&self, count: u64, page: &mut Painter) {
        page.line(
            &self
                .screen
                .faint(&format!("  … {}; `regent task show` lists all", term::count(count, "more event"))),
        );
    }

    /// A run has ended: nothing goes on by itself.
    pub(super) fn end(&mut self, page: &mut Painter) {
        self.end_thought(page);
        page.end_stream();
        self.calls.clear();
    }

    fn token(&mut self, step: String, text: &str, anew: bool, page: &mut Painter) {
        self.end_thought(page);
        let goes_on = self.saying.as_ref().is_some_and(|(said_at, _)| *said_at == step);
        if anew && goes_on {
            page.drop_stream();
            page.line(&self.screen.faint("  (the answer begins again)"));
        }
        if !goes_on || anew {
            self.saying = Some((step, String::new()));
        }
        if let Some((_, said)) = &mut self.saying {
            // Empty lines before the first word say nothing.
            let text = if said.is_empty() { text.trim_start() } else { text };
            said.push_str(text);
            page.stream(&term::block(text));
        }
    }

    fn end_saying(&mut self, step: String, text: &str, page: &mut Painter) {
        self.end_thought(page);
        page.end_stream();
        let was_shown = self.saying.as_ref().is_some_and(|(said_at, _)| *said_at == step);
        let is_new = self.is_new(&format!("{step}/said"));
        if !was_shown && is_new && !text.trim().is_empty() {
            page.line(&term::block(text.trim()));
            self.saying = Some((step, text.to_owned()));
        }
    }

    fn end_thought(&mut self, page: &mut Painter) {
        let thought = std::mem::take(&mut self.thought);
        let line = thought.split_whitespace().collect::<Vec<_>>().join(" ");
        if !line.is_empty() {
            let line = fitted(&term::short(&line, THOUGHT_CHARS_MAX), page.columns().saturating_sub(4));
            page.line(&self.screen.faint(&format!("  {line}")));
        }
    }

    fn find_arguments(&mut self, step: &str, whole: &dyn Fn(&str) -> Option<String>) {
        let name = step.split('~').next().unwrap_or_default();
        if !self.shown.contains(step)
            && let Some(call) = self.calls.get_mut(name)
            && call.args.ends_with('…')
            && let Some(args) = whole(step)
        {
            call.args = args;
        }
    }

    fn verdict(
        &mut self,
        step: &str,
        (word, text): (CallEnd, &str),
        page: &mut Painter,
    ) -> Option<EndedCall> {
        let (screen, is_new) = (self.screen, self.is_new(step));
        let name = step.split('~').next().unwrap_or_default();
        let Some(mut call) = self.calls.remove(name) else {
            // A model that answered speaks for itself, and notes for agents need not be there.
            if is_new && word != CallEnd::Done && !name.split('/').any(|part| part.starts_with("notes")) {
                page.line(&screen.warn(&format!("  {}: {}", word.word(), term::short(text, 400))));
            }
            return None;
        };
        if !is_new {
            return None;
        }
        let shown = match word {
            CallEnd::Done => screen.good(word.word()),
            CallEnd::Denied => screen.bad(word.word()),
            CallEnd::Failed | CallEnd::TimedOut | CallEnd::Cancelled | CallEnd::Broke => {
                screen.warn(word.word())
            }
        };
        let tool = term::inline(&call.tool).into_owned();
        let room = page.columns().saturating_sub(width(&tool) + word.word().len() + 6);
        let what = fitted(&brief(&call.args), room);
        page.line(&format!("* {} {what}  {shown}", screen.strong(&tool)));
        if !call.line.is_empty() {
            call.end_line();
        }
        if call.lines_before > 0 {
            page.line(
                &screen.faint(&format!("    … {}", term::count(count(call.lines_before), "more line"))),
            );
        }
        let room = page.columns().saturating_sub(7);
        for line in &call.lines {
            page.line(&screen.faint(&format!("    | {}", fitted(&term::inline(line), room))));
        }
        let text = text.trim();
        match word {
            CallEnd::Done => {}
            CallEnd::Denied => page.line(&format!("    {}", term::short(text, 1_000))),
            CallEnd::Failed | CallEnd::TimedOut | CallEnd::Cancelled | CallEnd::Broke if text.is_empty() => {}
            CallEnd::Failed | CallEnd::TimedOut | CallEnd::Cancelled | CallEnd::Broke => {
                page.line(&format!("    {}", term::short(text, 400)));
            }
        }
        (word == CallEnd::Done).then_some(EndedCall { tool: call.tool, args: call.args })
    }

    /// The rows of what runs now: what a tool writes, what the model thinks, and the last line of the work.
    pub(super) fn rows(&self, columns: usize, (spin, seconds, note): (char, u64, &str)) -> Vec<String> {
        let screen = self.screen;
        let mut rows = Vec::new();
        for call in self.calls.values() {
            let latest = [call.lines.back(), Some(&call.line)].into_iter().flatten();
            let latest = latest.filter(|line| !line.is_empty());
            rows.extend(
                latest
                    .map(|line| screen.faint(&fitted(&format!("    | {}", term::inline(line)), columns - 1))),
            );
        }
        if !self.thought.is_empty() {
            let thought: Vec<&str> = self.thought.split_whitespace().collect();
            let thought = term::inline(&thought.join(" ")).into_owned();
            let room = columns.saturating_sub(16);
            let skipped = thought.chars().count().saturating_sub(room);
            let end: String = thought.chars().skip(skipped).collect();
            rows.push(screen.faint(&fitted(&format!("  thinking: {end}"), columns - 1)));
        }
        let what = match self.calls.values().map(|call| call.tool.as_str()).collect::<Vec<_>>().join(", ") {
            tools if tools.is_empty() => "thinking".to_owned(),
            tools => tools,
        };
        let turn = self.step.split('/').next().unwrap_or_default();
        let left = money::limits(&self.left);
        let left = if left.is_empty() { left } else { format!(" · left: {left}") };
        let line = format!(
            "{spin} {} · turn {} · {seconds} s · {}{left}{note}",
            term::inline(&what),
            term::inline(turn),
            money::spent(&self.spent)
        );
        rows.push(screen.faint(&fitted(&line, columns - 1)));
        rows
    }

    /// Whether a tool runs now.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// What a call is about, in a line: the argument that says most.
fn brief(args: &str) -> String {
    const TELLING: [&str; 8] = ["command", "argv", "path", "url", "pattern", "query", "from", "name"];
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(args) else {
        // It was shortened in the middle: the path stands first or nowhere.
        return named(args, "path").unwrap_or_else(|| term::short(args, 200));
    };
    let told = TELLING.iter().find_map(|name| fields.get(*name));
    match told {
        Some(Value::String(text)) => term::short(text, 400),
        Some(Value::Array(words)) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            term::short(&words.join(" "), 400)
        }
        Some(other) => term::short(&other.to_string(), 400),
        None if fields.is_empty() => String::new(),
        None => term::short(args, 400),
    }
}

/// The text of a field in JSON that was cut.
fn named(args: &str, name: &str) -> Option<String> {
    let (_, rest) = args.split_once(&format!("\"{name}\":\""))?;
    let end = rest.find('"')?;
    rest.get(..end).map(|text| term::short(text, 400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_heard_once_however_often_it_is_told() {
        let mut view = View::new(Screen::new(true, crate::output::Color::Never), 2);
        let mut page = Painter::default();
        let run = |view: &mut View, page: &mut Painter, turns: &[u32]| -> Vec<bool> {
            view.event(Event::State { state: TaskState::Running, why: None }, page, &|_| None);
            turns.iter().map(|turn| view.hears(*turn)).collect()
        };
        assert_eq!(run(&mut view, &mut page, &[1, 3]), [false, true]);
        assert_eq!(run(&mut view, &mut page, &[1, 3, 3]), [false, false, true]);
        assert_eq!(run(&mut view, &mut page, &[1, 3, 3, 4]), [false, false, false, true]);
    }

    #[test]
    fn a_call_is_shown_by_what_says_most() {
        for (args, shown) in [
            (r#"{"path":"a.md","content":"x"}"#, "a.md"),
            (r#"{"argv":["cargo","test"],"cwd":"."}"#, "cargo test"),
            (r#"{"command":"ls\n\u001b[2J"}"#, "ls\\n\\x1b[2J"),
            (r#"{"key":"k","content":"c"}"#, r#"{"key":"k","content":"c"}"#),
            (r#"{"content":"a","path":"b.md","x":"cut…"#, "b.md"),
            ("{}", ""),
        ] {
            assert_eq!(brief(args), shown, "{args}");
        }
    }
}
