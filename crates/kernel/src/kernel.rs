//! The kernel as a whole: what it is made of, how it comes up, and what stops it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use regent_ledger::{AppendError, CanonicalError, Draft, Kind, Ledger, Receipt};
use regent_policy::Policy;
use regent_store::State;
use serde::{Deserialize, Serialize};

use crate::agent::{Agents, Calls};
use crate::approval::Approvals;
use crate::budget::Budgets;
use crate::catalogue::Catalogue;
use crate::charges::Returns;
use crate::clock::Clock;
use crate::executor::Executors;
use crate::journal::Journal;
use crate::pipe::Pipes;
use crate::principal::Principal;
use crate::rate::Rates;
use crate::record;
use crate::recovery::InDoubt;
use crate::request::Offers;
use crate::role::PersonRole;
use crate::secret::Secrets;
use crate::syscall::Fault;
use crate::tally::Tallies;
use crate::token::Tokens;
use crate::turns::Turns;
use crate::unended::Unended;
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

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) policy: RwLock<Arc<InForce>>,
    pub(crate) ledger: Ledger,
    pub(crate) executors: Executors,
    pub(crate) catalogue: Catalogue,
    pub(crate) workspace: Workspace,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Arc<dyn State>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) agents: Agents,
    pub(crate) calls: Calls,
    pub(crate) vfs: Vfs,
    pub(crate) pipes: Pipes,
    pub(crate) budgets: Budgets,
    pub(crate) approvals: Approvals,
    pub(crate) tokens: Tokens,
    pub(crate) rates: Arc<Rates>,
    /// Steps of this kernel on the same records.
    pub(crate) turns: Turns,
    /// What calls took that were torn down before they ran.
    pub(crate) returns: Returns,
    pub(crate) journal: Journal,
    pub(crate) offers: Offers,
    pub(crate) operator: Principal,
    pub(crate) tallies: Tallies,
    phase: Mutex<Phase>,
    /// Set when `phase` or `owed` needs a look, so that the common case costs one load.
    disturbed: AtomicBool,
    /// Outcomes that the disk had no room for, each with its intent. Nothing new is done until they are written.
    owed: Mutex<VecDeque<(Draft, Receipt)>>,
    /// Held by the caller that writes owed outcomes.
    settling: tokio::sync::Mutex<()>,
    /// Calls that were allowed and whose outcome isn't written yet.
    pub(crate) unended: Unended,
    /// What processes before this one left in doubt.
    pub(crate) in_doubt: OnceLock<Vec<InDoubt>>,
}

/// The policy in force, with its digest as entries carry it.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) policy: Policy,
    pub(crate) digest: String,
}

impl InForce {
    pub(crate) fn new(policy: Policy) -> Arc<Self> {
        let digest = policy.digest().iter().map(|byte| format!("{byte:02x}")).collect();
        Arc::new(Self { policy, digest })
    }
}

