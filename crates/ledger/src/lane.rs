//! One lane on disk: its segments, the result of walking each, and how the lane ends.

use std::io;

use crate::chain::{KnownTip, Route, Walk, is_explained_by_a_crash};
use crate::internal::{EraseBody, LaneBody, RecoveryBody, Tip};
use crate::layout::{segment_path, segments};
use crate::line::{LINE_BYTES_MAX, Line};
use crate::note::Checkpoint;
use crate::storage::Storage;
use crate::why::{Break, Defect};
use crate::{Digest, EntryKind, LaneId, PublicKey};

/// Maximum segment length to read, far beyond the size at which writers rotate.
pub(crate) const SEGMENT_BYTES_CAP: u64 = 1 << 30;
/// A checkpoint is much shorter, so a longer last line is not a checkpoint.
const LAST_LINE_WINDOW_BYTES: u64 = 64 << 10;
/// Maximum size of the first batch of a lane: its first entry, recoveries, a checkpoint.
const HEAD_BYTES_MAX: u64 = 4 << 20;

/// What is known of a lane before a walk.
#[derive(Debug, Clone)]
pub(crate) struct LanePlan {
    pub(crate) lane: LaneId,
    pub(crate) origin: String,
    pub(crate) segments: Vec<u64>,
    /// The recovery entry of another lane that settled this lane's end.
    pub(crate) settled: Option<RecoveryBody>,
    pub(crate) known: Vec<KnownTip>,
    /// A writer holds the lane, so a write may be in progress.
    pub(crate) live: bool,
}

impl LanePlan {
    pub(crate) fn new(storage: &dyn Storage, lane: LaneId, origin: String) -> io::Result<LanePlan> {
        let segments = segments(storage, lane)?;
        Ok(LanePlan { lane, origin, segments, settled: None, known: Vec::new(), live: false })
    }

    fn broken(&self, position: usize, seq: Option<u64>, line: Option<u64>, why: Defect) -> Break {
        let first = self.segments.get(position).copied().unwrap_or(0);
        Break { lane: Some(self.lane), seq, file: segment_path(self.lane, first), line, why }
    }

    /// The tip at the start of a segment, taken from the end of the previous one.
    pub(crate) fn start(&self, storage: &dyn Storage, position: usize) -> io::Result<Option<Tip>> {
        let Some(before) = position.checked_sub(1) else { return Ok(Some(Tip::start(&self.origin))) };
        Ok(self.end(storage, before)?.map(|end| end.tip))
    }

    /// The checkpoint at the end of a segment.
    fn end(&self, storage: &dyn Storage, position: usize) -> io::Result<Option<SegmentEnd>> {
        let Some(first) = self.segments.get(position) else { return Ok(None) };
        last_checkpoint(storage, self.lane, *first, &self.origin)
    }

    /// Whether a segment must be walked because a known state lies inside it.
    pub(crate) fn must_be_compared(&self, storage: &dyn Storage, position: usize) -> io::Result<bool> {
        let first = self.segments.get(position).copied().unwrap_or(0);
        let next = self.segments.get(position + 1).copied().unwrap_or(u64::MAX);
        let mut within =
            self.known.iter().filter(|known| known.size > first && known.size <= next).peekable();
        if within.peek().is_none() {
            return Ok(false);
        }
        Ok(self.end(storage, position)?.is_none_or(|end| within.any(|known| end.states(known).is_none())))
    }

    /// Walks one segment.
    pub(crate) fn walk(
        &self,
        storage: &dyn Storage,
        position: usize,
        start: Tip,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Piece> {
        let first = self.segments.get(position).copied().unwrap_or(0);
        let path = segment_path(self.lane, first);
        if storage.stat(&path)?.is_some_and(|stat| stat.bytes > SEGMENT_BYTES_CAP) {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("`{path}` is too large")));
        }
        storage.read(&path, 0, SEGMENT_BYTES_CAP, buffer)?;
        Ok(self.walk_bytes(buffer, start))
    }

    /// Walks the bytes of a segment.
    pub(crate) fn walk_bytes(&self, bytes: &[u8], start: Tip) -> Piece {
        let proven = self.settled.as_ref().map(|settled| settled.proven);
        let route = Route { lane: self.lane, origin: &self.origin, proven, known: &self.known };
        let walk = Walk::through(bytes, start, route);
        let tail = bytes.get(walk.proven_bytes..).unwrap_or_default();
        let tail = (!tail.is_empty()).then(|| Tail {
            entries: walk.unproven,
            torn_bytes: (bytes.len() - walk.whole_bytes) as u64,
            bytes: tail.len() as u64,
            sha256: Digest::compute(tail),
        });
        let explained = is_explained_by_a_crash(bytes, &walk);
        Piece { walk, tail, explained }
    }
}

