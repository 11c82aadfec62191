//! Finds and erases payloads in packs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Mutex, PoisonError};

use crate::internal::EraseBody;
use crate::lane::SEGMENT_BYTES_CAP;
use crate::layout::{lane_lock, lanes, pack_path, segment_path, segments};
use crate::line::{LINE_BYTES_MAX, Line};
use crate::payload::{HEADER_BYTES_MAX, HEADER_BYTES_MIN, Header, PayloadKey};
use crate::read::{ReadError, Reader};
use crate::storage::Storage;
use crate::writer::Item;
use crate::{AppendError, Digest, EntryKind, LaneId, Ledger};

/// An entry's lane and its position there.
pub type EntryPlace = (LaneId, u64);

/// Bytes of a pack to read at once.
const WINDOW_BYTES: u64 = 1 << 20;

/// The location of each payload. Built on first use and extended as packs grow.
#[derive(Debug, Default)]
pub(crate) struct Packs {
    /// Packs by path, each with the offset scanned so far.
    pub(crate) scanned: BTreeMap<String, u64>,
    /// Every pack was scanned at least once.
    all: bool,
    places: HashMap<Digest, Vec<PackSlice>>,
}

#[derive(Debug, Clone)]
struct PackSlice {
    path: String,
    at: u64,
    /// Header and stored bytes.
    bytes: u64,
}

impl Packs {
    /// Scans bytes that the packs have gained.
    fn refresh(&mut self, storage: &dyn Storage) -> io::Result<()> {
        for lane in lanes(storage)? {
            for first in segments(storage, lane)? {
                self.scan(storage, pack_path(lane, first))?;
            }
        }
        self.all = true;
        Ok(())
    }

    fn scan(&mut self, storage: &dyn Storage, path: String) -> io::Result<()> {
        let Some(stat) = storage.stat(&path)? else { return Ok(()) };
        let mut at = self.scanned.get(&path).copied().unwrap_or(0);
        let mut window = Vec::new();
        let mut window_at = at;
        while at + HEADER_BYTES_MIN as u64 <= stat.bytes {
            let offset = usize::try_from(at - window_at).unwrap_or(usize::MAX);
            let header = match window.get(offset..).filter(|rest| rest.len() >= HEADER_BYTES_MAX) {
                Some(rest) => Header::read(rest),
                None => {
                    storage.read(&path, at, WINDOW_BYTES, &mut window)?;
                    window_at = at;
                    Header::read(&window)
                }
            };
            // A partial record is being written, or is stray. No entry names it yet.
            let Some(header) = header else { break };
            let bytes = header.header_bytes() as u64 + header.stored_bytes;
            let end = at + bytes;
            if end > stat.bytes {
                break;
            }
            let place = PackSlice { path: path.clone(), at, bytes };
            self.places.entry(header.digest).or_default().push(place);
            at = end;
        }
        self.scanned.insert(path, at);
        Ok(())
    }

    fn places(&mut self, storage: &dyn Storage, digest: &Digest) -> io::Result<Vec<PackSlice>> {
        if !self.all || !self.places.contains_key(digest) {
            self.refresh(storage)?;
        }
        Ok(self.places.get(digest).cloned().unwrap_or_default())
    }

    /// Locations in the pack of one entry's segment; scanning the other packs may be slow.
    fn places_beside(
        &mut self,
        storage: &dyn Storage,
        digest: &Digest,
        (lane, seq): EntryPlace,
    ) -> io::Result<Vec<PackSlice>> {
        // Scans only bytes that the pack has gained since.
        if let Some(first) = segments(storage, lane)?.into_iter().rfind(|first| *first <= seq) {
            self.scan(storage, pack_path(lane, first))?;
        }
        Ok(self.places.get(digest).cloned().unwrap_or_default())
    }
}

/// The removed packs, according to entries under a checkpoint.
pub(crate) fn removed_packs(storage: &dyn Storage) -> io::Result<BTreeSet<(LaneId, u64)>> {
    let all = erasures(storage)?;
    Ok(all.into_iter().filter_map(|(_, erase)| erase.lane.zip(erase.segment)).collect())
}

/// Erasures and removals that entries under a checkpoint record, with their times.
fn erasures(storage: &dyn Storage) -> io::Result<Vec<(i64, EraseBody)>> {
    let mut found = Vec::new();
    let mut bytes = Vec::new();
    for lane in lanes(storage)? {
        for first in segments(storage, lane)? {
            storage.read(&segment_path(lane, first), 0, SEGMENT_BYTES_CAP, &mut bytes)?;
            let valid = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
            let (mut at, mut pending) = (0, Vec::new());
            while let Ok(line) = Line::scan(bytes.get(at..valid).unwrap_or_default()) {
                at += line.bytes.len() + 1;
                if line.kind == EntryKind::Erase {
                    let erase = serde_json::from_slice::<EraseBody>(line.body).ok();
                    pending.extend(erase.map(|erase| (line.at_ms, erase)));
                } else if line.kind == EntryKind::Checkpoint {
                    found.append(&mut pending);
                }
            }
        }
    }
    Ok(found)
}

