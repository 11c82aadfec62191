//! Signals: the twelve of the table, with masks, dispositions and queues.

use serde::{Deserialize, Serialize};

/// A signal, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[repr(u8)]
pub enum Signal {
    /// Suspend.
    Stop = 1,
    /// Carry on.
    Cont = 2,
    /// Interrupt: stop the running call, the agent lives on.
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
