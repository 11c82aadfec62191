//! Tampering: single bit flips of a ledger, and forgeries with an editor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use regent_ledger::storage::{Existing, Memory, Storage};
use regent_ledger::verify::verify_on;
use regent_ledger::{
    Break, CanonicalJson, EntryDraft, EntryKind, Ledger, LedgerKey, LedgerVerdict, Line, Options, Payload,
    VerifyOptions,
};
use serde_json::json;

use super::{Broken, Tally};

const ENTRIES: u64 = 1_000;
const BATCH: u64 = 20;
const WORKERS: usize = 2;
/// Distance between two flips. A prime, so that all bits of a byte and all parts of a line are covered. Each flip runs a complete `verify`.
/// A test of the ledger crate flips every single bit, segment by segment, and `cargo xtask torture` runs that too.
const STRIDE_MANY: usize = 61;
const STRIDE_FEW: usize = 997;
const INDEX: &str = "index";

/// The number of flips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Tens of thousands.
    Many,
    /// Some thousands.
    Few,
}

/// Flips bits, one at a time. Verification must detect each flip and name its position.
pub fn flip(extent: Extent) -> Result<Tally, Broken> {
    let whole = Snapshot::build(&LedgerKey::from_seed(&[3; 32]), ENTRIES)?;
    let stride = match extent {
        Extent::Many => STRIDE_MANY,
        Extent::Few => STRIDE_FEW,
    };
    let bits: Vec<(String, usize)> = whole
        .evidence()
        .flat_map(|(path, bytes)| (0..bytes.len() * 8).map(move |bit| (path.to_owned(), bit)))
        .step_by(stride)
        .collect();
    let next = AtomicUsize::new(0);
    let breaches = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let found = flip_some(&whole, &bits, &next).unwrap_or_else(|broken| vec![broken.to_string()]);
                breaches.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
            });
        }
    });
    let breaches = breaches.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Tally { cases: bits.len() as u64, breaches, ..Tally::default() })
}

/// Flips bits from the list until it is empty. Returns the undetected ones.
fn flip_some(whole: &Snapshot, bits: &[(String, usize)], next: &AtomicUsize) -> Result<Vec<String>, Broken> {
    let storage = whole.storage()?;
    let mut breaches = Vec::new();
    while let Some((path, bit)) = bits.get(next.fetch_add(1, Ordering::Relaxed)) {
        let (at, mask) = (bit / 8, 1_u8 << (bit % 8));
        let Some(byte) = whole.0.get(path).and_then(|bytes| bytes.get(at)).copied() else { continue };
        storage.overwrite(path, at as u64, &[byte ^ mask])?;
        if let Err(why) = found(&storage, Some(&whole.place(path, at))) {
            breaches.push(format!("bit {bit} of `{path}`: {why}"));
        }
        storage.overwrite(path, at as u64, &[byte])?;
    }
    Ok(breaches)
}

/// The position of a change.
#[derive(Debug)]
struct FlipSite {
    path: String,
    line: u64,
}

/// Whether verification reports an error at the right position.
fn found(storage: &Memory, place: Option<&FlipSite>) -> Result<(), String> {
    let report =
        verify_on(Arc::new(storage.clone()), &VerifyOptions::default()).map_err(|error| error.to_string())?;
    match (report.verdict, place) {
        (LedgerVerdict::Broken(_), None) => Ok(()),
        (LedgerVerdict::Broken(found), Some(place)) if names(&found, place) => Ok(()),
        (LedgerVerdict::Broken(found), Some(place)) => {
            Err(format!("found, but named as {found} instead of {place:?}"))
        }
        (other, _) => Err(format!("not found: {other:?}")),
    }
}

/// A link has two ends: a change in one entry may be reported there or at the entry that links to it. If index and lane disagree, the lane
/// may be reported.
fn names(found: &Break, place: &FlipSite) -> bool {
    let is_there = found.file == place.path || (place.path == INDEX && found.why.to_string().contains(INDEX));
    let is_near =
        place.path == INDEX || found.line.is_none_or(|line| line == place.line || line == place.line + 1);
    is_there && is_near
}

