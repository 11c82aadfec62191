//! What the witness detects: truncation, forks, older copies, other ledgers and removed ledgers; and the two operations that resolve it.

use std::fs;
use std::path::PathBuf;

use super::*;

/// A folder for a ledger with a witness beside it.
struct WitnessFixture {
    dir: tempfile::TempDir,
}

impl WitnessFixture {
    fn new() -> WitnessFixture {
        WitnessFixture { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn options(&self, name: &str) -> Options {
        let witness = Some(self.path("witnesses").join(name));
        Options { witness, opened_at_ms: 77, ..small_segments() }
    }

    fn open(&self, name: &str) -> Result<Ledger, OpenError> {
        Ledger::open(&self.path(name), key(), self.options(name))
    }

    /// A session that ends normally.
    fn session(&self, name: &str, numbers: std::ops::Range<u64>) {
        let ledger = self.open(name).unwrap();
        append(&ledger, numbers);
        ledger.close().unwrap();
    }

    /// A session that is killed: all entries are recorded, but the index isn't updated.
    fn killed_session(&self, name: &str, numbers: std::ops::Range<u64>) {
        append(&self.open(name).unwrap(), numbers);
    }

    fn verdict(&self, name: &str) -> LedgerVerdict {
        let witness = self.options(name).witness;
        verify(&self.path(name), &VerifyOptions { witness, ..VerifyOptions::default() }).unwrap().verdict
    }

    fn first_segment(&self, name: &str, lane: &str) -> PathBuf {
        self.path(name).join(format!("lanes/{lane}/000000000000.jsonl"))
    }

    fn copy(&self, from: &str, to: &str) {
        copy_tree(&self.path(from), &self.path(to));
    }
}

/// Cuts a segment after its checkpoint number `count`.
fn cut_after_checkpoint(path: &Path, count: usize) {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let ends = lines.iter().enumerate().filter(|(_, line)| line.contains("\"kind\":\"checkpoint\""));
    let end = ends.map(|(at, _)| at + 1).nth(count - 1).unwrap();
    assert!(end < lines.len());
    fs::write(path, lines[..end].concat()).unwrap();
}

fn refused(opened: Result<Ledger, OpenError>) -> OpenError {
    match opened {
        Ok(ledger) => panic!("opened lane {}", ledger.head().lane),
        Err(error) => error,
    }
}

#[test]
fn h7_detects_a_truncated_crashed_session_and_seals() {
    let place = WitnessFixture::new();
    place.session("p", 0..1);
    place.killed_session("p", 1..4);
    assert_eq!(place.verdict("p"), LedgerVerdict::Ok);
    // Removes everything after the first checkpoint of the killed session; the index doesn't notice.
    cut_after_checkpoint(&place.first_segment("p", "0000"), 3);
    assert_eq!(verdict(&place.path("p")), LedgerVerdict::Ok, "by itself it is sound");
    let found = broken(place.verdict("p"));
    assert!(matches!(found.why, Defect::Shorter { from: "the witness", .. }), "{found}");
    assert!(found.is_witnessed());
    let cut = fs::read(place.first_segment("p", "0000")).unwrap();
    let OpenError::Broken(again) = refused(place.open("p")) else { panic!("not broken") };
    assert_eq!(again.why, found.why);
    assert_eq!(fs::read(place.first_segment("p", "0000")).unwrap(), cut, "nothing was touched");
}

#[test]
fn h7_detects_a_removed_last_checkpoint() {
    let place = WitnessFixture::new();
    place.killed_session("p", 0..3);
    let path = place.first_segment("p", "0000");
    let text = fs::read_to_string(&path).unwrap();
    let end = text.trim_end().rfind('\n').unwrap() + 1;
    fs::write(&path, &text[..end]).unwrap();
    assert!(matches!(broken(place.verdict("p")).why, Defect::Shorter { from: "the witness", .. }));
    assert!(refused(place.open("p")).is_witnessed());
}

#[test]
fn h7_detects_a_fork_that_replaced_the_history() {
    for moved in [false, true] {
        let place = WitnessFixture::new();
        place.session("p", 0..20);
        place.copy("p", "q");
        place.session("p", 20..21);
        place.session("q", 30..32);
        place.session("q", 32..33);
        fs::remove_dir_all(place.path("p")).unwrap();
        if moved {
            // The fork's own files, with the times and inodes that its `seen` note records.
            fs::rename(place.path("q"), place.path("p")).unwrap();
        } else {
            place.copy("q", "p");
        }
        assert_eq!(verdict(&place.path("p")), LedgerVerdict::Ok, "by itself it is sound");
        let found = broken(place.verdict("p"));
        assert!(matches!(found.why, Defect::Root { from: "the witness", .. }), "{found}");
        assert!(refused(place.open("p")).is_witnessed());
    }
}

#[test]
fn h7_accepts_and_remembers_a_copy_that_only_grew() {
    let place = WitnessFixture::new();
    place.session("p", 0..5);
    place.copy("p", "q");
    place.session("q", 5..9);
    fs::remove_dir_all(place.path("p")).unwrap();
    fs::rename(place.path("q"), place.path("p")).unwrap();
    place.session("p", 9..10);
    assert_eq!(place.verdict("p"), LedgerVerdict::Ok);
}

#[test]
fn h7_a_lane_that_only_the_witness_knows_cannot_vanish() {
    let place = WitnessFixture::new();
    let one = place.open("p").unwrap();
    append(&one, 0..2);
    let witness = place.options("p").witness.unwrap();
    let before = (fs::read(place.path("p/index")).unwrap(), Witnessed::read(&witness).unwrap().unwrap());
    let two = place.open("p").unwrap();
    append(&two, 2..4);
    drop((one, two));
    // Restores the index from before the second lane, with its version, and removes that lane: only the witness's heads know it.
    fs::write(place.path("p/index"), &before.0).unwrap();
    let now = Witnessed::read(&witness).unwrap().unwrap();
    Witnessed { counter: before.1.counter, ..now }.store(&witness).unwrap();
    fs::remove_dir_all(place.path("p/lanes/0001")).unwrap();
    let found = broken(place.verdict("p"));
    assert!(matches!(found.why, Defect::LaneGone { .. }), "{found}");
    assert!(matches!(refused(place.open("p")), OpenError::Broken(_)));
}

#[test]
fn h7_a_lagging_witness_is_accepted_and_catches_up() {
    let place = WitnessFixture::new();
    place.session("p", 0..3);
    let witness = place.options("p").witness.unwrap();
    let old = fs::read(&witness).unwrap();
    place.session("p", 3..6);
    fs::write(&witness, old).unwrap();
    assert_eq!(place.verdict("p"), LedgerVerdict::Ok);
    place.open("p").unwrap().close().unwrap();
    let remembered = Witnessed::read(&witness).unwrap().unwrap();
    let report = verify(&place.path("p"), &VerifyOptions::default()).unwrap();
    assert_eq!(remembered.lanes[&LaneId::FIRST].size, report.lanes[0].entries);
    assert_eq!(remembered.lanes[&LaneId::FIRST].root, report.lanes[0].root);
}

#[test]
fn h7_an_unreadable_witness_refuses() {
    let place = WitnessFixture::new();
    place.session("p", 0..3);
    let witness = place.options("p").witness.unwrap();
    fs::write(&witness, "").unwrap();
    assert!(matches!(refused(place.open("p")), OpenError::Io(_)));
    let options = VerifyOptions { witness: Some(witness), ..VerifyOptions::default() };
    assert!(matches!(verify(&place.path("p"), &options), Err(VerifyError::Io(_))));
}

#[test]
fn l10_verify_reports_a_removed_ledger_that_the_witness_knows() {
    let place = WitnessFixture::new();
    place.session("p", 0..3);
    fs::remove_dir_all(place.path("p")).unwrap();
    assert!(matches!(broken(place.verdict("p")).why, Defect::Gone { entries: 8, .. }));
    assert!(matches!(verify(&place.path("p"), &VerifyOptions::default()), Err(VerifyError::NoLedger)));
}

#[test]
fn f1_distinguishes_gone_older_and_other_ledgers() {
    let place = WitnessFixture::new();
    place.session("p", 0..3);
    Reader::new(&place.path("p")).backup(&place.path("backup")).unwrap();
    place.session("p", 3..6);
    place.session("other", 0..9);

    fs::remove_dir_all(place.path("p")).unwrap();
    assert!(matches!(refused(place.open("p")), OpenError::Gone { entries: 14, .. }));
    assert!(!place.path("p").exists(), "nothing was touched");
    place.copy("backup", "p");
    assert!(matches!(refused(place.open("p")), OpenError::Older { .. }));
    fs::remove_dir_all(place.path("p")).unwrap();
    place.copy("other", "p");
    assert!(matches!(refused(place.open("p")), OpenError::Another { .. }));
    assert!(matches!(broken(place.verdict("p")).why, Defect::AnotherLedger { .. }));
}

fn first_body(root: &Path, lane: u16) -> serde_json::Value {
    Reader::new(root).get(LaneId::new(lane).unwrap(), 0).unwrap().unwrap().body
}

#[test]
fn f1_begin_anew_records_what_it_replaces() {
    let place = WitnessFixture::new();
    place.session("p", 0..3);
    let before = Witnessed::read(&place.options("p").witness.unwrap()).unwrap().unwrap();
    for gone in [true, false] {
        if gone {
            fs::remove_dir_all(place.path("p")).unwrap();
        }
        let known = Witnessed::read(&place.options("p").witness.unwrap()).unwrap().unwrap();
        let begun = Ledger::begin_anew(&place.path("p"), key(), place.options("p"), "git clean").unwrap();
        assert_eq!(begun.aside.is_none(), gone, "what was there is kept");
        append(&begun.ledger, 50..52);
        begun.ledger.close().unwrap();
        assert_eq!(place.verdict("p"), LedgerVerdict::Ok);
        let replaces = &first_body(&place.path("p"), 0)["replaces"];
        assert_eq!(replaces["how"], "begun_anew");
        assert_eq!(replaces["reason"], "git clean");
        assert_eq!(
            (&replaces["ledger"], &replaces["counter"]),
            (&json!(known.ledger), &json!(known.counter))
        );
        assert_eq!(replaces["lanes"][0]["root"], json!(known.lanes[&LaneId::FIRST].root));
        let now = Witnessed::read(&place.options("p").witness.unwrap()).unwrap().unwrap();
        assert!(now.ledger != known.ledger && now.counter > known.counter);
        place.session("p", 52..54);
        assert_eq!(place.verdict("p"), LedgerVerdict::Ok);
    }
    assert_eq!(before.lanes.len(), 1);
}

#[test]
fn f1_restore_records_what_is_lost() {
    for in_place in [false, true] {
        let place = WitnessFixture::new();
        place.session("p", 0..3);
        Reader::new(&place.path("p")).backup(&place.path("backup")).unwrap();
        place.session("p", 3..6);
        let known = Witnessed::read(&place.options("p").witness.unwrap()).unwrap().unwrap();
        if in_place {
            fs::remove_dir_all(place.path("p")).unwrap();
            place.copy("backup", "p");
        }
        let backup = place.path("backup");
        let from = Some(backup.as_path()).filter(|_| !in_place);
        let restored =
            Ledger::restore(&place.path("p"), from, key(), place.options("p"), "disk died").unwrap();
        assert_eq!(restored.aside.is_some(), !in_place);
        assert_eq!(
            restored.ledger.head().lane,
            LaneId::new(1).unwrap(),
            "the lane that lost entries is closed"
        );
        append(&restored.ledger, 10..12);
        restored.ledger.close().unwrap();
        assert_eq!(place.verdict("p"), LedgerVerdict::Ok);
        let replaces = &first_body(&place.path("p"), 1)["replaces"];
        assert_eq!((&replaces["how"], &replaces["counter"]), (&json!("restored"), &json!(known.counter)));
        assert_eq!(replaces["lanes"][0]["entries"], json!(known.lanes[&LaneId::FIRST].size));
        assert_eq!(replaces["lanes"][0]["found"], 8);
        assert_eq!(numbers(&Reader::new(&place.path("p"))), [0, 1, 2, 10, 11]);
        place.session("p", 12..13);
        let again = place.open("p").unwrap();
        assert_eq!(again.head().lane, LaneId::new(1).unwrap(), "and stays closed");
    }
}

#[test]
fn f1_restore_rejects_invalid_backups_and_ledgers_in_use() {
    let place = WitnessFixture::new();
    place.session("p", 0..3);
    place.session("spoilt", 0..3);
    let path = place.first_segment("spoilt", "0000");
    fs::write(&path, fs::read_to_string(&path).unwrap().replacen("\"n\":1", "\"n\":2", 1)).unwrap();
    let restore = |from: &str| {
        Ledger::restore(&place.path("p"), Some(&place.path(from)), key(), place.options("p"), "").unwrap_err()
    };
    assert!(matches!(restore("spoilt"), OpenError::Broken(_)));
    assert!(matches!(restore("none"), OpenError::Io(_)));
    let busy = place.open("p").unwrap();
    let anew = Ledger::begin_anew(&place.path("p"), key(), place.options("p"), "");
    assert!(matches!(anew, Err(OpenError::Busy)));
    busy.close().unwrap();
    assert_eq!(place.verdict("p"), LedgerVerdict::Ok);
}

#[test]
fn f3_a_ledger_removed_or_moved_during_writing_acknowledges_nothing() {
    for moved in [false, true] {
        let place = WitnessFixture::new();
        let ledger = place.open("p").unwrap();
        append(&ledger, 0..2);
        if moved {
            fs::rename(place.path("p"), place.path("elsewhere")).unwrap();
        } else {
            fs::remove_dir_all(place.path("p")).unwrap();
        }
        let error = ledger.append_blocking(draft(2)).unwrap_err();
        assert!(matches!(&error, AppendError::Io(why) if why.contains("removed or moved")), "{error}");
        assert!(matches!(ledger.append_blocking(draft(3)), Err(AppendError::Sealed(_))));
        assert!(ledger.close().is_err());
    }
}

fn with_payload(number: u64) -> EntryDraft {
    EntryDraft { payloads: vec![Payload::new(vec![b'x'; 300])], ..draft(number) }
}

#[test]
fn f4_a_truncated_or_missing_pack_seals_the_ledger() {
    for cut in [Some(1), Some(300), None] {
        // With and without another session before the pack is damaged: both cases are detected.
        for sessions in [1, 2] {
            let place = WitnessFixture::new();
            let options = Options { segment_bytes_max: 2000, ..place.options("p") };
            for session in 0..sessions {
                let ledger = Ledger::open(&place.path("p"), key(), options.clone()).unwrap();
                (0..8).for_each(|number| drop(ledger.append_blocking(with_payload(session * 8 + number))));
                ledger.close().unwrap();
            }
            let pack = place.path("p/lanes/0000/000000000000.pack");
            let bytes = fs::read(&pack).unwrap();
            match cut {
                Some(cut) => fs::write(&pack, &bytes[..bytes.len() - cut]).unwrap(),
                None => fs::remove_file(&pack).unwrap(),
            }
            let OpenError::Broken(found) = refused(Ledger::open(&place.path("p"), key(), options)) else {
                panic!("not broken")
            };
            assert!(matches!(found.why, Defect::PackShort { .. }), "{found}");
            assert!(matches!(broken(place.verdict("p")).why, Defect::PackShort { .. }));
        }
    }
}

#[test]
fn f4_a_ledger_opens_without_packs_that_were_removed_on_purpose() {
    let place = WitnessFixture::new();
    let options = Options { segment_bytes_max: 2000, ..place.options("p") };
    let open = || Ledger::open(&place.path("p"), key(), options.clone()).unwrap();
    let ledger = open();
    (0..20).for_each(|number| drop(ledger.append_blocking(with_payload(number))));
    assert!(!ledger.retain(1_000_010, "old", 2_000_000).unwrap().is_empty());
    ledger.close().unwrap();
    for _ in 0..3 {
        open().close().unwrap();
    }
    assert_eq!(place.verdict("p"), LedgerVerdict::Ok);
}
