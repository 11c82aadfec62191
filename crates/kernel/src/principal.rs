//! The caller. The kernel creates a principal after it has authenticated the caller; no other code can create one.

use std::sync::Arc;

use regent_policy::{Caller, Class, Confidentiality, Integrity, Label};
use regent_wire::Priority;

use crate::agent::{AgentId, Life, OPERATOR, TRUST_DEFAULT, TRUST_MAX};
use crate::identity::Did;
use crate::journal::TaskStep;
use crate::role::PersonRole;
use crate::token::Presented;

/// An authenticated caller: an operator, an agent that the kernel started, or a program that presented a token.
#[derive(Debug, Clone)]
pub struct Principal {
    fields: Arc<Fields>,
    step: Option<Arc<TaskStep>>,
    /// No reviewer is available.
    unattended: bool,
    /// The token that it came with.
    presented: Option<Arc<Presented>>,
}

#[derive(Debug)]
struct Fields {
    class: Class,
    /// What policy's agent globs match: an agent's name, `operator` for an operator, `service:NAME` or `peer:NAME` for a program.
    name: String,
    agent: Option<AgentId>,
    /// An operator's.
    role: Option<PersonRole>,
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
    fn new(fields: Fields) -> Self {
        Self { fields: Arc::new(fields), step: None, unattended: false, presented: None }
    }

    /// An operator with a role.
    pub(crate) fn person(name: &str, role: PersonRole, session: Arc<str>) -> Self {
        Self::new(Fields {
            class: Class::Operator,
            name: OPERATOR.to_owned(),
            agent: None,
            role: Some(role),
            roles: role.words(),
            chain: vec![name.to_owned()],
            did: None,
            lineage: Vec::new(),
            session,
            parent: None,
            life: None,
        })
    }

    /// A program that answers for itself: a service of ours, or a peer.
    pub(crate) fn program(class: Class, name: &str, session: Arc<str>) -> Self {
        // An agent's name has no colon, so that no agent can be called so.
        let name = format!("{class}:{name}");
        Self::new(Fields {
            class,
            chain: vec![name.clone()],
            name,
            agent: None,
            role: None,
            roles: Vec::new(),
            did: None,
            lineage: Vec::new(),
            session,
            parent: None,
            life: None,
        })
    }

    /// An agent; its parent vouches for it.
    pub(crate) fn agent(new: Newborn, parent: &Principal) -> Self {
        let mut chain = parent.fields.chain.clone();
        chain.push(new.did.to_string());
        let mut lineage = parent.fields.lineage.clone();
        lineage.push(new.id.clone());
        let fields = Fields {
            class: Class::Agent,
            name: new.name,
            agent: Some(new.id),
            role: None,
            roles: new.roles,
            chain,
            did: Some(new.did),
            lineage,
            session: parent.fields.session.clone(),
            parent: Some(parent.clone()),
            life: Some(new.life),
        };
        Self { unattended: parent.unattended, ..Self::new(fields) }
    }

    /// The same caller, who has come with a token.
    pub(crate) fn presenting(self, presented: Presented) -> Self {
        Self { presented: Some(Arc::new(presented)), ..self }
    }

    /// The token that it came with.
    pub(crate) fn presented(&self) -> Option<&Presented> {
        self.presented.as_deref()
    }

    /// How it was authenticated, for the ledger.
    pub(crate) fn authenticated_by(&self) -> Option<String> {
        match (&self.presented, self.fields.class) {
            (Some(presented), _) => Some(format!("token {}", presented.id)),
            (None, Class::Operator) => Some(format!("uid {}", rustix::process::geteuid().as_raw())),
            (None, Class::Agent | Class::Kernel | Class::Peer | Class::Service) => None,
        }
    }

    /// The step of a task that it calls at.
    pub(crate) fn step(&self) -> Option<&TaskStep> {
        self.step.as_deref()
    }

    pub(crate) fn with_step(&self, step: Option<Arc<TaskStep>>) -> Self {
        Self { step, ..self.clone() }
    }

    /// The same caller without a reviewer: calls that would wait for an approval are denied with
    /// [`UNATTENDED`](crate::UNATTENDED). Approvals that were given count.
    pub fn unattended(&self) -> Self {
        Self { unattended: true, ..self.clone() }
    }

    /// Whether no reviewer is available.
    pub(crate) fn is_unattended(&self) -> bool {
        self.unattended
    }

    /// What kind of caller this is.
    pub fn class(&self) -> Class {
        self.fields.class
    }

    /// The name that policy matches.
    pub fn name(&self) -> &str {
        &self.fields.name
    }

    /// The agent's id, if it is one.
    pub fn agent_id(&self) -> Option<&AgentId> {
        self.fields.agent.as_ref()
    }

