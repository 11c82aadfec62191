//! What can be wrong with a ledger, and where.

use serde::{Serialize, Serializer};

use crate::{EntryKind, LaneId};

/// The first error found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}{}`{file}`{}: {why}", lane_text(*.lane), seq_text(*.seq), line_text(*.line))]
pub struct Break {
    /// The lane, unless the error affects the entire ledger.
    pub lane: Option<LaneId>,
    /// The first bad entry, if it can be identified.
    pub seq: Option<u64>,
    /// The file, relative to the ledger's folder.
    pub file: String,
    /// The line in that file, from 1.
    pub line: Option<u64>,
    /// What is wrong.
    pub why: Defect,
}

/// The source of a lane's known head, in [`Defect::Shorter`] and [`Defect::Root`].
pub(crate) const WITNESS: &str = "the witness";

impl Break {
    /// Whether the ledger may be sound in itself but differs from the one that the witness knows: truncated, forked, older, replaced or
    /// gone. Only an operator's decision to restore a backup or to start a new ledger resolves that.
    pub fn is_witnessed(&self) -> bool {
        match &self.why {
            Defect::Gone { .. }
            | Defect::AnotherLedger { .. }
            | Defect::LaneGone { .. }
            | Defect::RolledBack { .. } => true,
            Defect::Shorter { from, .. } | Defect::Root { from, .. } => *from == WITNESS,
            Defect::NotAnEntry
            | Defect::Link
            | Defect::Sequence { .. }
            | Defect::Checkpoint
            | Defect::Signature(_)
            | Defect::Misplaced(_)
            | Defect::UntrustedKey
            | Defect::MissingSegment { .. }
            | Defect::OpenSegment
            | Defect::MissingLane
            | Defect::SettledTail
            | Defect::Index(_)
            | Defect::PackShort { .. }
            | Defect::PackLong { .. }
            | Defect::Payload { .. }
            | Defect::UnknownLane(_) => false,
        }
    }
}

fn lane_text(lane: Option<LaneId>) -> String {
    lane.map(|lane| format!("lane {lane}, ")).unwrap_or_default()
}

fn seq_text(seq: Option<u64>) -> String {
    seq.map(|seq| format!("entry {seq} in ")).unwrap_or_default()
}

fn line_text(line: Option<u64>) -> String {
    line.map(|line| format!(" line {line}")).unwrap_or_default()
}

/// What is wrong with an entry, a file or a lane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The bytes are not a line in the fixed canonical form.
    #[error("not an entry in canonical form")]
    NotAnEntry,
    /// The chain is broken here.
    #[error("its hash doesn't match the link of the next entry, or its own link is wrong")]
    Link,
    /// Entries are missing, added or in another order.
    #[error("found entry {found} instead of {expected}")]
    Sequence {
        /// The position.
        expected: u64,
        /// The entry at that position.
        found: u64,
    },
    /// A checkpoint doesn't match the tree before it.
    #[error("the checkpoint doesn't match the tree before it")]
    Checkpoint,
    /// A checkpoint's signature is not by the lane's key.
    #[error("the checkpoint's signature is not by the lane's key: {0}")]
    Signature(String),
    /// An internal entry has the wrong form or position.
    #[error("a `{0}` entry that the ledger would not have written")]
    Misplaced(EntryKind),
    /// The lane starts under an untrusted key.
    #[error("the lane's key is not trusted")]
    UntrustedKey,
    /// A segment is missing.
    #[error("the segment with entry {expected} is missing")]
    MissingSegment {
        /// Its first entry.
        expected: u64,
    },
    /// A segment that isn't the last ends without a checkpoint.
    #[error("the segment does not end in a checkpoint")]
    OpenSegment,
    /// The lane has no folder.
    #[error("the lane is in the index but not on disk")]
    MissingLane,
    /// The lane is shorter than its known state.
    #[error("{from} knows {expected} entries, the lane has {found}")]
    Shorter {
        /// The source of the known state: the index, the witness or an expected checkpoint.
        from: &'static str,
        /// Entries known.
        expected: u64,
        /// Entries found.
        found: u64,
    },
    /// The lane's history differs from its known state.
    #[error("{from} knows another root at {size} entries")]
    Root {
        /// The source of the known state.
        from: &'static str,
        /// The size in question.
        size: u64,
    },
    /// A tail that a recovery entry settled has changed since.
    #[error("the tail settled by a recovery entry has changed")]
    SettledTail,
    /// The index is missing or not signed by a trusted key.
    #[error("the index is invalid: {0}")]
    Index(String),
    /// The ledger is older than the one that the witness knows.
    #[error("rolled back: the witness has seen version {witnessed} of the index, this is {found}")]
    RolledBack {
        /// The counter in the witness.
        witnessed: u64,
        /// The counter in the index.
        found: u64,
    },
    /// The witness knows a ledger here, but none exists.
    #[error("the ledger that was here is gone: the witness knows ledger {ledger} with {entries} entries")]
    Gone {
        /// Its name.
        ledger: String,
        /// Entries that the witness knows.
        entries: u64,
    },
    /// The witness knows another ledger here.
    #[error("another ledger: the witness knows {witnessed}, this is {found}")]
    AnotherLedger {
        /// The name in the witness.
        witnessed: String,
        /// The name in the index.
        found: String,
    },
    /// The witness knows a lane that doesn't exist.
    #[error("the witness knows the lane with {entries} entries, and it is not on disk")]
    LaneGone {
        /// Entries that the witness knows.
        entries: u64,
    },
    /// A pack is shorter than recorded, or missing.
    #[error("the pack should have {expected} bytes and has {found}")]
    PackShort {
        /// Recorded bytes.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// A pack of a completed segment is longer than recorded.
    #[error("the pack should have {expected} bytes and has {found}: entries that named the rest are gone")]
    PackLong {
        /// Recorded bytes.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// A record in a pack doesn't match its header, and no entry records its erasure.
    #[error("the payload at byte {at} does not match its digest")]
    Payload {
        /// Offset of the record.
        at: u64,
    },
    /// An expected checkpoint names a lane that this ledger doesn't have.
    #[error("this ledger has no lane `{0}`")]
    UnknownLane(String),
}

impl Serialize for Defect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
