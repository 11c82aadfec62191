//! Where a running task prints its progress: lines that stay, and below them one line that is drawn again. All of it goes to stderr.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::output::Screen;
use crate::term;

/// Lines on stderr, and a last one that changes where the terminal can do that.
#[derive(Debug)]
pub(crate) struct Stage {
    screen: Screen,
    state: Mutex<StageState>,
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
        Self { screen: screen.aside(), state: Mutex::default() }
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
        self.lock().asking = true;
        let anew = if self.screen.draws { ANEW } else { "" };
        write(&format!("{anew}{text}"));
    }

    /// The question is over.
    pub(crate) fn go_on(&self, why: &str) {
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
