//! Keeps what rules that look back have noted, in the shared state: of a session, for the agents that one agent leads, and of what
//! lasts, under the name that rates go by. Where no rule looks back, nothing is read or written.

#[cfg(test)]
mod tests;

use regent_policy::{ApprovedBy, Awaited, History, Label, Notes, Reason};
use regent_store::{self as store, Partition, StateError, key_part, parse};

use crate::approval::Voice;
use crate::call::Call;
use crate::facts::Sheet;
use crate::kernel::{Core, InForce};
use crate::outlast::{TRIES_MAX, outlasting};
use crate::principal::Principal;
use crate::syscall::Fault;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// What a session has noted is kept for so long after its last call, and what lasts for so long after the last of all.
const KEPT_MS: [i64; 2] = [7 * DAY_MS, 400 * DAY_MS];

/// Where the history of a session and the one that lasts are kept; `None` if no rule looks at it.
pub(crate) type HistoryKeys = [Option<String>; 2];

/// What has happened so far.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    pub(crate) session: History,
    pub(crate) lasting: History,
}

impl Core {
    pub(crate) async fn past(&self, who: &Principal, policy: &InForce) -> Result<Histories, StateError> {
        let keys = history_keys(who, policy);
        let wanted: Vec<String> = keys.iter().flatten().cloned().collect();
        if wanted.is_empty() {
            return Ok(Histories::default());
        }
        let mut found = self.state.read(&partition(), &wanted).await?.into_iter();
        let mut both = [History::new(), History::new()];
        for (history, _) in both.iter_mut().zip(&keys).filter(|(_, key)| key.is_some()) {
            if let Some(held) = found.next().flatten() {
                *history = parse("history", &held.value)?;
            }
        }
        let [session, lasting] = both;
        Ok(Histories { session, lasting })
    }

    /// Changes both in one atomic step.
    async fn noting<T: Send>(
        &self,
        keys: &HistoryKeys,
        mut note: impl FnMut(Notes<'_>) -> T + Send,
    ) -> Result<T, StateError> {
        let now_ms = self.clock.now_ms();
        if keys.iter().all(Option::is_none) {
            return Ok(note(Notes { session: &mut History::new(), lasting: &mut History::new() }));
        }
        let wanted: Vec<String> = keys.iter().flatten().cloned().collect();
        let _turn = self.gate.turns.take(&wanted).await;
        store::change(&*self.state, &partition(), &wanted, |records| {
            let mut both = [History::new(), History::new()];
            for (key, history) in keys.iter().zip(&mut both) {
                *history = key.as_ref().map_or(Ok(None), |key| records.load(key))?.unwrap_or_default();
            }
            let [session, lasting] = &mut both;
            let noted = note(Notes { session, lasting });
            for ((key, history), kept_ms) in keys.iter().zip(&both).zip(KEPT_MS) {
                if let Some(key) = key.as_ref().filter(|_| !history.is_empty()) {
                    records.save(key, history, now_ms.saturating_add(kept_ms))?;
                }
            }
            Ok(noted)
        })
        .await
    }

    /// The call is about to be performed: it is counted, or it comes too late and hears why.
    pub(crate) async fn note_begin(&self, call: &Call, sheet: &mut Sheet) -> Result<Option<Reason>, Fault> {
        let agreed = match sheet.approved.as_ref().map(|approved| approved.voice) {
            Some(Voice::Person) => ApprovedBy::Person,
            Some(Voice::HostSays) => ApprovedBy::Host,
            None => ApprovedBy::Nobody,
        };
        let shared = &*sheet;
        let keys = history_keys(call.principal(), &sheet.policy);
        let begun = self
            .noting(&keys, |notes| {
                self.with_facts(call, shared, |policy, facts| policy.begin(&facts, agreed, notes))
            })
            .await?;
        match begun {
            Ok(awaited) => {
                sheet.charges.noted(&awaited, keys);
                sheet.awaited = awaited;
            }
            Err(reason) => return Ok(Some(reason)),
        }
        Ok(None)
    }

    /// The call took effect before a crash. It was counted when it began; what its end adds is still to be noted.
    pub(crate) fn await_again(&self, call: &Call, sheet: &mut Sheet) {
        let notes = Notes { session: &mut History::new(), lasting: &mut History::new() };
        let begun =
            self.with_facts(call, sheet, |policy, facts| policy.begin(&facts, ApprovedBy::Nobody, notes));
        sheet.awaited = begun.unwrap_or_default();
    }

    /// The call was counted, and doesn't run after all.
    pub(crate) async fn take_back(&self, keys: &HistoryKeys, awaited: &Awaited) -> Result<(), StateError> {
        if awaited.has_noted() {
            self.noting(keys, |notes| awaited.take_back(notes)).await?;
        }
        Ok(())
    }

    /// The call has ended. What can't be noted would be forgotten, so nothing more is done then; but a state that is busy or starts again
    /// is given some time, because noting is idempotent.
    pub(crate) async fn note_end(
        &self,
        call: &Call,
        sheet: &Sheet,
        label: Label,
        ok: bool,
    ) -> Result<(), Fault> {
        let awaited = &sheet.awaited;
        if awaited.is_empty() {
            return Ok(());
        }
        let keys = history_keys(call.principal(), &sheet.policy);
        let noted =
            outlasting(TRIES_MAX, || self.noting(&keys, |notes| awaited.ended(label, ok, notes))).await;
        Ok(noted.inspect_err(|error| self.recorder.seal(error))?)
    }
}

fn history_keys(who: &Principal, policy: &InForce) -> HistoryKeys {
    let reach = policy.policy.reach();
    let leader = who.lineage().first().map_or_else(|| key_part(who.display_name()), ToString::to_string);
    let session = || format!("history/session/{}/{leader}", key_part(who.session()));
    let lasting = || format!("history/lasting/{}", key_part(who.rate_name()));
    [reach.session.then(session), reach.lasting.then(lasting)]
}

/// All histories: one step changes that of a session and that of a name.
fn partition() -> Partition {
    Partition::containing("history/")
}
