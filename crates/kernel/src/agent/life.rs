//! What changes in an agent's life: its stage, its signals, its trust, what it has seen and used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regent_policy::{Label, SessionFacts};
pub(crate) use regent_wire::body::AgentEnd as End;
use regent_wire::{Grants, Priority};
use tokio::sync::watch;

use super::denials::{Denials, Follows};
use super::lifecycle::{Lifecycle, LifecycleStep};
use crate::request::Work;
use crate::signal::{Arrival, Inbox, Signal};

/// The part of an agent that its principal carries along, so that a call needs no lookup.
#[derive(Debug)]
pub(crate) struct Life {
    stage: watch::Sender<Lifecycle>,
    vitals: Mutex<Vitals>,
    work: Work,
    priority: Priority,
    grants: Grants,
}

#[derive(Debug)]
struct Vitals {
    inbox: Inbox,
    trust: u16,
    /// The trust that it started with, and sound calls since trust last moved.
    trust_start: u16,
    sound: u8,
    context: Label,
    session: SessionFacts,
    end: Option<End>,
    /// Denials of this agent and its descendants, if an operator started it.
    denials: Denials,
    /// Checkpoints and diagnostics written so far.
    written: u32,
    /// Which request this is: a call that was counted for an earlier one isn't given back to this one.
    request: u64,
}

impl Life {
    pub(super) fn new(
        trust: u16,
        context: Label,
        work: Work,
        (priority, grants): (Priority, Grants),
    ) -> Self {
        let (inbox, session) = (Inbox::default(), SessionFacts::default());
        let (end, denials, trust_start, sound) = (None, Denials::default(), trust, 0);
        let (written, request) = (0, 0);
        let vitals =
            Vitals { inbox, trust, trust_start, sound, context, session, end, denials, written, request };
        Self {
            stage: watch::Sender::new(Lifecycle::Init),
            vitals: Mutex::new(vitals),
            work,
            priority,
            grants,
        }
    }

    fn vitals(&self) -> MutexGuard<'_, Vitals> {
        self.vitals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request that it and its children work on.
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    /// What it may do at most.
    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
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
    pub(super) fn step(&self, step: LifecycleStep) -> bool {
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
        let begun = self.step(LifecycleStep::Retire);
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

    /// How urgent its calls to models are.
    pub(crate) fn priority(&self) -> Priority {
        self.priority
    }

    /// Lowers its trust; from what to what.
    pub(super) fn lose_trust(&self, by: u16) -> (u16, u16) {
        let mut vitals = self.vitals();
        let from = vitals.trust;
        (vitals.trust, vitals.sound) = (from.saturating_sub(by), 0);
        (from, vitals.trust)
    }

    /// Counts a sound call of an agent that has lost trust. Enough of them raise it; from what to what.
    pub(super) fn regain_trust(&self, by: u16, calls: u8) -> Option<(u16, u16)> {
        let mut vitals = self.vitals();
        let from = vitals.trust;
        vitals.sound = if from < vitals.trust_start { vitals.sound.saturating_add(1) } else { 0 };
        if vitals.sound < calls {
            return None;
        }
        (vitals.trust, vitals.sound) = (from.saturating_add(by).min(vitals.trust_start), 0);
        Some((from, vitals.trust))
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

    /// The person's next turn: what policy limits per request starts again.
    pub(crate) fn begin_request(&self) {
        let mut vitals = self.vitals();
        vitals.request = vitals.request.wrapping_add(1);
        (vitals.session.tool_calls, vitals.session.request_tokens) = (0, 0);
    }

    /// The number of the next checkpoint.
    pub(super) fn next_written(&self) -> u32 {
        let mut vitals = self.vitals();
        vitals.written = vitals.written.saturating_add(1);
        vitals.written
    }

    pub(super) fn take_slot(self: &Arc<Self>, is_tool: bool) -> CallSlot {
        let mut vitals = self.vitals();
        let session = vitals.session;
        if is_tool {
            vitals.session.tool_calls = session.tool_calls.saturating_add(1);
        }
        CallSlot { session, taken: is_tool.then(|| (Arc::clone(self), vitals.request)) }
    }
}

/// A call's place in the count of its session. Given back when it is dropped, unless the call came to an effect.
#[derive(Debug, Default)]
pub(crate) struct CallSlot {
    /// What the session had done before this call.
    pub(crate) session: SessionFacts,
    taken: Option<(Arc<Life>, u64)>,
}

impl CallSlot {
    /// The call was made: it counts.
    pub(crate) fn keep(&mut self) {
        self.taken = None;
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        if let Some((life, request)) = self.taken.take() {
            let mut vitals = life.vitals();
            let over = u32::from(vitals.request == request);
            vitals.session.tool_calls = vitals.session.tool_calls.saturating_sub(over);
        }
    }
}
