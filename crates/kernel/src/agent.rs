//! Agents as processes: who they are, whose children, what state they are in, what they have seen.
//!
//! Every agent has a parent, up to the person who answers for it all. A child has no more power than its parent: its roles are among
//! the parent's, it isn't trusted further, it starts with everything its parent has seen. When a parent ends, its children get TERM,
//! and KILL if they are still there after a grace period: every remaining agent has a living parent.

mod calls;
mod delivery;
mod denials;
mod life;
mod lifecycle;
mod spawn;
mod trust;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

use regent_policy::{Class, Confidentiality, Integrity, Label};
use regent_wire::result::AgentView;

use crate::call::{Call, Op};
use crate::executor::BoxFuture;
use crate::identity::Identity;
use crate::principal::Principal;
use crate::role::PersonRole;
use crate::signal::Signal;
use crate::syscall::{Fault, Kernel};
pub use calls::RunningProgram;
pub(crate) use calls::{Calls, RunningCall};
pub(crate) use denials::ProgramDenials;
pub(crate) use life::{CallSlot, End, Life};
pub use lifecycle::Lifecycle;
pub use regent_identity::AgentId;
pub use regent_wire::{Changes, Delivered, Grants, SpawnSpec};
pub(crate) use spawn::check_spec;

/// Agents that live at the same time.
const AGENTS_MAX: usize = 16_384;
/// Of those, places that only agents of operators take: no service fills the table.
const FOR_OPERATORS: usize = 1024;
/// Of all, agents that other agents started.
const DESCENDANTS_MAX: usize = 1024;
/// Children of one agent that live at the same time.
const CHILDREN_MAX: usize = 64;
/// Agents between the person and the newest child.
const GENERATIONS_MAX: usize = 8;
/// Agents that have ended and can still be listed; the oldest are forgotten first. The ledger forgets none.
const ENDED_KEPT_MAX: usize = 1024;
/// The trust of an unknown agent.
pub(crate) const TRUST_DEFAULT: u16 = 500;
/// The most that anyone is trusted.
pub(crate) const TRUST_MAX: u16 = 1000;
/// Below this the kernel suspends an agent.
const TRUST_LOST: u16 = 300;
/// The tree and the place in lists of the person, who is no agent. No agent can have this id.
pub(crate) const OPERATOR: &str = "operator";

/// One agent, as the kernel knows it.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) principal: Principal,
    pub(crate) id: AgentId,
    pub(crate) life: Arc<Life>,
    parent: Option<AgentId>,
    group: AgentId,
    identity: Identity,
    started_at_ms: i64,
}

impl Agent {
    /// Whether `who` may signal it, look at it and reach into its files: itself, its ancestors, and the person.
    pub(crate) fn answers_to(&self, who: &Principal) -> bool {
        self.principal.answers_to(who)
    }

    /// Whether `who` started it: its parent, or an operator who may run agents, who answers for all of them.
    pub(crate) fn was_started_by(&self, who: &Principal) -> bool {
        match who.class() {
            Class::Operator => who.role().is_some_and(PersonRole::runs_agents),
            Class::Agent | Class::Kernel | Class::Peer | Class::Service => {
                self.principal.parent().is_some_and(|parent| parent.is_caller(who))
            }
        }
    }

    fn describe(&self, running: usize) -> AgentView {
        let session = self.life.session();
        AgentView {
            agent: self.id.clone(),
            denials: self.life.denials() as u64,
            did: self.identity.did().to_string(),
            end: self.life.end(),
            group: self.group.clone(),
            name: self.principal.name().to_owned(),
            parent: self.parent.as_ref().map_or(OPERATOR, AgentId::as_str).to_owned(),
            priority: self.life.priority(),
            roles: self.principal.roles().to_vec(),
            running: running as u64,
            sponsor: self.principal.sponsor().to_owned(),
            started_at_ms: self.started_at_ms,
            state: self.life.stage(),
            tokens: session.tokens,
            tool_calls: session.tool_calls.into(),
            trust: self.life.trust(),
        }
    }
}