/// Forges many entries: verification must detect each forgery, and opening the ledger must fail.
pub fn forge() -> Result<Tally, Broken> {
    let key = LedgerKey::from_seed(&[3; 32]);
    let whole = Snapshot::build(&key, ENTRIES)?;
    let stranger = Snapshot::build(&LedgerKey::from_seed(&[4; 32]), ENTRIES)?;
    let segment = whole.segment().ok_or("a ledger without a segment")?;
    let lines = whole.0.get(&segment).map(|bytes| split(bytes)).ok_or("a segment without lines")?;
    let mut tally = Tally::default();
    let mut check = |what: String, forged: Snapshot| -> Result<(), Broken> {
        tally.cases += 1;
        let storage = Arc::new(forged.storage()?);
        if let Err(why) = found(&storage, None) {
            tally.breaches.push(format!("{what}: {why}"));
        }
        if Ledger::open_on(storage, key.clone(), Options::default()).is_ok() {
            tally.breaches.push(format!("{what}: the ledger opens as if nothing were wrong"));
        }
        Ok(())
    };
    for at in (0..lines.len()).step_by(7) {
        for forgery in FORGERIES {
            let Some(forged) = (forgery.make)(&lines, at) else { continue };
            check(format!("{} at line {}", forgery.name, at + 1), whole.with(&segment, join(&forged)))?;
        }
    }
    // A pack may be removed on purpose, so opening accepts it; verification doesn't, which the flips test.
    for path in whole.0.keys().filter(|path| is_evidence(path) && !path.ends_with(".pack")) {
        check(format!("`{path}` removed"), whole.without(path))?;
    }
    if let Some(bytes) = stranger.0.get(&segment) {
        check("a lane signed by another key".to_owned(), whole.with(&segment, bytes.clone()))?;
    }
    Ok(tally)
}

struct Forgery {
    name: &'static str,
    make: fn(&[LineBytes], usize) -> Option<Vec<LineBytes>>,
}

/// A line of a segment, without its newline.
type LineBytes = Vec<u8>;

const FORGERIES: &[Forgery] = &[
    Forgery {
        name: "an entry deleted",
        make: |lines, at| Some([lines.get(..at)?, lines.get(at + 1..)?].concat()),
    },
    Forgery {
        name: "an entry doubled",
        make: |lines, at| Some([lines.get(..=at)?, lines.get(at..)?].concat()),
    },
    Forgery {
        name: "two entries swapped",
        make: |lines, at| {
            let mut lines = lines.to_vec();
            (at + 1 < lines.len()).then(|| lines.swap(at, at + 1))?;
            Some(lines)
        },
    },
    Forgery { name: "everything after it cut off", make: |lines, at| Some(lines.get(..at)?.to_vec()) },
    Forgery {
        name: "cut off in the middle of it",
        make: |lines, at| {
            let mut lines = lines.get(..=at)?.to_vec();
            let last = lines.last_mut()?;
            last.truncate(last.len() / 2);
            Some(lines)
        },
    },
    Forgery { name: "rewritten, with all links after it, without the key", make: rewrite },
];

/// Changes one entry's time and repairs every later link, as an attacker without the key can.
fn rewrite(lines: &[LineBytes], at: usize) -> Option<Vec<LineBytes>> {
    let mut lines = lines.to_vec();
    let changed = String::from_utf8(lines.get(at)?.clone()).ok()?.replacen("\"at\":1", "\"at\":2", 1);
    let mut was = Line::parse(lines.get(at)?)?.hash().to_string();
    *lines.get_mut(at)? = changed.into_bytes();
    let mut now = Line::parse(lines.get(at)?)?.hash().to_string();
    for line in lines.iter_mut().skip(at + 1) {
        let before = Line::parse(line)?.hash().to_string();
        *line = String::from_utf8(line.clone()).ok()?.replacen(&was, &now, 1).into_bytes();
        was = before;
        now = Line::parse(line)?.hash().to_string();
    }
    Some(lines)
}

fn split(bytes: &[u8]) -> Vec<LineBytes> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

fn join(lines: &[LineBytes]) -> Vec<u8> {
    let mut bytes = lines.join(&b'\n');
    bytes.push(b'\n');
    bytes
}

/// All files of a ledger.
#[derive(Debug, Clone)]
pub struct Snapshot(BTreeMap<String, Vec<u8>>);

impl Snapshot {
    /// A ledger of a few entries.
    pub fn small() -> Result<Self, Broken> {
        Self::build(&LedgerKey::from_seed(&[3; 32]), BATCH)
    }

    /// One of its files with an edit: two bytes for the position, then the replacement. For other paths, the edit is the file.
    pub fn edited(&self, path: &str, edit: &[u8]) -> Vec<u8> {
        let mut bytes = self.file(path).unwrap_or_default().to_vec();
        let [0, high, low, written @ ..] = edit else { return edit.to_vec() };
        let at = usize::from(u16::from_be_bytes([*high, *low])) % bytes.len().max(1);
        bytes.iter_mut().skip(at).zip(written).for_each(|(byte, new)| *byte = *new);
        bytes
    }