/// A pack whose payloads are all older than a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldPack {
    /// Its lane.
    pub lane: LaneId,
    /// The first entry of its segment.
    pub segment: u64,
    /// Its length.
    pub bytes: u64,
    /// A process writes to the pack, so it can't be removed yet.
    pub in_use: bool,
}

impl OldPack {
    /// Its path in the ledger's folder.
    pub fn path(&self) -> String {
        pack_path(self.lane, self.segment)
    }
}

/// The packs of a lane whose last entry is older. The last pack is in use while a writer holds the lane.
fn old_packs(storage: &dyn Storage, lane: LaneId, is_idle: bool, before_ms: i64) -> io::Result<Vec<OldPack>> {
    let mut old = Vec::new();
    let firsts = segments(storage, lane)?;
    for first in &firsts {
        let Some(stat) = storage.stat(&pack_path(lane, *first))? else { continue };
        if last_at_ms(storage, lane, *first)?.is_some_and(|at_ms| at_ms < before_ms) {
            let in_use = !is_idle && firsts.last() == Some(first);
            old.push(OldPack { lane, segment: *first, bytes: stat.bytes, in_use });
        }
    }
    Ok(old)
}

/// The time of the last complete entry of a segment. Torn bytes have no time; another lane settles them.
fn last_at_ms(storage: &dyn Storage, lane: LaneId, first: u64) -> io::Result<Option<i64>> {
    let path = segment_path(lane, first);
    let Some(stat) = storage.stat(&path)? else { return Ok(None) };
    let from = stat.bytes.saturating_sub(2 * LINE_BYTES_MAX as u64);
    let mut bytes = Vec::new();
    storage.read(&path, from, stat.bytes - from, &mut bytes)?;
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').rev();
    Ok(lines.find_map(|line| Line::parse(line).map(|line| line.at_ms)))
}

/// Why a payload that an entry names is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPayload {
    /// When its removal was recorded.
    pub at_ms: i64,
    /// Why, as recorded.
    pub reason: String,
    /// An operator erased this payload by digest. Otherwise, it was removed with all payloads of its segment.
    pub erased: bool,
}

impl Reader {
    /// The bytes of a payload, read without taking a lane; `None` if it was erased or never stored.
    pub fn payload(&self, digest: &Digest, key: Option<&PayloadKey>) -> Result<Option<Vec<u8>>, ReadError> {
        find(&self.packs, self.storage.as_ref(), None, digest, key)
    }

    /// The bytes of a payload that this entry names. It is most likely in the pack beside the entry, so usually only one pack is read.
    pub fn payload_of(
        &self,
        entry: EntryPlace,
        digest: &Digest,
        key: Option<&PayloadKey>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        find(&self.packs, self.storage.as_ref(), Some(entry), digest, key)
    }

    /// Why the payload of an entry is missing; `None` if no entry records its erasure or removal.
    pub fn gone(&self, lane: LaneId, seq: u64, digest: &Digest) -> Result<Option<MissingPayload>, ReadError> {
        let storage = self.storage.as_ref();
        let segment = segments(storage, lane)?.into_iter().rfind(|first| *first <= seq);
        let is_of = |erase: &EraseBody| {
            erase.sha256 == Some(*digest) || (erase.lane == Some(lane) && erase.segment == segment)
        };
        let found = erasures(storage)?.into_iter().find(|(_, erase)| is_of(erase));
        Ok(found.map(|(at_ms, erase)| MissingPayload {
            at_ms,
            reason: erase.reason,
            erased: erase.sha256.is_some(),
        }))
    }

    /// The packs that [`Ledger::retain`] would consider for the same limit.
    pub fn old_packs(&self, before_ms: i64) -> Result<Vec<OldPack>, ReadError> {
        let storage = self.storage.as_ref();
        let mut old = Vec::new();
        for lane in lanes(storage)? {
            let is_idle = !storage.is_locked(&lane_lock(lane))?;
            old.extend(old_packs(storage, lane, is_idle, before_ms)?);
        }
        Ok(old)
    }
}

/// Finds a payload beside the entry that names it, if known, or in any pack.
fn find(
    packs: &Mutex<Packs>,
    storage: &dyn Storage,
    entry: Option<EntryPlace>,
    digest: &Digest,
    key: Option<&PayloadKey>,
) -> Result<Option<Vec<u8>>, ReadError> {
    let packs = || packs.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(entry) = entry {
        let places = packs().places_beside(storage, digest, entry)?;
        // A copy that is erased or damaged here may be intact elsewhere.
        if let Ok(Some(bytes)) = open_first(storage, places, digest, key) {
            return Ok(Some(bytes));
        }
    }
    let places = packs().places(storage, digest)?;
    open_first(storage, places, digest, key)
}

