//! Reads a ledger: all entries in order, the last ones, one entry, or a proof.
//!
//! Readers see the current state on disk while other processes write. Within a lane, entries are in chain order whatever their timestamps.
//! Lanes are merged by time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use memchr::memmem;

use crate::chain::KnownTip;
use crate::index::{Index, IndexError};
use crate::internal::{RecoveryBody, ResumeBody};
use crate::lane::{SEGMENT_BYTES_CAP, read_head};
use crate::layout::{lanes, segment_path, segments};
use crate::line::Line;
use crate::packs::Packs;
use crate::storage::{Files, Storage};
use crate::witness::Witnessed;
use crate::{Digest, Entry, EntryKind, LaneId};

/// Why something can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The storage failed.
    #[error("can't read the ledger")]
    Io(#[from] io::Error),
    /// An entry is not the one that belongs at this position; `verify` reports details.
    #[error("`{file}` line {line} is not the entry that should be there")]
    Broken {
        /// The segment.
        file: String,
        /// The line, from 1.
        line: u64,
    },
    /// A payload doesn't match its digest, or the key to it is missing or wrong.
    #[error("payload `{0}` is damaged, or its key is missing")]
    Payload(Digest),
    /// The entry doesn't exist, or no checkpoint covers it yet.
    #[error("lane {lane} has no proven entry {seq}")]
    NoEntry {
        /// The lane.
        lane: LaneId,
        /// The entry.
        seq: u64,
    },
    /// There is no ledger there, or its index can't be read.
    #[error("no readable ledger: {0}")]
    NoLedger(String),
    /// The destination isn't empty.
    #[error("`{0}` is not empty")]
    NotEmpty(String),
}

impl From<IndexError> for ReadError {
    fn from(error: IndexError) -> ReadError {
        match error {
            IndexError::Io(error) => ReadError::Io(error),
            IndexError::Busy | IndexError::Broken(_) | IndexError::WrongKey => {
                ReadError::NoLedger(error.to_string())
            }
        }
    }
}

/// All entries of the ledger in a folder, merged by time. An error that affects the entire ledger is the only item.
pub fn entries(root: &Path) -> impl Iterator<Item = Result<Entry, ReadError>> {
    match Reader::new(root).entries() {
        Ok(merged) => Either::Entries(merged),
        Err(error) => Either::Failed(Some(error)),
    }
}

enum Either {
    Entries(Merged),
    Failed(Option<ReadError>),
}

impl Iterator for Either {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Either::Entries(merged) => merged.next(),
            Either::Failed(error) => error.take().map(Err),
        }
    }
}

/// Reads a ledger without writing to it.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(crate) storage: Arc<dyn Storage>,
    settled: Arc<Mutex<SettledLanes>>,
    pub(crate) packs: Arc<Mutex<Packs>>,
}

/// Settled tails of the lanes read so far.
#[derive(Debug, Default)]
struct SettledLanes {
    read: BTreeSet<LaneId>,
    ends: Arc<BTreeMap<LaneId, Settled>>,
}

/// How a recovery entry settled the end of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settled {
    /// Entries that remain valid.
    pub(crate) proven: u64,
    /// The writer reported the rest as not recorded.
    pub(crate) refused: bool,
}

impl Reader {
    /// A reader of the ledger in a folder.
    pub fn new(root: &Path) -> Reader {
        Reader::on(Arc::new(Files::new(root)))
    }

    /// A reader of the ledger in a storage.
    pub fn on(storage: Arc<dyn Storage>) -> Reader {
        Reader { storage, settled: Arc::default(), packs: Arc::default() }
    }

    /// All lanes.
    pub fn lanes(&self) -> Result<Vec<LaneId>, ReadError> {
        Ok(lanes(self.storage.as_ref())?)
    }