/// The states of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "why")]
pub enum Phase {
    /// Not up yet.
    Booting,
    /// Taking calls.
    Running,
    /// Taking calls, but something is missing; what and why.
    Degraded(String),
    /// Takes no more calls; why.
    Sealed(String),
    /// Going down or gone.
    Shutdown,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Self {
        let session: Arc<str> = parts.session.into();
        let rates = Arc::new(Rates::new(Arc::clone(&parts.state)));
        let root = parts.workspace.root().to_string_lossy().into_owned();
        Self {
            policy: RwLock::new(InForce::new(parts.policy)),
            tokens: Tokens::new(&parts.state),
            approvals: Approvals::new(&parts.state, &rates, &root),
            rates,
            turns: Turns::default(),
            returns: Returns::default(),
            budgets: Budgets::new(Arc::clone(&parts.state), &root, &session),
            operator: Principal::person(&parts.sponsor, PersonRole::Admin, session),
            ledger: parts.ledger,
            executors: parts.executors,
            catalogue: parts.catalogue,
            workspace: parts.workspace,
            clock: parts.clock,
            state: parts.state,
            secrets: parts.secrets,
            agents: Agents::default(),
            calls: Calls::default(),
            vfs: Vfs::default(),
            pipes: Pipes::default(),
            journal: Journal::default(),
            offers: Offers::default(),
            tallies: Tallies::default(),
            phase: Mutex::new(Phase::Booting),
            disturbed: AtomicBool::new(true),
            owed: Mutex::default(),
            settling: tokio::sync::Mutex::default(),
            unended: Unended::default(),
            in_doubt: OnceLock::new(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn policy(&self) -> Arc<InForce> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Now, and by which policy.
    pub(crate) fn stamp(&self) -> record::Stamp {
        let secrets = Arc::clone(&self.secrets);
        let sealed = self.ledger.encrypts();
        record::Stamp { at_ms: self.clock.now_ms(), policy: self.policy(), secrets, sealed }
    }

    /// Lets a call in, or says why not.
    pub(crate) async fn admit(&self) -> Result<(), Fault> {
        self.serve_returns().await;
        if !self.disturbed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.demand_open()?;
        self.settle_owed().await?;
        // It may have been sealed while this call waited for its turn.
        self.demand_open()
    }

    fn demand_open(&self) -> Result<(), Fault> {
        match self.phase() {
            Phase::Booting => Err(Fault::NotRunning("it has not started yet".to_owned())),
            Phase::Sealed(why) => Err(Fault::NotRunning(format!("it is sealed: {why}"))),
            Phase::Shutdown => Err(Fault::NotRunning("it is shutting down".to_owned())),
            Phase::Running | Phase::Degraded(_) => Ok(()),
        }
    }

    /// Writes an intent. If that fails nothing has happened yet, so a full or slow disk, or a draft that is too large, only
    /// refuses this call.
    pub(crate) async fn record_intent(&self, draft: Draft) -> Result<Receipt, Fault> {
        self.recorded(self.ledger.append(draft).await)
    }

    /// Writes the intent of a call that is about to be made. It is durable before the effect begins; the outcome's checkpoint signs both.
    pub(crate) async fn record_allowed(&self, draft: Draft) -> Result<Receipt, Fault> {
        let expected = self.unended.expect(&self.ledger.head());
        let written = self.ledger.append_unsigned(draft).await;
        self.unended.written(expected, written.as_ref().ok());
        self.recorded(written)
    }

    fn recorded(&self, written: Result<Receipt, AppendError>) -> Result<Receipt, Fault> {
        if let Err(error) = &written {
            match of_this_draft(error) {
                Some(Passing::Draft) => {}
                Some(Passing::Disk) | None => self.turn(after_failure(error)),
            }
        }
        Ok(written?)
    }

    /// Writes an outcome. The effect has happened: if the disk is full or slow the outcome is kept and owed, and no call is let in
    /// before it is written; any other failure seals the kernel.
    pub(crate) async fn record_outcome(&self, draft: Draft, intent: Receipt) -> Result<Receipt, AppendError> {
        let kept = draft.clone();
        let written = self.ledger.append(draft).await;
        if let Err(error) = &written {
            match of_this_draft(error) {
                Some(Passing::Disk) => self.owe((kept, intent), error),
                Some(Passing::Draft) | None => self.seal(error),
            }
        } else {
            self.unended.ended(&intent);
            self.renew_mark().await;
        }
        written
    }

    /// Writes what is owed, in order. One caller at a time: a second one waits until the first has written everything, so that no
    /// call is let in while an outcome is owed. An outcome leaves the list only once it is written.
    pub(crate) async fn settle_owed(&self) -> Result<(), Fault> {
        let _only = self.settling.lock().await;
        loop {
            let next = self.owed.lock().unwrap_or_else(PoisonError::into_inner).front().cloned();
            let Some((draft, intent)) = next else {
                if self.calm_down() {
                    return Ok(());
                }
                continue;
            };
            if let Err(error) = self.ledger.append(draft).await {
                self.turn(after_failure(&error));
                return Err(error.into());
            }
            self.owed.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            self.unended.ended(&intent);
        }
    }

    /// Goes back to the common case, unless something has come to be owed meanwhile. Says whether nothing is.
    fn calm_down(&self) -> bool {
        // `owe` holds the phase too, so nothing is added between the look and the store.
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.owed.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return false;
        }
        if matches!(&*phase, Phase::Running | Phase::Degraded(_)) {
            if self.catalogue.undriven().is_none() {
                *phase = Phase::Running;
            }
            self.disturbed.store(false, Ordering::Release);
        }
        true
    }

    /// Keeps an outcome that the disk had no room for.
    fn owe(&self, owed: (Draft, Receipt), error: &AppendError) {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        self.owed.lock().unwrap_or_else(PoisonError::into_inner).push_back(owed);
        if matches!(&*phase, Phase::Running | Phase::Degraded(_)) {
            *phase = Phase::Degraded(error.to_string());
        }
        self.disturbed.store(true, Ordering::Release);
    }

    /// Records something that isn't a call: the kernel's own states, agents, policy.
    pub(crate) async fn note(&self, kind: Kind, body: &impl Serialize) -> Result<Receipt, Fault> {
        self.record_intent(record::note(kind, self.clock.now_ms(), body)?).await
    }

    /// An effect that can't be written down: the one state after which nothing more may happen.
    pub(crate) fn seal(&self, why: &impl std::fmt::Display) {
        self.turn(Phase::Sealed(why.to_string()));
    }

    pub(crate) fn turn(&self, to: Phase) {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        // Sealed and Shutdown are final: nothing talks the kernel out of them.
        if !matches!(&*phase, Phase::Sealed(_) | Phase::Shutdown) || matches!(to, Phase::Shutdown) {
            *phase = to;
        }
        self.disturbed.store(true, Ordering::Release);
    }
}

/// A failure to write that says nothing against the ledger as a whole.
enum Passing {
    /// The draft is at fault.
    Draft,
    /// The disk is full or slow; a later attempt may succeed.
    Disk,
}

fn of_this_draft(error: &AppendError) -> Option<Passing> {
    match error {
        AppendError::Full | AppendError::Backlog | AppendError::Busy => Some(Passing::Disk),
        AppendError::TooLarge { .. }
        | AppendError::Reserved(_)
        | AppendError::NotAnObject
        | AppendError::Time(_) => Some(Passing::Draft),
        AppendError::Sealed(_) | AppendError::Io(_) | AppendError::Closed => None,
    }
}

/// The phase that a failure to write leads to, where the draft is not at fault.
fn after_failure(error: &AppendError) -> Phase {
    match of_this_draft(error) {
        Some(Passing::Disk) => Phase::Degraded(error.to_string()),
        Some(Passing::Draft) | None => Phase::Sealed(error.to_string()),
    }
}

/// Canonical form fails only on numbers that JSON can't carry exactly; the caller hears of it before anything happens.
pub(crate) type Canonical<T> = Result<T, CanonicalError>;
