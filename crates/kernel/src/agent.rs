//! Agents as processes: who they are, whose children, what state they are in, what they have seen.

use std::sync::Arc;

use regent_policy::{Confidentiality, Integrity, Label, Reason, SessionFacts};
use serde::{Deserialize, Serialize};

use crate::cancel::Cancel;
use crate::principal::Principal;

/// An agent's id: unique over all kernel processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for AgentId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// What a new agent is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnSpec {
    /// The name that policy matches.
    pub name: String,
    /// Its roles; a child can't have roles that its parent lacks.
    pub roles: Vec<String>,
}

/// All agents of this kernel.
#[derive(Debug, Default)]
pub(crate) struct Agents {}

impl Agents {
    /// Waits while the agent is suspended; says why if it may not call any more.
    pub(crate) async fn gate(&self, _who: &Principal) -> Option<Reason> {
        None
    }

    /// What the agent's words may carry: everything it has seen, joined.
    pub(crate) fn context(&self, _who: &Principal) -> Label {
        Label { integrity: Integrity::OwnModel, confidentiality: Confidentiality::Internal }
    }

    /// Notes that it has seen output with this label.
    pub(crate) fn saw(&self, _who: &Principal, _label: Label) {}

    /// How far it is trusted, 0 to 1000.
    pub(crate) fn trust(&self, _who: &Principal) -> u16 {
        500
    }

    pub(crate) fn session_facts(&self, _who: &Principal) -> SessionFacts {
        SessionFacts::default()
    }
}

/// The calls that run now, so that a signal can reach them.
#[derive(Debug, Default)]
pub(crate) struct Calls {}

/// A running call; it leaves the table when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    cancel: Cancel,
}

impl Running {
    pub(crate) fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }
}

impl Calls {
    pub(crate) fn enter(&self, _who: &Principal, _intent: u64) -> Running {
        Running { cancel: Cancel::default() }
    }

    /// Tells all of them to stop and waits until they have.
    pub(crate) async fn stop_all(&self) {}
}
