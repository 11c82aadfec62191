//! A `did:key`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use regent_kernel::Did;

fuzz_target!(|text: &str| {
    let Ok(did) = Did::parse(text) else { return };
    assert_eq!(did.as_str(), text, "an identity has one spelling");
    assert!(!did.verify(b"message", &[0; 64]), "nobody forges a signature by chance");
});
