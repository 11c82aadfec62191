//! The lives of agents.

use std::borrow::Cow;

use regent_identity::AgentId;
use regent_ledger::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Budget, Delivered, Signal, Version};

pub(super) const VERSION: u64 = 1;

/// Something happened in an agent's life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentNote")]
pub struct AgentBody<'a> {
    /// Which agent.
    pub agent: AgentId,
    /// What happened.
    #[serde(flatten, borrow)]
    pub event: AgentEvent<'a>,
    /// In which session.
    #[serde(default)]
    pub session: Cow<'a, str>,
    /// Which version this is.
    #[serde(default = "Version::<VERSION>::first", skip_serializing_if = "Version::<VERSION>::is_first")]
    pub v: Version<VERSION>,
}

impl<'a> AgentBody<'a> {
    /// What is written of an event.
    pub fn new(agent: &AgentId, session: &'a str, event: AgentEvent<'a>) -> Self {
        Self { agent: agent.clone(), event, session: session.into(), v: Version::CURRENT }
    }
}

/// What happens in an agent's life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AgentEvent<'a> {
    /// It was started.
    Spawned(#[serde(borrow)] Box<Spawned<'a>>),
    /// It made its first call.
    Active,
    /// A signal suspended it.
    Suspended {
        /// What came with it.
        with: BySignal,
    },
    /// A signal let it carry on.
    Resumed {
        /// What came with it.
        with: BySignal,
    },
    /// It was found going round in circles.
    Looped {
        /// What came with it.
        with: Stopped,
    },
    /// Too many of its calls were denied, so it is slowed down.
    Slowed {
        /// What came with it.
        with: Slowed,
    },
    /// It is marked as ended: its calls are refused.
    Retiring {
        /// What came with it.
        with: Ended,
    },
    /// It has ended, and so has every call of it.
    Terminated {
        /// What came with it.
        with: Ended,
    },
    /// It has ended; some call of it did not end in time.
    TerminatedUndrained {
        /// What came with it.
        with: Ended,
    },
    /// The kernel raised a signal for it.
    Signalled {
        /// What became of the signal; nothing, if that couldn't be done.
        delivered: Option<Delivered>,
        /// The signal's number.
        number: u8,
        /// The signal's name.
        signal: Signal,
        /// Why it was raised.
        why: Cow<'a, str>,
    },
    /// It got a token, by which a program shows that it is this agent.
    Token {
        /// Who had it made.
        by: Cow<'a, [String]>,
        /// The digest of what the kernel keeps of it.
        token: Digest,
    },
    /// Its trust was moved.
    Trust {
        /// From this.
        from: u16,
        /// To this.
        to: u16,
        /// Why.
        why: Cow<'a, str>,
    },
    /// Something was mounted in its tree. Only older ledgers have it.
    Plugged {
        /// Where.
        name: Cow<'a, str>,
        /// Whether it can be written there.
        writable: bool,
    },
}

/// How an agent starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentStart")]
pub struct Spawned<'a> {
    /// What it may use.
    #[serde(default)]
    pub budget: Option<Budget>,
    /// On whose behalf it acts, the person first.
    #[serde(default)]
    pub chain: Cow<'a, [String]>,
    /// The name of its key.
    pub did: Cow<'a, str>,
    /// Its process group.
    pub group: AgentId,
    /// The name that rules match.
    pub name: Cow<'a, str>,
    /// Who started it, if an agent did.
    #[serde(default)]
    pub parent: Option<AgentId>,
    /// A signature of its own key over its id, its key's name and its sponsor.
    pub proof: Cow<'a, str>,
    /// Its roles.
    #[serde(default)]
    pub roles: Cow<'a, [String]>,
    /// The person whom it works for.
    pub sponsor: Cow<'a, str>,
    /// How far it is trusted, 0 to 1000.
    pub trust: u16,
}

/// The signal that brought something about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BySignal {
    /// Which.
    pub signal: Signal,
}

/// What a loop led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stopped {
    /// How many running calls were stopped.
    pub stopped: u64,
}

/// What slows an agent down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slowed {
    /// So many denials.
    pub denials: u64,
    /// Within this time.
    pub within_ms: u64,
}

/// How an agent's end came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// By itself, or by a signal.
    pub end: Option<AgentEnd>,
}

/// How an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentEnd {
    /// By itself, with this result.
    Code(i32),
    /// By this signal.
    Signal(Signal),
}
