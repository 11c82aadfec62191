//! Compares the ledger with the actual effects.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use regent_ledger::{Digest, LedgerVerdict, Reader, VerifyError, VerifyOptions};
use regent_wire::Status;
use regent_wire::body::{Decision, EntryBody};
use serde_json::json;

use super::{Broken, audit, effects, witness};

/// The ledger's record of the marks `ids`.
#[derive(Debug, Default)]
pub struct Journal {
    /// Allowed intents.
    pub intended: BTreeSet<u64>,
    /// Successful outcomes.
    pub done: BTreeSet<u64>,
}

impl Journal {
    /// Reads the ledger of a folder, as a resuming task would. A missing ledger is empty.
    pub fn read(folder: &Path, ids: Range<u64>) -> Result<Self, Broken> {
        if audit(folder).exists() {
            Self::from_reader(&Reader::new(&audit(folder)), ids)
        } else {
            Ok(Self::default())
        }
    }

    /// Reads a ledger in any storage.
    pub fn from_reader(ledger: &Reader, ids: Range<u64>) -> Result<Self, Broken> {
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

    /// Intents without an outcome: the effect may have happened, so it is not repeated without an operator.
    pub fn in_doubt(&self) -> BTreeSet<u64> {
        self.intended.difference(&self.done).copied().collect()
    }

    /// Compares the ledger with the acknowledgements and the actual effects.
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

/// The payload digests of the intents and outcomes of marks.
fn digests(ids: Range<u64>) -> (BTreeMap<Digest, u64>, BTreeMap<Digest, u64>) {
    let (mut arguments, mut results) = (BTreeMap::new(), BTreeMap::new());
    for id in ids {
        arguments.insert(Digest::compute(json!({"id": id}).to_string().as_bytes()), id);
        results.insert(Digest::compute(json!({"marked": id}).to_string().as_bytes()), id);
    }
    (arguments, results)
}

/// The time of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Directly after the crash: the end of a lane may be unproven.
    Crashed,
    /// After the next kernel has started and shut down: everything is settled.
    Settled,
}

/// A crash may leave an unsigned end; no other flaw is accepted.
pub fn settled(verdict: &LedgerVerdict, may_lack_proof: bool) -> Result<(), String> {
    match verdict {
        LedgerVerdict::Ok => Ok(()),
        LedgerVerdict::Unproven { .. } if may_lack_proof => Ok(()),
        LedgerVerdict::Unproven { .. } | LedgerVerdict::Broken(_) => {
            Err(format!("the ledger doesn't verify: {verdict:?}"))
        }
    }
}

/// Checks all invariants. Returns the ledger's record.
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
            // The child died before it recorded anything.
            Err(VerifyError::NoLedger) if moment == Moment::Crashed => {}
            Err(error) => return Err(format!("{moment:?}: {error}").into()),
        }
    }
    let journal = Journal::read(folder, ids)?;
    journal.against(acks, &marks(folder)?).map_err(|why| format!("{moment:?}: {why}"))?;
    Ok(journal)
}

/// The actual effects, in order.
fn marks(folder: &Path) -> Result<Vec<u64>, Broken> {
    if !effects(folder).exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(effects(folder))?;
    text.lines().map(|line| line.parse().map_err(|_| format!("a torn mark: `{line}`").into())).collect()
}
