//! What the ledger says, against what really happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use regent_ledger::{Digest, Kind, Verdict, VerifyOptions};
use serde_json::{Value, json};

use super::{Broken, audit, effects};

/// What the ledger says about the marks `ids`.
#[derive(Debug, Default)]
pub struct Journal {
    /// Intents that were allowed.
    pub intended: BTreeSet<u64>,
    /// Outcomes that say it was done.
    pub done: BTreeSet<u64>,
}

impl Journal {
    /// Reads the ledger back, as a task that resumes would. An absent ledger says nothing.
    pub fn read(folder: &Path, ids: Range<u64>) -> Result<Self, Broken> {
        let mut journal = Self::default();
        if !audit(folder).exists() {
            return Ok(journal);
        }
        let (arguments, results) = digests(ids)?;
        for entry in regent_ledger::read::entries(&audit(folder))? {
            let entry = entry?;
            match entry.kind {
                Kind::Intent if entry.body.pointer("/verdict/effect") == Some(&json!("allow")) => {
                    journal.intended.extend(named(&entry.body, "/args/sha256", &arguments));
                }
                Kind::Outcome if entry.body.get("status") == Some(&json!("ok")) => {
                    journal.done.extend(named(&entry.body, "/output/sha256", &results));
                }
                _other => {}
            }
        }
        Ok(journal)
    }

    /// Intents without an outcome: it may or may not have happened, so it is not done again without a person.
    pub fn in_doubt(&self) -> BTreeSet<u64> {
        self.intended.difference(&self.done).copied().collect()
    }
}

/// The payloads that a mark's intent and outcome name.
fn digests(ids: Range<u64>) -> Result<(BTreeMap<String, u64>, BTreeMap<String, u64>), Broken> {
    let (mut arguments, mut results) = (BTreeMap::new(), BTreeMap::new());
    for id in ids {
        arguments.insert(Digest::of(json!({"id": id}).to_string().as_bytes()).to_string(), id);
        results.insert(Digest::of(json!({"marked": id}).to_string().as_bytes()).to_string(), id);
    }
    Ok((arguments, results))
}

fn named(body: &Value, pointer: &str, known: &BTreeMap<String, u64>) -> Option<u64> {
    body.pointer(pointer).and_then(Value::as_str).and_then(|digest| known.get(digest)).copied()
}

/// When the looking is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Right after the crash: the end of a lane may be unproven.
    Crashed,
    /// After the next kernel has come up and gone down: everything is settled.
    Settled,
}

/// Looks at everything that must hold. Returns what the ledger says.
pub fn judge(folder: &Path, ids: Range<u64>, acks: &BTreeSet<u64>, moment: Moment) -> Result<Journal, Broken> {
    if audit(folder).exists() {
        let report = regent_ledger::verify(&audit(folder), &VerifyOptions::default())?;
        match (&report.verdict, moment) {
            (Verdict::Ok, _) | (Verdict::Unproven { .. }, Moment::Crashed) => {}
            (other, _) => return Err(format!("{moment:?}: the ledger doesn't verify: {other:?}").into()),
        }
    }
    let journal = Journal::read(folder, ids)?;
    if let Some(lost) = acks.difference(&journal.done).next() {
        return Err(format!("{moment:?}: {lost} was acknowledged and is not in the ledger").into());
    }
    let mut seen = BTreeSet::new();
    for id in marks(folder)? {
        if !journal.intended.contains(&id) {
            return Err(format!("{moment:?}: {id} happened without an intent").into());
        }
        if !seen.insert(id) {
            return Err(format!("{moment:?}: {id} happened twice").into());
        }
    }
    match journal.done.difference(&seen).next() {
        Some(id) => Err(format!("{moment:?}: {id} is recorded as done and did not happen").into()),
        None => Ok(journal),
    }
}

/// What really happened, in order.
fn marks(folder: &Path) -> Result<Vec<u64>, Broken> {
    if !effects(folder).exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(effects(folder))?;
    text.lines().map(|line| line.parse().map_err(|_| format!("a torn mark: `{line}`").into())).collect()
}
