//! How fast is the ledger: to verify, and to append to when it has grown.

use std::hint::black_box;
use std::path::Path;

use anyhow::{Result, ensure};
use regent_ledger::{CanonicalJson, EntryDraft, EntryKind, Ledger, LedgerKey, LedgerVerdict, Options, VerifyOptions};
use serde_json::json;

use crate::measure::{median, nanos, once};
use crate::report::Report;

const VERIFIED: usize = 200_000;
const BATCH: usize = 1_000;

/// `ledger.*`.
pub fn measure(report: &mut Report) -> Result<()> {
    verify(report)?;
    append(report)?;
    append_durably(report)
}

/// An entry like those of the kernel.
pub fn draft(number: usize) -> Result<EntryDraft> {
    let body = json!({
        "caller": {"agent": "worker-1", "chain": ["tester", "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"]},
        "number": number, "op": "tool.run", "session": "bench", "tier": "host",
        "verdict": {"code": null, "effect": "allow", "reason": null, "rule": "noop"},
    });
    Ok(EntryDraft {
        kind: EntryKind::Intent,
        at_ms: 1_790_000_000_000,
        body: CanonicalJson::encode(&body)?,
        payloads: Vec::new(),
    })
}

fn verify(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("audit");
    let ledger = Ledger::open(&root, LedgerKey::generate()?, Options::default())?;
    fill(&ledger, VERIFIED)?;
    ledger.close()?;
    let mut rates = Vec::new();
    for _ in 0..7 {
        let (took_s, entries) = once(|| verified(&root));
        rates.push(entries? as f64 / took_s);
    }
    report.figure("ledger.verify", median(rates), "entries/s");
    Ok(())
}

fn verified(root: &Path) -> Result<u64> {
    let report = regent_ledger::verify(root, &VerifyOptions::default())?;
    ensure!(matches!(report.verdict, LedgerVerdict::Ok), "{:?}", report.verdict);
    Ok(report.entries)
}

/// Appends many at a time, so that they share syncs.
fn fill(ledger: &Ledger, entries: usize) -> Result<()> {
    for first in (0..entries).step_by(BATCH) {
        let under_way: Result<Vec<_>> =
            (first..first + BATCH).map(|number| Ok(ledger.append(draft(number)?))).collect();
        // The batch is written in order, so the last one done is all done.
        if let Some(last) = under_way?.pop() {
            futures_wait(last)?;
        }
    }
    Ok(())
}

fn futures_wait(appending: regent_ledger::Appending) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    black_box(runtime.block_on(appending)?);
    Ok(())
}

/// An entry in memory, without a disk's noise, at two sizes of the same ledger.
fn append(report: &mut Report) -> Result<()> {
    let ledger = Ledger::in_memory(LedgerKey::generate()?);
    let mut number = 0;
    let mut grow_to = |size: usize| -> Result<f64> {
        while number < size {
            ledger.append_blocking(draft(number)?)?;
            number += 1;
        }
        let ready = draft(number)?;
        Ok(nanos(101, 100, || ledger.append_blocking(ready.clone())) / 1_000.0)
    };
    let early = grow_to(1_000)?;
    let late = grow_to(1_000_000)?;
    report.figure("ledger.append.memory.at1k", early, "us");
    report.figure("ledger.append.memory.at1m", late, "us");
    report.figure("ledger.append.flatness", late / early, "times");
    Ok(())
}

/// An entry on disk, from one caller on a thread of its own: a sync, and what the ledger adds to it.
fn append_durably(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let ledger = Ledger::open(&folder.path().join("audit"), LedgerKey::generate()?, Options::default())?;
    let ready = draft(0)?;
    let mut samples = Vec::new();
    for _ in 0..1_000 {
        let (took_s, appended) = once(|| ledger.append_blocking(ready.clone()));
        appended?;
        samples.push(took_s * 1e6);
    }
    report.figure("ledger.append.durable", median(samples), "us");
    Ok(())
}
