//! Is it written? The ledger, what it still owes, and the phase that a failure to write leads to.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use regent_ledger::{AppendError, EntryDraft, Ledger, Receipt};
use serde::{Deserialize, Serialize};

use crate::recovery::InDoubt;
use crate::syscall::Fault;
use crate::unended::Unended;

/// What is recorded, and what isn't yet. While an outcome is owed no call is let in.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) ledger: Ledger,
    /// Calls that were allowed and whose outcome isn't written yet.
    pub(crate) unended: Unended,
    /// What processes before this one left in doubt.
    pub(crate) in_doubt: OnceLock<Vec<InDoubt>>,
    phase: Mutex<Phase>,
    /// Set when `phase` or `owed` needs a look, so that the common case costs one load.
    disturbed: AtomicBool,
    /// Outcomes that the disk had no room for, each with its intent. Nothing new is done until they are written.
    owed: Mutex<VecDeque<(EntryDraft, Receipt)>>,
    /// Held by the caller that writes owed outcomes.
    settling: tokio::sync::Mutex<()>,
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

impl Recorder {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            unended: Unended::default(),
            in_doubt: OnceLock::new(),
            phase: Mutex::new(Phase::Booting),
            disturbed: AtomicBool::new(true),
            owed: Mutex::default(),
            settling: tokio::sync::Mutex::default(),
        }
    }

    /// Lets a call in, or says why not. `complete` says whether every tool has its driver.
    pub(crate) async fn admit(&self, complete: impl Fn() -> bool) -> Result<(), Fault> {
        if !self.disturbed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.demand_open()?;
        self.settle_owed(complete).await?;
        // It may have been sealed while this call waited for its turn.
        self.demand_open()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
    pub(crate) async fn intent(&self, draft: EntryDraft) -> Result<Receipt, Fault> {
        self.recorded(self.ledger.append(draft).await)
    }

    /// Writes the intent of a call that is about to be made. It is durable before the effect begins; the outcome's checkpoint signs both.
    pub(crate) async fn allowed(&self, draft: EntryDraft) -> Result<Receipt, Fault> {
        let expected = self.unended.expect(&self.ledger.head());
        let written = self.ledger.append_unsigned(draft).await;
        self.unended.written(expected, written.as_ref().ok());
        self.recorded(written)
    }

    fn recorded(&self, written: Result<Receipt, AppendError>) -> Result<Receipt, Fault> {
        if let Err(error) = &written {
            match of_this_draft(error) {
                Some(Passing::EntryDraft) => {}
                Some(Passing::Disk) | None => self.turn(after_failure(error)),
            }
        }
        Ok(written?)
    }

    /// Writes an outcome. The effect has happened: if the disk is full or slow the outcome is kept and owed, and no call is let in
    /// before it is written; any other failure seals the kernel.
    pub(crate) async fn outcome(&self, draft: EntryDraft, intent: Receipt) -> Result<Receipt, AppendError> {
        let kept = draft.clone();
        let written = self.ledger.append(draft).await;
        if let Err(error) = &written {
            match of_this_draft(error) {
                Some(Passing::Disk) => self.owe((kept, intent), error),
                Some(Passing::EntryDraft) | None => self.seal(error),
            }
        } else {
            self.unended.ended(&intent);
        }
        written
    }

    /// Writes what is owed, in order. One caller at a time: a second one waits until the first has written everything, so that no
    /// call is let in while an outcome is owed. An outcome leaves the list only once it is written.
    pub(crate) async fn settle_owed(&self, complete: impl Fn() -> bool) -> Result<(), Fault> {
        let _only = self.settling.lock().await;
        loop {
            let next = self.owed.lock().unwrap_or_else(PoisonError::into_inner).front().cloned();
            let Some((draft, intent)) = next else {
                if self.calm_down(&complete) {
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
    fn calm_down(&self, complete: impl Fn() -> bool) -> bool {
        // `owe` holds the phase too, so nothing is added between the look and the store.
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.owed.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return false;
        }
        if matches!(&*phase, Phase::Running | Phase::Degraded(_)) {
            if complete() {
                *phase = Phase::Running;
            }
            self.disturbed.store(false, Ordering::Release);
        }
        true
    }

    /// Keeps an outcome that the disk had no room for.
    fn owe(&self, owed: (EntryDraft, Receipt), error: &AppendError) {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        self.owed.lock().unwrap_or_else(PoisonError::into_inner).push_back(owed);
        if matches!(&*phase, Phase::Running | Phase::Degraded(_)) {
            *phase = Phase::Degraded(error.to_string());
        }
        self.disturbed.store(true, Ordering::Release);
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
    EntryDraft,
    /// The disk is full or slow; a later attempt may succeed.
    Disk,
}

fn of_this_draft(error: &AppendError) -> Option<Passing> {
    match error {
        AppendError::Full | AppendError::Backlog | AppendError::Busy => Some(Passing::Disk),
        AppendError::TooLarge { .. }
        | AppendError::Reserved(_)
        | AppendError::NotAnObject
        | AppendError::Time(_) => Some(Passing::EntryDraft),
        AppendError::Sealed(_) | AppendError::Io(_) | AppendError::Closed => None,
    }
}

/// The phase that a failure to write leads to, where the draft is not at fault.
fn after_failure(error: &AppendError) -> Phase {
    match of_this_draft(error) {
        Some(Passing::Disk) => Phase::Degraded(error.to_string()),
        Some(Passing::EntryDraft) | None => Phase::Sealed(error.to_string()),
    }
}