    /// One of its files.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        self.0.get(path).map(Vec::as_slice)
    }

    /// A closed ledger with this many entries and some payloads.
    fn build(key: &LedgerKey, entries: u64) -> Result<Self, Broken> {
        let storage = Arc::new(Memory::default());
        let ledger = Ledger::open_on(storage.clone(), key.clone(), Options::default())?;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        for first in (0..entries).step_by(usize::try_from(BATCH)?) {
            let under_way: Vec<_> = (first..first + BATCH)
                .map(|number| Ok(ledger.append(draft(number)?)))
                .collect::<Result<_, Broken>>()?;
            for appending in under_way {
                runtime.block_on(appending)?;
            }
        }
        ledger.close()?;
        let mut files = BTreeMap::new();
        for folder in ["lanes", "lanes/0000"] {
            gather(&storage, folder, &mut files)?;
        }
        for name in [INDEX, "seen"] {
            keep(&storage, name, &mut files)?;
        }
        Ok(Self(files))
    }

    fn evidence(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0
            .iter()
            .filter(|(path, _)| is_evidence(path))
            .map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
    }

    fn segment(&self) -> Option<String> {
        self.0.keys().find(|path| path.ends_with(".jsonl")).cloned()
    }

    fn place(&self, path: &str, at: usize) -> FlipSite {
        let before = self.0.get(path).and_then(|bytes| bytes.get(..at)).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64;
        FlipSite { path: path.to_owned(), line }
    }

    fn with(&self, path: &str, bytes: Vec<u8>) -> Self {
        let mut files = self.0.clone();
        files.insert(path.to_owned(), bytes);
        Self(files)
    }

    fn without(&self, path: &str) -> Self {
        let mut files = self.0.clone();
        files.remove(path);
        Self(files)
    }

    /// The files in a separate storage.
    pub fn storage(&self) -> Result<Memory, Broken> {
        let storage = Memory::default();
        for (path, bytes) in &self.0 {
            let parents = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
            for folder in parents {
                storage.create_folder(folder)?;
            }
            storage.appender(path, Existing::Refused)?.append(bytes)?;
        }
        Ok(storage)
    }
}

/// Whether verification depends on a file. Locks are empty, and the `seen` note is only a cache.
fn is_evidence(path: &str) -> bool {
    path.ends_with(".jsonl") || path.ends_with(".pack") || path == INDEX
}

fn draft(number: u64) -> Result<EntryDraft, Broken> {
    let payload =
        (number.is_multiple_of(100)).then(|| Payload::new(format!("payload {number}").into_bytes()));
    let body = json!({"args": payload.as_ref().map(Payload::reference), "n": number});
    let body = CanonicalJson::encode(&body)?;
    Ok(EntryDraft {
        kind: EntryKind::Intent,
        at_ms: 1_790_000_000_000,
        body,
        payloads: payload.into_iter().collect(),
    })
}

fn gather(storage: &Memory, folder: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<(), Broken> {
    for name in storage.list(folder)? {
        keep(storage, &format!("{folder}/{name}"), files)?;
    }
    Ok(())
}

fn keep(storage: &Memory, path: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<(), Broken> {
    if let Some(stat) = storage.stat(path)? {
        let mut bytes = Vec::new();
        storage.read(path, 0, stat.bytes, &mut bytes)?;
        files.insert(path.to_owned(), bytes);
    }
    Ok(())
}

/// A fuzz target that forges one file of a small ledger.
#[macro_export]
macro_rules! fuzz_ledger_file {
    ($file:literal) => {
        use std::sync::{Arc, LazyLock};

        use regent_ledger::storage::Storage as _;
        use regent_ledger::verify::verify_on;
        use regent_ledger::{LedgerVerdict, Reader, VerifyOptions};
        use regent_testkit::torture::flips::Snapshot;

        static WHOLE: LazyLock<Snapshot> = LazyLock::new(|| Snapshot::small().expect("a ledger"));

        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
            let storage = Arc::new(WHOLE.storage().expect("its files"));
            let bytes = WHOLE.edited($file, bytes);
            storage.replace($file, &bytes).expect("memory can be written");
            let is_ok = verify_on(storage.clone(), &VerifyOptions::default())
                .is_ok_and(|report| matches!(report.verdict, LedgerVerdict::Ok));
            assert!(!is_ok || WHOLE.file($file) == Some(&bytes), "a forgery passes");
            if let Ok(entries) = Reader::on(storage).entries() {
                assert!(entries.take(1_000).count() < 1_000, "reading comes to an end");
            }
        });
    };
}
