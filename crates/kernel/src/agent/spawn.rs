//! Starting an agent: what it may be, and what it gets.

use std::sync::{Arc, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_policy::{Class, Reason};
use regent_wire::Priority;
use regent_wire::body::{AgentEvent, Spawned};

use super::life::Life;
use super::lifecycle::{Lifecycle, LifecycleStep};
use super::{
    AGENTS_MAX, Agent, AgentId, Agents, CHILDREN_MAX, DESCENDANTS_MAX, FOR_OPERATORS, GENERATIONS_MAX,
    OPERATOR, OWN_WORDS, SpawnSpec, TRUST_DEFAULT,
};
use crate::budget::BudgetScope;
use crate::facts::refusal;
use crate::identity::Identity;
use crate::kernel::Core;
use crate::principal::{Newborn, Principal};
use crate::role::PersonRole;
use crate::syscall::Fault;

const NAME_CHARS_MAX: usize = 64;
const ROLES_MAX: usize = 16;

/// An agent can't be started now, though nothing forbids it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    #[error("the limit of {AGENTS_MAX} agents, or of {DESCENDANTS_MAX} started by agents, is reached")]
    TooMany,
    #[error("the agent already has {CHILDREN_MAX} children")]
    TooManyChildren,
    #[error("agents are already nested {GENERATIONS_MAX} deep")]
    TooDeep,
    #[error("the random id is already in use; try again")]
    Taken,
    #[error("the system returned no random numbers: {0}")]
    NoRandomness(#[from] getrandom::Error),
}

impl SpawnError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::TooMany | Self::TooManyChildren => "agent.too_many",
            Self::TooDeep => "agent.too_deep",
            Self::Taken => "agent.id_taken",
            Self::NoRandomness(_) => "agent.no_randomness",
        }
    }
}

/// What no policy can allow: an agent with more authority than its parent, or one that impersonates another.
pub(crate) fn check_spec(parent: &Principal, spec: &SpawnSpec) -> Option<Reason> {
    let is_plain = |word: &str| {
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        !word.is_empty() && word.len() <= NAME_CHARS_MAX && word.chars().all(fine)
    };
    if !is_plain(&spec.name) || spec.name == OPERATOR {
        let message = format!("`{}` can't be an agent's name", spec.name.escape_debug());
        let help = "use at most 64 lower case ASCII letters, digits, `.`, `_` and `-`, and not `operator`";
        return Some(refusal("agent.name", message, help));
    }
    if spec.roles.len() > ROLES_MAX {
        return Some(refusal("agent.roles", format!("an agent has at most {ROLES_MAX} roles"), ""));
    }
    let has = |role: &String| match parent.class() {
        // An operator gives any role except those of people.
        Class::Operator => !PersonRole::ALL.iter().any(|own| own.as_str() == role),
        Class::Agent | Class::Kernel | Class::Peer | Class::Service => parent.roles().contains(role),
    };
    let lacking = spec.roles.iter().find(|role| !is_plain(role) || !has(role))?;
    let message = format!("the caller lacks the role `{}`, so it can't give it", lacking.escape_debug());
    Some(refusal("agent.roles", message, "a child can only have roles of its parent"))
}

impl Core {
    /// Starts an agent. Its start is in the ledger before anyone can act as it.
    pub(crate) async fn spawn(
        self: &Arc<Self>,
        parent: &Principal,
        spec: &SpawnSpec,
    ) -> Result<Result<Arc<Agent>, SpawnError>, Fault> {
        let joined = parent.agent_id().filter(|_| !spec.new_group).and_then(|id| self.society.agents.get(id));
        let group = joined.map(|agent| agent.group.clone());
        let admitted = newborn(parent, spec, group, self.clock.now_ms())
            .and_then(|agent| self.society.agents.admit(agent));
        let agent = match admitted {
            Ok(agent) => agent,
            Err(error) => return Ok(Err(error)),
        };
        let admitted = Admitted { agents: &self.society.agents, agent: &agent };
        let (did, sponsor) = (agent.identity.did(), agent.principal.sponsor());
        // The agent's own key signs where it comes from: the entry can't be passed off as another key's.
        let claim = format!("regent agent v1\n{}\n{did}\n{sponsor}\n", agent.id);
        let spawned = Spawned {
            budget: spec.budget,
            chain: agent.principal.chain().into(),
            did: did.as_str().into(),
            group: agent.group.clone(),
            name: agent.principal.name().into(),
            parent: agent.parent.clone(),
            proof: STANDARD.encode(agent.identity.sign(claim.as_bytes())).into(),
            roles: agent.principal.roles().into(),
            sponsor: sponsor.into(),
            trust: agent.life.trust(),
        };
        let event = AgentEvent::Spawned(Box::new(spawned));
        let (own, share) = (BudgetScope::Agent(agent.id.clone()), spec.budget);
        self.note_of(&agent, event).await?;
        if let Some(share) = share {
            self.gate.budgets.set(&own, share, self.clock.now_ms()).await?;
        }
        self.grow_tree(&agent.principal);
        agent.life.step(LifecycleStep::Boot);
        drop(admitted);
        Ok(Ok(agent))
    }
}

