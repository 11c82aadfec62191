//! Events of a running task, for a live view. They are only news: a slow reader misses some, and the ledger records what happened.

pub use regent_wire::event::{CallEnd, Event, EventLine, PlannedStep, TodoItem, TodoState};
use tokio::sync::broadcast;

/// How many events wait for a slow reader before it misses the oldest.
const EVENTS_WAITING_MAX: usize = 128;
/// How much of a text an event shows.
const SHOWN_CHARS_MAX: usize = 2_000;

/// Where events go. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(EVENTS_WAITING_MAX))
    }
}

impl Events {
    /// Notifies listeners, if any.
    pub fn send(&self, event: Event) {
        let _nobody_listens = self.0.send(event).is_err();
    }

    /// Whether anybody listens.
    pub(crate) fn has_listeners(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// How many events the slowest listener hasn't taken.
    pub(crate) fn waiting(&self) -> usize {
        self.0.len()
    }

    /// Listens from now on.
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}

/// Cuts a text to the length that an event may have.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
