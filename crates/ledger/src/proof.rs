//! Standalone proofs: of one entry, of the consistency of two checkpoints, and of a full session.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::internal::{ResumeBody, note_of};
use crate::layout::{segment_path, segments};
use crate::line::Line;
use crate::note::{Checkpoint, NoteError};
use crate::read::{ReadError, Reader};
use crate::tree::{Tree, verify_inclusion};
use crate::{Digest, EntryKind, LaneId, PublicKey};

/// The `format` value of an export.
const EXPORT_FORMAT: &str = "regent-export/v1";

/// An entry, and the proof that a signed checkpoint covers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The entry as stored on disk, without its newline.
    pub line: String,
    /// Its position in the lane.
    pub seq: u64,
    /// The Merkle path from its hash to the root.
    pub path: Vec<Digest>,
    /// The signed checkpoint.
    pub checkpoint: String,
}

/// Why a proof is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The checkpoint is invalid.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The line isn't the entry at that position.
    #[error("entry {0} is not what it should be")]
    Line(u64),
    /// The path doesn't lead to the root.
    #[error("the proof of entry {0} does not lead to the signed root")]
    Path(u64),
    /// It isn't a valid export of the session that it names.
    #[error("not an export of a session: {0}")]
    Export(String),
}

impl Proof {
    /// Verifies that one of these keys vouches for the entry.
    pub fn verify(&self, keys: &[PublicKey]) -> Result<(), ProofError> {
        let (checkpoint, _) = Checkpoint::open(&self.checkpoint, keys)?;
        check_entry(&self.line, self.seq, &self.path, &checkpoint)
    }
}

fn check_entry(line: &str, seq: u64, path: &[Digest], checkpoint: &Checkpoint) -> Result<(), ProofError> {
    let bytes = format!("{line}\n");
    let read = Line::parse(bytes.as_bytes()).filter(|read| read.seq == seq && read.bytes.len() == line.len());
    let leaf = read.ok_or(ProofError::Line(seq))?.hash();
    if verify_inclusion(&leaf, seq, checkpoint.size, path, &checkpoint.root) {
        Ok(())
    } else {
        Err(ProofError::Path(seq))
    }
}

/// All entries of a session, with proofs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// The format and its version.
    pub format: String,
    /// The session.
    pub session: String,
    /// The lanes that contain entries of the session.
    pub lanes: Vec<ExportedLane>,
}

/// A session's entries in one lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedLane {
    /// The lane.
    pub lane: LaneId,
    /// The signed checkpoint that all paths lead to.
    pub checkpoint: String,
    /// The entries in order.
    pub entries: Vec<ExportedEntry>,
}

/// One entry of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedEntry {
    /// The entry as stored on disk.
    pub line: String,
    /// Its position in the lane.
    pub seq: u64,
    /// The Merkle path from its hash to the root.
    pub path: Vec<Digest>,
}

impl Export {
    /// Parses an export strictly.
    pub fn parse(bytes: &[u8]) -> Result<Export, ProofError> {
        let export: Export =
            serde_json::from_slice(bytes).map_err(|error| ProofError::Export(error.to_string()))?;
        if export.format == EXPORT_FORMAT {
            Ok(export)
        } else {
            Err(ProofError::Export(export.format.chars().take(80).collect()))
        }
    }

    /// Verifies every entry against the signed checkpoints, and counts the entries. This doesn't prove completeness: only the ledger shows
    /// that no entry was omitted.
    pub fn verify(&self, keys: &[PublicKey]) -> Result<u64, ProofError> {
        let mut count = 0;
        for lane in &self.lanes {
            let (checkpoint, _) = Checkpoint::open(&lane.checkpoint, keys)?;
            for entry in &lane.entries {
                check_entry(&entry.line, entry.seq, &entry.path, &checkpoint)?;
                if !is_of_session(entry.line.as_bytes(), &self.session) {
                    return Err(ProofError::Line(entry.seq));
                }
                count += 1;
            }
        }
        Ok(count)
    }
}

fn is_of_session(line: &[u8], session: &str) -> bool {
    #[derive(Deserialize)]
    struct OfSession<'a> {
        #[serde(borrow)]
        body: Body<'a>,
    }
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow, default)]
        session: Option<std::borrow::Cow<'a, str>>,
    }
    serde_json::from_slice::<OfSession<'_>>(line)
        .is_ok_and(|of| of.body.session.is_some_and(|found| found == session))
}

