//! What signals do to agents, and how agents end.
//!
//! An agent ends in two steps. It is marked first: from then on its calls are refused, and those that run are cancelled. It is
//! over when the last of them has ended, process trees included; only then does `Wait` return. STOP holds back new calls,
//! and programs and guests that run pause until CONT.

use std::sync::Arc;
use std::time::Duration;

use regent_ledger::EntryKind;
use regent_policy::{Reason, codes};
use regent_wire::Delivered;
use regent_wire::body::{AgentBody, AgentEvent, BySignal, Ended, Stopped};
use regent_wire::result::AgentView;
use serde_json::json;

use super::life::End;
use super::lifecycle::LifecycleStep;
use super::{Agent, Lifecycle};
use crate::budget;
use crate::call::Call;
use crate::executor::BoxFuture;
use crate::facts::refusal;
use crate::kernel::Core;
use crate::principal::Principal;
use crate::signal::{Arrival, Signal, SignalEffect};
use crate::syscall::Fault;

/// How long the end of an agent waits for its calls. They are cancelled already and dropped well before this.
const DRAIN_MS_MAX: u64 = 10_000;
/// How long the children of an agent that has ended may take to end on TERM. Then they get KILL.
const ORPHAN_MS_MAX: u64 = 5_000;
/// How long the sender of a fatal signal waits for its effect.
const DEATH_MS_MAX: u64 = 3_000;

impl Core {
    /// Lets an agent's call in, waits while the agent is suspended, or says why it may not call any more.
    pub(crate) async fn gate(&self, who: &Principal) -> Result<Option<Reason>, Fault> {
        let Some(life) = who.life() else { return Ok(None) };
        if life.stage() == Lifecycle::Active {
            return Ok(None);
        }
        if life.step(LifecycleStep::Activate)
            && let Some(agent) = who.agent_id()
        {
            let body = AgentBody::new(agent, who.session(), AgentEvent::Active);
            self.note(EntryKind::Agent, &body).await?;
        }
        let over = life.settled().await.is_over();
        Ok(over.then(|| refusal("agent.ended", "the agent has ended".to_owned(), "")))
    }

    /// Delivers a signal that someone was allowed to send. `except` is the intent of the call that sends it, which is not
    /// stopped by it.
    pub(crate) async fn deliver(
        self: &Arc<Self>,
        to: &Arc<Agent>,
        signal: Signal,
        except: Option<u64>,
    ) -> Result<Delivered, Fault> {
        match to.life.receive(signal) {
            None => Ok(Delivered::Nothing),
            Some(Arrival::Acts(action)) => self.act(to, signal, action, except).await,
            Some(Arrival::Held) => Ok(Delivered::Held),
            Some(Arrival::ForAgent) => Ok(Delivered::ForAgent),
            Some(Arrival::Ignored) => Ok(Delivered::Ignored),
            Some(Arrival::Dropped) => Ok(Delivered::Dropped),
        }
    }

    /// Delivers a signal on the kernel's own account, and records that there was one.
    pub(crate) async fn raise(
        self: &Arc<Self>,
        to: &Arc<Agent>,
        signal: Signal,
        why: &str,
    ) -> Result<Delivered, Fault> {
        let delivered = self.deliver(to, signal, None).await;
        self.note_raised(to, signal, why, delivered).await
    }

    /// The same with another effect than the signal has by default. What it does can't be held back.
    pub(crate) async fn raise_as(
        self: &Arc<Self>,
        to: &Arc<Agent>,
        signal: Signal,
        action: SignalEffect,
        why: &str,
    ) -> Result<Delivered, Fault> {
        let delivered = self.act(to, signal, action, None).await;
        self.note_raised(to, signal, why, delivered).await
    }

