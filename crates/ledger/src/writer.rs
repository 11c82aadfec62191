//! The one writer of a lane: a batch of drafts becomes one write, one sync, one signature.
//!
//! Failures, and what they leave:
//!
//! | failure | on disk | recovery |
//! |---|---|---|
//! | before the write | the lane ends in a checkpoint, or in entries to be signed later | the next writer takes the lane and signs them |
//! | after creating a new segment | an empty last segment | the same; the empty file is reused |
//! | after packing payloads, before writing entries | stray bytes at the end of a pack | a `resume` entry records them; the lane continues in a new segment |
//! | during the write, after complete entries | entries without a checkpoint that the witness doesn't know | a `resume` entry marks them as unvouched; the lane continues |
//! | during the write, within an entry | the same, and a partial line | the lane is abandoned; a new lane settles the tail |
//! | after the write, before the sync returns | any of these, or the complete batch | as above, or the batch remains valid |
//!
//! If the disk is full, the batch fails, and the next append starts a new lane that settles the tail of the
//! failed write. After any other error the lane is sealed until it is opened again: after a failed sync the
//! file's content is unknown, and a second sync would report success.

use std::io;
use std::sync::Arc;

use crate::canonical::CanonicalJson;
use crate::chain::{Route, Walk};
use crate::entry::{Prepared, lane_origin};
use crate::index::{Anchor, Index, IndexError, PATIENT_TRIES};
use crate::internal::{KeyBody, LaneBody, RecoveryBody, ReplacesBody, ResumeBody, Tip, sign_checkpoint};
use crate::layout::{LANES, lane_folder, new_file, pack_path, segment_path, segments, vacant_lane};
use crate::note::Checkpoint;
use crate::options::Options;
use crate::payload::{Payload, write_record};
use crate::seen::{Seen, Sight};
use crate::storage::{Appender, Existing, Lock, Storage, is_full};
use crate::witness::{LaneHead, LaneWitness};
use crate::{AppendError, Digest, EntryKind, LaneId, LedgerKey, Receipt};

/// Pack length at which a new segment starts.
const PACK_BYTES_MAX: u64 = 256 << 20;

/// A prepared draft.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) prepared: Prepared,
    pub(crate) at_ms: i64,
    pub(crate) payloads: Vec<Payload>,
    /// Whether the commit must end in a checkpoint.
    pub(crate) signed: bool,
}

impl Item {
    /// Approximate size on disk.
    pub(crate) fn bytes(&self) -> usize {
        self.prepared.len() + self.payloads.iter().map(|payload| payload.bytes().len() + 128).sum::<usize>()
    }

    /// An entry that the ledger writes about itself.
    pub(crate) fn internal<T: serde::Serialize>(kind: EntryKind, at_ms: i64, body: &T) -> io::Result<Item> {
        let body = CanonicalJson::encode(body).map_err(io::Error::other)?;
        Ok(Item { prepared: Prepared::new(kind, at_ms, &body), at_ms, payloads: Vec::new(), signed: true })
    }
}

/// State shared by all lanes of an open ledger.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) key: LedgerKey,
    pub(crate) ledger: String,
    pub(crate) options: Options,
}

#[derive(Debug)]
enum Health {
    Sound,
    /// The disk was full. The next append tries a new lane.
    Full,
    Sealed(String),
    Closed,
}

/// The writer of a lane.
#[derive(Debug)]
pub(crate) struct LaneWriter {
    pub(crate) home: Home,
    pub(crate) lane: LaneId,
    origin: String,
    lock: Option<Box<dyn Lock>>,
    segment: Option<Segment>,
    /// Announced entries, written before those of the next commit. Without a next commit, they are dropped.
    announced: Vec<Item>,
    /// Don't start a new segment, whatever the length of this one.
    stay: bool,
    /// Start a new segment with the next entry, if this one has payloads.
    leave: bool,
    /// Segments completed since the last index update, with the lengths of their packs.
    left: Vec<(u64, u64)>,
    /// The witness of the lane's head.
    witness: Option<LaneWitness>,
    /// Segment and length up to which everything is acknowledged.
    acknowledged: (u64, u64),
    tip: Tip,
    checkpoint: Option<(Checkpoint, String)>,
    entries_since_checkpoint: u64,
    checkpoints_since_index: u32,
    index_due: bool,
    health: Health,
}

