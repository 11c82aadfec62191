//! Authentication: a connection shows a credential and becomes a [`Principal`]. This is the only place that creates one for an external caller.

use regent_policy::{Class, Reason};
use regent_store::StateError;
use regent_wire::result::Identity;

use crate::call::Op;
use crate::executor::{BoxFuture, ExecuteError, RawOutput};
use crate::facts::refusal;
use crate::host::Host;
use crate::kernel::Core;
use crate::principal::Principal;
use crate::role::PersonRole;
use crate::syscall::Kernel;
use crate::token::{Changed, Presented, Subject, TokenId, TokenSpec, Unusable, has_plain_name};

/// What a caller shows. Tokens of an identity provider and identities of a mesh will be further variants.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Credential<'a> {
    /// The user at the other end of a Unix socket, as the operating system says (`SO_PEERCRED`).
    PeerUid(u32),
    /// A token.
    Bearer(&'a str),
}

impl std::fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PeerUid(uid) => write!(f, "PeerUid({uid})"),
            Self::Bearer(_) => f.write_str("Bearer(…)"),
        }
    }
}

/// The kernel doesn't know the caller.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// Another user of the machine. Not even root is the operator of another user's kernel.
    #[error("this kernel belongs to another user")]
    OtherUser,
    /// It is misspelt, or was revoked or replaced, or never was.
    #[error("the token is not valid: it was revoked, replaced, mistyped, or never created")]
    Invalid,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// The agent that it stands for isn't here, or has ended.
    #[error("the agent of this token has ended, or runs in another kernel")]
    NoAgent,
    /// The tokens can't be read.
    #[error("the tokens can't be read: {0}")]
    State(#[from] StateError),
}

impl AuthError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OtherUser => "auth.other_user",
            Self::Invalid => "auth.invalid",
            Self::Expired => "auth.expired",
            Self::NoAgent => "auth.no_agent",
            Self::State(_) => "auth.unavailable",
        }
    }
}

impl From<Unusable> for AuthError {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Invalid => Self::Invalid,
            Unusable::Expired => Self::Expired,
        }
    }
}

/// Authenticates callers of one kernel, and does nothing else: for what accepts connections.
#[derive(Debug, Clone)]
pub struct Authenticator(Kernel);

impl Authenticator {
    /// Whom a credential stands for.
    pub fn authenticate<'a>(
        &'a self,
        credential: Credential<'a>,
    ) -> BoxFuture<'a, Result<Principal, AuthError>> {
        let core = &self.0.0;
        Box::pin(async move {
            match credential {
                Credential::PeerUid(uid) if uid == rustix::process::geteuid().as_raw() => {
                    Ok(core.operator.clone())
                }
                Credential::PeerUid(_) => Err(AuthError::OtherUser),
                Credential::Bearer(text) => core.bearer(text).await,
            }
        })
    }
}

impl Host {
    /// What turns a connection into a principal.
    pub fn authenticator(&self) -> Authenticator {
        Authenticator(self.kernel())
    }
}

impl Core {
    async fn bearer(&self, text: &str) -> Result<Principal, AuthError> {
        let (subject, presented) = self.tokens.find(text, self.clock.now_ms()).await??;
        let session = self.operator.session_shared();
        Ok(match subject {
            Subject::Person { name, role } => Principal::person(&name, role, session),
            Subject::Service { name } => Principal::program(Class::Service, &name, session),
            Subject::Peer { name } => Principal::program(Class::Peer, &name, session),
            Subject::Agent { agent } => {
                let agent = self.society.agents.get(&agent).filter(|agent| !agent.life.stage().is_over());
                agent.ok_or(AuthError::NoAgent)?.principal.clone()
            }
        }
        .presenting(presented))
    }