    async fn note_raised(
        &self,
        to: &Arc<Agent>,
        signal: Signal,
        why: &str,
        delivered: Result<Delivered, Fault>,
    ) -> Result<Delivered, Fault> {
        let event = AgentEvent::Signalled {
            delivered: delivered.as_ref().ok().copied(),
            number: signal.number(),
            signal,
            why: why.into(),
        };
        self.note_of(to, event).await?;
        delivered
    }

    /// An agent whose budget is used up, or that has moved away from its goal, is suspended: its calls would only be refused. A person
    /// sees to the cause and lets it carry on.
    pub(crate) async fn suspend_for(self: &Arc<Self>, call: &Call, reason: &Reason) -> Result<(), Fault> {
        let signal = match &*reason.code {
            budget::EXHAUSTED => Signal::Budget,
            codes::DRIFT => Signal::Drift,
            _ => return Ok(()),
        };
        if let Some(agent) = call.principal().agent_id().and_then(|id| self.society.agents.get(id)) {
            self.raise(&agent, signal, &reason.message).await?;
        }
        Ok(())
    }

    /// Does to the agent what a signal says.
    pub(crate) async fn act(
        self: &Arc<Self>,
        to: &Arc<Agent>,
        signal: Signal,
        action: SignalEffect,
        except: Option<u64>,
    ) -> Result<Delivered, Fault> {
        let done = match action {
            SignalEffect::Suspend => {
                // One that has not called yet is held all the same.
                to.life.step(LifecycleStep::Activate);
                let held = to.life.step(LifecycleStep::Suspend);
                if held {
                    self.note_of(to, AgentEvent::Suspended { with: BySignal { signal } }).await?;
                }
                held
            }
            SignalEffect::Resume => {
                let resumed = to.life.step(LifecycleStep::Resume);
                if resumed {
                    self.note_of(to, AgentEvent::Resumed { with: BySignal { signal } }).await?;
                }
                resumed
            }
            SignalEffect::Interrupt => {
                let stopped = self.society.calls.interrupt(&to.id, except);
                // A loop is mostly noticed between two calls: then there is nothing to stop, and the agent's record is what changes.
                if signal == Signal::Loop {
                    let with = Stopped { stopped: stopped as u64 };
                    self.note_of(to, AgentEvent::Looped { with }).await?;
                }
                stopped > 0 || signal == Signal::Loop
            }
            SignalEffect::End => self.end(to, End::Signal(signal), except),
            SignalEffect::Checkpoint => self.checkpoint(to),
            SignalEffect::Diagnose => self.diagnose(to),
        };
        Ok(if done { Delivered::Done } else { Delivered::Nothing })
    }

    /// Ends an agent: marks it, stops its calls, and sees to the rest on its own time. False if it was ending already.
    pub(crate) fn end(self: &Arc<Self>, agent: &Arc<Agent>, how: End, except: Option<u64>) -> bool {
        let begun = agent.life.begin_end(how);
        if begun {
            self.society.calls.interrupt(&agent.id, except);
            tokio::spawn(Arc::clone(self).see_off(Arc::clone(agent)));
        }
        begun
    }

    /// Waits for agents to be over, but not for ever.
    pub(crate) async fn are_dead(&self, agents: &[&Arc<Agent>]) {
        let all = async {
            for agent in agents {
                agent.life.ended().await;
            }
        };
        // Who asks looks at each of them.
        let _all_over = tokio::time::timeout(Duration::from_millis(DEATH_MS_MAX), all).await.is_ok();
    }

