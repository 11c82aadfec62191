//! A conversation at a terminal: keys, the agent's work and its questions, and the screen for all three.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use regent_kernel::TaskId;
use regent_runtime::TaskView;
use regent_runtime::task::Exchange;
use regent_sandbox::{KeyMode, Terminal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::conversation::Conversation;
use super::editor::{Editor, Wish};
use super::history::History;
use super::keyboard::{Pieces, Typed};
use super::keys::{Key, KeyReader};
use super::paint::Painter;
use super::text::{Rows, fitted, folded, plain};
use super::view::View;
use super::work::{Work, next_news};
use super::{paste, slash};
use crate::calls::{Interrupt, Interrupts};
use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Screen;
use crate::stage::StageNews;
use crate::term;

const TICK: Duration = Duration::from_millis(200);
/// An Escape that nothing follows for so long is the key.
const ESCAPE_WITHIN: Duration = Duration::from_millis(40);
/// Two Ctrl-C within this time leave.
const TWICE_WITHIN: Duration = Duration::from_secs(2);
/// Who is typing when a question comes up is still typing their message, until they pause for so long.
const TYPING_PAUSE: Duration = Duration::from_millis(700);
/// How long leaving waits for the work to stop.
const STOPS_WITHIN: Duration = Duration::from_secs(5);
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
const PROMPT: &str = "> ";

/// What is asked at the terminal, and what the answer is for.
pub(super) enum Purpose {
    /// A call that needs an approval.
    Call,
    Undo {
        snapshot: String,
        from: Exchange,
        undone: usize,
    },
    Choose(Vec<TaskId>),
}

/// A question, and the answer as it is typed.
pub(super) struct Question {
    pub(super) purpose: Purpose,
    prompt: String,
    pub(super) editor: Editor,
}

/// Whether the session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    Leave,
}

/// A conversation at a terminal.
pub(super) struct Session<'r> {
    pub(super) context: &'r Context,
    pub(super) talk: Conversation<'r>,
    pub(super) page: Painter,
    pub(super) screen: Screen,
    pub(super) view: View,
    pub(super) editor: Editor,
    keys: KeyReader,
    history: History,
    pub(super) work: Option<Work>,
    pub(super) question: Option<Question>,
    /// Answers to calls' questions.
    answers: mpsc::UnboundedSender<(Instant, String)>,
    asked_at: Instant,
    typed_at: Option<Instant>,
    interrupted_at: Option<Instant>,
    /// The call that runs was asked about, so its change was seen.
    pub(super) was_asked: bool,
    ticks: usize,
    root: PathBuf,
    mode: Option<KeyMode>,
}

/// What the session shares with the rest of the process.
pub(super) struct Channels {
    pub(super) stage: mpsc::UnboundedReceiver<StageNews>,
    pub(super) answers: mpsc::UnboundedSender<(Instant, String)>,
}

impl<'r> Session<'r> {
    pub(super) fn new(
        context: &'r Context,
        talk: Conversation<'r>,
        answers: mpsc::UnboundedSender<(Instant, String)>,
        (history, root): (History, PathBuf),
    ) -> Self {
        let screen = context.screen;
        Self {
            context,
            talk,
            page: Painter::default(),
            screen,
            view: View::new(screen, 0),
            editor: Editor::new(history.load()),
            keys: KeyReader::default(),
            history,
            work: None,
            question: None,
            answers,
            asked_at: Instant::now(),
            typed_at: None,
            interrupted_at: None,
            was_asked: false,
            ticks: 0,
            root,
            mode: None,
        }
    }

    /// Talks until the person leaves.
    pub(super) async fn run(
        &mut self,
        mut stage: mpsc::UnboundedReceiver<StageNews>,
        (open, others): (Option<TaskView>, Vec<TaskView>),
    ) -> Result<(), Failure> {
        let fail =
            |error: std::io::Error| Failure::new(codes::IO, format!("can't use the terminal: {error}"));
        let terminal = Terminal::of_this_process().map_err(fail)?;
        let mut resized = signal(SignalKind::window_change()).map_err(fail)?;
        let mut interrupts = Interrupts::listen();
        self.mode = self.screen.draws.then(|| KeyMode::begin(&terminal));
        self.page = Painter::begin(self.screen.draws);
        let mut pieces = Pieces::start(terminal.input())?;
        let mut tick = tokio::time::interval(TICK);
        if let Err(failure) = self.greet(open, &others).await {
            self.leave().await;
            return Err(failure);
        }
        loop {
            self.draw();
            let next = tokio::select! {
                typed = pieces.next() => match typed {
                    Some(typed) => self.typed(typed).await,
                    None => Next::Leave,
                },
                () = tokio::time::sleep(ESCAPE_WITHIN), if self.keys.waits() => {
                    let keys = self.keys.escape();
                    self.press(keys, Instant::now()).await
                }
                news = next_news(self.work.as_mut()) => self.news(news).await,
                Some(news) = stage.recv() => self.stage(news),
                interrupt = interrupts.next() => self.signalled(interrupt).await,
                _ = resized.recv() => {
                    self.page.measure();
                    Next::Stay
                }
                _ = tick.tick() => {
                    self.ticks = self.ticks.wrapping_add(1);
                    Next::Stay
                }
            };
            if next == Next::Leave {
                break;
            }
        }
        self.leave().await;
        Ok(())
    }

