//! Walks a segment: verifies every link and every checkpoint's root, and locates the first error.

use crate::canonical::Flaw;
use crate::internal::{
    EraseBody, KeyBody, LaneBody, PackBody, RecoveryBody, ResumeBody, Tip, spell_checkpoint,
};
use crate::line::Line;
use crate::note::Checkpoint;
use crate::why::{Defect, WITNESS};
use crate::{Digest, EntryKind, LaneId, PublicKey};

/// The sector size of a disk: a power cut loses data in units of this size.
const SECTOR_BYTES: usize = 512;
/// Length of the base64 in a signature line: key id and signature.
const SIGNATURE_CHARS: usize = 92;

/// A known state of a lane, to be compared during a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownTip {
    pub(crate) size: u64,
    pub(crate) root: Digest,
    pub(crate) from: &'static str,
    /// Entries count even if no checkpoint covers them yet.
    pub(crate) unsigned: bool,
}

impl KnownTip {
    /// The state that the index records.
    pub(crate) fn anchored(size: u64, root: Digest) -> KnownTip {
        KnownTip { size, root, from: "the index", unsigned: false }
    }

    /// The state that an externally kept checkpoint states.
    pub(crate) fn expected(size: u64, root: Digest) -> KnownTip {
        KnownTip { size, root, from: "the expected checkpoint", unsigned: false }
    }

    /// The state that the witness records.
    pub(crate) fn witnessed(size: u64, root: Digest) -> KnownTip {
        KnownTip { size, root, from: WITNESS, unsigned: true }
    }
}

/// The inputs of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) lane: LaneId,
    pub(crate) origin: &'a str,
    /// Number of proven entries according to a recovery entry; the walk ends there.
    pub(crate) proven: Option<u64>,
    pub(crate) known: &'a [KnownTip],
}

/// Where and why a walk stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WalkError {
    /// Offset of the line in the segment.
    pub(crate) offset: usize,
    /// Line in the segment, from 1.
    pub(crate) line: u64,
    /// The first bad entry.
    pub(crate) seq: u64,
    pub(crate) why: Defect,
}

/// The result of walking one segment.
#[derive(Debug)]
pub(crate) struct Walk {
    /// The tip after the last checkpoint.
    pub(crate) proven: Tip,
    /// Bytes up to that tip.
    pub(crate) proven_bytes: usize,
    /// Complete valid entries after that tip.
    pub(crate) unproven: u64,
    /// Offset after the last complete valid entry.
    pub(crate) whole_bytes: usize,
    /// Where the walk stopped early, if it did.
    pub(crate) stop: Option<WalkError>,
    /// Checkpoints whose signature must be verified: those after a key entry, and the last one.
    pub(crate) signed: Vec<(u64, String)>,
    /// Keys that key entries announce.
    pub(crate) keys: Vec<(u64, PublicKey)>,
    /// The key of a lane's first entry.
    pub(crate) first_key: Option<PublicKey>,
    pub(crate) recoveries: Vec<RecoveryBody>,
    pub(crate) erasures: Vec<EraseBody>,
    /// Length of the pack, as last recorded.
    pub(crate) pack_bytes: u64,
    /// Length of the pack including bytes that a crash left at its end, if an entry records it.
    pub(crate) pack_bytes_found: Option<u64>,
    /// The tip after the last complete valid entry.
    pub(crate) whole: Tip,
    /// Unvouched entries, as counted by `resume` entries.
    pub(crate) unvouched: u64,
    /// Entries whose timestamp is older than that of the previous entry.
    pub(crate) clock_steps_back: u64,
}

