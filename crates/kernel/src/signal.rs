//! Signals: the twelve of the table, with masks, dispositions and queues. What they do to an agent is in `agent::delivery`.
//!
//! | signal | by default | held back by a mask | ignored | handled by the agent |
//! |---|---|---|---|---|
//! | STOP 1 | suspend | yes | no | no |
//! | CONT 2 | resume, whatever mask and disposition say | the notice of it | the notice | the notice |
//! | INT 3, LOOP 11 | stop the running calls | yes | yes | yes |
//! | KILL 4, POLICY 8, TRUST 9 | end now; POLICY that the kernel raises for a lineage with too many denials suspends it, and so does TRUST for an agent that lost its trust | no | no | no |
//! | TERM 5 | end now | yes | yes | yes |
//! | USR1 6 | checkpoint | yes | yes | yes |
//! | USR2 7 | diagnostics | yes | yes | yes |
//! | BUDGET 10, DRIFT 12 | suspend | yes | no | no |

use std::collections::VecDeque;

pub use regent_wire::{Disposition, MaskChange, Signal, SignalError};

/// How many signals wait behind a mask, and how many for the agent's own handling. More are dropped, and the sender hears it.
const QUEUE_SIGNALS_MAX: usize = 64;

/// A signal's default action.
pub(crate) fn action(signal: Signal) -> SignalEffect {
    match signal {
        Signal::Stop | Signal::Budget | Signal::Drift => SignalEffect::Suspend,
        Signal::Cont => SignalEffect::Resume,
        Signal::Int | Signal::Loop => SignalEffect::Interrupt,
        Signal::Kill | Signal::Term | Signal::Policy | Signal::Trust => SignalEffect::End,
        Signal::Usr1 => SignalEffect::Checkpoint,
        Signal::Usr2 => SignalEffect::Diagnose,
    }
}

fn can_be_held_back(signal: Signal) -> bool {
    !matches!(signal, Signal::Kill | Signal::Policy | Signal::Trust)
}

/// What suspends or ends an agent against its will is not the agent's to decide on.
fn can_be_changed(signal: Signal) -> bool {
    can_be_held_back(signal) && !matches!(action(signal), SignalEffect::Suspend)
}

/// What the kernel does to an agent on a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalEffect {
    Suspend,
    Resume,
    Interrupt,
    End,
    Checkpoint,
    Diagnose,
}

/// What became of a signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It has this effect now.
    Acts(SignalEffect),
    /// It waits behind the mask.
    Held,
    /// It waits for the agent's own handling.
    ForAgent,
    /// The agent ignores it.
    Ignored,
    /// Too many wait already.
    Dropped,
}

/// A signal can't be treated like that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} can be neither ignored nor handled")]
pub(crate) struct Fixed(Signal);

/// One agent's signals: its mask, its handlers, and what is pending.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inbox {
    mask: Set,
    ignored: Set,
    handled: Set,
    held: VecDeque<Signal>,
    for_agent: VecDeque<Signal>,
}

impl Inbox {
    /// Takes a signal in.
    pub(crate) fn receive(&mut self, signal: Signal) -> Arrival {
        let action = action(signal);
        if self.mask.has(signal) {
            let held = push(&mut self.held, signal, Arrival::Held);
            // A suspended agent can't lift its own mask, so the mask doesn't keep it suspended.
            return if action == SignalEffect::Resume { Arrival::Acts(action) } else { held };
        }
        let arrival = if self.handled.has(signal) {
            push(&mut self.for_agent, signal, Arrival::ForAgent)
        } else if self.ignored.has(signal) {
            Arrival::Ignored
        } else {
            Arrival::Acts(action)
        };
        if action == SignalEffect::Resume { Arrival::Acts(action) } else { arrival }
    }

    /// Changes the mask, and returns the signals that this lets through, oldest first. Signals that can't be masked are left out.
    pub(crate) fn mask(&mut self, change: &MaskChange) -> Vec<Signal> {
        let named = |signals: &[Signal]| {
            signals
                .iter()
                .filter(|signal| can_be_held_back(**signal))
                .fold(Set::default(), |set, one| set.with(*one))
        };
        self.mask = match change {
            MaskChange::Block(signals) => Set(self.mask.0 | named(signals).0),
            MaskChange::Unblock(signals) => Set(self.mask.0 & !named(signals).0),
            MaskChange::Set(signals) => named(signals),
        };
        let mask = self.mask;
        let (held, through) =
            std::mem::take(&mut self.held).into_iter().partition::<Vec<_>, _>(|signal| mask.has(*signal));
        self.held = held.into();
        through
    }

    /// The signals that are held back now.
    pub(crate) fn masked(&self) -> Vec<Signal> {
        Signal::ALL.into_iter().filter(|signal| self.mask.has(*signal)).collect()
    }

    /// Says what the agent does on a signal.
    pub(crate) fn dispose(&mut self, signal: Signal, to: Disposition) -> Result<(), Fixed> {
        let (ignored, handled) = (self.ignored.without(signal), self.handled.without(signal));
        (self.ignored, self.handled) = match to {
            Disposition::Default => (ignored, handled),
            Disposition::Ignore | Disposition::Handle if !can_be_changed(signal) => {
                return Err(Fixed(signal));
            }
            Disposition::Ignore => (ignored.with(signal), handled),
            Disposition::Handle => (ignored, handled.with(signal)),
        };
        Ok(())
    }

    /// Takes the signals that the agent handles itself, oldest first.
    pub(crate) fn take(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.for_agent).into()
    }
}

fn push(queue: &mut VecDeque<Signal>, signal: Signal, done: Arrival) -> Arrival {
    if queue.len() >= QUEUE_SIGNALS_MAX {
        return Arrival::Dropped;
    }
    queue.push_back(signal);
    done
}

/// A set of signals: one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Set(u16);

impl Set {
    fn has(self, signal: Signal) -> bool {
        self.0 & (1 << signal.number()) != 0
    }

    fn with(self, signal: Signal) -> Self {
        Self(self.0 | 1 << signal.number())
    }

    fn without(self, signal: Signal) -> Self {
        Self(self.0 & !(1 << signal.number()))
    }
}

#[cfg(test)]
mod tests;
