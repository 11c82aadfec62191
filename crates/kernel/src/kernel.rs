//! The kernel as a whole: what it is made of, how it comes up, and what stops it.

use std::sync::{Arc, PoisonError, RwLock};

use regent_ledger::{AppendError, CanonicalError, EntryDraft, EntryKind, Ledger, Receipt, hex_string};
use regent_policy::Policy;
use regent_store::State;
use serde::Serialize;

use crate::agent::{Agents, Calls, ProgramDenials};
use crate::approval::Approvals;
use crate::budget::Budgets;
use crate::catalogue::Catalogue;
use crate::charges::Returns;
use crate::clock::Clock;
use crate::executor::Executors;
use crate::facts::Sheet;
use crate::journal::Journal;
use crate::pipe::Pipes;
use crate::principal::Principal;
use crate::rate::Rates;
use crate::record;
use crate::recorder::Recorder;
use crate::request::Offers;
use crate::role::PersonRole;
use crate::secret::Secrets;
use crate::syscall::Fault;
use crate::tally::Tallies;
use crate::token::Tokens;
use crate::turns::Turns;
use crate::vfs::Vfs;
use regent_workspace::Workspace;

/// The parts of a kernel. All are mandatory: there is no kernel without a policy or a ledger.
#[derive(Debug)]
pub struct Parts {
    /// What may be done. [`Policy::deny_all`] if there is none.
    pub policy: Policy,
    /// Where everything is written down.
    pub ledger: Ledger,
    /// What can cause effects.
    pub executors: Executors,
    /// The tools that can be called.
    pub catalogue: Catalogue,
    /// The folder that agents work in.
    pub workspace: Workspace,
    /// What is shared with other kernel processes: budgets, approvals, rates.
    pub state: Arc<dyn State>,
    /// Where secrets are kept; [`NoSecrets`](crate::NoSecrets) if there is no vault.
    pub secrets: Arc<dyn Secrets>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The name of the person this kernel runs for, who answers for its agents. At this terminal they are an admin.
    pub sponsor: String,
    /// The word that this kernel's calls are recorded under.
    pub session: String,
}

/// A running kernel. ADR 0079 has the groups.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) recorder: Recorder,
    pub(crate) gate: Gate,
    pub(crate) society: Society,
    pub(crate) executors: Executors,
    pub(crate) catalogue: Catalogue,
    pub(crate) workspace: Workspace,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Arc<dyn State>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) tokens: Tokens,
    pub(crate) journal: Journal,
    pub(crate) offers: Offers,
    pub(crate) operator: Principal,
}

/// May it, and what does it take? Everything that a verdict reads or consumes.
#[derive(Debug)]
pub(crate) struct Gate {
    policy: RwLock<Arc<InForce>>,
    pub(crate) approvals: Approvals,
    pub(crate) budgets: Budgets,
    pub(crate) rates: Arc<Rates>,
    /// Steps of this kernel on the same records.
    pub(crate) turns: Turns,
    /// What calls took that were torn down before they ran.
    pub(crate) returns: Returns,
    /// How a candidate policy would have decided.
    pub(crate) tallies: Tallies,
}

/// Who is here? The agents, their running calls, and what they share.
#[derive(Debug, Default)]
pub(crate) struct Society {
    pub(crate) agents: Agents,
    pub(crate) calls: Calls,
    pub(crate) programs: ProgramDenials,
    pub(crate) vfs: Vfs,
    pub(crate) pipes: Pipes,
}

/// The policy in force, with its digest as entries carry it.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) policy: Policy,
    pub(crate) digest: String,
}

impl InForce {
    pub(crate) fn new(policy: Policy) -> Arc<Self> {
        let digest = hex_string(&policy.digest());
        Arc::new(Self { policy, digest })
    }
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Self {
        let session: Arc<str> = parts.session.into();
        let rates = Arc::new(Rates::new(Arc::clone(&parts.state)));
        let root = parts.workspace.root().to_string_lossy().into_owned();
        let gate = Gate {
            policy: RwLock::new(InForce::new(parts.policy)),
            approvals: Approvals::new(&parts.state, &rates, &root),
            budgets: Budgets::new(Arc::clone(&parts.state), &root, &session),
            rates,
            turns: Turns::default(),
            returns: Returns::default(),
            tallies: Tallies::default(),
        };
        Self {
            recorder: Recorder::new(parts.ledger),
            gate,
            society: Society::default(),
            tokens: Tokens::new(&parts.state),
            operator: Principal::person(&parts.sponsor, PersonRole::Admin, session),
            executors: parts.executors,
            catalogue: parts.catalogue,
            workspace: parts.workspace,
            clock: parts.clock,
            state: parts.state,
            secrets: parts.secrets,
            journal: Journal::default(),
            offers: Offers::default(),
        }
    }

    pub(crate) fn policy(&self) -> Arc<InForce> {
        Arc::clone(&self.gate.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another policy in force. Calls that are being judged keep the one that they began with.
    pub(crate) fn replace_policy(&self, next: Arc<InForce>) {
        *self.gate.policy.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Now, and by which policy the call was judged.
    pub(crate) fn stamp(&self, sheet: &Sheet) -> record::Stamp {
        let secrets = Arc::clone(&self.secrets);
        let sealed = self.recorder.ledger.encrypts();
        record::Stamp { at_ms: self.clock.now_ms(), policy: Arc::clone(&sheet.policy), secrets, sealed }
    }

    /// Lets a call in, or says why not.
    pub(crate) async fn admit(&self) -> Result<(), Fault> {
        self.serve_returns().await;
        self.recorder.admit(|| self.catalogue.undriven().is_none()).await
    }

    /// Writes an outcome, and remembers from time to time how far the ledger is settled.
    pub(crate) async fn record_outcome(
        &self,
        draft: EntryDraft,
        intent: Receipt,
    ) -> Result<Receipt, AppendError> {
        let written = self.recorder.outcome(draft, intent).await;
        if written.is_ok() {
            self.renew_mark().await;
        }
        written
    }

    /// Records something that isn't a call: the kernel's own states, agents, policy.
    pub(crate) async fn note(&self, kind: EntryKind, body: &impl Serialize) -> Result<Receipt, Fault> {
        self.recorder.intent(record::note(kind, self.clock.now_ms(), body)?).await
    }
}

/// Canonical form fails only on numbers that JSON can't carry exactly; the caller hears of it before anything happens.
pub(crate) type Canonical<T> = Result<T, CanonicalError>;
