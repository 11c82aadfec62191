//! Payloads: stored, encrypted, erased, removed by age, and verified.

use std::fs;

use super::*;

fn with_payload(number: u64, bytes: &[u8]) -> (EntryDraft, Digest) {
    let payload = Payload::new(bytes.to_vec());
    let digest = payload.digest();
    let body = json!({"args": payload.reference(), "n": number});
    (
        EntryDraft { body: CanonicalJson::encode(&body).unwrap(), payloads: vec![payload], ..draft(number) },
        digest,
    )
}

fn pack(root: &Path) -> std::path::PathBuf {
    let mut packs: Vec<_> =
        fs::read_dir(root.join("lanes/0000")).unwrap().map(|entry| entry.unwrap().path()).collect();
    packs.retain(|path| path.extension().is_some_and(|extension| extension == "pack"));
    packs.sort();
    packs.remove(0)
}

#[test]
fn payloads_read_back_plain_and_encrypted_before_and_after_reopening() {
    for payload_key in [None, Some(PayloadKey::new([9; 32]))] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { payload_key: payload_key.clone(), ..small_segments() };
        let open = || Ledger::open(dir.path(), key(), options.clone()).unwrap();
        let ledger = open();
        let mut digests = Vec::new();
        for number in 0..20u64 {
            let (draft, digest) = with_payload(number, format!("payload {number}").as_bytes());
            ledger.append_blocking(draft).unwrap();
            digests.push(digest);
            assert!(ledger.payload(&digest).unwrap().is_some());
        }
        ledger.close().unwrap();
        let ledger = open();
        for (number, digest) in digests.iter().enumerate() {
            assert_eq!(ledger.payload(digest).unwrap().unwrap(), format!("payload {number}").as_bytes());
        }
        assert_eq!(ledger.payload(&Digest::compute(b"never")).unwrap(), None);
        let report = verify(dir.path(), &VerifyOptions::default()).unwrap();
        assert_eq!((report.verdict, report.payloads), (LedgerVerdict::Ok, 20));
        let on_disk = fs::read(pack(dir.path())).unwrap();
        let readable = on_disk.windows(9).any(|window| window == b"payload 0");
        assert_eq!(readable, payload_key.is_none());
    }
}

#[test]
fn adv_094_an_erased_payload_is_gone_and_the_ledger_still_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let (draft_one, secret) = with_payload(1, b"a person's address");
    let (draft_two, other) = with_payload(2, b"something else");
    let (again, _) = with_payload(3, b"a person's address");
    for draft in [draft_one, draft_two, again] {
        ledger.append_blocking(draft).unwrap();
    }
    assert_eq!(
        ledger.erase(&secret, "asked for", 2_000_000).unwrap(),
        Erasure { records: 2, erased_before: 0 }
    );
    let size = ledger.head().size;
    assert_eq!(
        ledger.erase(&secret, "asked for", 2_000_000).unwrap(),
        Erasure { records: 0, erased_before: 2 }
    );
    assert_eq!(ledger.head().size, size, "what is gone already isn't recorded again");
    assert_eq!(ledger.payload(&secret).unwrap(), None);
    assert!(ledger.payload(&other).unwrap().is_some());
    ledger.close().unwrap();
    let bytes = fs::read(pack(dir.path())).unwrap();
    assert!(!bytes.windows(6).any(|window| window == b"person"), "no byte of it is left");
    let report = verify(dir.path(), &VerifyOptions::default()).unwrap();
    assert_eq!(report.verdict, LedgerVerdict::Ok);
    assert_eq!((report.payloads, report.erased, report.erase_pending), (1, 2, 0));
}

#[test]
fn detects_unrecorded_erasure_and_every_other_change_to_a_pack() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let (draft, _) = with_payload(1, b"evidence");
    ledger.append_blocking(draft).unwrap();
    ledger.close().unwrap();
    let path = pack(dir.path());
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, bad).unwrap();
        assert!(matches!(broken(verdict(dir.path())).why, Defect::Payload { .. }), "byte {at}");
    }
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    assert!(matches!(broken(verdict(dir.path())).why, Defect::PackShort { .. }));
    fs::remove_file(&path).unwrap();
    assert!(matches!(broken(verdict(dir.path())).why, Defect::PackShort { found: 0, .. }));
}

#[test]
fn f7_finds_a_payload_beside_its_entry_without_reading_other_packs() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let mut stored = Vec::new();
    for number in 0..30 {
        let (draft, digest) = with_payload(number, format!("payload {number}").as_bytes());
        let receipt = ledger.append_blocking(draft).unwrap();
        stored.push(((receipt.lane, receipt.seq), digest));
    }
    ledger.close().unwrap();
    let reader = Reader::new(dir.path());
    let (first, last) = (stored[0], stored[29]);
    let found = |(entry, digest): (_, Digest)| reader.payload_of(entry, &digest, None).unwrap();
    assert_eq!(found(first).unwrap(), b"payload 0");
    let looked_at = reader.packs.lock().unwrap().scanned.len();
    assert_eq!(looked_at, 1);
    // It isn't beside the other entry, so all packs are scanned.
    assert_eq!(found((first.0, last.1)).unwrap(), b"payload 29");
    assert!(reader.packs.lock().unwrap().scanned.len() > 1);
}

