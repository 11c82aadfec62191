//! Where a running task prints its progress: lines that stay, and below them one line that is drawn again. All of it goes to stderr.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::UnboundedSender;

use crate::output::Screen;
use crate::term;

/// Lines on stderr, and a last one that changes where the terminal can do that.
#[derive(Debug)]
pub(crate) struct Stage {
    screen: Screen,
    state: Mutex<StageState>,
    /// Somebody else draws: a conversation, which has the terminal to itself.
    elsewhere: Option<UnboundedSender<StageNews>>,
}

/// What is to be shown.
#[derive(Debug)]
pub(crate) enum StageNews {
    /// A line that stays.
    Line(String),
    /// A question; its last line is the prompt.
    Ask(String),
    /// The question is over, and why.
    GoOn(String),
}

#[derive(Debug, Default)]
struct StageState {
    status: String,
    /// Somebody is being asked: nothing is drawn over the question.
    asking: bool,
    /// Lines that wait until the question is answered.
    held: Vec<String>,
}

/// Goes to the beginning of the line and clears it.
const ANEW: &str = "\r\x1b[2K";

impl Stage {
    /// On this screen.
    pub(crate) fn new(screen: Screen) -> Self {
        Self { screen: screen.aside(), state: Mutex::default(), elsewhere: None }
    }

    /// Whoever listens draws what would be shown on this screen.
    pub(crate) fn elsewhere(screen: Screen, tell: UnboundedSender<StageNews>) -> Self {
        Self { elsewhere: Some(tell), ..Self::new(screen) }
    }

    /// Whether somebody else draws it. If they are gone, nobody does.
    fn is_told(&self, news: impl FnOnce() -> StageNews) -> bool {
        let told = self.elsewhere.as_ref().map(|tell| tell.send(news()));
        told.is_some()
    }

    /// For colours.
    pub(crate) fn screen(&self) -> &Screen {
        &self.screen
    }

    fn lock(&self) -> MutexGuard<'_, StageState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a line that stays. It has been made inert, and may carry colours of ours.
    pub(crate) fn line(&self, text: &str) {
        if self.is_told(|| StageNews::Line(text.to_owned())) {
            return;
        }
        let mut state = self.lock();
        if state.asking {
            state.held.push(text.to_owned());
            return;
        }
        if self.screen.draws {
            write(&format!("{ANEW}{text}\n"));
            self.draw(&state.status);
        } else {
            write(&format!("{text}\n"));
        }
    }

    /// Changes the last line; nothing happens where it can't be drawn again.
    pub(crate) fn status(&self, text: &str) {
        let mut state = self.lock();
        let text = term::short(text, self.screen.width.saturating_sub(2));
        if !self.screen.draws || state.asking || state.status == text {
            return;
        }
        state.status = text;
        self.draw(&state.status);
    }

    /// Puts a question; nothing else is shown until [`go_on`](Self::go_on).
    pub(crate) fn ask(&self, text: &str) {
        if self.is_told(|| StageNews::Ask(text.to_owned())) {
            return;
        }
        self.lock().asking = true;
        let anew = if self.screen.draws { ANEW } else { "" };
        write(&format!("{anew}{text}"));
    }

    /// The question is over.
    pub(crate) fn go_on(&self, why: &str) {
        if self.is_told(|| StageNews::GoOn(why.to_owned())) {
            return;
        }
        let held = {
            let mut state = self.lock();
            state.asking = false;
            std::mem::take(&mut state.held)
        };
        if !why.is_empty() {
            self.line(why);
        }
        for text in held {
            self.line(&text);
        }
    }

    /// Takes the last line away.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        if self.screen.draws && !state.status.is_empty() {
            write(ANEW);
        }
        state.status.clear();
    }

    fn draw(&self, status: &str) {
        if !status.is_empty() {
            write(&format!("{ANEW}{}", self.screen.faint(status)));
        }
    }
}

fn write(text: &str) {
    let mut stderr = std::io::stderr().lock();
    // If stderr is gone there is nobody left to tell.
    let _nobody = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