    /// Why a caller that came with a token makes no more calls: asked at each call, so that a revocation counts from the next one on. It counts
    /// for the agents of the caller as well; they go on if the token only was replaced or has expired. Such an agent can still end itself.
    pub(crate) async fn refuses_token(&self, who: &Principal, op: &Op) -> Result<Option<Reason>, StateError> {
        let refused = |unusable| {
            let error = AuthError::from(unusable);
            refusal(error.code(), error.to_string(), "ask an admin for a new token: `regent token create`")
        };
        if let Some(presented) = who.presented()
            && let Err(unusable) = self.tokens.check(presented, self.clock.now_ms()).await?
        {
            return Ok(Some(refused(unusable)));
        }
        if matches!(op, Op::Exit { .. }) {
            return Ok(None);
        }
        for presented in who.line().skip(1).filter_map(Principal::presented) {
            if self.tokens.is_revoked(&presented.id).await? {
                return Ok(Some(refused(Unusable::Invalid)));
            }
        }
        Ok(None)
    }

    /// Why no token can be made for this subject.
    pub(crate) fn may_create_token(&self, subject: &Subject) -> Option<Reason> {
        if !has_plain_name(subject) {
            let help =
                "ASCII letters, digits, `.`, `_`, `@` and `-`, 64 at most, and not `operator` or `kernel`";
            return Some(refusal("token.name", "nobody can be called so".to_owned(), help));
        }
        let Subject::Agent { agent } = subject else { return None };
        let is_here = self.society.agents.get(agent).is_some_and(|one| !one.life.stage().is_over());
        let message = || format!("no agent `{}` runs in this kernel", agent.as_str().escape_debug());
        (!is_here).then(|| refusal("token.no_agent", message(), "`regent agent ps` lists the agents"))
    }

    pub(crate) async fn create_token(
        &self,
        spec: &TokenSpec,
        by: &Principal,
    ) -> Result<RawOutput, ExecuteError> {
        let own = self.operator.sponsor();
        Ok(changed(&self.tokens.create(spec, (by.sponsor(), own), self.clock.now_ms()).await?))
    }

    pub(crate) async fn list_tokens(&self) -> Result<RawOutput, ExecuteError> {
        Ok(RawOutput::result(&self.tokens.list(self.clock.now_ms()).await?))
    }

    pub(crate) async fn revoke_token(&self, id: &TokenId) -> Result<RawOutput, ExecuteError> {
        let revoked = self.tokens.revoke(id, self.clock.now_ms()).await?;
        // Also if it was revoked before: an interruption may have left approvals behind.
        self.gate.approvals.questions.withdraw(id).await?;
        Ok(changed(&revoked))
    }

    pub(crate) async fn rotate_token(
        &self,
        id: &TokenId,
        sha256: regent_ledger::Digest,
        who: &Principal,
    ) -> Result<RawOutput, ExecuteError> {
        Ok(changed(&self.tokens.rotate(id, sha256, who.presented(), self.clock.now_ms()).await?))
    }
}

fn changed(changed: &Changed) -> RawOutput {
    match changed {
        Changed::Done(summary) => RawOutput::result(summary),
        Changed::Unknown => RawOutput::failed("token.unknown", "there is no such token, or it was revoked"),
        Changed::BadId => RawOutput::failed("token.id", "the id of the token is taken, or isn't one"),
        Changed::OtherSpelling { given, existing } => {
            let (given, existing) = (given.escape_debug(), existing.escape_debug());
            let message = format!("`{given}` differs from the existing name `{existing}` only in capitals");
            RawOutput::failed("token.name", message)
        }
        Changed::TooMany => {
            RawOutput::failed("token.too_many", "there is no room for another token; revoke some")
        }
    }
}

/// Why this token isn't the caller's to rotate.
pub(crate) fn may_rotate(who: &Principal, id: &TokenId) -> Option<Reason> {
    let fine = who.role() == Some(PersonRole::Admin) || who.presented().is_some_and(|own| own.id == *id);
    let message = || "a caller rotates the token that it has presented; an admin rotates any".to_owned();
    (!fine).then(|| refusal("auth.role", message(), "ask an admin"))
}

/// A caller's description of itself: the validated identity, not the claimed one.
pub(crate) fn whoami(who: &Principal) -> Identity {
    Identity {
        agent: who.agent_id().cloned(),
        authenticated: who.authenticated_by(),
        chain: who.chain().to_vec(),
        class: who.class(),
        name: who.display_name().to_owned(),
        role: who.role(),
        session: who.session().to_owned(),
        token: who.presented().map(|Presented { id, .. }| id.clone()),
    }
}
