//! Options of a ledger.

use std::path::PathBuf;

use crate::payload::PayloadKey;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Options of a ledger.
#[derive(Debug, Clone)]
pub struct Options {
    /// The caller's clock at opening time; the ledger has no clock.
    pub opened_at_ms: i64,
    /// Size at which a new segment starts.
    pub segment_bytes_max: u64,
    /// Time is divided into spans of this length. A new segment starts when the current one has payloads of an earlier span. Payloads are
    /// removed per segment, so payloads of one span don't outlive it because of later ones.
    pub segment_span_ms: i64,
    /// The first entry starts a new segment if the last one has payloads. `gc` sets this: its own entry in an old segment would keep the
    /// payloads that it is about to remove.
    pub fresh_segment: bool,
    /// Whether every batch ends in a checkpoint, unless all its drafts were appended unsigned. If not, a crash leaves acknowledged entries
    /// in an unproven tail.
    pub checkpoint_every_batch: bool,
    /// Otherwise, a checkpoint follows after this many entries.
    pub checkpoint_entries_max: u64,
    /// Checkpoints between index updates. Opening, rotation and closing update it too.
    pub index_checkpoints_max: u32,
    /// A small file outside the ledger that remembers the head of each lane. It detects truncation, forks and rollback.
    pub witness: Option<PathBuf>,
    /// The key that encrypts payloads.
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