    /// An operator's role.
    pub fn role(&self) -> Option<PersonRole> {
        self.fields.role
    }

    /// The display name: an operator's own, not the word that policy has for all of them.
    pub fn display_name(&self) -> &str {
        if self.class() == Class::Operator { self.sponsor() } else { self.name() }
    }

    /// The roles that policy matches.
    pub fn roles(&self) -> &[String] {
        &self.fields.roles
    }

    /// The chain of responsibility, from the human sponsor down to the caller.
    pub fn chain(&self) -> &[String] {
        &self.fields.chain
    }

    /// The agent's decentralised identifier, if it is one.
    pub fn did(&self) -> Option<&Did> {
        self.fields.did.as_ref()
    }

    /// The agents it descends from, oldest first, and itself if it is one.
    pub fn lineage(&self) -> &[AgentId] {
        &self.fields.lineage
    }

    /// The session that its calls are recorded under.
    pub fn session(&self) -> &str {
        &self.fields.session
    }

    pub(crate) fn session_shared(&self) -> Arc<str> {
        Arc::clone(&self.fields.session)
    }

    /// The root of responsibility: an operator, or a program with its own token.
    pub fn sponsor(&self) -> &str {
        self.fields.chain.first().map_or("", String::as_str)
    }

    /// Itself, its parent, and so on up to the person.
    pub(crate) fn line(&self) -> impl Iterator<Item = &Principal> {
        std::iter::successors(Some(self), |one| one.fields.parent.as_ref())
    }

    /// Where its words come from, before it has seen anything here.
    pub(crate) fn own_label(&self) -> Label {
        let integrity = match self.class() {
            Class::Operator => Integrity::Operator,
            Class::Kernel => Integrity::System,
            Class::Agent => Integrity::OwnModel,
            // A program's input is unknown; an external agent can have read anything.
            Class::Service => Integrity::Tool,
            Class::Peer => Integrity::Peer,
        };
        Label { integrity, confidentiality: Confidentiality::Internal }
    }

    /// How far it is trusted before anything is known of it.
    pub(crate) fn own_trust(&self) -> u16 {
        match self.class() {
            Class::Operator | Class::Kernel => TRUST_MAX,
            Class::Agent | Class::Service | Class::Peer => TRUST_DEFAULT,
        }
    }

    /// How urgent its calls to models are. Someone waits for what an operator asks.
    pub fn priority(&self) -> Priority {
        match (self.life(), self.class()) {
            (Some(life), _) => life.priority(),
            (None, Class::Operator) => Priority::High,
            (None, Class::Agent | Class::Service | Class::Peer) => Priority::Normal,
            (None, Class::Kernel) => Priority::Low,
        }
    }

    /// As policy sees it.
    pub(crate) fn as_caller(&self, trust: u16) -> Caller<'_> {
        Caller { class: self.fields.class, agent: &self.fields.name, roles: &self.fields.roles, trust }
    }

    /// The agents above it: its parent, and so on up to the one that an operator started.
    pub(crate) fn agents_above(&self) -> impl Iterator<Item = &Principal> {
        self.line().skip(1).filter(|one| one.class() == Class::Agent)
    }

    /// Whose rates its calls count against: those of the agent that an operator started. Children would bypass them otherwise.
    pub(crate) fn rate_name(&self) -> &str {
        self.agents_above().last().unwrap_or(self).name()
    }

    /// The mutable state of an agent; an operator has none.
    pub(crate) fn life(&self) -> Option<&Life> {
        self.fields.life.as_deref()
    }

    pub(crate) fn life_shared(&self) -> Option<&Arc<Life>> {
        self.fields.life.as_ref()
    }

    /// Who started it.
    pub(crate) fn parent(&self) -> Option<&Principal> {
        self.fields.parent.as_ref()
    }

    /// Whether both are one program, or any two people.
    pub(crate) fn is_caller(&self, other: &Principal) -> bool {
        (self.class(), self.agent_id(), self.name()) == (other.class(), other.agent_id(), other.name())
    }

    /// Whether `who` answers for it: itself, an agent above it, or its sponsor.
    pub(crate) fn answers_to(&self, who: &Self) -> bool {
        who.class() == Class::Operator || self.line().any(|one| one.is_caller(who))
    }

    /// Whether `who` may see and end the programs that it runs: itself, whoever is above it, and an admin. People are told apart here.
    pub(crate) fn runs_for(&self, who: &Self) -> bool {
        let is_same = |one: &Self| one.is_caller(who) && one.display_name() == who.display_name();
        who.role() == Some(PersonRole::Admin) || self.line().any(is_same)
    }

    /// Whose tree of the virtual file system is its own. People share one; a program's has its name.
    pub(crate) fn home(&self) -> AgentId {
        self.fields.agent.clone().unwrap_or_else(|| AgentId::from(self.name()))
    }
}