/// The leaves of a lane up to its last proven checkpoint, and that checkpoint.
struct Leaves {
    hashes: Vec<Digest>,
    checkpoint: String,
    size: u64,
    /// Unvouched entries: they are in the tree but prove nothing.
    unvouched: Vec<Range<u64>>,
}

impl Leaves {
    fn vouches_for(&self, seq: u64) -> bool {
        !self.unvouched.iter().any(|range| range.contains(&seq))
    }
}

impl Reader {
    /// Proves that an entry is in the ledger. Reads the complete lane.
    pub fn prove(&self, lane: LaneId, seq: u64) -> Result<Proof, ReadError> {
        let mut wanted = BTreeMap::new();
        let leaves = self.leaves(lane, |line| {
            if line.seq == seq {
                wanted.insert(seq, String::from_utf8_lossy(line.bytes).into_owned());
            }
        })?;
        let missing = ReadError::NoEntry { lane, seq };
        let leaves = leaves.filter(|leaves| leaves.vouches_for(seq));
        let (Some(leaves), Some(line)) = (leaves, wanted.remove(&seq)) else { return Err(missing) };
        let path = Tree::new(leaves.hashes).inclusion(seq, leaves.size).ok_or(missing)?;
        Ok(Proof { line, seq, path, checkpoint: leaves.checkpoint })
    }

    /// Proves that a lane's first `old` entries are a prefix of its first `new`.
    pub fn prove_consistency(&self, lane: LaneId, old: u64, new: u64) -> Result<Vec<Digest>, ReadError> {
        let missing = || ReadError::NoEntry { lane, seq: new };
        let leaves = self.leaves(lane, |_| {})?.ok_or_else(missing)?;
        Tree::new(leaves.hashes).consistency(old, new).ok_or_else(missing)
    }

    /// Exports the entries whose body names a session, with proofs.
    pub fn export(&self, session: &str) -> Result<Export, ReadError> {
        let mut lanes = Vec::new();
        for lane in self.lanes()? {
            let mut wanted = Vec::new();
            let leaves = self.leaves(lane, |line| {
                if !line.kind.is_internal() && is_of_session(line.bytes, session) {
                    wanted.push((line.seq, String::from_utf8_lossy(line.bytes).into_owned()));
                }
            })?;
            let Some(leaves) = leaves.filter(|_| !wanted.is_empty()) else { continue };
            wanted.retain(|(seq, _)| leaves.vouches_for(*seq));
            let Leaves { hashes, checkpoint, size, .. } = leaves;
            let tree = Tree::new(hashes);
            let entries: Vec<ExportedEntry> = wanted
                .into_iter()
                .filter_map(|(seq, line)| {
                    // An entry without a checkpoint can't be proven, so it isn't exported.
                    tree.inclusion(seq, size).map(|path| ExportedEntry { line, seq, path })
                })
                .collect();
            if !entries.is_empty() {
                lanes.push(ExportedLane { lane, checkpoint, entries });
            }
        }
        Ok(Export { format: EXPORT_FORMAT.to_owned(), session: session.to_owned(), lanes })
    }

    /// Hashes a lane's entries up to the last proven one and passes each to `look`.
    fn leaves(&self, lane: LaneId, mut look: impl FnMut(&Line<'_>)) -> Result<Option<Leaves>, ReadError> {
        let settled = self.settled()?.get(&lane).copied();
        let mut hashes = Vec::new();
        let mut last: Option<(u64, String)> = None;
        let mut unvouched = Vec::new();
        let mut bytes = Vec::new();
        'lane: for first in segments(self.storage.as_ref(), lane)? {
            let path = segment_path(lane, first);
            self.storage.read(&path, 0, crate::lane::SEGMENT_BYTES_CAP, &mut bytes)?;
            let valid = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
            let mut at = 0;
            while let Ok(line) = Line::scan(bytes.get(at..valid).unwrap_or_default()) {
                if line.seq != hashes.len() as u64 || settled.is_some_and(|end| end.proven == line.seq) {
                    break 'lane;
                }
                look(&line);
                hashes.push(line.hash());
                at += line.bytes.len() + 1;
                if line.kind == EntryKind::Checkpoint {
                    last = note_of(line.body).map(|note| (line.seq, note));
                } else if line.kind == EntryKind::Resume
                    && let Ok(body) = serde_json::from_slice::<ResumeBody>(line.body)
                {
                    unvouched.push(body.proven..line.seq);
                }
            }
        }
        Ok(last.map(|(size, checkpoint)| Leaves { hashes, checkpoint, size, unvouched }))
    }
}
