//! What can be wrong with a ledger, and where.

use serde::{Serialize, Serializer};

use crate::{Kind, LaneId};

/// The first error found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}{}`{file}`{}: {why}", lane_text(*.lane), seq_text(*.seq), line_text(*.line))]
pub struct Break {
    /// The lane, unless the whole ledger is meant.
    pub lane: Option<LaneId>,
    /// The first bad entry, where one can be named.
    pub seq: Option<u64>,
    /// The file, relative to the ledger's folder.
    pub file: String,
    /// The line in that file, from 1.
    pub line: Option<u64>,
    /// What is wrong.
    pub why: Why,
}

/// Who knows the head of a lane, in [`Why::Shorter`] and [`Why::Root`].
pub(crate) const WITNESS: &str = "the witness";

impl Break {
    /// Whether the ledger may be sound in itself and isn't the one that the witness knows: cut back, forked, older,
    /// replaced or gone. Only a decision to restore a backup or to begin anew leads on from there.
    pub fn is_witnessed(&self) -> bool {
        match &self.why {
            Why::Gone { .. } | Why::AnotherLedger { .. } | Why::LaneGone { .. } | Why::RolledBack { .. } => {
                true
            }
            Why::Shorter { from, .. } | Why::Root { from, .. } => *from == WITNESS,
            Why::NotAnEntry
            | Why::Link
            | Why::Sequence { .. }
            | Why::Checkpoint
            | Why::Signature(_)
            | Why::Misplaced(_)
            | Why::UntrustedKey
            | Why::MissingSegment { .. }
            | Why::OpenSegment
            | Why::MissingLane
            | Why::SettledTail
            | Why::Index(_)
            | Why::PackShort { .. }
            | Why::PackLong { .. }
            | Why::Payload { .. }
            | Why::UnknownLane(_) => false,
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
pub enum Why {
    /// The bytes are not a line of the fixed canonical form.
    #[error("not an entry in canonical form")]
    NotAnEntry,
    /// The chain doesn't hold here.
    #[error("its hash doesn't match the link of the next entry, or its own link is wrong")]
    Link,
    /// Entries are missing, added or in another order.
    #[error("found entry {found} instead of {expected}")]
    Sequence {
        /// The place.
        expected: u64,
        /// What stands there.
        found: u64,
    },
    /// A checkpoint doesn't state the tree before it.
    #[error("the checkpoint doesn't match the tree before it")]
    Checkpoint,
    /// A checkpoint's signature is not by the lane's key.
    #[error("the checkpoint's signature is not by the lane's key: {0}")]
    Signature(String),
    /// An internal entry has the wrong form or stands in the wrong place.
    #[error("a `{0}` entry that the ledger would not have written")]
    Misplaced(Kind),
    /// The lane starts under a key that nothing vouches for.
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
    /// A whole lane is missing.
    #[error("the lane is in the index but not on disk")]
    MissingLane,
    /// The lane is shorter than what is known of it.
    #[error("{from} knows {expected} entries, the lane has {found}")]
    Shorter {
        /// Who knows: the index, or a checkpoint that was handed in.
        from: &'static str,
        /// Entries known.
        expected: u64,
        /// Entries found.
        found: u64,
    },
    /// The lane has another history than what is known of it.
    #[error("{from} knows another root at {size} entries")]
    Root {
        /// Who knows.
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
    /// The whole ledger is older than the witness remembers.
    #[error("rolled back: the witness has seen version {witnessed} of the index, this is {found}")]
    RolledBack {
        /// The counter in the witness.
        witnessed: u64,
        /// The counter in the index.
        found: u64,
    },
    /// The witness knows a ledger here, and there is none.
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
    /// The witness knows a lane that isn't there.
    #[error("the witness knows the lane with {entries} entries, and it is not on disk")]
    LaneGone {
        /// Entries that the witness knows.
        entries: u64,
    },
    /// A pack is shorter than the entries say, or gone.
    #[error("the pack should have {expected} bytes and has {found}")]
    PackShort {
        /// Bytes recorded.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// A pack of a segment that is over is longer than the entries say.
    #[error("the pack should have {expected} bytes and has {found}: entries that named the rest are gone")]
    PackLong {
        /// Bytes accounted for.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// A record in a pack isn't what its header says, and isn't recorded as erased.
    #[error("the payload at byte {at} does not match its digest")]
    Payload {
        /// Offset of the record.
        at: u64,
    },
    /// A lane that was handed in for comparison isn't in this ledger.
    #[error("this ledger has no lane `{0}`")]
    UnknownLane(String),
}

impl Serialize for Why {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
