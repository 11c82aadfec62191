//! One line of a segment.
#![no_main]

use libfuzzer_sys::fuzz_target;
use regent_ledger::Line;

fuzz_target!(|bytes: &[u8]| {
    let Some(line) = Line::parse(bytes) else { return };
    assert!(regent_ledger::canonical::check(bytes).is_ok(), "an entry is canonical");
    assert_eq!(line.hash(), line.hash());
});
