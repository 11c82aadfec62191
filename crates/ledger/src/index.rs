//! The signed index of lanes: it reveals a lane that was removed entirely.
//!
//! The index is a signed note: its origin, a counter that only grows, one line per retired key, and one line per lane with its last known
//! tree head. The index may lag behind the lanes; it is never ahead of them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::digest::hex_string;
use crate::layout::{INDEX, INDEX_LOCK};
use crate::note::{NOTE_BYTES_MAX, Note, NoteError, read_decimal};
use crate::storage::{Lock, Storage, read_all};
use crate::why::{Break, Defect};
use crate::witness::Witnessed;
use crate::{Digest, LaneId, LedgerKey, PublicKey};

/// How often a caller that needs the lock tries to take it.
pub(crate) const PATIENT_TRIES: u32 = 400;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The last known state of one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// The key that the lane started with.
    pub(crate) key: PublicKey,
    /// Entries under the root.
    pub(crate) size: u64,
    pub(crate) root: Digest,
}

/// Every lane of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    /// Random name of the ledger.
    pub(crate) ledger: String,
    pub(crate) counter: u64,
    /// Keys that no longer sign.
    pub(crate) retired: Vec<PublicKey>,
    pub(crate) lanes: BTreeMap<LaneId, Anchor>,
}

/// Why the index can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IndexError {
    #[error("another process has locked the index")]
    Busy,
    #[error("{0}")]
    Broken(Box<Break>),
    #[error("the index is signed by another key")]
    WrongKey,
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub(crate) fn index_break(why: Defect) -> Break {
    Break { lane: None, seq: None, file: INDEX.to_owned(), line: None, why }
}

fn unusable(error: &impl ToString) -> IndexError {
    IndexError::Broken(Box::new(index_break(Defect::Index(error.to_string()))))
}

impl Index {
    /// A ledger with a new name and no lanes.
    pub(crate) fn new() -> io::Result<Index> {
        let mut name = [0u8; 8];
        getrandom::fill(&mut name).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Index::named(hex_string(&name)))
    }

    /// A ledger with this name (16 hex digits) and no lanes.
    pub(crate) fn named(ledger: String) -> Index {
        Index { ledger, counter: 0, retired: Vec::new(), lanes: BTreeMap::new() }
    }

    fn origin(ledger: &str) -> String {
        format!("regent/{ledger}/index")
    }

    /// Reads the index without verifying its signer.
    pub(crate) fn read(storage: &dyn Storage) -> Result<Option<(Index, Note)>, IndexError> {
        let Some(bytes) = read_all(storage, INDEX, NOTE_BYTES_MAX as u64)? else { return Ok(None) };
        let text = std::str::from_utf8(&bytes).map_err(|error| unusable(&error))?;
        let note = Note::parse(text).map_err(|error| unusable(&error))?;
        let index = Index::parse(note.unverified_text())
            .ok_or_else(|| unusable(&NoteError::Malformed("not an index")))?;
        // Lanes are verified under the ledger name that the index states, so a wrong name must be detected here.
        if !note.has_signature_of(&Index::origin(&index.ledger)) {
            return Err(unusable(&NoteError::Malformed("not signed under its own name")));
        }
        Ok(Some((index, note)))
    }

    /// Reads the index and requires a signature by one of these keys.
    pub(crate) fn load(
        storage: &dyn Storage,
        keys: &[PublicKey],
    ) -> Result<Option<(Index, PublicKey)>, IndexError> {
        let Some((index, note)) = Index::read(storage)? else { return Ok(None) };
        match index.signer(&note, keys) {
            Ok(signer) => Ok(Some((index, signer))),
            Err(NoteError::Unsigned) => Err(IndexError::WrongKey),
            Err(error @ (NoteError::BadSignature | NoteError::Malformed(_))) => Err(unusable(&error)),
        }
    }

    /// Which of these keys signed the note of this index.
    pub(crate) fn signer(&self, note: &Note, keys: &[PublicKey]) -> Result<PublicKey, NoteError> {
        note.verify(&Index::origin(&self.ledger), keys).map(|(_, signer)| signer)
    }

    fn parse(text: &str) -> Option<Index> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let ledger = lines.next()?.strip_prefix("regent/")?.strip_suffix("/index")?.to_owned();
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if ledger.len() != 16 || !ledger.bytes().all(hex) {
            return None;
        }
        let counter = read_decimal(lines.next()?)?;
        let mut index = Index { ledger, counter, retired: Vec::new(), lanes: BTreeMap::new() };
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["retired", key] => index.retired.push(key.parse().ok()?),
                ["lane", lane, key, size, root] => {
                    let root: [u8; 32] = STANDARD.decode(root).ok()?.try_into().ok()?;
                    let anchor = Anchor {
                        key: key.parse().ok()?,
                        size: read_decimal(size)?,
                        root: Digest::from_bytes(root),
                    };
                    if index.lanes.insert(lane.parse().ok()?, anchor).is_some() {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        Some(index)
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", Index::origin(&self.ledger), self.counter);
        for key in &self.retired {
            text.push_str(&format!("retired {key}\n"));
        }
        for (lane, anchor) in &self.lanes {
            let root = STANDARD.encode(anchor.root.as_bytes());
            text.push_str(&format!("lane {lane} {} {} {root}\n", anchor.key, anchor.size));
        }
        text
    }

    /// Advances a lane's anchor; an anchor never moves back.
    pub(crate) fn anchor(&mut self, lane: LaneId, anchor: Anchor) {
        let known = self.lanes.entry(lane).or_insert(anchor);
        if anchor.size > known.size {
            *known = anchor;
        }
    }

    /// Every key that has ever signed.
    pub(crate) fn keys(&self, signer: PublicKey) -> Vec<PublicKey> {
        let mut keys = vec![signer];
        keys.extend(self.retired.iter().chain(self.lanes.values().map(|anchor| &anchor.key)));
        keys.dedup();
        keys
    }

    /// Signs and writes the index with the next counter, then updates the witness.
    ///
    /// The caller holds the index lock.
    pub(crate) fn store(
        &mut self,
        storage: &dyn Storage,
        key: &LedgerKey,
        witness: Option<&Path>,
    ) -> Result<(), IndexError> {
        self.counter += 1;
        let note = Note::sign(&self.text(), &Index::origin(&self.ledger), key);
        storage.replace(INDEX, note.as_bytes())?;
        if let Some(witness) = witness {
            Witnessed::store_counter(witness, &self.ledger, self.counter)?;
        }
        Ok(())
    }

    /// Reads, changes and writes the index under its lock.
    pub(crate) fn update(
        storage: &dyn Storage,
        key: &LedgerKey,
        witness: Option<&Path>,
        lock_tries: u32,
        change: impl FnOnce(&mut Index),
    ) -> Result<(), IndexError> {
        let _lock = lock(storage, lock_tries)?;
        let (mut index, _) =
            Index::load(storage, &[key.public()])?.ok_or_else(|| unusable(&"it is missing"))?;
        change(&mut index);
        index.store(storage, key, witness)
    }
}

