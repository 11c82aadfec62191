//! What the commands of a conversation do.

use regent_kernel::TaskId;
use regent_runtime::task::Exchange;
use regent_runtime::{TaskState, TaskView};

use super::conversation::Conversation;
use super::session::{Next, Purpose, Session};
use super::slash::{COMMANDS, Command, KEYS};
use super::text::fitted;
use crate::codes;
use crate::commands::task::restored;
use crate::failure::Failure;
use crate::money;
use crate::past;
use crate::prompt::is_yes;
use crate::question;
use crate::term;

/// Exchanges of an earlier conversation that are shown, and lines of each answer.
const EXCHANGES_SHOWN: usize = 2;
const ANSWER_LINES_SHOWN: usize = 6;
const CONVERSATIONS_SHOWN: usize = 9;
/// Files whose differences are shown.
const FILES_SHOWN: usize = 20;

impl Session<'_> {
    /// What is there when the conversation begins.
    pub(super) async fn greet(&mut self, open: Option<TaskView>, others: &[TaskView]) -> Result<(), Failure> {
        match open {
            Some(view) => self.go_on(view).await?,
            None if !others.is_empty() => self.choose(others),
            None => {
                let model = self.talk.model()?;
                let line = format!(
                    "Regent, with model {}. /help lists commands; Ctrl-D leaves.",
                    term::inline(&model)
                );
                self.page.line(&self.screen.faint(&line));
                if let Some(tools) = self.talk.tools()? {
                    self.faint(&format!("tools: {} (choose others with --tools)", tools.join(", ")));
                }
                let last = self.talk.others()?.into_iter().next();
                if let Some(view) = last.filter(Conversation::is_unfinished) {
                    let goal = term::short(&view.record.spec.goal, 60);
                    self.faint(&format!(
                        "the last conversation was interrupted ({goal}): /resume continues it"
                    ));
                }
            }
        }
        self.prompt();
        Ok(())
    }

    fn faint(&mut self, text: &str) {
        self.page.line(&self.screen.faint(text));
    }

    /// Shows where an earlier conversation stopped, and continues what was interrupted.
    async fn go_on(&mut self, view: TaskView) -> Result<(), Failure> {
        let skipped = view.exchanges.len().saturating_sub(EXCHANGES_SHOWN);
        if skipped > 0 {
            let count = u64::try_from(skipped).unwrap_or(u64::MAX);
            self.faint(&format!("  … {}", term::count(count, "earlier message")));
        }
        for exchange in view.exchanges.iter().skip(skipped) {
            self.exchange(exchange);
        }
        let last = view.exchanges.last().map_or(1, |one| one.turn);
        if !Conversation::is_unfinished(&view) {
            if view.state == TaskState::Failed {
                let why = view.why.as_deref().unwrap_or("it failed");
                self.page.line(&self.screen.bad(&format!("  {}", term::short(why, 400))));
            }
            self.show_from(last.saturating_add(1));
            return Ok(());
        }
        self.show_from(last);
        if view.stopped {
            self.talk.note_stopped();
            self.faint("  you stopped it here; say what to do instead, or `/resume` to let it go on");
            return Ok(());
        }
        self.faint("  it was interrupted here and goes on; no step runs twice");
        if let Some(handle) = self.talk.resume().await? {
            self.begin(handle);
        }
        Ok(())
    }

    fn exchange(&mut self, exchange: &Exchange) {
        self.page.line(&format!("{} {}", self.screen.strong(">"), term::short(exchange.request.trim(), 400)));
        let Some(answer) = &exchange.answer else { return };
        let lines: Vec<&str> = answer.trim().lines().collect();
        for line in lines.iter().take(ANSWER_LINES_SHOWN) {
            self.page.line(&term::inline(line));
        }
        if lines.len() > ANSWER_LINES_SHOWN {
            self.faint("…");
        }
    }

    pub(super) async fn command(&mut self, command: Command) -> Result<Next, Failure> {
        let is_for_later = matches!(command, Command::Undo(_) | Command::Resume(_) | Command::New);
        if is_for_later && self.is_working() {
            return Err(Failure::new(codes::TASK_BUSY, "the agent is working").help("Esc stops it"));
        }
        match command {
            Command::Help => self.help(),
            Command::Model(None) => self.models()?,
            Command::Model(Some(name)) => {
                self.talk.set_model(name.clone())?;
                self.faint(&format!("  the next message goes to {}", term::inline(&name)));
            }
            Command::Cost => self.cost()?,
            Command::Plan => self.plan(),
            Command::Undo(count) => self.undo(count).await?,
            Command::Diff(whole) => self.diff(whole).await?,
            Command::Tools => self.tools()?,
            Command::Resume(None) => self.resume().await?,
            Command::Resume(Some(id)) => {
                let task = past::find_task(self.context, &id)?;
                self.open(task).await?;
            }
            Command::New => {
                self.talk.begin_anew();
                self.show_from(0);
                self.faint("  a new conversation begins with your next message");
            }
            Command::Exit => return Ok(Next::Leave),
        }
        if !self.is_working() {
            self.prompt();
        }
        Ok(Next::Stay)
    }

    fn plan(&mut self) {
        let lines = self.view.todo_list();
        if lines.is_empty() {
            return self.faint("  the agent has written no to-do list in this conversation");
        }
        lines.iter().for_each(|line| self.page.line(line));
    }

    fn help(&mut self) {
        let room = self.page.columns().saturating_sub(1);
        let commands = COMMANDS.iter().map(|(name, arguments, does)| (format!("{name} {arguments}"), *does));
        let keys = KEYS.iter().map(|(key, does)| ((*key).to_owned(), *does));
        for (name, does) in commands.chain(keys) {
            if room < 60 {
                self.page.line(&format!("  {}\n      {does}", self.screen.strong(name.trim_end())));
            } else {
                self.page.line(&format!("  {}  {does}", self.screen.strong(&format!("{name:<17}"))));
            }
        }
    }

    fn models(&mut self) -> Result<(), Failure> {
        let now = self.talk.model()?;
        self.faint(&format!("  now: {}", term::inline(&now)));
        for one in self.talk.models() {
            let state = match (one.is_up, one.is_ready) {
                (true, true) => "",
                (false, _) => "  (fails now)",
                (true, false) => "  (not here: `regent model pull`)",
            };
            self.page.line(&format!("  {}{}", term::inline(&one.model), self.screen.faint(state)));
        }
        Ok(())
    }

    fn cost(&mut self) -> Result<(), Failure> {
        let Some(view) = self.talk.view()? else {
            self.faint("  nothing yet");
            return Ok(());
        };
        let spent = if self.is_working() { self.spent() } else { view.spent };
        self.page.line(&format!("  used: {}", money::spent(&spent)));
        let left = view.used.left_of(view.record.spec.budget);
        let limits = money::limits(&view.record.spec.budget);
        match limits.is_empty() {
            true => self.faint("  no budget of its own; `regent chat --resume ID --budget LIMITS` sets one"),
            false => self.page.line(&format!("  budget: {limits}; left: {}", money::limits(&left))),
        }
        Ok(())
    }

    fn tools(&mut self) -> Result<(), Failure> {
        match self.talk.tools()? {
            Some(tools) => tools.iter().for_each(|tool| self.page.line(&format!("  {}", term::inline(tool)))),
            None => self.faint("  all tools that can be run; `regent tool list` shows them"),
        }
        Ok(())
    }

    async fn undo(&mut self, count: usize) -> Result<(), Failure> {
        let (snapshot, from, undone) = self.talk.before_last(count)?;
        let ahead = self.talk.foresee(&snapshot).await?;
        if ahead.is_nothing() {
            self.faint("  nothing to undo: no file has changed since then");
            return Ok(());
        }
        let request = term::short(from.request.trim(), 80);
        self.page.line(&format!("  back to before: {} {request}", self.screen.strong(">")));
        self.page.line(restored::changes(&self.screen, &ahead, restored::AHEAD).trim_end_matches('\n'));
        self.ask(Purpose::Undo { snapshot, from, undone }, "Restore the workspace? [y/N]");
        Ok(())
    }

    pub(super) async fn undo_answered(
        &mut self,
        answer: &str,
        (snapshot, from, undone): (&str, &Exchange, usize),
    ) {
        if !is_yes(answer) {
            return self.faint("  nothing was changed");
        }
        match self.talk.undo(snapshot, from, undone).await {
            Ok(done) => {
                let text = restored::changes(&self.screen, &done, restored::DONE);
                self.page.line(text.trim_end_matches('\n'));
                let task = self.talk.task().map(ToString::to_string).unwrap_or_default();
                self.faint(&format!("  the agent hears of it with your next message; `regent task rollback {task} --to {}` undoes this", done.before));
            }
            Err(failure) => self.failed(&failure),
        }
    }

    async fn diff(&mut self, whole: bool) -> Result<(), Failure> {
        let Some(snapshot) = self.talk.since(whole)? else {
            self.faint("  no snapshot of the workspace was taken yet");
            return Ok(());
        };
        let ahead = self.talk.foresee(&snapshot).await?;
        if ahead.is_nothing() {
            self.faint("  no file has changed");
            return Ok(());
        }
        // Going back would write what was changed or removed, and remove what is new.
        let changed = ahead.written.iter().chain(&ahead.removed);
        for path in changed.clone().take(FILES_SHOWN) {
            let name = fitted(&term::inline(path), self.page.columns().saturating_sub(1));
            self.page.line(&self.screen.strong(&name));
            let before = self.talk.file_in(&snapshot, path).await;
            match before.zip(self.talk.file_in(&ahead.before, path).await) {
                Some((old, new)) if old != new => {
                    let text = question::difference(&self.screen, &old, &new);
                    self.page.line(text.trim_end_matches('\n'));
                }
                Some(_) => self.faint("    a folder, a link, or permissions"),
                None => self.faint("    not text"),
            }
        }
        let more = changed.count().saturating_sub(FILES_SHOWN);
        if more > 0 {
            self.faint(&format!("  … {} more", term::count(u64::try_from(more).unwrap_or(u64::MAX), "file")));
        }
        Ok(())
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        if let Some(view) = self.talk.view()?.filter(Conversation::is_unfinished) {
            if let Some(handle) = self.talk.resume().await? {
                self.show_from(view.exchanges.last().map_or(1, |one| one.turn));
                self.begin(handle);
            }
            return Ok(());
        }
        let here = self.talk.task().cloned();
        let mut others = self.talk.others()?;
        others.retain(|one| Some(&one.record.task) != here.as_ref());
        self.choose(&others);
        Ok(())
    }

    /// Lists conversations, and asks for one.
    pub(super) fn choose(&mut self, others: &[TaskView]) {
        if others.is_empty() {
            return self.faint("  no other conversation; `/resume ID` continues any task");
        }
        let now_ms = self.talk.now_ms();
        let shown = others.iter().take(CONVERSATIONS_SHOWN);
        for (number, view) in (1..).zip(shown.clone()) {
            let age = u64::try_from(now_ms.saturating_sub(view.changed_ms)).unwrap_or(0);
            let state = if Conversation::is_unfinished(view) { ", interrupted" } else { "" };
            let about = format!("  {number}  {}", term::short(view.record.spec.goal.trim(), 200));
            let tail = format!("  ({} ago{state})", term::span(age));
            let room = self.page.columns().saturating_sub(tail.len() + 1);
            self.page.line(&format!("{}{}", fitted(&about, room), self.screen.faint(&tail)));
        }
        let tasks: Vec<TaskId> = shown.map(|view| view.record.task.clone()).collect();
        self.ask(Purpose::Choose(tasks), "Which one? [number, or Enter for none]");
    }

    pub(super) async fn chosen(&mut self, answer: &str, tasks: Vec<TaskId>) {
        let index = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        match index.and_then(|index| tasks.get(index).cloned()) {
            Some(task) => {
                if let Err(failure) = self.open(task).await {
                    self.failed(&failure);
                }
            }
            None if answer.is_empty() => self.faint("  none"),
            None => {
                let most = tasks.len();
                self.ask(Purpose::Choose(tasks), &format!("A number from 1 to {most}, or Enter for none:"));
            }
        }
    }

    async fn open(&mut self, task: TaskId) -> Result<(), Failure> {
        let view = self.talk.open(task).await?;
        self.go_on(view).await
    }
}
