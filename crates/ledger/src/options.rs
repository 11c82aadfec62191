//! How a ledger behaves.

use std::path::PathBuf;

use crate::payload::PayloadKey;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// How a ledger behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The caller's clock at the moment of opening; the ledger has none of its own.
    pub opened_at_ms: i64,
    /// A segment that reached this size is followed by a new one.
    pub segment_bytes_max: u64,
    /// Time is cut into spans of this length; a segment with payloads of an earlier span is followed by a new one. Payloads are removed
    /// by the segment, so those of one span aren't kept by those of a later one.
    pub segment_span_ms: i64,
    /// The first entry starts a new segment if the last one has payloads. `gc` sets this: an entry of its own in an old segment would keep
    /// the payloads that it is about to remove.
    pub fresh_segment: bool,
    /// Whether every batch ends in a checkpoint, unless all of it was appended without a signature. If not, a crash leaves
    /// acknowledged entries in an unproven tail.
    pub checkpoint_every_batch: bool,
    /// Otherwise a checkpoint follows after this many entries.
    pub checkpoint_entries_max: u64,
    /// The index is renewed after this many checkpoints, besides on opening, rotation and closing.
    pub index_checkpoints_max: u32,
    /// A small file outside the ledger that remembers the head of each lane, against cuts, forks and rollback.
    pub witness: Option<PathBuf>,
    /// Payloads are encrypted with this key.
    pub payload_key: Option<PayloadKey>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            opened_at_ms: 0,
            segment_bytes_max: 16 << 20,
            segment_span_ms: DAY_MS,
            fresh_segment: false,
            checkpoint_every_batch: true,
            checkpoint_entries_max: 1024,
            index_checkpoints_max: 4096,
            witness: None,
            payload_key: None,
        }
    }
}
