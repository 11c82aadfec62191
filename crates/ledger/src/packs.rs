//! Finding payloads in the packs, and erasing them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Mutex, PoisonError};

use crate::internal::EraseBody;
use crate::lane::{SEGMENT_BYTES_CAP, last_checkpoint};
use crate::layout::{lane_lock, lanes, pack_path, segment_path, segments};
use crate::line::Line;
use crate::payload::{HEADER_BYTES_MAX, HEADER_BYTES_MIN, Header, PayloadKey};
use crate::read::{ReadError, Reader};
use crate::storage::Storage;
use crate::writer::Item;
use crate::{AppendError, Digest, Kind, LaneId, Ledger};

/// An entry's lane, and its place there.
pub type EntryPlace = (LaneId, u64);

/// How much of a pack is looked at in one go.
const WINDOW_BYTES: u64 = 1 << 20;

/// Where each payload is. Built when first asked for, and carried on from there.
#[derive(Debug, Default)]
pub(crate) struct Packs {
    /// Packs by path, and how far each was looked at.
    pub(crate) scanned: BTreeMap<String, u64>,
    /// Every pack was looked at once.
    all: bool,
    places: HashMap<Digest, Vec<Place>>,
}

#[derive(Debug, Clone)]
struct Place {
    path: String,
    at: u64,
    /// Header and stored bytes.
    bytes: u64,
}

impl Packs {
    /// Looks at whatever the packs have gained.
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
            // What isn't a whole record is on its way, or stray: nothing names it yet.
            let Some(header) = header else { break };
            let bytes = header.header_bytes() as u64 + header.stored_bytes;
            let end = at + bytes;
            if end > stat.bytes {
                break;
            }
            let place = Place { path: path.clone(), at, bytes };
            self.places.entry(header.digest).or_default().push(place);
            at = end;
        }
        self.scanned.insert(path, at);
        Ok(())
    }

    fn places(&mut self, storage: &dyn Storage, digest: &Digest) -> io::Result<Vec<Place>> {
        if !self.all || !self.places.contains_key(digest) {
            self.refresh(storage)?;
        }
        Ok(self.places.get(digest).cloned().unwrap_or_default())
    }

    /// Those in the pack of one entry's segment alone: the others may be many.
    fn places_beside(
        &mut self,
        storage: &dyn Storage,
        digest: &Digest,
        (lane, seq): EntryPlace,
    ) -> io::Result<Vec<Place>> {
        if !self.places.contains_key(digest)
            && let Some(first) = segments(storage, lane)?.into_iter().rfind(|first| *first <= seq)
        {
            self.scan(storage, pack_path(lane, first))?;
        }
        Ok(self.places.get(digest).cloned().unwrap_or_default())
    }
}

/// The packs that entries under a checkpoint say were removed.
pub(crate) fn removed_packs(storage: &dyn Storage) -> io::Result<BTreeSet<(LaneId, u64)>> {
    let mut removed = BTreeSet::new();
    let mut bytes = Vec::new();
    for lane in lanes(storage)? {
        for first in segments(storage, lane)? {
            storage.read(&segment_path(lane, first), 0, SEGMENT_BYTES_CAP, &mut bytes)?;
            let valid = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
            let (mut at, mut pending) = (0, Vec::new());
            while let Ok(line) = Line::scan(bytes.get(at..valid).unwrap_or_default()) {
                at += line.bytes.len() + 1;
                if line.kind == Kind::Erase {
                    pending.extend(serde_json::from_slice::<EraseBody>(line.body).ok());
                } else if line.kind == Kind::Checkpoint {
                    removed.extend(pending.drain(..).filter_map(|erase| erase.lane.zip(erase.segment)));
                }
            }
        }
    }
    Ok(removed)
}

impl Reader {
    /// The bytes of a payload, without taking a lane; `None` if it was erased or never there.
    pub fn payload(&self, digest: &Digest, key: Option<&PayloadKey>) -> Result<Option<Vec<u8>>, ReadError> {
        find(&self.packs, self.storage.as_ref(), None, digest, key)
    }

    /// The same of a payload that an entry names, which is most likely beside it: only one pack is looked at then.
    pub fn payload_of(
        &self,
        entry: EntryPlace,
        digest: &Digest,
        key: Option<&PayloadKey>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        find(&self.packs, self.storage.as_ref(), Some(entry), digest, key)
    }
}

/// A payload, beside the entry that names it if that is known, or else in any pack.
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
        // What is erased or rotten here may be whole elsewhere.
        if let Ok(Some(bytes)) = open_first(storage, places, digest, key) {
            return Ok(Some(bytes));
        }
    }
    let places = packs().places(storage, digest)?;
    open_first(storage, places, digest, key)
}