impl Walk {
    /// Walks the lines of a segment from a tip.
    pub(crate) fn through(bytes: &[u8], start: Tip, route: Route<'_>) -> Walk {
        let mut walk = Walk {
            proven: start.clone(),
            proven_bytes: 0,
            unproven: 0,
            whole_bytes: 0,
            stop: None,
            signed: Vec::new(),
            keys: Vec::new(),
            first_key: None,
            recoveries: Vec::new(),
            erasures: Vec::new(),
            pack_bytes: 0,
            pack_bytes_found: None,
            whole: start.clone(),
            unvouched: 0,
            clock_steps_back: 0,
        };
        let valid = match std::str::from_utf8(bytes) {
            Ok(_) => bytes,
            Err(error) => bytes.get(..error.valid_up_to()).unwrap_or_default(),
        };
        let mut state = WalkState { tip: start, key_pending: false, last: None };
        let mut line_number = 0;
        while walk.whole_bytes < bytes.len() && route.proven != Some(state.tip.size()) {
            line_number += 1;
            let offset = walk.whole_bytes;
            let rest = valid.get(offset..).unwrap_or_default();
            let stop = |seq, line, why| Some(WalkError { offset, line, seq, why });
            let seq = state.tip.size();
            let Ok(line) = Line::scan(rest) else {
                walk.stop = stop(seq, line_number, Defect::NotAnEntry);
                break;
            };
            let after = rest.get(line.bytes.len() + 1..).unwrap_or_default();
            if let Err((bad, why)) = walk.step(&line, after, &mut state, route) {
                // The previous entry may be the bad one.
                walk.stop = stop(bad, line_number.saturating_sub(seq - bad).max(1), why);
                break;
            }
            walk.whole_bytes = offset + line.bytes.len() + 1;
            if line.kind == EntryKind::Checkpoint {
                walk.proven = state.tip.clone();
                walk.proven_bytes = walk.whole_bytes;
                walk.unproven = 0;
            } else {
                walk.unproven += 1;
            }
        }
        walk.whole = state.tip.clone();
        if route.proven == Some(state.tip.size()) {
            walk.proven = state.tip;
            walk.proven_bytes = walk.whole_bytes;
            walk.unproven = 0;
        }
        walk.signed.extend(state.last.map(|last| last.note(route.origin)));
        walk
    }

    /// Complete valid entries since a tip.
    pub(crate) fn entries(&self, since: &Tip) -> u64 {
        self.proven.size() + self.unproven - since.size()
    }

    /// Verifies one line against the state before it and advances the state.
    fn step<'a>(
        &mut self,
        line: &Line<'a>,
        after: &[u8],
        state: &mut WalkState<'a>,
        route: Route<'_>,
    ) -> Result<(), (u64, Defect)> {
        let seq = state.tip.size();
        if line.seq != seq {
            return Err((seq, Defect::Sequence { expected: seq, found: line.seq }));
        }
        if line.prev != state.tip.prev {
            return Err((blame(line, after, &state.tip, route.origin), Defect::Link));
        }
        match line.kind {
            EntryKind::Intent
            | EntryKind::Outcome
            | EntryKind::Answer
            | EntryKind::Agent
            | EntryKind::Policy
            | EntryKind::Kernel => {
                if seq == 0 {
                    return Err((seq, Defect::Misplaced(line.kind)));
                }
            }
            EntryKind::Checkpoint => self.checkpoint(line, state, route).ok_or((seq, Defect::Checkpoint))?,
            EntryKind::Lane
            | EntryKind::Recovery
            | EntryKind::Key
            | EntryKind::Erase
            | EntryKind::Pack
            | EntryKind::Resume => {
                self.internal(line, state, route).ok_or((seq, Defect::Misplaced(line.kind)))?;
            }
        }
        if let Some(bytes) = line.pack {
            let before = std::mem::replace(&mut self.pack_bytes, bytes);
            if bytes <= before || self.pack_bytes_found.is_some() {
                return Err((seq, Defect::Misplaced(line.kind)));
            }
        }
        if seq > 0 && line.at_ms < state.tip.at_ms {
            self.clock_steps_back += 1;
        }
        state.tip.push(line.hash(), line.at_ms);
        let size = state.tip.size();
        for known in route.known.iter().filter(|known| known.size == size) {
            if state.tip.frontier.root() != known.root {
                return Err((seq, Defect::Root { from: known.from, size }));
            }
        }
        Ok(())
    }

    fn checkpoint<'a>(&mut self, line: &Line<'a>, state: &mut WalkState<'a>, route: Route<'_>) -> Option<()> {
        let root = state.tip.frontier.root();
        let spelled = spell_checkpoint(&state.tip.frontier, &root, route.origin, line.version);
        let signature = line.body.strip_prefix(spelled.as_slice())?.strip_suffix(b"\\n\"}")?;
        if line.at_ms != state.tip.at_ms || signature.len() != SIGNATURE_CHARS || line.seq == 0 {
            return None;
        }
        let signed = Signed { seq: line.seq, root, signature };
        if std::mem::take(&mut state.key_pending) {
            self.signed.push(signed.note(route.origin));
            state.last = None;
        } else {
            state.last = Some(signed);
        }
        Some(())
    }

    fn internal(&mut self, line: &Line<'_>, state: &mut WalkState<'_>, route: Route<'_>) -> Option<()> {
        if (line.kind == EntryKind::Lane) != (line.seq == 0) {
            return None;
        }
        match line.kind {
            EntryKind::Lane => {
                let body: LaneBody = serde_json::from_slice(line.body).ok()?;
                let (name, key) = PublicKey::from_vkey(&body.key).ok()?;
                self.first_key = Some(key);
                (body.lane == route.lane && body.origin == route.origin && name == route.origin).then_some(())
            }
            EntryKind::Recovery => {
                self.recoveries.push(serde_json::from_slice(line.body).ok()?);
                Some(())
            }
            EntryKind::Key => {
                let body: KeyBody = serde_json::from_slice(line.body).ok()?;
                let (name, key) = PublicKey::from_vkey(&body.key).ok()?;
                self.keys.push((line.seq, key));
                (name == route.origin && !std::mem::replace(&mut state.key_pending, true)).then_some(())
            }
            EntryKind::Erase => {
                self.erasures.push(serde_json::from_slice(line.body).ok()?);
                Some(())
            }
            EntryKind::Pack => {
                let body: PackBody = serde_json::from_slice(line.body).ok()?;
                (body.bytes > std::mem::replace(&mut self.pack_bytes, body.bytes) && line.version == 1)
                    .then_some(())
            }
            EntryKind::Resume => self.resume(serde_json::from_slice(line.body).ok()?, line.seq),
            EntryKind::Intent
            | EntryKind::Outcome
            | EntryKind::Answer
            | EntryKind::Agent
            | EntryKind::Policy
            | EntryKind::Kernel
            | EntryKind::Checkpoint => None,
        }
    }
}