    /// Stops what runs, and gives the terminal back.
    async fn leave(&mut self) {
        if self.work.is_some() {
            self.stop().await;
            self.stop().await;
            let until = tokio::time::Instant::now() + STOPS_WITHIN;
            while self.work.is_some() {
                self.draw();
                match tokio::time::timeout_at(until, next_news(self.work.as_mut())).await {
                    Ok(news) => drop(self.news(news).await),
                    Err(_late) => break,
                }
            }
        }
        self.question = None;
        let unsent = self.work.take().map(|work| work.queued).unwrap_or_default();
        for message in &unsent {
            let line = format!("  not sent: {}", term::short(message, 1_000));
            self.page.line(&self.screen.warn(&line));
        }
        if let Some(task) = self.talk.task().cloned() {
            let line = format!("`regent chat --resume {task}` continues this conversation");
            self.page.line(&self.screen.faint(&line));
        }
        self.page.end();
        self.mode = None;
    }

    async fn signalled(&mut self, interrupt: Interrupt) -> Next {
        // Where keys aren't read one by one, Ctrl-C is a signal.
        if interrupt == Interrupt::Asked && self.mode.is_none() && self.work.is_some() {
            self.stop().await;
            return Next::Stay;
        }
        Next::Leave
    }

    async fn typed(&mut self, typed: Typed) -> Next {
        let mut bytes = typed.bytes;
        if self.mode.is_none() {
            // A whole line, as the terminal gives it.
            bytes.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b'\r');
        }
        let keys = self.keys.feed(&bytes);
        self.press(keys, typed.at).await
    }

    async fn press(&mut self, keys: Vec<Key>, at: Instant) -> Next {
        for key in keys {
            let key = self.pasted(key);
            let is_answer = self.is_answer(at);
            let wish = match self.question.as_mut().filter(|_| is_answer) {
                Some(question) => question.editor.press(key),
                None => {
                    self.typed_at = Some(at);
                    self.editor.press(key)
                }
            };
            if self.wished(wish, is_answer).await == Next::Leave {
                return Next::Leave;
            }
        }
        Next::Stay
    }

    /// Whether what was typed then is the answer to the question: it was on the screen, and nobody was in the middle of a message.
    fn is_answer(&self, at: Instant) -> bool {
        let is_typing = self.typed_at.is_some_and(|before| {
            !self.editor.text().is_empty() && at.saturating_duration_since(before) < TYPING_PAUSE
        });
        self.question.is_some() && at >= self.asked_at && !is_typing
    }

    fn pasted(&self, key: Key) -> Key {
        let Key::Paste(text) = key else { return key };
        let home = std::env::var_os("HOME").map(PathBuf::from);
        Key::Paste(paste::reference(&text, &self.root, home.as_deref()).unwrap_or(text))
    }

    async fn wished(&mut self, wish: Wish, is_answer: bool) -> Next {
        match wish {
            Wish::Nothing => {}
            Wish::Send(text) if is_answer => self.answered(text.trim()).await,
            Wish::Send(text) => return self.entered(&text).await,
            Wish::Complete => {
                if let Some(whole) = slash::completed(self.editor.text()) {
                    self.editor.complete(&whole);
                }
            }
            Wish::Redraw => self.page.clear(),
            Wish::Suspend => {
                if let Some(mode) = self.mode.as_ref() {
                    self.page.end();
                    tokio::task::block_in_place(|| mode.suspend());
                    self.page.measure();
                    self.page.again();
                }
            }
            Wish::Leave => return Next::Leave,
            Wish::Stop => self.escaped(false).await,
            Wish::Interrupt => {
                let is_idle = self.work.is_none() && self.question.is_none() && self.editor.text().is_empty();
                if is_idle {
                    let now = Instant::now();
                    let last = self.interrupted_at.replace(now);
                    if last.is_some_and(|last| now.duration_since(last) < TWICE_WITHIN) {
                        return Next::Leave;
                    }
                    self.page.line(&self.screen.faint("  Ctrl-C again leaves"));
                } else {
                    // The one that stops the agent isn't the first of two that leave.
                    self.interrupted_at = None;
                    self.escaped(true).await;
                }
            }
        }
        Next::Stay
    }

    /// Esc or Ctrl-C: a question of ours is withdrawn, work is stopped, and Ctrl-C clears what was typed.
    async fn escaped(&mut self, clears: bool) {
        let is_ours = self.question.as_ref().is_some_and(|one| !matches!(one.purpose, Purpose::Call));
        if is_ours {
            self.question = None;
            self.page.line(&self.screen.faint("  cancelled"));
        } else if self.work.is_some() {
            self.stop().await;
        } else if clears {
            self.editor.clear();
        }
    }

    async fn entered(&mut self, text: &str) -> Next {
        let text = text.trim();
        if text.is_empty() {
            return Next::Stay;
        }
        self.interrupted_at = None;
        self.editor.remember(text);
        if let Err(failure) = self.history.add(text) {
            self.failed(&failure);
        }
        match slash::parse(text) {
            Some(Ok(command)) => {
                self.echo(text);
                match self.command(command).await {
                    Ok(next) => return next,
                    Err(failure) => self.failed(&failure),
                }
            }
            Some(Err(why)) => self.page.line(&self.screen.warn(&format!("  {}", term::inline(&why)))),
            None => self.say(text).await,
        }
        Next::Stay
    }

    /// What the asker of questions shows.
    fn stage(&mut self, news: StageNews) -> Next {
        match news {
            StageNews::Line(text) => self.page.line(&text),
            StageNews::Ask(text) => {
                let (head, prompt) = text.rsplit_once('\n').unwrap_or(("", &text));
                if !head.is_empty() {
                    self.page.line(head);
                }
                self.was_asked = true;
                self.ask(Purpose::Call, plain(prompt).trim());
            }
            StageNews::GoOn(why) => {
                self.question = None;
                if !why.is_empty() {
                    self.page.line(&self.screen.faint(&format!("  {}", term::inline(&why))));
                }
            }
        }
        Next::Stay
    }

    /// Asks. What was typed before this was shown is no answer.
    pub(super) fn ask(&mut self, purpose: Purpose, prompt: &str) {
        self.question = Some(Question { purpose, prompt: prompt.to_owned(), editor: Editor::default() });
        self.draw();
        if self.mode.is_none() {
            self.page.line(prompt);
        }
        self.asked_at = Instant::now();
    }

    async fn answered(&mut self, answer: &str) {
        let Some(question) = self.question.take() else { return };
        if self.mode.is_some() {
            self.page.line(&format!(
                "  {} {}",
                term::inline(&question.prompt),
                self.screen.strong(&term::inline(answer))
            ));
        }
        match question.purpose {
            // It counts for the question that is on the screen, and for none that is asked meanwhile. If nobody waits for it any more, the
            // question is over.
            Purpose::Call => drop(self.answers.send((self.asked_at, format!("{answer}\n")))),
            Purpose::Undo { snapshot, from, undone } => {
                self.undo_answered(answer, (&snapshot, &from, undone)).await
            }
            Purpose::Choose(tasks) => self.chosen(answer, tasks).await,
        }
        self.prompt();
    }

    /// Shows what the person said.
    pub(super) fn echo(&mut self, text: &str) {
        if self.page.draws() {
            let text = term::block(text.trim()).replace('\n', "\n  ");
            let line = format!("{}{text}", self.screen.strong(PROMPT));
            self.page.line(&line);
        }
    }

    pub(super) fn failed(&mut self, failure: &Failure) {
        self.page.line(&self.screen.bad(&format!("  {}", term::block(&failure.message))));
        if let Some(help) = &failure.help {
            self.page.line(&self.screen.faint(&format!("  {}", term::block(help))));
        }
    }

    /// Where rows can't be drawn, the prompt is written once.
    pub(super) fn prompt(&mut self) {
        if !self.page.draws() {
            self.page.stream(PROMPT);
            self.page.draw(Rows::default());
            self.page.drop_prompt();
        }
    }

    pub(super) fn draw(&mut self) {
        let columns = self.page.columns();
        let mut above = Vec::new();
        if let Some(work) = &self.work {
            let spin = SPINNER.get(self.ticks % SPINNER.len()).copied().unwrap_or(' ');
            let note = match (work.stops, self.question.is_some()) {
                (0, false) => " · Esc stops",
                (0, true) => " · waits for you",
                (1, _) => " · stopping; Ctrl-C stops what runs",
                _more => " · stopping",
            };
            above = self.view.rows(columns, (spin, work.began.elapsed().as_secs(), note));
            let queued = work.queued.iter().map(|text| format!("  queued: {}", term::short(text, 200)));
            above.extend(queued.map(|line| self.screen.faint(&fitted(&line, columns - 1))));
        }
        let rows = match &self.question {
            Some(question) => {
                above.extend(folded(&question.prompt, columns).iter().map(|row| self.screen.strong(row)));
                question.editor.draft().rows("? ", columns)
            }
            None => self.editor.draft().rows(PROMPT, columns),
        };
        let row = rows.row + above.len();
        above.extend(rows.rows);
        self.page.draw(Rows { rows: above, row, column: rows.column });
    }
}

/// Where answers and the asker's news go.
pub(super) fn channels()
-> (Channels, mpsc::UnboundedSender<StageNews>, mpsc::UnboundedReceiver<(Instant, String)>) {
    let ((tell, stage), (answers, lines)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    (Channels { stage, answers }, tell, lines)
}
