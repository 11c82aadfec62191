//! A system call as it arrives from outside.
#![no_main]

use libfuzzer_sys::fuzz_target;
use regent_kernel::Op;

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = regent_ledger::canonical::parse(bytes) else { return };
    let Ok(op) = serde_json::from_value::<Op>(value) else { return };
    let again = serde_json::to_value(&op).expect("an operation can be written");
    assert_eq!(serde_json::from_value::<Op>(again).expect("and read again"), op);
});