/// The checkpoint at the end of a segment.
pub(crate) struct SegmentEnd {
    pub(crate) tip: Tip,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) note: String,
}

impl SegmentEnd {
    /// Whether the segment's end confirms a known state; `None` if it can't decide.
    fn states(&self, known: &KnownTip) -> Option<bool> {
        if known.size == self.checkpoint.size {
            return Some(known.root == self.checkpoint.root);
        }
        (known.size == self.tip.size()).then(|| known.root == self.tip.frontier.root())
    }
}

/// Reads the last line of a segment, if it is a checkpoint.
pub(crate) fn last_checkpoint(
    storage: &dyn Storage,
    lane: LaneId,
    first: u64,
    origin: &str,
) -> io::Result<Option<SegmentEnd>> {
    let path = segment_path(lane, first);
    let Some(stat) = storage.stat(&path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    let from = stat.bytes.saturating_sub(LAST_LINE_WINDOW_BYTES);
    storage.read(&path, from, stat.bytes - from, &mut bytes)?;
    let Some((_, before)) = bytes.split_last() else { return Ok(None) };
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let last = bytes.get(start..).unwrap_or_default();
    let Some(line) = Line::parse(last).filter(|line| line.bytes.len() + 1 == last.len()) else {
        return Ok(None);
    };
    let note = crate::internal::note_of(line.body);
    Ok(Tip::after_checkpoint(&line, origin).zip(note).map(|((tip, checkpoint), note)| SegmentEnd {
        tip,
        checkpoint,
        note,
    }))
}

/// The first batch of a lane.
#[derive(Debug, Default)]
pub(crate) struct LaneHead {
    pub(crate) key: Option<PublicKey>,
    pub(crate) recoveries: Vec<RecoveryBody>,
}

/// Reads the first batch of a lane. Only entries under a checkpoint count; the walk verifies them.
pub(crate) fn read_head(storage: &dyn Storage, lane: LaneId) -> io::Result<LaneHead> {
    let path = segment_path(lane, 0);
    let mut bytes = Vec::new();
    if storage.stat(&path)?.is_none() {
        return Ok(LaneHead::default());
    }
    let mut window = 4096;
    loop {
        storage.read(&path, 0, window, &mut bytes)?;
        let (head, whole) = parse_head(&bytes);
        if whole || (bytes.len() as u64) < window || window >= HEAD_BYTES_MAX {
            return Ok(if whole { head } else { LaneHead::default() });
        }
        window *= 16;
    }
}

fn parse_head(bytes: &[u8]) -> (LaneHead, bool) {
    let mut head = LaneHead::default();
    let mut rest = bytes;
    while let Some(line) = Line::parse(rest.get(..rest.len().min(LINE_BYTES_MAX)).unwrap_or_default()) {
        match line.kind {
            EntryKind::Lane => {
                let body = serde_json::from_slice::<LaneBody>(line.body).ok();
                head.key = body.and_then(|body| PublicKey::from_vkey(&body.key).ok()).map(|(_, key)| key);
            }
            EntryKind::Recovery => head.recoveries.extend(serde_json::from_slice::<RecoveryBody>(line.body)),
            EntryKind::Checkpoint => return (head, true),
            EntryKind::Intent
            | EntryKind::Outcome
            | EntryKind::Answer
            | EntryKind::Agent
            | EntryKind::Policy
            | EntryKind::Kernel
            | EntryKind::Key
            | EntryKind::Erase
            | EntryKind::Pack
            | EntryKind::Resume => return (head, false),
        }
        rest = rest.get(line.bytes.len() + 1..).unwrap_or_default();
    }
    (head, false)
}

/// The result of walking one segment.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) walk: Walk,
    pub(crate) tail: Option<Tail>,
    explained: bool,
}

/// The bytes after the last checkpoint of a lane.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Tail {
    /// Complete entries.
    pub entries: u64,
    /// Bytes after the last complete entry.
    pub torn_bytes: u64,
    /// All bytes.
    pub bytes: u64,
    /// Digest of all bytes.
    pub sha256: Digest,
}

