//! Proofs and exports verify on their own, and prove nothing else.

use super::*;
use crate::note::Checkpoint;
use crate::tree::Consistency;

#[test]
fn every_entry_can_be_proven_offline_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 20);
    let reader = Reader::new(dir.path());
    let keys = [key().public()];
    for seq in 0..40 {
        let proof = reader.prove(LaneId::FIRST, seq).unwrap();
        let sent: Proof = serde_json::from_str(&serde_json::to_string(&proof).unwrap()).unwrap();
        sent.verify(&keys).unwrap();
        let forged = Proof { line: proof.line.replacen("\"at\":1", "\"at\":2", 1), ..proof.clone() };
        assert!(forged.line == proof.line || forged.verify(&keys).is_err());
        assert!(Proof { seq: seq + 1, ..proof.clone() }.verify(&keys).is_err());
        let stranger = [LedgerKey::from_seed(&[5; 32]).public()];
        assert!(proof.verify(&stranger).is_err());
    }
    assert!(matches!(reader.prove(LaneId::FIRST, 1000), Err(ReadError::NoEntry { .. })));
}

#[test]
fn proves_two_checkpoints_of_a_lane_consistent() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let keys = [key().public()];
    append(&ledger, 0..7);
    let (old, _) = Checkpoint::open(&ledger.checkpoint().unwrap(), &keys).unwrap();
    append(&ledger, 7..30);
    let (new, _) = Checkpoint::open(&ledger.checkpoint().unwrap(), &keys).unwrap();
    let proof = Reader::new(dir.path()).prove_consistency(LaneId::FIRST, old.size, new.size).unwrap();
    let heads = Consistency { old: (old.size, old.root), new: (new.size, new.root), proof: &proof };
    assert!(heads.holds());
    assert!(!Consistency { new: (new.size, old.root), ..heads }.holds());
}

#[test]
fn an_exported_session_verifies_offline() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (open(dir.path()), open(dir.path()));
    append(&one, 0..9);
    append(&two, 9..18);
    let export = Reader::new(dir.path()).export("s1").unwrap();
    let bytes = serde_json::to_vec(&export).unwrap();
    let read = Export::parse(&bytes).unwrap();
    let keys = [key().public()];
    assert_eq!(read.verify(&keys).unwrap(), 6);
    assert_eq!(read.lanes.len(), 2);
    let text = String::from_utf8(bytes).unwrap();
    for (from, to) in [("\\\"n\\\":1,", "\\\"n\\\":2,"), ("s1", "s2"), ("export/v1", "export/v2")] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        let verified = Export::parse(changed.as_bytes()).and_then(|export| export.verify(&keys));
        assert!(verified.is_err(), "{from}");
    }
    assert_eq!(Reader::new(dir.path()).export("none").unwrap().lanes, []);
}
