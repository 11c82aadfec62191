//! Several writers, reused lanes, settled crashes, key rotation.

use std::fs;

use super::*;

fn lane(number: u16) -> LaneId {
    LaneId::new(number).unwrap()
}

fn segment(root: &Path, number: u16) -> std::path::PathBuf {
    let firsts = layout::segments(&storage::Files::new(root), lane(number)).unwrap();
    root.join(layout::segment_path(lane(number), *firsts.last().unwrap()))
}

#[test]
fn adv_103_reuses_free_lanes_and_leaves_held_ones() {
    let dir = tempfile::tempdir().unwrap();
    let one = open(dir.path());
    append(&one, 0..5);
    let two = open(dir.path());
    append(&two, 5..10);
    assert_eq!((one.head().lane, two.head().lane), (lane(0), lane(1)));
    drop(one);
    let three = open(dir.path());
    assert_eq!(three.head().lane, lane(0));
    append(&three, 10..15);
    two.close().unwrap();
    three.close().unwrap();
    assert_eq!(open(dir.path()).head().lane, lane(0));
    assert_eq!(verdict(dir.path()), LedgerVerdict::Ok);
    assert_eq!(numbers(&Reader::new(dir.path())), (0..15).collect::<Vec<_>>());
}

#[test]
fn adv_103_many_processes_open_and_write_concurrently() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for caller in 0..6u64 {
            let root = dir.path().to_owned();
            scope.spawn(move || {
                for round in 0..3 {
                    let ledger = open(&root);
                    append(&ledger, caller * 100 + round * 10..caller * 100 + round * 10 + 10);
                    ledger.close().unwrap();
                }
            });
        }
    });
    assert_eq!(verdict(dir.path()), LedgerVerdict::Ok);
    let mut found = numbers(&Reader::new(dir.path()));
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 180);
}

#[test]
fn adv_103_verify_and_backup_work_while_others_write() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("audit");
    let ledger = open(&root);
    append(&ledger, 0..1);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| append(&ledger, 1..400));
        let mut round = 0;
        while !writer.is_finished() || round < 3 {
            assert_eq!(verdict(&root), LedgerVerdict::Ok);
            let copy = dir.path().join(format!("copy{round}"));
            ledger.backup(&copy).unwrap();
            assert_eq!(verdict(&copy), LedgerVerdict::Ok);
            let again = open(&copy);
            append(&again, 1000..1001);
            again.close().unwrap();
            assert_eq!(verdict(&copy), LedgerVerdict::Ok);
            round += 1;
        }
    });
    assert!(matches!(ledger.backup(&root), Err(ReadError::NotEmpty(_))));
}

/// Tears a lane as a crash would: removes its last checkpoint, and perhaps more.
fn tear(root: &Path, keep: impl FnOnce(&str) -> String) -> String {
    let path = segment(root, 0);
    let text = fs::read_to_string(&path).unwrap();
    let torn = keep(&text);
    fs::write(&path, &torn).unwrap();
    torn
}

#[test]
fn a_torn_tail_is_settled_once_and_verified_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path(), key(), Options::default()).unwrap();
    append(&ledger, 0..5);
    drop(ledger);
    // The last batch loses its checkpoint, and half of another entry follows.
    let torn = tear(dir.path(), |text| {
        let lines: Vec<&str> = text.lines().collect();
        let kept = lines[..lines.len() - 1].join("\n");
        format!("{kept}\n{{\"at\":1000,\"body\":{{\"n\"")
    });
    assert_eq!(verdict(dir.path()), LedgerVerdict::Unproven { lanes: vec![lane(0)] });
    let ledger = open(dir.path());
    assert_eq!(ledger.head().lane, lane(1));
    append(&ledger, 5..6);
    ledger.close().unwrap();
    let report = verify(dir.path(), &VerifyOptions::default()).unwrap();
    assert_eq!(report.verdict, LedgerVerdict::Ok);
    assert!(report.lanes[0].settled && !report.lanes[1].settled);
    assert_eq!(fs::read_to_string(segment(dir.path(), 0)).unwrap(), torn, "never touched");

    let entries: Vec<Entry> = read::entries(dir.path()).map(Result::unwrap).collect();
    let unproven: Vec<_> = entries.iter().filter(|entry| !entry.proven).collect();
    assert_eq!(unproven.len(), 1, "the unacknowledged entry is visible and flagged");
    assert_eq!(unproven[0].body["n"], 4);
    let recovery = entries.iter().find(|entry| entry.kind == EntryKind::Recovery).unwrap();
    assert_eq!((recovery.lane, recovery.seq), (lane(1), 1));
    assert_eq!(recovery.body["entries"], 1);
    assert_eq!(recovery.body["torn_bytes"], 22);

    assert_eq!(open(dir.path()).head().lane, lane(1), "settled once is enough");
    for change in [torn.replace("1000", "1001"), torn[..torn.len() - 1].to_owned(), format!("{torn}:")] {
        fs::write(segment(dir.path(), 0), change).unwrap();
        assert_eq!(broken(verdict(dir.path())).why, Defect::SettledTail);
        let opened = Ledger::open(dir.path(), key(), small_segments());
        assert!(matches!(opened, Err(OpenError::Broken(_))));
    }
}