    /// All entries, merged by time.
    pub fn entries(&self) -> Result<Merged, ReadError> {
        let settled = self.settled()?;
        let mut merged = Merged { lanes: Vec::new() };
        for lane in self.lanes()? {
            let entries = self.lane_from(lane, 0, settled.get(&lane).copied())?;
            merged.lanes.push(entries.peekable());
        }
        Ok(merged)
    }

    /// The entries of one lane in order, including checkpoints and other internal entries.
    pub fn lane(&self, lane: LaneId) -> Result<LaneEntries, ReadError> {
        let settled = self.settled()?.get(&lane).copied();
        self.lane_from(lane, 0, settled)
    }

    /// The entries of one lane from a position on.
    pub fn lane_since(&self, lane: LaneId, seq: u64) -> Result<LaneEntries, ReadError> {
        let firsts = segments(self.storage.as_ref(), lane)?;
        let position = firsts.partition_point(|first| *first <= seq).saturating_sub(1);
        let settled = self.settled()?.get(&lane).copied();
        Ok(LaneEntries { since: seq, ..self.lane_from(lane, position, settled)? })
    }

    /// The last entries of the ledger, without internal entries, oldest first.
    pub fn tail(&self, count: usize) -> Result<Vec<Entry>, ReadError> {
        self.tail_of(count, |kind| !kind.is_internal())
    }

    /// The last entries of the ledger whose kind is wanted, oldest first.
    pub fn tail_of(&self, count: usize, wanted: impl Fn(EntryKind) -> bool) -> Result<Vec<Entry>, ReadError> {
        let settled = self.settled()?;
        let mut all: Vec<Vec<Entry>> = Vec::new();
        for lane in self.lanes()? {
            let mut found: Vec<Entry> = Vec::new();
            for position in (0..segments(self.storage.as_ref(), lane)?.len()).rev() {
                let mut entries = self.lane_from(lane, position, settled.get(&lane).copied())?;
                entries.segments.truncate(position + 1);
                let mut here: Vec<Entry> = entries
                    .filter(|entry| entry.as_ref().map_or(true, |entry| wanted(entry.kind)))
                    .collect::<Result<_, _>>()?;
                here.append(&mut found);
                found = here;
                if found.len() >= count {
                    break;
                }
            }
            all.push(found.split_off(found.len().saturating_sub(count)));
        }
        let mut merged: Vec<Entry> = merge(all);
        Ok(merged.split_off(merged.len().saturating_sub(count)))
    }

    /// One entry.
    pub fn get(&self, lane: LaneId, seq: u64) -> Result<Option<Entry>, ReadError> {
        let entry = self.lane_since(lane, seq)?.next().transpose()?;
        Ok(entry.filter(|entry| entry.seq == seq))
    }

    /// The tails that recovery entries settled.
    pub(crate) fn settled(&self) -> Result<Arc<BTreeMap<LaneId, Settled>>, ReadError> {
        let lanes = self.lanes()?;
        let mut known = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        // A lane is settled in the first batch of a newer lane, so the cached state of older lanes stays valid.
        for lane in lanes.into_iter().filter(|lane| !known.read.contains(lane)).collect::<Vec<_>>() {
            let head = read_head(self.storage.as_ref(), lane)?;
            // A lane without a first batch is read again later.
            if head.key.is_some() {
                known.read.insert(lane);
            }
            let ends = Arc::make_mut(&mut known.ends);
            for RecoveryBody { lane, proven, refused, .. } in head.recoveries {
                ends.insert(lane, Settled { proven, refused });
            }
        }
        Ok(known.ends.clone())
    }

    fn lane_from(
        &self,
        lane: LaneId,
        position: usize,
        settled: Option<Settled>,
    ) -> Result<LaneEntries, ReadError> {
        Ok(LaneEntries {
            storage: self.storage.clone(),
            lane,
            segments: segments(self.storage.as_ref(), lane)?,
            position,
            settled,
            bytes: Vec::new(),
            at: 0,
            line: 0,
            proven_bytes: 0,
            unvouched: Vec::new(),
            before: None,
            since: 0,
            kinds: None,
            done: false,
        })
    }
}

