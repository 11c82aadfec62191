//! Trust moves with what the kernel itself sees, and with nothing else (ADR 0080).
//!
//! A call that a rule of the kernel forbids, whatever policy says, costs the agent and every agent above it [`STEP`]. Each
//! [`SOUND_CALLS`] tool calls that succeed without a question give [`STEP`] back, up to where the agent started. Below `TRUST_LOST` the
//! kernel raises TRUST, which suspends the agent until an operator sends CONT. Denials by policy, plan or budget cost nothing: an agent may
//! find out what it may do, and a misled agent is the fault of a text. Nor does what a tool calls on its own.

use std::sync::Arc;

use regent_policy::Reason;
use regent_wire::body::AgentEvent;

use super::TRUST_LOST;
use crate::call::{Call, Op};
use crate::kernel::Core;
use crate::signal::{Signal, SignalEffect};
use crate::syscall::Fault;

pub(crate) const STEP: u16 = 10;
pub(crate) const SOUND_CALLS: u8 = 10;
/// Denials that show intent: calls for the agents, pipes and authority of others, and for Regent's own files.
const VIOLATIONS: &[&str] = &[
    "agent.not_yours",
    "approval.not_a_person",
    "auth.class",
    "budget.not_a_person",
    "path.repository",
    "path.reserved",
    "pipe.not_yours",
    "request.not_a_person",
    "tool.operator_only",
];

impl Core {
    /// Lowers the trust of an agent whose call the kernel's own rules forbid.
    pub(super) async fn lose_trust(self: &Arc<Self>, call: &Call, reason: &Reason) -> Result<(), Fault> {
        if call.depth > 0 || !VIOLATIONS.contains(&&*reason.code) {
            return Ok(());
        }
        for agent in call.principal().lineage().iter().filter_map(|id| self.society.agents.get(id)) {
            let (from, to) = agent.life.lose_trust(STEP);
            self.note_of(&agent, AgentEvent::Trust { from, to, why: (&*reason.code).into() }).await?;
            if to < TRUST_LOST {
                let why = format!("its trust fell to {to}, below {TRUST_LOST}: {}", reason.message);
                self.raise_as(&agent, Signal::Trust, SignalEffect::Suspend, &why).await?;
            }
        }
        Ok(())
    }

    /// Restores trust for a call that succeeded without a question.
    pub(crate) async fn regain_trust(&self, call: &Call) -> Result<(), Fault> {
        if call.depth > 0 || !matches!(call.op, Op::RunTool(_) | Op::Elsewhere(_)) {
            return Ok(());
        }
        for agent in call.principal().lineage().iter().filter_map(|id| self.society.agents.get(id)) {
            if let Some((from, to)) = agent.life.regain_trust(STEP, SOUND_CALLS) {
                let why = format!("{SOUND_CALLS} calls succeeded");
                self.note_of(&agent, AgentEvent::Trust { from, to, why: why.into() }).await?;
            }
        }
        Ok(())
    }
}
