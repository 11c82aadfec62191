//! What changes in an agent's life: its stage, its signals, its trust, what it has seen and used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regent_policy::{Label, SessionFacts};
pub(crate) use regent_wire::body::AgentEnd as End;
use tokio::sync::watch;

use super::TRUST_MAX;
use super::denials::{Denials, Follows};
use super::lifecycle::{Lifecycle, Step};
use crate::request::Work;
use crate::signal::{Arrival, Inbox, Signal};

/// The part of an agent that its principal carries along, so that a call needs no lookup.
#[derive(Debug)]
pub(crate) struct Life {
    stage: watch::Sender<Lifecycle>,
    vitals: Mutex<Vitals>,
    work: Work,
}

#[derive(Debug)]
struct Vitals {
    inbox: Inbox,
    trust: u16,
    context: Label,
    session: SessionFacts,
    end: Option<End>,
    /// Denials of this agent and of those that descend from it, if a person started it.
    denials: Denials,
    /// Checkpoints and diagnostics written so far.
    written: u32,
}

impl Life {
    pub(super) fn new(trust: u16, context: Label, work: Work) -> Self {
        let (inbox, session) = (Inbox::default(), SessionFacts::default());
        let (end, denials) = (None, Denials::default());
        let vitals = Vitals { inbox, trust, context, session, end, denials, written: 0 };
        Self { stage: watch::Sender::new(Lifecycle::Init), vitals: Mutex::new(vitals), work }
    }

    fn vitals(&self) -> MutexGuard<'_, Vitals> {
        self.vitals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request that it and its children work on.
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    pub(crate) fn stage(&self) -> Lifecycle {
        *self.stage.borrow()
    }

    /// Its stage, as it changes from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Lifecycle> {
        let mut stage = self.stage.subscribe();
        // An agent that is already suspended is notified at once.
        if *stage.borrow() == Lifecycle::Suspended {
            stage.mark_changed();
        }
        stage
    }

    /// Takes a step, if it can be taken from where the agent is.
    pub(super) fn step(&self, step: Step) -> bool {
        self.stage.send_if_modified(|stage| match step.leads_from(*stage) {
            Some(next) => {
                *stage = next;
                true
            }
            None => false,
        })
    }

    /// Waits while calls have to wait.
    pub(crate) async fn settled(&self) -> Lifecycle {
        self.reaches(|stage| !matches!(stage, Lifecycle::Init | Lifecycle::Suspended)).await
    }

    /// Waits until it is over and none of its calls runs any more.
    pub(crate) async fn ended(&self) {
        self.reaches(|stage| stage == Lifecycle::Terminated).await;
    }

    async fn reaches(&self, wanted: impl Fn(Lifecycle) -> bool) -> Lifecycle {
        let mut stage = self.stage.subscribe();
        match stage.wait_for(|stage| wanted(*stage)).await {
            Ok(stage) => *stage,
            // The sender is a field of `self`, so it can't be gone; if it were, the agent would be too.
            Err(_gone) => Lifecycle::Terminated,
        }
    }

    /// Begins the end. The first reason stays.
    pub(crate) fn begin_end(&self, end: End) -> bool {
        let mut vitals = self.vitals();
        let begun = self.step(Step::Retire);
        if begun {
            vitals.end = Some(end);
        }
        begun
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.vitals().end
    }

    /// Takes a signal in; `None` when it is too late for any.
    pub(crate) fn receive(&self, signal: Signal) -> Option<Arrival> {
        let mut vitals = self.vitals();
        (!self.stage().is_over()).then(|| vitals.inbox.receive(signal))
    }

    pub(crate) fn with_inbox<T>(&self, act: impl FnOnce(&mut Inbox) -> T) -> T {
        act(&mut self.vitals().inbox)
    }

    pub(crate) fn context(&self) -> Label {
        self.vitals().context
    }

    pub(super) fn saw(&self, label: Label, tokens: u64) {
        let mut vitals = self.vitals();
        vitals.context = vitals.context.join(label);
        let session = &mut vitals.session;
        session.tokens = session.tokens.saturating_add(tokens);
        session.request_tokens = session.request_tokens.saturating_add(tokens);
    }

    pub(crate) fn trust(&self) -> u16 {
        self.vitals().trust
    }

    pub(super) fn move_trust(&self, by: i16) -> (u16, u16) {
        let mut vitals = self.vitals();
        let from = vitals.trust;
        vitals.trust = from.saturating_add_signed(by).min(TRUST_MAX);
        (from, vitals.trust)
    }

    /// One more denial in its lineage.
    pub(super) fn denied(&self, now: Duration) -> Follows {
        self.vitals().denials.add(now)
    }

    /// How many denials its lineage has collected lately.
    pub(super) fn denials(&self) -> usize {
        self.vitals().denials.count()
    }

    pub(crate) fn session(&self) -> SessionFacts {
        self.vitals().session
    }

    pub(super) fn measured(&self, confidence: Option<f64>, drift: Option<f64>) {
        // What is no number is the worst it could be.
        let between =
            |measure: f64, worst: f64| if measure.is_nan() { worst } else { measure.clamp(0.0, 1.0) };
        let session = &mut self.vitals().session;
        session.confidence = confidence.map(|measure| between(measure, 0.0));
        session.drift = drift.map(|measure| between(measure, 1.0));
    }

    pub(super) fn begin_request(&self) {
        let session = &mut self.vitals().session;
        (session.tool_calls, session.request_tokens) = (0, 0);
    }

    /// The number of the next checkpoint.
    pub(super) fn next_written(&self) -> u32 {
        let mut vitals = self.vitals();
        vitals.written = vitals.written.saturating_add(1);
        vitals.written
    }

    pub(super) fn take_slot(self: &Arc<Self>, is_tool: bool) -> Slot {
        let mut vitals = self.vitals();
        let session = vitals.session;
        if is_tool {
            vitals.session.tool_calls = session.tool_calls.saturating_add(1);
        }
        Slot { session, taken: is_tool.then(|| Arc::clone(self)) }
    }
}

/// A call's place in the count of its session. Given back when it is dropped, unless the call came to an effect.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// What the session had done before this call.
    pub(crate) session: SessionFacts,
    taken: Option<Arc<Life>>,
}

impl Slot {
    /// The call was made: it counts.
    pub(crate) fn keep(&mut self) {
        self.taken = None;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(life) = self.taken.take() {
            let count = &mut life.vitals().session.tool_calls;
            *count = count.saturating_sub(1);
        }
    }
}