/// The first copy that is whole.
fn open_first(
    storage: &dyn Storage,
    places: Vec<Place>,
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
    /// The bytes of a payload; `None` if it was erased or never there.
    pub fn payload(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        let home = &self.shared.home;
        find(&self.shared.packs, home.storage.as_ref(), None, digest, home.options.payload_key.as_ref())
    }

    /// The same of a payload that an entry names, which is most likely beside it: only one pack is looked at then.
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

    /// Erases a payload wherever it is stored. The entry that says so is recorded first, so a crash
    /// in between leaves an erasure to be finished by asking again, never an unexplained gap.
    ///
    /// Returns how many records were overwritten.
    pub fn erase(&self, digest: &Digest, reason: &str, at_ms: i64) -> Result<u64, AppendError> {
        let storage = self.shared.home.storage.as_ref();
        let failed = |error: io::Error| AppendError::Io(error.to_string());
        let places = {
            let mut packs = self.shared.packs.lock().unwrap_or_else(PoisonError::into_inner);
            // The same bytes may have been stored again since.
            packs.refresh(storage).map_err(failed)?;
            packs.places(storage, digest).map_err(failed)?
        };
        let body = EraseBody { lane: None, reason: reason.to_owned(), segment: None, sha256: Some(*digest) };
        self.append_item_blocking(Item::internal(Kind::Erase, at_ms, &body).map_err(failed)?)?;
        let mut erased = 0;
        for place in places {
            let mut bytes = Vec::new();
            storage.read(&place.path, place.at, HEADER_BYTES_MAX as u64, &mut bytes).map_err(failed)?;
            let Some(header) = Header::read(&bytes).filter(|header| header.digest == *digest) else {
                continue;
            };
            // Bytes first, mark second: a record marked as erased has no bytes left.
            let zeros = vec![0; usize::try_from(header.stored_bytes).unwrap_or(0)];
            let stored_at = place.at + header.header_bytes() as u64;
            storage.overwrite(&place.path, stored_at, &zeros).map_err(failed)?;
            let mut marked = Vec::with_capacity(HEADER_BYTES_MAX);
            header.erased().write(&mut marked);
            storage.overwrite(&place.path, place.at, &marked).map_err(failed)?;
            erased += 1;
        }
        Ok(erased)
    }

    /// Removes the payloads of all full segments whose last entry is older than `before_ms`. The
    /// entries stay. Returns how many packs are gone.
    pub fn retain(&self, before_ms: i64, reason: &str, at_ms: i64) -> Result<u64, AppendError> {
        let storage = self.shared.home.storage.as_ref();
        let failed = |error: io::Error| AppendError::Io(error.to_string());
        let mut removed = 0;
        for lane in lanes(storage).map_err(failed)? {
            // Held until the packs are gone: a process that went on in this lane meanwhile would write to a pack that is removed.
            let idle = storage.lock(&lane_lock(lane)).map_err(failed)?;
            for first in self.old_packs(lane, idle.is_some(), before_ms).map_err(failed)? {
                let body = EraseBody {
                    lane: Some(lane),
                    reason: reason.to_owned(),
                    segment: Some(first),
                    sha256: None,
                };
                self.append_item_blocking(Item::internal(Kind::Erase, at_ms, &body).map_err(failed)?)?;
                storage.remove(&pack_path(lane, first)).map_err(failed)?;
                removed += 1;
            }
            drop(idle);
        }
        let mut packs = self.shared.packs.lock().unwrap_or_else(PoisonError::into_inner);
        *packs = Packs::default();
        Ok(removed)
    }

    /// Packs of a lane whose segment is followed by another, or whose lane nobody writes, and is old enough.
    fn old_packs(&self, lane: LaneId, is_idle: bool, before_ms: i64) -> io::Result<Vec<u64>> {
        let storage = self.shared.home.storage.as_ref();
        let mut old = Vec::new();
        let firsts = segments(storage, lane)?;
        let origin = crate::entry::lane_origin(&self.shared.home.ledger, lane);
        for first in &firsts {
            let last = firsts.last() == Some(first);
            let has_pack = storage.stat(&pack_path(lane, *first))?.is_some();
            if !has_pack || (last && !is_idle) {
                continue;
            }
            let end = last_checkpoint(storage, lane, *first, &origin)?;
            if end.is_some_and(|end| end.tip.at_ms < before_ms) {
                old.push(*first);
            }
        }
        Ok(old)
    }
}