/// Takes the index lock, sleeping briefly between tries.
pub(crate) fn lock(storage: &dyn Storage, tries: u32) -> Result<Box<dyn Lock>, IndexError> {
    for attempt in 1..=tries {
        if let Some(lock) = storage.lock(INDEX_LOCK)? {
            return Ok(lock);
        }
        if attempt < tries {
            std::thread::sleep(LOCK_PAUSE);
        }
    }
    Err(IndexError::Busy)
}

/// How the ledger differs from the one that the witness recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mismatch {
    Gone { ledger: String, entries: u64 },
    Older { witnessed: u64, found: u64 },
    Another { witnessed: String, found: String },
}

impl From<Mismatch> for Defect {
    fn from(mismatch: Mismatch) -> Defect {
        match mismatch {
            Mismatch::Gone { ledger, entries } => Defect::Gone { ledger, entries },
            Mismatch::Older { witnessed, found } => Defect::RolledBack { witnessed, found },
            Mismatch::Another { witnessed, found } => Defect::AnotherLedger { witnessed, found },
        }
    }
}

/// Compares the index with the witness.
pub(crate) fn check_witness(witnessed: &Witnessed, index: Option<&Index>) -> Result<(), Mismatch> {
    let Some(index) = index else {
        return Err(Mismatch::Gone { ledger: witnessed.ledger.clone(), entries: witnessed.entries() });
    };
    if index.ledger != witnessed.ledger {
        let (witnessed, found) = (witnessed.ledger.clone(), index.ledger.clone());
        return Err(Mismatch::Another { witnessed, found });
    }
    if index.counter < witnessed.counter {
        return Err(Mismatch::Older { witnessed: witnessed.counter, found: index.counter });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Memory;

    #[test]
    fn the_index_reads_back_and_only_grows() {
        let storage = Memory::default();
        let key = LedgerKey::from_seed(&[1; 32]);
        let mut index = Index::new().unwrap();
        index.store(&storage, &key, None).unwrap();
        let lane = LaneId::new(3).unwrap();
        let anchor = |size| Anchor { key: key.public(), size, root: Digest::compute(b"r") };
        for size in [5, 9, 7] {
            Index::update(&storage, &key, None, 1, |index| index.anchor(lane, anchor(size))).unwrap();
        }
        let (read, signer) = Index::load(&storage, &[key.public()]).unwrap().unwrap();
        assert_eq!((read.counter, signer), (4, key.public()));
        assert_eq!(read.lanes.get(&lane), Some(&anchor(9)));
        let other = LedgerKey::from_seed(&[2; 32]).public();
        assert!(matches!(Index::load(&storage, &[other]), Err(IndexError::WrongKey)));
    }

    #[test]
    fn detects_a_change_of_any_byte_of_the_index() {
        let storage = Memory::default();
        let key = LedgerKey::from_seed(&[1; 32]);
        Index::new().unwrap().store(&storage, &key, None).unwrap();
        let good = read_all(&storage, INDEX, 9999).unwrap().unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            storage.replace(INDEX, &bad).unwrap();
            assert!(Index::load(&storage, &[key.public()]).is_err(), "byte {at}");
        }
    }

    #[test]
    fn adv_090_an_older_index_is_a_rollback() {
        let dir = tempfile::tempdir().unwrap();
        let witness = dir.path().join("state/witness");
        let storage = Memory::default();
        let key = LedgerKey::from_seed(&[1; 32]);
        let mut index = Index::new().unwrap();
        index.store(&storage, &key, Some(&witness)).unwrap();
        let old = index.clone();
        index.store(&storage, &key, Some(&witness)).unwrap();
        let witnessed = Witnessed::read(&witness).unwrap().unwrap();
        assert_eq!(check_witness(&witnessed, Some(&index)), Ok(()));
        assert!(matches!(check_witness(&witnessed, Some(&old)), Err(Mismatch::Older { .. })));
        assert!(matches!(check_witness(&witnessed, None), Err(Mismatch::Gone { .. })));
        let other = Index::new().unwrap();
        assert!(matches!(check_witness(&witnessed, Some(&other)), Err(Mismatch::Another { .. })));
    }
}
