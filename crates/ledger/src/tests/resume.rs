//! Unsigned entries, announced entries, and lanes that continue after a crash.

use std::fs;

use super::*;

fn lane_text(root: &Path) -> String {
    fs::read_to_string(root.join("lanes/0000/000000000000.jsonl")).unwrap()
}

fn kinds(root: &Path) -> Vec<&'static str> {
    Reader::new(root).entries().unwrap().map(|entry| entry.unwrap().kind.as_str()).collect()
}

fn witnessed(dir: &Path) -> Options {
    Options { witness: Some(dir.join("witness")), ..Options::default() }
}

#[test]
fn an_announced_entry_comes_with_the_next_and_a_call_takes_four_entries() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("audit");
    let ledger = Ledger::open(&root, key(), witnessed(dir.path())).unwrap();
    ledger.announce(EntryDraft { kind: EntryKind::Kernel, ..draft(0) }).unwrap();
    assert_eq!(ledger.head().size, 2, "the lane's own first batch");
    let intent = ledger.append_unsigned(EntryDraft { payloads: vec![Payload::new(vec![1; 9])], ..draft(1) });
    assert_eq!(intent.wait().unwrap().seq, 3);
    assert_eq!(ledger.append_blocking(EntryDraft { kind: EntryKind::Outcome, ..draft(2) }).unwrap().seq, 4);
    ledger.close().unwrap();
    assert_eq!(kinds(&root), ["lane", "checkpoint", "kernel", "intent", "outcome", "checkpoint"]);
    assert_eq!(verdict(&root), LedgerVerdict::Ok);

    let ledger = Ledger::open(&root, key(), witnessed(dir.path())).unwrap();
    ledger.announce(draft(9)).unwrap();
    ledger.close().unwrap();
    assert_eq!(kinds(&root).len(), 6, "a session in which nothing happened leaves nothing");
}

#[test]
fn f7_the_lane_of_a_killed_writer_continues_and_witnessed_entries_are_signed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("audit");
    for round in 0..5 {
        let ledger = Ledger::open(&root, key(), witnessed(dir.path())).unwrap();
        assert_eq!(ledger.head().lane, LaneId::FIRST);
        ledger.append_unsigned(draft(round)).wait().unwrap();
        let tail = Reader::new(&root).entries().unwrap().map(Result::unwrap).last().unwrap();
        assert!(!tail.proven && !tail.refused, "not signed yet");
        drop(ledger);
        assert_eq!(verdict(&root), LedgerVerdict::Unproven { lanes: vec![LaneId::FIRST] });
    }
    Ledger::open(&root, key(), witnessed(dir.path())).unwrap().close().unwrap();
    assert_eq!(verdict(&root), LedgerVerdict::Ok);
    assert!(!kinds(&root).contains(&"resume"), "the witness vouches for all of them");
    assert!(read::entries(&root).all(|entry| entry.unwrap().proven));
}

#[test]
fn h7_unvouched_entries_are_marked_and_prove_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("audit");
    let ledger = Ledger::open(&root, key(), witnessed(dir.path())).unwrap();
    append(&ledger, 0..2);
    let witness = fs::read(dir.path().join("witness")).unwrap();
    ledger.append_unsigned(draft(2)).wait().unwrap();
    drop(ledger);
    // Simulates a forged last entry: it links, but the witness doesn't know it.
    fs::write(dir.path().join("witness"), witness).unwrap();
    let ledger = Ledger::open(&root, key(), witnessed(dir.path())).unwrap();
    append(&ledger, 3..5);
    ledger.close().unwrap();
    let report = verify(&root, &VerifyOptions::default()).unwrap();
    assert_eq!((report.verdict, report.lanes[0].unvouched), (LedgerVerdict::Ok, 1));
    let entries: Vec<Entry> = read::entries(&root).map(Result::unwrap).collect();
    let unproven: Vec<&Entry> = entries.iter().filter(|entry| !entry.proven).collect();
    assert_eq!((unproven.len(), &unproven[0].body["n"]), (1, &json!(2)));
    let reader = Reader::new(&root);
    assert!(matches!(reader.prove(LaneId::FIRST, unproven[0].seq), Err(ReadError::NoEntry { .. })));
    assert!(reader.prove(LaneId::FIRST, unproven[0].seq + 2).is_ok());
    let exported: u64 = ["s0", "s1", "s2"]
        .map(|session| reader.export(session).unwrap().verify(&[key().public()]).unwrap())
        .iter()
        .sum();
    assert_eq!(exported, 4);
    // The `resume` entry itself is part of the chain.
    let path = root.join("lanes/0000/000000000000.jsonl");
    let forged = lane_text(&root).replace("{\"entries\":1,", "{\"entries\":2,");
    fs::write(&path, forged).unwrap();
    broken(verdict(&root));
}

#[test]
fn h7_the_pack_reveals_removed_entries() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("audit");
    let with_payload =
        |number: u64| EntryDraft { payloads: vec![Payload::new(vec![7; 50])], ..draft(number) };
    let ledger = Ledger::open(&root, key(), Options::default()).unwrap();
    for number in 0..3 {
        ledger.append_blocking(with_payload(number)).unwrap();
    }
    drop(ledger);
    let text = lane_text(&root);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    // Without index and witness, a lane that ends in a checkpoint looks complete; only its pack shows the cut.
    fs::write(root.join("lanes/0000/000000000000.jsonl"), lines[..4].concat()).unwrap();
    let report = verify(&root, &VerifyOptions::default()).unwrap();
    assert_eq!(report.verdict, LedgerVerdict::Unproven { lanes: vec![LaneId::FIRST] });
    assert_eq!(report.lanes[0].stray_pack_bytes, 2 * (48 + 50));
    // The next writer takes the bytes for the remains of a crash: it records them and continues in a new segment.
    let ledger = Ledger::open(&root, key(), Options::default()).unwrap();
    assert_eq!(ledger.head().lane, LaneId::FIRST);
    for number in 5..7 {
        ledger.append_blocking(with_payload(number)).unwrap();
    }
    ledger.close().unwrap();
    assert!(lane_text(&root).contains("\"pack_bytes\":294"), "{}", lane_text(&root));
    assert_eq!(verdict(&root), LedgerVerdict::Ok);
    let pack = root.join("lanes/0000/000000000000.pack");
    let longer = [fs::read(&pack).unwrap(), vec![0; 3]].concat();
    fs::write(&pack, longer).unwrap();
    assert!(matches!(broken(verdict(&root)).why, Defect::PackLong { expected: 294, found: 297 }));
}

#[test]
fn reads_and_continues_ledgers_of_format_1() {
    let dir = tempfile::tempdir().unwrap();
    let vector = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/format-1");
    let root = dir.path().join("audit");
    copy_tree(&vector, &root);
    assert_eq!(verdict(&root), LedgerVerdict::Ok);
    let ledger = Ledger::open(&root, key(), Options::default()).unwrap();
    append(&ledger, 50..52);
    ledger.close().unwrap();
    assert_eq!(verdict(&root), LedgerVerdict::Ok);
}
