//! An export, as a third party gets it: nothing but what the key signed passes.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use regent_ledger::{Export, LedgerKey};

static KEY: LazyLock<LedgerKey> = LazyLock::new(|| LedgerKey::from_seed(&[3; 32]));

fuzz_target!(|bytes: &[u8]| {
    let Ok(export) = Export::parse(bytes) else { return };
    if let Ok(entries) = export.verify(&[KEY.public()]) {
        assert!(entries == 0 || export.lanes.iter().any(|lane| !lane.entries.is_empty()));
    }
});
