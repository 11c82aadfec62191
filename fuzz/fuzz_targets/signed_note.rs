//! Signed notes, checkpoints and public keys.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use regent_ledger::note::{Checkpoint, Note};
use regent_ledger::{LedgerKey, PublicKey};

static KEY: LazyLock<LedgerKey> = LazyLock::new(|| LedgerKey::from_seed(&[1; 32]));

fuzz_target!(|text: &str| {
    if let Ok(note) = Note::parse(text) {
        assert!(note.verify("regent", &[KEY.public()]).is_err(), "nobody forges a signature by chance");
    }
    assert!(Checkpoint::open(text, &[KEY.public()]).is_err(), "nobody forges a checkpoint by chance");
    // An origin that is no key name can't be signed under.
    let is_name = |origin: &str| !origin.contains(|c: char| c.is_whitespace() || c.is_control() || c == '+');
    if let Ok(checkpoint) = Checkpoint::parse(text)
        && is_name(&checkpoint.origin)
    {
        let signed = checkpoint.sign(&KEY);
        assert!(Checkpoint::open(&signed, &[KEY.public()]).is_ok(), "what is read can be signed");
    }
    if let Ok((name, key)) = PublicKey::from_vkey(text) {
        assert_eq!(key.vkey(&name), text, "a key has one spelling");
    }
});
