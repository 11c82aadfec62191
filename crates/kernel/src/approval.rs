//! Questions for a person, and answers bound to the exact call.

use std::sync::Arc;

use regent_ledger::Receipt;
use regent_policy::Question;
use serde::{Deserialize, Serialize};

use crate::call::{Call, CallDigest};
use crate::clock::Clock;
use crate::facts::Sheet;
use crate::principal::Principal;
use crate::state::{State, StateError};

/// A question's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TicketId(pub String);

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "say")]
pub enum Answer {
    /// Yes: how often and how long.
    Approve {
        /// For what.
        scope: Scope,
        /// For how long.
        valid_ms: u64,
    },
    /// No.
    Deny {
        /// Advice to the agent.
        because: Option<String>,
    },
}

/// How far a yes goes. Always for exactly the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One time.
    Once,
    /// As often as wanted in this session.
    Session,
    /// As often as wanted in this project.
    Project,
}

/// A question that was put.
#[derive(Debug, Clone, Serialize)]
pub struct Asked {
    /// Its id.
    pub id: TicketId,
}

/// A yes that was found for a call, as the intent records it.
#[derive(Debug, Clone, Serialize)]
pub struct Approved {
    /// Who said it.
    pub by: Vec<String>,
    /// How far it goes.
    pub scope: Scope,
    /// To which question.
    pub ticket: TicketId,
}

/// "Not yet": what the caller gets while a person is asked.
#[derive(Debug)]
pub struct Ticket {
    /// The question.
    pub asked: Option<Asked>,
    /// Where it is in the ledger.
    pub intent: Receipt,
}

impl Ticket {
    pub(crate) fn of(asked: Option<Asked>, intent: Receipt) -> Self {
        Self { asked, intent }
    }
}

/// The questions and answers.
#[derive(Debug)]
pub(crate) struct Approvals {}

impl Approvals {
    pub(crate) fn new(_state: Arc<dyn State>, _clock: Arc<dyn Clock>) -> Self {
        Self {}
    }

    /// Uses up a yes for exactly this call, if there is one.
    pub(crate) fn take(
        &self,
        _call: &CallDigest,
        _question: &Question,
        _who: &Principal,
    ) -> Result<Option<Approved>, StateError> {
        Ok(None)
    }

    /// Puts a question.
    pub(crate) fn ask(
        &self,
        _call: &Call,
        _sheet: &Sheet,
        _question: &Question,
    ) -> Result<Asked, StateError> {
        Ok(Asked { id: TicketId(String::new()) })
    }
}
