//! Strict JSON in, canonical JSON out: one value, one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use regent_ledger::canonical::{check, parse, to_vec};

fuzz_target!(|bytes: &[u8]| {
    let is_canonical = check(bytes).is_ok();
    let Ok(value) = parse(bytes) else {
        assert!(!is_canonical, "canonical bytes are JSON");
        return;
    };
    let spelt = to_vec(&value).expect("what was read can be written");
    assert!(check(&spelt).is_ok(), "what is written is canonical");
    assert_eq!(is_canonical, spelt == bytes, "a value has one spelling");
    let again = parse(&spelt).expect("and can be read");
    assert_eq!(to_vec(&again).expect("and written again"), spelt, "as the same value");
});