    /// The second half of an agent's end. Boxed, because the end of a parent brings about those of its children.
    fn see_off(self: Arc<Self>, agent: Arc<Agent>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.mark(&agent, |with| AgentEvent::Retiring { with }).await;
            let idle = self.society.calls.idle(&agent.id);
            let drained = tokio::time::timeout(Duration::from_millis(DRAIN_MS_MAX), idle).await.is_ok();
            self.society.pipes.forsake(&agent.id);
            self.society.vfs.close_all(&agent.id);
            let terminated = |with| match drained {
                true => AgentEvent::Terminated { with },
                false => AgentEvent::TerminatedUndrained { with },
            };
            self.mark(&agent, terminated).await;
            agent.life.step(LifecycleStep::Terminate);
            self.see_off_children(&agent).await;
            // Its descendants have spent from it until now.
            self.gate.budgets.forget(&agent.id);
            for forgotten in self.society.agents.forget_the_oldest(agent.id.clone()) {
                self.society.vfs.fell(&forgotten);
            }
        })
    }

    async fn see_off_children(self: &Arc<Self>, parent: &Agent) {
        let children = self
            .society
            .agents
            .those(|other| other.parent.as_ref() == Some(&parent.id) && !other.life.stage().is_over());
        for child in &children {
            self.raise_at_the_end(child, Signal::Term).await;
        }
        let all_gone = async {
            for child in &children {
                child.life.ended().await;
            }
        };
        if tokio::time::timeout(Duration::from_millis(ORPHAN_MS_MAX), all_gone).await.is_err() {
            for child in &children {
                self.raise_at_the_end(child, Signal::Kill).await;
            }
        }
    }

    async fn raise_at_the_end(self: &Arc<Self>, child: &Arc<Agent>, signal: Signal) {
        // A failure means that the ledger can't be written, and the kernel has sealed itself over it. The signal has been
        // delivered all the same: an agent must not outlive its parent because a disk is full.
        let _recorded = self.raise(child, signal, "its parent has ended").await.is_ok();
    }

    /// Records a stage of the shutdown. An end that can't be recorded still has to happen; the kernel has sealed itself then.
    async fn mark(&self, agent: &Agent, event: impl FnOnce(Ended) -> AgentEvent<'static>) {
        let event = event(Ended { end: agent.life.end() });
        let _recorded = self.note_of(agent, event).await.is_ok();
    }

    pub(super) async fn note_of(&self, agent: &Agent, event: AgentEvent<'_>) -> Result<(), Fault> {
        let body = AgentBody::new(&agent.id, agent.principal.session(), event);
        self.note(EntryKind::Agent, &body).await?;
        Ok(())
    }

    /// Ends all agents with the kernel.
    pub(crate) async fn end_agents(self: &Arc<Self>) {
        let alive = self.society.agents.those(|agent| !agent.life.stage().is_over());
        for agent in &alive {
            self.end(agent, End::Signal(Signal::Term), None);
        }
        self.society.calls.stop_all().await;
        self.are_dead(&alive.iter().collect::<Vec<_>>()).await;
    }

    /// Writes the agent's working memory and state where it can be found again. False if there is no room for it.
    fn checkpoint(&self, agent: &Agent) -> bool {
        let (memory, label) = self.society.vfs.working_memory(&agent.id);
        let body = json!({"agent": agent.describe(self.society.calls.running(&agent.id)), "at_ms": self.clock.now_ms(), "working": memory});
        let name = format!("checkpoints/{}", agent.life.next_written());
        self.society.vfs.keep_state(
            &agent.id,
            &name,
            body.to_string().as_bytes(),
            label.join(agent.life.context()),
        )
    }

    /// Writes what the kernel knows of the agent.
    fn diagnose(&self, agent: &Agent) -> bool {
        let masked = agent.life.with_inbox(|inbox| inbox.masked());
        let body = json!({
            "agent": agent.describe(self.society.calls.running(&agent.id)),
            "at_ms": self.clock.now_ms(),
            "context": agent.life.context(),
            "masked": masked,
        });
        let name = format!("diagnostics/{}", agent.life.next_written());
        self.society.vfs.keep_state(&agent.id, &name, body.to_string().as_bytes(), agent.life.context())
    }

    /// The agents that the caller may see.
    pub(crate) fn list_agents(&self, who: &Principal) -> Vec<AgentView> {
        let seen = self.society.agents.those(|agent| agent.answers_to(who));
        seen.iter().map(|agent| agent.describe(self.society.calls.running(&agent.id))).collect()
    }
}
