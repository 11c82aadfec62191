//! Who is calling. A principal is made by the kernel after it has checked who it is; nobody else can make one.

use std::sync::Arc;

use regent_policy::{Caller, Class};

use crate::agent::{AgentId, Life};
use crate::identity::Did;
use crate::journal::Step;

/// Someone the kernel has authenticated: a person at a terminal, or an agent that the kernel started.
#[derive(Debug, Clone)]
pub struct Principal(Arc<Fields>, Option<Arc<Step>>, /* unattended: nobody can be asked */ bool);

#[derive(Debug)]
struct Fields {
    class: Class,
    /// The agent's id, or `operator` for a person; what policy's agent globs match.
    name: String,
    agent: Option<AgentId>,
    roles: Vec<String>,
    /// Who vouches, from the person down to the caller: the person's name, then each agent's DID.
    chain: Vec<String>,
    did: Option<Did>,
    /// The agents among those who vouch, by id, ending with the caller itself; whose budgets its calls are charged to.
    lineage: Vec<AgentId>,
    session: Arc<str>,
    /// Who started it.
    parent: Option<Principal>,
    /// What changes about an agent while it lives.
    life: Option<Arc<Life>>,
}

/// What a new agent's principal is made of.
#[derive(Debug)]
pub(crate) struct Newborn {
    pub(crate) id: AgentId,
    pub(crate) name: String,
    pub(crate) roles: Vec<String>,
    pub(crate) did: Did,
    pub(crate) life: Arc<Life>,
}

impl Principal {
    /// The person that this kernel process runs for.
    pub(crate) fn operator(user: &str, session: Arc<str>) -> Self {
        Self(
            Arc::new(Fields {
                class: Class::Operator,
                name: "operator".to_owned(),
                agent: None,
                roles: vec!["operator".to_owned()],
                chain: vec![user.to_owned()],
                did: None,
                lineage: Vec::new(),
                session,
                parent: None,
                life: None,
            }),
            None,
            false,
        )
    }

    /// An agent, vouched for by whoever started it.
    pub(crate) fn agent(new: Newborn, parent: &Principal) -> Self {
        let mut chain = parent.0.chain.clone();
        chain.push(new.did.to_string());
        let mut lineage = parent.0.lineage.clone();
        lineage.push(new.id.clone());
        Self(
            Arc::new(Fields {
                class: Class::Agent,
                name: new.name,
                agent: Some(new.id),
                roles: new.roles,
                chain,
                did: Some(new.did),
                lineage,
                session: parent.0.session.clone(),
                parent: Some(parent.clone()),
                life: Some(new.life),
            }),
            None,
            parent.2,
        )
    }

    /// The step of a task that it calls at.
    pub(crate) fn step(&self) -> Option<&Step> {
        self.1.as_deref()
    }

    pub(crate) fn with_step(&self, step: Option<Arc<Step>>) -> Self {
        Self(Arc::clone(&self.0), step, self.2)
    }

    /// The same caller while nobody can be asked: calls that would wait for a person are denied with
    /// [`UNATTENDED`](crate::UNATTENDED). Approvals that were given count.
    pub fn unattended(&self) -> Self {
        Self(Arc::clone(&self.0), self.1.clone(), true)
    }

    /// Whether nobody can be asked.
    pub(crate) fn is_unattended(&self) -> bool {
        self.2
    }

    /// What kind of caller this is.
    pub fn class(&self) -> Class {
        self.0.class
    }

    /// The name that policy matches.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The agent's id, if it is one.
    pub fn agent_id(&self) -> Option<&AgentId> {
        self.0.agent.as_ref()
    }

    /// The roles that policy matches.
    pub fn roles(&self) -> &[String] {
        &self.0.roles
    }

    /// Who vouches, from the human sponsor down to the caller itself.
    pub fn chain(&self) -> &[String] {
        &self.0.chain
    }

    /// The agent's decentralised identifier, if it is one.
    pub fn did(&self) -> Option<&Did> {
        self.0.did.as_ref()
    }

    /// The agents it descends from, oldest first, and itself if it is one.
    pub fn lineage(&self) -> &[AgentId] {
        &self.0.lineage
    }

    /// The session that its calls are recorded under.
    pub fn session(&self) -> &str {
        &self.0.session
    }

    /// The person answerable for it all.
    pub fn sponsor(&self) -> &str {
        self.0.chain.first().map_or("", String::as_str)
    }

    /// Itself, whoever started it, and so on up to the person.
    pub(crate) fn line(&self) -> impl Iterator<Item = &Principal> {
        std::iter::successors(Some(self), |one| one.0.parent.as_ref())
    }

    /// As policy sees it.
    pub(crate) fn as_caller(&self, trust: u16) -> Caller<'_> {
        Caller { class: self.0.class, agent: &self.0.name, roles: &self.0.roles, trust }
    }

    /// The agents above it: its parent, and so on up to the one that a person started.
    pub(crate) fn agents_above(&self) -> impl Iterator<Item = &Principal> {
        self.line().skip(1).filter(|one| one.class() == Class::Agent)
    }

    /// Whose rates its calls are counted against: the agent's that a person started. Children would be a way round them otherwise.
    pub(crate) fn rate_name(&self) -> &str {
        self.agents_above().last().unwrap_or(self).name()
    }

    /// What changes about an agent while it lives; a person has none.
    pub(crate) fn life(&self) -> Option<&Life> {
        self.0.life.as_deref()
    }

    pub(crate) fn life_shared(&self) -> Option<&Arc<Life>> {
        self.0.life.as_ref()
    }

    /// Whose tree of the virtual file system is its own.
    pub(crate) fn home(&self) -> AgentId {
        self.0.agent.clone().unwrap_or_else(|| AgentId::from(crate::agent::OPERATOR))
    }
}