#[test]
fn adv_102_a_damaged_payload_is_a_typed_error() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let (draft, digest) = with_payload(1, b"evidence");
    ledger.append_blocking(draft).unwrap();
    let mut bytes = fs::read(pack(dir.path())).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(pack(dir.path()), bytes).unwrap();
    assert!(matches!(ledger.payload(&digest), Err(ReadError::Payload(_))));
}

#[test]
fn retain_removes_old_payloads_and_keeps_entries() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let mut digests = Vec::new();
    for number in 0..30 {
        let (draft, digest) = with_payload(number, format!("payload {number}").as_bytes());
        ledger.append_blocking(draft).unwrap();
        digests.push(digest);
    }
    let dropped = ledger.retain(1_000_015, "older than a month", 3_000_000).unwrap();
    assert!(!dropped.is_empty());
    assert_eq!(ledger.payload(&digests[0]).unwrap(), None);
    assert!(ledger.payload(&digests[29]).unwrap().is_some());
    ledger.close().unwrap();
    let report = verify(dir.path(), &VerifyOptions::default()).unwrap();
    assert_eq!(report.verdict, LedgerVerdict::Ok);
    assert_eq!(numbers(&Reader::new(dir.path())).len(), 30);
}

#[test]
fn f5_payloads_of_one_day_are_not_kept_by_those_of_the_next() {
    const DAY_MS: i64 = 24 * 60 * 60 * 1000;
    let dir = tempfile::tempdir().unwrap();
    let mut digests = Vec::new();
    for day in 0..3 {
        // One lane, far from a full segment.
        let ledger = Ledger::open(dir.path(), key(), Options::default()).unwrap();
        let (draft, digest) = with_payload(day, format!("payload {day}").as_bytes());
        let at_ms = i64::try_from(day).unwrap() * DAY_MS;
        ledger.append_blocking(EntryDraft { at_ms, ..draft }).unwrap();
        ledger.close().unwrap();
        digests.push(digest);
    }
    let ledger = Ledger::open(dir.path(), key(), Options::default()).unwrap();
    assert_eq!(ledger.retain(DAY_MS + 1, "older than a day", 3 * DAY_MS).unwrap().len(), 2);
    let kept: Vec<bool> = digests.iter().map(|digest| ledger.payload(digest).unwrap().is_some()).collect();
    assert_eq!(kept, [false, false, true]);
    ledger.close().unwrap();
    assert_eq!(verify(dir.path(), &VerifyOptions::default()).unwrap().verdict, LedgerVerdict::Ok);
}

#[test]
fn b2_a_fresh_segment_makes_older_payloads_removable() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path(), key(), Options::default()).unwrap();
    let (draft, digest) = with_payload(1, b"old");
    let intent = ledger.append_blocking(draft).unwrap();
    // A writer is active.
    let used = Reader::new(dir.path()).old_packs(2_000_000).unwrap();
    assert_eq!(used.iter().map(|pack| pack.in_use).collect::<Vec<_>>(), [true]);
    assert_eq!(ledger.retain(2_000_000, "old", 2_000_000).unwrap(), []);
    ledger.close().unwrap();
    let foreseen = Reader::new(dir.path()).old_packs(2_000_000).unwrap();
    assert_eq!(foreseen.iter().map(|pack| pack.in_use).collect::<Vec<_>>(), [false]);

    let options = Options { fresh_segment: true, ..Options::default() };
    let ledger = Ledger::open(dir.path(), key(), options).unwrap();
    let (draft, newer) = with_payload(2, b"new");
    ledger.append_blocking(EntryDraft { at_ms: 3_000_000, ..draft }).unwrap();
    assert_eq!(ledger.head().lane, intent.lane, "the lane continues");
    assert_eq!(ledger.retain(2_000_000, "gc.payloads=1s", 3_000_000).unwrap(), foreseen);
    assert_eq!((ledger.payload(&digest).unwrap(), ledger.payload(&newer).unwrap().is_some()), (None, true));
    ledger.close().unwrap();
    let reader = Reader::new(dir.path());
    let gone = reader.gone(intent.lane, intent.seq, &digest).unwrap().unwrap();
    assert_eq!((gone.reason.as_str(), gone.erased), ("gc.payloads=1s", false));
    assert_eq!(reader.gone(intent.lane, intent.seq + 3, &newer).unwrap(), None);
    assert_eq!(verify(dir.path(), &VerifyOptions::default()).unwrap().verdict, LedgerVerdict::Ok);
}

#[test]
fn b2_a_span_shorter_than_a_day_bounds_what_a_segment_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_span_ms: 1000, ..Options::default() };
    let ledger = Ledger::open(dir.path(), key(), options).unwrap();
    for second in 0..3 {
        let (draft, _) = with_payload(second, format!("payload {second}").as_bytes());
        ledger.append_blocking(EntryDraft { at_ms: i64::try_from(second).unwrap() * 1000, ..draft }).unwrap();
    }
    assert_eq!(ledger.retain(1500, "old", 3000).unwrap().len(), 2);
    ledger.close().unwrap();
    assert_eq!(verify(dir.path(), &VerifyOptions::default()).unwrap().verdict, LedgerVerdict::Ok);
}