#[derive(Debug)]
struct Segment {
    first: u64,
    file: Box<dyn Appender>,
    bytes: u64,
    pack: Option<Box<dyn Appender>>,
    pack_bytes: u64,
    /// The pack's length differs from the recorded one, after a crash or a removal, so the pack takes no more payloads.
    pack_closed: bool,
    /// Its name isn't durable yet.
    fresh: bool,
}

/// The start of a new lane.
#[derive(Debug, Default)]
pub(crate) struct Beginning<'a> {
    /// The tails of other lanes that it settles.
    pub(crate) recoveries: &'a [RecoveryBody],
    /// The history that it replaces.
    pub(crate) replaces: Option<ReplacesBody>,
    /// Lanes below this number lost entries; their numbers are not reused.
    pub(crate) lane_min: u16,
}

/// A lane that ends in complete entries, as found on disk.
pub(crate) struct Resumed {
    pub(crate) lane: LaneId,
    pub(crate) lock: Box<dyn Lock>,
    pub(crate) first: u64,
    pub(crate) bytes: u64,
    pub(crate) pack_bytes: u64,
    pub(crate) tip: Tip,
    pub(crate) checkpoint: (Checkpoint, String),
    /// Complete entries after the last checkpoint.
    pub(crate) unsigned: u64,
    /// Number of those that are unvouched.
    pub(crate) unvouched: u64,
    /// Length of the pack, if it differs from the recorded one.
    pub(crate) pack_found: Option<u64>,
}

impl LaneWriter {
    fn bare(home: Home, lane: LaneId, lock: Option<Box<dyn Lock>>) -> LaneWriter {
        let origin = lane_origin(&home.ledger, lane);
        LaneWriter {
            tip: Tip::start(&origin),
            home,
            lane,
            origin,
            lock,
            segment: None,
            announced: Vec::new(),
            stay: false,
            leave: false,
            left: Vec::new(),
            witness: None,
            acknowledged: (0, 0),
            checkpoint: None,
            entries_since_checkpoint: 0,
            checkpoints_since_index: 0,
            index_due: true,
            health: Health::Sound,
        }
    }

