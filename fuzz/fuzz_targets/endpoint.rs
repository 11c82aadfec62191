//! URLs: one parse, one spelling, and nothing but http and https.
#![no_main]

use libfuzzer_sys::fuzz_target;
use regent_kernel::endpoint::{host_of, parse};

fuzz_target!(|text: &str| {
    let Ok(url) = parse(text) else { return };
    assert!(matches!(url.scheme(), "http" | "https"));
    let again = parse(url.as_str()).expect("a spelling that was accepted is accepted");
    assert_eq!(host_of(&again), host_of(&url), "the same host either way");
});