/// All agents of this kernel.
#[derive(Debug, Default)]
pub(crate) struct Agents(RwLock<Table>);

#[derive(Debug, Default)]
struct Table {
    all: BTreeMap<AgentId, Arc<Agent>>,
    ended: VecDeque<AgentId>,
}

impl Agents {
    pub(crate) fn get(&self, id: &AgentId) -> Option<Arc<Agent>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).all.get(id).cloned()
    }

    fn those(&self, wanted: impl Fn(&Agent) -> bool) -> Vec<Arc<Agent>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.all.values().filter(|agent| wanted(agent)).cloned().collect()
    }

    /// Everyone who is alive in the process group of an agent.
    pub(crate) fn group_of(&self, id: &AgentId) -> Vec<Arc<Agent>> {
        let Some(group) = self.get(id).map(|agent| agent.group.clone()) else { return Vec::new() };
        self.those(|agent| agent.group == group && !agent.life.stage().is_over())
    }

    /// What the agent's words may carry: everything it has seen, joined.
    pub(crate) fn context(&self, who: &Principal) -> Label {
        who.life().map_or_else(|| who.own_label(), Life::context)
    }

    /// Notes what a call has brought its agent: what it has seen, what it has used.
    pub(crate) fn saw(&self, call: &Call, label: Label, tokens: u64) {
        if let Some(life) = call.principal().life() {
            life.saw(label, tokens);
        }
    }

    /// How far it is trusted, 0 to 1000.
    pub(crate) fn trust(&self, who: &Principal) -> u16 {
        who.life().map_or_else(|| who.own_trust(), Life::trust)
    }

    /// What the agent's session has done so far; a tool call takes its place in the count at once, so that calls side by side
    /// can't all see the same count.
    pub(crate) fn session_facts(&self, who: &Principal, op: &Op) -> CallSlot {
        let life = who.life_shared();
        life.map_or_else(CallSlot::default, |life| {
            life.take_slot(matches!(op, Op::RunTool(_) | Op::Elsewhere(_)))
        })
    }

    fn forget_the_oldest(&self, ended: AgentId) -> Vec<AgentId> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.ended.push_back(ended);
        let over = table.ended.len().saturating_sub(ENDED_KEPT_MAX);
        let forgotten: Vec<_> = table.ended.drain(..over).collect();
        for id in &forgotten {
            table.all.remove(id);
        }
        forgotten
    }
}

/// The label of what an agent says before it has seen anything.
const OWN_WORDS: Label = Label { integrity: Integrity::OwnModel, confidentiality: Confidentiality::Internal };

impl Kernel {
    /// The principal of an agent, for its parent; `None` for everyone else, and when the agent has ended.
    pub fn principal_of(&self, caller: &Principal, agent: &AgentId) -> Option<Principal> {
        let agent = self.0.society.agents.get(agent)?;
        let given = agent.was_started_by(caller) && !agent.life.stage().is_over();
        given.then(|| agent.principal.clone())
    }

    /// The life-cycle state of an agent, if the caller may see it.
    pub fn lifecycle_of(&self, caller: &Principal, agent: &AgentId) -> Option<Lifecycle> {
        let agent = self.0.society.agents.get(agent)?;
        agent.answers_to(caller).then(|| agent.life.stage())
    }

    /// Raises a signal for an agent that `caller` started, such as a loop that the caller noticed. Other agents don't get it.
    pub fn raise<'a>(
        &'a self,
        caller: &Principal,
        agent: &AgentId,
        signal: Signal,
        why: &'a str,
    ) -> BoxFuture<'a, Result<Delivered, Fault>> {
        let agent = self.0.society.agents.get(agent).filter(|agent| agent.was_started_by(caller));
        Box::pin(async move {
            let Some(agent) = agent else { return Ok(Delivered::Nothing) };
            self.0.raise(&agent, signal, why).await
        })
    }
}

#[cfg(test)]
mod tests;
