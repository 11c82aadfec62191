//! Tasks that run here, while they do: their events are shown one after the other, off the thread that handles interrupts.
//!
//! Every queue on the way is bounded, so a reader that is slow slows the tasks' models down. One that has stopped reading (a pager, a pipe
//! that nobody empties) doesn't keep an interrupt from ending them.

use std::sync::Arc;
use std::time::Duration;

use regent_kernel::Host;
use regent_runtime::event::Event;
use regent_runtime::{Reins, TaskEnd, TaskHandle};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::live::Live;
use crate::calls::{Interrupt, Interrupts};
use crate::stage::Stage;

/// How often the last line is drawn again when nothing happens.
const TICK_MS: u64 = 200;
/// News on the way from the tasks to the view. What waits beyond that waits in the tasks' own queues, which the runtime looks at.
const NEWS_WAITING_MAX: usize = 1;
/// A write that takes so many ticks after an interrupt has no reader: nothing more is written.
const UNREAD_TICKS_MAX: u32 = 5;

/// How tasks ended, and whether the user wanted them to stop.
pub(crate) struct WatchedTasks {
    pub(super) ended: Vec<TaskEnd>,
    pub(super) interrupted: bool,
}

/// What comes from a running task.
pub(crate) enum News {
    Event(usize, Event),
    Missed(u64),
    Ended(Option<TaskEnd>),
}

/// What is shown of the tasks. A thread has it while it writes.
pub(super) struct View {
    live: Option<Live>,
    writing: Option<JoinHandle<Live>>,
    /// Ticks for which a write has lasted since the interrupt.
    unread_ticks: u32,
}

impl View {
    pub(super) fn new(live: Live) -> Self {
        Self { live: Some(live), writing: None, unread_ticks: 0 }
    }

    /// Writes on a thread for it, if nothing is being written.
    fn write(&mut self, write: impl FnOnce(&mut Live) + Send + 'static) {
        if let Some(mut live) = self.live.take() {
            self.writing = Some(tokio::task::spawn_blocking(move || {
                write(&mut live);
                live
            }));
        }
    }

    /// Waits until it is written; forever, if nothing is being written.
    async fn written(&mut self) {
        match &mut self.writing {
            // Without a view, by a panic, nothing more is shown.
            Some(writing) => self.live = writing.await.ok(),
            None => std::future::pending().await,
        }
        (self.writing, self.unread_ticks) = (None, 0);
    }

    /// Whether news can be taken: to be shown, or to be dropped because nobody reads.
    fn takes(&self) -> bool {
        self.writing.is_none() || self.has_no_reader()
    }

    fn has_no_reader(&self) -> bool {
        self.unread_ticks >= UNREAD_TICKS_MAX
    }
}

/// Shows tasks until all have ended. The first interrupt stops each between two steps, the second stops the calls that run.
pub(super) async fn until_ended(
    mut view: View,
    host: &Host,
    stage: &Arc<Stage>,
    handles: Vec<TaskHandle>,
) -> WatchedTasks {
    let (tell, mut news) = mpsc::channel(NEWS_WAITING_MAX);
    let reins: Vec<Reins> = handles.iter().map(TaskHandle::reins).collect();
    for (number, handle) in handles.into_iter().enumerate() {
        tokio::spawn(forward(number, handle, tell.clone()));
    }
    drop(tell);
    let mut watched = WatchedTasks { ended: Vec::new(), interrupted: false };
    let mut interrupts = Interrupts::listen();
    let mut tick = tokio::time::interval(Duration::from_millis(TICK_MS));
    let mut says_stopping = false;
    loop {
        if std::mem::take(&mut says_stopping) {
            match view.live {
                Some(_) => view.write(Live::stopping),
                None => says_stopping = true,
            }
        }
        tokio::select! {
            interrupt = interrupts.next() => match (watched.interrupted, interrupt) {
                (false, Interrupt::Asked | Interrupt::HungUp) => {
                    (watched.interrupted, says_stopping) = (true, true);
                    reins.iter().for_each(Reins::pause);
                }
                // What runs is stopped, and the ledger says so; resuming finds out from there.
                (true, Interrupt::Asked) => drop(host.shutdown().await),
                (true, Interrupt::HungUp) => {}
            },
            () = view.written() => {}
            one = news.recv(), if view.takes() => match one {
                Some(News::Event(number, event)) => view.write(move |live| live.event(number, event)),
                Some(News::Missed(count)) => view.write(move |live| live.missed(count)),
                Some(News::Ended(end)) => watched.ended.extend(end),
                None => break,
            },
            _ = tick.tick() => match view.writing {
                Some(_) if watched.interrupted => view.unread_ticks = view.unread_ticks.saturating_add(1),
                Some(_) => {}
                None => view.write(Live::tick),
            },
        }
    }
    if !view.has_no_reader() {
        stage.end();
    }
    watched
}

/// Waits while the view is behind, so that the task's own queue fills up and its model is slowed down.
pub(crate) async fn forward(number: usize, mut handle: TaskHandle, tell: mpsc::Sender<News>) {
    loop {
        let news = match handle.events.recv().await {
            Ok(event) => News::Event(number, event),
            Err(RecvError::Lagged(count)) => News::Missed(count),
            Err(RecvError::Closed) => break,
        };
        if tell.send(news).await.is_err() {
            return;
        }
    }
    let _nobody = tell.send(News::Ended(handle.ended().await)).await;
}
