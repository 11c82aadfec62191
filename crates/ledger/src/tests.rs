//! Integration tests: appending, lanes, tampering, crashes, payloads, proofs.

mod appending;
mod crash;
mod lanes;
mod payloads;
mod proofs;
mod reading;
mod resume;
mod tamper;
mod witness;

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::storage::Storage;
use crate::verify::verify_on;
use crate::*;

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn key() -> LedgerKey {
    LedgerKey::from_seed(&[1; 32])
}

fn draft(number: u64) -> EntryDraft {
    let body = json!({"n": number, "session": format!("s{}", number % 3), "text": "née \"quoted\"\n"});
    let at_ms = 1_000_000 + i64::try_from(number).unwrap();
    EntryDraft {
        kind: EntryKind::Intent,
        at_ms,
        body: CanonicalJson::encode(&body).unwrap(),
        payloads: Vec::new(),
    }
}

fn small_segments() -> Options {
    Options { segment_bytes_max: 4096, ..Options::default() }
}

fn open(root: &Path) -> Ledger {
    Ledger::open(root, key(), small_segments()).unwrap()
}

/// A closed ledger with this many drafts.
fn filled(root: &Path, count: u64) {
    let ledger = open(root);
    append(&ledger, 0..count);
    ledger.close().unwrap();
}

fn append(ledger: &Ledger, numbers: std::ops::Range<u64>) {
    for number in numbers {
        ledger.append_blocking(draft(number)).unwrap();
    }
}

fn verdict(root: &Path) -> LedgerVerdict {
    verify(root, &VerifyOptions::default()).unwrap().verdict
}

fn verdict_on(storage: impl Storage + 'static) -> LedgerVerdict {
    verify_on(Arc::new(storage), &VerifyOptions::default()).unwrap().verdict
}

fn broken(verdict: LedgerVerdict) -> Break {
    match &verdict {
        LedgerVerdict::Broken(broken) => broken.clone(),
        LedgerVerdict::Ok | LedgerVerdict::Unproven { .. } => panic!("expected a break: {verdict:?}"),
    }
}

/// Numbers of the readable drafts, in order.
fn numbers(reader: &Reader) -> Vec<u64> {
    let entries = reader.entries().unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.kind == EntryKind::Intent)
        .filter_map(|entry| entry.body["n"].as_u64())
        .collect()
}