/// Iterator over the entries of one lane, starting at some segment.
#[derive(Debug)]
pub struct LaneEntries {
    storage: Arc<dyn Storage>,
    lane: LaneId,
    segments: Vec<u64>,
    /// The next segment to load.
    position: usize,
    settled: Option<Settled>,
    bytes: Vec<u8>,
    at: usize,
    line: u64,
    proven_bytes: usize,
    /// Ranges of unvouched entries in the segment.
    unvouched: Vec<Range<u64>>,
    /// Position and hash of the previous entry.
    before: Option<(u64, Digest)>,
    /// Entries before this position are skipped.
    since: u64,
    /// Entries of other kinds are skipped.
    kinds: Option<&'static [EntryKind]>,
    done: bool,
}

impl LaneEntries {
    /// Skips all other kinds of entries without parsing them. Their links are still verified.
    #[must_use]
    pub fn only(self, kinds: &'static [EntryKind]) -> LaneEntries {
        LaneEntries { kinds: Some(kinds), ..self }
    }

    /// Loads the next segment; `false` if there is none.
    fn load(&mut self) -> io::Result<bool> {
        let Some(first) = self.segments.get(self.position) else { return Ok(false) };
        self.storage.read(&segment_path(self.lane, *first), 0, SEGMENT_BYTES_CAP, &mut self.bytes)?;
        (self.position, self.at, self.line) = (self.position + 1, 0, 0);
        (self.proven_bytes, self.unvouched) = ends(&self.bytes);
        Ok(true)
    }

    fn read(&mut self) -> Result<Read, ReadError> {
        while self.at >= self.bytes.len() {
            if !self.load()? {
                return Ok(Read::End);
            }
        }
        self.line += 1;
        let broken = || {
            let first = self.segments.get(self.position - 1).copied().unwrap_or(0);
            ReadError::Broken { file: segment_path(self.lane, first), line: self.line }
        };
        let in_tail = self.at >= self.proven_bytes
            || self.settled.zip(self.before).is_some_and(|(settled, (seq, _))| seq + 1 >= settled.proven);
        let Some(line) = Line::parse(self.bytes.get(self.at..).unwrap_or_default()) else {
            // A torn line after a crash is not an entry.
            return if in_tail { Ok(Read::End) } else { Err(broken()) };
        };
        if self.before.is_some_and(|(seq, hash)| line.seq != seq + 1 || line.prev != hash) {
            return if in_tail { Ok(Read::End) } else { Err(broken()) };
        }
        let hash = line.hash();
        let (at, length) = (self.at, line.bytes.len() + 1);
        let passed_over =
            line.seq < self.since || self.kinds.is_some_and(|kinds| !kinds.contains(&line.kind));
        if passed_over {
            (self.at, self.before) = (at + length, Some((line.seq, hash)));
            return Ok(Read::PassedOver);
        }
        let ends =
            ProofState { settled: self.settled, proven: at < self.proven_bytes, unvouched: &self.unvouched };
        let entry = ends.entry(self.lane, &line, hash).ok_or_else(broken)?;
        (self.at, self.before) = (at + length, Some((entry.seq, hash)));
        Ok(Read::Entry(Box::new(entry)))
    }
}

/// The next item of a lane.
enum Read {
    Entry(Box<Entry>),
    PassedOver,
    End,
}

/// The state that decides whether an entry is proven.
pub(crate) struct ProofState<'a> {
    pub(crate) settled: Option<Settled>,
    /// A checkpoint follows in its segment.
    pub(crate) proven: bool,
    pub(crate) unvouched: &'a [Range<u64>],
}

