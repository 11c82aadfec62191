//! The signed index: whatever it holds, verification comes to an end, and only the true one passes.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use regent_ledger::storage::Storage as _;
use regent_ledger::verify::verify_on;
use regent_ledger::{LedgerVerdict, Reader, VerifyOptions};
use regent_testkit::torture::flips::Snapshot;

const FILE: &str = "index";

static WHOLE: LazyLock<Snapshot> = LazyLock::new(|| Snapshot::small().expect("a ledger"));

fuzz_target!(|bytes: &[u8]| {
    let storage = Arc::new(WHOLE.storage().expect("its files"));
    let bytes = WHOLE.edited(FILE, bytes);
    storage.replace(FILE, &bytes).expect("memory can be written");
    let is_ok = verify_on(storage.clone(), &VerifyOptions::default())
        .is_ok_and(|report| matches!(report.verdict, LedgerVerdict::Ok));
    assert!(!is_ok || WHOLE.file(FILE) == Some(&bytes), "a forgery passes");
    if let Ok(entries) = Reader::on(storage).entries() {
        assert!(entries.take(1_000).count() < 1_000, "reading comes to an end");
    }
});