impl Walk {
    /// A `resume` entry must not count entries that a checkpoint covers. Its counts must add up to its own position.
    fn resume(&mut self, body: ResumeBody, seq: u64) -> Option<()> {
        let counts = body.proven.checked_add(body.entries) == Some(seq) && body.proven >= self.proven.size();
        let longer = body.pack_bytes.is_none_or(|bytes| bytes > self.pack_bytes);
        let says_something = body.entries > 0 || body.pack_bytes.is_some();
        self.unvouched = self.unvouched.checked_add(body.entries)?;
        self.pack_bytes_found = body.pack_bytes.or(self.pack_bytes_found);
        (counts && longer && says_something).then_some(())
    }
}

/// State carried from line to line.
struct WalkState<'a> {
    tip: Tip,
    /// A key entry is pending until the old key signs a checkpoint over it.
    key_pending: bool,
    last: Option<Signed<'a>>,
}

/// A checkpoint seen during the walk.
struct Signed<'a> {
    seq: u64,
    root: Digest,
    signature: &'a [u8],
}

impl Signed<'_> {
    fn note(&self, origin: &str) -> (u64, String) {
        let checkpoint = Checkpoint { origin: origin.to_owned(), size: self.seq, root: self.root };
        (self.seq, checkpoint.with_signature(&String::from_utf8_lossy(self.signature)))
    }
}

/// Finds the changed entry when a line doesn't link to its predecessor.
///
/// If the next line still links to this line, this line is unchanged, so the previous one was changed. The last line is a checkpoint, and
/// its root decides.
fn blame(line: &Line<'_>, after: &[u8], tip: &Tip, origin: &str) -> u64 {
    let seq = tip.size();
    let as_written = match Line::scan(after) {
        Ok(next) => next.prev == line.hash(),
        Err(_) => {
            line.kind == EntryKind::Checkpoint
                && !line.body.starts_with(&spell_checkpoint(
                    &tip.frontier,
                    &tip.frontier.root(),
                    origin,
                    line.version,
                ))
        }
    };
    if as_written { seq.saturating_sub(1) } else { seq }
}

/// Whether a crash explains the bytes after the last valid entry: the start of a line, or the start of a line followed by zeroed sectors
/// that were never synced. Any other bytes were written on purpose.
pub(crate) fn is_explained_by_a_crash(bytes: &[u8], walk: &Walk) -> bool {
    let Some(stop) = &walk.stop else { return true };
    if stop.why != Defect::NotAnEntry {
        return false;
    }
    let rest = bytes.get(stop.offset..).unwrap_or_default();
    let zero = rest.iter().position(|byte| *byte == 0);
    let start = rest.get(..zero.unwrap_or(rest.len())).unwrap_or_default();
    let (start, cut_character) = match std::str::from_utf8(start) {
        Ok(_) => (start, true),
        Err(error) => (start.get(..error.valid_up_to()).unwrap_or_default(), error.error_len().is_none()),
    };
    if !cut_character || Line::scan(start) != Err(Flaw::Incomplete) {
        return false;
    }
    let Some(zero) = zero.map(|zero| stop.offset + zero) else { return true };
    let sector_end = (zero / SECTOR_BYTES + 1) * SECTOR_BYTES;
    let lost = bytes.get(zero..sector_end.min(bytes.len())).unwrap_or_default();
    let at_an_edge = zero % SECTOR_BYTES == 0 || zero == stop.offset;
    at_an_edge && lost.iter().all(|byte| *byte == 0)
}
