//! Signals: the twelve of the table, with masks, dispositions and queues. What they do to an agent is in `agent::delivery`.
//!
//! | signal | by default | held back by a mask | ignored | handled by the agent |
//! |---|---|---|---|---|
//! | STOP 1 | suspend | yes | no | no |
//! | CONT 2 | resume, whatever mask and disposition say | the notice of it | the notice | the notice |
//! | INT 3, LOOP 11 | stop the running calls | yes | yes | yes |
//! | KILL 4, POLICY 8, TRUST 9 | end now; POLICY that the kernel raises for a lineage with too many denials suspends it | no | no | no |
//! | TERM 5 | end now | yes | yes | yes |
//! | USR1 6 | checkpoint | yes | yes | yes |
//! | USR2 7 | diagnostics | yes | yes | yes |
//! | BUDGET 10, DRIFT 12 | suspend | yes | no | no |

use std::collections::VecDeque;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How many signals wait behind a mask, and how many for the agent's own handling. More are dropped, and the sender hears it.
const QUEUE_SIGNALS_MAX: usize = 64;

/// A signal, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[repr(u8)]
pub enum Signal {
    /// Suspend.
    Stop = 1,
    /// Carry on.
    Cont = 2,
    /// Interrupt: stop the running calls, the agent lives on.
    Int = 3,
    /// Die now. Can't be masked; the process tree is dead afterwards.
    Kill = 4,
    /// Please end.
    Term = 5,
    /// Make a checkpoint.
    Usr1 = 6,
    /// Give diagnostics.
    Usr2 = 7,
    /// A breach of policy: the agent ends. Can't be masked.
    Policy = 8,
    /// Trust was lost: the agent ends. Can't be masked.
    Trust = 9,
    /// The budget is used up: suspend.
    Budget = 10,
    /// It goes round in circles: interrupt.
    Loop = 11,
    /// It drifts from its goal: suspend.
    Drift = 12,
}

impl Signal {
    /// All of them, by number.
    pub const ALL: [Self; 12] = [
        Self::Stop,
        Self::Cont,
        Self::Int,
        Self::Kill,
        Self::Term,
        Self::Usr1,
        Self::Usr2,
        Self::Policy,
        Self::Trust,
        Self::Budget,
        Self::Loop,
        Self::Drift,
    ];

    /// Its number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Its name, without `SIG`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "STOP",
            Self::Cont => "CONT",
            Self::Int => "INT",
            Self::Kill => "KILL",
            Self::Term => "TERM",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Policy => "POLICY",
            Self::Trust => "TRUST",
            Self::Budget => "BUDGET",
            Self::Loop => "LOOP",
            Self::Drift => "DRIFT",
        }
    }

    /// What it does to an agent that has said nothing about it.
    pub(crate) fn action(self) -> Action {
        match self {
            Self::Stop | Self::Budget | Self::Drift => Action::Suspend,
            Self::Cont => Action::Resume,
            Self::Int | Self::Loop => Action::Interrupt,
            Self::Kill | Self::Term | Self::Policy | Self::Trust => Action::End,
            Self::Usr1 => Action::Checkpoint,
            Self::Usr2 => Action::Diagnose,
        }
    }

    fn can_be_held_back(self) -> bool {
        !matches!(self, Self::Kill | Self::Policy | Self::Trust)
    }

    /// What suspends or ends an agent against its will is not the agent's to decide on.
    fn can_be_changed(self) -> bool {
        self.can_be_held_back() && !matches!(self.action(), Action::Suspend)
    }
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A text names no signal.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is not a signal; there are STOP CONT INT KILL TERM USR1 USR2 POLICY TRUST BUDGET LOOP DRIFT, or 1 to 12", .0.escape_debug())]
pub struct SignalError(String);

impl FromStr for Signal {
    type Err = SignalError;

    /// A name with or without `SIG`, in any case, or a number.
    fn from_str(text: &str) -> Result<Self, SignalError> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let known = |signal: &&Self| signal.name() == name || signal.number().to_string() == name;
        Self::ALL.iter().find(known).copied().ok_or_else(|| SignalError(text.chars().take(32).collect()))
    }
}

/// What an agent does on a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// What the table says.
    Default,
    /// Nothing.
    Ignore,
    /// The agent's own handling: it is queued for `Sigpending`.
    Handle,
}

/// How a mask changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskChange {
    /// Hold these back as well.
    Block(Vec<Signal>),
    /// Let these through again.
    Unblock(Vec<Signal>),
    /// Hold back exactly these.
    Set(Vec<Signal>),
}

/// What the kernel does to an agent on a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
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
    Acts(Action),
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

/// One agent's side of signals: what it holds back, what it has said about each, what waits.
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
        let action = signal.action();
        if self.mask.has(signal) {
            let held = push(&mut self.held, signal, Arrival::Held);
            // A suspended agent can't lift its own mask, so the mask doesn't keep it suspended.
            return if action == Action::Resume { Arrival::Acts(action) } else { held };
        }
        let told = if self.handled.has(signal) {
            push(&mut self.for_agent, signal, Arrival::ForAgent)
        } else if self.ignored.has(signal) {
            Arrival::Ignored
        } else {
            Arrival::Acts(action)
        };
        if action == Action::Resume { Arrival::Acts(action) } else { told }
    }

    /// Changes the mask, and gives back the signals that this lets through, oldest first. What can't be held back is left out.
    pub(crate) fn mask(&mut self, change: &MaskChange) -> Vec<Signal> {
        let named = |signals: &[Signal]| {
            signals
                .iter()
                .filter(|signal| signal.can_be_held_back())
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
            Disposition::Ignore | Disposition::Handle if !signal.can_be_changed() => {
                return Err(Fixed(signal));
            }
            Disposition::Ignore => (ignored.with(signal), handled),
            Disposition::Handle => (ignored, handled.with(signal)),
        };
        Ok(())
    }

    /// Takes what waits for the agent's own handling, oldest first.
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