/// How a lane ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LaneEnd {
    /// The lane has no entries.
    Empty,
    /// In a checkpoint.
    Clean,
    /// In a write in progress.
    Live,
    /// In a tail that a recovery entry accounts for.
    Settled,
    /// In bytes that a crash explains and no entry accounts for.
    Unproven(Tail),
    /// Verification failed.
    Broken(Break),
}

/// The result of walking a lane.
#[derive(Debug)]
pub(crate) struct LaneState {
    pub(crate) lane: LaneId,
    pub(crate) end: LaneEnd,
    /// Key of the last checkpoint.
    pub(crate) signer: Option<PublicKey>,
    /// Tip after the last checkpoint.
    pub(crate) tip: Tip,
    /// Tip after the last complete entry, whether or not a checkpoint covers it.
    pub(crate) whole: Tip,
    pub(crate) recoveries: Vec<RecoveryBody>,
    pub(crate) erasures: Vec<EraseBody>,
    /// The packs of the walked segments.
    pub(crate) packs: Vec<PackState>,
    /// Unvouched entries, as counted by `resume` entries.
    pub(crate) unvouched: u64,
    pub(crate) clock_steps_back: u64,
}

impl LaneState {
    pub(crate) fn start(plan: &LanePlan) -> LaneState {
        LaneState {
            lane: plan.lane,
            end: LaneEnd::Empty,
            signer: None,
            tip: Tip::start(&plan.origin),
            whole: Tip::start(&plan.origin),
            unvouched: 0,
            recoveries: Vec::new(),
            erasures: Vec::new(),
            packs: Vec::new(),
            clock_steps_back: 0,
        }
    }
}

/// What the entries of a segment record about its pack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackState {
    /// The segment's first entry.
    pub(crate) first: u64,
    /// Total length of the payloads that entries name.
    pub(crate) recorded: u64,
    /// Length including bytes that a crash left at its end, if an entry records it.
    pub(crate) found: Option<u64>,
}

/// Which keys may sign a lane.
#[derive(Debug, Clone)]
pub(crate) enum KeyRing {
    /// One of these keys must have started the lane; key entries lead on from there.
    StartedBy(Vec<PublicKey>),
    /// Any of these keys, because parts of the lane were not walked again.
    Any(Vec<PublicKey>),
}

impl LanePlan {
    /// Combines the walked segments of a lane. `None` stands for an unchanged segment that was verified before.
    pub(crate) fn judge(
        &self,
        storage: &dyn Storage,
        pieces: Vec<Option<Piece>>,
        keys: &KeyRing,
    ) -> io::Result<LaneState> {
        let mut state = LaneState::start(self);
        if self.segments.is_empty() {
            if let Some(known) = self.known.iter().find(|known| known.size > 0) {
                state.end = LaneEnd::Broken(self.shorter(0, known));
            }
            return Ok(state);
        }
        let mut signatures = Signatures::new(keys);
        let (walked, last) = (pieces.len(), self.segments.len().saturating_sub(1));
        for (position, piece) in pieces.into_iter().enumerate() {
            if let Some(broken) = self.gap(&state, position) {
                state.end = LaneEnd::Broken(broken);
                return Ok(state);
            }
            let checked = match piece {
                Some(piece) => self.take(&mut state, &mut signatures, piece, (position, position == last)),
                None => self.skip(storage, &mut state, position)?,
            };
            if let Err(broken) = checked {
                state.end = LaneEnd::Broken(broken);
                return Ok(state);
            }
        }
        if walked <= last {
            // The next segment has no tip to start from.
            let position = walked.saturating_sub(1);
            state.end = LaneEnd::Broken(self.broken(position, None, None, Defect::OpenSegment));
            return Ok(state);
        }
        state.signer = signatures.current;
        if let LaneEnd::Empty = state.end {
            state.end = LaneEnd::Clean;
        }
        let found = |known: &KnownTip| if known.unsigned { state.whole.size() } else { state.tip.size() };
        if let Some(known) = self.known.iter().find(|known| known.size > found(known)) {
            state.end = LaneEnd::Broken(self.shorter(found(known), known));
        }
        Ok(state)
    }

    /// Reports a next segment that doesn't start where the previous one ends.
    fn gap(&self, state: &LaneState, position: usize) -> Option<Break> {
        let expected = state.tip.size();
        let first = self.segments.get(position).copied()?;
        (first != expected)
            .then(|| self.broken(position, Some(expected), None, Defect::MissingSegment { expected }))
    }

    fn shorter(&self, found: u64, known: &KnownTip) -> Break {
        let why = Defect::Shorter { from: known.from, expected: known.size, found };
        self.broken(self.segments.len().saturating_sub(1), Some(found), None, why)
    }

