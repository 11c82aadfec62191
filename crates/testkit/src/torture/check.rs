//! What the ledger says, against what really happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use regent_ledger::{Digest, LedgerVerdict, Reader, VerifyError, VerifyOptions};
use regent_wire::Status;
use regent_wire::body::{Decision, EntryBody};
use serde_json::json;

use super::{Broken, audit, effects, witness};

/// What the ledger says about the marks `ids`.
#[derive(Debug, Default)]
pub struct Journal {
    /// Intents that were allowed.
    pub intended: BTreeSet<u64>,
    /// Outcomes that say it was done.
    pub done: BTreeSet<u64>,
}

impl Journal {
    /// Reads the ledger of a folder back, as a task that resumes would. An absent ledger says nothing.
    pub fn read(folder: &Path, ids: Range<u64>) -> Result<Self, Broken> {
        if audit(folder).exists() { Self::of(&Reader::new(&audit(folder)), ids) } else { Ok(Self::default()) }
    }

    /// Reads a ledger back, wherever it is stored.
    pub fn of(ledger: &Reader, ids: Range<u64>) -> Result<Self, Broken> {
        let mut journal = Self::default();
        let (arguments, results) = digests(ids);
        for entry in ledger.entries()? {
            let entry = entry?;
            match EntryBody::read_known(&entry)? {
                Some(EntryBody::Intent(intent)) if intent.verdict.effect == Decision::Allow => {
                    journal.intended.extend(intent.args.and_then(|args| arguments.get(&args.sha256)));
                }
                Some(EntryBody::Outcome(outcome)) if *outcome.status == Status::Ok => {
                    journal.done.extend(outcome.output.and_then(|output| results.get(&output.sha256)));
                }
                Some(_) | None => {}
            }
        }
        Ok(journal)
    }

    /// Intents without an outcome: it may or may not have happened, so it is not done again without a person.
    pub fn in_doubt(&self) -> BTreeSet<u64> {
        self.intended.difference(&self.done).copied().collect()
    }

    /// What the ledger says against what was acknowledged and what really happened.
    pub fn against(&self, acks: &BTreeSet<u64>, marks: &[u64]) -> Result<(), String> {
        if let Some(lost) = acks.difference(&self.done).next() {
            return Err(format!("{lost} was acknowledged and is not in the ledger"));
        }
        let mut seen = BTreeSet::new();
        for id in marks {
            if !self.intended.contains(id) {
                return Err(format!("{id} happened without an intent"));
            }
            if !seen.insert(*id) {
                return Err(format!("{id} happened twice"));
            }
        }
        match self.done.difference(&seen).next() {
            Some(id) => Err(format!("{id} is recorded as done and did not happen")),
            None => Ok(()),
        }
    }
}

/// The payloads that a mark's intent and outcome name.
fn digests(ids: Range<u64>) -> (BTreeMap<Digest, u64>, BTreeMap<Digest, u64>) {
    let (mut arguments, mut results) = (BTreeMap::new(), BTreeMap::new());
    for id in ids {
        arguments.insert(Digest::of(json!({"id": id}).to_string().as_bytes()), id);
        results.insert(Digest::of(json!({"marked": id}).to_string().as_bytes()), id);
    }
    (arguments, results)
}

/// When the looking is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Right after the crash: the end of a lane may be unproven.
    Crashed,
    /// After the next kernel has come up and gone down: everything is settled.
    Settled,
}

/// A crash may leave an end that no signature covers; nothing else is excused.
pub fn settled(verdict: &LedgerVerdict, may_lack_proof: bool) -> Result<(), String> {
    match verdict {
        LedgerVerdict::Ok => Ok(()),
        LedgerVerdict::Unproven { .. } if may_lack_proof => Ok(()),
        LedgerVerdict::Unproven { .. } | LedgerVerdict::Broken(_) => {
            Err(format!("the ledger doesn't verify: {verdict:?}"))
        }
    }
}

/// Looks at everything that must hold. Returns what the ledger says.
pub fn judge(
    folder: &Path,
    ids: Range<u64>,
    acks: &BTreeSet<u64>,
    moment: Moment,
) -> Result<Journal, Broken> {
    if audit(folder).exists() {
        let options = VerifyOptions { witness: Some(witness(folder)), ..VerifyOptions::default() };
        match regent_ledger::verify(&audit(folder), &options) {
            Ok(report) => {
                settled(&report.verdict, moment == Moment::Crashed)
                    .map_err(|why| format!("{moment:?}: {why}"))?;
            }
            // It was struck down before it had recorded anything.
            Err(VerifyError::NoLedger) if moment == Moment::Crashed => {}
            Err(error) => return Err(format!("{moment:?}: {error}").into()),
        }
    }
    let journal = Journal::read(folder, ids)?;
    journal.against(acks, &marks(folder)?).map_err(|why| format!("{moment:?}: {why}"))?;
    Ok(journal)
}

/// What really happened, in order.
fn marks(folder: &Path) -> Result<Vec<u64>, Broken> {
    if !effects(folder).exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(effects(folder))?;
    text.lines().map(|line| line.parse().map_err(|_| format!("a torn mark: `{line}`").into())).collect()
}
