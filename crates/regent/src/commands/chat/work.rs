//! The agent's work on a message, as it is shown at the terminal.

use std::time::Instant;

use regent_kernel::Spent;
use regent_runtime::event::Event;
use regent_runtime::{FollowUp, Reins, TaskEnd, TaskHandle};
use tokio::sync::mpsc;

use super::session::{Next, Purpose, Session};
use super::view::View;
use crate::codes;
use crate::commands::task::{self, News};
use crate::money;
use crate::term;

/// News that wait to be shown.
const NEWS_MAX: usize = 4_096;
/// News that are shown at once.
const NEWS_AT_ONCE: usize = 64;

/// Work on a message.
pub(super) struct Work {
    pub(super) news: mpsc::Receiver<News>,
    pub(super) reins: Reins,
    pub(super) began: Instant,
    /// How often the person has asked for it to stop.
    pub(super) stops: u32,
    /// Messages that it hasn't taken up.
    pub(super) queued: Vec<String>,
    /// The message that it begins with is on the screen.
    pub(super) is_echoed: bool,
}

impl Session<'_> {
    /// Stops the work before its next call, then the calls that run.
    pub(super) async fn stop(&mut self) {
        let Some(work) = self.work.as_mut() else { return };
        work.stops = work.stops.saturating_add(1);
        work.reins.pause();
        // A model that is thinking has no effect that needs an end.
        let at_once = work.stops > 1 || (!self.view.has_calls() && self.question.is_none());
        if at_once && let Err(failure) = self.talk.stop_calls().await {
            self.failed(&failure);
        }
    }

    /// Says a message: at once, or when the agent comes to it.
    pub(super) async fn say(&mut self, text: &str) {
        if let Some(work) = self.work.as_mut() {
            let message = FollowUp { text: text.to_owned(), model: None, instead: false };
            match work.reins.say(message) {
                Ok(()) => work.queued.push(text.to_owned()),
                Err(error) => self.failed(&error.into()),
            }
            return;
        }
        self.echo(text);
        self.draw();
        match self.talk.say(text).await {
            Ok(handle) => self.begin(handle),
            Err(failure) => self.failed(&failure),
        }
    }

    /// Shows the work on a message from here on.
    pub(super) fn begin(&mut self, handle: TaskHandle) {
        let (tell, news) = mpsc::channel(NEWS_MAX);
        let reins = handle.reins();
        tokio::spawn(task::forward(0, handle, tell));
        let (began, queued) = (Instant::now(), Vec::new());
        self.work = Some(Work { news, reins, began, stops: 0, queued, is_echoed: true });
    }

    pub(super) fn spent(&self) -> Spent {
        self.view.spent()
    }

    pub(super) fn is_working(&self) -> bool {
        self.work.is_some()
    }

    /// What is shown is new from a turn on.
    pub(super) fn show_from(&mut self, turn: u32) {
        self.view = View::new(self.screen, turn);
    }

    pub(super) async fn news(&mut self, first: News) -> Next {
        let mut next = Some(first);
        let mut left = NEWS_AT_ONCE;
        while let Some(news) = next.take() {
            match news {
                News::Event(_, event) => self.event(event).await,
                News::Missed(count) => self.view.missed(count, &mut self.page),
                News::Ended(end) => {
                    // What was typed just as the answer came is the next message.
                    for message in self.ended(end) {
                        self.say(&message).await;
                    }
                }
            }
            left = left.saturating_sub(1);
            if left > 0 {
                next = self.work.as_mut().and_then(|work| work.news.try_recv().ok());
            }
        }
        Next::Stay
    }

    async fn event(&mut self, event: Event) {
        if let Event::Heard { turn, text } = &event {
            let (turn, text) = (*turn, text.clone());
            return self.heard(turn, &text);
        }
        if let Event::Snapshot { id, .. } = &event {
            self.talk.note_snapshot(id.clone());
        }
        let was_asked = matches!(event, Event::Verdict { .. }) && std::mem::take(&mut self.was_asked);
        let talk = &self.talk;
        let ended = self.view.event(event, &mut self.page, &|step| talk.arguments(step));
        if let Some(call) = ended
            && !was_asked
            && let Some(change) = self.talk.change(&call).await
        {
            self.page.line(change.trim_end_matches('\n'));
        }
    }

    /// The agent has come to a message.
    fn heard(&mut self, turn: u32, text: &str) {
        if !self.view.hears(turn) {
            return;
        }
        let Some(work) = self.work.as_mut() else { return };
        if std::mem::take(&mut work.is_echoed) {
            return;
        }
        let queued = std::mem::take(&mut work.queued);
        self.show_answer_before(turn);
        match queued.as_slice() {
            [] => self.echo(text),
            messages => messages.iter().for_each(|message| self.echo(message)),
        }
    }

    /// The answer to the message before, if the model gave it otherwise than in words that were shown.
    fn show_answer_before(&mut self, turn: u32) {
        let exchanges = match self.talk.view() {
            Ok(view) => view.map(|view| view.exchanges).unwrap_or_default(),
            Err(failure) => return self.failed(&failure),
        };
        let before = exchanges.into_iter().take_while(|one| one.turn < turn).last();
        if let Some(answer) = before.and_then(|one| one.answer) {
            self.answer(&answer);
        }
    }

    fn answer(&mut self, answer: &str) {
        if self.view.said().trim() != answer.trim() && !answer.trim().is_empty() {
            self.page.line(&term::block(answer.trim()));
        }
    }

    /// The work on a message is over. Gives back messages that wait for it and are to be said now.
    fn ended(&mut self, end: Option<TaskEnd>) -> Vec<String> {
        self.view.end(&mut self.page);
        let Some(work) = self.work.take() else { return Vec::new() };
        if self.question.as_ref().is_some_and(|one| matches!(one.purpose, Purpose::Call)) {
            self.question = None;
        }
        let Some(end) = end else {
            self.page.line(&self.screen.bad("  the work ended without a result"));
            return Vec::new();
        };
        match (&end.answer, task::short_of(&end, work.stops > 0)) {
            (Some(answer), _) => {
                self.answer(&answer.text);
                if let Some(why) = &end.unverified {
                    let line = format!(
                        "  this isn't borne out by what was done: {}; `/undo` undoes it",
                        term::inline(why)
                    );
                    self.page.line(&self.screen.warn(&line));
                }
                for one in &end.undone {
                    let line = format!(
                        "  left undone, because nobody could be asked: {}",
                        term::short(&one.call, 200)
                    );
                    self.page.line(&self.screen.warn(&line));
                }
            }
            (None, Some((code, _))) if code == codes::TASK_PAUSED => {
                self.talk.note_stopped();
                let line = "  stopped; say what to do instead, or `/resume` to let it go on";
                self.page.line(&self.screen.warn(line));
            }
            (None, Some((_, why))) => {
                self.page.line(&self.screen.bad(&format!("  {}", term::short(&why, 1_000))))
            }
            (None, None) => {}
        }
        let spent = money::spent(&self.view.spent());
        self.page
            .line(&self.screen.faint(&format!("  {} s · {spent} in all", work.began.elapsed().as_secs())));
        let mut next = Vec::new();
        if end.answer.is_some() && work.stops == 0 {
            next = work.queued;
        } else if !work.queued.is_empty() {
            // Nobody has heard them: they are the person's again.
            let head = format!("{}\n", work.queued.join("\n"));
            let rest = self.editor.text().to_owned();
            self.editor.clear();
            self.editor.complete(&format!("{head}{rest}"));
        }
        self.prompt();
        next
    }
}

/// The next news of the work; forever, if there is none.
pub(super) async fn next_news(work: Option<&mut Work>) -> News {
    match work {
        Some(work) => work.news.recv().await.unwrap_or(News::Ended(None)),
        None => std::future::pending().await,
    }
}
