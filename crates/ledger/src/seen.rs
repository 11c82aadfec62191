//! Caches which segments were verified, so that opening a ledger doesn't read all of its history each time.
//!
//! A note signed with the ledger's key lists segments with their file metadata at verification time and the required length of their packs.
//! Opening skips a segment whose metadata is unchanged; `verify` always reads everything. If the note is missing or invalid, opening reads
//! everything.

use std::collections::BTreeMap;

use crate::layout::SEEN;
use crate::note::{NOTE_BYTES_MAX, Note, read_decimal};
use crate::storage::{Stat, Storage, read_all};
use crate::{LaneId, LedgerKey, PublicKey};

/// The cached state of a verified segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    /// File metadata at verification time.
    pub(crate) stat: Stat,
    /// The required length of its pack; `None` if an entry records that the pack was removed.
    pub(crate) pack_bytes: Option<u64>,
}

/// Verified segments and their cached state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen(BTreeMap<(LaneId, u64), Sight>);

impl Seen {
    pub(crate) fn load(storage: &dyn Storage, ledger: &str, key: PublicKey) -> Seen {
        let bytes = read_all(storage, SEEN, NOTE_BYTES_MAX as u64).ok().flatten().unwrap_or_default();
        let note = std::str::from_utf8(&bytes).ok().and_then(|text| Note::parse(text).ok());
        let origin = origin(ledger);
        note.as_ref()
            .and_then(|note| note.verify(&origin, &[key]).ok())
            .and_then(|(text, _)| Seen::parse(text, &origin))
            .unwrap_or_default()
    }

    fn parse(text: &str, origin: &str) -> Option<Seen> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != origin {
            return None;
        }
        let mut seen = Seen::default();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let [lane, first, bytes, modified_ns, changed_ns, inode, pack] = words.as_slice() else {
                return None;
            };
            let stat = Stat {
                bytes: read_decimal(bytes)?,
                modified_ns: modified_ns.parse().ok()?,
                changed_ns: changed_ns.parse().ok()?,
                inode: read_decimal(inode)?,
            };
            let pack_bytes = if *pack == "-" { None } else { Some(read_decimal(pack)?) };
            seen.set(lane.parse().ok()?, read_decimal(first)?, Sight { stat, pack_bytes });
        }
        Some(seen)
    }

    /// Writes the note. The note is only a cache, so a write failure is ignored.
    pub(crate) fn store(&self, storage: &dyn Storage, ledger: &str, key: &LedgerKey) {
        if *self == Seen::load(storage, ledger, key.public()) {
            return;
        }
        let origin = origin(ledger);
        let mut text = format!("{origin}\n");
        for ((lane, first), Sight { stat, pack_bytes }) in &self.0 {
            let Stat { bytes, modified_ns, changed_ns, inode } = stat;
            let pack = pack_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
            text.push_str(&format!("{lane} {first} {bytes} {modified_ns} {changed_ns} {inode} {pack}\n"));
        }
        drop(storage.replace(SEEN, Note::sign(&text, &origin, key).as_bytes()));
    }

    pub(crate) fn get(&self, lane: LaneId, first: u64) -> Option<Sight> {
        self.0.get(&(lane, first)).copied()
    }

    pub(crate) fn set(&mut self, lane: LaneId, first: u64, sight: Sight) {
        self.0.insert((lane, first), sight);
    }
}

fn origin(ledger: &str) -> String {
    format!("regent/{ledger}/seen2")
}
