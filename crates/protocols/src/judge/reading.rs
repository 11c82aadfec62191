//! Quarantined reading for agents that others run: the host keeps a text from its agent and asks for one typed value in it.

use regent_kernel::{Op, Reply, Status, ToolCall};
use regent_wire::judge::{JudgeRead, JudgeValue};
use serde::Deserialize;
use serde_json::Value;

use super::{Judge, JudgeError, Judged, WaitingDecision};

/// What the tool that reads answers with.
#[derive(Deserialize)]
struct Extracted {
    value: Value,
    #[serde(default)]
    cut: bool,
}

impl Judge {
    /// Reads a typed value out of a text in the agent's stead.
    pub(super) async fn read(&self, name: &str, read: JudgeRead) -> Result<JudgeValue, JudgeError> {
        let session = self.session(name)?;
        let mut session = session.lock().await;
        if self.parts.planner.model().is_none() {
            let why = "no model for reading: start the judge with `--model NAME`".to_owned();
            return Err(JudgeError::Refused(why));
        }
        // The value is as confidential as what was quarantined, and only a report says what that was.
        let is_owed =
            |one: &&WaitingDecision| one.flow.quarantined && matches!(one.state, Judged::Allowed { .. });
        if let Some(owed) = session.waiting.values().find(is_owed) {
            let why =
                format!("report the result of call {} with `observe` first: it is quarantined", owed.call.id);
            return Err(JudgeError::Refused(why));
        }
        let run = ToolCall { tool: self.parts.extract.to_owned(), args: Value::Object(read.args) };
        self.bring_back(&session).await;
        let reply = self.parts.kernel.syscall(&session.agent, Op::RunTool(run)).await;
        self.used(&session).await;
        let outcome = match reply? {
            Reply::Done(outcome) => outcome,
            Reply::Denied(denial) => return Err(JudgeError::Refused(denial.reason.message)),
            Reply::Pending(ticket) => return Err(JudgeError::Refused(ticket.reason)),
        };
        if let Status::Failed(failure) = outcome.status {
            return Err(JudgeError::Refused(failure.message));
        }
        session.note(read.id.to_string(), outcome.intent.seq);
        let Extracted { value, cut } =
            outcome.read().map_err(|error| JudgeError::Refused(error.to_string()))?;
        Ok(JudgeValue { cut, outcome: outcome.receipt.seq, value })
    }
}