    /// A lane of a ledger in memory. An error is not expected there and seals the lane.
    pub(crate) fn in_memory(storage: Arc<dyn Storage>, key: LedgerKey, options: Options) -> LaneWriter {
        let mut index = Index::named("0".repeat(16));
        let stored = index.store(storage.as_ref(), &key, None);
        let at_ms = options.opened_at_ms;
        let home = Home { storage, key, ledger: index.ledger, options };
        let created = match stored {
            Ok(()) => LaneWriter::create(home.clone(), at_ms, Beginning::default()),
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        created.unwrap_or_else(|error| {
            let mut writer = LaneWriter::bare(home, LaneId::FIRST, None);
            writer.health = Health::Sealed(error.to_string());
            writer
        })
    }

    /// Continues a lane that ends in complete entries. First signs entries without a checkpoint, and records how many of them are
    /// unvouched.
    pub(crate) fn resume(home: Home, found: Resumed) -> io::Result<LaneWriter> {
        let storage = home.storage.clone();
        let file = storage.appender(&segment_path(found.lane, found.first), Existing::Required)?;
        let pack = match found.pack_bytes {
            _ if found.pack_found.is_some() => None,
            0 => None,
            _ => Some(storage.appender(&pack_path(found.lane, found.first), Existing::Required)?),
        };
        let segment = Segment {
            first: found.first,
            file,
            bytes: found.bytes,
            pack,
            pack_bytes: found.pack_bytes,
            pack_closed: false,
            fresh: false,
        };
        let bare = LaneWriter::bare(home, found.lane, Some(found.lock));
        let mut writer = LaneWriter {
            segment: Some(segment),
            acknowledged: (found.first, found.bytes),
            tip: found.tip,
            checkpoint: Some(found.checkpoint),
            entries_since_checkpoint: found.unsigned,
            index_due: found.unsigned > 0,
            ..bare
        };
        let pack_bytes = found.pack_found.filter(|bytes| *bytes > found.pack_bytes);
        if found.unvouched > 0 || pack_bytes.is_some() {
            let proven = writer.tip.size() - found.unvouched;
            let body = ResumeBody { entries: found.unvouched, pack_bytes, proven };
            let item = Item::internal(EntryKind::Resume, writer.home.options.opened_at_ms, &body)?;
            // The `resume` entry describes this segment, so it must go into it, whatever its length.
            writer.stay = true;
            writer.write_batch(vec![item], true, &mut Vec::new())?;
            writer.stay = false;
        } else if found.unsigned > 0 {
            writer.write_batch(Vec::new(), true, &mut Vec::new())?;
        }
        if let Some(segment) = &mut writer.segment {
            segment.pack_closed = found.pack_found.is_some();
        }
        writer.leave = writer.home.options.fresh_segment;
        // Only now: the witness must not include unvouched entries before a `resume` entry marks them.
        writer.attach_witness()?;
        Ok(writer)
    }

    /// From here on, each commit updates the witness.
    pub(crate) fn attach_witness(&mut self) -> io::Result<()> {
        let Some(path) = &self.home.options.witness else { return Ok(()) };
        let witness = LaneWitness::open(path, self.lane)?;
        if self.tip.size() > 0 {
            witness.renew(self.tip.size(), self.tip.frontier.root())?;
        }
        self.witness = Some(witness);
        Ok(())
    }

    /// The head of the lane.
    pub(crate) fn lane_head(&self) -> LaneHead {
        LaneHead { size: self.tip.size(), root: self.tip.frontier.root() }
    }

    /// Starts a new lane, whose first batch settles the tails of other lanes.
    pub(crate) fn create(home: Home, at_ms: i64, beginning: Beginning<'_>) -> io::Result<LaneWriter> {
        let storage = home.storage.clone();
        storage.create_folder(LANES)?;
        let (lane, lock) = vacant_lane(storage.as_ref(), beginning.lane_min)?;
        let mut writer = LaneWriter::bare(home, lane, Some(lock));
        // A witness with another history is replaced once this lane exists.
        if beginning.replaces.is_none() {
            writer.attach_witness()?;
        }
        let key = writer.home.key.public().vkey(&writer.origin);
        let body = LaneBody { key, lane, origin: writer.origin.clone(), replaces: beginning.replaces };
        let mut items = vec![Item::internal(EntryKind::Lane, at_ms, &body)?];
        for recovery in beginning.recoveries {
            items.push(Item::internal(EntryKind::Recovery, at_ms, recovery)?);
        }
        if let Err(error) = writer.write_batch(items, true, &mut Vec::new()) {
            // No receipt named this lane and we hold its lock, so we may remove its file. If that fails too, the next opening settles it.
            drop(writer.segment.take());
            if storage.remove(&segment_path(lane, 0)).is_err() {
                writer.health = Health::Sealed(error.to_string());
            }
            return Err(error);
        }
        Ok(writer)
    }

    /// Records a batch: either all of it, or nothing that was acknowledged.
    pub(crate) fn commit(
        &mut self,
        items: Vec<Item>,
        receipts: &mut Vec<Receipt>,
    ) -> Result<(), AppendError> {
        match &self.health {
            Health::Sound => {}
            Health::Sealed(why) => return Err(AppendError::Sealed(why.clone())),
            Health::Closed => return Err(AppendError::Closed),
            Health::Full => self.leave_lane(items.first().map_or(0, |item| item.at_ms))?,
        }
        let force = self.home.options.checkpoint_every_batch && items.iter().any(|item| item.signed);
        let announced = self.announced.len();
        let items = if announced > 0 { self.announced.iter().cloned().chain(items).collect() } else { items };
        self.write_batch(items, force, receipts).map_err(|error| self.fail(&error))?;
        receipts.drain(..announced.min(receipts.len()));
        self.announced.clear();
        Ok(())
    }

    /// Queues an entry to be written before those of the next commit.
    pub(crate) fn announce(&mut self, item: Item) {
        self.announced.push(item);
    }

    fn fail(&mut self, error: &io::Error) -> AppendError {
        if is_full(error) {
            self.health = Health::Full;
            return AppendError::Full;
        }
        self.health = Health::Sealed(error.to_string());
        AppendError::Io(error.to_string())
    }

    fn write_batch(
        &mut self,
        items: Vec<Item>,
        force_checkpoint: bool,
        receipts: &mut Vec<Receipt>,
    ) -> io::Result<()> {
        self.ensure_segment(items.first().map(|item| item.at_ms))?;
        let mut packed = self.write_payloads(&items)?.into_iter();
        let mut tip = self.tip.clone();
        let mut buffer =
            Vec::with_capacity(items.iter().map(|item| item.prepared.len()).sum::<usize>() + 2048);
        for item in items {
            let seq = tip.size();
            let hash = item.prepared.finish(&tip.prev, seq, packed.next().flatten(), &mut buffer);
            receipts.push(Receipt { lane: self.lane, seq, hash });
            tip.push(hash, item.at_ms);
        }
        let entries = self.entries_since_checkpoint + (tip.size() - self.tip.size());
        let ends_segment = self.segment_bytes() + buffer.len() as u64 >= self.home.options.segment_bytes_max;
        let due = force_checkpoint || ends_segment || entries >= self.home.options.checkpoint_entries_max;
        let signed = due.then(|| self.push_checkpoint(&mut tip, &mut buffer));
        self.write_out(&buffer)?;
        if let Some(witness) = &self.witness {
            witness.renew(tip.size(), tip.frontier.root())?;
        }
        self.tip = tip;
        self.entries_since_checkpoint = if signed.is_some() { 0 } else { entries };
        if let Some(signed) = signed {
            self.checkpoint = Some(signed);
            self.checkpoints_since_index += 1;
        }
        Ok(())
    }

    fn push_checkpoint(&self, tip: &mut Tip, buffer: &mut Vec<u8>) -> (Checkpoint, String) {
        let (body, checkpoint, note) = sign_checkpoint(&tip.frontier, &self.origin, &self.home.key);
        let prepared = Prepared::new(EntryKind::Checkpoint, tip.at_ms, &body);
        let hash = prepared.finish(&tip.prev, tip.size(), None, buffer);
        tip.push(hash, tip.at_ms);
        (checkpoint, note)
    }

    fn segment_bytes(&self) -> u64 {
        self.segment.as_ref().map_or(0, |segment| segment.bytes)
    }

    /// Ensures that there is a segment for entries at `at_ms`. Payloads are removed per segment, so payloads of one time span don't outlive
    /// it because of later ones.
    fn ensure_segment(&mut self, at_ms: Option<i64>) -> io::Result<()> {
        let bytes_max = self.home.options.segment_bytes_max;
        let span = |at_ms: i64| at_ms.div_euclid(self.home.options.segment_span_ms.max(1));
        let is_later = self.leave || at_ms.is_some_and(|at_ms| span(at_ms) > span(self.tip.at_ms));
        if let Some(segment) = &self.segment
            && (self.stay
                || (segment.bytes < bytes_max
                    && segment.pack_bytes < PACK_BYTES_MAX
                    && !segment.pack_closed
                    && !(is_later && segment.pack_bytes > 0)))
        {
            return Ok(());
        }
        // Only a segment that ends in a checkpoint can be completed.
        if self.entries_since_checkpoint > 0 {
            return Ok(());
        }
        self.leave = false;
        let first = self.tip.size();
        let path = segment_path(self.lane, first);
        let storage = &self.home.storage;
        let file = new_file(storage.as_ref(), &path)?;
        if let Some(segment) = &self.segment {
            self.index_due = true;
            self.left.push((segment.first, segment.pack_bytes));
        }
        let pack = None;
        let segment = Segment { first, file, bytes: 0, pack, pack_bytes: 0, pack_closed: false, fresh: true };
        self.segment = Some(segment);
        Ok(())
    }

    /// Packs the payloads of a batch durably. Returns the length of the pack after each item.
    fn write_payloads(&mut self, items: &[Item]) -> io::Result<Vec<Option<u64>>> {
        if items.iter().all(|item| item.payloads.is_empty()) {
            return Ok(Vec::new());
        }
        let (storage, lane) = (self.home.storage.clone(), self.lane);
        let Some(segment) = &mut self.segment else { return Err(io::Error::other("no segment")) };
        if segment.pack_closed {
            return Err(io::Error::other("the pack takes no more payloads"));
        }
        let mut buffer = Vec::new();
        let mut lengths = Vec::with_capacity(items.len());
        for item in items {
            for payload in &item.payloads {
                write_record(payload, self.home.options.payload_key.as_ref(), &mut buffer)
                    .map_err(io::Error::other)?;
            }
            lengths.push((!item.payloads.is_empty()).then_some(segment.pack_bytes + buffer.len() as u64));
        }
        let new = segment.pack.is_none();
        let pack = match &mut segment.pack {
            Some(pack) => pack,
            none => none.insert(new_file(storage.as_ref(), &pack_path(lane, segment.first))?),
        };
        pack.append(&buffer)?;
        pack.sync()?;
        pack.confirm()?;
        if new {
            // The pack's name must be durable before an entry refers to it.
            storage.sync_folder(&lane_folder(lane))?;
        }
        segment.pack_bytes += buffer.len() as u64;
        Ok(lengths)
    }

    fn write_out(&mut self, buffer: &[u8]) -> io::Result<()> {
        let Some(segment) = &mut self.segment else { return Err(io::Error::other("no segment")) };
        segment.file.append(buffer)?;
        segment.file.sync()?;
        segment.file.confirm()?;
        if std::mem::take(&mut segment.fresh) {
            self.home.storage.sync_folder(&lane_folder(self.lane))?;
        }
        segment.bytes += buffer.len() as u64;
        self.acknowledged = (segment.first, segment.bytes);
        Ok(())
    }

    /// Leaves a lane whose disk was full, for a new lane that settles its end.
    fn leave_lane(&mut self, at_ms: i64) -> Result<(), AppendError> {
        let mut next = self
            .settle()
            .and_then(|recovery| {
                let beginning = Beginning { recoveries: &[recovery], ..Beginning::default() };
                LaneWriter::create(self.home.clone(), at_ms, beginning)
            })
            .map_err(|error| self.fail(&error))?;
        // Announced entries that are not written yet come before the first entry there.
        next.announced = std::mem::take(&mut self.announced);
        *self = next;
        Ok(())
    }

    /// Describes the tail that the failed write left after the last acknowledged entry.
    fn settle(&mut self) -> io::Result<RecoveryBody> {
        self.segment = None;
        let storage = self.home.storage.as_ref();
        let (acknowledged_first, acknowledged_bytes) = self.acknowledged;
        let mut tail = Vec::new();
        for first in segments(storage, self.lane)? {
            let from = if first == acknowledged_first { acknowledged_bytes } else { 0 };
            if first == acknowledged_first || first >= self.tip.size() {
                // The tail must not change after it was described, not even by a power cut.
                storage.appender(&segment_path(self.lane, first), Existing::Required)?.sync()?;
                let mut bytes = Vec::new();
                storage.read(&segment_path(self.lane, first), from, u64::MAX, &mut bytes)?;
                tail.append(&mut bytes);
            }
        }
        storage.sync_folder(&lane_folder(self.lane))?;
        let route = Route { lane: self.lane, origin: &self.origin, proven: None, known: &[] };
        let walk = Walk::through(&tail, self.tip.clone(), route);
        Ok(RecoveryBody {
            entries: walk.entries(&self.tip),
            lane: self.lane,
            proven: self.tip.size(),
            root: self.tip.frontier.root(),
            tail_bytes: tail.len() as u64,
            tail_sha256: Digest::compute(&tail),
            torn_bytes: (tail.len() - walk.whole_bytes) as u64,
            refused: true,
        })
    }

    /// Updates the index when due. The index may lag, so a busy or failing disk only delays the update. An invalid index means tampering
    /// and seals the lane.
    pub(crate) fn upkeep(&mut self) {
        self.index_due |= self.checkpoints_since_index >= self.home.options.index_checkpoints_max;
        if !self.index_due || !matches!(self.health, Health::Sound) {
            return;
        }
        match self.renew_index(1) {
            Ok(()) => {}
            Err(IndexError::Busy | IndexError::Io(_)) => {
                self.checkpoints_since_index = 0;
                self.index_due = false;
            }
            Err(error @ (IndexError::Broken(_) | IndexError::WrongKey)) => {
                self.health = Health::Sealed(error.to_string());
            }
        }
    }

    /// The lane's anchor for the index.
    pub(crate) fn anchor(&self) -> Option<(LaneId, Anchor)> {
        let (checkpoint, _) = self.checkpoint.as_ref()?;
        let anchor = Anchor { key: self.home.key.public(), size: checkpoint.size, root: checkpoint.root };
        Some((self.lane, anchor))
    }

    fn renew_index(&mut self, lock_tries: u32) -> Result<(), IndexError> {
        let Some((lane, anchor)) = self.anchor() else { return Ok(()) };
        let Home { storage, key, options, ledger } = &self.home;
        Index::update(storage.as_ref(), key, options.witness.as_deref(), lock_tries, |index| {
            index.anchor(lane, anchor);
            // This process wrote these segments, so the next opening need not read them again.
            let sight = |(first, pack): &(u64, u64)| -> Option<(u64, Sight)> {
                let stat = storage.stat(&segment_path(lane, *first)).ok().flatten()?;
                Some((*first, Sight { stat, pack_bytes: Some(*pack) }))
            };
            let sights: Vec<(u64, Sight)> = self.left.iter().filter_map(sight).collect();
            if !sights.is_empty() {
                let mut seen = Seen::load(storage.as_ref(), ledger, key.public());
                sights.into_iter().for_each(|(first, sight)| seen.set(lane, first, sight));
                seen.store(storage.as_ref(), ledger, key);
            }
        })?;
        self.left.clear();
        self.checkpoints_since_index = 0;
        self.index_due = false;
        Ok(())
    }

    /// Signs entries without a checkpoint, updates the index and releases the lane.
    pub(crate) fn close(&mut self) -> Result<(), AppendError> {
        let result = match &self.health {
            Health::Closed => return Ok(()),
            Health::Sealed(why) => Err(AppendError::Sealed(why.clone())),
            // If there is space again, the tail of the failed write is settled now rather than later.
            Health::Full => self.leave_lane(self.tip.at_ms).and_then(|()| self.finish()),
            Health::Sound => self.finish(),
        };
        self.health = Health::Closed;
        self.segment = None;
        self.lock = None;
        result
    }

    fn finish(&mut self) -> Result<(), AppendError> {
        if self.entries_since_checkpoint > 0 {
            self.write_batch(Vec::new(), true, &mut Vec::new()).map_err(|error| self.fail(&error))?;
        }
        self.renew_index(PATIENT_TRIES).map_err(|error| AppendError::Io(error.to_string()))
    }

    /// Rotates the lane's key: the old key signs the entry that names the new one.
    pub(crate) fn change_key(&mut self, key: LedgerKey, at_ms: i64) -> Result<(), AppendError> {
        let body = KeyBody { key: key.public().vkey(&self.origin) };
        let item = Item::internal(EntryKind::Key, at_ms, &body).map_err(|error| self.fail(&error))?;
        self.commit(vec![item], &mut Vec::new())?;
        let old = std::mem::replace(&mut self.home.key, key);
        let witness = self.home.options.witness.clone();
        let storage = self.home.storage.clone();
        let result = crate::index::lock(storage.as_ref(), PATIENT_TRIES).and_then(|_lock| {
            let (mut index, _) =
                Index::load(storage.as_ref(), &[old.public()])?.ok_or(IndexError::WrongKey)?;
            index.retired.push(old.public());
            index.store(storage.as_ref(), &self.home.key, witness.as_deref())
        });
        result.map_err(|error| self.fail(&io::Error::other(error.to_string())))
    }

    /// Lane, size and last hash.
    pub(crate) fn position(&self) -> (LaneId, u64, Digest) {
        (self.lane, self.tip.size(), self.tip.prev)
    }

    /// The last signed checkpoint.
    pub(crate) fn note(&self) -> Option<String> {
        self.checkpoint.as_ref().map(|(_, note)| note.clone())
    }
}
