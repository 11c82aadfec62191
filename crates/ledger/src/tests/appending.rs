//! Appending drafts, alone and concurrently, and reading them back.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

#[test]
fn appended_entries_read_back_in_order_and_verify() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 100);
    assert_eq!(numbers(&Reader::new(dir.path())), (0..100).collect::<Vec<_>>());
    let report = verify(dir.path(), &VerifyOptions::default()).unwrap();
    assert_eq!(report.verdict, LedgerVerdict::Ok);
    assert_eq!(report.entries, 2 + 200, "every batch of one has its checkpoint");
    assert!(read::entries(dir.path()).all(|entry| entry.unwrap().proven));
}

#[test]
fn receipts_name_the_entry_and_its_hash() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let receipt = ledger.append_blocking(draft(7)).unwrap();
    let entry = Reader::new(dir.path()).get(receipt.lane, receipt.seq).unwrap().unwrap();
    assert_eq!((entry.hash, entry.kind, entry.at_ms), (receipt.hash, EntryKind::Intent, 1_000_007));
    assert_eq!(ledger.head().size, receipt.seq + 2);
    assert_eq!(Reader::new(dir.path()).get(receipt.lane, 999).unwrap(), None);
}

#[test]
fn many_callers_share_batches_and_each_gets_its_own_receipt() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    let receipts: Vec<Receipt> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..8u64)
            .map(|caller| {
                let ledger = ledger.clone();
                scope.spawn(move || {
                    let drafts = (0..50).map(|i| draft(caller * 1000 + i));
                    if caller % 2 == 0 {
                        return drafts
                            .map(|draft| ledger.append_blocking(draft).unwrap())
                            .collect::<Vec<_>>();
                    }
                    let waiting: Vec<Appending> = drafts.map(|draft| ledger.append(draft)).collect();
                    waiting.into_iter().map(|appending| appending.wait().unwrap()).collect()
                })
            })
            .collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    });
    let mut places: Vec<u64> = receipts.iter().map(|receipt| receipt.seq).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 400);
    ledger.close().unwrap();
    assert_eq!(verdict(dir.path()), LedgerVerdict::Ok);
    let reader = Reader::new(dir.path());
    let mut found = numbers(&reader);
    for caller in 0..8u64 {
        let own: Vec<u64> = found.iter().copied().filter(|n| n / 1000 == caller).collect();
        assert_eq!(own, (caller * 1000..caller * 1000 + 50).collect::<Vec<_>>(), "a caller's order is kept");
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 400);
}

#[test]
fn in_memory_appends_resolve_immediately_and_verify() {
    let ledger = Ledger::in_memory(key());
    for number in 0..3000 {
        let mut appending = pin!(ledger.append(draft(number)));
        let polled = appending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(_))));
    }
    ledger.close().unwrap();
    let report = verify_on(ledger.storage(), &VerifyOptions::default()).unwrap();
    assert_eq!(report.verdict, LedgerVerdict::Ok);
    assert_eq!(numbers(&Reader::on(ledger.storage())).len(), 3000);
}

#[test]
fn the_tail_is_read_from_the_end() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 60);
    let reader = Reader::new(dir.path());
    let last = |count| -> Vec<u64> {
        reader.tail(count).unwrap().iter().map(|entry| entry.body["n"].as_u64().unwrap()).collect()
    };
    assert_eq!(last(5), [55, 56, 57, 58, 59]);
    assert_eq!(last(1000).len(), 60);
    assert!(last(0).is_empty());
}

#[test]
fn rejects_invalid_drafts_without_side_effects() {
    let ledger = Ledger::in_memory(key());
    let text = CanonicalJson::encode("text").unwrap();
    let long = CanonicalJson::encode(&json!({"t": "x".repeat(BODY_BYTES_MAX)})).unwrap();
    type Expected = fn(&AppendError) -> bool;
    let cases: Vec<(EntryDraft, Expected)> = vec![
        (EntryDraft { kind: EntryKind::Checkpoint, ..draft(0) }, |e| matches!(e, AppendError::Reserved(_))),
        (EntryDraft { kind: EntryKind::Lane, ..draft(0) }, |e| matches!(e, AppendError::Reserved(_))),
        (EntryDraft { body: text, ..draft(0) }, |e| matches!(e, AppendError::NotAnObject)),
        (EntryDraft { body: long, ..draft(0) }, |e| matches!(e, AppendError::TooLarge { .. })),
        (EntryDraft { at_ms: i64::MAX, ..draft(0) }, |e| matches!(e, AppendError::Time(_))),
    ];
    for (draft, expected) in cases {
        let error = ledger.append_blocking(draft).unwrap_err();
        assert!(expected(&error), "{error}");
    }
    assert!(ledger.append_blocking(draft(1)).is_ok());
    ledger.close().unwrap();
    assert_eq!(ledger.append_blocking(draft(2)), Err(AppendError::Closed));
}

#[test]
fn adv_095_order_is_by_position_and_clock_steps_back_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    for (number, at_ms) in [(0, 5000), (1, -5000), (2, AT_MS_MAX), (3, 6000)] {
        ledger.append_blocking(EntryDraft { at_ms, ..draft(number) }).unwrap();
    }
    ledger.close().unwrap();
    assert_eq!(numbers(&Reader::new(dir.path())), [0, 1, 2, 3]);
    let report = verify(dir.path(), &VerifyOptions::default()).unwrap();
    assert_eq!((report.verdict, report.lanes[0].clock_steps_back), (LedgerVerdict::Ok, 2));
}

#[test]
fn handles_and_futures_are_send_and_sync() {
    fn anywhere<T: Send + Sync + 'static>() {}
    fn sendable<T: Send + 'static>() {}
    anywhere::<Ledger>();
    sendable::<Appending>();
}

#[test]
fn dropping_the_future_does_not_cancel_the_draft() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path());
    (0..10).for_each(|number| drop(ledger.append(draft(number))));
    ledger.close().unwrap();
    assert_eq!(numbers(&Reader::new(dir.path())).len(), 10);
}