/// An agent that has its place and hasn't begun. If its start fails or is dropped, the place is free again.
struct Admitted<'a> {
    agents: &'a Agents,
    agent: &'a Agent,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if self.agent.life.stage() == Lifecycle::Init {
            self.agents.withdraw(&self.agent.id);
        }
    }
}

fn newborn(
    parent: &Principal,
    spec: &SpawnSpec,
    group: Option<AgentId>,
    now_ms: i64,
) -> Result<Agent, SpawnError> {
    // The person at the top of the line is no generation.
    if parent.line().count() > GENERATIONS_MAX {
        return Err(SpawnError::TooDeep);
    }
    let (id, identity) = (AgentId::random()?, Identity::generate()?);
    let own = || (parent.own_trust(), OWN_WORDS.join(parent.own_label()));
    let (ceiling, context) = parent.life().map_or_else(own, |life| (life.trust(), life.context()));
    let trust = spec.trust.unwrap_or(TRUST_DEFAULT).min(ceiling);
    // A child works on its parent's request: same plan, same transcript.
    let work = parent.life().map(|life| life.work().clone()).unwrap_or_default();
    let ceiling = parent.priority();
    // An operator's agent is urgent only where they say so.
    let usual = if parent.agent_id().is_some() { ceiling } else { ceiling.min(Priority::Normal) };
    let priority = spec.priority.map_or(usual, |wanted| wanted.min(ceiling));
    let grants = parent.life().map_or_else(|| spec.grants.clone(), |life| life.grants().meet(&spec.grants));
    let life = Arc::new(Life::new(trust, context, work, (priority, grants)));
    let name = match parent.agent_id() {
        Some(_) => format!("{}/{}", parent.name(), spec.name),
        None => spec.name.clone(),
    };
    let (did, roles) = (identity.did().clone(), spec.roles.clone());
    let new = Newborn { id: id.clone(), name, roles, did, life: Arc::clone(&life) };
    Ok(Agent {
        principal: Principal::agent(new, parent),
        parent: parent.agent_id().cloned(),
        group: group.unwrap_or_else(|| id.clone()),
        id,
        life,
        identity,
        started_at_ms: now_ms,
    })
}

impl Agents {
    /// Gives an agent its place, if there is room for it.
    fn admit(&self, agent: Agent) -> Result<Arc<Agent>, SpawnError> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let (mut alive, mut descendants, mut siblings) = (0, 0, 0);
        // A host starts many agents for its sessions: as long as there is room, sessions aren't limited one by one.
        let is_operators = agent.principal.line().any(|one| one.class() == Class::Operator);
        let most = if is_operators { AGENTS_MAX } else { AGENTS_MAX - FOR_OPERATORS };
        let is_counted = agent.parent.is_some() || table.all.len() >= most;
        let others = table.all.values().filter(|other| is_counted && !other.life.stage().is_over());
        for other in others {
            alive += 1;
            descendants += usize::from(other.parent.is_some());
            siblings += usize::from(agent.parent.is_some() && other.parent == agent.parent);
        }
        if alive >= most || (agent.parent.is_some() && descendants >= DESCENDANTS_MAX) {
            return Err(SpawnError::TooMany);
        }
        if table.all.contains_key(&agent.id) {
            return Err(SpawnError::Taken);
        }
        if siblings >= CHILDREN_MAX {
            return Err(SpawnError::TooManyChildren);
        }
        let agent = Arc::new(agent);
        table.all.insert(agent.id.clone(), Arc::clone(&agent));
        Ok(agent)
    }

    fn withdraw(&self, id: &AgentId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).all.remove(id);
    }
}
