//! Signals, by name and number.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A signal, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
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
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that isn't a signal.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is not a signal; use STOP CONT INT KILL TERM USR1 USR2 POLICY TRUST BUDGET LOOP DRIFT, or 1 to 12", .0.escape_debug())]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MaskChange {
    /// Hold these back as well.
    Block(Vec<Signal>),
    /// Let these through again.
    Unblock(Vec<Signal>),
    /// Hold back exactly these.
    Set(Vec<Signal>),
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delivered {
    /// It had its effect.
    Done,
    /// It waits until the agent lets it through.
    Held,
    /// It waits for the agent's own handling.
    ForAgent,
    /// The agent ignores it.
    Ignored,
    /// Too many signals wait for the agent already.
    Dropped,
    /// There was nothing to do: already so, or the agent has ended.
    Nothing,
}
