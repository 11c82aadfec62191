//! Who is calling. A principal is made by the kernel after it has checked who it is; nobody else can make one.

use std::sync::Arc;

use regent_policy::Class;

use crate::agent::AgentId;
use crate::identity::Did;

/// Someone the kernel has authenticated: a person at a terminal, or an agent that the kernel started.
#[derive(Debug, Clone)]
pub struct Principal(Arc<Fields>);

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
}

impl Principal {
    /// The person that this kernel process runs for.
    pub(crate) fn operator(user: &str, session: Arc<str>) -> Self {
        Self(Arc::new(Fields {
            class: Class::Operator,
            name: "operator".to_owned(),
            agent: None,
            roles: vec!["operator".to_owned()],
            chain: vec![user.to_owned()],
            did: None,
            lineage: Vec::new(),
            session,
        }))
    }

    /// An agent, vouched for by whoever started it.
    pub(crate) fn agent(id: AgentId, name: &str, roles: Vec<String>, did: Did, parent: &Principal) -> Self {
        let mut chain = parent.0.chain.clone();
        chain.push(did.to_string());
        let mut lineage = parent.0.lineage.clone();
        lineage.push(id.clone());
        Self(Arc::new(Fields {
            class: Class::Agent,
            name: name.to_owned(),
            agent: Some(id),
            roles,
            chain,
            did: Some(did),
            lineage,
            session: parent.0.session.clone(),
        }))
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
}
