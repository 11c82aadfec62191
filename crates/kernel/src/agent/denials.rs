//! Agents that collect denials. An agent that tries out what policy allows is slowed down, and then suspended.
//!
//! Denials count for the lineage: the agent that an operator started and all its descendants, so that being many doesn't help. Each
//! denial beyond [`SLOWED_FROM`] within a minute is answered later than the one before. At [`SUSPENDED_FROM`] within ten minutes the kernel
//! raises POLICY for the lineage, which suspends it until an operator sends CONT. An ordinary agent that meets some denials notices nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regent_policy::{Class, Reason};
use regent_wire::body::{AgentEvent, Slowed};

use super::Agent;
use crate::approval::UNATTENDED;
use crate::call::Call;
use crate::kernel::Core;
use crate::signal::{Signal, SignalEffect};
use crate::syscall::Fault;

/// Denials within [`SHORT`] that are answered at once.
pub(crate) const SLOWED_FROM: usize = 60;
/// Denials within [`LONG`] at which the lineage is suspended.
pub(crate) const SUSPENDED_FROM: usize = 300;
const SHORT_MS: u64 = 60_000;
const SHORT: Duration = Duration::from_millis(SHORT_MS);
const LONG: Duration = Duration::from_secs(600);
/// How much longer each further denial takes, and how long one takes at most.
const DELAY_STEP_MS: u64 = 20;
const DELAY_MS_MAX: u64 = 2_000;

/// When the denials of a lineage were, the oldest first; none is older than [`LONG`].
#[derive(Debug, Default)]
pub(super) struct Denials(VecDeque<Duration>);

/// Denials of services and peers, by name. There are no more of these than tokens.
#[derive(Debug, Default)]
pub(crate) struct ProgramDenials(Mutex<BTreeMap<String, Denials>>);

impl ProgramDenials {
    /// One more denial of a program. A program has no agent to suspend: the answer then takes as long as one can.
    fn add(&self, name: &str, now: Duration) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = match all.entry(name.to_owned()).or_default().add(now) {
            Follows::Nothing => 0,
            Follows::Delay(ms, _) => ms,
            Follows::Suspension => DELAY_MS_MAX,
        };
        Duration::from_millis(ms)
    }
}

/// What follows from a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    Nothing,
    /// The answer waits for so long; whether it is the first that does.
    Delay(u64, bool),
    Suspension,
}

impl Denials {
    /// One more denial at `now`, by the monotonic clock.
    pub(super) fn add(&mut self, now: Duration) -> Follows {
        self.0.push_back(now);
        self.forget(now);
        if self.0.len() >= SUSPENDED_FROM {
            // Resuming it resets the count.
            self.0.clear();
            return Follows::Suspension;
        }
        let lately = self.0.iter().rev().take_while(|at| now.saturating_sub(**at) <= SHORT).count();
        match lately.checked_sub(SLOWED_FROM) {
            None | Some(0) => Follows::Nothing,
            Some(over) => {
                let ms = DELAY_STEP_MS.saturating_mul(u64::try_from(over).unwrap_or(u64::MAX));
                Follows::Delay(ms.min(DELAY_MS_MAX), over == 1)
            }
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    fn forget(&mut self, now: Duration) {
        while self.0.front().is_some_and(|at| now.saturating_sub(*at) > LONG) {
            self.0.pop_front();
        }
    }
}

impl Core {
    /// Counts a denial against the caller's lineage, or against a service or peer. An operator is never slowed.
    pub(crate) async fn count_denial(self: &Arc<Self>, call: &Call, reason: &Reason) -> Result<(), Fault> {
        self.lose_trust(call, reason).await?;
        if !is_telling(reason) {
            return Ok(());
        }
        let who = call.principal();
        if matches!(who.class(), Class::Service | Class::Peer) {
            let delay = self.society.programs.add(who.name(), self.clock.elapsed());
            tokio::time::sleep(delay).await;
            return Ok(());
        }
        let Some(leader) = who.lineage().first().and_then(|id| self.society.agents.get(id)) else {
            return Ok(());
        };
        match leader.life.denied(self.clock.elapsed()) {
            Follows::Nothing => {}
            Follows::Delay(ms, is_first) => {
                if is_first {
                    self.note_of(
                        &leader,
                        AgentEvent::Slowed {
                            with: Slowed { denials: SLOWED_FROM as u64, within_ms: SHORT_MS },
                        },
                    )
                    .await?;
                }
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            Follows::Suspension => {
                let why = format!("{SUSPENDED_FROM} denials within {} minutes", LONG.as_secs() / 60);
                for agent in self.society.agents.those(|agent| is_below(agent, &leader)) {
                    self.raise_as(&agent, Signal::Policy, SignalEffect::Suspend, &why).await?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a denial tells something about policy: what time or money changes, and the end of an agent, doesn't.
fn is_telling(reason: &Reason) -> bool {
    let passes = ["agent.ended", "approval.flood", UNATTENDED, "policy.rate", "rate.exceeded"];
    !reason.code.starts_with("budget.") && !passes.contains(&&*reason.code)
}

fn is_below(agent: &Agent, leader: &Agent) -> bool {
    !agent.life.stage().is_over() && agent.principal.lineage().first() == Some(&leader.id)
}