    fn skip(
        &self,
        storage: &dyn Storage,
        state: &mut LaneState,
        position: usize,
    ) -> io::Result<Result<(), Break>> {
        let Some(end) = self.end(storage, position)? else {
            return Ok(Err(self.broken(position, None, None, Defect::OpenSegment)));
        };
        if let Some(known) = self.known.iter().find(|known| end.states(known) == Some(false)) {
            let why = Defect::Root { from: known.from, size: known.size };
            return Ok(Err(self.broken(position, Some(known.size.saturating_sub(1)), None, why)));
        }
        state.tip = end.tip;
        state.whole = state.tip.clone();
        Ok(Ok(()))
    }

    /// Adds the result of walking one segment.
    pub(crate) fn take(
        &self,
        state: &mut LaneState,
        signatures: &mut Signatures<'_>,
        piece: Piece,
        (position, last): (usize, bool),
    ) -> Result<(), Break> {
        let Piece { walk, tail, explained } = piece;
        let stopped = || {
            walk.stop.as_ref().map_or_else(
                || self.broken(position, Some(walk.proven.size()), None, Defect::OpenSegment),
                |stop| self.broken(position, Some(stop.seq), Some(stop.line), stop.why.clone()),
            )
        };
        if tail.is_some() && (!last || (self.settled.is_none() && !explained)) {
            return Err(stopped());
        }
        signatures.check(&walk).map_err(|(seq, why)| self.broken(position, Some(seq), None, why))?;
        if last {
            state.end = self
                .end_of(&walk, tail)
                .map_err(|why| self.broken(position, Some(walk.proven.size()), None, why))?;
        }
        let first = self.segments.get(position).copied().unwrap_or(0);
        let (recorded, found) = (walk.pack_bytes, walk.pack_bytes_found);
        state.packs.push(PackState { first, recorded, found });
        state.unvouched += walk.unvouched;
        state.clock_steps_back += walk.clock_steps_back;
        // Recoveries are in a lane's first batch. Without a checkpoint after them they settle nothing.
        if walk.proven.size() > 0 {
            state.recoveries.extend(walk.recoveries);
        }
        state.erasures.extend(walk.erasures);
        state.whole = walk.whole;
        state.tip = walk.proven;
        Ok(())
    }

    fn end_of(&self, walk: &Walk, tail: Option<Tail>) -> Result<LaneEnd, Defect> {
        let Some(settled) = &self.settled else {
            return Ok(match tail {
                None => LaneEnd::Clean,
                Some(_) if self.live => LaneEnd::Live,
                Some(tail) => LaneEnd::Unproven(tail),
            });
        };
        let (bytes, sha256) = tail.map_or((0, Digest::compute(b"")), |tail| (tail.bytes, tail.sha256));
        let same = walk.proven.size() == settled.proven
            && walk.proven.frontier.root() == settled.root
            && bytes == settled.tail_bytes
            && sha256 == settled.tail_sha256;
        if same { Ok(LaneEnd::Settled) } else { Err(Defect::SettledTail) }
    }
}

/// Follows a lane's keys from checkpoint to checkpoint.
pub(crate) struct Signatures<'a> {
    keys: &'a KeyRing,
    current: Option<PublicKey>,
    next: Option<PublicKey>,
}

impl<'a> Signatures<'a> {
    pub(crate) fn new(keys: &'a KeyRing) -> Signatures<'a> {
        Signatures { keys, current: None, next: None }
    }

    fn check(&mut self, walk: &Walk) -> Result<(), (u64, Defect)> {
        if let Some(first) = walk.first_key {
            let (KeyRing::StartedBy(keys) | KeyRing::Any(keys)) = self.keys;
            if !keys.contains(&first) {
                return Err((0, Defect::UntrustedKey));
            }
            self.current = Some(first);
        }
        let mut announced = walk.keys.iter().peekable();
        for (seq, note) in &walk.signed {
            while let Some((_, key)) = announced.next_if(|(at, _)| at < seq) {
                self.next = Some(*key);
            }
            let ring: Vec<PublicKey> = match self.keys {
                KeyRing::StartedBy(_) => self.current.into_iter().collect(),
                KeyRing::Any(keys) => keys.clone(),
            };
            match Checkpoint::open(note, &ring) {
                Ok((_, signer)) => self.current = Some(signer),
                Err(error) => return Err((*seq, Defect::Signature(error.to_string()))),
            }
            self.current = self.next.take().or(self.current);
        }
        Ok(())
    }
}
