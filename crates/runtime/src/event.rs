//! What is told while a task runs, for a live view. The ledger is what happened; these are only news, and a slow reader misses some.

pub use regent_wire::event::{CallEnd, Event, EventLine, PlannedStep};
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
    pub fn tell(&self, event: Event) {
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

/// A text as an event shows it.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