impl ProofState<'_> {
    /// Parses the entry in a line; `None` if its body isn't JSON.
    pub(crate) fn entry(&self, lane: LaneId, line: &Line<'_>, hash: Digest) -> Option<Entry> {
        // A recovery entry decides which entries remain valid. Without one, the last checkpoint decides.
        let stands = self.settled.map_or(self.proven, |settled| line.seq < settled.proven);
        let refused = self.settled.is_some_and(|settled| settled.refused && line.seq >= settled.proven);
        Some(Entry {
            lane,
            seq: line.seq,
            at_ms: line.at_ms,
            kind: line.kind,
            prev: line.prev,
            hash,
            body: serde_json::from_slice(line.body).ok()?,
            proven: stands && !self.unvouched.iter().any(|range| range.contains(&line.seq)),
            refused,
        })
    }
}

/// The end of a segment's last checkpoint, and the ranges of unvouched entries.
pub(crate) fn ends(bytes: &[u8]) -> (usize, Vec<Range<u64>>) {
    let line_at = |at: usize| {
        let start =
            bytes.get(..at).and_then(|before| memchr::memrchr(b'\n', before)).map_or(0, |end| end + 1);
        Line::parse(bytes.get(start..).unwrap_or_default()).map(|line| (start, line))
    };
    let mut proven = 0;
    for at in memmem::rfind_iter(bytes, br#""kind":"checkpoint""#) {
        if let Some((start, line)) = line_at(at).filter(|(_, line)| line.kind == EntryKind::Checkpoint) {
            proven = start + line.bytes.len() + 1;
            break;
        }
    }
    let resumed = memmem::find_iter(bytes, br#""kind":"resume""#).filter_map(|at| {
        let (_, line) = line_at(at).filter(|(_, line)| line.kind == EntryKind::Resume)?;
        let body = serde_json::from_slice::<ResumeBody>(line.body).ok()?;
        Some(body.proven..line.seq)
    });
    (proven, resumed.collect())
}

impl Iterator for LaneEntries {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        loop {
            match self.read() {
                Ok(Read::PassedOver) => {}
                Ok(Read::Entry(entry)) => return Some(Ok(*entry)),
                Ok(Read::End) => {
                    self.done = true;
                    return None;
                }
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The entries of all lanes, merged by time.
#[derive(Debug)]
pub struct Merged {
    lanes: Vec<std::iter::Peekable<LaneEntries>>,
}

impl Iterator for Merged {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut earliest: Option<(usize, (i64, LaneId))> = None;
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let key = match lane.peek() {
                None => continue,
                // Errors first, so that no reader misses one.
                Some(Err(_)) => (i64::MIN, LaneId::FIRST),
                Some(Ok(entry)) => (entry.at_ms, entry.lane),
            };
            if earliest.is_none_or(|(_, least)| key < least) {
                earliest = Some((number, key));
            }
        }
        let (number, _) = earliest?;
        self.lanes.get_mut(number)?.next()
    }
}

/// Merges lanes by time, keeping the order within each.
fn merge(lanes: Vec<Vec<Entry>>) -> Vec<Entry> {
    let mut heads: Vec<_> = lanes.into_iter().map(|lane| lane.into_iter().peekable()).collect();
    let mut merged = Vec::new();
    loop {
        let earliest = heads
            .iter_mut()
            .enumerate()
            .filter_map(|(number, lane)| lane.peek().map(|entry| ((entry.at_ms, entry.lane), number)))
            .min();
        let Some((_, number)) = earliest else { return merged };
        merged.extend(heads.get_mut(number).and_then(Iterator::next));
    }
}

/// What the index and the witness record about a lane, for comparison.
pub(crate) fn known(index: &Index, witnessed: Option<&Witnessed>, lane: LaneId) -> Vec<KnownTip> {
    let anchor = index.lanes.get(&lane).map(|anchor| KnownTip::anchored(anchor.size, anchor.root));
    let head = witnessed.and_then(|witnessed| witnessed.lanes.get(&lane));
    anchor.into_iter().chain(head.map(|head| KnownTip::witnessed(head.size, head.root))).collect()
}
