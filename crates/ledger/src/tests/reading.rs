//! The cost of reading: segments before a position are not opened, each lane's head is read once, and few lines are parsed.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::storage::{Appender, Existing, Lock, Memory, Stat};

/// A storage that counts reads.
#[derive(Debug, Default)]
struct Counting {
    inner: Memory,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl Storage for Counting {
    fn read(&self, path: &str, from: u64, bytes_max: u64, into: &mut Vec<u8>) -> io::Result<()> {
        self.inner.read(path, from, bytes_max, into)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn stat(&self, path: &str) -> io::Result<Option<Stat>> {
        self.inner.stat(path)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.inner.list(folder)
    }

    fn create_folder(&self, path: &str) -> io::Result<bool> {
        self.inner.create_folder(path)
    }

    fn appender(&self, path: &str, existing: Existing) -> io::Result<Box<dyn Appender>> {
        self.inner.appender(path, existing)
    }

    fn sync_folder(&self, path: &str) -> io::Result<()> {
        self.inner.sync_folder(path)
    }

    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.inner.replace(path, bytes)
    }

    fn overwrite(&self, path: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.overwrite(path, at, bytes)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        if let Some((folder, _)) = path.rsplit_once('/').filter(|_| path.ends_with(".pack")) {
            assert!(
                self.is_locked(&format!("{folder}/lock"))?,
                "{path} is removed while others may take its lane"
            );
        }
        self.inner.remove(path)
    }

    fn lock(&self, path: &str) -> io::Result<Option<Box<dyn Lock>>> {
        self.inner.lock(path)
    }

    fn is_locked(&self, path: &str) -> io::Result<bool> {
        self.inner.is_locked(path)
    }
}

#[test]
fn retain_holds_the_lock_of_the_lane() {
    let storage = Arc::new(Counting::default());
    let open = || Ledger::open_on(storage.clone(), key(), Options::default()).unwrap();
    let (one, two) = (open(), open());
    for ledger in [&one, &two] {
        ledger.append_blocking(EntryDraft { payloads: vec![Payload::new(vec![1; 9])], ..draft(1) }).unwrap();
    }
    two.close().unwrap();
    // The storage checks the lane's lock when its pack is removed.
    assert_eq!(one.retain(i64::MAX, "old", 2_000_000).unwrap().len(), 1);
}

fn counted(storage: &Counting) -> (u64, u64) {
    (storage.reads.swap(0, Ordering::Relaxed), storage.bytes.swap(0, Ordering::Relaxed))
}

#[test]
fn f7_reading_a_lane_from_a_position_skips_earlier_segments() {
    let storage = Arc::new(Counting::default());
    let ledger = Ledger::open_on(storage.clone(), key(), small_segments()).unwrap();
    append(&ledger, 0..200);
    let size = ledger.head().size;
    ledger.close().unwrap();
    let reader = Reader::on(storage.clone());
    assert_eq!(reader.lane(LaneId::FIRST).unwrap().count() as u64, size);
    let (_, all) = counted(&storage);
    let late = reader.lane_since(LaneId::FIRST, size - 4).unwrap().only(&[EntryKind::Intent]);
    assert_eq!(late.map(|entry| entry.unwrap().body["n"].as_u64().unwrap()).collect::<Vec<_>>(), [198, 199]);
    let (reads, bytes) = counted(&storage);
    assert!(reads <= 2 && bytes < all / 10, "{reads} reads, {bytes} of {all} bytes");
}

#[test]
fn f7_reading_every_lane_reads_each_head_once() {
    let storage = Arc::new(Counting::default());
    let ledgers: Vec<Ledger> = (0..30u64)
        .map(|number| {
            let ledger = Ledger::open_on(storage.clone(), key(), Options::default()).unwrap();
            append(&ledger, number..number + 1);
            ledger
        })
        .collect();
    ledgers.iter().for_each(|ledger| ledger.close().unwrap());
    counted(&storage);
    let reader = Reader::on(storage.clone());
    let lanes = reader.lanes().unwrap();
    for lane in &lanes {
        assert_eq!(reader.lane(*lane).unwrap().filter(Result::is_ok).count(), 4);
    }
    let (reads, _) = counted(&storage);
    assert_eq!((lanes.len(), reads), (30, 60), "one head and one segment a lane");
}

#[test]
fn f7_a_search_finds_texts_added_during_the_search() {
    let storage = Arc::new(Memory::default());
    let ledger = Ledger::open_on(storage.clone(), key(), small_segments()).unwrap();
    append(&ledger, 0..100);
    let unsigned = ledger.append_unsigned(draft(41)).wait().unwrap();
    let mut texts = vec!["\"n\":40,".to_owned()];
    let mut found = Vec::new();
    let search = |texts: &mut Vec<String>, found: &mut Vec<(u64, bool)>| {
        Reader::on(storage.clone())
            .search(LaneId::FIRST, texts, |entry, texts| {
                texts.push("\"n\":41,".to_owned());
                found.push((entry.body["n"].as_u64().unwrap(), entry.proven));
            })
            .unwrap();
    };
    search(&mut texts, &mut found);
    assert_eq!(found, [(40, true), (41, true), (41, false)]);
    assert!(Reader::on(storage.clone()).get(LaneId::FIRST, unsigned.seq).unwrap().is_some());
}

#[test]
fn f7_a_search_from_a_position_returns_nothing_before_it() {
    let storage = Arc::new(Memory::default());
    let ledger = Ledger::open_on(storage.clone(), key(), small_segments()).unwrap();
    append(&ledger, 0..100);
    let reader = Reader::on(storage.clone());
    let mut all = Vec::new();
    reader.search(LaneId::FIRST, &mut vec!["\"n\":".to_owned()], |entry, _| all.push(entry.seq)).unwrap();
    assert_eq!(all.len(), 100);
    for since in [0, 1, 40, 77, 1_000_000] {
        let (mut texts, mut found) = (vec!["\"n\":".to_owned()], Vec::new());
        reader.search_since(LaneId::FIRST, since, &mut texts, |entry, _| found.push(entry.seq)).unwrap();
        let expected: Vec<u64> = all.iter().copied().filter(|seq| *seq >= since).collect();
        assert_eq!(found, expected, "since {since}");
    }
}

#[test]
fn f7_a_search_finds_texts_across_two_windows() {
    const TEXT_BYTES: usize = 9;
    const WINDOW_BYTES: usize = 128 << 10;
    let storage = Arc::new(Memory::default());
    let ledger = Ledger::open_on(storage.clone(), key(), Options::default()).unwrap();
    append(&ledger, 0..1_500);
    let mut bytes = Vec::new();
    storage.read(&crate::layout::segment_path(LaneId::FIRST, 0), 0, u64::MAX, &mut bytes).unwrap();
    let ends: Vec<usize> =
        (WINDOW_BYTES..bytes.len() - TEXT_BYTES).step_by(WINDOW_BYTES - TEXT_BYTES).collect();
    assert!(ends.len() > 1, "{} bytes", bytes.len());
    for end in ends {
        let text = str::from_utf8(&bytes[end - 4..end + TEXT_BYTES - 4]).unwrap();
        let (mut texts, mut found) = (vec![text.to_owned()], 0);
        Reader::on(storage.clone()).search(LaneId::FIRST, &mut texts, |_, _| found += 1).unwrap();
        assert!(found > 0, "`{text}` at {end}");
    }
}

#[test]
fn k4_a_cloned_draft_shares_its_payloads() {
    let payload = Payload::new(vec![1; 1000]);
    let kept = EntryDraft { payloads: vec![payload.clone()], ..draft(1) };
    let again = kept.clone();
    assert!(std::ptr::eq(payload.bytes(), again.payloads[0].bytes()), "no byte was copied");
}