/// The first intact copy.
fn open_first(
    storage: &dyn Storage,
    places: Vec<PackSlice>,
    digest: &Digest,
    key: Option<&PayloadKey>,
) -> Result<Option<Vec<u8>>, ReadError> {
    let mut rotten = false;
    for place in places {
        let mut bytes = Vec::new();
        match storage.read(&place.path, place.at, place.bytes, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?,
        }
        let Some(header) = Header::read(&bytes) else {
            rotten = true;
            continue;
        };
        if header.is_erased() {
            continue;
        }
        let stored = bytes.split_off(header.header_bytes());
        match header.open(stored, key) {
            Some(plain) if header.digest == *digest => return Ok(Some(plain)),
            Some(_) | None => rotten = true,
        }
    }
    if rotten { Err(ReadError::Payload(*digest)) } else { Ok(None) }
}

impl Ledger {
    /// The bytes of a payload; `None` if it was erased or never stored.
    pub fn payload(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        let home = &self.shared.home;
        find(&self.shared.packs, home.storage.as_ref(), None, digest, home.options.payload_key.as_ref())
    }

    /// The bytes of a payload that this entry names. It is most likely in the pack beside the entry, so usually only one pack is read.
    pub fn payload_of(&self, entry: EntryPlace, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        let home = &self.shared.home;
        find(
            &self.shared.packs,
            home.storage.as_ref(),
            Some(entry),
            digest,
            home.options.payload_key.as_ref(),
        )
    }

    /// Erases every copy of a payload. The ledger records the erasure first. After a crash in between, a second call completes the erasure,
    /// and the gap is never unexplained. Without anything to erase, nothing is recorded.
    pub fn erase(&self, digest: &Digest, reason: &str, at_ms: i64) -> Result<Erasure, AppendError> {
        let storage = self.shared.home.storage.as_ref();
        let failed = |error: io::Error| AppendError::Io(error.to_string());
        let places = {
            let mut packs = self.shared.packs.lock().unwrap_or_else(PoisonError::into_inner);
            // The same bytes may have been stored again in the meantime.
            packs.refresh(storage).map_err(failed)?;
            packs.places(storage, digest).map_err(failed)?
        };
        let mut erasure = Erasure::default();
        let mut left = Vec::new();
        for place in places {
            let mut bytes = Vec::new();
            match storage.read(&place.path, place.at, HEADER_BYTES_MAX as u64, &mut bytes) {
                // Another process removed the pack.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read.map_err(failed)?,
            }
            match Header::read(&bytes).filter(|header| header.digest == *digest) {
                Some(header) if header.is_erased() => erasure.erased_before += 1,
                Some(header) => left.push((place, header)),
                None => {}
            }
        }
        if left.is_empty() {
            return Ok(erasure);
        }
        let body = EraseBody { lane: None, reason: reason.to_owned(), segment: None, sha256: Some(*digest) };
        self.append_item_blocking(Item::internal(EntryKind::Erase, at_ms, &body).map_err(failed)?)?;
        for (place, header) in left {
            // Overwrite first, mark second: a record marked as erased has no bytes left.
            let zeros = vec![0; usize::try_from(header.stored_bytes).unwrap_or(0)];
            let stored_at = place.at + header.header_bytes() as u64;
            storage.overwrite(&place.path, stored_at, &zeros).map_err(failed)?;
            let mut marked = Vec::with_capacity(HEADER_BYTES_MAX);
            header.erased().write(&mut marked);
            storage.overwrite(&place.path, place.at, &marked).map_err(failed)?;
            erasure.records += 1;
        }
        Ok(erasure)
    }

    /// Removes the payloads of all segments whose last entry is older than `before_ms`, except segments with an active writer. The entries
    /// stay. Returns the removed packs.
    pub fn retain(&self, before_ms: i64, reason: &str, at_ms: i64) -> Result<Vec<OldPack>, AppendError> {
        let storage = self.shared.home.storage.as_ref();
        let failed = |error: io::Error| AppendError::Io(error.to_string());
        let mut removed = Vec::new();
        for lane in lanes(storage).map_err(failed)? {
            // Held until the packs are gone. A process that continued in this lane meanwhile would write to a removed pack.
            let idle = storage.lock(&lane_lock(lane)).map_err(failed)?;
            let old = old_packs(storage, lane, idle.is_some(), before_ms).map_err(failed)?;
            for pack in old.into_iter().filter(|pack| !pack.in_use) {
                let body = EraseBody {
                    lane: Some(lane),
                    reason: reason.to_owned(),
                    segment: Some(pack.segment),
                    sha256: None,
                };
                self.append_item_blocking(Item::internal(EntryKind::Erase, at_ms, &body).map_err(failed)?)?;
                storage.remove(&pack.path()).map_err(failed)?;
                removed.push(pack);
            }
            drop(idle);
        }
        let mut packs = self.shared.packs.lock().unwrap_or_else(PoisonError::into_inner);
        *packs = Packs::default();
        Ok(removed)
    }
}

/// The result of erasing a payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Erasure {
    /// Records that were overwritten.
    pub records: u64,
    /// Records that had been erased before.
    pub erased_before: u64,
}