#[test]
fn only_crash_damage_counts_as_a_crash() {
    let zeros = "\0".repeat(5000);
    let cases: &[(&str, bool)] = &[
        ("{\"at\":10", true),
        ("{\"at\":10,\"body\":{\"a\":\"é", true),
        ("", true),
        (&zeros, true),
        ("{\"at\":010", false),
        ("garbage", false),
        ("{\"at\":10}\n", false),
        ("\n", false),
        (" ", false),
        ("\0x", false),
    ];
    for (tail, explained) in cases {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path(), key(), Options::default()).unwrap();
        append(&ledger, 0..3);
        drop(ledger);
        tear(dir.path(), |text| format!("{text}{tail}"));
        match Ledger::open(dir.path(), key(), Options::default()) {
            Ok(ledger) => {
                assert!(explained, "{tail:?}");
                append(&ledger, 3..4);
                ledger.close().unwrap();
                assert_eq!(verdict(dir.path()), LedgerVerdict::Ok, "{tail:?}");
            }
            Err(OpenError::Broken(found)) => assert!(!explained, "{tail:?}: {found}"),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn adv_092_verify_follows_a_key_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let new_key = LedgerKey::from_seed(&[2; 32]);
    let ledger = open(dir.path());
    append(&ledger, 0..20);
    let busy = open(dir.path());
    assert_eq!(ledger.rotate_key(new_key.clone(), 5), Err(AppendError::Busy));
    append(&busy, 50..51);
    busy.close().unwrap();
    ledger.rotate_key(new_key.clone(), 5).unwrap();
    append(&ledger, 20..40);
    ledger.close().unwrap();
    assert_eq!(verdict(dir.path()), LedgerVerdict::Ok);
    let trusting = |key: &LedgerKey| VerifyOptions { keys: vec![key.public()], ..VerifyOptions::default() };
    assert_eq!(verify(dir.path(), &trusting(&new_key)).unwrap().verdict, LedgerVerdict::Ok);
    assert!(matches!(broken(verify(dir.path(), &trusting(&key())).unwrap().verdict).why, Defect::Index(_)));
    assert!(matches!(Ledger::open(dir.path(), key(), small_segments()), Err(OpenError::WrongKey)));
    let again = Ledger::open(dir.path(), new_key, small_segments()).unwrap();
    append(&again, 40..50);
    again.close().unwrap();
    assert_eq!(verdict(dir.path()), LedgerVerdict::Ok);
}

#[test]
fn adv_092_another_key_cannot_open_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 3);
    let other = LedgerKey::generate().unwrap();
    assert!(matches!(Ledger::open(dir.path(), other, Options::default()), Err(OpenError::WrongKey)));
    assert_eq!(verdict(dir.path()), LedgerVerdict::Ok);
}

#[test]
fn adv_102_a_folder_that_cannot_be_written_is_a_typed_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(Ledger::open(&file.join("x"), key(), Options::default()), Err(OpenError::Io(_))));
    assert!(matches!(
        verify(&dir.path().join("none"), &VerifyOptions::default()),
        Err(VerifyError::NoLedger)
    ));
}

#[test]
fn b2_rejects_a_linked_folder_of_the_ledger() {
    for (place, to) in [("lanes", "elsewhere"), ("lanes/0000", "elsewhere/0000")] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("audit");
        let ledger = Ledger::open(&root, key(), Options::default()).unwrap();
        append(&ledger, 0..2);
        ledger.close().unwrap();
        std::fs::create_dir_all(dir.path().join("elsewhere")).unwrap();
        let to = dir.path().join(to);
        drop(std::fs::remove_dir(&to));
        std::fs::rename(root.join(place), &to).unwrap();
        std::os::unix::fs::symlink(&to, root.join(place)).unwrap();
        let refused = Ledger::open(&root, key(), Options::default()).map(drop).unwrap_err();
        assert!(refused.to_string().contains("link") || matches!(refused, OpenError::Io(_)), "{refused}");
    }
    // The clone contains the link, and there is no ledger yet.
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("audit/lanes")).unwrap();
    std::fs::create_dir_all(dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), dir.path().join("audit/lanes/0000")).unwrap();
    let opened = Ledger::open(&dir.path().join("audit"), key(), Options::default()).map(drop);
    assert!(opened.is_err(), "{opened:?}");
    assert_eq!(std::fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
}
