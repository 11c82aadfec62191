//! Agents, as they are asked for and shown.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Budget, Priority};

/// The specification of a new agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpawnSpec {
    /// The name that policy matches. An agent's child is called `<parent>/<name>`, so no agent can take another one's name.
    pub name: String,
    /// Its roles; a child can't have roles that its parent lacks.
    #[serde(default)]
    pub roles: Vec<String>,
    /// It leads a process group of its own, rather than joining its parent's.
    #[serde(default)]
    pub new_group: bool,
    /// How far it is trusted at most; never further than its parent.
    #[serde(default)]
    pub trust: Option<u16>,
    /// How much of its parent's budget it may use at most, together with whatever it starts itself.
    #[serde(default)]
    pub budget: Option<Budget>,
    /// How urgent its calls to models are; its parent's if absent, and never more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// What it may do at most, whatever policy allows; never more than its parent.
    #[serde(default, skip_serializing_if = "Grants::is_all")]
    pub grants: Grants,
}

/// What an agent was granted when it was started. The kernel holds it and all that it starts to that; policy can only say no to more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// The tools that it may call; any, if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<String>>,
    /// Whether it may change anything.
    pub changes: Changes,
}

/// Whether an agent may change anything outside its own memory: files, programs, other machines. Ordered from the widest grant.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Changes {
    /// What policy allows.
    #[default]
    Allowed,
    /// A person is asked about each.
    Asked,
    /// Nothing.
    Denied,
}

impl Grants {
    /// Whether nothing is held back.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// What both grant.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        let tools = match (&self.tools, &other.tools) {
            (Some(one), Some(other)) => Some(one & other),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        Self { tools, changes: self.changes.max(other.changes) }
    }
}

/// Where an agent is in its life. Ordered: it never goes back past `Active`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// Has an id and a key; its start isn't recorded yet.
    Init,
    /// Recorded; has not called yet.
    Ready,
    /// Calls are let in.
    Active,
    /// Calls wait.
    Suspended,
    /// Calls are refused; those that run are being stopped.
    Retiring,
    /// Over. None of its calls runs any more.
    Terminated,
}

impl Lifecycle {
    /// Whether it takes no more calls, for good.
    pub fn is_over(self) -> bool {
        self >= Self::Retiring
    }

    /// As entries and people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Retiring => "retiring",
            Self::Terminated => "terminated",
        }
    }
}
